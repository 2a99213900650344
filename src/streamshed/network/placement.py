"""Which node runs which operators: a network cut into parts that run on machines, or in applications, of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from streamshed.errors import InvalidValueError, NetworkError, UnknownNameError, did_you_mean
from streamshed.network.network import Network
from streamshed.network.nodes import Output, Stream
from streamshed.network.validation import check_name


@dataclass(frozen=True)
class Placement:
    """A node and the operators that run on it.

    Attributes:
        name: the node's name.
        operators: the ids of its operators.
        capacity: seconds of processing per second that it has (cores).
        bandwidth_tps: tuples per second that can be sent to it; None if that is no limit. Tables of a spec count it;
            nodes that run as applications do not look at it.
    """

    name: str
    operators: tuple[str, ...]
    capacity: float = 1.0
    bandwidth_tps: float | None = None


@dataclass(frozen=True)
class Part:
    """What a placement makes of a network, seen from one node.

    Attributes:
        name: the node's name.
        operators: its operators, each after those it reads.
        streams: the streams that it reads itself.
        receives: what it reads from other nodes: an operator, or `split.branch`, there.
        outputs: the outputs that it delivers.
    """

    name: str
    operators: tuple[str, ...]
    streams: tuple[str, ...]
    receives: tuple[str, ...]
    outputs: tuple[str, ...]


def cut(network: Network, placements: Sequence[Placement]) -> tuple[Part, ...]:
    """The parts of a network, each after those that send to it.

    >>> from streamshed.network import NetworkBuilder
    >>> new = NetworkBuilder("example")
    >>> parsed = new.stream("lines", {"text": "string"}).map("parse", {"n": "length(text)"})
    >>> parsed.filter("long", "n > 80").output("alarms")
    >>> for part in cut(new.build(), [Placement("edge", ("parse",)), Placement("core", ("long",))]):
    ...     print(part.name, part.streams, part.receives, part.outputs)
    edge ('lines',) () ()
    core () ('parse',) ('alarms',)
    """
    home = _homes(network, placements)
    reads: dict[str, set[str]] = {placement.name: set() for placement in placements}
    streams: dict[str, dict[str, None]] = {placement.name: {} for placement in placements}
    receives: dict[str, dict[str, None]] = {placement.name: {} for placement in placements}
    for arc in network.arcs:
        if arc.is_entry:
            continue
        here = home[arc.target] if arc.target in home else home[arc.source]
        if isinstance(network.nodes[arc.source], Stream):
            streams[here][arc.source] = None
        elif home[arc.source] != here:
            receives[here][f"{arc.source}.{arc.branch}" if arc.branch else arc.source] = None
            reads[here].add(home[arc.source])
    try:
        order = list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        raise NetworkError(
            "nodes send to each other in a circle",
            where="nodes",
            got=" -> ".join(reversed(error.args[1])),
            expected="tuples that go one way",
            hint="put the operators in between on one node",
            at=("nodes",),
        ) from None
    return tuple(
        Part(
            name,
            tuple(node_id for node_id in network.nodes if home.get(node_id) == name),
            tuple(streams[name]),
            tuple(receives[name]),
            tuple(output.id for output in network.outputs if home[output.input.partition(".")[0]] == name),
        )
        for name in order
    )


def check_placements(network: Network, placements: Sequence[Placement]) -> None:
    """Raise unless every operator has one node, and nodes make sense."""
    for placement in placements:
        where = f"node {placement.name!r}"
        check_name(placement.name, where, ["nodes", placement.name], words=False)
        for what, value in (("capacity", placement.capacity), ("bandwidth_tps", placement.bandwidth_tps)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidValueError(
                    f"the {what} must be positive", where=where, got=value, expected="a number > 0",
                    at=("nodes", placement.name, what),
                )  # fmt: skip
        if not placement.operators:
            raise NetworkError(
                "a node without operators", where=where, got="none", expected="at least one",
                hint="take the node out", at=("nodes", placement.name),
            )  # fmt: skip
    cut(network, placements)


def _homes(network: Network, placements: Sequence[Placement]) -> dict[str, str]:
    """The node of each operator."""
    operators = [operator.id for operator in network.operators]
    home: dict[str, str] = {}
    for placement in placements:
        for operator in placement.operators:
            at = ("nodes", placement.name, "operators")
            if operator not in operators:
                raise UnknownNameError(
                    "a node runs an operator that does not exist", where=f"node {placement.name!r}", got=repr(operator),
                    expected="the id of an operator", hint=did_you_mean(operator, operators), at=at,
                )  # fmt: skip
            if operator in home:
                raise NetworkError(
                    "an operator has two nodes", where=f"operator {operator!r}",
                    got=f"{home[operator]!r} and {placement.name!r}", expected="one node for each operator", at=at,
                )  # fmt: skip
            home[operator] = placement.name
    homeless = [operator for operator in operators if operator not in home]
    if homeless:
        raise NetworkError(
            "an operator has no node", where=f"operator {homeless[0]!r}", got=f"{len(homeless)} without a node",
            expected="one node for each operator", at=("nodes",),
        )  # fmt: skip
    for output in network.outputs:
        if isinstance(network.nodes[output.input.partition(".")[0]], Stream | Output):
            raise NetworkError(
                "an output reads a stream past all nodes", where=f"output {output.id!r}", got=output.input,
                expected="an operator", hint="put a map in between, and the map on a node",
                at=("outputs", output.id, "input"),
            )  # fmt: skip
    return home
