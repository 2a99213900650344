"""Operators under scheduling strategies: a processor that obeys the master scheduler, with optimizer and shedders."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import simpy

from streamshed.engines.sim.places import Out, Place, Places
from streamshed.engines.sim.processor import MOST, Processor, Service
from streamshed.engines.sim.tracks import Both, SchedulingResult, Watch, read
from streamshed.engines.sim.tuples import Ids, Times, Tuples
from streamshed.engines.sim.windows import WindowSums
from streamshed.errors import InvalidValueError
from streamshed.network import Network, Statistics
from streamshed.network.paths import goals_of, queries
from streamshed.qos import Measure
from streamshed.scheduling import (
    MasterScheduler,
    OptimizerSettings,
    RuntimeOptimizer,
    Slice,
    arc_bytes,
    jobs,
)
from streamshed.shedding import ObservedRange, Shedder, shedders

_ROUNDING_S = 1e-9


@dataclass(frozen=True)
class Scheduling:
    """Under which strategies queries run in a simulation.

    Attributes:
        strategy: of all queries that `strategies` does not name, at the start; None for what the optimizer would
            start with, or round robin without one.
        strategies: by query, which is named after its (first) output.
        optimizer: how the runtime optimizer works; None to leave strategies as they are.
        quantum_s: how long an operator may run at a time.
        sample_s: how often measures are recorded.
        sizes: bytes of a tuple that a stream or operator hands on; from the types of its columns where not given.
    """

    strategy: str | None = None
    strategies: Mapping[str, str] = field(default_factory=dict)
    optimizer: OptimizerSettings | None = None
    quantum_s: float = 0.01
    sample_s: float = 1.0
    sizes: Mapping[str, float] = field(default_factory=dict)


class ScheduledProcessor(Processor):
    """Serves operators as a master scheduler says.

    A turn is one step after the other, each taking the tuples that are there, at most so many as its slice allows.
    """

    def __init__(
        self,
        env: simpy.Environment,
        operators: int,
        headroom: float,
        service: Service,
        seed: int,
        master: MasterScheduler,
        outs: Mapping[str, Out],
    ) -> None:
        super().__init__(env, operators, headroom, service, seed)
        self.serves_one = False
        self._master = master
        self._outs = outs
        self._filled: dict[str, Out] = {}
        self._slices: deque[Slice] = deque()

    def list(self, place: Place) -> None:
        for out in place.inputs:
            if out.queue.length:
                self._filled[out.arc.id] = out
        self._wake()

    def work(self) -> simpy.Event:
        if self._filled:
            first_s = min(out.queue.head_s for out in self._filled.values())
            return self._env.timeout(max(0.0, first_s - self._env.now))
        return super().work()

    def next(self) -> tuple[Place, float] | None:
        now_s = self._env.now
        until_s = now_s + _ROUNDING_S
        while True:
            while self._slices:
                out = self._outs[self._slices[0].step.id]
                if out.place is not None and out.queue.head_s <= until_s:
                    return out.place, now_s
                self._slices.popleft()
            waiting = {
                name: float(out.queue.length) for name, out in self._filled.items() if out.queue.head_s <= until_s
            }
            turn = self._master.next(waiting)
            if turn is None:
                return None
            self._slices.extend(turn.slices)

    def take(self, start_s: float, train_s: float, factor: float) -> tuple[Place, int, Ids, Times]:  # noqa: ARG002
        part = self._slices.popleft()
        out = self._outs[part.step.id]
        place = out.place
        if place is None:  # an arc into an output is no step
            raise InvalidValueError("nothing to run", where="scheduler", got=part.step.id, expected="an operator's arc")
        ids, ready_s = out.queue.take(min(part.most, MOST), start_s + _ROUNDING_S)
        if not out.queue.length:
            del self._filled[part.step.id]
        done_s = self._run(place, ids, np.minimum(ready_s, start_s), start_s, factor)
        self._master.spent(float(done_s[-1]) - start_s)
        return place, out.arc.port, ids, done_s


class Dispatch:
    """Scheduling at work in a simulation: the master scheduler, the optimizer, the shedders, and the record.

    Args:
        scheduling: what is wanted.
        network: the network.
        statistics: what is known about it.
        rates: tuples per second, for the place weights.
    """

    def __init__(
        self, scheduling: Scheduling, network: Network, statistics: Statistics, rates: Mapping[str, float]
    ) -> None:
        self._network = network
        self.scheduling = scheduling
        self.master = MasterScheduler(scheduling.quantum_s)
        self.optimizer = RuntimeOptimizer(self.master, scheduling.optimizer)
        sizes = arc_bytes(network, scheduling.sizes)
        found = queries(network)
        unknown = [name for name in scheduling.strategies if name not in {query.id for query in found}]
        if unknown:
            raise InvalidValueError(
                "a strategy for a query that does not exist",
                where="scheduling",
                got=unknown[0],
                expected=" or ".join(query.id for query in found),
            )
        self._watches = {query.id: Watch(query, network, sizes) for query in found}
        self.shedders: dict[str, tuple[Shedder, ...]] = {}
        for query, job in zip(found, jobs(network, statistics, scheduling.sizes), strict=True):
            goals = goals_of(network, query)
            first = self.optimizer.first(goals if scheduling.optimizer is not None else None)
            strategy = scheduling.strategies.get(query.id) or scheduling.strategy or first
            if job.paths:
                self.master.start(job, strategy)
            if goals is None:
                continue
            mtre = dict.fromkeys(query.outputs, goals.mtre)
            placed = shedders(network, statistics, rates, query.paths, mtre, goals.shed_by)
            self.shedders[query.id] = placed
            if scheduling.optimizer is not None:
                self.optimizer.watch(query.id, goals, strategy, placed)
        self.master.next({})  # carries the requests out
        self._ranges: dict[str, ObservedRange] = {}
        self._places: Places | None = None
        self._tuples: Tuples | None = None

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The arcs and columns that shedders look at."""
        return [
            (shedder.arc, shedder.by.column)
            for placed in self.shedders.values()
            for shedder in placed
            if shedder.by is not None
        ]

    def attach(self, places: Places, tuples: Tuples) -> None:
        """Put meters before outputs and shedders into buffers; after all other gauges."""
        self._places, self._tuples = places, tuples
        for watch in self._watches.values():
            for output in watch.query.outputs:
                out = places.outs[self._network.arcs_into[output][0].id]
                meters = Both(watch.meter, watch.judged)
                out.gauge = meters if out.gauge is None else Both(out.gauge, meters)
        arcs = {arc.id: arc for arc in self._network.arcs}
        for placed in self.shedders.values():
            for shedder in placed:
                if shedder.by is None:
                    continue
                slot = places.slots.slot(arcs[shedder.arc], shedder.by.column)
                if slot is None:
                    raise InvalidValueError(
                        "the values to shed by are not known",
                        where=f"arc {shedder.arc!r}",
                        got=shedder.by.column,
                        expected="a column that comes unchanged from a stream with a histogram",
                    )
                seen = self._ranges[shedder.arc] = ObservedRange(shedder.by.first)
                places.outs[shedder.arc].rank_by_range(slot, seen)

    def review(self, now_s: float) -> None:
        """Let the optimizer look at the queries that are due, and do as it says."""
        if self._places is None:
            return
        for decision in self.optimizer.review(now_s, lambda query: self._measure(query, now_s)):
            self._watches[decision.query].judged.since_s = self.optimizer.changed_s(decision.query)
            for shedder in self.shedders.get(decision.query, ()):
                out = self._places.outs[shedder.arc]
                share = decision.shedding.get(shedder.arc, 0.0)
                if share > 0 and out.threshold == 0 and shedder.arc in self._ranges:
                    self._ranges[shedder.arc].take_range()
                out.threshold = share

    def _measure(self, query: str, now_s: float) -> dict[Measure, float]:
        """For the optimizer: where nothing came out, the wait of the oldest tuple is the least that is to come."""
        watch = self._watches[query]
        latency_s, throughput_tps = read(watch.for_optimizer, watch.judged, now_s)
        if np.isnan(latency_s):
            latency_s = self._oldest_s(watch, now_s)
        found = {Measure.MEMORY: self._memory_bytes(watch), Measure.THROUGHPUT: throughput_tps}
        return found if np.isnan(latency_s) else {Measure.LATENCY: latency_s, **found}

    def record(self, now_s: float) -> None:
        """Take a sample of every query."""
        for query, watch in self._watches.items():
            latency_s, throughput_tps = read(watch.for_record, watch.meter, now_s)
            watch.rows.append((now_s, latency_s, self._memory_bytes(watch), throughput_tps))
            watch.strategies.append(self.master.strategy_of(query) or "")

    def _memory_bytes(self, watch: Watch) -> float:
        outs = self._places.outs if self._places is not None else {}
        return sum(outs[arc].queue.length * size for arc, size in watch.arcs)

    def _oldest_s(self, watch: Watch, now_s: float) -> float:
        if self._places is None or self._tuples is None:
            return np.nan
        heads = [head for arc, _ in watch.arcs if (head := self._places.outs[arc].queue.head_id) is not None]
        if not heads:
            return np.nan
        arrived_s = self._tuples.arrived_s[self._tuples.at(np.array(heads))]
        return max(0.0, now_s - max(float(arrived_s.min()), watch.judged.since_s))

    def result(self, windows: Mapping[str, WindowSums]) -> SchedulingResult:
        """What has come of it."""
        tracks = {query: watch.track for query, watch in self._watches.items()}
        return SchedulingResult(tracks, tuple(self.optimizer.log), self.shedders, windows)
