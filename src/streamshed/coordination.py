"""What a node that runs makes of its children's tables, and of its own experience: drops here, a table for its parents.

How much the node itself can do is its controller's business, tuple by tuple and batch by batch. Tables add what its
children can take. So the planner gets both: the load that its controller leaves, and the tables, and finds the rates
that serve the end of the chain best within all of that (the linear program that tables are made with). Without a table
that counts, or if its children can take all that is left, its own planner decides as ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from streamshed.distributed.feasible_input.corners import corner_table
from streamshed.distributed.feasible_input.sharing import table_share
from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Score
from streamshed.load import Admission
from streamshed.network import Network, NodeSpec, Statistics
from streamshed.network.node_specs import arc_name
from streamshed.planning.base import DropPlan, Planner, describe
from streamshed.planning.flow import FlowGraph
from streamshed.planning.flow_builder import flow_graph

_ERROR = 0.01  # of the best score
_HIGHEST = 100.0  # times the rate that comes: enough for an input that costs nothing
_SLACK = 1.01
_STEPS = 128


class TablePlanner(Planner):
    """Drops so that what a node sends fits its children's tables, and what it does fits its own capacity.

    `by_value` is that of the planner that decides otherwise: where a drop tells values apart, it also gives up for a
    child what is worth least here.

    Args:
        node: the node's part.
        model: the node as tables see it.
        score: what results are worth.
        otherwise: decides where tables have nothing to say.

    Attributes:
        tables: the children's tables that count now.
        rates_tps: tuples per second that come, by input of the model; those of the spec until they are told.
    """

    name: ClassVar[str] = "tables"
    title: ClassVar[str] = "Feasible input tables"

    def __init__(self, node: NodeSpec, model: NodeModel, score: Score, otherwise: Planner) -> None:
        self.node, self.model, self.score, self.otherwise = node, model, score, otherwise
        self.by_value = otherwise.by_value  # type: ignore[misc]
        self.tables: Mapping[str, FeasibleInputTable] = {}
        self.rates_tps = {name: node.spec.rates[stream] for stream, name in node.inputs.items()}
        self._graph: FlowGraph | None = None
        self._statistics: Statistics | None = None
        self._heads: dict[str, int] = {}
        self._limits: dict[float, dict[int, float] | None] = {}

    def update(self, tables: Mapping[str, FeasibleInputTable], rates_tps: Mapping[str, float]) -> bool:
        """Go by these tables and rates from now on; whether that changes anything."""
        same = {child: id(table) for child, table in tables.items()} == {
            child: id(table) for child, table in self.tables.items()
        }
        if same and dict(rates_tps) == self.rates_tps:
            return False
        self.tables, self.rates_tps, self._limits = dict(tables), dict(rates_tps), {}
        return True

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        own = self.otherwise.plan(network, statistics, rates, admission)
        known, tables = self._limits, self.tables  # in this order: `update` puts empty limits last
        if not tables:
            return own
        if self._graph is None or statistics is not self._statistics:
            self._graph, self._statistics = flow_graph(network, statistics, rates), statistics
            self._heads = _heads(network, self._graph)
            known.clear()
        keep = admission.capacity / self._graph.full_load if self._graph.full_load > 0 else 1.0
        # A controller asks many times a second with shares that hardly differ: one answer serves them.
        keep = math.floor(keep * _STEPS) / _STEPS if keep < 1 else 1.0
        if keep not in known:
            known[keep] = None if self._taken_by(tables, own) else self._solved(keep, tables)
        limits = known[keep]
        if limits is None:
            return own
        return describe(self.name, self._graph, self._graph.fractions(limits), admission.capacity)

    def _solved(self, keep: float, tables: Mapping[str, FeasibleInputTable]) -> dict[int, float]:
        """The best shares where a share of the node's own work is left."""
        full = self._undropped()
        load = sum(float(segment.cost) * full[segment.id] for segment in self.model.segments)
        model = replace(self.model, capacity=max(load * keep, 1e-12))
        program = FlowProgram((model,), self.score, tables.values(), max(*self.rates_tps.values(), 1.0))
        found = program.solve({name: self.rates_tps.get(name, 0.0) for name in program.inputs}).flows
        return self._shares(full, {segment: flow for (_, segment), flow in found.items()})

    def _undropped(self) -> dict[str, float]:
        """Tuples per second that would enter each segment if nothing were dropped."""
        into: dict[str, float] = dict(self.rates_tps)
        leaving = dict(into)
        for segment in self.model.segments:
            into[segment.id] = leaving[segment.source]
            leaving[segment.id] = into[segment.id] * float(segment.selectivity)
        return into

    def _shares(self, full: Mapping[str, float], flows: Mapping[str, float]) -> dict[int, float]:
        """Flows as shares at the nodes of the flow graph; segments that begin with one arc are taken together."""
        sums: dict[int, tuple[float, float]] = {}
        for segment in self.model.segments:
            arc = segment.id.partition(" of ")[0]
            head = self._heads[self.node.places.get(arc, arc)]
            wanted, whole = sums.get(head, (0.0, 0.0))
            sums[head] = wanted + flows[segment.id], whole + full[segment.id]
        return {head: min(wanted / whole, 1.0) for head, (wanted, whole) in sums.items() if whole > 0}

    def _taken_by(self, tables: Mapping[str, FeasibleInputTable], plan: DropPlan) -> bool:
        """Whether the children can take what a plan leaves for them."""
        delivered = {effect.output: effect.delivered for effect in plan.outputs}
        full = self._undropped()
        sent: dict[str, float] = {}
        for end in self.model.ends:
            share = delivered.get(self._output_behind(end.end), 1.0)
            sent[str(end.end)] = sent.get(str(end.end), 0.0) + full[end.id] * float(end.selectivity) * share
        return all(
            table.carries({name: sent.get(name, 0.0) / _SLACK for name in table.inputs}) for table in tables.values()
        )

    def _output_behind(self, end: str | None) -> str:
        """The output of the part that an end of the model is."""
        reader, _, reference = str(end).partition("/")
        wanted = arc_name(reference, reader)
        return next((output for output, arc in self.node.writes.items() if arc == wanted), str(end))


def _heads(network: Network, graph: FlowGraph) -> dict[str, int]:
    """For every arc the node of the flow graph that a drop there limits: the nearest one upstream."""
    own = {graph.head_arc[index]: index for index in range(len(graph)) if graph.is_on_arc[index]}
    found: dict[str, int] = {}
    for arc in network.arcs:
        if arc.id in own:
            found[arc.id] = own[arc.id]
        elif not arc.is_entry:
            found[arc.id] = found[network.arcs_into[arc.source][0].id]
    return found


class LastingRate:
    """How many tuples a second a node asks its parents for, as it finds out while it runs.

    The cost model of its controller says how many fit into batches of the length that the target allows. But as long as
    batches are all alike, it cannot tell what a batch costs from what a tuple costs, and once the parent sends no more
    than it was told, batches *are* alike. So what the node has done comes first:

        rate = 1.15·done                      if its batches are full,
        rate = max(model, 1.15·done)          otherwise,

    where `done` is the tuples that it kept for each second that its batches took, and batches are full that are as long
    as they may be, or of which it had to drop something (both smoothed). It asks for more than it has done for two
    reasons. Nothing else would tell it that it could do more. And what comes comes in lumps, the parent's batches: a
    node that gets what it can do on the average has too little for one batch, which pays its fixed cost for less, and
    too much for the next. What is too much it drops itself, which costs the parent's work on it; what is too little is
    lost output.

    >>> rate = LastingRate()
    >>> rate.observe(fill=0.5, dropped=0.0, done_tps=70.0)
    >>> round(rate.of(100.0)), round(rate.of(10.0))
    (100, 80)
    >>> rate.observe(fill=1.0, dropped=0.5, done_tps=70.0)
    >>> round(rate.of(100.0)), round(rate.of(10.0))
    (80, 80)
    """

    _MORE, _FULL, _MEMORY = 1.15, 0.9, 0.6
    _TOO_LONG, _MOSTLY = 1.3, 0.8

    def __init__(self) -> None:
        self._busy: float | None = None
        self._done_tps: float | None = None

    def observe(self, fill: float, dropped: float, done_tps: float) -> None:
        """Learn from a batch.

        Args:
            fill: its length as a share of what batches may take.
            dropped: the share of its work that was dropped.
            done_tps: the tuples that it kept for each second that it took.
        """
        self._busy = _smoothed(self._busy, min(fill, 2.0) + dropped, self._MEMORY)
        # A batch that was held up, or that mostly dropped what had piled up, does not say what the node can do.
        if fill <= self._TOO_LONG and dropped <= self._MOSTLY:
            self._done_tps = _smoothed(self._done_tps, done_tps, self._MEMORY)

    def of(self, modelled_tps: float) -> float:
        """The rate to ask for, given what the model says."""
        if self._done_tps is None or self._busy is None:
            return modelled_tps
        wanted_tps = self._MORE * self._done_tps
        return wanted_tps if self._busy >= self._FULL else max(modelled_tps, wanted_tps)


def _smoothed(known: float | None, new: float, memory: float) -> float:
    return new if known is None else memory * known + (1 - memory) * new


def measured_model(model: NodeModel, rates_tps: Mapping[str, float], lasting_tps: float) -> NodeModel:
    """The node with the capacity that it was measured to have.

    Args:
        model: with costs by the statistics, of which the proportions count.
        rates_tps: of its inputs, for the mix of tuples that the rate is about.
        lasting_tps: tuples per second, of all inputs together, that it can take for good.

    >>> from streamshed.distributed.model import Segment
    >>> model = NodeModel("n", ("n/s",), (Segment("s->a", "n/s", 0.002, 1, "out"),))
    >>> measured_model(model, {"n/s": 300.0}, 200.0).capacity
    0.4
    """
    into, leaving = dict(rates_tps), dict(rates_tps)
    load = 0.0
    for segment in model.segments:
        into[segment.id] = leaving[segment.source]
        leaving[segment.id] = into[segment.id] * float(segment.selectivity)
        load += float(segment.cost) * into[segment.id]
    total = sum(rates_tps.values())
    return replace(model, capacity=lasting_tps * load / total) if load > 0 and total > 0 else model


def table_for_parent(
    model: NodeModel,
    score: Score,
    children: Mapping[str, FeasibleInputTable],
    rates_tps: Mapping[str, float],
    inputs: frozenset[str],
    share: float = 1.0,
) -> FeasibleInputTable:
    """What a node tells one of its parents.

    Args:
        model: the node as it is.
        score: what results are worth.
        children: their tables.
        rates_tps: what comes at the inputs now; those that the parent has nothing to do with stay as they are.
        inputs: the inputs that the parent feeds.
        share: of the node's capacity that is meant for this parent, where there are several.
    """
    limits = {name: _HIGHEST * max(rates_tps.get(name, 0.0), 1.0) for name in model.inputs}
    fed_by_none = {name: rates_tps.get(name, 0.0) for name in model.inputs if name not in inputs} if share == 1 else {}
    best = FlowProgram((model,), score, children.values(), max(limits.values())).solve(limits).score
    spread = MaxError(max(_ERROR * best, 1e-9))
    table = corner_table(model, score, spread, children.values(), limits, fed_by_none)
    if share == 1:
        return table
    return table_share(table, inputs, share)
