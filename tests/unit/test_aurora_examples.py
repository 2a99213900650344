"""The worked examples of the Aurora paper, to the digit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from streamshed.errors import InvalidValueError
from streamshed.load import Admission, arc_rates, load_coefficients, total_load
from streamshed.network import Network, NetworkBuilder, Statistics, load_spec
from streamshed.planning import OptimalPlanner, Planner, RoadMap, RoadMapPlanner, SemanticRoadMapPlanner, residual_drop
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.roadmap import least_step_size
from streamshed.qos import Histogram, LossGraph, Qos, ValueGraph, derive_loss_graph, interval_table

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
TWO_INTERVALS = ValueGraph.of("value", [(0, 0.2), (50, 0.2), (51, 1.0), (100, 1.0)])
FORTY_SIXTY = Histogram.of([(0, 50, 0.4), (51, 100, 0.6)])


def test_equation_1_on_a_chain() -> None:
    new = NetworkBuilder("chain")
    flow = new.stream("I", COLUMNS)
    for i in range(1, 5):
        flow = flow.filter(f"op{i}", "value > 0")
    flow.output("O")
    costs = {"op1": 3.0, "op2": 5.0, "op3": 7.0, "op4": 11.0}
    selectivities = {"op1": 0.5, "op2": 0.4, "op3": 0.9, "op4": 0.1}
    coefficients = load_coefficients(new.build(), Statistics(costs, selectivities))
    assert coefficients["I"] == pytest.approx(3 + 0.5 * 5 + 0.5 * 0.4 * 7 + 0.5 * 0.4 * 0.9 * 11, rel=1e-15)
    assert coefficients["op3->op4"] == 11.0
    assert coefficients["op4->O"] == 0.0


def figure_4() -> tuple[Network, Statistics]:
    """Two queries over two streams, sharing operator 1; costs are ours, the coefficients are those of figure 4."""
    new = NetworkBuilder("figure 4")
    first = new.stream("I1", COLUMNS).filter("op1", "value > 0")
    first.filter("op2", "value > 0").filter("op3", "value > 0").output("O1")
    second = new.stream("I2", COLUMNS).filter("op4", "value > 0")
    first.union("op5", second).filter("op6", "value > 0").output("O2")
    costs = {"op1": 10.0, "op2": 8.0, "op3": 10.0, "op4": 10.0, "op5": 10.0, "op6": 10.0}
    selectivities = {"op1": 0.5, "op2": 0.75, "op4": 0.5, "op5": 0.75}
    return new.build(), Statistics(costs, selectivities)


def test_fan_out_adds_paths_and_binary_operators_take_both_inputs() -> None:
    network, statistics = figure_4()
    coefficients = load_coefficients(network, statistics)
    assert coefficients["I1"] == 26.5 == 10 + 0.5 * ((8 + 0.75 * 10) + (10 + 0.75 * 10))
    assert coefficients["I2"] == 18.75 == 10 + 0.5 * (10 + 0.75 * 10)
    assert total_load(coefficients, {"I1": 10, "I2": 20}) == 640.0
    rates = arc_rates(network, statistics, {"I1": 10, "I2": 20})
    assert rates["op5->op6"] == 0.75 * (0.5 * 10 + 0.5 * 20)
    assert flow_graph(network, statistics, {"I1": 10, "I2": 20}).full_load == pytest.approx(640.0, rel=1e-12)


def test_join_takes_both_inputs() -> None:
    new = NetworkBuilder("join")
    left = new.stream("a", COLUMNS, time="ts")
    right = new.stream("b", {"ts": "timestamp", "k": "bigint", "other": "double"}, time="ts")
    left.join("j", right, on=["k"], within_s=60).filter("f", "value > 0").output("o")
    coefficients = load_coefficients(new.build(), Statistics({"j": 4.0, "f": 2.0}, {"j": 1.5}))
    assert coefficients["a"] == coefficients["b"] == 4.0 + 1.5 * 2.0


def test_table_1_normalised_utilities() -> None:
    low, high = interval_table(TWO_INTERVALS, FORTY_SIXTY)
    assert (low.utility, low.frequency) == (0.2, pytest.approx(0.4))
    assert (high.utility, high.frequency) == (1.0, pytest.approx(0.6))
    assert low.normalised == pytest.approx(0.08 / 0.68) == pytest.approx(0.1176, abs=5e-5)
    assert high.normalised == pytest.approx(0.60 / 0.68) == pytest.approx(0.882, abs=5e-4)


def test_figure_8_derived_loss_tolerance() -> None:
    graph = derive_loss_graph(TWO_INTERVALS, FORTY_SIXTY).graph
    assert graph.xs == pytest.approx((0.0, 0.6, 1.0))
    assert graph.ys == pytest.approx((0.0, 0.60 / 0.68, 1.0))
    assert round(graph.ys[1], 2) == 0.88
    assert graph.is_concave


def one_query(value: ValueGraph, histogram: Histogram, where: str = "value >= 0") -> tuple[Network, Statistics]:
    new = NetworkBuilder("one")
    new.stream("s", COLUMNS).filter("f", where).output("o", Qos(value=value))
    return new.build(), Statistics({"f": 1.0}, {"f": 1.0}, {"s": {"value": histogram}})


@pytest.mark.parametrize(("dropped", "lowest_kept", "highest_dropped"), [(0.2, 25, 24.99), (0.7, 76, 75)])
def test_predicates_of_semantic_drops(dropped: float, lowest_kept: float, highest_dropped: float) -> None:
    """Dropping 20 % keeps value >= 25; dropping 70 % keeps value > 75 (integers: half of 51 to 100 is 51 to 75)."""
    network, statistics = one_query(TWO_INTERVALS, FORTY_SIXTY)
    plan = SemanticRoadMapPlanner().plan(network, statistics, {"s": 100.0}, Admission(100.0 * (1 - dropped)))
    (drop,) = plan.drops
    assert drop.arc == "s"
    assert drop.fraction == pytest.approx(dropped)
    ((low, high),) = drop.keeps()
    assert highest_dropped < low <= lowest_kept
    assert high == 100
    assert drop.predicate("value") == {0.2: "value >= 25", 0.7: "value >= 75.5"}[dropped]


def test_semantic_drops_first_what_filters_reject() -> None:
    """Values that no output sees are dropped first: cycles gained at no loss."""
    network, statistics = one_query(TWO_INTERVALS, Histogram.uniform(0, 100), where="value > 30")
    statistics = Statistics(statistics.costs, {"f": 0.7}, statistics.histograms)
    plan = SemanticRoadMapPlanner().plan(network, statistics, {"s": 100.0}, Admission(70.0))
    assert plan.value_utility_loss == pytest.approx(0.0, abs=1e-12)
    assert plan.tuple_utility_loss == pytest.approx(0.0, abs=1e-12)
    assert plan.drops[0].predicate("value") == "value >= 30"
    random = RoadMapPlanner().plan(network, statistics, {"s": 100.0}, Admission(70.0))
    assert random.outputs[0].delivered == pytest.approx(0.7)
    assert random.tuple_utility_loss > 0.05


def shared_operator(loss_b: LossGraph, loss_d: LossGraph) -> Network:
    """The upper part of figure 6: operator 1 feeds two outputs; A is the input, B and D the arcs behind the split."""
    new = NetworkBuilder("figure 6")
    one = new.stream("A", COLUMNS).filter("one", "value > 0")
    one.filter("two", "value > 0").output("O1", Qos(loss=loss_b))
    one.filter("four", "value > 0").output("O2", Qos(loss=loss_d))
    return new.build()


def test_drop_locations_are_inputs_and_arcs_behind_splits() -> None:
    network, statistics = figure_4()
    graph = flow_graph(network, statistics, {"I1": 10, "I2": 20})
    assert {location.arc for location in graph.locations} == {"I1", "I2", "op1->op2", "op1->op5"}


def test_drop_above_a_drop_makes_it_redundant_or_reduces_it() -> None:
    """k at A over l at B: redundant if l <= k, else B is reduced so that l is dropped in total."""
    assert residual_drop(0.4, 0.4) == 0.0
    assert residual_drop(0.4, 0.3) == 0.0
    assert residual_drop(0.4, 0.7) == pytest.approx(1 - 0.3 / 0.6)
    network = shared_operator(LossGraph.linear(), LossGraph.linear())
    statistics = Statistics({"one": 1.0, "two": 1.0, "four": 1.0})
    graph = flow_graph(network, statistics, {"A": 1.0})
    node = {location.arc: location.nodes[0] for location in graph.locations}
    covered = graph.fractions({node["A"]: 0.6, node["one->two"]: 0.7})
    assert covered[node["one->two"]] == 0.6
    assert node["one->two"] not in graph.drops(covered)
    reduced = graph.fractions({node["A"]: 0.6, node["one->two"]: 0.3})
    assert graph.drops(reduced) == {node["A"]: 0.6, node["one->two"]: 0.3}


def test_road_map_keeps_the_earlier_decision_when_it_drops_upstream() -> None:
    """B loses 60 % first, because it costs little; then A drops too, and B's total stays at 60 % until A passes it."""
    network = shared_operator(LossGraph.of([(0, 0), (0.4, 0.95), (1, 1)]), LossGraph.of([(0, 0), (0.5, 0.6), (1, 1)]))
    statistics = Statistics({"one": 1.0, "two": 4.0, "four": 4.0})
    plan = RoadMapPlanner().plan(network, statistics, {"A": 1.0}, Admission(5.0))
    drops = {drop.arc: drop for drop in plan.drops}
    assert set(drops) == {"A", "one->two"}
    assert drops["one->two"].fraction == pytest.approx(0.6)
    above = drops["A"].fraction
    assert 0 < above < 0.6
    assert drops["one->two"].relative == pytest.approx(1 - 0.4 / (1 - above))
    best = OptimalPlanner().plan(network, statistics, {"A": 1.0}, Admission(5.0))
    assert plan.tuple_utility_loss == pytest.approx(best.tuple_utility_loss)


def test_step_size_exceeds_drop_cost_over_least_load_coefficient() -> None:
    network = shared_operator(LossGraph.linear(), LossGraph.linear())
    statistics = Statistics({"one": 1.0, "two": 4.0, "four": 2.0}, drop_cost=0.2)
    graph = flow_graph(network, statistics, {"A": 10.0})
    assert least_step_size(graph) == pytest.approx(0.2 / 2.0)
    with pytest.raises(InvalidValueError, match="STEP_SIZE does not fit"):
        RoadMap(graph, step_size=0.1)
    table = RoadMap(graph, step_size=0.11)
    rates = np.array([10.0])
    savings = [table.row(i).savings["A"] for i in range(len(table))]
    assert savings[0] == 0.0
    assert all(later > earlier for earlier, later in pairwise(savings))
    for capacity in (65.0, 40.0, 10.0):
        assert graph.load(table.fractions(table.lookup(rates, capacity))) <= capacity + 1e-9


def test_each_query_without_sharing_is_dropped_at_its_input() -> None:
    new = NetworkBuilder("alone")
    new.stream("F", COLUMNS).filter("five", "value > 0").filter("six", "value > 0").output("O3")
    network = new.build()
    plan = RoadMapPlanner().plan(network, Statistics({"five": 1.0, "six": 2.0}), {"F": 1.0}, Admission(1.0))
    assert [drop.arc for drop in plan.drops] == ["F"]


def test_cursor_goes_both_ways() -> None:
    """The same plan is found whether load grows or falls, and one step of the table at a time or in a jump."""
    network, statistics = figure_4()
    table = RoadMap(flow_graph(network, statistics, {"I1": 10.0, "I2": 20.0}), step_size=0.01)
    rates = np.array([10.0, 20.0])
    capacities = [float(c) for c in range(640, 0, -16)]
    down = [table.lookup(rates, capacity) for capacity in capacities]
    up = [table.lookup(rates, capacity) for capacity in reversed(capacities)]
    assert down == up[::-1]
    fresh = RoadMap(table.graph, step_size=0.01)
    assert fresh.lookup(rates, capacities[-1]) == down[-1]
    assert [position.row for position in down] == sorted(position.row for position in down)
    assert table.lookup(rates, 641.0).row == 0


def test_road_map_is_rebuilt_when_statistics_drift() -> None:
    network, statistics = figure_4()
    planner = RoadMapPlanner(drift=0.1)
    planner.plan(network, statistics, {"I1": 10.0, "I2": 20.0}, Admission(300.0))
    planner.plan(network, statistics, {"I1": 40.0, "I2": 80.0}, Admission(300.0))
    assert planner.rebuilds == 1, "only the scale of the rates changed"
    costlier = Statistics({**statistics.costs, "op3": 13.0}, statistics.selectivities)
    planner.plan(network, costlier, {"I1": 40.0, "I2": 80.0}, Admission(300.0))
    assert planner.rebuilds == 2
    planner.plan(network, costlier, {"I1": 80.0, "I2": 40.0}, Admission(300.0))
    assert planner.rebuilds == 3, "the proportions changed"


@pytest.mark.parametrize("factor", [1.6, 2.0, 3.0, 5.0])
def test_semantic_shedding_is_not_below_random_shedding_where_streams_meet(factor: float) -> None:
    """Behind unions and joins a walk over values can lose its way: the better of two plans counts."""
    spec = load_spec(Path(__file__).parents[2] / "examples" / "shared-sensors.yaml")
    rates = {stream: rate * factor for stream, rate in spec.rates.items()}
    valued = {output.id for output in spec.network.outputs if output.qos.value is not None}

    def utility(planner: Planner) -> float:
        plan = planner.plan(spec.network, spec.statistics, rates, Admission(1.0))
        assert plan.fits
        return sum(
            effect.weight * (effect.value_utility if effect.output in valued else effect.tuple_utility)
            for effect in plan.outputs
        )

    assert utility(SemanticRoadMapPlanner()) >= utility(RoadMapPlanner()) - 1e-6
