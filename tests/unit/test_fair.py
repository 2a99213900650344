"""SIC values, the tuple cost model, the shedder's buffer, and water filling, to the digit."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.errors import InvalidValueError, StreamshedError, UnknownNameError
from streamshed.load import Admission
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import FairPlanner
from streamshed.planning.fair import (
    POLICIES,
    Batch,
    Batches,
    Fairness,
    FairPolicy,
    InputBuffer,
    OverloadDetector,
    ResultSic,
    Shedder,
    SourceWindow,
    TupleCostModel,
    WindowedSum,
    derive,
    jain_index,
    policy_named,
    water_fill,
)
from streamshed.qos import Qos

# --- the tuple cost model ---------------------------------------------------------------------------------------------


def test_the_papers_example_of_the_cost_model() -> None:
    model = TupleCostModel()
    model.observe(elapsed_s=0.3, processed=5000)
    assert model.cost_s == pytest.approx(0.06e-3)
    assert model.affordable(0.25) == 4166
    detector = OverloadDetector(0.25, model)
    assert detector.excess(5000) == 834
    assert detector.excess(4166) == 0


def test_cost_is_smoothed_over_40_intervals() -> None:
    model = TupleCostModel()
    for _ in range(40):
        model.observe(0.25, 1000)
    assert model.affordable(0.25) == 1000
    model.observe(0.25, 250)  # one slow interval of 40 counts little
    assert model.affordable(0.25) == 981
    for _ in range(39):
        model.observe(0.25, 250)
    assert model.affordable(0.25) == 250  # and after 40 the past is forgotten


def test_waiting_for_tuples_is_no_cost() -> None:
    model = TupleCostModel()
    model.observe(0.25, 0)
    assert model.affordable(0.25) is None
    model.observe(0.25, 10, idle_s=0.24)
    assert model.affordable(0.25) == 250
    model.observe(0.25, 10, idle_s=0.25)  # no time at work: says nothing
    assert model.affordable(0.25) == 250


# --- SIC --------------------------------------------------------------------------------------------------------------


def test_source_tuples_of_a_window_sum_to_one_per_query() -> None:
    window = SourceWindow([[0, 1, 2], [1], [2], []], window_s=2.0)
    sent = np.array([0.0, 0.0, 0.0])
    for step in range(1, 17):
        counts = np.array([100 + step, 3, 0])
        window.observe(step * 0.25, counts)
        sent += counts if step > 8 else 0
    assert window.per_window(4.0).tolist() == sent.tolist()
    totals = np.bincount(window.query, weights=window.tuple_sic(4.0) * sent[window.source], minlength=4)
    # The third source is silent: it is not counted for the first query, and the third has nothing to lose.
    assert totals == pytest.approx([1.0, 1.0, 0.0, 0.0])


def test_a_silent_window_forgets_the_rate_and_comes_back() -> None:
    window = SourceWindow([[0]], window_s=1.0)
    assert window.tuple_sic(0.0).tolist() == [0.0]
    window.observe(0.25, [100])
    assert window.tuple_sic(0.25).tolist() == [1 / 400]
    assert window.tuple_sic(9.0).tolist() == [0.0]
    window.observe(9.25, [10])
    assert window.per_window(9.25).tolist() == [10.0]


def test_operators_hand_sic_on() -> None:
    each = np.full(4, 0.25)
    mapped = derive(each, range(4), range(4), np.ones(4))
    assert (mapped.sic.tolist(), mapped.used) == ([0.25] * 4, 0.0)
    filtered = derive(each, range(4), range(4), [1, 0, 0, 1])
    assert (filtered.sic.tolist(), filtered.used) == ([0.25, 0.25], 0.5)
    sliding = derive(each, [0, 0, 1, 1, 2, 3], [0, 1, 0, 1, 1, 2], [1, 1, 1])
    assert sliding.sic.tolist() == [0.25, 0.5, 0.25]
    joined = derive(each, [0, 2, 0, 3], [0, 0, 1, 1], [1, 1])  # tuple 1 finds no partner
    assert (joined.sic.tolist(), joined.used) == ([0.375, 0.375], 0.25)
    nothing = derive([], [], [], [])
    assert (nothing.sic.tolist(), nothing.used) == ([], 0.0)


def test_members_and_steps_must_be_pairs() -> None:
    with pytest.raises(InvalidValueError, match="no pairs"):
        derive([1.0], [0], [0, 1], [1, 1])


def test_result_sic_is_what_arrived_of_what_was_sent() -> None:
    result = ResultSic(3, window_s=1.0)
    for step in range(1, 9):
        result.sent(step * 0.25, [0, 1], [0.3, 0.25])
        result.arrived(step * 0.25, [0, 1], [0.3, 0.1])
    assert result.at(2.0) == pytest.approx([1.0, 0.4, 1.0])
    assert result.active(2.0).tolist() == [True, True, False]
    assert result.at(99.0).tolist() == [1.0, 1.0, 1.0]


def test_windowed_sums_forget_exactly() -> None:
    sums = WindowedSum(1, window_s=1.0, slot_s=0.25)
    for step in range(1, 41):
        sums.add(step * 0.25, 0, 0.1)
    assert sums.at(10.0)[0] == pytest.approx(0.4)
    assert sums.at(10.0, since_s=9.5)[0] == pytest.approx(0.2)
    assert sums.at(11.0)[0] == 0.0
    sums.add(3.0, 0, 5.0)  # much too late: its slot is in use again
    assert sums.at(10.0)[0] == pytest.approx(0.4)


def test_jains_index_and_spread() -> None:
    assert jain_index([]) == jain_index([0.0, 0.0]) == 1.0
    assert jain_index([1e-200, 1e-200]) == 1.0
    assert jain_index([1, 2, 3]) == pytest.approx(36 / 42)
    assert Fairness.of([]).jain == 1.0
    assert Fairness.of([0.2, 0.6]).spread == pytest.approx(0.4)


# --- the shedder ------------------------------------------------------------------------------------------------------


def test_arrivals_during_a_decision_wait_in_the_second_buffer() -> None:
    shedder = Shedder(2)
    shedder.put(Batch(0, 0.1, 1000, "old"))
    shedder.begin(elapsed_s=0.25, processed=600)
    shedder.put(Batch(1, 0.1, 5000, "new"))
    assert shedder.take(0.3) is None
    outcome = shedder.finish(0.3)
    assert outcome is not None
    assert (outcome.kept.tolist(), outcome.dropped.tolist()) == ([600, 0], [400, 0])
    assert outcome.kept_sic + outcome.dropped_sic == pytest.approx([0.1, 0.0])
    first, second = shedder.take(0.3), shedder.take(0.3)
    assert (first, second) == (Batch(0, pytest.approx(0.06), 600, "old"), Batch(1, 0.1, 5000, "new"))
    assert len(shedder.buffer) == 0


def test_the_buffer_is_locked_once() -> None:
    buffer = InputBuffer()
    with pytest.raises(StreamshedError, match="not locked"):
        buffer.unlock(())
    buffer.lock()
    with pytest.raises(StreamshedError, match="locked already"):
        buffer.lock()


def test_no_measurement_or_no_overload_drops_nothing() -> None:
    shedder = Shedder(1)
    assert shedder.check(0.25, 0.25, 0) is None
    shedder.put(Batch(0, 0.1, 10**6))
    assert shedder.check(0.5, 0.25, 0) is None
    assert len(shedder.buffer) == 10**6


def test_projected_sic_follows_reports_as_they_age() -> None:
    shedder = Shedder(2, window_s=10.0)
    shedder.put(Batch(0, 0.2, 1))
    shedder.put(Batch(0, 0.1, 1))
    shedder.take(1.0)
    assert shedder.projected(1.0) == pytest.approx([0.2, 0.0])
    shedder.report(2.0, [0, 1], [0.5, 0.8])
    assert shedder.projected(2.0) == pytest.approx([0.5, 0.8])
    shedder.take(4.0)
    assert shedder.projected(7.0) == pytest.approx([0.5 + 2.5 * 0.1, 0.8])  # the other nodes do as this one does
    assert shedder.projected(17.0)[1] == pytest.approx(0.4)  # without news a report fades in the second window
    assert shedder.projected(22.5) == pytest.approx([0.0, 0.0])


def test_the_query_behind_catches_up() -> None:
    policy = FairPolicy()
    waiting = Batches.of([0, 1], [0.1, 0.1], [10, 10])
    assert policy.keep(waiting, np.array([0.5, 0.2]), 10).tolist() == [0, 10]
    assert policy.keep(waiting, np.array([0.2, 0.5]), 15).tolist() == [10, 5]


def test_batches_without_sic_take_no_room() -> None:
    waiting = Batches.of([0, 0, 1], [0.0, 0.0, 0.5], [10, 10, 10])
    assert FairPolicy().keep(waiting, np.zeros(2), 15).tolist() == [5, 0, 10]


@pytest.mark.parametrize("name", POLICIES)
def test_policies_meet_odd_cases(name: str) -> None:
    policy = policy_named(name)
    nothing = Batches.of([], [], [])
    assert policy.keep(nothing, np.zeros(3), 10).tolist() == []
    assert policy.keep(nothing, np.zeros(0), 0).tolist() == []
    empty = Batches.of([0, 1, 1], [0.0, 0.5, 0.0], [0, 4, 0])
    assert policy.keep(empty, np.zeros(2), 0).tolist() == [0, 0, 0]
    assert policy.keep(empty, np.zeros(2), 3).tolist() == [0, 3, 0]
    assert policy.keep(empty, np.zeros(2), 9).tolist() == [0, 4, 0]
    with pytest.raises(InvalidValueError, match="without a projected SIC"):
        policy.keep(empty, np.zeros(1), 3)


def test_unknown_policies_and_bad_batches_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="fare"):
        policy_named("fare")
    with pytest.raises(InvalidValueError, match="different length"):
        Batches.of([0], [0.1, 0.2], [1])
    with pytest.raises(InvalidValueError, match="negative"):
        Batches.of([0], [0.1], [-1])
    with pytest.raises(InvalidValueError, match="out of range"):
        Batches.of([0], [-0.1], [1])


def test_proportional_keeps_the_same_share_in_the_long_run() -> None:
    policy = policy_named("proportional")
    waiting = Batches.of([0, 1, 2], [0.1, 0.1, 0.1], [1, 10, 100])
    kept = sum(policy.keep(waiting, np.zeros(3), 37) for _ in range(3000))
    assert kept / 3000 / waiting.tuples == pytest.approx([1 / 3] * 3, abs=0.03)


# --- water filling ----------------------------------------------------------------------------------------------------


def test_water_filling_by_hand() -> None:
    assert water_fill([1, 10], 5.5).tolist() == [0.5, 0.5]
    assert water_fill([1, 10], 11).tolist() == [1.0, 1.0]
    assert water_fill([1, 1], 1.5, weights=[2, 1]).tolist() == [1.0, 0.5]
    assert water_fill([1, 1], 0.6, weights=[2, 1]) == pytest.approx([0.4, 0.2])
    assert water_fill([1, 1], 1.0, minimum=[0.8, 0]) == pytest.approx([0.8, 0.2])
    assert water_fill([1, 1], 0.4, minimum=[0.8, 0]) == pytest.approx([0.4, 0.0])
    assert water_fill([0, 1], 0.0).tolist() == [1.0, 0.0]
    assert water_fill([5, 1], 0.5, pending=[0, 1]).tolist() == [1.0, 0.5]
    assert water_fill([], 1.0).tolist() == []
    with pytest.raises(InvalidValueError, match="a weight"):
        water_fill([1], 1, weights=0)


def forked(*, weight: float = 1.0, least_share: float = 0.0) -> tuple[Network, Statistics]:
    """A stream, a shared operator of 1 s a tuple, and outputs behind it that cost 1 s, 4 s and nothing."""
    new = NetworkBuilder("forked")
    shared = new.stream("s", {"v": "int"}).filter("a", "v > 0")
    shared.filter("b", "v > 1").output("cheap", Qos(weight=weight, least_share=least_share))
    shared.filter("c", "v > 2").output("dear")
    shared.output("free")
    return new.build(), Statistics({"a": 1.0, "b": 1.0, "c": 4.0})


def delivered(planner: FairPlanner, weight: float, capacity: float, least_share: float = 0.0) -> dict[str, float]:
    network, known = forked(weight=weight, least_share=least_share)
    plan = planner.plan(network, known, {"s": 1.0}, Admission(capacity))
    assert plan.load_after == pytest.approx(capacity)
    return {effect.output: round(effect.delivered, 9) for effect in plan.outputs}


def test_a_fair_plan_drops_ahead_of_the_split_what_all_lose() -> None:
    assert delivered(FairPlanner(), 1.0, 3.0) == {"cheap": 0.5, "dear": 0.5, "free": 0.5}
    # Twice the weight: the shared operator runs for `cheap`, and `free` reads along.
    assert delivered(FairPlanner(), 2.0, 4.0) == {"cheap": 1.0, "dear": 0.5, "free": 1.0}
    assert delivered(FairPlanner({"cheap": 2.0}), 1.0, 2.0) == {"cheap": 0.5, "dear": 0.25, "free": 0.5}


def test_minimum_shares_come_first() -> None:
    assert delivered(FairPlanner(minimum={"cheap": 0.8}), 1.0, 3.2) == {"cheap": 0.8, "dear": 0.4, "free": 0.8}
    assert delivered(FairPlanner(minimum={"cheap": 0.8}), 1.0, 0.8) == {"cheap": 0.4, "dear": 0.0, "free": 0.4}
    assert delivered(FairPlanner(), 1.0, 3.2, least_share=0.8) == {"cheap": 0.8, "dear": 0.4, "free": 0.8}
    assert delivered(FairPlanner(minimum={"cheap": 0.0}), 1.0, 3.0, least_share=0.8)["dear"] == 0.5


def test_bad_shares_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="not a share"):
        FairPlanner(minimum={"cheap": 1.5})
    with pytest.raises(InvalidValueError, match="must be positive"):
        FairPlanner(weights={"cheap": 0.0})
    network, known = forked()
    with pytest.raises(UnknownNameError, match="did you mean 'cheap'"):
        FairPlanner({"cheep": 1.0}).plan(network, known, {"s": 1.0}, Admission(1.0))
