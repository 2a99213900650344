"""The loop without an engine: samples in, thresholds out."""

from __future__ import annotations

import pytest

from streamshed.control import CostEstimator, LoadSample, Outlook, PlantController
from streamshed.load import Admission
from streamshed.manager import Manager
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import RoadMapPlanner, SemanticRoadMapPlanner
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.ranks import ranked_locations, thresholds
from streamshed.qos import Histogram, LossGraph, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
STATISTICS = Statistics(
    {"rare": 1.0, "mean": 3.0}, {"rare": 0.2, "mean": 0.1}, {"s": {"value": Histogram.uniform(0, 100)}}
)


def two_readers() -> Network:
    """One output that values high values behind a filter, and one that wants a sample of everything."""
    new = NetworkBuilder("two")
    s = new.stream("s", COLUMNS, time="ts", key=["k"])
    high = ValueGraph.of("value", [(0, 0.1), (95, 0.1), (95, 1), (100, 1)])
    s.filter("rare", "value > 80").output("alarms", Qos(value=high, weight=10))
    loss = LossGraph.of([(0, 0), (0.3, 0.9), (1, 1)])
    s.aggregate("mean", {"mean": "avg(value)"}, window_s=10).output("report", Qos(loss=loss))
    return new.build()


def test_values_are_given_up_from_what_no_output_sees_to_the_most_valuable() -> None:
    graph = flow_graph(two_readers(), STATISTICS, {"s": 100.0}, by_value=True)
    places = {location.arc: location for location in ranked_locations(graph)}
    assert places["s"].column is None
    assert places["s->mean"].column is None
    by_value = places["s->rare"]
    assert by_value.column == "value"
    assert [(one.cell.low, one.cell.high) for one in by_value.order] == [(0, 80), (80, 95), (95, 100)]
    assert [one.share for one in by_value.order] == pytest.approx([0.8, 0.15, 0.05])


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3, 0.1])
def test_thresholds_leave_the_load_that_the_plan_promises(share: float) -> None:
    """Recomputed from thresholds alone: a hash for random drops, the order for those by value."""
    network = two_readers()
    graph = flow_graph(network, STATISTICS, {"s": 100.0}, by_value=True)
    plan = SemanticRoadMapPlanner().plan(network, STATISTICS, {"s": 100.0}, Admission(graph.full_load * share))
    places = ranked_locations(graph)
    x = thresholds(plan, places)
    (rare,) = (place for place in places if place.arc == "s->rare")
    through_entry = 1 - x["s"]
    to_mean = min(through_entry, 1 - x["s->mean"])
    to_rare = through_entry * (1 - rare.share_below(x["s->rare"]))
    assert 100 * (1.0 * to_rare + 3.0 * to_mean) == pytest.approx(graph.full_load * share, rel=1e-6)


def learned(planner: RoadMapPlanner) -> Manager:
    """A manager that knows its plant: 0.1 s and 100 µs a tuple."""
    controller = PlantController(2.0, CostEstimator(warmup=0))
    manager = Manager(two_readers(), STATISTICS, {"s": 100.0}, controller, planner)
    for n in (1000, 2000, 4000, 3000):
        manager.observe(LoadSample(0.0, 0.1 + 1e-4 * n, arrived=n, kept=n))
    return manager


def test_nothing_is_dropped_while_everything_fits() -> None:
    decision = learned(SemanticRoadMapPlanner()).decide(Outlook(0.0, waiting=3000, oldest_wait_s=0.4, span_s=0.4))
    assert decision.load_share == 1.0
    assert set(decision.thresholds.values()) == {0.0}


def test_overload_is_shed_where_it_costs_least() -> None:
    manager = learned(SemanticRoadMapPlanner())
    outlook = Outlook(0.0, waiting=20_000, oldest_wait_s=0.9, span_s=0.9)
    keep = manager.controller.admit(outlook).keep
    decision = manager.decide(outlook)
    assert 0.2 < keep < 0.6
    assert decision.load_share == pytest.approx(keep, rel=1e-6)
    assert decision.thresholds["s->mean"] > 0.5
    (rare,) = (place for place in manager.locations if place.arc == "s->rare")
    rejected = rare.share_below(decision.thresholds["s->rare"])
    assert rejected >= 0.8 - 1e-9, "what the filter rejects goes first, and is free"
    alarms = next(effect for effect in decision.plan.outputs if effect.output == "alarms")
    assert alarms.value_utility == pytest.approx(1.0)


def test_what_was_believed_of_values_gives_way_to_what_is_known() -> None:
    """Ranks stay; the thresholds of the next decision are those for values as they are spread now."""
    manager = learned(SemanticRoadMapPlanner())
    outlook = Outlook(0.0, waiting=20_000, oldest_wait_s=0.9, span_s=0.9)
    before = manager.decide(outlook)
    assert manager.decide(outlook) is before
    ranks = [[(one.cell, one.start, one.width) for one in place.order] for place in manager.locations]
    most_are_high = Histogram.of([(0, 80, 0.1), (80, 95, 0.1), (95, 100, 0.8)])
    manager.renew(Statistics(STATISTICS.costs, STATISTICS.selectivities, {"s": {"value": most_are_high}}))
    after = manager.decide(outlook)
    assert after is not before
    assert [[(one.cell, one.start, one.width) for one in place.order] for place in manager.locations] == ranks
    (rare,) = (place for place in manager.locations if place.arc == "s->rare")
    assert [one.share for one in rare.order] == pytest.approx([0.1, 0.1, 0.8])
    assert rare.share_below(after.thresholds["s->rare"]) < 0.25
    assert rare.share_below(before.thresholds["s->rare"]) <= 0.2
