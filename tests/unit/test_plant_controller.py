"""The controller for micro-batches by hand, with costs that are known: a target of 2 s, of which 0.2 s are margin."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.control import BatchAdmission, BatchCost, CostEstimator, LoadSample, Outlook, PlantController
from streamshed.control.base import OutOfReach
from streamshed.errors import InvalidValueError

TARGET_S = 2.0
COST = BatchCost(fixed_s=0.1, read_s=1e-5, process_s=9e-5)  # 0.1 s, and 0.1 ms a tuple


class Known(CostEstimator):
    """Costs that a test sets; notes what it is to learn from."""

    def __init__(self, cost: BatchCost | None) -> None:
        super().__init__()
        self.known = cost
        self.told: list[tuple[float, ...]] = []

    @property
    def cost(self) -> BatchCost | None:
        return self.known

    def observe(self, arrived: float, kept: float, duration_s: float) -> None:
        self.told.append((arrived, kept, duration_s))

    def believe(self, cost: BatchCost, arrived: float) -> None:
        self.known = cost
        self.told.append((arrived,))


def knowing(cost: BatchCost | None = COST, *, target_s: float = TARGET_S, insist: bool = False) -> PlantController:
    return PlantController(target_s, Known(cost), insist=insist)


def asked(
    waiting: float, wait_s: float = 0.9, span_s: float = 1.0, *, by: PlantController | None = None
) -> BatchAdmission:
    return (by or knowing()).admit(Outlook(0.0, waiting, wait_s, span_s))


# --- how much of a batch is kept -------------------------------------------------------------------------------------


def test_a_batch_that_fits_is_kept_whole() -> None:
    """8,000 a second are a load of 0.8: 1.7/1.8 s of room, of which 4,000 tuples take 0.5 s."""
    admission = asked(4000, 0.5, 0.5)
    assert (admission.keep, admission.fraction, admission.attainable) == (1.0, 0.0, True)
    assert admission.duration_s == pytest.approx(1.7 / 1.8)
    assert admission.capacity == pytest.approx(8000 * 9e-5)


def test_the_room_is_what_the_next_batch_leaves_and_at_least_half() -> None:
    for waiting, span_s, room_s in (
        (1000, 1.0, 1.7 / 1.1),
        (8000, 1.0, 1.7 / 1.8),
        (8900, 1.0, 0.9),
        (8900, 2.0, 1.7 / 1.445),
    ):
        assert asked(waiting, 0.0, span_s).duration_s == pytest.approx(room_s)
    assert asked(8500, span_s=1.1).keep == 1.0, "0.95 s of 0.96"
    assert asked(8500, span_s=1.0).keep < 1.0, "of 0.92"
    # Where the load is above one, half of the time goes to this batch and half to the next.
    assert asked(16_000).duration_s == pytest.approx(0.9)


def test_one_that_just_fits_is_kept_whole() -> None:
    admission = asked(1000, 30.0, by=knowing(BatchCost(0.9, 0.0, 0.0)))
    assert (admission.keep, admission.duration_s) == (1.0, 0.9)


def test_of_one_that_does_not_fit_as_many_are_kept_as_do() -> None:
    """0.9 s less 0.1 to start and 0.16 to read."""
    admission = asked(16_000)
    assert admission.keep * 16_000 == pytest.approx(0.64 / 9e-5)
    assert admission.capacity == pytest.approx(0.64)
    assert admission.fraction == pytest.approx(1 - 0.64 / 9e-5 / 16_000)
    assert asked(16_000, span_s=4.0).capacity == pytest.approx(asked(16_000, span_s=4.0).keep * 4000 * 9e-5)


@pytest.mark.parametrize("wait_s", [0.95, 1.0, 1.2, 1.35])
def test_the_oldest_wait_comes_off_the_budget(wait_s: float) -> None:
    """w + D ≤ T − m: of 1.8 s, what it has waited."""
    admission = asked(16_000, wait_s)
    assert admission.duration_s == pytest.approx(1.8 - wait_s)
    assert admission.keep * 16_000 == pytest.approx((1.8 - wait_s - 0.26) / 9e-5)
    assert wait_s + COST.duration_s(16_000, admission.keep * 16_000) == pytest.approx(1.8)


@pytest.mark.parametrize("wait_s", [0.0, 0.5, 0.9])
def test_a_short_wait_is_no_reason_for_longer_batches_under_overload(wait_s: float) -> None:
    assert asked(16_000, wait_s).duration_s == pytest.approx(0.9)


def test_a_batch_that_fits_is_kept_whole_however_long_it_has_waited() -> None:
    assert asked(4000, 30.0, 30.0).keep == 1.0


@pytest.mark.parametrize("wait_s", [1.37, 2.0, 60.0])
def test_whatever_happens_a_tenth_of_the_time_goes_into_processing(wait_s: float) -> None:
    """On top of the 0.26 s for starting and reading."""
    admission = asked(16_000, wait_s)
    assert admission.duration_s == pytest.approx(0.44)
    assert admission.keep * 16_000 == pytest.approx(0.18 / 9e-5)


def test_starting_and_reading_may_take_all_of_the_time() -> None:
    """A million tuples are 10 s to read, after which another 0.18 s go into 2,000 of them."""
    admission = asked(1_000_000)
    assert admission.duration_s == pytest.approx(10.28)
    assert admission.keep * 1e6 == pytest.approx(2000)


@pytest.mark.parametrize(
    ("error_s", "margin_s"),
    [(0.0, 0.2), (0.09, 0.2), (0.11, 0.22), (0.2, 0.4), (0.249, 0.498), (0.26, 0.5), (5.0, 0.5)],
)
def test_the_margin_is_two_deviations_from_a_tenth_to_a_quarter_of_the_target(error_s: float, margin_s: float) -> None:
    controller = knowing(replace(COST, error_s=error_s))
    assert asked(16_000, 0.0, by=controller).duration_s == pytest.approx((TARGET_S - margin_s) / 2)
    assert controller.lasting_batch_s == pytest.approx((TARGET_S - margin_s) / 2)
    assert asked(16_000, 0.95, by=controller).duration_s == pytest.approx(TARGET_S - margin_s - 0.95)
    assert asked(1_000_000, by=controller).duration_s == pytest.approx(10.1 + 0.1 * (TARGET_S - margin_s))


def test_the_margin_follows_the_target() -> None:
    assert asked(100_000, by=knowing(target_s=10.0)).duration_s == pytest.approx(4.5)
    controller = knowing()
    controller.target_s = 4.0
    assert asked(40_000, by=controller).duration_s == pytest.approx(1.8)


def test_a_doubt_keeps_batches_small_that_are_much_larger_than_the_usual() -> None:
    """Beyond 1,000 a tuple may cost 1 ms more. Twice the usual is no burst: from there on that counts."""
    controller = knowing(replace(COST, usual=1000, doubt_s=1e-3))
    assert asked(2000, span_s=0.1, by=controller).keep == 1.0
    assert asked(2500, span_s=0.1, by=controller).keep == 1.0, "0.35 s, and 0.5 s that 500 of them may take more"
    admission = asked(2640, span_s=0.1, by=controller)  # 0.364 and 0.64 s
    assert admission.duration_s == pytest.approx(0.9)
    # 0.9 − 0.1 − 0.0264 s, of which 1,000 take 0.09; all others 1.09 ms.
    assert admission.keep * 2640 == pytest.approx(1000 + (0.7736 - 0.09) / 1.09e-3)


def test_nothing_waits_or_nothing_is_known() -> None:
    assert asked(0, 99.0) == BatchAdmission(0.0)
    unknown = knowing(None)
    assert asked(1e9, 99.0, by=unknown) == BatchAdmission(1.0, 1.0, None, True)
    assert (unknown.cost, unknown.lasting_batch_s, unknown.lasting_rate_tps) == (None, None, None)


def test_less_than_a_tuple_is_something() -> None:
    """Work is counted in full tuples, of which a fraction may wait; one of them takes 9 s here."""
    dear = BatchCost(0.1, 1.0, 9.0)
    admission = asked(0.5, by=knowing(dear))
    assert admission.keep * 0.5 == pytest.approx((0.9 - 0.1 - 0.5) / 9)


def test_a_span_of_no_time_is_a_millisecond() -> None:
    admission = asked(50, 0.0, 0.0)
    assert (admission.keep, admission.capacity) == (1.0, pytest.approx(50 * 9e-5 / 1e-3))
    assert asked(50, 0.0, 0.0).duration_s == pytest.approx(0.9)


@given(
    cost=st.builds(
        BatchCost,
        fixed_s=st.floats(0, 0.85),
        read_s=st.floats(0, 1e-5),
        process_s=st.floats(1e-6, 1e-3),
        error_s=st.floats(0, 1),
        usual=st.floats(0, 1e5),
        doubt_s=st.floats(0, 1e-3),
    ),
    waiting=st.floats(1, 1e6),
    wait_s=st.floats(0, 10),
    span_s=st.floats(0.01, 10),
)
def test_no_batch_takes_longer_than_it_may(cost: BatchCost, waiting: float, wait_s: float, span_s: float) -> None:
    """Surely none, unless it is kept whole after twice the usual number; and none is smaller than need be."""
    controller = knowing(cost)
    admission = asked(waiting, wait_s, span_s, by=controller)
    assert admission.duration_s is not None
    assert controller.lasting_batch_s is not None
    aim_s = 2 * controller.lasting_batch_s
    assert 0 <= admission.keep <= 1
    if admission.keep < 1:
        assert cost.at_most_s(waiting, admission.keep * waiting) <= admission.duration_s * (1 + 1e-9)
        processing_s = admission.duration_s - cost.duration_s(waiting, 0)
        assert processing_s >= 0.1 * aim_s * (1 - 1e-9)
        if processing_s > 0.1 * aim_s * (1 + 1e-6):
            assert wait_s + admission.duration_s <= aim_s * (1 + 1e-9)
    else:
        assert min(cost.at_most_s(waiting, waiting, 2.0), cost.at_most_s(waiting, waiting)) <= (
            admission.duration_s * (1 + 1e-9)
        )


# --- what can be done for good ---------------------------------------------------------------------------------------


def test_the_lasting_rate_fills_batches_of_the_lasting_length() -> None:
    controller = knowing()
    assert controller.lasting_batch_s == pytest.approx(0.9)
    assert controller.lasting_rate_tps == pytest.approx(0.8 / 0.9 / 1e-4)
    assert COST.duration_s(*[0.9 * 0.8 / 0.9 / 1e-4] * 2) == pytest.approx(0.9)
    assert knowing(replace(COST, process_s=0.0)).lasting_rate_tps == pytest.approx(0.8 / 0.9 / 1e-5)
    assert knowing(replace(COST, read_s=0.0)).lasting_rate_tps == pytest.approx(0.8 / 0.9 / 9e-5)
    assert knowing(BatchCost(0.1, 1.0, 1.0)).lasting_rate_tps == pytest.approx(0.8 / 0.9 / 2), "a tuple takes 2 s"


def test_there_is_no_lasting_rate_where_a_batch_without_tuples_takes_too_long_or_tuples_nothing() -> None:
    assert knowing(replace(COST, fixed_s=0.9)).lasting_rate_tps is None
    assert knowing(replace(COST, fixed_s=2.0)).lasting_rate_tps is None
    assert knowing(BatchCost(0.1, 0.0, 0.0)).lasting_rate_tps is None


# --- out of reach ----------------------------------------------------------------------------------------------------

SLOW = BatchCost(fixed_s=1.2, read_s=0.0, process_s=1e-5)  # where batches may take 0.9 s


class Run:
    """Batches one after the other, with costs that a test sets before each."""

    def __init__(self, cost: BatchCost | None, *, insist: bool = False) -> None:
        self.estimator = Known(cost)
        self.controller = PlantController(TARGET_S, self.estimator, insist=insist)
        self.time_s = 100.0

    def batches(
        self, *durations_s: float, arrived: int = 1000, pause_s: float = 0.0, cost: BatchCost | None = None
    ) -> OutOfReach | None:
        """The judgement after batches that took so long."""
        if cost is not None:
            self.estimator.known = cost
        for duration_s in durations_s:
            self.time_s += pause_s + duration_s
            self.controller.observe(LoadSample(self.time_s, duration_s, arrived, arrived // 2))
        return self.controller.out_of_reach


def test_a_sample_is_learnt_from_and_a_memory_believed() -> None:
    run = Run(None)
    run.batches(0.5, 0.6)
    run.controller.believe(COST, 700)
    assert run.estimator.told == [(1000, 500, 0.5), (1000, 500, 0.6), (700,)]
    assert run.controller.cost == COST


def test_three_batches_that_were_too_long_and_a_model_that_says_so_twice_are_out_of_reach() -> None:
    run = Run(SLOW)
    assert run.batches(1.3, 1.3) is None
    assert run.batches(1.3) == OutOfReach(TARGET_S, pytest.approx(1.2), pytest.approx(1.2 / 0.45 / 0.9))
    late = Run(None)
    assert late.batches(1.3, 1.3, 1.3) is None, "without a model nobody knows why"
    assert late.batches(1.3, cost=SLOW) is None, "once is chance"
    assert late.batches(1.3) is not None


@pytest.mark.parametrize("short_s", [1.0, 0.9, 0.85])
def test_one_of_three_batches_that_was_short_enough_tells_that_it_can_be_done(short_s: float) -> None:
    run = Run(SLOW)
    assert run.batches(1.3, 1.3, short_s) is None
    assert run.batches(1.3, 1.3) is None
    assert run.batches(1.01) is not None


def test_a_model_that_is_not_sure_begins_anew() -> None:
    run = Run(SLOW)
    assert run.batches(1.3) is None
    assert run.batches(1.3, cost=replace(SLOW, fixed_s=0.9)) is None, "just in reach"
    assert run.batches(1.3, cost=SLOW) is None
    assert run.batches(1.3) is not None


def test_the_margin_counts_in_what_is_in_reach() -> None:
    """With an error of 0.2 s batches may take 0.8 s."""
    assert Run(BatchCost(0.85, 0.0, 1e-5)).batches(1.3, 1.3, 1.3) is None
    assert Run(BatchCost(0.85, 0.0, 1e-5, error_s=0.2)).batches(1.3, 1.3, 1.3) is not None


def test_what_is_read_while_a_batch_takes_so_long_counts_as_well() -> None:
    """0.6 s, and 1 ms for each that is read. 500 a second take half of the time: the batch takes 1.2 s in all."""
    reading = BatchCost(0.6, 1e-3, 0.0)
    reach = Run(reading).batches(1.25, 1.25, 1.25, arrived=625)
    assert reach is not None
    assert reach.empty_s == pytest.approx(1.2)
    assert reach.least_s == pytest.approx(1.2 / 0.45 / 0.9)
    assert Run(reading).batches(1.25, 1.25, 1.25, arrived=375) is None, "300 a second: 0.86 s"
    assert Run(reading).batches(1.25, 1.25, 1.25, arrived=625, pause_s=1.25) is None, "250 a second: 0.8 s"


def test_tuples_come_from_the_start_of_one_batch_to_that_of_the_next() -> None:
    """625 while the batch before took 1.25 s, however long it takes to process them."""
    for last_s in (1.1, 2.5, 5.0):
        reach = Run(BatchCost(0.6, 1e-3, 0.0)).batches(1.25, 1.25, last_s, arrived=625)
        assert reach is not None
        assert reach.empty_s == pytest.approx(1.2)


def test_reading_takes_nine_tenths_of_the_time_at_most() -> None:
    reach = Run(BatchCost(0.2, 1e-3, 0.0)).batches(1.25, 1.25, 1.25, arrived=5000)
    assert reach is not None
    assert reach.empty_s == pytest.approx(2.0)


def test_what_came_before_the_first_batch_came_at_no_rate() -> None:
    """Of a backlog it is not known in how much time it came."""
    run = Run(BatchCost(0.85, 1e-3, 0.0))
    assert run.batches(1.3, arrived=99_999) is None
    assert run.batches(1.3, 1.3, arrived=10) is None, "0.86 s are in reach"
    assert run.batches(1.3, 1.3, arrived=100) is not None, "0.92 are not"


def test_no_batch_begins_before_the_last_one_has_ended_whatever_the_clock_says() -> None:
    """Of samples that all end at 0, the time between is the batch before."""
    controller = PlantController(TARGET_S, Known(BatchCost(0.6, 1e-3, 0.0)))
    for duration_s in (1.25, 1.25, 1.5):
        controller.observe(LoadSample(0.0, duration_s, 625, 625))
    assert controller.out_of_reach is not None
    assert controller.out_of_reach.empty_s == pytest.approx(1.2)


def test_a_batch_without_tuples_says_nothing() -> None:
    run = Run(SLOW)
    assert run.batches(1.3, 1.3) is None
    assert run.batches(1.3, 0.3, arrived=0) is None
    assert run.batches(1.3) is not None
    assert run.batches(0.3, arrived=0) is not None


def test_one_tuple_is_enough_for_a_batch_to_say_something() -> None:
    assert Run(SLOW).batches(1.3, 1.3, 1.3, arrived=1) is not None


def out_of_reach() -> Run:
    run = Run(SLOW)
    assert run.batches(1.3, 1.3, 1.3) is not None
    return run


def test_out_of_reach_batches_may_get_five_times_as_long_as_one_with_nothing_in_it() -> None:
    controller = out_of_reach().controller
    # 12 s instead of 1.8: a load of 0.2 leaves (12 − 1.2) / 1.2.
    calm = asked(20_000, 5.0, by=controller)
    assert (calm.keep, calm.attainable, calm.duration_s) == (1.0, False, pytest.approx(9.0))
    heavy = asked(1_000_000, 5.0, span_s=5.0, by=controller)
    assert (heavy.attainable, heavy.duration_s) == (False, pytest.approx(6.0))
    assert heavy.keep * 1e6 == pytest.approx(4.8 / 1e-5)
    waited = asked(1_000_000, 7.0, span_s=5.0, by=controller)
    assert waited.duration_s == pytest.approx(5.0), "of 12 s"
    assert asked(1_000_000, 60.0, span_s=5.0, by=controller).duration_s == pytest.approx(1.2 + 1.2)


def test_who_insists_has_the_target_aimed_at_all_the_same() -> None:
    run = Run(SLOW, insist=True)
    assert run.batches(1.3, 1.3, 1.3) is not None
    admission = asked(100_000, by=run.controller)
    assert (admission.attainable, admission.duration_s) == (False, pytest.approx(1.2 + 0.18))
    assert admission.keep * 1e5 == pytest.approx(0.18 / 1e-5)
    assert not PlantController(TARGET_S).insist


def test_a_longer_target_than_that_is_aimed_at_as_it_is() -> None:
    controller = out_of_reach().controller
    controller.target_s = 20.0
    assert asked(10_000_000, by=controller).duration_s == pytest.approx(9.0)


@pytest.mark.parametrize(("duration_s", "back"), [(0.8, True), (0.81, False), (0.82, False)])
def test_a_batch_that_was_short_enough_brings_it_back_into_reach(duration_s: float, back: bool) -> None:
    """Below 0.45 of 1.8 s."""
    assert (out_of_reach().batches(duration_s) is None) == back


@pytest.mark.parametrize(
    ("fixed_s", "doubt_s", "back"), [(0.5, 0.3, True), (0.5, 0.32, False), (0.8, 0.0, True), (0.82, 0.0, False)]
)
def test_a_model_that_is_sure_of_it_brings_it_back_into_reach(fixed_s: float, doubt_s: float, back: bool) -> None:
    run = out_of_reach()
    cost = replace(SLOW, fixed_s=fixed_s, fixed_doubt_s=doubt_s)
    assert (run.batches(1.3, cost=cost) is None) == back


def test_reading_counts_in_that_as_well_and_makes_the_doubt_larger() -> None:
    """Half of the time goes into reading: 0.3 s are 0.6 and 0.1 s of doubt are 0.2."""
    for doubt_s, back in ((0.1, True), (0.11, False)):
        run = out_of_reach()
        run.batches(2.0, arrived=1000)
        cost = BatchCost(0.3, 1e-3, 0.0, fixed_doubt_s=doubt_s)
        assert (run.batches(2.0, arrived=1000, cost=cost) is None) == back


def test_a_model_that_says_so_five_times_on_end_brings_it_back_be_it_sure_or_not() -> None:
    hopeful = replace(SLOW, fixed_s=0.5, fixed_doubt_s=9.0)
    run = out_of_reach()
    assert run.batches(*[1.3] * 4, cost=hopeful) is not None
    assert run.batches(1.3) is None
    run = out_of_reach()
    assert run.batches(*[1.3] * 4, cost=hopeful) is not None
    assert run.batches(1.3, cost=replace(hopeful, fixed_s=0.85)) is not None, "not below 0.81 s"
    assert run.batches(*[1.3] * 4, cost=hopeful) is not None
    assert run.batches(1.3) is None
    run = out_of_reach()
    assert run.batches(*[1.3] * 4, cost=hopeful) is not None
    assert run.batches(1.3, 1.3, cost=SLOW) is not None
    assert run.batches(*[1.3] * 4, cost=hopeful) is not None, "it has begun anew"
    assert run.batches(1.3) is None


def test_a_hope_is_below_the_limit_not_at_it() -> None:
    assert out_of_reach().batches(*[1.3] * 9, cost=replace(SLOW, fixed_s=0.45 * 1.8, fixed_doubt_s=9.0)) is not None


def test_between_in_and_out_of_reach_it_stays_as_it_was() -> None:
    between = replace(SLOW, fixed_s=0.85)
    assert Run(between).batches(*[1.3] * 9) is None
    assert out_of_reach().batches(*[1.3] * 9, cost=between) is not None


def test_it_is_out_of_reach_again_if_the_next_batches_show_it() -> None:
    run = out_of_reach()
    assert run.batches(0.5, cost=replace(SLOW, fixed_s=0.5)) is None
    assert run.batches(1.3, 1.3, cost=SLOW) is None
    assert run.batches(1.3) is not None


@pytest.mark.parametrize(
    ("least_s", "said"), [(10.49, "11"), (10.0, "10"), (10.01, "11"), (0.123, "0.13"), (96.1, "97"), (2.963, "3")]
)
def test_the_target_that_can_be_held_is_rounded_up_to_two_digits(least_s: float, said: str) -> None:
    text = str(OutOfReach(2.0, 3.444, least_s))
    assert text == f"an empty batch takes 3.4 s: a target of 2 s cannot be held, one of {said} s can"


@pytest.mark.parametrize("target_s", [0.0, -1.0, math.nan])
def test_a_target_is_positive(target_s: float) -> None:
    with pytest.raises(InvalidValueError, match="target"):
        PlantController(target_s)


def test_if_nothing_is_said_two_batches_are_left_out() -> None:
    controller = PlantController(0.5)
    assert controller.target_s == 0.5, "shorter than a second"
    for i in range(4):
        assert controller.cost is None
        controller.observe(LoadSample(float(i), 0.2, 1000 + i, 1000))
    assert controller.cost is not None
