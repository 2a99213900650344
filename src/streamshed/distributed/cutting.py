"""From a query network and the nodes that it is cut into to what tables are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamshed.distributed.model import NodeModel, Segment, Topology
from streamshed.errors import NetworkError
from streamshed.load import out_selectivity
from streamshed.network import Arc, Join, Network, Output, Part, Placement, Spec, Statistics, cut


def topology_of(spec: Spec, statistics: Statistics | None = None) -> Topology:
    """The nodes of a spec; one node with everything where it names none.

    Inputs are called `node/what it reads`; segments are called as the arcs that they begin with, which is where tuples
    are dropped. The segments of several inputs that meet in a union are kept apart.
    """
    placements = spec.nodes or (
        Placement("all", tuple(operator.id for operator in spec.network.operators), spec.capacity or 1.0),
    )
    parts = cut(spec.network, placements)
    home = {operator: part.name for part in parts for operator in part.operators}
    capacity = {placement.name: placement.capacity for placement in placements}
    known = statistics or spec.statistics
    nodes = [_Cutter(spec.network, known, part, home).node(capacity[part.name]) for part in parts]
    topology = Topology(tuple(nodes))
    for placement in placements:
        if placement.bandwidth_tps is not None and topology.parents[placement.name]:
            topology = topology.with_link(placement.name, placement.bandwidth_tps)
    return topology


def external_rates(topology: Topology, rates_tps: Mapping[str, float]) -> dict[str, float]:
    """The rates of streams as rates of the inputs that read them."""
    return {input_id: rates_tps[input_id.partition("/")[2]] for input_id in topology.external}


@dataclass
class _Cutter:
    """Follows the tuples of each input of one part until they leave it."""

    network: Network
    statistics: Statistics
    part: Part
    home: Mapping[str, str]
    segments: list[Segment] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def node(self, capacity: float) -> NodeModel:
        inputs: list[str] = []
        for reference in (*self.part.streams, *self.part.receives):
            input_id = f"{self.part.name}/{reference}"
            inputs.append(input_id)
            source, _, branch = reference.partition(".")
            arcs = [arc for arc in self.network.arcs_out_of[source] if (arc.branch or "") == branch]
            for arc in arcs:
                if self.home.get(arc.target) == self.part.name:
                    self._follow(arc, input_id, input_id, 1.0)
        return NodeModel(self.part.name, tuple(inputs), tuple(self.segments), capacity)

    def _follow(self, arc: Arc, source: str, input_id: str, share: float) -> None:
        """A segment from an arc on, as far as nothing fans out; `share` of the tuples of its source enter the arc."""
        name, cost = self._name(arc.id, input_id), 0.0
        while True:
            target = self.network.nodes[arc.target]
            if isinstance(target, Output):
                self.segments.append(Segment(name, source, cost, share, target.id))
                return
            if self.home[target.id] != self.part.name:
                reference = f"{arc.source}.{arc.branch}" if arc.branch else arc.source
                self.segments.append(Segment(name, source, cost, share, f"{self.home[target.id]}/{reference}"))
                return
            if isinstance(target, Join):
                raise NetworkError(
                    "tables do not know joins",
                    where=f"operator {target.id!r} on node {self.part.name!r}",
                    got="a join",
                    expected="filters, maps, unions, aggregates and splits",
                    hint="what a join delivers is not proportional to either of its inputs",
                )
            cost += share * self.statistics.cost(target.id)
            leaving = self._leaving(target.id)
            if len(leaving) == 1:
                arc = leaving[0]
                share *= out_selectivity(self.statistics, arc)
                continue
            self.segments.append(Segment(name, source, cost, share))
            for out in leaving:
                self._follow(out, name, input_id, out_selectivity(self.statistics, out))
            return

    def _leaving(self, operator: str) -> list[Arc]:
        """The arcs out of an operator; what several operators of another node read is sent there once."""
        found: dict[tuple[str, str | None], Arc] = {}
        for arc in self.network.arcs_out_of[operator]:
            there = self.home.get(arc.target, self.part.name)
            found.setdefault((arc.id, None) if there == self.part.name else (there, arc.branch), arc)
        return list(found.values())

    def _name(self, arc_id: str, input_id: str) -> str:
        name = arc_id if arc_id not in self.names else f"{arc_id} of {input_id}"
        self.names.add(name)
        return name
