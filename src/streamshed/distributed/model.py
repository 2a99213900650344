"""What a node does to its inputs, as far as load shedding is concerned, and how nodes are joined.

A node's queries are trees of *segments*: stretches of operators without a fan-out. A segment has a cost and a
selectivity, its tuples come from an input of the node or from another segment, and it leads to further segments, or
ends in an output or in the input of another node. Tuples can be dropped ahead of every segment. So all there is to
decide is x, the rate that enters each segment:

    x ≤ rate of the input, or x ≤ selectivity·x of the segment ahead, and Σ cost·x ≤ capacity.

A network link is a node like any other, whose segments cost what sending a tuple takes, with selectivity 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

from streamshed.errors import InvalidValueError, NetworkError, did_you_mean

Real = int | float | Fraction


@dataclass(frozen=True)
class Segment:
    """Operators in a row.

    Attributes:
        id: its name, unique in its node; where the tuples of a local plan are dropped.
        source: the input of the node, or the segment, whose tuples it takes.
        cost: seconds of processing for each tuple that enters it.
        selectivity: tuples that leave it for each tuple that enters it.
        end: the output, or the input of another node, that it leads to; None if other segments follow.
    """

    id: str
    source: str
    cost: Real = 0
    selectivity: Real = 1
    end: str | None = None


@dataclass(frozen=True)
class NodeModel:
    """A node: its inputs, its segments and how much it can do.

    Attributes:
        name: its name.
        inputs: the ids of its inputs, unique among all nodes.
        segments: each after the one that it takes its tuples from.
        capacity: seconds of processing per second that it has.
    """

    name: str
    inputs: tuple[str, ...]
    segments: tuple[Segment, ...]
    capacity: Real = 1

    def __post_init__(self) -> None:
        known: set[str] = set(self.inputs)
        followed: set[str] = set()
        if len(known) != len(self.inputs) or not self.inputs:
            raise NetworkError(
                "a node needs inputs with different names", where=f"node {self.name!r}", got=list(self.inputs)
            )
        for segment in self.segments:
            where = f"segment {segment.id!r} of node {self.name!r}"
            if segment.id in known:
                raise NetworkError("a name is there twice", where=where, got=segment.id, expected="different names")
            if segment.source not in known:
                raise NetworkError(
                    "a segment takes tuples from something that does not come before it",
                    where=where,
                    got=segment.source,
                    expected="an input, or a segment further up",
                    hint=did_you_mean(segment.source, known),
                )
            for what, value in (("cost", segment.cost), ("selectivity", segment.selectivity)):
                if not (0 <= value < float("inf")):
                    raise InvalidValueError(f"a {what} is out of range", where=where, got=value, expected=">= 0")
            known.add(segment.id)
            followed.add(segment.source)
        for segment in self.segments:
            if (segment.end is None) != (segment.id in followed):
                raise NetworkError(
                    "a segment must either end somewhere or be followed by others",
                    where=f"segment {segment.id!r} of node {self.name!r}",
                    got="both" if segment.end is not None else "neither",
                )
        if not (0 < self.capacity < float("inf")):
            raise InvalidValueError(
                "a capacity must be positive", where=f"node {self.name!r}", got=self.capacity, expected="> 0"
            )

    @cached_property
    def ends(self) -> tuple[Segment, ...]:
        """The segments that end in an output or in another node."""
        return tuple(segment for segment in self.segments if segment.end is not None)

    @cached_property
    def path(self) -> Mapping[str, tuple[Segment, ...]]:
        """For each segment the segments from its input to itself."""
        paths: dict[str, tuple[Segment, ...]] = {}
        for segment in self.segments:
            paths[segment.id] = (*paths.get(segment.source, ()), segment)
        return paths

    @cached_property
    def input_of(self) -> Mapping[str, str]:
        """The input that each segment's tuples came in by."""
        return {segment_id: path[0].source for segment_id, path in self.path.items()}


def link(child: NodeModel, bandwidth_tps: Real, name: str | None = None) -> NodeModel:
    """The link into a node as one more node: sending a tuple takes 1/bandwidth of a second.

    Its inputs are the child's with the link's name ahead; whoever sends to the child sends to these instead.
    """
    name = name or f"link to {child.name}"
    cost = Fraction(1) / Fraction(str(bandwidth_tps))
    inputs = {input_id: f"{name}/{input_id}" for input_id in child.inputs}
    segments = tuple(Segment(f"send {target}", source, cost, 1, target) for target, source in inputs.items())
    return NodeModel(name, tuple(inputs.values()), segments)


@dataclass(frozen=True)
class Topology:
    """Nodes joined by their segments' ends. A tree where every node has one parent; any acyclic graph will do.

    An end that is no node's input is an output: what arrives there is what the whole is for. An input that no segment
    ends in is fed from outside.
    """

    nodes: tuple[NodeModel, ...]

    def __post_init__(self) -> None:
        for group, what in (
            ([node.name for node in self.nodes], "two nodes have the same name"),
            ([input_id for node in self.nodes for input_id in node.inputs], "two inputs have the same name"),
        ):
            for name in group:
                if group.count(name) > 1:
                    raise NetworkError(what, where="topology", got=name, expected="different names")
        _ = self.upstream_first  # raises on a cycle

    @classmethod
    def of(cls, nodes: Iterable[NodeModel]) -> Topology:
        """A topology of these nodes."""
        return cls(tuple(nodes))

    @cached_property
    def node(self) -> Mapping[str, NodeModel]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def owner(self) -> Mapping[str, str]:
        """The node that each input belongs to."""
        return {input_id: node.name for node in self.nodes for input_id in node.inputs}

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that each node sends to."""
        return {
            node.name: tuple(
                dict.fromkeys(self.owner[str(end.end)] for end in node.ends if end.end in self.owner)  # in their order
            )
            for node in self.nodes
        }

    @cached_property
    def parents(self) -> Mapping[str, tuple[str, ...]]:
        """The nodes that send to each node."""
        return {
            node.name: tuple(other.name for other in self.nodes if node.name in self.children[other.name])
            for node in self.nodes
        }

    @cached_property
    def external(self) -> frozenset[str]:
        """The inputs that are fed from outside, and by no node."""
        fed = {end.end for node in self.nodes for end in node.ends}
        return frozenset(input_id for input_id in self.owner if input_id not in fed)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Where results leave."""
        return tuple(
            dict.fromkeys(
                end.end for node in self.nodes for end in node.ends if end.end is not None and end.end not in self.owner
            )
        )

    @cached_property
    def upstream_first(self) -> tuple[str, ...]:
        """The names of the nodes, each after those that send to it."""
        try:
            return tuple(TopologicalSorter({name: self.parents[name] for name in self.node}).static_order())
        except CycleError as error:
            raise NetworkError(
                "nodes send to each other in a circle", where="topology", got=" -> ".join(map(str, error.args[1]))
            ) from None

    def replaced(self, *changed: NodeModel) -> Topology:
        """The same with some nodes changed."""
        new = {node.name: node for node in changed}
        return Topology(tuple(new.get(node.name, node) for node in self.nodes))

    def with_link(self, child: str, bandwidth_tps: Real) -> Topology:
        """The same, where all that is sent to a node passes a link of this bandwidth."""
        pipe = link(self.node[child], bandwidth_tps)
        renamed = {segment.end: segment.source for segment in pipe.segments}
        nodes: list[NodeModel] = []
        for node in self.nodes:
            segments = tuple(
                Segment(one.id, one.source, one.cost, one.selectivity, renamed.get(one.end, one.end))
                for one in node.segments
            )
            nodes.append(NodeModel(node.name, node.inputs, segments, node.capacity))
        used = {end.end for node in nodes for end in node.ends}
        kept = tuple(segment for segment in pipe.segments if segment.source in used)
        if not kept:
            raise NetworkError("nothing is sent to this node", where=f"link to {child!r}", got="no parent")
        return Topology((*nodes, NodeModel(pipe.name, tuple(one.source for one in kept), kept)))
