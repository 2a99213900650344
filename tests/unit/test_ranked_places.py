"""In which order places give values up: utility lost per load saved, through forks, unions and joins."""

from __future__ import annotations

import pytest

from streamshed.network import NetworkBuilder, Statistics
from streamshed.planning.base import Drop, DropPlan, ValueRange
from streamshed.planning.flow import FlowGraph
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.ranks import (
    LEVELS,
    RankedCell,
    RankedLocation,
    ranked_locations,
    ranked_order,
    respread,
    thresholds,
)
from streamshed.planning.values import LearntHistogram, ValueLearner, not_by_value
from streamshed.qos import Cell, Histogram, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
UNIFORM = {"value": Histogram.uniform(0, 100)}


def worth(*pieces: tuple[float, float, float], weight: float = 1.0) -> Qos:
    """Utility by range of values."""
    points = [(end, utility) for low, high, utility in pieces for end in (low, high)]
    return Qos(value=ValueGraph.of("value", points), weight=weight)


def order(graph: FlowGraph, arc: str) -> list[tuple[float, float]]:
    """The cells of a place, first to be given up first."""
    (place,) = (place for place in ranked_locations(graph) if place.arc == arc)
    return [(one.cell.low, one.cell.high) for one in place.order]


def test_what_costs_most_for_its_worth_goes_first() -> None:
    """Per tuple: 1 s up to 30, rejected and worth nothing; 1 + 4 s above, worth 0.9, 0.4 and 0.5 of one."""
    new = NetworkBuilder("chain")
    qos = worth((0, 40, 0.9), (40, 90, 0.4), (90, 100, 0.5))
    new.stream("s", COLUMNS).filter("a", "value > 30").map("b", {"value": "value"}).output("o", qos)
    known = Statistics({"a": 1.0, "b": 4.0}, {"a": 0.7}, {"s": UNIFORM})
    graph = flow_graph(new.build(), known, {"s": 10.0}, by_value=True)
    assert order(graph, "s") == [(0, 30), (40, 90), (90, 100), (30, 40)]
    (place,) = ranked_locations(graph)
    assert (place.column, place.unknown) == ("value", 0.0)
    assert [one.share for one in place.order] == pytest.approx([0.3, 0.5, 0.1, 0.1])
    assert [round(LEVELS * one.width) for one in place.order] == [72, 120, 24, 24]


def test_all_readers_of_a_fork_count_by_their_weights() -> None:
    """Up to 50 is worth 1 to the first reader and 0.2 to the second, above it is the other way round."""
    for weight, first in ((3.0, (50, 100)), (0.5, (0, 50))):
        new = NetworkBuilder("fork")
        shared = new.stream("s", COLUMNS).filter("a", "k > 0")
        shared.filter("b", "k > 1").output("o", worth((0, 50, 1.0), (50, 100, 0.2), weight=weight))
        shared.filter("c", "k > 2").output("p", worth((0, 50, 0.2), (50, 100, 1.0)))
        graph = flow_graph(new.build(), Statistics({"a": 1.0}, {}, {"s": UNIFORM}), {"s": 10.0}, by_value=True)
        assert order(graph, "s")[0] == first
        assert order(graph, "a->b")[0] == (0, 50), "nothing is saved there, so the lower one is first"


def test_what_is_saved_downstream_counts() -> None:
    """Values above 50 are worth twice as much, and three times as dear."""
    new = NetworkBuilder("dear")
    s = new.stream("s", COLUMNS).filter("a", "k > 0")
    qos = worth((0, 50, 0.5), (50, 100, 1.0))
    s.filter("b", "value > 50").map("c", {"value": "value"}).output("o", qos)
    s.output("p", qos)
    known = Statistics({"a": 1.0, "c": 8.0}, {"b": 0.5}, {"s": UNIFORM})
    graph = flow_graph(new.build(), known, {"s": 10.0}, by_value=True)
    # Low: 1/6·… of p only, 1 s a tuple: (1/3)/5 = 0.067; high: (1 + 2/3)/(5 + 40) = 0.037.
    assert order(graph, "s") == [(50, 100), (0, 50)]


def test_behind_a_union_a_stream_counts_by_its_part_of_a_cell() -> None:
    """Nine tenths of the low values come from b; a tuple of a is worth what it is worth all the same."""
    new = NetworkBuilder("union")
    a, b = new.stream("a", COLUMNS), new.stream("b", COLUMNS)
    a.filter("f", "k > 0").union("u", b).output("o", worth((0, 50, 0.5), (50, 100, 1.0)))
    histograms = {"a": UNIFORM, "b": {"value": Histogram.uniform(0, 50)}}
    known = Statistics({"f": 1.0}, {}, histograms)
    graph = flow_graph(new.build(), known, {"a": 10.0, "b": 45.0}, by_value=True)
    assert order(graph, "a") == [(0, 50), (50, 100)]


def test_at_a_join_what_one_side_loses_is_lost() -> None:
    new = NetworkBuilder("join")
    left = new.stream("s", COLUMNS, time="ts")
    right = new.stream("t", {"ts": "timestamp", "k": "bigint", "w": "double"}, time="ts")
    left.join("j", right, on=["k"], within_s=1).output("o", worth((0, 50, 1.0), (50, 100, 0.2)))
    known = Statistics({"j": 1.0}, {}, {"s": UNIFORM})
    graph = flow_graph(new.build(), known, {"s": 10.0, "t": 10.0}, by_value=True)
    assert order(graph, "s") == [(50, 100), (0, 50)]
    assert order(graph, "t") == []


def test_places_that_do_not_tell_values_apart_have_no_order() -> None:
    new = NetworkBuilder("fork")
    s = new.stream("s", COLUMNS)
    s.output("o", worth((0, 50, 1.0), (50, 100, 0.2)))
    s.output("p")
    graph = flow_graph(new.build(), Statistics({}, {}, {"s": UNIFORM}), {"s": 10.0}, by_value=True)
    assert [(place.arc, place.column, len(place.order)) for place in ranked_locations(graph)] == [
        ("s", None, 0),
        ("s->o", "value", 2),
        ("s->p", None, 0),
    ]
    inner = {place.arc: [one.inner_order for one in place.order] for place in ranked_locations(graph)}
    assert inner["s->o"] == [True, True]
    unordered = {place.arc: place.order for place in ranked_locations(graph, unordered=frozenset({"s"}))}
    assert [one.inner_order for one in unordered["s->o"]] == [False, False]
    others = {place.arc: place.order for place in ranked_locations(graph, unordered=frozenset({"t"}))}
    assert [one.inner_order for one in others["s->o"]] == [True, True]


def test_ranks_stay_and_shares_follow_when_values_are_spread_in_another_way() -> None:
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("a", "k > 0").output("o", worth((0, 50, 0.2), (50, 100, 1.0)))
    network = new.build()
    first = flow_graph(network, Statistics({"a": 1.0}, {}, {"s": UNIFORM}), {"s": 10.0}, by_value=True)
    skewed = {"value": Histogram.of([(0, 50, 0.1), (50, 100, 0.9)])}
    later = flow_graph(network, Statistics({"a": 1.0}, {}, {"s": skewed}), {"s": 10.0}, by_value=True)
    places = ranked_locations(first)
    (place,) = respread(places, later)
    assert [one.share for one in place.order] == pytest.approx([0.1, 0.9])
    assert [one.start for one in place.order] == [one.start for one in places[0].order]
    (blind,) = respread(places, flow_graph(network, Statistics({"a": 1.0}), {"s": 10.0}, by_value=True))
    assert ([one.share for one in blind.order], blind.unknown) == ([0.0, 0.0], 1.0)
    at_random = (RankedLocation("s"),)
    assert respread(at_random, later) == at_random


def test_a_plan_becomes_thresholds_place_by_place() -> None:
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("a", "k > 0").output("o", worth((0, 50, 0.2), (50, 100, 1.0)))
    graph = flow_graph(new.build(), Statistics({"a": 1.0}, {}, {"s": UNIFORM}), {"s": 10.0}, by_value=True)
    places = (*ranked_locations(graph), RankedLocation("other"))
    half = DropPlan("p", (Drop("s", 0.25, 0.25, (ValueRange(Cell(0, 50), 0.5),), "value"),), (), 1, 1, 1)
    assert thresholds(half, places) == {"s": pytest.approx(60 / LEVELS), "other": 0.0}
    nearly = tuple(ValueRange(Cell(low, low + 50), 1 - 1e-10) for low in (0, 50))
    assert thresholds(DropPlan("p", (Drop("s", 1.0, 1.0, nearly),), (), 1, 1, 1), places)["s"] == 1.0
    at_random = DropPlan("p", (Drop("other", 0.7, 0.4),), (), 1, 1, 1)
    assert thresholds(at_random, places) == {"s": 0.0, "other": 0.7}


def test_a_learner_without_places_by_value_learns_nothing() -> None:
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("a", "k > 0").output("o", worth((0, 50, 0.2), (50, 100, 1.0)))
    network, known = new.build(), Statistics({"a": 1.0}, {}, {"s": UNIFORM})
    blind = ranked_locations(flow_graph(network, known, {"s": 10.0}))
    learner = ValueLearner(network, known, {"s": 10.0}, blind)
    assert learner.valued == {}
    assert not learner.observe("s", [1, 2])
    seeing = ranked_locations(flow_graph(network, known, {"s": 10.0}, by_value=True))
    assert list(ValueLearner(network, known, {"s": 10.0}, seeing).valued) == ["s"]


# --- what is known of values ------------------------------------------------------------------------------------------


def test_more_cells_than_steps_share_them_in_proportion() -> None:
    order = ranked_order([(Cell(i, i + 1), 3.0 if i == 7 else 1.0) for i in range(298)])
    assert [LEVELS * order[i].width for i in (0, 7)] == pytest.approx([240 / 300, 720 / 300])
    assert LEVELS * order[-1].start == pytest.approx(240 * 299 / 300)


def test_cells_without_a_share_hold_nothing_and_lose_nothing() -> None:
    low, high = Cell(0, 10), Cell(10, 20)
    place = RankedLocation("s", "v", ranked_order([(low, 0.5), (high, 0.5)]))
    assert [one.share for one in place.with_shares({high: 0.4}).order] == [0.0, 0.4]
    assert place.with_shares({high: 0.4}).unknown == pytest.approx(0.6)
    assert place.threshold({low: 0.5}) == 60 / LEVELS
    assert place.threshold({}) == 0.0
    cell = RankedCell(low, 0.0, 0.5, 0.5)
    assert (cell.holds(0.0), cell.holds(5.0), cell.holds(10.0), cell.inner_order) == (True, True, True, True)
    assert not RankedCell(low, 0.0, 0.5, 0.5, low_in=False, high_in=False).holds(0.0)


@pytest.mark.parametrize(
    ("counts", "known", "has_drifted"),
    [
        ([112, 88], Histogram.uniform(0, 20), False),  # 6 % apart; of 200 tuples chance moves 2·√(2/200)/2 = 10 %
        ([124, 76], Histogram.uniform(0, 20), True),  # 12 %
        ([510_000, 490_000], Histogram.uniform(0, 20), False),  # 1 %
        ([530_000, 470_000], Histogram.uniform(0, 20), True),  # 3 %
        ([500_000, 500_000], Histogram.uniform(0, 40), False),  # half of what is known lies elsewhere
        ([900_000, 100_000], Histogram.of([(0, 10, 0.9), (10, 20, 0.1)]), False),
        ([0, 0], Histogram.of([(0, 10, 0.9), (10, 20, 0.1)]), False),
    ],
)
def test_a_stream_has_drifted_beyond_2_per_cent_and_chance(
    counts: list[int], known: Histogram, has_drifted: bool
) -> None:
    learnt = LearntHistogram([Cell(0, 10), Cell(10, 20)])
    learnt.observe(counts)
    assert learnt.has_drifted_from(known) is has_drifted


def test_mostly_unknown_values_count_as_well() -> None:
    learnt = LearntHistogram([Cell(0, 10), Cell(10, 20), Cell(20, 30)])
    learnt.observe([10, 30, 0], unknown=160)
    assert learnt.shares == pytest.approx({Cell(0, 10): 0.05, Cell(10, 20): 0.15, Cell(20, 30): 0.0})
    assert learnt.histogram.bins[2][2] == pytest.approx(1e-6, rel=1e-3), "a millionth of what was seen"
    learnt.observe([0, 0, 0], unknown=100)
    assert learnt.shares[Cell(10, 20)] == pytest.approx(27 / (36 + 144 + 100))


def test_outputs_that_can_go_by_value_hide_no_others() -> None:
    new = NetworkBuilder("two")
    s = new.stream("s", COLUMNS)
    s.output("able", worth((0, 50, 0.2), (50, 100, 1.0)))
    s.map("m", {"value": "value * 2"}).output("unable", worth((0, 50, 0.2), (50, 100, 1.0)))
    s.output("plain")
    network, known = new.build(), Statistics({}, {}, {"s": UNIFORM})
    assert list(not_by_value(network, known, {"s": 1.0})) == ["unable"]
