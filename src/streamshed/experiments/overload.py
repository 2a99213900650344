"""The same day twice on Spark: calm, a burst beyond capacity, calm; once without shedding and once with.

First the capacity of this machine is found: what a micro-batch of the network costs at two sizes gives its fixed cost
and its cost per tuple, and so the rate beyond which it falls ever further behind. What it can do on time is less: there
batches must be short, and the fixed cost takes a good part of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.control import BATCH_CONTROLLERS, PlantController, controller_named
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.session import SparkSession
from streamshed.engines.spark.timeliness import MeanUtilities
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.experiments.capacity import FEED, Capacity, check_alive, durations_s, holding
from streamshed.network import Connector, Output, Spec
from streamshed.planning import planner_named

FEW, MANY = 5_000, 60_000
"""Rows in a batch: what batches of both sizes take tells the cost of a batch from the cost of a tuple."""
WARM_UP_S = (75.0, 110.0)
"""At least, at most: Java compiles what it often runs, and Spark has much code that runs for every batch. On two cores
batches take the same time from the 40th to the 75th second, and then 20 % less."""
CALIBRATION = ((MANY, 8.0), (FEW, 5.0), (MANY, 8.0), (FEW, 5.0))
"""Batches of so many rows for so many seconds, in turn, so that what slows the machine down for a while slows both."""

CALM, BURST, AFTER = 0.25, 0.3, 0.45
"""Shares of a day."""
CALM_LOAD = 0.4
"""Of the rate that can be held on time."""

_LONGEST_BACKLOG = 4
"""So many times its length a day may take until all of it is processed; the rest is not waited for."""
_POINTS = 50

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Day:
    """How tuples arrive.

    Attributes:
        calm_tps: before and after the burst.
        burst_tps: in it.
        length_s: of the day.
    """

    calm_tps: float
    burst_tps: float
    length_s: float

    @property
    def burst_s(self) -> tuple[float, float]:
        """When it begins and ends."""
        return CALM * self.length_s, (CALM + BURST) * self.length_s

    @property
    def phases(self) -> str:
        """For the feeder."""
        rates = ((self.calm_tps, CALM), (self.burst_tps, BURST), (self.calm_tps, AFTER))
        return ", ".join(f"{rate_tps:.0f}:{share * self.length_s:g}" for rate_tps, share in rates)

    @property
    def tuples(self) -> float:
        """How many arrive."""
        return self.length_s * (self.calm_tps * (CALM + AFTER) + self.burst_tps * BURST)


@dataclass(frozen=True)
class Summary:
    """A run in numbers.

    Tuples are counted at the operators that read a stream, so one with two readers counts twice: that way
    `arrived` = `delivered` + `dropped`, wherever drops are. Delays are those of the delivered ones, from arrival to the
    end of their batch; `violations_s` sums up what they take beyond the target. `busy_fraction` is the share of the
    burst during which a batch was running. A utility is what the plans say about loss, times what the output's latency
    graph says about the delays; None if it is not known when tuples arrived.
    """

    target_s: float
    within_target: float
    p50_s: float
    p95_s: float
    p99_s: float
    arrived: int
    delivered: int
    dropped: int
    busy_fraction: float
    violations_s: float
    utility: Mapping[str, float | None]
    dropped_in_first_calm: int
    drops_end_after_burst_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass
class Run:
    """A played day.

    Attributes:
        shed: whether it was allowed to drop.
        day: what arrived.
        target_s: the delay asked for.
        epoch_s: when it began, seconds since 1970.
        entries: the arcs by which tuples come in.
        readers: the arcs to the operators that read them.
        outputs: of the network.
        batches: all with tuples, as they ended.
    """

    shed: bool
    day: Day
    target_s: float
    epoch_s: float
    entries: Sequence[str]
    readers: Sequence[str]
    outputs: Sequence[Output]
    batches: list[NetworkBatch] = field(default_factory=list)

    def accounts(self, batch: NetworkBatch) -> tuple[int, int]:
        """How many tuples of a batch were delivered to readers, and how many were dropped ahead of them."""
        delivered = sum(batch.counts[arc].kept for arc in self.readers)
        at_readers = sum(batch.counts[arc].arrived for arc in self.readers)
        arrived = sum(batch.counts[arc].arrived for arc in self.entries) * len(self.readers) // len(self.entries)
        return delivered, at_readers - delivered + (arrived - at_readers)

    def delays(self) -> tuple[Floats, Floats]:
        """Delays of delivered tuples, in order, and how many tuples each stands for."""
        points: list[float] = []
        weights: list[float] = []
        for batch in self.batches:
            delivered = self.accounts(batch)[0]
            for arc in self.entries:
                of_entry = batch.counts[arc]
                if of_entry.arrivals_s and delivered:
                    quantiles = [(k + 0.5) / _POINTS for k in range(_POINTS)]
                    points += [of_entry.delay_s(q, batch.sample.time_s) or 0.0 for q in quantiles]
                    weights += [delivered / len(self.entries) / _POINTS] * _POINTS
        order = np.argsort(points)
        return np.asarray(points)[order], np.asarray(weights)[order]

    def summary(self) -> Summary:
        """The run in numbers."""
        if not self.batches:
            raise StreamshedError("no batch has ended", where="run", hint="a longer day: --seconds")
        delays, weights = self.delays()
        share = np.cumsum(weights) / weights.sum()
        sums = [self.accounts(batch) for batch in self.batches]
        delivered, dropped = (sum(of_batch[i] for of_batch in sums) for i in (0, 1))
        begin, end = (self.epoch_s + at_s for at_s in self.day.burst_s)
        busy_s = sum(max(0.0, min(b.sample.time_s, end) - max(b.start_s, begin)) for b in self.batches)
        shed = [(batch, lost) for batch, (_, lost) in zip(self.batches, sums, strict=True) if lost]
        worth = MeanUtilities()
        for batch in self.batches:
            worth.add(batch.utilities, batch.utilities_of_loss, batch.sample.arrived)

        def quantile_s(q: float) -> float:
            return float(delays[min(int(np.searchsorted(share, q)), len(delays) - 1)])

        return Summary(
            target_s=self.target_s,
            within_target=float(weights[delays <= self.target_s].sum() / weights.sum()),
            p50_s=quantile_s(0.5),
            p95_s=quantile_s(0.95),
            p99_s=quantile_s(0.99),
            arrived=delivered + dropped,
            delivered=delivered,
            dropped=dropped,
            busy_fraction=busy_s / (end - begin),
            violations_s=float((np.maximum(delays - self.target_s, 0) * weights).sum()),
            utility=worth.utilities,
            dropped_in_first_calm=sum(lost for batch, lost in shed if batch.start_s < begin),
            drops_end_after_burst_s=max((batch.sample.time_s - end for batch, _ in shed), default=0.0),
        )


def fed(spec: Spec, options: Mapping[str, str]) -> Spec:
    """The spec with its stream fed as told, its answers thrown away, and single tuples dropped rather than keys."""
    if len(spec.network.streams) != 1:
        raise InvalidValueError(
            "a day is played to one stream",
            where=spec.network.name,
            got=f"{len(spec.network.streams)} streams",
            expected="one",
        )
    (stream,) = spec.network.streams
    given = stream.source.options if stream.source else {}
    base = {key: text for key, text in given.items() if key in FEED}
    source = Connector("feeder", {**base, **options})
    outputs = tuple(replace(output, sink=Connector("noop")) for output in spec.network.outputs)
    network = replace(spec.network, streams=(replace(stream, source=source, key=()),), outputs=outputs)
    return Spec(network, spec.statistics, spec.rates, spec.capacity)


def find_capacity(
    spark: SparkSession, spec: Spec, target_s: float | None, directory: Path, progress: Callable[[str, float], None]
) -> Capacity:
    """Warm up, measure what batches cost, and give the rate at which they stay short enough.

    Args:
        spark: the session.
        spec: a network with one stream.
        target_s: the delay to be held; None: `TARGET_S`, or what this machine can hold.
        directory: for checkpoints.
        progress: is told what is being done, and for how many seconds.
    """
    progress(f"warming up with batches of {FEW:,} tuples", WARM_UP_S[1])
    durations_s(spark, fed(spec, _steady(FEW)), WARM_UP_S, directory / "warm-up")
    found: dict[int, list[float]] = {FEW: [], MANY: []}
    for part, (rows, seconds) in enumerate(CALIBRATION):
        progress(f"timing batches of {rows:,} tuples", seconds)
        took_s = durations_s(spark, fed(spec, _steady(rows)), (seconds, seconds), directory / f"calibration-{part}")
        found[rows] += took_s[len(took_s) // 2 :]  # a query's first batches take longer
    long_s, short_s = statistics.median(found[MANY]), statistics.median(found[FEW])
    tuple_s = max((long_s - short_s) / (MANY - FEW), 1e-9)
    fixed_s = max(short_s - tuple_s * FEW, 0.0)
    return holding(fixed_s, tuple_s, target_s)


def _steady(rows: int) -> dict[str, str]:
    """Options of a feeder: batches of so many rows, one after the other."""
    return {
        "pattern": "constant",
        "rate_tps": str(rows),
        "paced": "false",
        "rows": str(rows * 100_000),
        "maxRowsPerBatch": str(rows),
        "epoch": f"{time.time() - 200_000:.0f}",
    }


def play(
    spark: SparkSession,
    spec: Spec,
    day: Day,
    target_s: float,
    directory: Path,
    *,
    shed: bool,
    planner: str = "semantic",
    controller: str = PlantController.name,
    on_batch: Callable[[NetworkBatch], None] = lambda _: None,
) -> Run:
    """Play a day, and wait until all of it is processed, or several times its length have passed.

    Args:
        spark: the session.
        spec: a network with one stream.
        day: what arrives.
        target_s: the delay to hold.
        directory: for checkpoint, control line and ledger.
        shed: whether to drop.
        planner: decides where.
        controller: decides how much.
        on_batch: is told of every batch with tuples.
    """
    epoch_s = time.time() + 4.0
    options = {"pattern": "phases", "phases": day.phases, "epoch": f"{epoch_s:.6f}"}
    of_day = fed(spec, options)
    network = of_day.network
    entries = [arc.id for arc in network.arcs if arc.is_entry]
    readers = [arc.id for arc in network.arcs if arc.source == network.streams[0].id]
    run = Run(shed, day, target_s, epoch_s, entries, readers if len(readers) > 1 else entries, network.outputs)

    def take(batch: NetworkBatch) -> None:
        if batch.sample.arrived:
            run.batches.append(batch)
            on_batch(batch)

    runner = NetworkRunner(
        spark,
        of_day,
        directory,
        target_s=target_s,
        planner=planner_named(planner),
        controller=controller_named(controller, target_s, among=BATCH_CONTROLLERS),
        shed=shed,
        on_batch=take,
    )
    with runner:
        runner.start()
        while time.time() < epoch_s + _LONGEST_BACKLOG * day.length_s:
            check_alive(runner)
            done = sum(batch.sample.arrived for batch in run.batches)
            if time.time() > epoch_s + day.length_s and done >= 0.999 * day.tuples:
                break
            time.sleep(0.1)
    return run
