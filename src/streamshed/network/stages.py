"""Cutting a network into stages: the units that run, and are scheduled, one beside the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from streamshed.network.network import Network
from streamshed.network.nodes import Aggregate, Join, Node, Operator, Output, Stream

ALL_OUTPUTS = "all outputs"
"""The id of the stage that all outputs share. No node can have it: their ids hold no space."""


@dataclass(frozen=True)
class Stage:
    """What one continuous query computes.

    A stage ends in an output, in all outputs together, or in an operator marked `stage`: then its results lie on a
    durable arc, computed once and read by every stage downstream. An operator without the mark belongs to each stage
    that needs it, and is computed in each of them.

    Attributes:
        id: the id of the output or operator that the stage ends in, or `ALL_OUTPUTS`.
        operators: the operators computed here, each after those it reads.
        inputs: the streams and the stages that it reads.
        arcs: the ids of the arcs whose tuples pass here. The arcs out of a durable operator belong to its readers.
        outputs: the outputs that it ends in; none if its results lie on a durable arc.
    """

    id: str
    operators: tuple[str, ...]
    inputs: tuple[str, ...]
    arcs: tuple[str, ...]
    outputs: tuple[str, ...] = ()

    @property
    def is_durable(self) -> bool:
        """Whether other stages read the results, from a durable arc."""
        return not self.outputs


def stages(network: Network, *, together: bool = False) -> tuple[Stage, ...]:
    """The stages of a network, each after those it reads.

    Args:
        network: to be cut.
        together: whether all outputs are one stage; else each is one of its own.

    >>> from streamshed.network import NetworkBuilder
    >>> new = NetworkBuilder("example")
    >>> parsed = new.stream("lines", {"text": "string"}).map("parse", {"n": "length(text)"}, stage=True)
    >>> parsed.filter("long", "n > 80").output("alarms")
    >>> parsed.output("all")
    >>> for stage in stages(new.build()):
    ...     print(stage.id, stage.operators, stage.inputs)
    parse ('parse',) ('lines',)
    all () ('parse',)
    alarms ('long',) ('parse',)
    """
    if together:
        marked = [_stage(network, node.id, [node]) for node in network.nodes.values() if _is_marked(node)]
        return (*marked, _stage(network, ALL_OUTPUTS, network.outputs))
    ends = [node for node in network.nodes.values() if isinstance(node, Output) or _is_marked(node)]
    return tuple(_stage(network, end.id, [end]) for end in ends)


def source_order(network: Network, stage: Stage, passes: Iterable[Sequence[str]] = ()) -> tuple[str, ...]:
    """The streams and durable arcs that the plan of a stage's query reads, from left to right.

    Outputs come in turn, left inputs first. What is read on several ways is there as often, but once for outputs that
    share a pass.
    """
    found: list[str] = []
    saved = {output for outputs in passes for output in outputs[1:]}

    def walk(node_id: str) -> None:
        if node_id in stage.inputs:
            found.append(node_id)
            return
        for arc in network.arcs_into[node_id]:
            walk(arc.source)

    for end in stage.outputs or (stage.id,):
        if end not in saved:
            walk(end)
    return tuple(found)


def lateness_s(network: Network, node_id: str) -> float:
    """How far the tuples of a node may lie behind the newest event time seen there, in seconds.

    A stream says so itself. A join holds a tuple back until its partner comes, at most `within_s`. A windowed
    aggregate hands its windows on in order. Whoever reads a durable arc needs this to set its watermark. (Streams
    that lag behind one another must say so in their own lateness: an arc does not carry the producer's watermark.)
    """
    late: dict[str, float] = {}
    for node in network.nodes.values():
        before = max((late[reference.partition(".")[0]] for reference in node.inputs), default=0.0)
        if isinstance(node, Stream):
            late[node.id] = node.lateness_s
        elif isinstance(node, Aggregate):
            late[node.id] = 0.0
        else:
            late[node.id] = before + (node.within_s if isinstance(node, Join) else 0.0)
        if node.id == node_id:
            break
    return late[node_id]


def _is_marked(node: Node) -> TypeGuard[Operator]:
    return not isinstance(node, Stream | Output) and node.stage


def _stage(network: Network, stage_id: str, ends: Sequence[Operator | Output]) -> Stage:
    nodes = network.nodes
    inside = {end.id for end in ends}
    inputs: set[str] = set()
    pending = sorted(inside)
    while pending:
        for arc in network.arcs_into[pending.pop()]:
            source = nodes[arc.source]
            if isinstance(source, Stream) or _is_marked(source):
                inputs.add(source.id)
            elif source.id not in inside:
                inside.add(source.id)
                pending.append(source.id)
    return Stage(
        id=stage_id,
        operators=tuple(node_id for node_id in nodes if node_id in inside and not isinstance(nodes[node_id], Output)),
        inputs=tuple(node_id for node_id in nodes if node_id in inputs),
        arcs=tuple(arc.id for arc in network.arcs if arc.target in inside or _is_entry_of(nodes, arc.target, inputs)),
        outputs=tuple(end.id for end in ends if isinstance(end, Output)),
    )


def _is_entry_of(nodes: Mapping[str, Node], target: str, inputs: set[str]) -> bool:
    return target in inputs and isinstance(nodes[target], Stream)
