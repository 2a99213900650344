"""Runs a query network on Structured Streaming and holds its delay."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from streamshed.control import Controller, LoadSample, Outlook, PlantController
from streamshed.engines.spark.checkpoint import BatchStart
from streamshed.engines.spark.closing import Closing
from streamshed.engines.spark.compile import compile_network
from streamshed.engines.spark.connectors import ARRIVAL, read_stream, well_formed
from streamshed.engines.spark.fused import Sinks, shared
from streamshed.engines.spark.gate import Gate
from streamshed.engines.spark.loop import batch_sample
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.engines.spark.ranks import location_rank
from streamshed.engines.spark.sources.feeder import FeederClock
from streamshed.errors import InvalidValueError, NetworkError, StreamshedError
from streamshed.manager import Decision, Manager
from streamshed.network import Arc, Network, Spec, Stream
from streamshed.planning import Planner, SemanticRoadMapPlanner
from streamshed.planning.fair import ObservedSic
from streamshed.planning.ranks import RankedLocation

SALT = 1
"""Of all random drops: with one salt, nested drops compose as the maximum."""


@dataclass(frozen=True)
class NetworkBatch:
    """A micro-batch of a running network.

    Attributes:
        sample: what the controller got to see of it.
        batch_id: counted from 0.
        start_s: when it started, seconds since 1970.
        counts: what each drop did, by arc.
        thresholds: of each drop, as applied.
        load_share: the work that was left, as a share of the work without drops; nan if that is not known.
        utilities: what the plan foresees for each output: value utility where it values values, else tuple utility.
        observed: everything observed in its plan, for observations of the user's own.
        sic: of each output, over the source time window that ends with the batch: what share of its streams' tuples
            came through the drops.
    """

    sample: LoadSample
    batch_id: int
    start_s: float
    counts: Mapping[str, DropCounts]
    thresholds: Mapping[str, float]
    load_share: float
    utilities: Mapping[str, float]
    observed: Mapping[str, Mapping[str, Any]]
    sic: Mapping[str, float] = field(default_factory=dict)


class NetworkRunner(Closing):
    """A query network as one streaming query under control.

    Args:
        spark: the session to run in.
        spec: the network, what is known about it, and its rates.
        directory: for checkpoint, ledger, control line and outputs; the same again to go on after a stop or crash.
        target_s: how late an answer may be.
        planner: decides where to drop; by default the semantic road map.
        controller: decides how much; by default the one that is made for micro-batches.
        shed: False to only watch.
        read: reads a stream; by default its source in the spec.
        on_batch: is told of every batch, from a listener's thread.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: Spec,
        directory: str | Path,
        *,
        target_s: float,
        planner: Planner | None = None,
        controller: Controller | None = None,
        shed: bool = True,
        read: Callable[[Stream], DataFrame] | None = None,
        on_batch: Callable[[NetworkBatch], None] | None = None,
    ) -> None:
        marked = [operator.id for operator in spec.network.operators if operator.stage]
        if marked:
            raise NetworkError(
                "an operator is marked as a stage of its own, which `run` does not support yet",
                where=f"operator {marked[0]!r}",
                got="stage: true",
                expected="no stage marks; a shared stream is read once anyway",
            )
        if not spec.rates:
            raise InvalidValueError(
                "a running network needs rates to compare its streams", where="rates", got="none", expected="tuples/s"
            )
        self.spark = spark
        self.spec = spec
        self.network: Network = spec.network
        self.directory = Path(directory).absolute()
        self.manager = Manager(
            spec.network,
            spec.statistics,
            spec.rates,
            controller or PlantController(target_s),
            planner or SemanticRoadMapPlanner(),
        )
        self.sic = ObservedSic(spec.network)
        self.sinks = Sinks(spec.network.outputs, self.directory / "outputs")
        self._read = read or (lambda stream: read_stream(spark, stream))
        self._told = on_batch
        self._locations = {location.arc: location for location in self.manager.locations}
        self._clocks = {stream.id: _clock(stream) for stream in spec.network.streams}
        self._source_order = _source_order(spec.network)
        self._decisions: dict[tuple[float, ...], Decision] = {}
        self._rate_tps = 0.0
        self._last_start_s: float | None = None
        self._lock = threading.Lock()
        self.query: StreamingQuery | None = None
        self.gate = Gate(
            spark,
            self.directory / "control",
            size=max(1, len(self._locations)),
            decide=self._decide if shed else None,
            on_batch=self._on_batch,
        )

    def start(self) -> StreamingQuery:
        """Compile the network and start its query."""
        frames = compile_network(self.network, self._read, self._at_arc)
        writer = self.sinks.writer(frames, checkpoint=self.directory / "checkpoint", name=self.network.name)
        self.query = writer.start()
        if self.gate.watch(self.query) is None:
            raise StreamshedError("no drop is in the query", where=self.network.name)
        return self.query

    def close(self) -> None:
        """Stop the query and the loop."""
        if self.query is not None:
            self.query.stop()
        self.gate.close()

    # --- the plan --------------------------------------------------------------------------------------------------

    def _at_arc(self, arc: Arc, frame: DataFrame) -> DataFrame:
        location = self._locations.get(arc.id)
        if location is None:
            return frame
        stream = self._stream_above(arc)
        key = stream.key or tuple(stream.columns)
        has_arrival = ARRIVAL in frame.columns
        dropped = self.gate.drop(
            frame,
            arc.id,
            location_rank(location, key, SALT),
            stream=stream.id,
            entry=arc.is_entry,
            salt=SALT,
            valid=well_formed(stream) if arc.is_entry else None,
            arrival=F.unix_micros(F.col(ARRIVAL)) / 1e6 if arc.is_entry and has_arrival else None,
            readers={reader.arc: location_rank(reader, key, SALT) for reader in self._readers(stream) if arc.is_entry},
            weighted=location.column is None,
            nested=True,
        )
        if arc.is_entry and len(self.network.arcs_out_of[stream.id]) > 1:
            return shared(dropped, f"{self.network.name}/{arc.id}/shared", stream.key)
        return dropped

    def _readers(self, stream: Stream) -> list[RankedLocation]:
        """The drops right behind a stream, if there is one on every arc: then it can drop what none of them keeps."""
        found = [self._locations.get(arc.id) for arc in self.network.arcs_out_of[stream.id]]
        return [] if None in found else [location for location in found if location is not None]

    def _stream_above(self, arc: Arc) -> Stream:
        """The stream whose key decides: the first one upstream."""
        while not arc.is_entry:
            arc = self.network.arcs_into[arc.source][0]
        node = self.network.nodes[arc.target]
        assert isinstance(node, Stream)
        return node

    # --- the loop --------------------------------------------------------------------------------------------------

    def _decide(self, time_s: float) -> dict[str, float]:
        outlook = self._outlook(time_s)
        if outlook is None:
            return {}
        decision = self.manager.decide(outlook)
        with self._lock:
            fractions = [0.0] * self.gate.line.size
            for name, drop in self.gate.drops.items():
                fractions[drop.index] = decision.thresholds.get(name, 0.0)
            self._decisions[self.gate.line.quantised(fractions)] = decision
        return dict(decision.thresholds)

    def _outlook(self, time_s: float) -> Outlook | None:
        """The batch that would start now, or None before the first one."""
        gated = next(iter(self.gate.accounts.queries.values()), None)
        batch = gated.latest(time_s) if gated is not None else None
        if batch is None:
            return None
        since_s = max(time_s - batch.time_ms / 1000, 1e-3)
        return Outlook(time_s, self._waiting(batch, time_s, since_s), since_s, since_s)

    def _waiting(self, batch: BatchStart, time_s: float, since_s: float) -> float:
        """How many tuples have arrived since a batch started; guessed from their rate where a source cannot tell."""
        waiting = 0.0
        for stream_id, offset in zip(self._source_order, batch.offsets, strict=False):
            clock = self._clocks[stream_id]
            if clock is None:
                return self._rate_tps * since_s
            waiting += clock.waiting(offset, time_s)
        return waiting

    def _on_batch(self, report: BatchReport, counts: Mapping[str, DropCounts]) -> None:
        entries = [counts[arc.id] for arc in self.network.arcs if arc.is_entry and arc.id in counts]
        arrived = sum(count.arrived - count.malformed for count in entries)
        gated = self.gate.accounts.queries[report.query_id]
        batch = gated.log.batch(report.batch_id)
        applied = self.gate.line.at(batch.time_ms if batch is not None else int(report.start_s * 1000))
        with self._lock:
            decision = self._decisions.get(applied)
        share = decision.load_share if decision is not None else float("nan") if any(applied) else 1.0

        known = not math.isnan(share)
        sample = batch_sample(report, entries, round(arrived * share) if known else arrived)
        if batch is not None:
            waiting = self._waiting(batch, report.end_s, report.duration_s)
            sample = replace(sample, waiting=waiting, oldest_wait_s=report.duration_s)
        if known:  # thresholds from before a restart say nothing about the work that was left
            self.manager.observe(sample)
        if self._last_start_s is not None and report.start_s > self._last_start_s:
            rate_tps = arrived / (report.start_s - self._last_start_s)
            self._rate_tps = rate_tps if self._rate_tps == 0 else 0.5 * (self._rate_tps + rate_tps)
        self._last_start_s = report.start_s
        kept = {name: (count.arrived - count.malformed, count.kept) for name, count in counts.items()}
        self.sic.observe(sample.time_s, kept)
        if self._told is not None:
            self._told(
                NetworkBatch(
                    sample=sample,
                    batch_id=report.batch_id,
                    start_s=report.start_s,
                    counts=counts,
                    thresholds={name: applied[drop.index] for name, drop in self.gate.drops.items()},
                    load_share=share,
                    utilities=self._utilities(decision),
                    observed=report.observed,
                    sic=self.sic.at(sample.time_s),
                )
            )

    def _utilities(self, decision: Decision | None) -> dict[str, float]:
        if decision is None:
            return {output.id: 1.0 for output in self.network.outputs}
        values = {output.id for output in self.network.outputs if output.qos.value is not None}
        return {
            effect.output: effect.value_utility if effect.output in values else effect.tuple_utility
            for effect in decision.plan.outputs
        }


def _clock(stream: Stream) -> FeederClock | None:
    if stream.source is None or stream.source.format != "feeder":
        return None
    return FeederClock.from_options(dict(stream.source.options))


def _source_order(network: Network) -> list[str]:
    """The streams in the order in which they first appear in the plan: outputs in turn, left inputs first."""
    found: list[str] = []
    seen: set[str] = set()

    def walk(node_id: str) -> None:
        if node_id in seen:
            return
        seen.add(node_id)
        if isinstance(network.nodes[node_id], Stream):
            found.append(node_id)
        for arc in network.arcs_into[node_id]:
            if not arc.is_entry:
                walk(arc.source)

    for output in network.outputs:
        walk(output.id)
    return found
