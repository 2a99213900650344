"""A node of a network as an application of its own: its part runs here, joined to the others by durable arcs."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamshed.control import BatchCost, Controller, PlantController
from streamshed.coordination import LastingRate, TablePlanner, measured_model, table_for_parent
from streamshed.distributed.arc_files import ArcFiles, Inbox, file_name
from streamshed.distributed.cutting import topology_of
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.upkeep import TableKeeper
from streamshed.distributed.mailbox import STALE_AFTER_S, Mailbox
from streamshed.distributed.model import NodeModel
from streamshed.distributed.post import DirectoryPost, HttpPost, Post
from streamshed.distributed.scores import Throughput
from streamshed.engines.spark.arcs import ParquetArc
from streamshed.engines.spark.closing import Closing
from streamshed.engines.spark.connectors import read_stream
from streamshed.engines.spark.cost_memory import believed_cost
from streamshed.engines.spark.directory_lock import CONTROL, check_free
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import SALT, NetworkRunner
from streamshed.errors import StreamshedError
from streamshed.estimates import WEIGHT, WEIGHT_BEFORE
from streamshed.network import ARC, NodeSpec, Spec, Stream, node_spec
from streamshed.planning import Planner, SemanticRoadMapPlanner

_LOG = logging.getLogger(__name__)

PERIOD_S = 1.0
"""Between two looks at tables, and two messages."""

_SCHEMA_WAIT_S = 120.0
_POLL_S = 0.1
_RATE_WINDOW_S = 10.0
_BATCHES = 3
"""So many batches at most in a node's part of the target: each costs it, and whoever reads its arcs, something,
whatever is in it. Under full load batches follow each other that take a little less than half of it."""

_DRIFT = 0.04  # of the measured capacity, before the table is made again


class ArrivalRates:
    """Tuples per second by stream, over the batches of the last seconds.

    The tuples of a batch arrived since the one before it started.

    >>> rates = ArrivalRates()
    >>> for start_s, arrived in ((0.0, 500), (2.0, 400), (4.0, 200)):
    ...     rates.observe("s", start_s, arrived)
    >>> rates.tps
    {'s': 150.0}
    """

    def __init__(self, window_s: float = _RATE_WINDOW_S) -> None:
        self._window_s = window_s
        self._batches: dict[str, deque[tuple[float, int]]] = {}

    def observe(self, stream: str, start_s: float, arrived: int) -> None:
        """A batch that started at a time read so many tuples of a stream."""
        batches = self._batches.setdefault(stream, deque())
        batches.append((start_s, arrived))
        while len(batches) > 2 and batches[1][0] < start_s - self._window_s:
            batches.popleft()

    @property
    def tps(self) -> dict[str, float]:
        """Of the streams of which there were two batches."""
        found: dict[str, float] = {}
        for stream, batches in self._batches.items():
            span_s = batches[-1][0] - batches[0][0]
            if span_s > 0:
                found[stream] = sum(arrived for _, arrived in list(batches)[1:]) / span_s
        return found


class NodeRunner(Closing):
    """Runs one node's part of a network, and sheds for itself and for the nodes below it.

    Once a second it takes in the tables of its children and plans anew with those that are not too old, and tells its
    parents what it can take itself, by what its own batches take and by its children's tables.

    Args:
        spark: the session to run in.
        spec: the whole network, with nodes.
        name: of the node.
        directory: that all nodes see: arcs, tables, and a directory for each node.
        target_s: how late an answer may be at the end of all nodes; each has an equal part of it.
        planner: decides where to drop, where tables have nothing to say.
        controller: decides how much; by default the one that is made for micro-batches.
        shed: False to only watch.
        by_tables: whether to shed for nodes below, and to tell those above; else for itself alone.
        per_output: whether each output is a stage of its own.
        stale_after_s: how old a table may be.
        token: tables go over HTTP, with this token; None for files in the directory.
        on_batch: is told of every batch.
        stopped: is set when nobody wants the node any more: it then no longer waits for those upstream to start.
        clock: the time, in seconds since 1970.

    Attributes:
        node: its part.
        runner: runs it.
        mailbox: the children's tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: Spec,
        name: str,
        directory: Path,
        *,
        target_s: float,
        planner: Planner | None = None,
        controller: Controller | None = None,
        shed: bool = True,
        by_tables: bool = True,
        token: str | None = None,
        per_output: bool = False,
        stale_after_s: float = STALE_AFTER_S,
        on_batch: Callable[[NetworkBatch], None] | None = None,
        stopped: threading.Event | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        spec = replace(spec, statistics=spec.statistics.with_believed_costs(spec.network))
        self.node: NodeSpec = node_spec(spec, name)
        self.spark, self._clock, self._told = spark, clock, on_batch
        self._unwanted = stopped or threading.Event()
        self.directory = directory.absolute() / "nodes" / file_name(name)
        self.directory.mkdir(parents=True, exist_ok=True)
        check_free(self.directory / CONTROL)
        arcs = directory.absolute() / "arcs"
        self.inboxes = {stream: Inbox(ArcFiles(arcs, arc)) for stream, arc in self.node.reads.items()}
        self.outboxes = {output: ArcFiles(arcs, arc) for output, arc in self.node.writes.items()}
        self.controller = controller or PlantController(self.node.own_target_s(target_s))
        self.rates = ArrivalRates()
        self.lasting = LastingRate()
        otherwise = planner or SemanticRoadMapPlanner()
        self.mailbox = Mailbox({}, stale_after_s)
        self.keepers: dict[str, TableKeeper] = {}
        self._tables = self._coordinated(spec, otherwise, stale_after_s) if shed and by_tables else None
        self._post = self._opened(directory.absolute() / "tables", token) if self._tables is not None else None
        self.runner = NetworkRunner(
            spark,
            self.node.spec,
            self.directory,
            target_s=self.controller.target_s,
            due_s=self.node.due_s(target_s),
            planner=self._tables if self._tables is not None else otherwise,
            controller=self.controller,
            shed=shed,
            per_output=per_output,
            read=self._read,
            on_batch=self._on_batch,
            salt=SALT + self.node.number,
            inboxes=self.inboxes,
            outboxes=self.outboxes,
            every_s=self.controller.target_s / _BATCHES,
        )
        self._begin_by_the_spec()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamshed-node", daemon=True)

    def start(self) -> None:
        """Start the queries; waits until all arcs that it reads have a writer."""
        self.runner.start()
        self._thread.start()

    def close(self) -> None:
        """Stop everything."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.runner.close()
        for stage in self.runner.stages:  # batches whose reports came too late have been counted by now
            if stage.gated is not None:
                stage.resume(self.runner.gate.accounts.accounted(stage.gated))
        if self._post is not None:
            self._post.close()

    def tick(self, now_s: float) -> None:
        """Hear from children, plan with what they say, tell the parents."""
        if self._tables is None or self._post is None:
            return
        self._post.collect(now_s)
        tables, rates = self.mailbox.tables(now_s), self._rates_tps()
        if self._tables.update(tables, rates):
            self.runner.manager.replan()
        model = self._measured(rates)
        if model is not None:
            for keeper in self.keepers.values():
                keeper.update(model, tables)
            self._post.deliver(self.keepers, now_s)

    @property
    def cost(self) -> BatchCost | None:
        """What its batches cost, if its controller knows."""
        return self.controller.cost if isinstance(self.controller, PlantController) else None

    @property
    def takes_tps(self) -> dict[str, float]:
        """The highest rate at each input that the node tells its parents it can take."""
        found: dict[str, float] = {}
        for keeper in self.keepers.values():
            if keeper.table is not None:
                found |= dict(keeper.table.highest)
        return found

    def arcs(self) -> dict[str, dict[str, int]]:
        """What was written on the arcs of this node, and what waits on those that it reads."""
        written = {files.name: {"written": files.written_rows()} for files in self.outboxes.values()}
        return written | {box.files.name: {"waiting": box.waiting_rows()} for box in self.inboxes.values()}

    def _begin_by_the_spec(self) -> None:
        """Believe the spec where there is no earlier run: those above send at once, and more than it may take."""
        if isinstance(self.controller, PlantController) and self.controller.cost is None:
            target_s, spec = self.controller.target_s, self.node.spec
            cost = believed_cost(spec, target_s)
            if cost is not None:
                self.controller.believe(cost, sum(spec.rates.values()) * target_s / _BATCHES)

    # --- tables ----------------------------------------------------------------------------------------------------

    def _coordinated(self, spec: Spec, otherwise: Planner, stale_after_s: float) -> TablePlanner:
        unlimited = tuple(replace(placement, bandwidth_tps=None) for placement in spec.nodes)
        topology = topology_of(replace(spec, nodes=unlimited))
        model = topology.node[self.node.name]
        fed = {
            child: [str(end.end) for end in model.ends if str(end.end).partition("/")[0] == child]
            for child in self.node.children
        }
        self.mailbox = Mailbox(fed, stale_after_s)
        for parent in self.node.parents:
            inputs = frozenset(str(end.end) for end in topology.node[parent].ends).intersection(model.inputs)
            self.keepers[parent] = TableKeeper(self._maker(inputs), drift=_DRIFT)
        score = Throughput({output.id: output.qos.weight for output in spec.network.outputs})
        return TablePlanner(self.node, model, score, otherwise)

    def _opened(self, place: Path, token: str | None) -> Post:
        name, children = self.node.name, self.node.children
        if token is None:
            return DirectoryPost(place, name, children, self.mailbox)
        return HttpPost(place, name, children, self.mailbox, token)

    def _maker(
        self, inputs: frozenset[str]
    ) -> Callable[[NodeModel, Mapping[str, FeasibleInputTable]], FeasibleInputTable]:
        def make(model: NodeModel, children: Mapping[str, FeasibleInputTable]) -> FeasibleInputTable:
            assert self._tables is not None
            share = 1.0 / len(self.node.parents)
            return table_for_parent(model, self._tables.score, children, self._rates_tps(), inputs, share)

        return make

    def _rates_tps(self) -> dict[str, float]:
        """What comes at the inputs of the model; of the spec, where that is not known yet."""
        known = self.rates.tps
        return {name: known.get(stream, self.node.spec.rates[stream]) for stream, name in self.node.inputs.items()}

    def _measured(self, rates_tps: Mapping[str, float]) -> NodeModel | None:
        """The node as it is; None while it does not know what it can do."""
        assert self._tables is not None
        model = self._tables.model
        if not isinstance(self.controller, PlantController):
            return None if self.node.spec.statistics.believed else model
        rate_tps = self.lasting.of(self.controller.lasting_rate_tps or 0.0)
        return measured_model(model, rates_tps, rate_tps) if rate_tps > 0 else None

    def _run(self) -> None:
        failing = False
        while not self._stop.wait(PERIOD_S):
            try:
                self.tick(self._clock())
                failing = False
            except Exception:
                if not failing:
                    _LOG.exception("node %s cannot exchange tables; it goes on by what it knows", self.node.name)
                failing = True

    # --- batches ---------------------------------------------------------------------------------------------------

    def _on_batch(self, batch: NetworkBatch) -> None:
        for arc in self.runner.network.arcs:
            if arc.is_entry and arc.id in batch.counts:
                counts = batch.counts[arc.id]
                self.rates.observe(arc.id, batch.start_s, counts.arrived - counts.malformed)
        if isinstance(self.controller, PlantController) and batch.sample.arrived:
            batch_s = self.controller.lasting_batch_s
            if batch_s:
                # What is dropped for nodes below says nothing about this one.
                share = self.runner.manager.keep if self._tables and self._tables.tables else batch.load_share
                if not math.isnan(share):
                    took_s = batch.sample.duration_s
                    self.lasting.observe(took_s / batch_s, 1.0 - share, batch.sample.kept / max(took_s, 1e-3))
        if self._told is not None:
            self._told(batch)

    def _read(self, stream: Stream) -> DataFrame:
        if stream.source is None or stream.source.format != ARC:
            return read_stream(self.spark, stream)
        files = self.inboxes[stream.id].files
        end_s = time.monotonic() + _SCHEMA_WAIT_S
        while (text := files.schema()) is None:
            if time.monotonic() > end_s or self._unwanted.is_set():
                raise StreamshedError(
                    "nobody writes an arc that this node reads", where=f"arc {files.name!r}",
                    got="a stop" if self._unwanted.is_set() else f"nothing in {_SCHEMA_WAIT_S:g} s",
                    expected="a node upstream that runs in the same directory",
                )  # fmt: skip
            time.sleep(_POLL_S)
        schema = StructType.fromJson(json.loads(text))
        frame = ParquetArc(files.directory.as_uri()).read(self.spark, schema)
        return frame.withColumn(WEIGHT_BEFORE, F.col(WEIGHT)) if WEIGHT in frame.columns else frame
