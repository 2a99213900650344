"""The simulation itself: a feeder, processors and a monitor as SimPy processes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from streamshed.control import Controller, HoldingController, LoadSample
from streamshed.engines.sim.arrivals import Arrivals, Spacing, ticks
from streamshed.engines.sim.backlog import Backlog
from streamshed.engines.sim.entry import CoinEntry, Entry, HoldingEntry, OpenEntry, PlannedEntry, Train
from streamshed.engines.sim.gauges import attach_gauges
from streamshed.engines.sim.measures import Measures
from streamshed.engines.sim.places import Places
from streamshed.engines.sim.processor import Processor, Service
from streamshed.engines.sim.result import SimResult
from streamshed.engines.sim.scheduled import Dispatch, ScheduledProcessor, Scheduling
from streamshed.engines.sim.traffic import Traffic
from streamshed.engines.sim.tuples import Times, Tuples
from streamshed.engines.sim.windows import Windows, attach_windows, watched_columns
from streamshed.errors import InvalidValueError
from streamshed.manager import Manager
from streamshed.network import Network, Statistics, check_rates
from streamshed.planning import Planner
from streamshed.planning.flow_builder import flow_graph
from streamshed.qos import LossGraph
from streamshed.workload import ArrivalPattern
from streamshed.workload.costs import ConstantCost, CostTrace

Process = Generator[Any, Any, None]

_FACTORS = 1024
_ASKS = 8  # times within the target


def simulate(
    network: Network,
    statistics: Statistics,
    arrivals: Mapping[str, ArrivalPattern],
    seconds: float,
    *,
    controller: Controller | None = None,
    planner: Planner | None = None,
    rates: Mapping[str, float] | None = None,
    target_s: float = 2.0,
    target_changes: Mapping[float, float] | None = None,
    period_s: float = 1.0,
    headroom: float = 1.0,
    cost: CostTrace | None = None,
    service: Service = "fixed",
    spacing: Spacing = "even",
    tick_s: float = 0.01,
    train_s: float = 0.01,
    processors: Mapping[str, str] | None = None,
    scheduling: Scheduling | None = None,
    windows: Windows | None = None,
    seed: int = 0,
    drain: bool = False,
    keep_tuples: bool = False,
    progress: Callable[[float], None] | None = None,
) -> SimResult:
    """Run a network in virtual time.

    A processor takes the operators that have something to do in turn (round robin). A turn is a train: the tuples
    that are there, as many as can be processed in `train_s`. Where every processor has one operator, delays are exact
    to the digit. Otherwise arrivals come to the operators in groups, every `train_s`, so that trains are worth their
    name also under little load; delays are then too long by up to that, and exact with `train_s` = 0.

    The controller gets a sample every `period_s`. Without a planner it is asked for an admission at every tick, about
    the tuples that arrive in it (and those held back before, if it is one that holds), and its `keep` is a coin at the
    entries. With a planner it is asked eight times within the target, and the manager turns its answer into drops.

    Args:
        network: the network.
        statistics: what its operators cost and let through, and how values are spread.
        arrivals: when tuples come, by stream.
        seconds: for how long tuples arrive; rounded up to whole control periods.
        controller: decides how much; None lets everything in.
        planner: decides where; None for the entries alone.
        rates: tuples per second that the planner takes as given; the mean rates of the arrivals if None.
        target_s: the delay beyond which a tuple counts as late.
        target_changes: new targets, by the time from which they count; the controller is told.
        period_s: the control period.
        headroom: H, the share of a processor that queries get.
        cost: by how much costs differ from the nominal ones over time.
        service: how costs of single tuples lie around the mean.
        spacing: how arrivals lie within their pattern.
        tick_s: arrivals are decided upon for so much time at once.
        train_s: how long a turn may take; a train of one tuple may take longer. The unit in which delays are exact.
        processors: the name of the processor of each operator; one for all that are not mentioned.
        scheduling: strategies by which one processor serves the operators, instead of turns.
        windows: joins and aggregates to simulate with what is in their windows; by their statistics alone if None.
        seed: of everything random.
        drain: whether to go on after that, without arrivals, until nothing is under way. Then every tuple counts as
            what became of it, and a backlog at the end hides neither delays nor losses.
        keep_tuples: whether to return arrival and departure of every tuple.
        progress: called with the virtual time at the end of every control period.

    >>> from streamshed.network import NetworkBuilder
    >>> from streamshed.workload import Constant
    >>> new = NetworkBuilder("example")
    >>> new.stream("s", {"v": "double"}).map("work", {"v": "v"}).output("out")
    >>> run = simulate(new.build(), Statistics({"work": 0.004}), {"s": Constant(200)}, seconds=10)
    >>> run.delivered, round(run.utilization, 2), round(run.delays.mean_s, 4)
    (1999, 0.8, 0.004)
    """
    checked = {"seconds": seconds, "period_s": period_s, "tick_s": tick_s, "headroom": headroom, "target_s": target_s}
    for name, value in checked.items():
        if not (value > 0 and math.isfinite(value)):
            raise InvalidValueError(f"{name} must be positive", where="simulation", got=value, expected="> 0")
    if not train_s >= 0:
        raise InvalidValueError("train_s must not be negative", where="simulation", got=train_s, expected=">= 0")
    if scheduling is not None and processors is not None:
        raise InvalidValueError(
            "strategies are for one processor", where="simulation", got="scheduling and processors", expected="one"
        )
    statistics.check(network)
    mean_rates = {stream: float(pattern.cumulative(seconds)) / seconds for stream, pattern in arrivals.items()}
    check_rates(network, mean_rates)
    planned_rates = dict(rates) if rates is not None else mean_rates
    manager = None
    if planner is not None and controller is not None:
        manager = Manager(network, statistics, planned_rates, controller, planner)
    env = simpy.Environment()
    per_period = max(1, round(period_s / tick_s))
    periods = math.ceil(seconds / period_s - 1e-9)
    dispatch = None if scheduling is None else Dispatch(scheduling, network, statistics, planned_rates)
    arcs = {arc.id: arc for arc in network.arcs}
    columns = [] if dispatch is None else [(arcs[arc], column) for arc, column in dispatch.columns]
    columns += [] if windows is None else watched_columns(network)
    places = Places(network, statistics, seed, manager.locations if manager is not None else (), columns)
    aggregates = {} if windows is None else attach_windows(places, windows, seed)
    tuples = Tuples(places.slots.count)
    named = {operator.id: (processors or {}).get(operator.id, "") for operator in network.operators}
    sizes = Counter(named.values())
    by_name = {name: Processor(env, size, headroom, service, seed) for name, size in sorted(sizes.items())}
    if dispatch is not None:
        count = len(network.operators)
        by_name = {"": ScheduledProcessor(env, count, headroom, service, seed, dispatch.master, places.outs)}
    measures = Measures(period_s, periods, target_s, keep_tuples)
    by_operator = {operator: by_name[name] for operator, name in named.items()}
    traffic = Traffic(places, tuples, by_operator, measures, statistics.drop_cost, train_s)
    shared = (traffic, list(by_name.values()), period_s / per_period)
    entry: Entry
    if controller is None:
        entry = OpenEntry(*shared)
    elif manager is not None:
        entry = PlannedEntry(
            *shared, manager, Backlog(places, statistics, planned_rates), min(period_s, target_s / _ASKS)
        )
    elif isinstance(controller, HoldingController):
        entry = HoldingEntry(*shared, controller)
    else:
        entry = CoinEntry(*shared, controller)
    feeds = {
        stream.id: Arrivals(stream.id, number, arrivals[stream.id], spacing, places, statistics, seed)
        for number, stream in enumerate(network.streams)
    }
    clock = _Clock(env, period_s, period_s / per_period, per_period, periods)
    run = _Run(
        clock,
        entry,
        traffic,
        list(by_name.values()),
        controller,
        train_s,
        cost or ConstantCost(),
        sorted((target_changes or {}).items()),
        drain,
        progress,
        dispatch,
    )
    gauges = attach_gauges(places, period_s, periods)
    if dispatch is not None:
        dispatch.attach(places, tuples)
    run.play(feeds)
    losses = {leaf.output: leaf.loss for leaf in flow_graph(network, statistics, planned_rates).leaves}
    outputs = {name: gauge.result(losses.get(name, LossGraph.linear())) for name, gauge in gauges.items()}
    arrivals_s, departures_s = measures.tuples_s
    work_s = sum(processor.work_s for processor in by_name.values())
    return SimResult(
        seconds=clock.end_s,
        arrived=entry.total_arrived,
        admitted=entry.total_admitted,
        delivered=measures.delivered,
        dropped=measures.dropped,
        filtered=measures.filtered,
        under_way=run.under_way,
        violations_s=measures.violations_s,
        delayed=measures.delayed,
        overshoot_s=measures.overshoot_s,
        delays=measures.delays,
        utilization=work_s / headroom / env.now / max(1, len(by_name)),
        executions=sum(processor.executions for processor in by_name.values()),
        dropped_on={arc: out.dropped for arc, out in places.outs.items() if out.dropped},
        faced={arc: out.faced for arc, out in places.outs.items() if out.dropped},
        entered={arc: out.entered for arc, out in places.outs.items()},
        outputs=outputs,
        work_s=work_s,
        series=measures.series,
        arrivals_s=arrivals_s,
        departures_s=departures_s,
        scheduling=dispatch.result({name: seen.result for name, seen in aggregates.items()}) if dispatch else None,
    )


@dataclass(frozen=True)
class _Clock:
    """Virtual time in ticks and control periods."""

    env: simpy.Environment
    period_s: float
    tick_s: float
    per_period: int
    periods: int

    @property
    def end_s(self) -> float:
        return self.periods * self.period_s

    def until(self, tick: int) -> simpy.Event:
        """An event at the beginning of a tick."""
        return self.env.timeout(max(0.0, tick * self.tick_s - self.env.now))


class _Run:
    """The processes of one simulation."""

    def __init__(
        self,
        clock: _Clock,
        entry: Entry,
        traffic: Traffic,
        processors: list[Processor],
        controller: Controller | None,
        train_s: float,
        cost: CostTrace,
        target_changes: list[tuple[float, float]],
        drain: bool,
        progress: Callable[[float], None] | None,
        dispatch: Dispatch | None,
    ) -> None:
        self._clock = clock
        self._entry = entry
        self._traffic = traffic
        self._measures = traffic.measures
        self._processors = processors
        self._controller = controller
        self._train_s = train_s
        self._cost = cost
        self._target_changes = target_changes
        self._drain = drain
        self._progress = progress
        self._dispatch = dispatch
        self._factor = 1.0

    def play(self, feeds: Mapping[str, Arrivals]) -> None:
        """Run to the end, and close the books."""
        env = self._clock.env
        monitor = env.process(self._monitor())  # before the feeder: a sample comes before the tick that it ends with
        env.process(self._feeder(feeds))
        for processor in self._processors:
            env.process(self._serve(processor))
        if self._dispatch is not None:
            env.process(self._record(self._dispatch))
            env.process(self._optimize(self._dispatch))
        env.run(until=monitor)
        self._measures.delays_of_period()
        self._traffic.ghosts.settle()

    @property
    def under_way(self) -> int:
        """Tuples that have arrived and have neither left nor been dropped."""
        return self._traffic.outstanding + self._entry.held

    def _monitor(self) -> Process:
        for number in itertools.count(1):
            yield self._clock.until(number * self._clock.per_period)
            sample = self._sample(number * self._clock.period_s)
            self._entry.observe(sample)
            if self._progress is not None:
                self._progress(sample.time_s)
            if number >= self._clock.periods and not (self._drain and self.under_way):
                return

    def _feeder(self, feeds: Mapping[str, Arrivals]) -> Process:
        clock = self._clock
        factors: Times = np.ones(0)
        count = clock.periods * clock.per_period
        arriving = ticks(feeds, clock.tick_s, count, self._traffic.tuples, self._traffic.ghosts.settle)
        nothing: Iterable[list[Train]] = itertools.repeat([]) if self._drain else ()
        for tick, trains in enumerate(itertools.chain(arriving, nothing)):
            yield clock.until(tick)
            if tick % _FACTORS == 0:
                factors = self._cost.factor(np.arange(tick, tick + _FACTORS, dtype=np.float64) * clock.tick_s)
            self._factor = float(factors[tick % _FACTORS])
            self._change_target(tick * clock.tick_s)
            self._entry.take(clock.env.now, trains)

    def _serve(self, processor: Processor) -> Process:
        env = self._clock.env
        while True:
            turn = processor.next()
            if turn is None:
                yield processor.work()
                continue
            place, side, ids, done_s = processor.take(turn[1], self._train_s, self._factor)
            self._traffic.leave(place, side, ids, done_s)
            yield env.timeout(max(0.0, float(done_s[-1]) - env.now))

    def _record(self, dispatch: Dispatch) -> Process:
        env = self._clock.env
        while True:
            yield env.timeout(dispatch.scheduling.sample_s)
            dispatch.record(env.now)

    def _optimize(self, dispatch: Dispatch) -> Process:
        env = self._clock.env
        while (next_s := dispatch.optimizer.next_s) < math.inf:
            yield env.timeout(max(0.0, next_s - env.now))
            dispatch.review(env.now)

    def _change_target(self, now_s: float) -> None:
        while self._target_changes and self._target_changes[0][0] <= now_s + 1e-9:
            self._measures.delays_of_period()
            self._measures.target_s = self._target_changes.pop(0)[1]
            if self._controller is not None:
                self._controller.target_s = self._measures.target_s

    def _sample(self, time_s: float) -> LoadSample:
        entry = self._entry
        delays_s = self._measures.delays_of_period()
        quantiles = [float(q) for q in np.quantile(delays_s, [0.5, 0.95, 0.99, 1.0])] if len(delays_s) else [None] * 4
        busy_s = sum(processor.busy_s for processor in self._processors)
        sample = LoadSample(
            time_s,
            self._clock.period_s,
            entry.arrived,
            round(entry.kept),
            waiting=float(entry.held),
            oldest_wait_s=max(0.0, time_s - entry.oldest_s),
            delay_p50_s=quantiles[0],
            delay_p95_s=quantiles[1],
            delay_p99_s=quantiles[2],
            delay_max_s=quantiles[3],
            outstanding=entry.outstanding,
            finished=entry.finished,
            busy_s=busy_s,
        )
        if time_s <= self._clock.end_s + 1e-9:  # the series are about the time of arrivals
            self._measures.end_period(time_s, entry.arrived, entry.admitted, entry.finished, entry.outstanding, busy_s)
        entry.start_period()
        return sample
