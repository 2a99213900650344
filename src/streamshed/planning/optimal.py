"""The exact optimum for random drops, as a linear program in the flow fractions (scipy, HiGHS).

Maximise Σ weight·U(output) where each fraction is at most what comes from upstream (copy: the parent's; mean: the
weighted sum; least: each parent's), Σ load·fraction ≤ capacity, and the concave U is a sum over its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from streamshed.errors import StreamshedError
from streamshed.load import Admission
from streamshed.network import Network, Statistics
from streamshed.planning.base import DropPlan, Planner
from streamshed.planning.flow import EPSILON, FlowGraph, Rule
from streamshed.planning.flow_builder import flow_graph

_ROUNDS = 30
_NUDGE = 1e-6
"""How often, and by which least share of the capacity, the program is solved again with room for what drops cost."""


class OptimalPlanner(Planner):
    """The linear program: no plan of random drops costs less utility.

    What drops themselves cost is not linear (a drop is there or not): it is taken off the capacity afterwards and the
    program solved again, so with `drop_cost` > 0 the plan fits but may be slightly below the optimum.
    """

    name: ClassVar[str] = "optimal"
    title: ClassVar[str] = "Linear program (optimal)"

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        graph = flow_graph(network, statistics, rates)
        return self._described(graph, optimal_fractions(graph, admission.capacity), admission.capacity)


def optimal_fractions(graph: FlowGraph, capacity: float) -> list[float]:
    """The fractions of the best plan within a capacity."""
    return fitted(graph, capacity, lambda room: _pushed_upstream(graph, _solve(graph, room)))


def fitted(graph: FlowGraph, capacity: float, solve: Callable[[float], list[float]]) -> list[float]:
    """The fractions that a solver gives for a capacity from which the cost of its own drops has been taken off."""
    if graph.full_load <= capacity * (1 + 1e-9):  # sums in another order differ in their last digit
        return [1.0] * len(graph)
    room = capacity
    for _ in range(_ROUNDS):
        fractions = solve(room)
        load = graph.load(fractions)
        if load <= capacity * (1 + 1e-9) + 1e-12 or room <= 0:
            break
        work = sum(weight * fraction for weight, fraction in zip(graph.weight, fractions, strict=True))
        room = max(0.0, min(room - _NUDGE * capacity, capacity - (load - work)))
    return fractions


def _solve(graph: FlowGraph, capacity: float) -> NDArray[np.float64]:
    """Variables: the fractions, then the pieces of every output's utility, from the steepest on."""
    objective = np.zeros(len(graph))
    pieces: list[float] = []
    bounds: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    entries: list[float] = []
    limit: list[float] = []

    def put(column: int, value: float) -> None:
        rows.append(len(limit))
        columns.append(column)
        entries.append(value)

    for node in range(len(graph)):
        parents = graph.parents[node]
        if graph.rule[node] is Rule.LEAST:
            for parent in parents:
                put(node, 1.0)
                put(parent, -1.0)
                limit.append(0.0)
        elif parents:
            put(node, 1.0)
            for parent, share in zip(parents, graph.shares[node], strict=True):
                put(parent, -share if graph.rule[node] is Rule.MEAN else -1.0)
            limit.append(0.0)
    for leaf in graph.leaves:
        curve = leaf.graph.graph
        for left, right, slope in zip(curve.xs, curve.xs[1:], curve.slopes, strict=False):
            put(len(graph) + len(pieces), 1.0)
            pieces.append(-leaf.weight * slope)
            bounds.append(right - left)
        for node, share in zip(leaf.nodes, leaf.shares, strict=True):
            put(node, -share)
        limit.append(0.0)
    # In units of the capacity, so that the solver's tolerances mean the same for every network.
    scale = max(graph.full_load, 1e-300)
    for node, weight in enumerate(graph.weight):
        if weight > 0:
            put(node, weight / scale)
    limit.append(capacity / scale)
    count = len(graph) + len(pieces)
    matrix = csr_array((entries, (rows, columns)), shape=(len(limit), count))
    solve: Any = linprog  # scipy's stubs do not know that it takes sparse matrices
    result = solve(
        np.concatenate([objective, pieces]),
        A_ub=matrix,
        b_ub=np.array(limit),
        bounds=np.column_stack([np.zeros(count), np.concatenate([np.ones(len(graph)), bounds])]),
        method="highs",
    )
    if result.x is None:
        raise StreamshedError("the linear program has no solution", where="optimal planner", got=result.message)
    fractions: NDArray[np.float64] = np.clip(result.x[: len(graph)], 0.0, 1.0)
    return fractions


def _pushed_upstream(graph: FlowGraph, wanted: NDArray[np.float64]) -> list[float]:
    """Let nothing flow that all consumers would drop: a drop that every branch below has moves above the split."""
    needed = np.zeros(len(graph))
    ends = {node for leaf in graph.leaves for node in leaf.nodes}
    for node in range(len(graph) - 1, -1, -1):
        own = wanted[node] if node in ends or not graph.children[node] else min(wanted[node], needed[node])
        wanted[node] = own
        for parent in graph.parents[node]:
            # Behind a union more of one parent makes up for less of another: the parents keep what the program gave.
            at_least = wanted[parent] if graph.rule[node] is Rule.MEAN else own
            needed[parent] = max(needed[parent], at_least)
    limits = {node: float(value) for node, value in enumerate(wanted) if value < 1 - EPSILON and graph.is_on_arc[node]}
    return graph.fractions(limits)
