"""Operator paths: every way from a stream to an output, and the queries that such ways belong to."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from streamshed.errors import InvalidValueError
from streamshed.network.network import Network
from streamshed.network.nodes import Arc, Output, Stream
from streamshed.qos import Goals

MOST_PATHS = 10_000
"""Where flows fork and meet again, the number of paths grows without bound; beyond this it helps nobody."""


@dataclass(frozen=True)
class Path:
    """A way through a network.

    Attributes:
        stream: where it begins.
        output: where it ends.
        arcs: the arcs into its operators, from the stream on. Each is a queue, and its operator with that queue is a
            step: a join is a step on the path of each of its sides (a semi-operator).
        last: the arc into the output.
    """

    stream: str
    output: str
    arcs: tuple[Arc, ...]
    last: Arc


@dataclass(frozen=True)
class Query:
    """What is scheduled and optimised on its own: outputs that share operators, with all that leads to them.

    Attributes:
        id: its output; the first one where there are several.
        outputs: all of them.
        operators: all operators, each after those that it reads.
        paths: all paths, one at least where there is an operator.
    """

    id: str
    outputs: tuple[str, ...]
    operators: tuple[str, ...]
    paths: tuple[Path, ...]


def paths_to(network: Network, output: str) -> tuple[Path, ...]:
    """All paths to an output; none where it reads a stream directly."""
    last = network.arcs_into[output][0]
    count = _count(network, last.source)
    if count > MOST_PATHS:
        raise InvalidValueError(
            "too many paths lead to an output",
            where=f"output {output!r}",
            got=f"{count:,}",
            expected=f"{MOST_PATHS:,} at most",
            hint="flows that fork and meet again multiply paths",
        )
    found: list[Path] = []
    pending: list[tuple[str, tuple[Arc, ...]]] = [(last.source, ())]
    while pending:
        node_id, below = pending.pop()
        if isinstance(network.nodes[node_id], Stream):
            if below:
                found.append(Path(node_id, output, below, last))
            continue
        pending.extend((arc.source, (arc, *below)) for arc in reversed(network.arcs_into[node_id]))
    return tuple(found)


def queries(network: Network) -> tuple[Query, ...]:
    """The queries of a network. Two outputs belong to one if they share an operator; streams may be shared by many.

    >>> from streamshed.network import NetworkBuilder
    >>> new = NetworkBuilder("example")
    >>> readings = new.stream("readings", {"value": "double"})
    >>> hot = readings.filter("hot", "value > 30")
    >>> hot.output("alarms")
    >>> hot.map("rounded", {"value": "round(value)"}).output("report")
    >>> readings.filter("cold", "value < 0").output("frost")
    >>> [(query.id, query.operators, len(query.paths)) for query in queries(new.build())]
    [('alarms', ('hot', 'rounded'), 2), ('frost', ('cold',), 1)]
    """
    inside: nx.Graph[str] = nx.Graph()
    inside.add_nodes_from(node.id for node in (*network.operators, *network.outputs))
    for arc in network.arcs:
        if not arc.is_entry and not isinstance(network.nodes[arc.source], Stream):
            inside.add_edge(arc.source, arc.target)
    found: list[Query] = []
    for output in network.outputs:
        if any(output.id in query.outputs for query in found):
            continue
        members: set[str] = nx.node_connected_component(inside, output.id)
        ordered = [node_id for node_id in network.nodes if node_id in members]
        outputs = tuple(other.id for other in network.outputs if other.id in members)
        operators = tuple(node_id for node_id in ordered if not isinstance(network.nodes[node_id], Output))
        paths = tuple(path for end in outputs for path in paths_to(network, end))
        found.append(Query(output.id, outputs, operators, paths))
    return tuple(found)


def goals_of(network: Network, query: Query) -> Goals | None:
    """The goals of a query; one of its outputs states them for all."""
    stated = [network.nodes[output] for output in query.outputs]
    found = [output for output in network.outputs if output in stated and output.qos.goals is not None]
    if len(found) > 1:
        raise InvalidValueError(
            "two outputs that share operators both state goals",
            where=f"outputs {found[0].id!r} and {found[1].id!r}",
            got="goals in both",
            expected="one strategy for what is shared",
            hint="state them at one output; they count for the whole query",
        )
    return found[0].qos.goals if found else None


def _count(network: Network, node_id: str) -> int:
    ways: dict[str, int] = {}
    for node in network.nodes.values():
        into = network.arcs_into[node.id]
        ways[node.id] = 1 if isinstance(node, Stream) else sum(ways[arc.source] for arc in into)
        if node.id == node_id:
            break
    return ways[node_id]
