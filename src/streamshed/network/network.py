"""The query network: an acyclic graph of streams, operators and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from streamshed.network.nodes import Arc, Join, Node, Operator, Output, Stream
from streamshed.network.validation import Schema, check_name, validate


@dataclass(frozen=True)
class Network:
    """A validated query network. Nodes refer to what they read by id (or `split.branch`).

    Building one checks it (see `streamshed.network.validation`): an instance is always sound.
    """

    name: str
    streams: tuple[Stream, ...]
    operators: tuple[Operator, ...]
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        check_name(self.name, "network", ["name"])
        object.__setattr__(self, "_checked", validate(self.streams, self.operators, self.outputs))

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by id, each after everything that it reads."""
        known: dict[str, Node] = {node.id: node for node in (*self.streams, *self.operators, *self.outputs)}
        return {node_id: known[node_id] for node_id in self._order}

    @property
    def _order(self) -> tuple[str, ...]:
        order: tuple[str, ...] = self.__dict__["_checked"].order
        return order

    @property
    def schemas(self) -> Mapping[str, Schema]:
        """What each node hands on: its columns with their types (None where unknown) and its time column."""
        schemas: Mapping[str, Schema] = self.__dict__["_checked"].schemas
        return schemas

    @cached_property
    def arcs(self) -> tuple[Arc, ...]:
        """All arcs, each after those that feed it; the entries of the streams included."""
        arcs: list[Arc] = []
        for node in self.nodes.values():
            if isinstance(node, Stream):
                arcs.append(Arc(node.id, "", node.id))
                continue
            sides = (".left", ".right") if isinstance(node, Join) else ("",) * len(node.inputs)
            for port, (reference, side) in enumerate(zip(node.inputs, sides, strict=True)):
                source, _, branch = reference.partition(".")
                arcs.append(Arc(f"{reference}->{node.id}{side}", source, node.id, branch or None, port))
        return tuple(arcs)

    @cached_property
    def arcs_into(self) -> Mapping[str, tuple[Arc, ...]]:
        """The arcs into each node, in port order."""
        return _grouped(self.nodes, ((arc.target, arc) for arc in self.arcs))

    @cached_property
    def arcs_out_of(self) -> Mapping[str, tuple[Arc, ...]]:
        """The arcs out of each node."""
        return _grouped(self.nodes, ((arc.source, arc) for arc in self.arcs if not arc.is_entry))


def _grouped(keys: Iterable[str], pairs: Iterable[tuple[str, Arc]]) -> Mapping[str, tuple[Arc, ...]]:
    groups: dict[str, list[Arc]] = {key: [] for key in keys}
    for key, arc in pairs:
        groups[key].append(arc)
    return {key: tuple(arcs) for key, arcs in groups.items()}
