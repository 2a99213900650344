"""What is measured of queries under scheduling strategies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streamshed.engines.sim.places import Gauge
from streamshed.engines.sim.tuples import Ids, Times, Tuples
from streamshed.engines.sim.windows import WindowSums
from streamshed.network import Network
from streamshed.network.paths import Query
from streamshed.scheduling import Decision
from streamshed.shedding import Shedder


@dataclass(frozen=True)
class QueryTrack:
    """What was measured of a query, by sample.

    Attributes:
        time_s: when.
        latency_s: mean delay of what came out since the sample before; NaN where nothing did.
        memory_bytes: bytes of the tuples in its queues.
        throughput_tps: tuples that came out per second.
        strategy: the strategy that it was under.
        latency_mean_s: mean delay of all that came out.
        delivered: how much that was.
    """

    time_s: Times
    latency_s: Times
    memory_bytes: Times
    throughput_tps: Times
    strategy: tuple[str, ...]
    latency_mean_s: float
    delivered: int


@dataclass(frozen=True)
class SchedulingResult:
    """What scheduling has come to.

    Attributes:
        queries: what was measured, by query.
        decisions: all decisions of the runtime optimizer.
        shedders: of each query, in falling order of place weight.
        windows: what the aggregates have seen, where windows were simulated.
    """

    queries: Mapping[str, QueryTrack]
    decisions: tuple[Decision, ...]
    shedders: Mapping[str, tuple[Shedder, ...]]
    windows: Mapping[str, WindowSums]


class Meter(Gauge):
    """Counts what comes out of a query, beside whoever counts there already.

    Attributes:
        since_s: what a tuple waited before does not count.
    """

    def __init__(self) -> None:
        self.since_s = -math.inf
        self.count = 0
        self.delay_s = 0.0

    def deliver(self, tuples: Tuples, at: Ids, times_s: Times) -> None:
        self.count += len(at)
        self.delay_s += float((times_s - np.maximum(tuples.arrived_s[at], self.since_s)).sum())

    def lose(self, tuples: Tuples, at: Ids) -> None:
        pass


class Both(Gauge):
    """Two who count at one place."""

    def __init__(self, one: Gauge, other: Gauge) -> None:
        self._one, self._other = one, other

    def deliver(self, tuples: Tuples, at: Ids, times_s: Times) -> None:
        self._one.deliver(tuples, at, times_s)
        self._other.deliver(tuples, at, times_s)

    def lose(self, tuples: Tuples, at: Ids) -> None:
        self._one.lose(tuples, at)
        self._other.lose(tuples, at)


@dataclass
class Reading:
    """Where a meter stood when it was last read."""

    time_s: float = 0.0
    count: int = 0
    delay_s: float = 0.0


class Watch:
    """A query under observation.

    Attributes:
        query: the query.
        meter: counts what comes out of it.
        judged: the same, with the delays since the latest change of strategy.
        arcs: its queues, with the size of a tuple.
        for_optimizer: where the optimizer read that last.
        for_record: where the record read the meter.
        rows: samples so far: time, latency, memory, throughput.
        strategies: the strategy at each of them.
    """

    def __init__(self, query: Query, network: Network, sizes: Mapping[str, float]) -> None:
        self.query = query
        self.meter, self.judged = Meter(), Meter()
        self.arcs = [(arc.id, sizes[arc.id]) for node in query.operators for arc in network.arcs_into[node]]
        self.for_optimizer, self.for_record = Reading(), Reading()
        self.rows: list[tuple[float, float, float, float]] = []
        self.strategies: list[str] = []

    @property
    def track(self) -> QueryTrack:
        """What was recorded."""
        time_s, latency_s, memory_bytes, throughput_tps = np.array(self.rows).reshape(-1, 4).T
        mean_s = self.meter.delay_s / self.meter.count if self.meter.count else np.nan
        return QueryTrack(
            time_s, latency_s, memory_bytes, throughput_tps, tuple(self.strategies), mean_s, self.meter.count
        )


def read(reading: Reading, meter: Meter, now_s: float) -> tuple[float, float]:
    """Mean delay and throughput since the last reading."""
    count, span_s = meter.count - reading.count, now_s - reading.time_s
    latency_s = (meter.delay_s - reading.delay_s) / count if count else np.nan
    reading.time_s, reading.count, reading.delay_s = now_s, meter.count, meter.delay_s
    return latency_s, count / span_s if span_s > 0 else 0.0
