"""The tables of a whole topology, leaves first, and what nodes that go by them achieve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from streamshed.distributed.feasible_input.corners import corner_table
from streamshed.distributed.feasible_input.exact import exact
from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.sharing import table_share
from streamshed.distributed.feasible_input.spread import MaxError, Spread
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Real, Topology
from streamshed.distributed.scores import Score
from streamshed.errors import InvalidValueError

CORNERS, GRID = "corners", "grid"
KINDS = (CORNERS, GRID)


def table_of(
    node: NodeModel,
    score: Score,
    spread: Spread,
    children: Mapping[str, FeasibleInputTable] | None = None,
    *,
    kind: str = CORNERS,
    limits_tps: Mapping[str, Real] | None = None,
) -> FeasibleInputTable:
    """A node's table from what it knows: itself, and what its children sent."""
    if kind not in KINDS:
        raise InvalidValueError(
            "there is no such kind of table", where=node.name, got=kind, expected=" or ".join(KINDS)
        )
    make = corner_table if kind == CORNERS else grid_table
    return make(node, score, spread, (children or {}).values(), limits_tps)


def spread_shares(topology: Topology, spread: Spread, kind: str = CORNERS) -> dict[str, Spread]:
    """What each node may add to the error, so that the error of the whole is as wanted.

    Corners add an error at every node; grids only where one is laid: at leaves and at nodes with outputs of their own.
    """
    if not isinstance(spread, MaxError):
        return {node.name: spread for node in topology.nodes}
    adding = [
        node.name
        for node in topology.nodes
        if kind == CORNERS or any(end.end not in topology.owner for end in node.ends)
    ]
    share = MaxError(exact(spread.error) / max(len(adding), 1))
    return {node.name: share for node in topology.nodes}


def build_tables(
    topology: Topology,
    score: Score,
    spread: Spread,
    *,
    kind: str = CORNERS,
    limits_tps: Mapping[str, Real] | None = None,
    shares: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, FeasibleInputTable]:
    """The table of every node.

    Args:
        topology: the nodes.
        score: what results are worth.
        spread: the error of the whole, or the size of each table.
        kind: corners or grid.
        limits_tps: the highest rates worth an entry, for inputs whose tuples cost nothing.
        shares: for nodes with several parents, each parent's share; even ones where not given.
    """
    spreads = spread_shares(topology, spread, kind)
    tables: dict[str, FeasibleInputTable] = {}
    unused: dict[str, float] = {}
    for name in reversed(topology.upstream_first):
        below = {child: table_for(topology, tables[child], name, shares) for child in topology.children[name]}
        own = spreads[name]
        allowed = 0.0
        if isinstance(own, MaxError) and kind == CORNERS:
            # What the nodes below did not need of the error, this one may use: corners come in clusters.
            allowed = float(own.error) + sum(unused[child] / len(topology.parents[child]) for child in below)
            own = MaxError(allowed)
        tables[name] = table_of(topology.node[name], score, own, below, kind=kind, limits_tps=limits_tps)
        added = tables[name].max_error - sum(table.max_error for table in below.values())
        unused[name] = max(allowed - added, 0.0)
    return tables


def table_for(
    topology: Topology,
    table: FeasibleInputTable,
    parent: str,
    shares: Mapping[str, Mapping[str, float]] | None = None,
) -> FeasibleInputTable:
    """A child's table as one of its parents gets it."""
    parents = topology.parents[table.node]
    fed = {str(end.end) for end in topology.node[parent].ends}
    if len(parents) == 1 and fed.issuperset(table.inputs):
        return table
    given = (shares or {}).get(table.node, {})
    return table_share(table, fed, given.get(parent, 1.0 / len(parents)) if len(parents) > 1 else 1.0)


@dataclass(frozen=True)
class Played:
    """What comes of all nodes' decisions.

    Attributes:
        score: of what arrives at the outputs.
        outputs: the rate of each output.
        loads: seconds of processing per second at each node.
        arriving: the rate at each input.
    """

    score: float
    outputs: Mapping[str, float]
    loads: Mapping[str, float]
    arriving: Mapping[str, float]


def play(
    topology: Topology, tables: Mapping[str, FeasibleInputTable], rates_tps: Mapping[str, float], score: Score
) -> Played:
    """Let every node go by its own table, from the first to the last, and see what arrives.

    Args:
        topology: the nodes.
        tables: each node's own table.
        rates_tps: the rates at the inputs that are fed from outside.
        score: what results are worth.
    """
    arriving = {**dict.fromkeys(topology.owner, 0.0), **rates_tps}
    outputs = dict.fromkeys(topology.outputs, 0.0)
    counted = dict.fromkeys(topology.outputs, 0.0)
    loads: dict[str, float] = {}
    for name in topology.upstream_first:
        node = topology.node[name]
        flows = tables[name].decide({input_id: arriving[input_id] for input_id in node.inputs}).flows
        loads[name] = sum(float(segment.cost) * flows[segment.id] for segment in node.segments)
        for end in node.ends:
            rate = flows[end.id] * float(end.selectivity)
            if end.end in outputs:
                outputs[end.end] += rate
                counted[end.end] += rate if score.counts_results else flows[end.id]
            else:
                arriving[str(end.end)] += rate
    return Played(score.total(counted), outputs, loads, arriving)


def nominal_outputs(topology: Topology, rates_tps: Mapping[str, float]) -> dict[str, float]:
    """The rate of each output if nothing were dropped anywhere: what fairness is measured against."""
    arriving = {**dict.fromkeys(topology.owner, 0.0), **rates_tps}
    outputs = dict.fromkeys(topology.outputs, 0.0)
    for name in topology.upstream_first:
        node = topology.node[name]
        for end in node.ends:
            share = Fraction(1)
            for segment in node.path[end.id]:
                share *= exact(segment.selectivity)
            rate = arriving[node.input_of[end.id]] * float(share)
            if end.end in outputs:
                outputs[end.end] += rate
            else:
                arriving[str(end.end)] += rate
    return outputs
