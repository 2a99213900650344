"""The walk that builds road maps, move by move, against what the flow graph says of each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from streamshed.network import NetworkBuilder, Statistics
from streamshed.planning.flow import FlowGraph
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.greedy import Move, Walk, candidates
from streamshed.qos import Histogram, LossGraph, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
OTHER = {"ts": "timestamp", "k": "bigint", "w": "double"}
UNIFORM = {"value": Histogram.uniform(0, 100)}
KNEE = LossGraph.of([(0, 0), (0.4, 0.9), (1, 1)])
TWO_KNEES = LossGraph.of([(0, 0), (0.25, 0.6), (0.7, 0.95), (1, 1)])
HIGH = ValueGraph.of("value", [(0, 0.1), (30, 0.1), (30, 0.6), (70, 0.6), (70, 1.0), (100, 1.0)])
PROBE = 1e-6


def deep_tree(drop_cost: float = 0.0) -> FlowGraph:
    """Forks behind forks, with knees."""
    new = NetworkBuilder("deep")
    first = new.stream("s", COLUMNS).filter("a", "value > 0")
    second = first.filter("b", "value > 1")
    third = second.filter("c", "value > 2")
    third.filter("d", "value > 3").output("o", Qos(loss=KNEE))
    third.filter("e", "value > 3").output("p", Qos(loss=TWO_KNEES, weight=2.0))
    second.filter("f", "value > 2").output("q", Qos(loss=LossGraph.of([(0, 0.3), (1, 1)]), weight=0.7))
    first.filter("g", "value > 1").output("r", Qos(loss=TWO_KNEES, weight=0.5))
    costs = {"a": 0.2, "b": 0.3, "c": 0.5, "d": 1.0, "e": 2.0, "f": 1.5, "g": 0.7}
    known = Statistics(costs, {"a": 0.9, "b": 0.5, "c": 0.8}, drop_cost=drop_cost)
    return flow_graph(new.build(), known, {"s": 10.0})


def unions(drop_cost: float = 0.0) -> FlowGraph:
    """Three streams that meet in two unions, with readers on the way."""
    new = NetworkBuilder("unions")
    a, b, c = (new.stream(name, COLUMNS) for name in "abc")
    left = a.filter("fa", "value > 0")
    met = left.union("u", b.filter("fb", "value > 0"))
    met.filter("g", "value > 1").output("o", Qos(loss=TWO_KNEES, weight=0.2))
    met.union("v", c).filter("h", "value > 2").output("p", Qos(loss=KNEE, weight=1.5))
    left.filter("i", "value > 5").output("q", Qos(loss=KNEE, weight=0.8))
    costs = {"fa": 0.5, "fb": 2.0, "u": 0.1, "g": 1.0, "v": 0.2, "h": 1.0, "i": 0.4}
    known = Statistics(costs, {"fa": 0.6, "fb": 0.8, "u": 1.0}, drop_cost=drop_cost)
    return flow_graph(new.build(), known, {"a": 20.0, "b": 10.0, "c": 5.0})


def joins(drop_cost: float = 0.0) -> FlowGraph:
    """A join whose sides have readers of their own, and another join with a third stream behind it."""
    new = NetworkBuilder("joins")
    a, b = new.stream("a", COLUMNS, time="ts"), new.stream("b", OTHER, time="ts")
    c = new.stream("c", {"ts": "timestamp", "k": "bigint", "x": "double"}, time="ts")
    left = a.filter("fa", "value > 0")
    met = left.join("j", b, on=["k"], within_s=1)
    met.filter("g", "value > 1").output("o", Qos(loss=TWO_KNEES))
    met.join("i", c, on=["k"], within_s=1).output("p", Qos(loss=KNEE, weight=2.0))
    left.filter("h", "value > 2").output("q", Qos(loss=KNEE, weight=3.0))
    b.filter("l", "w > 2").output("r", Qos(loss=TWO_KNEES, weight=0.3))
    costs = {"fa": 0.5, "j": 1.0, "g": 1.0, "i": 2.0, "h": 0.6, "l": 0.3}
    known = Statistics(costs, {"fa": 0.6, "j": 1.2}, drop_cost=drop_cost)
    return flow_graph(new.build(), known, {"a": 20.0, "b": 10.0, "c": 5.0})


def two_joins(drop_cost: float = 0.0, *, join_s: float = 0.4) -> FlowGraph:
    """A stream in two joins, and a side that is dear before it forks: it goes down alone, further than the other."""
    new = NetworkBuilder("two joins")
    a = new.stream("a", COLUMNS, time="ts")
    b = new.stream("b", OTHER, time="ts").filter("fb", "w > 0")
    c = new.stream("c", {"ts": "timestamp", "k": "bigint", "x": "double"}, time="ts")
    a.join("j", b, on=["k"], within_s=1).filter("g", "value > 1").output("o", Qos(loss=KNEE))
    c = c.filter("fc", "x > 0").filter("fd", "x > 1")
    a.join("n", c, on=["k"], within_s=1).output("p", Qos(loss=TWO_KNEES, weight=2.5))
    b.filter("l", "w > 2").output("r", Qos(loss=TWO_KNEES, weight=0.2))
    costs = {"fb": 6.0, "j": join_s, "g": 0.2, "n": 0.5, "l": 0.1}
    known = Statistics(costs, {"fb": 0.9, "j": 0.8}, drop_cost=drop_cost)
    return flow_graph(new.build(), known, {"a": 10.0, "b": 8.0, "c": 9.0})


def free_join(drop_cost: float = 0.0) -> FlowGraph:
    """The same with a join that costs nothing: its other side stays where it is."""
    return two_joins(drop_cost, join_s=0.0)


def valued(drop_cost: float = 0.0) -> FlowGraph:
    """Values told apart at some places and not at others."""
    new = NetworkBuilder("valued")
    s = new.stream("s", COLUMNS)
    shared = s.filter("a", "value > 10")
    shared.filter("b", "value > 40").output("o", Qos(value=HIGH))
    shared.filter("c", "k > 0").output("p", Qos(value=HIGH, weight=0.5))
    s.filter("d", "k > 1").output("q", Qos(loss=KNEE))
    costs = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 1.0}
    known = Statistics(costs, {"a": 0.9, "b": 0.6, "c": 0.5}, {"s": UNIFORM}, drop_cost=drop_cost)
    return flow_graph(new.build(), known, {"s": 10.0}, by_value=True)


GRAPHS = [deep_tree, unions, joins, two_joins, free_join, valued]


def steps(
    graph: FlowGraph, step_size: float = 1.0
) -> Iterator[tuple[Move, dict[int, float], list[float], list[float]]]:
    """Each move with the limits before it, and what flows before and after it, by the rules of the graph alone."""
    limits: dict[int, float] = {}
    flowing = graph.fractions(limits)
    for move in Walk(graph, step_size).moves():
        before = dict(limits)
        for node in move.nodes:
            limits[node] = min(limits.get(node, 1.0), move.limit)
        after = graph.fractions(limits)
        yield move, before, flowing, after
        flowing = after


def loss_and_gain(graph: FlowGraph, before: list[float], after: list[float]) -> tuple[float, float]:
    return graph.utility(before) - graph.utility(after), graph.load(before) - graph.load(after)


@pytest.mark.parametrize("build", GRAPHS)
def test_each_move_has_the_least_ratio_of_loss_to_gain(build: Callable[..., FlowGraph]) -> None:
    """No other candidate, lowered a little from where the move begins, loses less for what it saves."""
    graph = build()
    ratios = []
    for move, limits, before, after in steps(graph):
        loss, gain = loss_and_gain(graph, before, after)
        if move.top - move.limit < 10 * PROBE:
            continue
        ratios.append(loss / gain)
        for nodes in candidates(graph):
            top = max(before[node] for node in nodes)
            if top < 10 * PROBE:
                continue
            lower = graph.fractions(limits | {node: min(before[node], top - PROBE) for node in nodes})
            other_loss, other_gain = loss_and_gain(graph, before, lower)
            if other_gain > 1e-9 * PROBE:
                assert loss / gain <= other_loss / other_gain * (1 + 1e-3) + 1e-9
    assert len(ratios) >= 6
    if build is deep_tree:
        assert all(later >= earlier * (1 - 1e-6) for earlier, later in pairwise(ratios)), "on a tree it gets no better"


@pytest.mark.parametrize("build", GRAPHS)
def test_inside_a_move_loss_and_gain_grow_alike(build: Callable[..., FlowGraph]) -> None:
    """A step ends where a ratio changes; so half of a step loses half and saves half."""
    graph = build()
    for move, limits, before, after in steps(graph):
        assert move.linear or move.top - move.limit < 1e-3
        assert move.top == pytest.approx(max(before[node] for node in move.nodes), abs=1e-9)
        if move.linear:
            middle = (move.top + move.limit) / 2
            half = graph.fractions(limits | {node: min(limits.get(node, 1.0), middle) for node in move.nodes})
            loss, gain = loss_and_gain(graph, before, after)
            half_loss, half_gain = loss_and_gain(graph, before, half)
            assert half_loss == pytest.approx(loss / 2, abs=1e-7)
            assert half_gain == pytest.approx(gain / 2, abs=1e-6)


@pytest.mark.parametrize("drop_cost", [0.0, 0.05])
@pytest.mark.parametrize("build", GRAPHS)
def test_a_move_saves_what_the_load_falls_by_and_the_last_one_leaves_nothing(
    build: Callable[..., FlowGraph], drop_cost: float
) -> None:
    graph = build(drop_cost)
    for move, _, before, after in steps(graph, 0.05 if drop_cost else 1.0):
        saved = sum(seconds * graph.rates[stream] for stream, seconds in move.savings.items())
        assert saved == pytest.approx(graph.load(before) - graph.load(after), abs=1e-6)
        assert saved > 0
        last = after
    assert sum(weight * flow for weight, flow in zip(graph.weight, last, strict=True)) == pytest.approx(
        0.0, abs=1e-6 if not drop_cost else 0.5
    )


@pytest.mark.parametrize("build", GRAPHS)
def test_the_walk_knows_what_flows(build: Callable[..., FlowGraph]) -> None:
    """Its own fractions, kept up to date move by move, are those of the limits."""
    graph = build()
    walk = Walk(graph, 0.3)
    limits: dict[int, float] = {}
    count = 0
    for move in walk.moves():
        count += 1
        limits |= {node: min(limits.get(node, 1.0), move.limit) for node in move.nodes}
        assert walk.fractions == pytest.approx(graph.fractions(limits), abs=1e-7)
        assert move.top - move.limit <= 0.3 + 1e-9
    assert count <= 40, "steps are as long as ratios hold"
    left = [flow for flow, weight in zip(walk.fractions, graph.weight, strict=True) if weight > 0]
    assert max(left) == pytest.approx(0.0, abs=1e-9)
    assert graph.utility(walk.fractions) == pytest.approx(graph.utility([0.0] * len(graph)), abs=1e-9)


def test_candidates_are_cells_where_values_are_told_apart_and_whole_places_elsewhere() -> None:
    graph = valued()
    by_arc = {location.arc: location.nodes for location in graph.locations}
    assert {location.arc: location.by_value for location in graph.locations} == {
        "s": False,
        "s->a": True,
        "s->d": False,
        "a->b": True,
        "a->c": True,
    }
    found = candidates(graph)
    assert by_arc["s"] in found
    assert by_arc["s->d"] in found
    assert all((node,) in found for arc in ("s->a", "a->b", "a->c") for node in by_arc[arc])
    assert len(found) == 2 + 3 * len(by_arc["s->a"])


def test_one_side_of_a_join_may_lie_below_the_other_until_that_follows_for_nothing() -> None:
    graph = two_joins()
    at = {location.arc: location.nodes[0] for location in graph.locations}
    left, right = at["a->j.left"], at["b"]
    found = list(steps(graph))
    alone = [(before, after) for move, _, before, after in found if move.nodes == (right,)]
    assert any(after[right] < before[right] <= before[left] for before, after in alone)
    free = [move for move, _, before, after in found if loss_and_gain(graph, before, after)[0] < 1e-9]
    assert any(left in move.nodes for move in free)


def test_a_step_of_a_join_meets_the_other_side() -> None:
    """The side with another reader goes down first; from there both go on together."""
    graph = joins()
    by_arc = {location.arc: location.nodes[0] for location in graph.locations}
    joint = {frozenset(graph.locations[place].arc for place in pair) for pair in graph.joints}
    assert joint == {frozenset({"fa->j.left", "b->j.right"}), frozenset({"j->i.left", "c"})}
    pairs = [move for move, *_ in steps(graph) if set(move.nodes) == {by_arc["fa->j.left"], by_arc["b->j.right"]}]
    assert pairs, "both sides are lowered as one"


def test_wide_forks_go_branch_by_branch_until_the_whole_is_cheaper() -> None:
    """350 branches of 1 to 2 s behind 5 s that they share: the dearest goes first, and at some point all the rest."""
    new = NetworkBuilder("wide")
    shared = new.stream("s", COLUMNS).filter("a", "value > 0")
    costs = {f"b{i}": 1 + i / 350 for i in range(350)}
    for name in costs:
        shared.filter(name, "value > 1").output(f"{name}_out")
    graph = flow_graph(new.build(), Statistics({"a": 5.0, **costs}), {"s": 1.0})
    arcs = [[graph.head_arc[node] for node in move.nodes] for move in Walk(graph, 1.0).moves()]
    expected, left = [], sorted(costs.values())
    while left and len(left) / (5 + sum(left)) > 1 / left[-1]:
        left.pop()
        expected.append([f"a->b{len(left)}"])
    assert 0 < len(expected) < 350
    assert arcs == [*expected, ["s"]]
