"""From a query network, its statistics and rates to the flow graph that planners work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.network import Arc, Network, Statistics
from streamshed.network import Join as JoinOperator
from streamshed.network import Union as UnionOperator
from streamshed.planning.cells import ANY, CellFlows, cell_flows, sides_told_apart
from streamshed.planning.flow import FlowGraph, Leaf, Location, Rule
from streamshed.qos import Cell, LossGraph, loss_graph_from_shares, value_shares


def flow_graph(
    network: Network, statistics: Statistics, rates: Mapping[str, float], *, by_value: bool = False
) -> FlowGraph:
    """Build the graph for random drops, or with a node per cell of values for semantic drops.

    An output's loss tolerance is the one given, else derived from its value graph and the values that reach it, else
    linear. With `by_value` the value graph counts instead where it can be traced to a stream.
    """
    return _Builder(network, statistics, rates, by_value).build()


@dataclass
class _Segment:
    """The nodes of a segment by cell, and its last arc so far (whose rates its consumer sees)."""

    nodes: dict[Cell, int]
    tail: Arc
    mean: int | None = None


class _Builder:
    def __init__(self, network: Network, statistics: Statistics, rates: Mapping[str, float], by_value: bool) -> None:
        self.network = network
        self.statistics = statistics
        self.rates = rates
        self.by_value = by_value
        self.flows: CellFlows = cell_flows(network, statistics, rates)
        self.graph = FlowGraph(dict(rates), statistics.drop_cost)
        self.segment_of: dict[str, _Segment] = {}
        self.candidates: list[tuple[Arc, _Segment]] = []
        self.joins: list[list[_Segment]] = []

    def build(self) -> FlowGraph:
        hubs: dict[str, _Segment] = {}
        for arc in self.network.arcs:
            if arc.is_entry:
                segment = self._segment(Rule.ENTRY, arc, [], [])
                self.candidates.append((arc, segment))
            else:
                if arc.source not in hubs:
                    hubs[arc.source] = self._hub(arc)
                hub = hubs[arc.source]
                if len(self.network.arcs_out_of[arc.source]) > 1:
                    segment = self._segment(Rule.COPY, arc, [hub], [True])
                    self.candidates.append((arc, segment))
                elif set(self._cells(arc)) >= set(hub.nodes):
                    segment = hub
                else:  # the valued column ends here: from now on its cells are one
                    segment = self._segment(Rule.COPY, arc, [hub], [True])
            segment.tail = arc
            self.segment_of[arc.id] = segment
            self._add_weights(segment, arc)
        self._add_leaves()
        self._add_locations()
        return self.graph

    def _cells(self, arc: Arc) -> tuple[Cell, ...]:
        return self.flows.cells[arc.id] if self.by_value else (ANY,)

    def _rate(self, arc: Arc, cell: Cell) -> float:
        if cell == ANY:
            return sum(rate for _, rate in self.flows.masses(arc.id, self.rates))
        return self.flows.rate(arc.id, cell, self.rates)

    def _rate_by_stream(self, arc: Arc, cell: Cell) -> dict[str, float]:
        total: dict[str, float] = {}
        for own in self.flows.cells[arc.id] if cell == ANY else (cell,):
            for stream, share in self.flows.yields[arc.id][own].items():
                total[stream] = total.get(stream, 0.0) + share
        return total

    def _hub(self, arc: Arc) -> _Segment:
        """What a node hands on before it fans out: its input's segment, or a new one behind a union or join."""
        node = self.network.nodes[arc.source]
        into = self.network.arcs_into[node.id]
        sides = [self.segment_of[side.id] for side in into]
        if not isinstance(node, UnionOperator | JoinOperator):
            return sides[0]
        if isinstance(node, JoinOperator):
            self.joins.append(sides)
        tracked = self.flows.tracked
        told = sides_told_apart(node, [tracked[side.id] for side in into], tracked[arc.id])
        rule = Rule.MEAN if isinstance(node, UnionOperator) else Rule.LEAST
        hub = self._segment(rule, arc, sides, told if self.by_value else [True] * len(sides))
        if len(self.network.arcs_out_of[node.id]) > 1:  # what comes before the fan-out is not on any one arc
            for index in hub.nodes.values():
                self.graph.is_on_arc[index] = False
        return hub

    def _segment(self, rule: Rule, arc: Arc, sides: list[_Segment], told_apart: list[bool]) -> _Segment:
        """New nodes, one a cell, behind the segments that feed them."""
        nodes: dict[Cell, int] = {}
        for cell in self._cells(arc):
            parents = [
                side.nodes[cell] if told and cell in side.nodes else self._mean_of(side)
                for side, told in zip(sides, told_apart, strict=True)
            ]
            rates = [
                self._rate(side.tail, cell if told and cell in side.nodes else ANY)
                for side, told in zip(sides, told_apart, strict=True)
            ]
            nodes[cell] = self._node(rule, parents, _normalised(rates), arc, cell)
        return _Segment(nodes, arc)

    def _mean_of(self, segment: _Segment) -> int:
        """A node without load that carries the mean fraction of all cells of a segment."""
        if len(segment.nodes) == 1:
            return next(iter(segment.nodes.values()))
        if segment.mean is None:
            shares = _normalised([self._rate(segment.tail, cell) for cell in segment.nodes])
            segment.mean = self._node(Rule.MEAN, list(segment.nodes.values()), shares, segment.tail, ANY)
            self.graph.is_on_arc[segment.mean] = False
        return segment.mean

    def _node(self, rule: Rule, parents: list[int], shares: list[float], arc: Arc, cell: Cell) -> int:
        graph = self.graph
        graph.rule.append(rule)
        graph.parents.append(tuple(parents))
        graph.shares.append(tuple(shares))
        graph.weight.append(0.0)
        graph.weight_by_stream.append({})
        graph.head_rate.append(self._rate(arc, cell))
        graph.head_by_stream.append(self._rate_by_stream(arc, cell))
        graph.head_arc.append(arc.id)
        graph.is_on_arc.append(True)
        graph.cell.append(cell)
        return len(graph) - 1

    def _add_weights(self, segment: _Segment, arc: Arc) -> None:
        target = self.network.nodes[arc.target]
        cost = self.statistics.cost(target.id)
        if cost <= 0:
            return
        for cell, node in segment.nodes.items():
            by_stream = self.graph.weight_by_stream[node]
            for stream, share in self._rate_by_stream(arc, cell).items():
                by_stream[stream] = by_stream.get(stream, 0.0) + share * cost
                self.graph.weight[node] += share * cost * self.rates[stream]

    def _add_leaves(self) -> None:
        for output in self.network.outputs:
            arc = self.network.arcs_into[output.id][0]
            segment = self.segment_of[arc.id]
            worth: dict[Cell, float] = {}
            loss = output.qos.loss or LossGraph.linear()
            if output.id in self.flows.valued and output.qos.value is not None:
                table = value_shares(output.qos.value, self.flows.masses(arc.id, self.rates))
                worth = {row.cell: row.normalised for row in table}
                loss = output.qos.loss or loss_graph_from_shares(table)
            cells = list(segment.nodes)
            frequencies = _normalised([self._rate(arc, cell) for cell in cells])
            told_apart = self.by_value and bool(worth)
            self.graph.leaves.append(
                Leaf(
                    output=output.id,
                    weight=output.qos.weight,
                    loss=loss,
                    by_value=told_apart,
                    nodes=tuple(segment.nodes.values()),
                    frequencies=tuple(frequencies),
                    values=tuple(worth.get(cell, 0.0) for cell in cells) if told_apart else tuple(frequencies),
                )
            )

    def _add_locations(self) -> None:
        graph = self.graph
        tells_apart = self._outputs_below_tell_values_apart()
        for arc, segment in self.candidates:
            nodes = tuple(segment.nodes.values())
            by_value = self.by_value and len(nodes) > 1 and all(tells_apart[node] for node in nodes)
            tracked = self.flows.tracked[arc.id] if by_value else None
            graph.locations.append(Location(arc.id, nodes, by_value, tracked.column if tracked else None))
        above = self._nearest_locations_above()
        for sides in self.joins:
            places = frozenset().union(*(above[node] for side in sides for node in side.nodes.values()))
            if len(places) > 1:
                graph.joints.append(tuple(sorted(places)))

    def _outputs_below_tell_values_apart(self) -> list[bool]:
        """Per node: whether all outputs below value its cells.

        They do not where the valued column ends, or on the side of a join that does not bring it: a drop by value
        there would bias them.
        """
        graph = self.graph
        fine = [True] * len(graph)
        for leaf in graph.leaves:
            for node in leaf.nodes:
                fine[node] = fine[node] and leaf.by_value
        for node in range(len(graph) - 1, -1, -1):
            sums_cells_up = graph.cell[node] == ANY and any(graph.cell[parent] != ANY for parent in graph.parents[node])
            if sums_cells_up or not fine[node]:
                for parent in graph.parents[node]:
                    fine[parent] = False
        return fine

    def _nearest_locations_above(self) -> list[frozenset[int]]:
        """Per node: the candidate locations that a drop on it moves to when it is pushed upstream."""
        graph = self.graph
        own = {node: place for place, location in enumerate(graph.locations) for node in location.nodes}
        above: list[frozenset[int]] = []
        for node in range(len(graph)):
            if node in own:
                above.append(frozenset((own[node],)))
            else:
                above.append(frozenset().union(*(above[parent] for parent in graph.parents[node])))
        return above


def _normalised(rates: list[float]) -> list[float]:
    total = sum(rates)
    return [rate / total if total > 0 else 1 / len(rates) for rate in rates]
