"""Several queries on one overloaded Spark application: what each of them gets, under one planner and another.

First the machine is warmed up and its capacity found, as a multiple of the rates in the spec: what micro-batches with
tuples of so many seconds cost gives the cost of a batch and that of a second of load. Then the network is run at a
multiple of that, by each planner in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.session import SparkSession
from streamshed.errors import StreamshedError
from streamshed.experiments.capacity import FEED, Capacity, check_alive, durations_s, holding
from streamshed.network import Connector, Network, Spec
from streamshed.planning import planner_named
from streamshed.planning.fair import ObservedSic, jain_index
from streamshed.planning.fair.observed import ways

WARM_UP_S = (100.0, 180.0)
"""Of small batches: Java goes on compiling Spark's planner for minutes; after three they take half as long as after
one."""
LITTLE_S, MUCH_S = 0.1, 1.0
"""Of load at the rates of the spec, in a batch."""
CALIBRATION = ((MUCH_S, 12.0), (LITTLE_S, 8.0), (MUCH_S, 12.0), (LITTLE_S, 8.0))

_POINTS = 50
CALM_S, CALM_LOAD = 15.0, 0.3
"""Before the overload, so many seconds at such a share of what can be held on time: a query's first batches take
longer, and what batches cost is not known before some have ended."""


@dataclass(frozen=True)
class Shares:
    """What the outputs got from a run.

    Attributes:
        sic: of each output, over the whole run.
        within: of each output, the share of the tuples that came through which were on time.
        p95_s: of all delays.
        arrived: tuples.
        kept: of these, how many no entry dropped.
        batches: how many.
    """

    sic: Mapping[str, float]
    within: Mapping[str, float]
    p95_s: float
    arrived: int
    kept: int
    batches: int

    @property
    def fairness(self) -> float:
        """Jain's index of the SIC."""
        return jain_index(list(self.sic.values()))


def fed(spec: Spec, options: Callable[[float], Mapping[str, str]]) -> Spec:
    """The spec with its streams fed as told for their rates, and its answers thrown away."""
    streams = []
    for stream in spec.network.streams:
        given = {key: text for key, text in stream.source.options.items() if key in FEED} if stream.source else {}
        source = Connector("feeder", {**given, **options(spec.rates[stream.id])})
        streams.append(replace(stream, source=source))
    outputs = tuple(replace(output, sink=Connector("noop")) for output in spec.network.outputs)
    return replace(spec, network=replace(spec.network, streams=tuple(streams), outputs=outputs))


def find_capacity(
    spark: SparkSession, spec: Spec, target_s: float | None, directory: Path, progress: Callable[[str, float], None]
) -> Capacity:
    """Warm up, and find what this machine can do: a "tuple" is a second of load at the rates of the spec.

    Args:
        spark: the session.
        spec: the network with its rates.
        target_s: the delay to be held; None: 2 s, or what this machine can hold.
        directory: for checkpoints.
        progress: is told what is being done, and for how many seconds.
    """
    progress("warming up", WARM_UP_S[1])
    durations_s(spark, fed(spec, _steady(LITTLE_S)), WARM_UP_S, directory / "warm-up")
    found: dict[float, list[float]] = {LITTLE_S: [], MUCH_S: []}
    for part, (load_s, seconds) in enumerate(CALIBRATION):
        progress(f"timing batches with {load_s:g} s of load", seconds)
        took_s = durations_s(spark, fed(spec, _steady(load_s)), (seconds, seconds), directory / f"calibration-{part}")
        found[load_s] += took_s[len(took_s) // 2 :]
    much_s, little_s = statistics.median(found[MUCH_S]), statistics.median(found[LITTLE_S])
    second_s = max((much_s - little_s) / (MUCH_S - LITTLE_S), 1e-3)
    fixed_s = max(little_s - second_s * LITTLE_S, 0.0)
    return holding(fixed_s, second_s, target_s)


def play(
    spark: SparkSession,
    spec: Spec,
    capacity: Capacity,
    overload: float,
    seconds: float,
    directory: Path,
    *,
    planner: str,
) -> Shares:
    """Run the network at a multiple of what the machine can process, after a calm beginning that does not count.

    Args:
        spark: the session.
        spec: the network with its rates.
        capacity: of the machine, and the target.
        overload: the multiple.
        seconds: for how long it lasts.
        directory: for checkpoint, control line and ledger.
        planner: decides where to drop.
    """
    epoch_s = time.time() + 5.0

    def options(rate_tps: float) -> Mapping[str, str]:
        calm_tps, much_tps = CALM_LOAD * capacity.on_time_tps * rate_tps, overload * capacity.rate_tps * rate_tps
        phases = f"{calm_tps:.0f}:{CALM_S:g}, {much_tps:.0f}:{10 * seconds:g}"
        return {"pattern": "phases", "phases": phases, "epoch": f"{epoch_s:.3f}"}

    of_run = fed(spec, options)
    batches: list[NetworkBatch] = []
    with NetworkRunner(
        spark, of_run, directory, target_s=capacity.target_s, planner=planner_named(planner), on_batch=batches.append
    ) as runner:
        runner.start()
        while time.time() < epoch_s + CALM_S + seconds:
            check_alive(runner)
            time.sleep(0.1)
    counted = [batch for batch in batches if batch.start_s >= epoch_s + CALM_S]
    return shares(spec.network, counted, capacity.target_s)


def shares(network: Network, batches: Sequence[NetworkBatch], target_s: float) -> Shares:
    """What the outputs got out of batches."""
    sic = ObservedSic(network)
    delays: dict[str, list[tuple[float, float]]] = {}
    arrived = kept = 0
    for batch in batches:
        sic.observe(
            batch.sample.time_s,
            {arc: (count.arrived - count.malformed, count.kept) for arc, count in batch.counts.items()},
        )
        arrived += batch.arrived
        for arc in network.arcs:
            if arc.is_entry and arc.id in batch.counts:
                count = batch.counts[arc.id]
                kept += count.kept
                late = [count.delay_s((k + 0.5) / _POINTS, batch.sample.time_s) for k in range(_POINTS)]
                delays.setdefault(arc.id, []).extend((s, count.kept / _POINTS) for s in late if s is not None)
    if not delays:
        raise StreamshedError("no batch has ended", where="run", hint="a longer run")
    entries: dict[str, set[str]] = {}
    for way in ways(network):
        entries.setdefault(way.output, set()).add(way.entry)

    def within(of: set[str]) -> float:
        found = np.array([pair for entry in of for pair in delays.get(entry, ())]).reshape(-1, 2)
        total = float(found[:, 1].sum())
        return float(found[found[:, 0] <= target_s, 1].sum()) / total if total else 1.0

    every = np.array(sorted(pair for of_entry in delays.values() for pair in of_entry))
    reached = np.cumsum(every[:, 1])
    p95_s = float(every[int(np.searchsorted(reached, 0.95 * reached[-1])), 0])
    on_time = {output: within(of) for output, of in entries.items()}
    return Shares(sic.overall(), on_time, p95_s, arrived, kept, len(batches))


def _steady(load_s: float) -> Callable[[float], Mapping[str, str]]:
    """Options of feeders: batches with so much load, one after the other."""
    epoch = f"{time.time() - 200_000:.0f}"

    def options(rate_tps: float) -> Mapping[str, str]:
        rows = max(round(rate_tps * load_s), 1)
        sizes = {"rows": str(rows * 100_000), "maxRowsPerBatch": str(rows)}
        return {"pattern": "constant", "rate_tps": f"{rate_tps:.0f}", "paced": "false", "epoch": epoch, **sizes}

    return options
