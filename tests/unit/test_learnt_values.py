"""Values of which a spec says nothing: believed, learnt, or told to be beyond reach."""

from __future__ import annotations

import pytest

from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.ranks import ranked_locations
from streamshed.planning.values import (
    Beliefs,
    LearntHistogram,
    ValueLearner,
    believed_values,
    even_histogram,
    not_by_value,
    value_notes,
)
from streamshed.qos import Cell, Histogram, Qos, ValueGraph

SLOW_MATTERS = ValueGraph.of("speed", [(0, 1.0), (20, 1.0), (20, 0.1), (100, 0.1)])
COLUMNS = {"ts": "timestamp", "car": "bigint", "speed": "double", "kind": "string"}
LOW, HIGH = Cell(0, 10), Cell(10, 20)


def network(column: str = "speed", *, computed: bool = False) -> Network:
    new = NetworkBuilder("one")
    rows = new.stream("reports", COLUMNS, time="ts")
    if computed:
        rows = rows.map("faster", {column: "speed * 2"})
    value = ValueGraph(column, SLOW_MATTERS.points)
    rows.filter("some", f"{column} IS NOT NULL").output("alarms", Qos(value=value))
    return new.build()


def test_nothing_known_is_believed_to_be_even_and_a_histogram_of_the_spec_stays() -> None:
    beliefs = believed_values(network(), Statistics())
    assert beliefs.believed == {("reports", "speed")}
    assert beliefs.statistics.histograms["reports"]["speed"] == even_histogram([SLOW_MATTERS])
    known = Statistics(histograms={"reports": {"speed": Histogram.uniform(0, 90)}})
    assert believed_values(network(), known) == Beliefs(known)


def test_a_network_without_value_graphs_needs_no_beliefs() -> None:
    new = NetworkBuilder("plain")
    new.stream("s", COLUMNS).filter("a", "speed > 1").output("out")
    assert believed_values(new.build(), Statistics()).believed == frozenset()


def test_even_pieces_of_the_graph_all_beyond_each_end_and_peaks_alone() -> None:
    graph = ValueGraph.of("v", [(0, 0.2), (50, 0.2), (50, 1.0), (50, 0.2), (100, 0.2)])
    fifth = pytest.approx(1 / 5)
    assert even_histogram([graph]).bins == (
        (-1e100, 0, fifth),
        (0, 50, fifth),
        (50, 50, fifth),
        (50, 100, fifth),
        (100, 1e100, fifth),
    )


def test_what_cannot_go_by_value_says_why() -> None:
    rates = {"reports": 1.0}
    assert not_by_value(network(), Statistics(), rates) == {"alarms": "there is no histogram of reports.speed"}
    assert not_by_value(network(), believed_values(network(), Statistics()).statistics, rates) == {}
    computed = network("faster", computed=True)
    beliefs = believed_values(computed, Statistics())
    assert beliefs.believed == frozenset()
    (reason,) = not_by_value(computed, beliefs.statistics, rates).values()
    assert reason == "faster is computed on the way: tuples of the streams do not have it"
    text = network("kind")
    (reason,) = not_by_value(text, believed_values(text, Statistics()).statistics, rates).values()
    assert reason == "kind is no number, but string"


def test_a_run_says_what_it_has_to_learn_and_what_it_never_can() -> None:
    rates = {"reports": 1.0}
    beliefs = believed_values(network(), Statistics())
    assert list(value_notes(network(), beliefs, rates)) == [
        "How reports.speed is spread is not known; it is learnt from the stream."
    ]
    computed = network("faster", computed=True)
    assert list(value_notes(computed, believed_values(computed, Statistics()), rates)) == [
        "No drop goes by the value graph of alarms, because "
        "faster is computed on the way: tuples of the streams do not have it."
    ]


def test_a_column_that_lost_to_another_one_says_so() -> None:
    new = NetworkBuilder("two")
    rows = new.stream("s", {"a": "double", "b": "double"})
    for name, weight in (("a", 1.0), ("b", 5.0)):
        value = ValueGraph.of(name, [(0, 0), (1, 1)])
        rows.filter(f"f{name}", f"{name} > 0").output(f"out_{name}", Qos(value=value, weight=weight))
    both = new.build()
    found = not_by_value(both, believed_values(both, Statistics()).statistics, {"s": 1.0})
    assert list(found) == ["out_a"]
    assert "another column" in found["out_a"]


def test_counts_replace_beliefs_and_old_ones_fade() -> None:
    learnt = LearntHistogram([LOW, HIGH])
    assert learnt.shares == {}
    assert [share for *_, share in learnt.histogram.bins] == [0.5, 0.5]
    learnt.observe([100, 0])
    learnt.observe([0, 0])
    assert learnt.shares == {LOW: 1.0, HIGH: 0.0}
    assert learnt.histogram.mass(HIGH) > 0, "the cell stays, and may fill up"
    learnt.observe([0, 110])
    assert learnt.shares == pytest.approx({LOW: 90 / 200, HIGH: 110 / 200})


def test_values_in_no_cell_are_missing_from_the_shares() -> None:
    learnt = LearntHistogram([LOW, HIGH])
    learnt.observe([30, 50], unknown=20)
    assert learnt.shares == pytest.approx({LOW: 0.3, HIGH: 0.5})
    assert [share for *_, share in learnt.histogram.bins] == pytest.approx([0.375, 0.625])


def test_a_drift_is_more_than_chance_and_more_than_two_per_cent() -> None:
    even = Histogram.of([(0, 10, 1), (10, 20, 1)])
    few, many, moved = (LearntHistogram([LOW, HIGH]) for _ in range(3))
    few.observe([60, 40])  # with 100 tuples, 2 · sqrt(2 / 100) / 2 = 14 % may be chance
    assert not few.has_drifted_from(even)
    many.observe([51_500, 48_500])
    assert not many.has_drifted_from(even)
    moved.observe([53_000, 47_000])
    assert moved.has_drifted_from(even)
    assert not LearntHistogram([LOW, HIGH]).has_drifted_from(even)


def learner(statistics: Statistics | None = None) -> ValueLearner:
    known = believed_values(network(), statistics or Statistics({"some": 1e-5})).statistics
    graph = flow_graph(network(), known, {"reports": 1.0}, by_value=True)
    return ValueLearner(network(), known, {"reports": 1.0}, ranked_locations(graph))


def test_a_stream_is_counted_in_the_cells_of_its_ranks_and_renews_the_statistics() -> None:
    values = learner()
    column, order = values.valued["reports"]
    assert column == "speed"
    # Worth 0.1 first, then 1: the piece beyond the lower end is as good as that end.
    assert [(one.cell.low, one.cell.high) for one in order] == [(20, 100), (100, 1e100), (-1e100, 0), (0, 20)]
    assert not values.observe("reports", [2_500] * 4)
    assert values.observe("reports", [90_000, 0, 0, 10_000])
    histogram = values.statistics.histograms["reports"]["speed"]
    assert histogram.mass(Cell(0, 20)) == pytest.approx(12_250 / 109_000)
    renewals = sum(values.observe("reports", [90_000, 0, 0, 10_000]) for _ in range(100))
    assert 0 < renewals < 10, "each time that the difference is more than 2 %"
    assert not values.observe("reports", [])
    assert not values.observe("others", [1, 2, 3, 4])


def test_streams_that_no_drop_tells_apart_are_not_counted() -> None:
    graph = flow_graph(network(), Statistics(), {"reports": 1.0})
    assert ValueLearner(network(), Statistics(), {"reports": 1.0}, ranked_locations(graph)).valued == {}


def test_a_predicate_beyond_the_graph_cuts_what_lies_there() -> None:
    """What the filter rejects is given up first, also where the value graph says nothing about it."""
    new = NetworkBuilder("far")
    rows = new.stream("reports", COLUMNS)
    rows.filter("slow", "speed < 300").output("alarms", Qos(value=SLOW_MATTERS))
    known = believed_values(new.build(), Statistics({"slow": 1e-5}, {"slow": 0.5})).statistics
    graph = flow_graph(new.build(), known, {"reports": 1.0}, by_value=True)
    values = ValueLearner(
        new.build(), known, {"reports": 1.0}, ranked_locations(graph, unordered=frozenset({"reports"}))
    )
    _, order = values.valued["reports"]
    assert (order[0].cell.low, order[0].cell.high) == (300, 1e100)
    assert {256 * one.width for one in order} == {48.0}, "five cells share 240 steps evenly"
