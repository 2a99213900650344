"""From a query network to streaming DataFrames.

Every node becomes one DataFrame, also where several others read it; `at_arc` is called once for every arc, so that
drops and observations can be put there without the compiler knowing of them. What a frame holds beyond the columns
of its node's schema (a weight, an arrival time; by custom their names begin with `_`) travels unseen as far as the
next aggregate, and is taken out at the outputs. A weight makes the counts, sums and averages unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from streamshed.engines.spark.connectors import RANK, RAW
from streamshed.engines.spark.one_pass import in_one_pass
from streamshed.engines.spark.operators import Flow, aggregated, column, joined, mapped, microseconds, united
from streamshed.errors import NetworkError, did_you_mean
from streamshed.estimates import WEIGHT_BEFORE
from streamshed.network import ARC, Aggregate, Arc, Filter, Join, Map, Network, Node, Output, Split, Stream, Union
from streamshed.network.siblings import Siblings
from streamshed.network.stages import Stage, lateness_s, stages


def unchanged(_arc: Arc, frame: DataFrame) -> DataFrame:
    """What happens at an arc where nothing happens."""
    return frame


def unmarked(_arc: Arc, frame: DataFrame, on: Column) -> tuple[DataFrame, Column]:
    """What happens at an arc of a shared pass where nothing happens."""
    return frame, on


def compile_stages(
    network: Network,
    read: Callable[[Stream], DataFrame],
    read_arc: Callable[[Stage, StructType], DataFrame],
    at_arc: Callable[[Arc, DataFrame], DataFrame] = unchanged,
    at_read: Callable[[Stage, DataFrame], DataFrame] = lambda _, frame: frame,
    passes: Sequence[Siblings] = (),
    mark: Callable[[Arc, DataFrame, Column], tuple[DataFrame, Column]] = unmarked,
) -> Mapping[str, DataFrame]:
    """The DataFrame of every output and durable operator, by its id: what goes to its sink or to its durable arc.

    Outputs that share a pass have one frame together, by the id of the pass: with a struct for each of them, which is
    null in rows that are not for it.

    Args:
        network: what to compute.
        read: gives the tuples of a stream; called once for each.
        read_arc: gives the tuples on the durable arc that a stage writes, which have the given schema (the node's
            columns and what travels with them); called once for each. Its event time is watermarked here.
        at_arc: gives what goes on along an arc; called once for each. It sees the arcs out of a durable operator
            when they are read.
        at_read: gives what goes on from a durable arc, once for all its readers, with its event time watermarked.
        passes: the outputs that share one.
        mark: stands for `at_arc` in these: nothing can be taken out, because others may need it. It gets the tuples, of
            which those are on the arc where a condition holds, and gives the condition for those that go on.
    """
    durable = {stage.id: stage for stage in stages(network) if stage.is_durable}
    compiler = _Compiler(network, read, at_arc)
    compiled: dict[str, DataFrame] = {}
    in_passes = {node_id for one in passes for node_id in one.nodes}
    for node in network.nodes.values():
        if node.id in in_passes:
            continue
        compiler.add(node)
        if isinstance(node, Output):
            compiled[node.id] = compiler.frames[node.id]
        elif node.id in durable:
            compiled[node.id] = compiler.leave(node)
            compiler.enter(node, read_arc(durable[node.id], compiled[node.id].schema))
            compiler.frames[node.id] = at_read(durable[node.id], compiler.frames[node.id])
    for one in passes:
        compiled[one.id] = in_one_pass(network, one, compiler.frames[one.root], mark)
    return compiled


class _Compiler:
    """Holds the frames made so far; nodes are added in an order in which each follows its inputs."""

    def __init__(
        self,
        network: Network,
        read: Callable[[Stream], DataFrame],
        at_arc: Callable[[Arc, DataFrame], DataFrame],
    ) -> None:
        self.network = network
        self.frames: dict[str, DataFrame] = {}
        self._read = read
        self._at_arc = at_arc
        self._timed = _upstream_of_windows(network)

    def add(self, node: Node) -> None:
        """Make the frame of a node out of those of its inputs."""
        if isinstance(node, Stream):
            frame, entry = self._read(node), self.network.arcs_into[node.id][0]
            if RAW in frame.columns:  # has its columns, and so its time, only behind the entry drop
                self.frames[node.id] = self._watermarked(node, _checked(node, self._at_arc(entry, frame)))
            else:
                self.frames[node.id] = self._at_arc(entry, self._watermarked(node, _checked(node, frame)))
            return
        schema = self.network.schemas[node.id]
        flows = [self._along(arc) for arc in self.network.arcs_into[node.id]]
        match node:
            case Filter():
                frame = flows[0].frame.where(F.expr(node.where))
            case Split():
                frame = flows[0].frame
            case Map():
                frame = mapped(node, flows[0], schema)
            case Union():
                frame = united(flows, schema)
            case Join():
                frame = joined(node, schema, *flows)
            case Aggregate():
                frame = aggregated(node, flows[0])
            case Output():
                frame = flows[0].frame.drop(WEIGHT_BEFORE, RANK)
                if node.sink is None or node.sink.format != ARC:  # what travels along goes on to other nodes
                    frame = frame.select(*map(column, schema.columns))
        self.frames[node.id] = frame

    def leave(self, node: Node) -> DataFrame:
        """What goes to a durable arc: of a split, only the tuples that some branch takes."""
        frame = self.frames[node.id]
        if isinstance(node, Split):
            frame = frame.where(reduce(Column.__or__, map(F.expr, node.branches.values())))
        return frame

    def enter(self, node: Node, frame: DataFrame) -> None:
        """Go on with what is read from a durable arc; the watermark has to be set anew."""
        self.frames[node.id] = self._watermarked(node, frame)

    def _watermarked(self, node: Node, frame: DataFrame) -> DataFrame:
        flow = Flow(frame, self.network.schemas[node.id])
        if node.id not in self._timed or flow.schema.time is None:
            return frame
        delay = microseconds(lateness_s(self.network, node.id))
        return frame.withWatermark(flow.time, f"{delay} microseconds")

    def _along(self, arc: Arc) -> Flow:
        source = self.network.nodes[arc.source]
        frame = self.frames[arc.source]
        if isinstance(source, Split):
            frame = frame.where(F.expr(source.branches[arc.branch or ""]))
        return Flow(self._at_arc(arc, frame), self.network.schemas[arc.source])


def _checked(stream: Stream, frame: DataFrame) -> DataFrame:
    where = f"stream {stream.id!r}"
    for name in stream.columns:
        if name not in frame.columns:
            raise NetworkError(
                "the source lacks a declared column",
                where=where,
                got=", ".join(frame.columns),
                expected=repr(name),
                hint=did_you_mean(name, frame.columns),
            )
    if stream.time is not None:
        kind = frame.schema[stream.time].dataType
        if not isinstance(kind, TimestampType | TimestampNTZType):
            raise NetworkError(
                "the time column holds no timestamps", where=where, got=kind.simpleString(), expected="timestamp"
            )
    return frame


def _upstream_of_windows(network: Network) -> frozenset[str]:
    """The nodes whose event time some window or join uses: only these need a watermark."""
    found: set[str] = set()
    for node in reversed(tuple(network.nodes.values())):
        if isinstance(node, Aggregate | Join) or node.id in found:
            found.update(reference.partition(".")[0] for reference in node.inputs)
    return frozenset(found)
