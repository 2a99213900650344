"""Runs a query network on Structured Streaming and holds its delay."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streamshed.control import Controller, PlantController
from streamshed.distributed.arc_files import ArcFiles, Inbox, file_name
from streamshed.engines.spark.arc_queue import ArcQueue
from streamshed.engines.spark.arcs import ParquetArc
from streamshed.engines.spark.backlog import Backlog, StageCosts
from streamshed.engines.spark.checkpoint import CheckpointLog
from streamshed.engines.spark.closing import Closing
from streamshed.engines.spark.connectors import ARRIVAL, read_stream
from streamshed.engines.spark.cost_memory import CostMemory
from streamshed.engines.spark.directory_lock import CONTROL, check_free
from streamshed.engines.spark.failures import SparkFailure
from streamshed.engines.spark.fused import Sinks
from streamshed.engines.spark.gate import Gate
from streamshed.engines.spark.guarded_plan import GuardedPlan
from streamshed.engines.spark.layout import check_layout, layout
from streamshed.engines.spark.loop import batch_sample, tell_reach
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.passes import SlowestWay
from streamshed.engines.spark.scheduler import MONITORING, StageScheduler
from streamshed.engines.spark.stage import RunningStage, StageBatch, Turn, at_once
from streamshed.engines.spark.timeliness import Timeliness
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.manager import Decision, Manager
from streamshed.network import Network, Spec, Stream
from streamshed.network.siblings import siblings
from streamshed.network.stages import ALL_OUTPUTS, Stage, source_order, stages
from streamshed.planning import PlaceWeightPlanner, Planner, SemanticRoadMapPlanner
from streamshed.planning.fair import ObservedSic
from streamshed.planning.values import Beliefs, ValueLearner, believed_values, value_notes
from streamshed.scheduling import OPTIMIZER, OptimizerSettings

_LOG = logging.getLogger(__name__)

SALT = 1
"""Of all random drops: with one salt, nested drops compose as the maximum."""

_POLL_S = 0.05
_SOURCES_S = 20.0


class NetworkRunner(Closing):
    """A query network under control: one streaming query, or one for each of its stages.

    Operators that are marked so are stages of their own. All outputs are one stage together, unless `per_output`. A
    stage that dies stops the others.

    Args:
        spark: the session to run in.
        spec: the network, what is known about it, and its rates.
        directory: for checkpoints, durable arcs, ledger, control line and outputs; the same again to go on after a
            stop or crash.
        target_s: how late an answer may be.
        due_s: how late it may be where tuples have been elsewhere before; by default the same.
        planner: decides where to drop; by default the semantic road map.
        controller: decides how much; by default the one that is made for micro-batches.
        shed: False to only watch.
        per_output: whether each output is a stage of its own.
        turn: what each batch of a stage runs in; by default all run as soon as they can.
        scheduler: who gives the turns instead: a strategy, or `optimizer`, which switches strategies to meet the goals
            of the spec. Then goals also decide what is shed, in place of target, controller and planner.
        optimizer: how the optimizer works.
        read: reads a stream; by default its source in the spec.
        on_batch: is told of every batch, from a listener's thread.
        salt: of all random drops. Applications that read one another's arcs need different ones: what passed a drop has
            high ranks by its salt.
        inboxes: the arcs that another application writes, by stream.
        outboxes: the arcs that another application reads, by output.
        every_s: batches start no more often; 0 for as soon as they can.

    Raises:
        DirectoryInUseError: if another run uses the directory.

    Attributes:
        stages: each after those it reads.
        sinks: where outputs go.
        gate: drops and counts.
        scheduler: gives the turns, if anybody does.
        backlog: what waits.
        notes: what its user should know of its decisions before it starts.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: Spec,
        directory: str | Path,
        *,
        target_s: float,
        due_s: float | None = None,
        planner: Planner | None = None,
        controller: Controller | None = None,
        shed: bool = True,
        per_output: bool = False,
        turn: Turn = at_once,
        scheduler: str | None = None,
        optimizer: OptimizerSettings | None = None,
        read: Callable[[Stream], DataFrame] | None = None,
        on_batch: Callable[[NetworkBatch], None] | None = None,
        salt: int = SALT,
        inboxes: Mapping[str, Inbox] | None = None,
        outboxes: Mapping[str, ArcFiles] | None = None,
        every_s: float = 0.0,
    ) -> None:
        if not spec.rates:
            raise InvalidValueError(
                "a running network needs rates to compare its streams", where="rates", got="none", expected="tuples/s"
            )
        spec = replace(spec, statistics=spec.statistics.with_believed_costs(spec.network))
        self.spark = spark
        self.spec = spec
        self.network: Network = spec.network
        self.directory = Path(directory).absolute()
        check_free(self.directory / CONTROL)
        planner = PlaceWeightPlanner() if scheduler == OPTIMIZER else planner or SemanticRoadMapPlanner()
        beliefs = believed_values(spec.network, spec.statistics) if planner.by_value else Beliefs(spec.statistics)
        self.manager = Manager(
            spec.network,
            beliefs.statistics,
            spec.rates,
            controller or PlantController(target_s),
            planner,
            frozenset(stream for stream, _ in beliefs.believed),
        )
        self.notes = list(value_notes(spec.network, beliefs, spec.rates)) if planner.by_value else []
        if (of_costs := spec.statistics.cost_note) is not None:
            self.notes.insert(0, of_costs)
        self._values = ValueLearner(spec.network, beliefs.statistics, spec.rates, self.manager.locations)
        self._memory = CostMemory(self.directory / "cost.json")
        self._memory.recall(self.manager.controller)
        self.sic = ObservedSic(spec.network)
        self._every_s = every_s
        self.sinks = Sinks(spec.network.outputs, self.directory / "outputs", outboxes)
        self._inboxes = dict(inboxes or {})
        cut = stages(spec.network, together=not per_output)
        settings = optimizer or OptimizerSettings(MONITORING, weights=spec.priorities)
        settings = replace(settings, may_shed=settings.may_shed and shed)
        self.scheduler = StageScheduler(spec, cut, scheduler, settings) if scheduler is not None else None
        self._passes = [one for stage in cut for one in siblings(spec.network, stage)]
        queues = {stage.id: self._queue(stage, cut) for stage in cut if stage.is_durable}
        given = self.scheduler.turn if self.scheduler is not None else turn
        self.stages = [self._stage(stage, queues, given) for stage in cut]
        self._costs = StageCosts(spec.network, spec.statistics, spec.rates, cut)
        self.backlog = Backlog(spec.network, self.stages, self._costs)
        if self.scheduler is not None:
            self.scheduler.attach(self.stages, self.backlog)
        self._slowest = SlowestWay()
        self._timeliness = Timeliness(spec.network, cut, target_s if due_s is None else due_s)
        self._read = read or (
            lambda stream: read_stream(spark, stream, late_salt=salt if self._plan.parses_late(stream) else None)
        )
        self._told = on_batch
        self._decisions: dict[tuple[float, ...], Decision] = {}
        self._lock = threading.Lock()
        self._begun, self._failed = threading.Event(), threading.Event()
        self.gate = Gate(
            spark,
            self.directory / CONTROL,
            size=max(1, len(self.manager.locations)),
            decide=self._follow_goals if scheduler == OPTIMIZER else self._decide if shed else None,
            on_batch=self._on_batch,
            on_failure=self._on_failure,
        )
        self._plan = GuardedPlan(
            spec.network, cut, self._passes, self.manager.locations, self.gate, salt, self._values.valued
        )

    def start(self) -> None:
        """Compile the network and start its queries, upstream first."""
        frames = self._plan.frames(self._read, self._read_arc)
        parts = layout([stage.plan for stage in self.stages], frames, self._passes)
        check_layout(self.directory / "stages.json", parts)
        self._begun.set()
        for stage in self.stages:
            frame = frames[stage.id]
            stage.carries_arrival = stage.plan.is_durable and ARRIVAL in frame.columns
            for output in self.sinks.arcs.keys() & set(stage.plan.outputs):
                self.sinks.arcs[output].set_schema(frame.schema[output].dataType.json())
            query = stage.start(frame, lone=len(self.stages) == 1)
            stage.gated = self.gate.watch(query)
            if stage.gated is None:
                raise StreamshedError("no drop is in the query", where=f"stage {stage.id!r}")
            stage.resume(self.gate.accounts.accounted(stage.gated))
            stage.wait_for_sources(_SOURCES_S)
            if self._failed.is_set():  # whoever stops the stages may have come before this one had started
                self._stop()
                return

    @property
    def is_active(self) -> bool:
        """Whether all stages run."""
        return all(stage.is_active for stage in self.stages)

    @property
    def failure(self) -> SparkFailure | None:
        """Why a stage has died; None if none has."""
        return next((failure for stage in self.stages if (failure := stage.failure) is not None), None)

    def process_all_available(self) -> None:
        """Wait until everything that has arrived by now has gone through all stages."""
        for stage in self.stages:
            if stage.query is not None:
                stage.query.processAllAvailable()

    def finish(self, seconds: float) -> None:
        """Stop the stages, upstream first, each when it has done what it has begun and what waits on its arcs.

        After so many seconds it stops anyway: what is left is done when the run goes on.
        """
        end_s = time.monotonic() + seconds
        for stage in self.stages:
            last = stage.last
            # A query that finds new tuples all the time is always busy: one more batch will do.
            while stage.is_busy and time.monotonic() < end_s and (stage.last is last or stage.waiting_rows > 0):
                time.sleep(_POLL_S)
            stage.stop()

    def close(self) -> None:
        """Stop the queries and the loop."""
        self._stop()
        self.gate.close()

    def _on_failure(self) -> None:
        """A query has died: stop the others, but not from a listener's thread."""
        self._failed.set()
        threading.Thread(target=self._stop, name="streamshed-stop", daemon=True).start()

    def _stop(self) -> None:
        for stage in self.stages:
            stage.stop()

    # --- the plan --------------------------------------------------------------------------------------------------

    def _queue(self, stage: Stage, cut: tuple[Stage, ...]) -> ArcQueue:
        arc = ParquetArc((self.directory / "stages" / file_name(stage.id) / "arc").as_uri())
        arc.check_writable(self.spark, f"stage {stage.id!r}")
        return ArcQueue(self.spark, arc, [reader.id for reader in cut if stage.id in reader.inputs])

    def _stage(self, stage: Stage, queues: Mapping[str, ArcQueue], turn: Turn) -> RunningStage:
        fused = stage.id == ALL_OUTPUTS
        place = self.directory if fused else self.directory / "stages" / file_name(stage.id)
        return RunningStage(
            stage,
            name=self.network.name if fused else f"{self.network.name}/{stage.id}",
            log=CheckpointLog(self.spark, (place / "checkpoint").as_uri()),
            plan_order=source_order(self.network, stage, [one.outputs for one in self._passes]),
            queues=queues,
            sinks=self.sinks,
            turn=turn,
            inboxes=self._inboxes,
            every_s=self._every_s,
        )

    def _read_arc(self, stage: Stage, schema: StructType) -> DataFrame:
        queue = next(of_stage.writes for of_stage in self.stages if of_stage.id == stage.id)
        assert queue is not None
        return queue.arc.read(self.spark, schema)

    # --- the loop --------------------------------------------------------------------------------------------------

    def _decide(self, time_s: float) -> dict[str, float]:
        outlook = self.backlog.outlook(time_s) if self._begun.is_set() else None
        if outlook is None:
            return {}
        return self._carry_out(self.manager.decide(outlook))

    def _follow_goals(self, time_s: float) -> dict[str, float]:
        assert self.scheduler is not None
        drops = self.scheduler.drops(time_s, self.manager)
        return self._carry_out(drops) if drops is not None else {}

    def _carry_out(self, decision: Decision) -> dict[str, float]:
        with self._lock:
            fractions = [0.0] * self.gate.line.size
            for name, drop in self.gate.drops.items():
                if drop.index is not None:
                    fractions[drop.index] = decision.thresholds.get(name, 0.0)
            self._decisions[self.gate.line.quantised(fractions)] = decision
        return dict(decision.thresholds)

    def _on_batch(self, report: BatchReport, counts: Mapping[str, DropCounts]) -> None:
        stage = next((stage for stage in self.stages if stage.name == report.query_name), None)
        batch = stage.log.batch(report.batch_id) if stage is not None else None
        if stage is None or batch is None:
            return
        applied = self.gate.line.at(batch.time_ms)
        with self._lock:
            decision = self._decisions.get(applied)
        share = decision.load_share if decision is not None else float("nan") if any(applied) else 1.0

        sources = [count for name, count in counts.items() if self.gate.drops[name].source]
        rows = sum(count.arrived - count.malformed for count in sources)
        entered = {
            arc.target: counts[arc.id].arrived - counts[arc.id].malformed
            for arc in self.network.arcs
            if arc.is_entry and arc.id in counts
        }
        ended = StageBatch(report.batch_id, rows, report.duration_s, report.end_s, state_bytes=report.state_bytes)
        done, goes_on = stage.finish(ended, entered, tuple_s=self._costs.tuple_s[stage.id], share=share)
        if goes_on and stage.carries_arrival:  # delays are known when tuples have come to the end
            counts = {name: replace(count, arrivals_s=()) for name, count in counts.items()}
            sources = [replace(count, arrivals_s=()) for count in sources]
        if self.scheduler is not None:
            self.scheduler.learn(stage, sources)
        known = not math.isnan(done.share)
        sample = replace(
            batch_sample(report, sources, round(done.tuples * done.share) if known else done.tuples),
            arrived=done.tuples,
            duration_s=done.duration_s,
            waiting=self.backlog.waiting(report.end_s, stage, batch),
            oldest_wait_s=report.duration_s,
        )
        self._learn_values(counts)
        arrived = sum(entered.get(stream, 0) for stream in self.backlog.leads[stage.id])
        self.backlog.learn(stage, report.start_s, arrived)
        leads = stage.plan.is_durable or not done.tuples or self._slowest.leads_to(stage.id, done.duration_s)
        if known and leads and not goes_on:  # thresholds from before a restart say nothing about the work that was left
            controller = self.manager.controller
            before = controller.out_of_reach
            self.manager.observe(sample)
            tell_reach(_LOG, self.network.name, before, controller.out_of_reach)
            self._memory.keep(self.manager.controller, sample)
        kept = {name: (count.arrived - count.malformed, count.kept) for name, count in counts.items()}
        self.sic.observe(sample.time_s, kept)
        if self._told is not None:
            of_loss = self._utilities(decision, applied, self._timeliness.ends(stage.id, goes_on=goes_on))
            on_time = {output: self._timeliness.of(output, stage.id, counts, report.end_s) for output in of_loss}
            self._told(
                NetworkBatch(
                    sample=sample,
                    batch_id=report.batch_id,
                    start_s=report.start_s,
                    counts=counts,
                    thresholds={
                        name: applied[drop.index] for name, drop in self.gate.drops.items() if drop.index is not None
                    },
                    load_share=share,
                    utilities={output: _times(of_loss[output], on_time[output]) for output in of_loss},
                    observed=report.observed,
                    stage=stage.id,
                    arrived=arrived,
                    sic=self.sic.at(sample.time_s),
                    utilities_of_loss=of_loss,
                    strategies=self.scheduler.strategies if self.scheduler is not None else {},
                    switches=sum(self.scheduler.switches.values()) if self.scheduler is not None else 0,
                    out_of_reach=self.manager.controller.out_of_reach,
                )
            )

    def _learn_values(self, counts: Mapping[str, DropCounts]) -> None:
        """Plan by values as they are spread in the streams."""
        for stream in self._values.valued:
            of_entry = counts.get(self.network.arcs_into[stream][0].id)
            if of_entry is not None and self._values.observe(stream, of_entry.cells):
                _LOG.info("%s: values of %s are spread as in the stream now", self.network.name, stream)
                self.manager.renew(self._values.statistics)

    def _utilities(
        self, decision: Decision | None, applied: Sequence[float], outputs: Sequence[str]
    ) -> dict[str, float | None]:
        """What the plan behind a batch's drops foresees for some outputs."""
        if decision is None:
            return dict.fromkeys(outputs, None if any(applied) else 1.0)
        values = {output.id for output in self.network.outputs if output.qos.value is not None}
        return {
            effect.output: effect.value_utility if effect.output in values else effect.tuple_utility
            for effect in decision.plan.outputs
            if effect.output in outputs
        }


def _times(utility: float | None, latency_utility: float | None) -> float | None:
    return None if utility is None or latency_utility is None else utility * latency_utility
