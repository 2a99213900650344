"""What happens to arriving tuples: how a controller's admission is carried out."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from streamshed.control import Controller, HoldingController, LoadSample, Outlook
from streamshed.engines.sim.backlog import Backlog
from streamshed.engines.sim.processor import Processor
from streamshed.engines.sim.traffic import Traffic
from streamshed.engines.sim.tuples import Ids, Times
from streamshed.manager import Manager

Train = tuple[str, Ids, Times]
"""A stream, tuples of it, and when they arrive."""


def _count(trains: list[Train]) -> int:
    return sum(len(ids) for _, ids, _ in trains)


class Entry(ABC):
    """Decides on arriving tuples, and says how full the network is in the terms that the decision is made in.

    Args:
        traffic: where tuples go.
        processors: that work on them.
        tick_s: how often it is asked.

    Attributes:
        arrived: tuples that came since the last sample.
        admitted: those that were let in.
        total_arrived: tuples that came.
        total_admitted: those that were let in.
    """

    def __init__(self, traffic: Traffic, processors: list[Processor], tick_s: float) -> None:
        self._traffic = traffic
        self._processors = processors
        self._tick_s = tick_s
        self.arrived = self.admitted = self.total_arrived = self.total_admitted = 0

    def take(self, now_s: float, trains: list[Train]) -> None:
        """Decide on the tuples of a tick."""
        count = _count(trains)
        self.arrived += count
        self.total_arrived += count
        for stream, ids, _ in trains:
            self._traffic.places.outs[stream].entered += len(ids)
        self._decide(now_s, trains)

    @abstractmethod
    def _decide(self, now_s: float, trains: list[Train]) -> None: ...

    @abstractmethod
    def observe(self, sample: LoadSample) -> None:
        """Hand a sample to whoever decides."""

    @property
    def kept(self) -> float:
        """What was let in since the last sample."""
        return float(self.admitted)

    @property
    def held(self) -> int:
        """Tuples that have arrived and are not decided upon."""
        return 0

    @property
    def oldest_s(self) -> float:
        """When the oldest of these arrived; infinite without one."""
        return float("inf")

    @property
    def outstanding(self) -> float:
        """The length of the virtual queue."""
        return float(self._traffic.outstanding)

    @property
    def finished(self) -> float:
        """What has left the virtual queue since the last sample."""
        return float(self._traffic.finished)

    def start_period(self) -> None:
        """Count from zero again."""
        self.arrived = self.admitted = 0
        self._traffic.finished = 0
        for processor in self._processors:
            processor.busy_s = processor.nominal_s = 0.0

    def _let_in(self, stream: str, ids: Ids, times_s: Times) -> None:
        if len(ids):
            self.admitted += len(ids)
            self.total_admitted += len(ids)
            self._traffic.let_in(stream, ids, times_s)

    def _past_drop(self, train: Train) -> None:
        """Let in what gets past the drop at the entry of a stream."""
        stream, ids, times_s = train
        entry = self._traffic.places.outs[stream]
        if entry.threshold > 0:
            entry.faced += len(ids)
            self._traffic.charge_drop(entry, len(ids))
            tuples = self._traffic.tuples
            kept = entry.ranks(tuples, tuples.at(ids)) >= entry.threshold
            if not kept.all():
                self._traffic.refuse(stream, ids[~kept])
                ids, times_s = ids[kept], times_s[kept]
        self._let_in(stream, ids, times_s)


class OpenEntry(Entry):
    """Lets everything in."""

    def observe(self, sample: LoadSample) -> None:
        pass

    def _decide(self, now_s: float, trains: list[Train]) -> None:  # noqa: ARG002 - nothing is decided
        for stream, ids, times_s in trains:
            self._let_in(stream, ids, times_s)


class CoinEntry(Entry):
    """Flips a coin for every tuple: the actuator in front of the network (control-based shedder, section 4.5.2)."""

    def __init__(self, traffic: Traffic, processors: list[Processor], tick_s: float, controller: Controller) -> None:
        super().__init__(traffic, processors, tick_s)
        self._controller = controller

    def observe(self, sample: LoadSample) -> None:
        self._controller.observe(sample)

    def _decide(self, now_s: float, trains: list[Train]) -> None:
        count = _count(trains)
        if not count:
            return
        outlook = Outlook(now_s, float(count), 0.0, self._tick_s, self.outstanding, self.finished)
        threshold = 1.0 - self._controller.admit(outlook).keep
        for train in trains:
            self._traffic.places.outs[train[0]].threshold = threshold
            self._past_drop(train)


class HoldingEntry(Entry):
    """Holds tuples back until the controller lets them go on, the oldest first, or has waited too long for them."""

    def __init__(
        self, traffic: Traffic, processors: list[Processor], tick_s: float, controller: HoldingController
    ) -> None:
        super().__init__(traffic, processors, tick_s)
        self._controller = controller
        self._names: list[str] = list(traffic.places.entries)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._ids: Ids = np.zeros(0, dtype=np.int64)
        self._times_s: Times = np.zeros(0)
        self._streams: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def held(self) -> int:
        return len(self._ids)

    @property
    def oldest_s(self) -> float:
        return float(self._times_s[0]) if len(self._times_s) else float("inf")

    def observe(self, sample: LoadSample) -> None:
        self._controller.observe(sample)

    def _decide(self, now_s: float, trains: list[Train]) -> None:
        self._hold(trains)
        if not self.held:
            return
        oldest_s = max(0.0, now_s - self.oldest_s)
        outlook = Outlook(
            now_s,
            float(self.held),
            oldest_s,
            max(oldest_s, self._tick_s),
            self.outstanding,
            self.finished,
            again_s=self._tick_s,
        )
        release = self._controller.admit(outlook)
        late = int(np.searchsorted(self._times_s, now_s - release.wait_limit_s, side="left"))
        if late:
            for stream, ids, _ in self._split(0, late):
                self._traffic.refuse(stream, ids)
        go = min(self.held, late + int(np.ceil(release.room)))
        if go > late:
            for stream, ids, times_s in self._split(late, go):
                # Not taken in before it is released; what arrives later in the tick comes when it arrives.
                self._let_in(stream, ids, np.maximum(times_s, now_s))
        self._ids, self._times_s, self._streams = self._ids[go:], self._times_s[go:], self._streams[go:]

    def _hold(self, trains: list[Train]) -> None:
        if not trains:
            return
        ids = np.concatenate([ids for _, ids, _ in trains])
        times_s = np.concatenate([times_s for _, _, times_s in trains])
        streams = np.repeat([self._numbers[stream] for stream, _, _ in trains], [len(train[1]) for train in trains])
        if len(trains) > 1:
            order = np.argsort(times_s, kind="stable")
            ids, times_s, streams = ids[order], times_s[order], streams[order]
        self._ids = np.concatenate([self._ids, ids])
        self._times_s = np.concatenate([self._times_s, times_s])
        self._streams = np.concatenate([self._streams, streams])

    def _split(self, start: int, end: int) -> list[Train]:
        """A stretch of the held tuples by stream."""
        ids, times_s, streams = self._ids[start:end], self._times_s[start:end], self._streams[start:end]
        if len(self._names) == 1:
            return [(self._names[0], ids, times_s)]
        return [
            (self._names[number], ids[mine], times_s[mine])
            for number in np.unique(streams).tolist()
            if (mine := streams == number).any()
        ]


class PlannedEntry(Entry):
    """Lets the manager decide: drops on any arc, by its planner; everything is counted in full tuples.

    It is asked several times within the target, each time about as many tuples as came since it was asked before. At
    every tick would be too often: the few tuples of a tick weigh no more than the chance fluctuations of the queue, so
    decisions would swing between everything and nothing, and drops that swing cost more utility than steady ones.

    Args:
        traffic: where tuples go.
        processors: that work on them.
        tick_s: how often arrivals are taken in.
        manager: decides.
        backlog: reckons in full tuples.
        ask_s: how often the manager is asked.
    """

    def __init__(
        self,
        traffic: Traffic,
        processors: list[Processor],
        tick_s: float,
        manager: Manager,
        backlog: Backlog,
        ask_s: float,
    ) -> None:
        super().__init__(traffic, processors, tick_s)
        self._manager = manager
        self._backlog = backlog
        self._ask_s = ask_s
        self._kept = 0.0
        self._load_share = 1.0
        self._asked_s = 0.0
        self._since = 0

    def observe(self, sample: LoadSample) -> None:
        self._manager.observe(sample)

    @property
    def kept(self) -> float:
        return self._kept

    @property
    def outstanding(self) -> float:
        return self._backlog.waiting

    @property
    def finished(self) -> float:
        nominal_s = sum(processor.nominal_s for processor in self._processors)
        return nominal_s / self._backlog.full_s if self._backlog.full_s > 0 else 0.0

    def start_period(self) -> None:
        super().start_period()
        self._kept = 0.0

    def _decide(self, now_s: float, trains: list[Train]) -> None:
        span_s = now_s - self._asked_s
        if span_s >= self._ask_s - 1e-9:
            outlook = Outlook(now_s, float(self._since), 0.0, span_s, self.outstanding, self.finished)
            decision = self._manager.decide(outlook)
            self._backlog.set(decision.thresholds)
            self._load_share = decision.load_share
            self._asked_s, self._since = now_s, 0
        count = _count(trains)
        self._since += count
        self._kept += count * self._load_share
        for train in trains:
            self._past_drop(train)
