"""What must hold for every planner on every network: Hypothesis over random networks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamshed.load import Admission, arc_rates, load_coefficients, total_load
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import PLANNERS, DropPlan, OptimalPlanner, RoadMap, RoadMapPlanner, planner_named
from streamshed.planning.flow import FlowGraph, Rule
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.optimal import optimal_fractions
from streamshed.planning.roadmap import Position
from streamshed.qos import LossGraph, Qos
from tests.strategies import fractions, loss_graphs, networks, rates, statistics

TOLERANCE = 1e-6
common = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def problems(draw: st.DrawFn, *, drop_cost: bool = False) -> tuple[Network, Statistics, dict[str, float], float]:
    """A network with statistics, rates, and the share of its load that fits."""
    network = draw(networks())
    known = draw(statistics(network))
    if not drop_cost:
        known = Statistics(known.costs, known.selectivities, known.histograms)
    return network, known, draw(rates(network)), draw(fractions)


def capacity_of(network: Network, known: Statistics, at: dict[str, float], share: float) -> float:
    return total_load(load_coefficients(network, known), at) * share


@pytest.mark.parametrize("name", list(PLANNERS))
@common
@given(problem=problems())
def test_plan_brings_load_under_capacity(
    name: str, problem: tuple[Network, Statistics, dict[str, float], float]
) -> None:
    network, known, at, share = problem
    capacity = capacity_of(network, known, at, share)
    plan = planner_named(name).plan(network, known, at, Admission(capacity))
    assert plan.load_before == pytest.approx(capacity_of(network, known, at, 1.0), rel=1e-9, abs=1e-12)
    assert plan.load_after <= capacity * (1 + TOLERANCE) + 1e-12
    assert plan.fits
    if not any(drop.is_semantic for drop in plan.drops):  # drops by value are recomputed in test_manager.py
        assert carried_load(network, known, at, plan) <= capacity * (1 + TOLERANCE) + 1e-12
    if share == 1.0:
        assert not plan.drops
    for effect in plan.outputs:
        assert 0 <= effect.delivered <= 1
        assert -TOLERANCE <= effect.tuple_utility <= 1 + TOLERANCE
        assert -TOLERANCE <= effect.value_utility <= 1 + TOLERANCE
    for drop in plan.drops:
        assert 0 < drop.fraction <= 1 + TOLERANCE
        assert 0 < drop.relative <= 1 + TOLERANCE


def carried_load(network: Network, known: Statistics, at: dict[str, float], plan: DropPlan) -> float:
    """The load of a plan of random drops, computed anew on the network's arcs, apart from the planners' flow graph.

    At a join with unequal sides the pairs are those of the scarcer side.
    """
    full = arc_rates(network, known, at)
    shares: dict[str, float] = {}
    limits = {drop.arc: 1.0 - drop.fraction for drop in plan.drops}
    load = 0.0
    for arc in network.arcs:
        if arc.is_entry:
            above = 1.0
        else:
            sides = network.arcs_into[arc.source]
            total = sum(full[side.id] for side in sides)
            above = (
                min(shares[side.id] for side in sides)
                if ".left" in sides[0].id
                else sum(full[side.id] * shares[side.id] for side in sides) / total
                if total > 0
                else sum(shares[side.id] for side in sides) / len(sides)
            )
        shares[arc.id] = min(above, limits.get(arc.id, 1.0))
        load += known.cost(arc.target) * full[arc.id] * shares[arc.id]
    return load


@common
@given(problem=problems(drop_cost=True), step_size=st.sampled_from([None, 0.5, 0.25]), by_value=st.booleans())
def test_each_row_saves_more_and_children_never_carry_more(
    problem: tuple[Network, Statistics, dict[str, float], float], step_size: float | None, by_value: bool
) -> None:
    network, known, at, _ = problem
    if known.drop_cost > 0 and step_size is not None:
        known = Statistics(known.costs, known.selectivities, known.histograms)
    graph = flow_graph(network, known, at, by_value=by_value)
    table = RoadMap(graph, step_size)
    before = None
    for index in range(0, len(table), max(1, len(table) // 12)):
        row = table.row(index)
        saved = sum(seconds * at[stream] for stream, seconds in row.savings.items())
        flowing = table.fractions(Position(index, 0.0))
        assert graph.full_load - graph.load(flowing) == pytest.approx(
            saved, rel=1e-6, abs=1e-9 * max(1, graph.full_load)
        )
        assert before is None or saved > before
        before = saved
        check_children_carry_no_more(graph, flowing)


def check_children_carry_no_more(graph: FlowGraph, flowing: list[float]) -> None:
    for node in range(len(graph)):
        for parent in graph.parents[node]:
            if graph.rule[node] is not Rule.MEAN:
                assert flowing[node] <= flowing[parent] + 1e-9
        assert flowing[node] <= graph.carried(node, flowing) + 1e-9


@common
@given(problem=problems())
def test_linear_program_is_never_worse_than_the_road_map(
    problem: tuple[Network, Statistics, dict[str, float], float],
) -> None:
    network, known, at, share = problem
    graph = flow_graph(network, known, at)
    capacity = graph.full_load * share
    best = optimal_fractions(graph, capacity)
    check_children_carry_no_more(graph, best)
    table = RoadMap(graph)
    vector = np.array([at[stream] for stream in table.streams])
    greedy = table.fractions(table.lookup(vector, capacity))
    assert graph.utility(greedy) <= graph.utility(best) + 1e-6


@common
@given(data=st.data())
def test_road_map_is_optimal_without_unions_and_joins(data: st.DataObject) -> None:
    """On trees the walk is exact: going on from an optimum, the best next step is one candidate's."""
    network = data.draw(networks(operators=("filter", "map", "split")))
    known = data.draw(statistics(network))
    known = Statistics(known.costs, known.selectivities, known.histograms)
    at = data.draw(rates(network))
    capacity = capacity_of(network, known, at, data.draw(fractions))
    greedy = RoadMapPlanner().plan(network, known, at, Admission(capacity))
    best = OptimalPlanner().plan(network, known, at, Admission(capacity))
    assert greedy.tuple_utility_loss == pytest.approx(best.tuple_utility_loss, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    loss=st.tuples(loss_graphs(), loss_graphs()),
    costs=st.tuples(*(st.integers(0, 9) for _ in range(3))),
    share=fractions,
    joined=st.booleans(),
)
def test_linear_program_equals_brute_force(
    loss: tuple[LossGraph, LossGraph], costs: tuple[int, int, int], share: float, joined: bool
) -> None:
    """Two outputs behind a shared operator, or a join of two streams with another reader on one of them.

    A best plan lies on an edge between two plans whose fractions are all knees of the loss graphs, so trying every
    pair of such plans, and the point between them that uses up the capacity, finds it.
    """
    graph = tiny_graph(loss, costs, joined)
    capacity = graph.full_load * share
    knees = sorted({x for leaf in graph.leaves for x in leaf.graph.graph.xs})
    places = [location.nodes[0] for location in graph.locations]
    corners = {
        tuple(graph.fractions(dict(zip(places, combination, strict=True))))
        for combination in itertools.product(knees, repeat=len(places))
    }
    feasible = [corner for corner in corners if graph.load(corner) <= capacity + 1e-12]
    others = [corner for corner in corners if graph.load(corner) > capacity + 1e-12]
    best = max(graph.utility(corner) for corner in feasible)
    for inside in feasible:
        for outside in others:
            low, high = graph.load(inside), graph.load(outside)
            part = (capacity - low) / (high - low)
            between = [a + part * (b - a) for a, b in zip(inside, outside, strict=True)]
            best = max(best, graph.utility(between))
    assert graph.utility(optimal_fractions(graph, capacity)) == pytest.approx(best, abs=1e-6)


def tiny_graph(loss: tuple[LossGraph, LossGraph], costs: tuple[int, int, int], joined: bool) -> FlowGraph:
    first, second = loss
    new = NetworkBuilder("tiny")
    shared = new.stream("s", {"ts": "timestamp", "k": "int", "v": "int"}, time="ts").filter("a", "v > 0")
    if joined:
        other = new.stream("t", {"ts": "timestamp", "k": "int", "w": "int"}, time="ts")
        shared.join("b", other, on=["k"], within_s=1).output("o", Qos(loss=first))
    else:
        shared.filter("b", "v > 0").output("o", Qos(loss=first))
    shared.filter("c", "v > 0").output("p", Qos(loss=second, weight=2.0))
    known = Statistics(dict(zip("abc", map(float, costs), strict=True)), {"a": 0.8, "b": 0.5})
    return flow_graph(new.build(), known, {"s": 2.0, "t": 1.0} if joined else {"s": 2.0})
