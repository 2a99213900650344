"""What the controller for micro-batches decides, to the digit, where costs are known."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streamshed.control import BatchAdmission, BatchCost, CostEstimator, LoadSample, Outlook, PlantController

KNOWN = BatchCost(fixed_s=0.2, read_s=1e-5, process_s=9e-5)
# Target 2 s, margin 0.2 s: T - m = 1.8 s.


class Fixed:
    """Knows costs for certain; they change when the test says so."""

    def __init__(self, cost: BatchCost | None) -> None:
        self.cost = cost
        self.seen: list[tuple[float, float, float]] = []

    def observe(self, arrived: float, kept: float, duration_s: float) -> None:
        self.seen.append((arrived, kept, duration_s))


def plant(cost: BatchCost | None = KNOWN, target_s: float = 2.0, **options: Any) -> tuple[PlantController, Fixed]:
    fixed = Fixed(cost)
    return PlantController(target_s, cast(CostEstimator, fixed), **options), fixed


def admitted(cost: BatchCost, waiting: float, wait_s: float, span_s: float) -> BatchAdmission:
    return plant(cost)[0].admit(Outlook(0.0, waiting, wait_s, span_s))


# --- how much of the next batch ---


def test_a_batch_that_fits_is_kept_whole() -> None:
    # 5,000 in 1 s are a load of 0.5: room for (1.8 - 0.2) / 1.5 s; they take 0.2 + 0.5 s.
    admission = admitted(KNOWN, 5_000, 0.5, 1.0)
    assert admission == BatchAdmission(5_000 * 9e-5, 1.0, pytest.approx(1.6 / 1.5), True)
    assert admission.fraction == 0.0


def test_under_overload_half_of_the_target_less_its_margin_is_for_a_batch() -> None:
    # 20,000 in 0.8 s are a load of 2.5: (1.8 - 0.2) / 3.5 = 0.457 s, so half of 1.8 s: 0.9 - 0.2 - 0.2 = 0.5 s of work.
    admission = admitted(KNOWN, 20_000, 0.8, 0.8)
    assert admission.duration_s == pytest.approx(0.9)
    assert admission.keep == pytest.approx(0.5 / 9e-5 / 20_000)
    assert admission.fraction == pytest.approx(1 - 0.5 / 9e-5 / 20_000)
    assert admission.capacity == pytest.approx(0.5 / 0.8)


def test_a_load_below_one_has_more_room_than_half() -> None:
    # 9,000 in 1 s: load 0.9, room (1.8 - 0.2) / 1.9 = 0.842 s < 0.9 s; a load of 0.5 has room for 1.067 s.
    assert admitted(KNOWN, 9_000, 0.1, 1.0).duration_s == pytest.approx(0.9)
    assert admitted(KNOWN, 9_000, 0.1, 1.8).duration_s == pytest.approx(1.6 / 1.5)


def test_the_wait_of_the_oldest_is_taken_off_the_budget() -> None:
    # 1.8 - 1.2 = 0.6 s are left: less 0.2 of the start and 0.2 of reading, 0.2 s of work.
    admission = admitted(KNOWN, 20_000, 1.2, 0.8)
    assert admission.duration_s == pytest.approx(0.6)
    assert admission.keep == pytest.approx(0.2 / 9e-5 / 20_000)


def test_a_tenth_goes_into_processing_however_long_they_have_waited() -> None:
    # 0.2 + 0.2 + a tenth of 1.8 s.
    for wait_s in (1.8, 5.0, 100.0):
        admission = admitted(KNOWN, 20_000, wait_s, 0.8)
        assert admission.duration_s == pytest.approx(0.58)
        assert admission.keep == pytest.approx(0.18 / 9e-5 / 20_000)


@pytest.mark.parametrize(
    ("error_s", "margin_s"), [(0.0, 0.2), (0.05, 0.2), (0.1, 0.2), (0.15, 0.3), (0.2, 0.4), (0.25, 0.5), (0.9, 0.5)]
)
def test_the_margin_is_two_deviations_from_a_tenth_to_a_quarter_of_the_target(error_s: float, margin_s: float) -> None:
    cost = BatchCost(0.2, 1e-5, 9e-5, error_s)
    assert admitted(cost, 50_000, 0.1, 0.5).duration_s == pytest.approx(
        max((2.0 - margin_s) / 2, 0.2 + 0.5 + 0.1 * (2 - margin_s))
    )
    assert plant(cost)[0].lasting_batch_s == pytest.approx((2.0 - margin_s) / 2)


def test_what_much_larger_batches_cost_is_doubted_up_to_twice_the_usual_not() -> None:
    cost = BatchCost(0.2, 0.0, 1e-4, usual=1_000, doubt_s=1e-3)
    assert admitted(cost, 2_000, 0.3, 4.0).keep == 1.0
    # 3,000 may take 0.2 + 0.3 + 1 s of doubt, which is more than 1.6 / 1.1: 0.9 < budget, of which what is surely done.
    admission = admitted(cost, 3_000, 0.3, 3.0)
    room_s = 1.6 / 1.1
    assert admission.duration_s == pytest.approx(room_s)
    assert admission.keep == pytest.approx((room_s - 0.2 + 1.0) / 1.1e-3 / 3_000)


def test_nothing_waiting_or_nothing_known_drops_nothing() -> None:
    assert admitted(KNOWN, 0, 0.0, 0.0) == BatchAdmission(0.0, 1.0, None, True)
    assert plant(None)[0].admit(Outlook(0.0, 1e9, 60.0, 60.0)) == BatchAdmission(1.0, 1.0, None, True)
    assert admitted(KNOWN, 0.5, 0.0, 1.0).keep == 1.0
    assert admitted(KNOWN, 0.5, 0.0, 1.0).duration_s is not None


def test_a_span_of_nothing_counts_as_a_millisecond() -> None:
    assert admitted(KNOWN, 1, 0.0, 0.0).duration_s == pytest.approx(1.6 / (1 + 1 / 1e-3 * 1e-4))


# --- what can be done for good ---


def test_what_lasts_is_what_a_batch_of_half_the_target_holds() -> None:
    controller, fixed = plant()
    assert controller.lasting_batch_s == pytest.approx(0.9)
    assert controller.lasting_rate_tps == pytest.approx((0.9 - 0.2) / 0.9 / 1e-4)
    fixed.cost = BatchCost(0.9, 1e-5, 9e-5)
    assert controller.lasting_rate_tps is None, "nothing is left for tuples"
    fixed.cost = BatchCost(0.2, 0.0, 0.0)
    assert controller.lasting_rate_tps is None, "tuples cost nothing"
    fixed.cost = None
    assert controller.lasting_rate_tps is controller.lasting_batch_s is None


# --- what is learnt and judged ---

SLOW = BatchCost(fixed_s=1.5, read_s=0.0, process_s=1e-5)  # (T - m) / 2 is 0.9 s


def batches(controller: PlantController, *durations_s: float, arrived: int = 100, time_s: float = 0.0) -> list[bool]:
    """Batches that follow one another; whether the target counts as within reach after each."""
    found = []
    for duration_s in durations_s:
        time_s += duration_s
        controller.observe(LoadSample(time_s, duration_s, arrived, arrived))
        found.append(controller.out_of_reach is None)
    return found


def test_the_estimator_gets_every_batch_as_it_was() -> None:
    controller, fixed = plant()
    controller.observe(LoadSample(5.0, 0.7, 300, 200))
    assert fixed.seen == [(300, 200, 0.7)]


def test_three_long_batches_show_that_a_target_is_out_of_reach() -> None:
    controller, _ = plant(SLOW)
    assert batches(controller, 1.6, 1.6, 1.6) == [True, True, False]
    assert controller.out_of_reach is not None
    assert controller.out_of_reach.empty_s == pytest.approx(1.5)
    assert controller.out_of_reach.least_s == pytest.approx(1.5 / 0.45 / 0.9)
    assert controller.admit(Outlook(0.0, 100, 0.1, 1.0)).attainable is False


def test_a_short_batch_among_them_shows_that_it_is_not() -> None:
    assert all(batches(plant(SLOW)[0], 1.6, 1.0, 1.6)), "1 s is half of the target"
    assert batches(plant(SLOW)[0], 1.6, 1.01, 1.6) == [True, True, False]


def test_the_model_has_to_say_so_twice() -> None:
    controller, fixed = plant(KNOWN)
    assert all(batches(controller, 1.6, 1.6, 1.6))
    fixed.cost = SLOW
    assert batches(controller, 1.6, 1.6, time_s=10.0) == [True, False]


def test_just_half_is_not_out_of_reach() -> None:
    assert all(batches(plant(BatchCost(0.9, 0.0, 1e-5))[0], 1.6, 1.6, 1.6, 1.6))
    assert not all(batches(plant(BatchCost(0.901, 0.0, 1e-5))[0], 1.6, 1.6, 1.6, 1.6))


def test_batches_without_tuples_show_nothing() -> None:
    assert all(batches(plant(SLOW)[0], 1.6, 1.6, 1.6, arrived=0))
    assert batches(plant(SLOW)[0], 1.6, 1.6, 1.6, arrived=1)[-1] is False


def test_reading_what_comes_takes_time_whatever_is_dropped() -> None:
    # 1 s to start, and a quarter of the time for reading 10,000 in 1.6 s: D = 1 / (1 - 0.25).
    controller, _ = plant(BatchCost(1.0, 0.25 * 1.6 / 10_000, 1e-5))
    batches(controller, 1.6, 1.6, 1.6, arrived=10_000)
    assert controller.out_of_reach is not None
    assert controller.out_of_reach.empty_s == pytest.approx(1.0 / 0.75)


def test_reading_counts_by_the_time_from_start_to_start() -> None:
    # Batches of 1.2 s start every 2 s: 10,000 that take 0.4 s to read are a fifth of it.
    controller, _ = plant(BatchCost(1.0, 4e-5, 1e-5))
    for time_s in (2.0, 4.0, 6.0):
        controller.observe(LoadSample(time_s, 1.2, 10_000, 10_000))
    assert controller.out_of_reach is not None
    assert controller.out_of_reach.empty_s == pytest.approx(1.0 / 0.8)


def test_however_much_there_is_to_read_a_tenth_of_the_time_is_left() -> None:
    controller, _ = plant(BatchCost(1.0, 1.0, 1e-5))
    batches(controller, 1.6, 1.6, 1.6, arrived=10_000)
    assert controller.out_of_reach is not None
    assert controller.out_of_reach.empty_s == pytest.approx(10.0)


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    controller, _ = plant(BatchCost(1.0, 0.25 * 1.6 / 10_000, 1e-5))
    batches(controller, 1.6, 1.6, arrived=10_000, time_s=1e6)
    batches(controller, 1.6, arrived=10_000)
    assert controller.out_of_reach is not None
    assert controller.out_of_reach.empty_s == pytest.approx(1.0 / 0.75)


def out_of_reach(**options: Any) -> tuple[PlantController, Fixed]:
    controller, fixed = plant(SLOW, **options)
    batches(controller, 1.6, 1.6, 1.6)
    assert controller.out_of_reach is not None
    return controller, fixed


def test_out_of_reach_batches_may_take_five_times_as_long_as_empty_ones() -> None:
    controller, _ = out_of_reach()
    # T - m counts as 15 s: 1,000,000 in 1 s are a load of 10, and have room for 7.5 s, of which 1.5 are for the start.
    admission = controller.admit(Outlook(0.0, 1_000_000, 0.1, 1.0))
    assert admission.duration_s == pytest.approx(7.5)
    assert admission.keep == pytest.approx(6.0 / 1e-5 / 1_000_000)
    assert controller.admit(Outlook(0.0, 100_000, 5.0, 5.0)).keep == 1.0
    insisting, _ = out_of_reach(insist=True)
    admission = insisting.admit(Outlook(0.0, 1_000_000, 0.1, 1.0))
    assert admission.duration_s == pytest.approx(1.5 + 0.18)
    assert not admission.attainable


def test_a_batch_below_the_lower_limit_ends_it() -> None:
    # 0.45 · 1.8 = 0.81 s.
    assert batches(out_of_reach()[0], 0.82, 0.80) == [False, True]


def test_a_model_that_is_sure_ends_it() -> None:
    controller, fixed = out_of_reach()
    fixed.cost = BatchCost(0.5, 0.0, 1e-5, fixed_doubt_s=0.32)
    assert batches(controller, 1.6, time_s=10.0) == [False]
    fixed.cost = BatchCost(0.5, 0.0, 1e-5, fixed_doubt_s=0.30)
    assert batches(controller, 1.6, time_s=20.0) == [True]


def test_a_doubt_grows_with_what_reading_leaves() -> None:
    # Half of the time is for reading: (0.2 + 0.2) / 0.5 = 0.8 s is below 0.81 s, (0.2 + 0.21) / 0.5 = 0.82 s is not.
    for doubt_s, within in ((0.21, False), (0.20, True)):
        controller, fixed = out_of_reach()
        fixed.cost = BatchCost(0.2, 0.8 / 10_000, 1e-5, fixed_doubt_s=doubt_s)
        assert batches(controller, 1.6, arrived=10_000, time_s=4.8) == [within]


def test_a_model_that_says_so_five_times_on_end_ends_it() -> None:
    unsure = BatchCost(0.5, 0.0, 1e-5, fixed_doubt_s=9.0)
    controller, fixed = out_of_reach()
    fixed.cost = unsure
    assert batches(controller, *[1.6] * 5, time_s=10.0) == [False] * 4 + [True]
    controller, fixed = out_of_reach()
    fixed.cost = unsure
    batches(controller, *[1.6] * 4, time_s=10.0)
    fixed.cost = BatchCost(0.85, 0.0, 1e-5, fixed_doubt_s=9.0)  # neither here nor there: from the beginning again
    assert batches(controller, 1.6, time_s=20.0) == [False]
    fixed.cost = unsure
    assert batches(controller, *[1.6] * 5, time_s=30.0) == [False] * 4 + [True]


def test_a_target_that_goes_out_of_reach_again_has_to_be_hoped_for_anew() -> None:
    unsure = BatchCost(0.5, 0.0, 1e-5, fixed_doubt_s=9.0)
    controller, fixed = out_of_reach()
    fixed.cost = unsure
    batches(controller, *[1.6] * 4, time_s=10.0)
    fixed.cost = SLOW
    batches(controller, 1.6, 1.6, time_s=20.0)
    fixed.cost = unsure
    assert batches(controller, *[1.6] * 5, time_s=30.0) == [False] * 4 + [True]


def test_what_it_was_told_of_another_run_is_what_it_begins_with() -> None:
    told: list[tuple[BatchCost, float]] = []
    controller, fixed = plant()
    fixed.believe = lambda cost, arrived: told.append((cost, arrived))  # type: ignore[attr-defined]
    controller.believe(KNOWN, 500.0)
    assert told == [(KNOWN, 500.0)]


def test_an_admission_is_attainable_unless_it_says_otherwise() -> None:
    assert BatchAdmission(1.0).attainable
    assert BatchAdmission(1.0, 0.25).fraction == 0.75
