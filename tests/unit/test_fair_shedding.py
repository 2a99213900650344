"""Fair shedding step by step: cost model, windows, SIC, policies, the shedder and water levels, by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from streamshed.errors import InvalidValueError
from streamshed.load import Admission
from streamshed.network import NetworkBuilder, Statistics
from streamshed.planning import FairPlanner
from streamshed.planning.fair import (
    INTERVAL_S,
    SMOOTHED_OVER,
    WINDOW_S,
    Batch,
    Batches,
    Derived,
    Fairness,
    FairPolicy,
    InputBuffer,
    ObservedSic,
    OverloadDetector,
    ProportionalPolicy,
    RandomPolicy,
    ResultSic,
    Shedder,
    SourceWindow,
    TupleCostModel,
    WindowedSum,
    derive,
    jain_index,
    source_sic,
    water_fill,
    water_level,
)
from streamshed.planning.fair.observed import ways

# --- the cost of a tuple ----------------------------------------------------------------------------------------------


def test_the_cost_is_the_time_at_work_over_the_tuples() -> None:
    model = TupleCostModel(smoothed_over=3)
    assert model.cost_s is None
    model.observe(0.5, 10, idle_s=0.3)
    model.observe(0.4, 30)
    assert model.cost_s == pytest.approx(0.6 / 40), "sums, not a mean of means"
    model.observe(1.0, 20)
    model.observe(0.1, 10)  # the first one is forgotten
    assert model.cost_s == pytest.approx(1.5 / 60)


@pytest.mark.parametrize(
    ("elapsed_s", "processed", "idle_s"), [(1.0, 0, 0.0), (1.0, 5, 1.0), (1.0, 5, 2.0), (math.inf, 5, 0.0)]
)
def test_an_interval_without_work_says_nothing(elapsed_s: float, processed: int, idle_s: float) -> None:
    model = TupleCostModel()
    model.observe(elapsed_s, processed, idle_s=idle_s)
    assert model.cost_s is None
    model.observe(1.0, 1)
    assert model.cost_s == 1.0


def test_what_can_be_processed_is_rounded_down_but_not_for_rounding() -> None:
    model = TupleCostModel()
    model.observe(0.1, 1)
    assert model.affordable(0.3) == 3, "0.3 / 0.1 is a little less than 3"
    assert model.affordable(0.399) == 3
    assert model.affordable(0.05) == 0
    detector = OverloadDetector(0.5, model)
    assert (detector.excess(4), detector.excess(5), detector.excess(6), detector.excess(25)) == (0, 0, 1, 20)


def test_cost_models_and_detectors_refuse_nonsense() -> None:
    with pytest.raises(InvalidValueError, match="nothing to average"):
        TupleCostModel(0)
    assert TupleCostModel(1).cost_s is None
    for interval_s in (0.0, -1.0, math.inf):
        with pytest.raises(InvalidValueError, match="not a shedding interval"):
            OverloadDetector(interval_s)
    assert OverloadDetector().interval_s == 0.25


# --- windows ----------------------------------------------------------------------------------------------------------


def test_an_amount_belongs_to_the_slot_that_ends_at_or_after_it() -> None:
    sums = WindowedSum(1, window_s=1.0, slot_s=0.25)
    assert [sums.slot(time_s) for time_s in (0.0, 0.01, 0.25, 0.26, 0.75)] == [0, 1, 1, 2, 3]
    assert sums.slot(0.1 + 0.2 + 0.45) == 3, "rounding moves nothing into the next slot"
    assert (len(sums), sums.window_s, len(WindowedSum(7))) == (1, 1.0, 7)
    sums.add(0.25, 0, 1.0)
    sums.add(0.26, 0, 2.0)
    sums.add_one(1.0, 0, 4.0)
    assert sums.at(1.0).tolist() == [7.0]
    assert sums.at(1.01).tolist() == [6.0]
    assert sums.at(1.25).tolist() == [6.0]
    assert sums.at(1.26).tolist() == [4.0]
    assert sums.at(0.5).tolist() == [3.0], "what is later than the window is not in it"
    assert sums.at(1.0, since_s=0.25).tolist() == [6.0]
    assert sums.at(1.0, since_s=0.5).tolist() == [4.0]
    assert sums.at(1.0, since_s=-5.0).tolist() == [7.0]
    assert sums.at(1.0, since_s=1.0).tolist() == [0.0]


def test_a_window_is_rounded_up_to_whole_slots() -> None:
    sums = WindowedSum(1, window_s=1.1, slot_s=0.5)
    assert sums.window_s == 1.5
    assert WindowedSum(1, window_s=0.75, slot_s=0.25).window_s == 0.75
    assert WindowedSum(1, window_s=0.3, slot_s=0.1).window_s == pytest.approx(0.3)


def test_a_slot_is_cleared_when_it_is_used_again() -> None:
    sums = WindowedSum(2, window_s=1.0, slot_s=0.5)
    sums.add(0.5, [0, 1, 0], [1.0, 2.0, 3.0])
    sums.add(1.0, 1, 5.0)
    sums.add(1.5, 0, 7.0)  # in place of the first
    assert sums.at(1.5).tolist() == [7.0, 5.0]
    sums.add(0.5, 0, 100.0)
    sums.add_one(0.5, 0, 100.0)
    assert sums.at(1.5).tolist() == [7.0, 5.0], "too late"


@pytest.mark.parametrize(("window_s", "slot_s"), [(1.0, 0.0), (1.0, -1.0), (0.5, 1.0), (math.inf, 1.0)])
def test_impossible_windows_are_refused(window_s: float, slot_s: float) -> None:
    with pytest.raises(InvalidValueError, match="not a window"):
        WindowedSum(1, window_s, slot_s)


def test_the_rate_of_a_source_is_extrapolated_until_a_window_is_full() -> None:
    window = SourceWindow([[0]], window_s=2.0, slot_s=0.5)
    window.observe(0.5, [10])
    assert window.per_window(0.5).tolist() == [40.0]
    window.observe(1.0, [30])
    assert window.per_window(1.0).tolist() == [80.0]
    assert window.per_window(0.75 + 0.5).tolist() == [64.0], "1.25 s so far"
    for step in (3, 4, 5):
        window.observe(step * 0.5, [20])
    assert window.per_window(2.5).tolist() == [90.0], "the last 2 s in full"


def test_a_source_that_begins_late_counts_from_its_beginning() -> None:
    window = SourceWindow([[0]], window_s=2.0, slot_s=0.5)
    window.observe(100.5, [10])
    window.observe(101.0, [10])
    assert window.per_window(101.0).tolist() == [40.0]
    assert window.tuple_sic(101.0).tolist() == [1 / 40]


def test_each_query_shares_1_among_its_sources_that_send() -> None:
    window = SourceWindow([[0, 1], [1, 2], [2]], window_s=1.0, slot_s=1.0)
    window.observe(1.0, [10, 5, 0])
    assert window.query.tolist() == [0, 0, 1, 1, 2]
    assert window.source.tolist() == [0, 1, 1, 2, 2]
    assert window.tuple_sic(1.0).tolist() == pytest.approx([1 / 20, 1 / 10, 1 / 5, 0.0, 0.0])
    assert SourceWindow([], window_s=1.0).tuple_sic(1.0).tolist() == []


def test_result_sic_never_exceeds_1() -> None:
    result = ResultSic(3, window_s=2.0, slot_s=0.5)
    result.sent(0.5, [0, 1], [0.5, 0.5])
    result.arrived(1.0, [0, 1], [0.125, 0.6])
    assert result.at(1.0).tolist() == [0.25, 1.0, 1.0]
    assert result.active(1.0).tolist() == [True, True, False]
    assert result.at(2.6).tolist() == [1.0, 1.0, 1.0], "sent before the window"
    assert not result.active(2.6).any()


# --- SIC --------------------------------------------------------------------------------------------------------------


def test_the_papers_sic_of_a_source_tuple() -> None:
    """Two sources with 5 and 2 tuples in a window: 1/10 and 1/4 each, as in the paper's figure 2."""
    assert source_sic(2, [5, 2]).tolist() == [0.1, 0.25]
    assert source_sic([1, 0], [4, 4]).tolist() == [0.25, 0.0]


def test_sic_is_divided_among_steps_and_then_among_outputs() -> None:
    # The first tuple is in two windows, the second in one; a window has two results, the other none.
    found = derive([0.6, 0.4], members=[0, 0, 1], steps=[0, 1, 0], outputs=[2, 0])
    assert found.sic == pytest.approx([(0.3 + 0.4) / 2] * 2)
    assert found.used == pytest.approx(0.3)
    assert found.total == pytest.approx(1.0)
    assert Derived(np.array([0.25, 0.5]), 0.125).total == 0.875
    # A step that nothing enters puts out tuples without SIC.
    assert derive([0.5], [0], [1], [1, 1]).sic.tolist() == [0.0, 0.5]


# --- policies ---------------------------------------------------------------------------------------------------------


def test_batches_of_tuples_are_added_up() -> None:
    batches = Batches.of_tuples([3, 1, 2], [0, 0, 1, 0], [0.1, 0.2, 0.4, 0.3])
    assert batches.query.tolist() == [3, 1, 2]
    assert batches.sic.tolist() == pytest.approx([0.6, 0.4, 0.0])
    assert batches.tuples.tolist() == [3, 1, 0]
    assert len(batches) == 3
    assert batches.kept_sic(np.array([1, 0, 0])).tolist() == pytest.approx([0.2, 0.0, 0.0])


@pytest.mark.parametrize(
    ("query", "sic", "tuples", "problem"),
    [
        ([-1], [0.1], [1], "negative"),
        ([0], [0.1], [-1], "negative"),
        ([0], [math.inf], [1], "SIC is out of range"),
        ([0], [math.nan], [1], "SIC is out of range"),
        ([0], [-0.1], [1], "SIC is out of range"),
        ([0, 1], [0.1, 0.1], [1], "different length"),
        ([[0]], [[0.1]], [[1]], "different length"),
    ],
)
def test_bad_batches_are_refused(query: list, sic: list, tuples: list, problem: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(InvalidValueError, match=problem):
        Batches.of(query, sic, tuples)


def test_the_least_query_gets_its_best_batch_then_the_next_least() -> None:
    """Three queries at 0.1, 0.2 and 0.5; room for 30 of 60 tuples.

    Query 0 gets its best batch (0.3, now 0.4), query 1 its best (0.15, now 0.35), then its next (0.05, now 0.4).
    """
    waiting = Batches.of([0, 0, 1, 1, 2, 2], [0.1, 0.3, 0.05, 0.15, 0.4, 0.4], [10] * 6)
    projected = np.array([0.1, 0.2, 0.5])
    assert FairPolicy().keep(waiting, projected, 10).tolist() == [0, 10, 0, 0, 0, 0]
    assert FairPolicy().keep(waiting, projected, 20).tolist() == [0, 10, 0, 10, 0, 0]
    assert FairPolicy().keep(waiting, projected, 30).tolist() == [0, 10, 10, 10, 0, 0]
    assert FairPolicy().keep(waiting, projected, 40).tolist() == [10, 10, 10, 10, 0, 0]
    assert FairPolicy().keep(waiting, projected, 45).tolist() == [10, 10, 10, 10, 5, 0]


def test_a_tie_goes_to_who_was_served_longest_ago() -> None:
    policy = FairPolicy()
    waiting = Batches.of([0, 1, 2], [0.1, 0.1, 0.1], [10, 10, 10])
    turns = [policy.keep(waiting, np.zeros(3), 10).tolist() for _ in range(4)]
    assert turns == [[10, 0, 0], [0, 10, 0], [0, 0, 10], [10, 0, 0]]
    assert policy.keep(waiting, np.zeros(3), 20).tolist() == [0, 10, 10]
    # A query that comes later was never served.
    more = Batches.of([0, 1, 2, 3], [0.1] * 4, [10] * 4)
    assert policy.keep(more, np.zeros(4), 10).tolist() == [0, 0, 0, 10]
    # Being served while there is room for all counts as well.
    policy.keep(Batches.of([0], [0.1], [10]), np.zeros(4), 10)
    assert policy.keep(more, np.zeros(4), 20).tolist() == [0, 10, 10, 0]


def test_a_batch_that_does_not_fit_gives_way_to_what_is_worth_most_in_the_room() -> None:
    # 4 tuples of the best batch are worth 0.08, the second one 0.06.
    assert FairPolicy().keep(Batches.of([0, 0], [0.2, 0.06], [10, 3]), np.zeros(1), 4).tolist() == [4, 0]
    # 4 of them are worth 0.04 here: the second one fits, and the last place goes to a part of the first.
    assert FairPolicy().keep(Batches.of([0, 0], [0.1, 0.06], [10, 3]), np.zeros(1), 4).tolist() == [1, 3]
    # Just as much: the one that fits.
    assert FairPolicy().keep(Batches.of([0, 0], [0.15, 0.06], [10, 3]), np.zeros(1), 4).tolist() == [1, 3]
    # Of two that do not fit, the one with more SIC a tuple, though it is worth less as a whole.
    assert FairPolicy().keep(Batches.of([0, 0], [0.2, 0.15], [20, 10]), np.zeros(1), 5).tolist() == [0, 5]


def test_room_that_nobody_with_sic_needs_goes_to_batches_without() -> None:
    waiting = Batches.of([0, 1, 1], [0.0, 0.2, 0.0], [10, 5, 10])
    assert FairPolicy().keep(waiting, np.zeros(2), 5).tolist() == [0, 5, 0]
    assert FairPolicy().keep(waiting, np.zeros(2), 12).tolist() == [7, 5, 0]
    assert FairPolicy().keep(waiting, np.zeros(2), 20).tolist() == [10, 5, 5]


def test_other_policies_fill_the_room() -> None:
    waiting = Batches.of([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4], [4, 4, 4, 4])
    order = np.random.default_rng(7).permutation(4).tolist()
    kept = RandomPolicy(7).keep(waiting, np.zeros(2), 10).tolist()
    assert [kept[i] for i in order] == [4, 4, 2, 0]
    start = np.random.default_rng(7).random()
    kept = ProportionalPolicy(7).keep(waiting, np.zeros(2), 6).tolist()
    # In the order of queries: batches 0, 2, 1, 3; 1.5 tuples each, marks at the whole parts of 1.5·i + start.
    marks = [0, *(math.floor(1.5 * i + start) for i in (1, 2, 3)), 6]
    assert [kept[i] for i in (0, 2, 1, 3)] == [b - a for a, b in pairwise(marks)]


# --- the shedder ------------------------------------------------------------------------------------------------------


def test_a_cut_batch_is_worth_its_share() -> None:
    batch = Batch(1, 0.3, 12, "payload", is_derived=True)
    assert batch.cut(12) is batch
    assert batch.cut(4) == Batch(1, pytest.approx(0.1), 4, "payload", is_derived=True)


def test_the_buffer_counts_tuples_in_both_halves() -> None:
    buffer = InputBuffer()
    first, second, third = Batch(0, 0.1, 5), Batch(1, 0.1, 7), Batch(2, 0.1, 9)
    buffer.put(first)
    buffer.put(second)
    assert buffer.lock() == (first, second)
    buffer.put(third)
    assert (len(buffer), buffer.take()) == (21, None)
    buffer.unlock((second,))
    assert len(buffer) == 16
    assert (buffer.take(), len(buffer)) == (second, 9)
    assert (buffer.take(), len(buffer)) == (third, 0)
    assert buffer.take() is None
    buffer.put(first)
    assert buffer.lock() == (first,), "the second buffer was emptied"


def test_a_decision_tells_what_each_query_lost() -> None:
    shedder = Shedder(3, detector=OverloadDetector(1.0))
    for query, sic, tuples in ((0, 0.2, 10), (2, 0.3, 10), (0, 0.1, 10)):
        shedder.put(Batch(query, sic, tuples))
    outcome = shedder.check(1.0, elapsed_s=1.0, processed=15)
    assert outcome is not None
    # Query 0 gets 0.2 first, as both have nothing and it is the first; then query 2 a half of its batch.
    assert outcome.kept.tolist() == [10, 0, 5]
    assert outcome.dropped.tolist() == [10, 0, 5]
    assert outcome.kept_sic.tolist() == pytest.approx([0.2, 0.0, 0.15])
    assert outcome.dropped_sic.tolist() == pytest.approx([0.1, 0.0, 0.15])
    assert [shedder.take(1.0), shedder.take(1.0), shedder.take(1.0)] == [
        Batch(0, 0.2, 10),
        Batch(2, pytest.approx(0.15), 5),
        None,
    ]
    assert shedder.projected(1.0).tolist() == pytest.approx([0.2, 0.0, 0.15])


def test_idle_time_is_taken_off_what_a_node_measured() -> None:
    shedder = Shedder(1, detector=OverloadDetector(1.0))
    shedder.put(Batch(0, 0.1, 100))
    assert shedder.check(1.0, elapsed_s=1.0, processed=50, idle_s=0.5) is None, "100 tuples in 1 s of work"
    shedder.put(Batch(0, 0.1, 1))
    outcome = shedder.check(2.0, elapsed_s=1.0, processed=100)
    assert outcome is not None
    assert outcome.dropped.tolist() == [1], "150 in 1.5 s"


def test_what_was_taken_counts_for_a_window() -> None:
    shedder = Shedder(1, window_s=2.0)
    for sic in (0.1, 0.2):
        shedder.put(Batch(0, sic, 1))
    shedder.take(1.0)
    shedder.take(2.0)
    assert shedder.projected(2.0).tolist() == pytest.approx([0.3])
    assert shedder.projected(3.25).tolist() == pytest.approx([0.2])
    assert shedder.projected(4.25).tolist() == [0.0]


def test_other_nodes_are_expected_to_go_on_as_this_one_does() -> None:
    """projected = reported + e·(taken now − taken then), e = reported / taken then from 1 to 4."""
    shedder = Shedder(4, window_s=10.0)
    for query, sic in ((0, 0.2), (1, 0.02), (2, 0.3)):
        shedder.put(Batch(query, sic, 1))
        shedder.take(1.0)
    shedder.report(1.0, [0, 1, 2, 3], [0.6, 0.4, 0.15, 0.5])
    assert shedder.projected(1.0).tolist() == pytest.approx([0.6, 0.4, 0.15, 0.5])
    for query in range(4):
        shedder.put(Batch(query, 0.05, 1))
        shedder.take(2.0)
    # e = 3 for the first; 20 would be too much for the second; 0.5 too little for the third; nothing known of the last.
    assert shedder.projected(2.0).tolist() == pytest.approx([0.6 + 3 * 0.05, 0.4 + 4 * 0.05, 0.15 + 0.05, 0.5 + 0.05])
    # Over the second window a report fades: after one and a half, half of it is left, and nothing of what was taken.
    assert shedder.projected(16.0).tolist() == pytest.approx([0.0, (0.4 - 4 * 0.02) / 2, 0.0, 0.5 / 2])
    assert shedder.projected(13.0)[3] == pytest.approx(0.5 * 0.8)
    assert shedder.projected(21.0).tolist() == pytest.approx([0.0] * 4)


def test_derived_tuples_are_spared_if_asked() -> None:
    for spares, kept in ((True, [10, 5]), (False, [10, 5])):
        shedder = Shedder(2, detector=OverloadDetector(1.0), spares_derived=spares)
        shedder.put(Batch(0, 0.1, 10, is_derived=True))
        shedder.put(Batch(1, 0.1, 10))
        outcome = shedder.check(1.0, 1.0, 15)
        assert outcome is not None
        assert outcome.kept.tolist() == kept
    for spares, kept in ((True, [5, 10]), (False, [10, 5])):
        shedder = Shedder(2, detector=OverloadDetector(1.0), spares_derived=spares)
        shedder.put(Batch(0, 0.1, 10))
        shedder.put(Batch(1, 0.1, 10, is_derived=True))
        outcome = shedder.check(1.0, 1.0, 15)
        assert outcome is not None
        assert outcome.kept.tolist() == kept


def test_what_derived_tuples_bring_counts_before_those_of_sources() -> None:
    """The derived batch lifts query 0 to 0.5, so the room that is left goes to query 1."""
    shedder = Shedder(2, detector=OverloadDetector(1.0), spares_derived=True)
    shedder.put(Batch(0, 0.5, 2, is_derived=True))
    shedder.put(Batch(0, 0.3, 10))
    shedder.put(Batch(1, 0.2, 10))
    outcome = shedder.check(1.0, 1.0, 12)
    assert outcome is not None
    assert outcome.kept.tolist() == [2, 10]


# --- measures ---------------------------------------------------------------------------------------------------------


def test_fairness_of_three_queries() -> None:
    found = Fairness.of([0.2, 0.4, 0.9])
    assert (found.queries, found.mean, found.least) == (3, pytest.approx(0.5), 0.2)
    assert found.spread == pytest.approx(0.7)
    assert found.deviation == pytest.approx(math.sqrt((0.09 + 0.01 + 0.16) / 3))
    assert found.jain == pytest.approx(2.25 / (3 * (0.04 + 0.16 + 0.81)))
    assert Fairness.of([]) == Fairness(0, 1.0, 1.0, 0.0, 0.0, 1.0)
    assert Fairness.of([[0.5], [0.5]]) == Fairness(2, 0.5, 0.5, 0.0, 0.0, 1.0)
    assert jain_index([4.0, 0.0]) == 0.5


# --- SIC of a running network -----------------------------------------------------------------------------------------


def test_all_ways_through_a_network() -> None:
    new = NetworkBuilder("diamond")
    s, t = new.stream("s", {"v": "int"}), new.stream("t", {"v": "int"})
    s.filter("a", "v > 0").union("u", s.filter("b", "v < 0"), t).output("o")
    t.output("p")
    network = new.build()
    assert [(way.output, way.entry, way.arcs) for way in ways(network)] == [
        ("o", "s", ("s", "s->a", "a->u", "u->o")),
        ("o", "s", ("s", "s->b", "b->u", "u->o")),
        ("o", "t", ("t", "t->u", "u->o")),
        ("p", "t", ("t", "t->p")),
    ]
    sic = ObservedSic(network, window_s=1.0)
    sic.observe(0.25, {"s": (100, 80), "s->a": (80, 20), "t": (10, 10), "t->u": (10, 5), "t->p": (10, 1)})
    assert sic.at(0.25) == pytest.approx({"o": ((0.8 * 0.25 + 0.8) / 2 + 0.5) / 2, "p": 0.1})
    sic.observe(1.0, {"s": (300, 300), "t": (0, 0)})
    assert sic.at(1.0)["o"] == pytest.approx((((0.2 + 0.8) * 100 + 2 * 300) / 800 + 0.5) / 2), "by tuples sent"
    assert sic.at(1.5) == {"o": 1.0}, "the first batch has left the window"
    assert sic.overall() == sic.at(1.0)


# --- water levels -----------------------------------------------------------------------------------------------------


def level(costs: list[float], capacity: float, **given: list[float]) -> float:
    columns = {"slopes": 1.0, "offsets": 0.0, "low": 0.0, "high": 1.0}
    values = [np.array(given.get(name, [default] * len(costs))) for name, default in columns.items()]
    return water_level(np.array(costs), *values, capacity)


def test_the_water_level_by_hand() -> None:
    assert level([1.0, 3.0], 2.0) == 0.5
    assert level([1.0, 3.0], 4.0) == math.inf
    assert level([1.0, 3.0], 5.0) == math.inf
    assert level([1.0, 3.0], 0.0) == 0.0
    assert level([1.0, 3.0], -1e-9) == -math.inf
    assert level([], 1.0) == math.inf
    # The first is full at t = 0.5; then 1 + 3·t = 2.8 at t = 0.6.
    assert level([1.0, 3.0], 2.8, slopes=[2.0, 1.0]) == pytest.approx(0.6)
    # The second begins at t = 0.4: t + 3·(t − 0.4) = 1 at t = 0.55.
    assert level([1.0, 3.0], 1.0, offsets=[0.0, -0.4]) == pytest.approx(0.55)
    # One has 0.5 in any case, 1 s of it: 1.5 + 1·t = 2 up to its low end.
    assert level([1.0, 3.0], 1.9, low=[0.0, 0.5]) == pytest.approx(0.4)
    assert level([1.0, 3.0], 1.0, low=[0.0, 0.5]) == -math.inf
    # One that cannot rise above 0.25: t + 0.75 = 1.5 at t = 0.75.
    assert level([1.0, 3.0], 1.5, high=[1.0, 0.25]) == pytest.approx(0.75)
    # One without slope is where its offset is, and one at low = high stays.
    assert level([1.0, 3.0], 1.5, slopes=[1.0, 0.0], offsets=[0.0, 0.25]) == pytest.approx(0.75)
    assert level([1.0, 3.0], 1.5, low=[0.0, 0.25], high=[1.0, 0.25]) == pytest.approx(0.75)
    # Where nothing rises between two knees, the level is the far end of the flat piece.
    assert level([1.0, 1.0], 1.0, offsets=[0.0, -2.0]) == pytest.approx(2.0)


def test_water_filling_with_all_at_once() -> None:
    """Weights 1 and 2, one with 0.3 already, least shares 0.5 and 0.1, for 10 s and 20 s; 14 s there are.

    (0.3 + 0.5·x)/1 = (y·1.0)/2 = t: x = 2t − 0.6, y = 2t; 10·max(0.5, x) + 20·y = 14: t = 0.225, x stays at 0.5.
    """
    found = water_fill([10, 20], 14, weights=[1, 2], settled=[0.3, 0.0], pending=[0.5, 1.0], minimum=[0.5, 0.1])
    assert found.tolist() == pytest.approx([0.5, 0.45])
    found = water_fill([10, 20], 24, weights=[1, 2], settled=[0.3, 0.0], pending=[0.5, 1.0], minimum=[0.0, 0.1])
    # 20t − 6 + 40t = 24 at t = 0.5.
    assert found.tolist() == pytest.approx([0.4, 1.0])
    assert water_fill([4, 4], 2, minimum=[0.5, 0.25]).tolist() == pytest.approx([1 / 3, 1 / 6])
    assert water_fill([4, 4], -1, minimum=[0.5, 0.25]).tolist() == [0.0, 0.0]
    assert water_fill([4, 4], 3, minimum=[0.5, 0.25]).tolist() == [0.5, 0.25]
    assert water_fill([0, 4], 2, minimum=[0.5, 0.75]).tolist() == [1.0, 0.5], "what costs nothing is kept even so"
    assert water_fill([2, 4], 2, pending=[0.0, 1.0]).tolist() == [1.0, 0.5], "what is worth nothing costs nobody"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"costs_s": [-1.0]}, "a cost"),
        ({"costs_s": [math.nan]}, "a cost"),
        ({"weights": 0.0}, "a weight"),
        ({"weights": math.inf}, "a weight"),
        ({"minimum": 1.1}, "a minimum share"),
        ({"minimum": -0.1}, "a minimum share"),
        ({"settled": -0.1}, "a settled SIC"),
        ({"pending": -0.1}, "a pending SIC"),
    ],
)
def test_bad_claims_are_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidValueError, match=problem):
        water_fill(**{"costs_s": [1.0], "capacity_s": 1.0, **given})  # type: ignore[arg-type]
    assert water_fill([0.0], 1.0, minimum=1.0, settled=0.0, pending=0.0).tolist() == [1.0]


# --- details ----------------------------------------------------------------------------------------------------------


def test_the_papers_constants() -> None:
    """A window of 10 s, shedding four times a second, and a cost averaged over 10 s."""
    assert (WINDOW_S, INTERVAL_S, SMOOTHED_OVER) == (10.0, 0.25, 40)


def test_single_tuples_count() -> None:
    new = NetworkBuilder("one")
    new.stream("s", {"v": "int"}).filter("a", "v > 0").output("o")
    sic = ObservedSic(new.build())
    sic.observe(0.25, {"s": (1, 0)})
    assert sic.at(0.25) == {"o": 0.0}
    sic.observe(0.5, {"s": (1, 1), "s->a": (0, 0)})
    assert sic.at(0.5) == {"o": 0.5}, "where nothing came nothing was lost"
    window = SourceWindow([[0, 1]], window_s=1.0, slot_s=1.0)
    window.observe(1.0, [1, 1])
    assert window.tuple_sic(1.0).tolist() == [0.5, 0.5]
    assert FairPolicy().keep(Batches.of([0, 0], [0.2, 0.1], [4, 4]), np.zeros(1), 5).tolist() == [4, 1]


def test_a_shedder_asks_the_policy_that_it_was_given() -> None:
    policy = RandomPolicy(3)
    shedder = Shedder(1, policy, OverloadDetector(1.0))
    assert shedder.policy is policy
    assert isinstance(Shedder(1).policy, FairPolicy)
    for _ in range(9):
        shedder.put(Batch(0, 0.1, 1))
    outcome = shedder.check(1.0, 1.0, 4)
    assert outcome is not None
    assert outcome.kept.tolist() == [4]


def test_policies_draw_from_seed_0_unless_told_otherwise() -> None:
    waiting = Batches.of(range(50), [0.1] * 50, [1] * 50)
    for policy in (RandomPolicy, ProportionalPolicy):
        assert policy().keep(waiting, np.zeros(50), 7).tolist() == policy(0).keep(waiting, np.zeros(50), 7).tolist()
    assert (
        RandomPolicy(1).keep(waiting, np.zeros(50), 7).tolist()
        != RandomPolicy().keep(waiting, np.zeros(50), 7).tolist()
    )


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, 1e15])
def test_sic_is_compared_at_any_scale(scale: float) -> None:
    waiting = Batches.of([0, 1, 1], np.array([0.3, 0.2, 0.1]) * scale, [10, 10, 10])
    projected = np.array([0.25, 0.0]) * scale
    assert FairPolicy().keep(waiting, projected, 20).tolist() == [0, 10, 10]


def test_water_fills_up_from_what_is_settled() -> None:
    assert water_fill([1, 1], 1, settled=[0.5, 0.0]).tolist() == pytest.approx([0.25, 0.75])


def test_a_fair_plan_drops_at_the_entry_even_if_nothing_costs_there() -> None:
    new = NetworkBuilder("free entry")
    s = new.stream("s", {"v": "int"})
    s.filter("a", "v > 0").output("o")
    s.filter("b", "v > 1").output("p")
    known = Statistics({"a": 1.0, "b": 3.0})
    plan = FairPlanner().plan(new.build(), known, {"s": 10.0}, Admission(10.0))
    assert {drop.arc: drop.fraction for drop in plan.drops} == pytest.approx({"s": 0.75})
    plan = FairPlanner({"o": 2.0}).plan(new.build(), known, {"s": 10.0}, Admission(10.0))
    assert {drop.arc: drop.fraction for drop in plan.drops} == pytest.approx({"s": 0.6, "s->b": 0.8})
