"""What a drop plan says: predicates of what is kept, fractions, value ranges, loads and utilities, by hand."""

from __future__ import annotations

import pytest

from streamshed.errors import InvalidValueError, UnknownNameError
from streamshed.load import Admission
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import (
    PLANNERS,
    Drop,
    DropPlan,
    FairPlanner,
    OutputEffect,
    ValueRange,
    planner_named,
    residual_drop,
)
from streamshed.planning.base import describe
from streamshed.planning.flow import FlowGraph, Leaf, Rule
from streamshed.planning.flow_builder import flow_graph
from streamshed.qos import Cell, Histogram, LossGraph, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
UNIFORM = {"s": {"value": Histogram.uniform(0, 100)}}


def drop_of(*ranges: tuple[float, float, float]) -> Drop:
    """A semantic drop of ranges (low, high, share dropped)."""
    return Drop("s", 0.5, 0.5, tuple(ValueRange(Cell(low, high), dropped) for low, high, dropped in ranges))


# --- predicates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "predicate", "kept"),
    [
        ([(0, 50, 0.5), (50, 100, 0)], "v >= 25", [(25, 100)]),
        ([(0, 50, 1), (50, 100, 0)], "v >= 50", [(50, 100)]),
        ([(0, 50, 0), (50, 100, 1)], "v <= 50", [(0, 50)]),
        ([(0, 20, 1), (20, 60, 0), (60, 100, 1)], "v >= 20 AND v <= 60", [(20, 60)]),
        ([(0, 20, 0), (20, 60, 1), (60, 100, 0)], "v <= 20 OR v >= 60", [(0, 20), (60, 100)]),
        (
            [(0, 10, 1), (10, 20, 0), (20, 60, 1), (60, 80, 0), (80, 100, 1)],
            "(v >= 10 AND v <= 20) OR (v >= 60 AND v <= 80)",
            [(10, 20), (60, 80)],
        ),
        # A part is cut off the low end of a range, so the range before it does not join.
        ([(0, 50, 0), (50, 100, 0.5)], "v <= 50 OR v >= 75", [(0, 50), (75, 100)]),
        ([(0, 50, 0), (50, 70, 0), (70, 100, 1)], "v <= 70", [(0, 70)]),
        # Single values are left out by strict comparisons, and only where they adjoin.
        ([(0, 0, 1), (0, 50, 0), (50, 50, 1), (50, 100, 0)], "(v > 0 AND v < 50) OR v > 50", [(0, 50), (50, 100)]),
        ([(10, 10, 1), (10, 50, 0.5)], "v >= 30", [(30, 50)]),
        ([(0, 50, 0.5), (50, 50, 1), (50, 100, 1)], "v >= 25 AND v < 50", [(25, 50)]),
        ([(0, 40, 0), (50, 50, 1)], "v <= 40", [(0, 40)]),
        ([(0, 50, 1), (50, 50, 0), (50, 100, 1)], "v = 50", [(50, 50)]),
        ([(0, 50, 1), (50, 50, 0), (50, 100, 0)], "v >= 50", [(50, 100)]),
        ([(0, 50, 0), (50, 50, 0), (50, 100, 1)], "v <= 50", [(0, 50)]),
        ([(0, 0, 1), (5, 5, 0), (5, 9, 0)], "v >= 5", [(5, 9)]),
        # Half of a single value goes by hash: no predicate says so.
        ([(0, 50, 0), (50, 50, 0.5), (50, 100, 0)], "TRUE", [(0, 100)]),
        ([(50, 50, 0.5), (60, 100, 0)], "v >= 50", [(50, 100)]),
        ([(0, 50, 0), (50, 100, 0)], "TRUE", [(0, 100)]),
        ([(0, 50, 1), (50, 100, 1)], "FALSE", []),
        ([(0, 50, 1 - 1e-10), (50, 100, 1e-10)], "v >= 50", [(50, 100)]),
    ],
)
def test_a_predicate_keeps_what_is_not_dropped(
    ranges: list[tuple[float, float, float]], predicate: str, kept: list[tuple[float, float]]
) -> None:
    drop = drop_of(*ranges)
    assert drop.predicate("v") == predicate
    assert [(round(low, 6), high) for low, high in drop.keeps()] == kept


def test_a_drop_with_ranges_is_semantic() -> None:
    assert drop_of((0, 1, 0.5)).is_semantic
    assert not Drop("s", 0.5, 0.5).is_semantic


@pytest.mark.parametrize(
    ("upstream", "wanted", "left"),
    [(0.0, 0.4, 0.4), (0.5, 0.3, 0.0), (0.5, 0.5, 0.0), (0.2, 0.6, 0.5), (0.75, 1.0, 1.0), (1.0, 1.0, 0.0)],
)
def test_a_drop_downstream_makes_up_for_what_is_left_to_drop(upstream: float, wanted: float, left: float) -> None:
    assert residual_drop(upstream, wanted) == pytest.approx(left, abs=1e-15)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_losses_are_weighted_means_of_what_outputs_lack() -> None:
    effects = (OutputEffect("a", 1.0, 0.4, 0.5, 0.3), OutputEffect("b", 3.0, 0.8, 0.9, 0.7))
    plan = DropPlan("p", (), effects, 2.0, 1.0, 1.0)
    assert plan.tuple_utility_loss == pytest.approx((1 * 0.5 + 3 * 0.1) / 4)
    assert plan.value_utility_loss == pytest.approx((1 * 0.7 + 3 * 0.3) / 4)


@pytest.mark.parametrize(
    ("load", "capacity", "fits"),
    [
        (1.0, 1.0, True),
        (1.0 + 9e-7, 1.0, True),
        (1.0 + 2e-6, 1.0, False),
        (100.0 + 9e-5, 100.0, True),
        (9e-13, 0.0, True),
        (2e-12, 0.0, False),
        (0.5, 1.0, True),
    ],
)
def test_a_plan_fits_up_to_rounding(load: float, capacity: float, fits: bool) -> None:
    assert DropPlan("p", (), (), 2.0, load, capacity).fits is fits


def forked(drop_cost: float = 0.0) -> FlowGraph:
    """10 tuples/s through `one` (1 s, halves them), then `two` (4 s) with weight 3 and `four` (2 s) with weight 1."""
    new = NetworkBuilder("forked")
    one = new.stream("A", COLUMNS).filter("one", "value > 0")
    one.filter("two", "value > 1").output("O1", Qos(loss=LossGraph.of([(0, 0), (0.5, 0.8), (1, 1)]), weight=3.0))
    one.filter("four", "value > 2").output("O2")
    known = Statistics({"one": 1.0, "two": 4.0, "four": 2.0}, {"one": 0.5}, drop_cost=drop_cost)
    return flow_graph(new.build(), known, {"A": 10.0})


def nodes_on(graph: FlowGraph) -> dict[str, tuple[int, ...]]:
    return {location.arc: location.nodes for location in graph.locations}


def test_a_plan_tells_absolute_and_relative_drops_loads_and_utilities() -> None:
    graph = forked()
    at = nodes_on(graph)
    flowing = graph.fractions({at["A"][0]: 0.8, at["one->two"][0]: 0.2, at["one->four"][0]: 0.9})
    plan = describe("p", graph, flowing, 30.0)
    assert [drop.arc for drop in plan.drops] == ["A", "one->two"], "upstream first; 0.9 behind 0.8 drops nothing"
    assert [drop.fraction for drop in plan.drops] == pytest.approx([0.2, 0.8])
    assert [drop.relative for drop in plan.drops] == pytest.approx([0.2, 1 - 0.2 / 0.8])
    assert (plan.planner, plan.capacity, plan.load_before) == ("p", 30.0, pytest.approx(10 + 20 + 10))
    assert plan.load_after == pytest.approx(0.8 * 10 + 0.2 * 20 + 0.8 * 10)
    first, second = plan.outputs
    assert (first.output, first.weight, first.delivered) == ("O1", 3.0, pytest.approx(0.2))
    assert (first.tuple_utility, first.value_utility) == (pytest.approx(0.2 * 1.6), pytest.approx(0.2))
    assert (second.delivered, second.tuple_utility) == (pytest.approx(0.8), pytest.approx(0.8))
    assert plan.tuple_utility_loss == pytest.approx((3 * (1 - 0.32) + 0.2) / 4)


def test_rounding_is_no_drop() -> None:
    graph = forked(drop_cost=0.3)
    flowing = graph.fractions({nodes_on(graph)["A"][0]: 1 - 1e-10})
    assert describe("p", graph, flowing, 30.0).drops == ()
    assert graph.drops(flowing) == {}
    assert graph.load(flowing) == pytest.approx(40.0)


def test_drops_cost_time_for_every_tuple_that_comes_to_them() -> None:
    graph = forked(drop_cost=0.3)
    at = nodes_on(graph)
    work = 0.8 * 10 + 0.2 * 20 + 0.8 * 10
    flowing = graph.fractions({at["A"][0]: 0.8, at["one->two"][0]: 0.2})
    # All 10 tuples/s come to the drop at A, and 0.8 of 5 to that before `two`; there is none before `four`.
    assert graph.load(flowing) == pytest.approx(work + 0.3 * (10 + 4))
    assert graph.load(graph.fractions({})) == graph.full_load == 40.0
    assert graph.drops(flowing) == {at["A"][0]: 0.8, at["one->two"][0]: 0.2}


def test_utility_is_the_weighted_sum_over_outputs() -> None:
    graph = forked()
    flowing = graph.fractions({nodes_on(graph)["A"][0]: 0.75})
    assert graph.utility(flowing) == pytest.approx(3 * (0.8 + 0.25 * 0.4) + 0.75)
    leaf = Leaf("o", 1.0, LossGraph.linear(), True, (0, 1), (0.75, 0.25), (0.1, 0.9))
    assert leaf.tuples_delivered([1.0, 0.5]) == pytest.approx(0.875)
    assert leaf.value_delivered([1.0, 0.5]) == pytest.approx(0.55)
    assert leaf.utility([1.0, 0.5]) == pytest.approx(0.55), "by value, where the planner tells values apart"
    assert leaf.shares == (0.1, 0.9)
    plain = Leaf("o", 1.0, LossGraph.of([(0, 0), (0.5, 1), (1, 1)]), False, (0, 1), (0.75, 0.25), (0.1, 0.9))
    assert plain.utility([0.4, 0.4]) == pytest.approx(0.8)
    assert plain.shares == (0.75, 0.25)


def test_at_other_rates_loads_and_flows_follow_each_stream() -> None:
    new = NetworkBuilder("two streams")
    left, right = new.stream("a", COLUMNS), new.stream("b", COLUMNS)
    left.filter("f", "value > 0").union("u", right).filter("g", "value > 1").output("o")
    known = Statistics({"f": 1.0, "u": 2.0, "g": 4.0}, {"f": 0.5})
    graph = flow_graph(new.build(), known, {"a": 10.0, "b": 5.0})
    assert graph.full_load == pytest.approx(10 * (1 + 0.5 * 6) + 5 * 6)
    other = graph.at_rates({"a": 2.0, "b": 7.0})
    assert other.full_load == pytest.approx(2 * 4 + 7 * 6)
    assert other.rates == {"a": 2.0, "b": 7.0}
    heads = {other.head_arc[node]: other.head_rate[node] for node in range(len(other))}
    assert heads == pytest.approx({"a": 2.0, "b": 7.0, "u->g": 8.0})
    # Half of a, all of b: at the rates it was built for they meet as 5 and 5 tuples/s.
    at = nodes_on(graph)
    mean = graph.rule.index(Rule.MEAN)
    flowing = graph.fractions({at["a"][0]: 0.5})
    assert flowing[mean] == pytest.approx(0.75)
    assert graph.load(flowing) == pytest.approx(0.5 * 10 * 2 + 5 * 2 + 0.75 * 10 * 4)


# --- drops by value ---------------------------------------------------------------------------------------------------


def high_and_rest() -> Network:
    """One output that values values over 95, behind a filter, and one that takes everything alike."""
    new = NetworkBuilder("high and rest")
    s = new.stream("s", COLUMNS)
    high = ValueGraph.of("value", [(0, 0.1), (95, 0.1), (95, 1), (100, 1)])
    s.filter("rare", "value > 80").output("alarms", Qos(value=high))
    s.filter("rest", "k > 0").output("report")
    return new.build()


def test_a_drop_by_value_behind_a_random_one_cuts_what_is_left() -> None:
    known = Statistics({"rare": 1.0, "rest": 1.0}, {"rare": 0.2}, UNIFORM)
    graph = flow_graph(high_and_rest(), known, {"s": 100.0}, by_value=True)
    at = nodes_on(graph)
    low, middle, _ = at["s->rare"]
    assert [graph.cell[node] for node in at["s->rare"]] == [Cell(0, 80), Cell(80, 95), Cell(95, 100)]
    limits = dict.fromkeys(at["s"], 0.5) | {low: 0.0, middle: 0.25}
    plan = describe("p", graph, graph.fractions(limits), 100.0)
    entry, by_value = plan.drops
    assert (entry.arc, entry.column, entry.ranges) == ("s", None, ())
    assert entry.fraction == entry.relative == pytest.approx(0.5)
    assert (by_value.arc, by_value.column) == ("s->rare", "value")
    # Half of the values between 80 and 95 that are left go: those up to 87.5.
    assert [(item.cell.low, item.dropped) for item in by_value.ranges] == [(0, 1.0), (80, pytest.approx(0.5)), (95, 0)]
    assert by_value.predicate("value") == "value >= 87.5"
    passed = 0.25 * 0.15 + 0.5 * 0.05
    assert by_value.fraction == pytest.approx(1 - passed)
    assert by_value.relative == pytest.approx(1 - passed / 0.5)
    alarms, report = plan.outputs
    assert alarms.delivered == pytest.approx((0.25 * 15 + 0.5 * 5) / 20)
    assert alarms.value_utility == pytest.approx((0.25 * 15 * 0.1 + 0.5 * 5) / (15 * 0.1 + 5))
    assert report.delivered == report.value_utility == pytest.approx(0.5)


def test_a_drop_where_nothing_flows_counts_its_values_alike() -> None:
    known = Statistics({"rare": 1.0}, {"rare": 0.2}, UNIFORM)
    graph = flow_graph(high_and_rest(), known, {"s": 0.0}, by_value=True)
    low, middle, high = nodes_on(graph)["s->rare"]
    (drop,) = describe("p", graph, graph.fractions({low: 0.0, middle: 0.25, high: 0.8}), 1.0).drops
    assert drop.fraction == drop.relative == pytest.approx(1 - (0 + 0.25 + 0.8) / 3)
    assert not drop.is_semantic, "nobody has values to tell apart"


def test_drops_by_value_in_a_row_cut_from_the_same_end() -> None:
    new = NetworkBuilder("both by value")
    s = new.stream("s", COLUMNS)
    step = Qos(value=ValueGraph.of("value", [(0, 0.5), (40, 0.5), (40, 1), (100, 1)]))
    s.filter("a", "k > 0").output("x", step)
    s.filter("b", "k > 1").output("y", step)
    graph = flow_graph(new.build(), Statistics({"a": 1.0, "b": 1.0}, {}, UNIFORM), {"s": 10.0}, by_value=True)
    at = nodes_on(graph)
    limits = {at["s"][0]: 0.5, at["s"][1]: 1 - 1e-10, at["s->a"][0]: 0.2, at["s->a"][1]: 0.9, at["s->b"][0]: 0.6}
    first, second = describe("p", graph, graph.fractions(limits), 1.0).drops
    assert (first.arc, second.arc) == ("s", "s->a"), "0.6 behind 0.5 drops nothing"
    assert [item.dropped for item in first.ranges] == [0.5, 0.0], "rounding drops nothing"
    # The upper 0.2 of the values up to 40 is left of all of them, however much went before.
    assert [item.dropped for item in second.ranges] == pytest.approx([0.8, 0.1])
    assert second.keeps() == ((pytest.approx(32), 40), (pytest.approx(46), 100))
    assert first.fraction == pytest.approx(0.4 * 0.5)
    assert second.fraction == pytest.approx(1 - (0.4 * 0.2 + 0.6 * 0.9))
    assert second.relative == pytest.approx(1 - 0.62 / 0.8)


def test_a_drop_that_takes_all_values_alike_has_no_ranges() -> None:
    graph = flow_graph(high_and_rest(), Statistics({"rare": 1.0}, {}, UNIFORM), {"s": 1.0}, by_value=True)
    at = nodes_on(graph)
    alike = dict.fromkeys(at["s->rare"], 0.3) | {at["s->rare"][0]: 0.3 + 2e-10}
    (drop,) = describe("p", graph, graph.fractions(alike), 1.0).drops
    assert (drop.arc, drop.fraction, drop.ranges, drop.column) == ("s->rare", pytest.approx(0.7), (), None)


def test_a_cut_is_handed_on_where_nothing_more_is_dropped() -> None:
    """Three places one behind another; the one between drops nothing."""
    new = NetworkBuilder("three levels")
    step = Qos(value=ValueGraph.of("value", [(0, 0.5), (40, 0.5), (40, 1), (100, 1)]))
    s = new.stream("s", COLUMNS)
    shared = s.filter("a", "k > 0")
    shared.filter("b", "k > 1").output("x", step)
    shared.output("y", step)
    s.output("z", step)
    graph = flow_graph(new.build(), Statistics({"a": 1.0, "b": 1.0}, {}, UNIFORM), {"s": 0.1}, by_value=True)
    at = nodes_on(graph)
    first, second = describe("p", graph, graph.fractions({at["s"][0]: 0.5, at["a->b"][0]: 0.3}), 1.0).drops
    assert (first.arc, second.arc) == ("s", "a->b")
    assert [item.dropped for item in second.ranges] == pytest.approx([0.7, 0.0])
    assert (first.fraction, second.fraction) == pytest.approx((0.2, 1 - 0.4 * 0.3 - 0.6)), "by rate, however small"


def test_rounding_delivers_no_more_than_everything() -> None:
    above_one = (0.7, 0.1, 0.2 + 4e-16)
    leaf = Leaf("o", 1.0, LossGraph.linear(), False, (0, 0, 0), above_one, above_one)
    graph = FlowGraph({}, 0.0, [Rule.ENTRY], [()], [()], [1.0], [{}], [1.0], [{}], ["s"], [True], leaves=[leaf])
    assert leaf.tuples_delivered([1.0]) > 1.0
    (effect,) = describe("p", graph, [1.0], 1.0).outputs
    assert (effect.delivered, effect.value_utility) == (1.0, 1.0)


def test_a_planner_checks_what_it_is_given() -> None:
    new = NetworkBuilder("checked")
    new.stream("s", COLUMNS).filter("a", "value > 0").output("o")
    network = new.build()
    for planner in PLANNERS.values():
        with pytest.raises(UnknownNameError, match="operator that does not exist"):
            planner().plan(network, Statistics({"b": 1.0}), {"s": 1.0}, Admission(1.0))
        with pytest.raises(InvalidValueError, match="a rate is out of range"):
            planner().plan(network, Statistics({"a": 1.0}), {"s": -1.0}, Admission(1.0))
    assert [name for name, planner in PLANNERS.items() if planner.by_value] == ["semantic"]


def test_planners_are_found_by_name() -> None:
    assert type(planner_named("fair")) is FairPlanner
    with pytest.raises(UnknownNameError, match="did you mean 'optimal'"):
        planner_named("optimum")
