"""Outputs that need no pass of their own: nothing on the way to them holds tuples back or brings some together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamshed.network.network import Network
from streamshed.network.node_specs import ARC
from streamshed.network.nodes import Arc, Filter, Map, Node, Output, Split
from streamshed.network.stages import Stage


@dataclass(frozen=True)
class Siblings:
    """Outputs of one stage that can be computed in one pass over what they all read.

    Attributes:
        root: the stream or durable operator that they read.
        arcs: those out of it that lead to them.
        outputs: which.
        nodes: these, and the operators on the way to them.
    """

    root: str
    arcs: tuple[Arc, ...]
    outputs: tuple[str, ...]
    nodes: frozenset[str]

    @property
    def id(self) -> str:
        """No node can have it: their ids hold no space."""
        return " + ".join(self.outputs)


def siblings(network: Network, stage: Stage) -> tuple[Siblings, ...]:
    """The outputs of a stage that share a pass, by what they read.

    >>> from streamshed.network import NetworkBuilder
    >>> from streamshed.network.stages import stages
    >>> new = NetworkBuilder("example")
    >>> cars = new.stream("cars", {"at": "timestamp", "speed": "double"}, time="at")
    >>> cars.filter("fast", "speed > 100").output("fines")
    >>> cars.filter("slow", "speed < 10").map("miles", {"mph": "speed / 1.6"}).output("jams")
    >>> cars.aggregate("mean", {"speed": "avg(speed)"}, window_s=60).output("means")
    >>> [found] = siblings(new.build(), stages(new.build(), together=True)[0])
    >>> found.root, found.outputs, [arc.id for arc in found.arcs]
    ('cars', ('fines', 'jams'), ['cars->fast', 'cars->slow'])
    """
    found = []
    for root in stage.inputs:
        known = frozenset(name.lower() for name in network.schemas[root].columns)
        ways = {arc: _way(network, stage, arc, known) for arc in network.arcs_out_of[root]}
        arcs = tuple(arc for arc, nodes in ways.items() if nodes)
        nodes = frozenset(node_id for arc in arcs for node_id in ways[arc])
        outputs = tuple(output for output in stage.outputs if output in nodes)
        if len(outputs) > 1:
            found.append(Siblings(root, arcs, outputs, nodes))
    return tuple(found)


def _way(network: Network, stage: Stage, arc: Arc, known: frozenset[str]) -> frozenset[str]:
    """All nodes that an arc leads to; none if some of them cannot share a pass with others."""
    node = network.nodes[arc.target]
    if not _can_share(node, stage):
        return frozenset()
    if isinstance(node, Map):
        computed = {name.lower() for name in computed_columns(node)}
        if computed & known:  # other branches still need the column of that name
            return frozenset()
        known |= computed
    further = [_way(network, stage, onward, known) for onward in network.arcs_out_of[node.id]]
    return frozenset({node.id}.union(*further)) if all(further) else frozenset()


def computed_columns(node: Map) -> Iterator[str]:
    """The columns that a map does not just hand on."""
    return (name for name, text in node.select.items() if text.strip().strip("`") != name)


def _can_share(node: Node, stage: Stage) -> bool:
    if isinstance(node, Output):
        # What another application reads takes weights and arrival times along.
        return node.id in stage.outputs and (node.sink is None or node.sink.format != ARC)
    return isinstance(node, Filter | Map | Split) and not node.stage
