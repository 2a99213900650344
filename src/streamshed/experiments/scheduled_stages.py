"""Three paths cut into stages on Spark, and a burst: the same day under each scheduling strategy and the optimizer.

Every run gets the same tuples at the same times, one after the other on one Spark session, and goes on until all of
them are processed: what a strategy leaves lying counts, too. Nothing is dropped but by the optimizer. How much comes
goes by what the machine can do, else a fast one has no need of a strategy and a slow one no use for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.session import SparkSession
from streamshed.errors import StreamshedError
from streamshed.network import Connector, Spec
from streamshed.scheduling import OPTIMIZER, Decision

SIDE_BY_SIDE = "none"
"""The name of no scheduler: stages run as soon as they can."""

_START_S = 10.0  # until all queries run
_SAMPLE_S = 0.25
_MOST_ROWS = "maxRowsPerBatch"
_POINTS = 50
_OF_PATTERNS = ("pattern", "rate_tps", "calm_tps", "burst_tps", "start_s", "length_s", "phases", "epoch")


@dataclass(frozen=True)
class Burst:
    """How tuples arrive: at the rates of the spec, `factor` times as fast for a while, and as before.

    Attributes:
        calm_s: how long it is calm at first.
        burst_s: how long the burst lasts.
        factor: how much more comes in it.
        after_s: how long it is calm after that.
        only: the stream that has the burst; None for all.

    >>> Burst(calm_s=10, burst_s=20, factor=3, after_s=5).phases(1000)
    '1000:10, 3000:20, 1000:5'
    """

    calm_s: float = 5.0
    burst_s: float = 13.0
    factor: float = 3.0
    after_s: float = 6.0
    only: str | None = None

    @property
    def length_s(self) -> float:
        """Of all."""
        return self.calm_s + self.burst_s + self.after_s

    @property
    def work_s(self) -> float:
        """How long all of it would take to arrive at the rates of the spec."""
        return self.calm_s + self.factor * self.burst_s + self.after_s

    def phases(self, rate_tps: float) -> str:
        """For the feeder."""
        rates = ((1.0, self.calm_s), (self.factor, self.burst_s), (1.0, self.after_s))
        return ", ".join(f"{factor * rate_tps:.0f}:{seconds:g}" for factor, seconds in rates)


_FLOOD = Burst(calm_s=0.5, burst_s=8.0, factor=7.0, after_s=0.5)
"""More than a machine can take in that time, to see how long it takes."""


@dataclass
class Scheduled:
    """A run.

    Attributes:
        scheduler: its name; `none` for stages side by side.
        epoch_s: when tuples began to arrive.
        length_s: for how long they did.
        delays: by output: (when the batch ended, delay, tuples), of the tuples that its last stage worked on.
        held: samples of (time, bytes that wait or are being worked on).
        drops: by arc: (when the batch ended, arrived, dropped).
        document: what the scheduler did.
        changes: decisions that changed anything: (when it was seen, what was decided).
        done_s: when the last tuple was processed; None if some were left.
    """

    scheduler: str
    epoch_s: float
    length_s: float
    delays: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    held: list[tuple[float, float]] = field(default_factory=list)
    drops: dict[str, list[tuple[float, int, int]]] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    changes: list[tuple[float, Decision]] = field(default_factory=list)
    done_s: float | None = None

    def latency_s(self, *outputs: str) -> float:
        """The mean delay of the tuples of some outputs; of all if none is named."""
        found = self._points(outputs)
        return float(np.average(found[:, 1], weights=found[:, 2])) if len(found) else np.nan

    def quantile_s(self, share: float, *outputs: str) -> float:
        """The delay that so many of the tuples of some outputs did not exceed; of all if none is named."""
        found = self._points(outputs)
        if not len(found):
            return np.nan
        found = found[np.argsort(found[:, 1])]
        reached = np.cumsum(found[:, 2])
        return float(found[np.searchsorted(reached, share * reached[-1]), 1])

    def within(self, output: str, goal_s: float) -> float:
        """The share of an output's tuples that were no later than a goal."""
        found = self._points((output,))
        return float(found[found[:, 1] <= goal_s, 2].sum() / found[:, 2].sum()) if len(found) else np.nan

    def time_within(self, output: str, goal_s: float) -> float:
        """The share of the time in which an output met a latency goal.

        The latency at a time is the mean delay of the next batch that comes out. So a query that gets no turns misses
        its goal for as long as that takes.
        """
        found = self._points((output,))
        if not len(found):
            return np.nan
        ends_s, batch = np.unique(found[:, 0], return_inverse=True)
        mean_s = np.bincount(batch, found[:, 1] * found[:, 2]) / np.bincount(batch, found[:, 2])
        lasted_s = np.diff(ends_s, prepend=min(self.epoch_s, ends_s[0]))
        return float(lasted_s[mean_s <= goal_s].sum() / lasted_s.sum()) if lasted_s.sum() > 0 else np.nan

    def _points(self, outputs: Sequence[str]) -> NDArray[np.float64]:
        found = [point for name in outputs or self.delays for point in self.delays.get(name, ())]
        return np.array(found, dtype=float).reshape(-1, 3)

    @property
    def mean_bytes(self) -> float:
        """Held on average, while tuples arrived: how long it takes to work off the rest differs."""
        return float(np.mean([size for at_s, size in self.held if at_s < self.epoch_s + self.length_s]))

    @property
    def peak_bytes(self) -> float:
        """Held at most."""
        return max(size for _, size in self.held)

    def dropped(self, arc: str) -> tuple[int, int]:
        """How many tuples were dropped on an arc, and how many had arrived there."""
        rows = self.drops.get(arc, [])
        return sum(lost for _, _, lost in rows), sum(arrived for _, arrived, _ in rows)

    def dropped_while_shedding(self, arc: str) -> float:
        """The share that was dropped on an arc, over the batches in which there were drops."""
        shed = [(arrived, lost) for _, arrived, lost in self.drops.get(arc, ()) if lost]
        return sum(lost for _, lost in shed) / sum(arrived for arrived, _ in shed) if shed else 0.0

    @property
    def cost_share(self) -> float:
        """What deciding on turns, strategies and drops took, as a share of the run."""
        took_s = self.document.get("deciding_s", 0.0) + self.document.get("optimizing_s", 0.0)
        return float(took_s / ((self.done_s or self.held[-1][0]) - self.epoch_s))

    def to_json(self) -> dict[str, Any]:
        """Plain values; times are seconds since tuples began to arrive."""
        return {
            "scheduler": self.scheduler,
            "latency_s": {output: self.latency_s(output) for output in self.delays},
            "mean_latency_s": self.latency_s(),
            "mean_bytes": self.mean_bytes,
            "peak_bytes": self.peak_bytes,
            "dropped": {arc: self.dropped(arc) for arc in self.drops},
            "cost_share": self.cost_share,
            "done_s": None if self.done_s is None else self.done_s - self.epoch_s,
            "held": [(at_s - self.epoch_s, size) for at_s, size in self.held],
            "changes": [(at_s - self.epoch_s, decision.as_document()) for at_s, decision in self.changes],
            "document": dict(self.document),
        }


def capacity(spark: SparkSession, spec: Spec, directory: Path) -> float:
    """How many times the rates of the spec this machine can process."""
    found = play(spark, spec, "round-robin", _FLOOD, directory)
    if found.done_s is None:
        raise StreamshedError(
            "this machine is too slow", where=f"network {spec.network.name!r}", got="tuples left over",
            expected="the rates of the spec can be processed", hint="run it while nothing else is running",
        )  # fmt: skip
    return _FLOOD.work_s / (found.done_s - found.epoch_s)


def scaled(spec: Spec, factor: float) -> Spec:
    """The spec with rates so many times as high, and turns that take so many times as many rows."""

    def of_source(source: Connector) -> Connector:
        options = dict(source.options)
        if _MOST_ROWS in options:
            options[_MOST_ROWS] = str(round(factor * float(options[_MOST_ROWS])))
        return replace(source, options=options)

    streams = tuple(
        replace(stream, source=of_source(stream.source)) if stream.source is not None else stream
        for stream in spec.network.streams
    )
    rates = {stream: factor * rate for stream, rate in spec.rates.items()}
    return replace(spec, network=replace(spec.network, streams=streams), rates=rates)


def fed(spec: Spec, burst: Burst, epoch_s: float) -> Spec:
    """The spec with its streams fed as told, and its answers thrown away."""

    def source(stream_id: str, given: Mapping[str, str]) -> Connector:
        kept = {key: text for key, text in given.items() if key not in _OF_PATTERNS}
        own = burst if burst.only in (None, stream_id) else replace(burst, factor=1.0)
        phases = own.phases(spec.rates[stream_id])
        return Connector("feeder", {**kept, "pattern": "phases", "phases": phases, "epoch": f"{epoch_s:.3f}"})

    streams = tuple(
        replace(stream, source=source(stream.id, stream.source.options if stream.source else {}))
        for stream in spec.network.streams
    )
    outputs = tuple(replace(output, sink=Connector("noop")) for output in spec.network.outputs)
    return replace(spec, network=replace(spec.network, streams=streams, outputs=outputs))


def play(
    spark: SparkSession,
    spec: Spec,
    scheduler: str,
    burst: Burst,
    directory: Path,
) -> Scheduled:
    """Play a day, and wait until all of it is processed.

    Args:
        spark: the session.
        spec: a network with feeders.
        scheduler: a strategy, `optimizer`, or `none`.
        burst: what arrives.
        directory: for checkpoints, arcs, control line and ledger.
    """
    epoch_s = time.time() + _START_S
    of_day = fed(spec, burst, epoch_s)
    run = Scheduled(scheduler, epoch_s, burst.length_s, drops={stream.id: [] for stream in of_day.network.streams})

    def take(batch: NetworkBatch) -> None:
        end_s = batch.sample.time_s
        for arc, counts in batch.counts.items():
            if arc in run.drops:
                run.drops[arc].append((end_s, counts.arrived, counts.dropped))
            if batch.stage in runner.network.nodes and counts.arrivals_s and ends[batch.stage]:
                quantiles = [(k + 0.5) / _POINTS for k in range(_POINTS)]
                points = [(end_s, counts.delay_s(q, end_s) or 0.0, counts.kept / _POINTS) for q in quantiles]
                run.delays.setdefault(batch.stage, []).extend(points)

    runner = NetworkRunner(
        spark,
        of_day,
        directory,
        target_s=3600.0,
        shed=scheduler == OPTIMIZER,
        per_output=True,
        scheduler=None if scheduler == SIDE_BY_SIDE else scheduler,
        on_batch=take,
    )
    ends = {stage.id: bool(stage.plan.outputs) for stage in runner.stages}
    with runner:
        runner.start()
        while (now_s := time.time()) < epoch_s + burst.length_s + burst.work_s:
            if not runner.is_active:
                raise runner.failure or StreamshedError("a query was stopped", where="run")
            if now_s >= epoch_s:
                run.held.append((now_s, sum(runner.backlog.held_bytes(stage, now_s) for stage in runner.stages)))
            if runner.scheduler is not None:
                new = runner.scheduler.changes[len(run.changes) :]
                run.changes += [(now_s, decision) for decision in new]
            if now_s > epoch_s + burst.length_s and _is_done(runner, now_s):
                run.done_s = now_s
                break
            time.sleep(_SAMPLE_S)
        if runner.scheduler is not None:
            run.document = runner.scheduler.as_document()
    return run


def _is_done(runner: NetworkRunner, now_s: float) -> bool:
    """Whether nothing waits any more."""
    return not any(
        stage.unfinished or any(runner.backlog.unprocessed(stage, now_s).values()) for stage in runner.stages
    )
