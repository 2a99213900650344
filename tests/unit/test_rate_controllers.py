"""What a sample tells, and what the controllers that set a rate make of it: by hand, with round numbers."""

from __future__ import annotations

import math

import pytest

from streamshed.control import (
    AuroraController,
    BaselineController,
    Gains,
    LoadSample,
    Outlook,
    PolePlacementController,
    Release,
    place_poles,
)
from streamshed.errors import InvalidValueError

NOW = Outlook(1.0, 100, 0.1, 0.1)
COST_S = 0.005  # 200 a second


def period(queue: float, *, arrived: int = 300, finished: float = 200, length_s: float = 1.0) -> LoadSample:
    return LoadSample(
        1.0, length_s, arrived, arrived, outstanding=queue, finished=finished, busy_s=max(finished, 1e-20) * COST_S
    )


# --- samples ---------------------------------------------------------------------------------------------------------


def test_the_queue_is_what_is_outstanding_else_what_waits_for_the_next_batch() -> None:
    assert LoadSample(1.0, 1.0, 10, 10, waiting=7, outstanding=3.5).queue == 3.5
    assert LoadSample(1.0, 1.0, 10, 10, waiting=7, outstanding=0.0).queue == 0.0
    assert LoadSample(1.0, 1.0, 10, 10, waiting=7).queue == 7
    assert LoadSample(1.0, 1.0, 10, 10).queue == 0.0


def test_a_batch_finishes_what_it_kept_and_is_busy_all_along() -> None:
    batch = LoadSample(9.0, 2.0, arrived=1000, kept=400)
    assert (batch.departed, batch.cost_s) == (400.0, 0.005)
    spread = LoadSample(9.0, 2.0, arrived=1000, kept=400, finished=100.0, busy_s=1.5)
    assert (spread.departed, spread.cost_s) == (100.0, 0.015)
    assert LoadSample(9.0, 2.0, 1000, 400, finished=0.0).departed == 0.0


@pytest.mark.parametrize(
    ("finished", "busy_s", "cost_s"),
    [
        (0.5, 0.1, 0.2),  # part of a tuple is something
        (0.0, 0.1, None),
        (1e-9, 0.1, None),  # rounding
        (2e-9, 1e-9, 0.5),
        (100.0, 0.0, None),
        (1.0, 1e-12, None),
        (1.0, 2e-12, 2e-12),
    ],
)
def test_a_cost_is_known_where_work_was_finished(finished: float, busy_s: float, cost_s: float | None) -> None:
    found = LoadSample(1.0, 1.0, 10, 10, finished=finished, busy_s=busy_s).cost_s
    assert found == (None if cost_s is None else pytest.approx(cost_s))


def test_the_next_batch_takes_what_waits_or_else_as_much_as_came() -> None:
    told = LoadSample(5.0, 2.0, arrived=300, kept=200, waiting=50.0, oldest_wait_s=0.4, outstanding=6.0)
    assert told.outlook == Outlook(5.0, waiting=50.0, oldest_wait_s=0.4, span_s=0.4, outstanding=6.0)
    silent = LoadSample(5.0, 2.0, arrived=300, kept=200)
    assert silent.outlook == Outlook(5.0, waiting=300.0, oldest_wait_s=2.0, span_s=2.0, outstanding=0.0)
    assert LoadSample(5.0, 2.0, 300, 200, waiting=0.0).outlook.waiting == 0.0
    assert LoadSample(5.0, 2.0, 300, 200, oldest_wait_s=0.0).outlook.span_s == 1e-3, "rates need some time"


def test_what_nobody_has_decided_on_holds_nothing_back_and_lets_nothing_go() -> None:
    assert (Release(1.0).keep, Release(1.0).room, Release(1.0).wait_limit_s) == (1.0, 0.0, math.inf)


# --- the rate of the next period -------------------------------------------------------------------------------------


def test_the_admitted_load_is_the_admitted_rate_times_the_cost() -> None:
    aurora = AuroraController(2.0, headroom=0.9)  # 180 a second
    above = aurora.update(period(0, arrived=300))
    assert (aurora.rate_tps, above.keep, above.capacity) == pytest.approx((180.0, 0.6, 0.9))
    below = aurora.update(period(0, arrived=120))
    assert (aurora.rate_tps, below.keep, below.capacity) == pytest.approx((180.0, 1.0, 0.6)), "no more than comes"


def test_a_rate_is_by_the_second_however_long_the_period() -> None:
    """600 tuples in two seconds are 300 a second."""
    aurora = AuroraController(2.0, headroom=0.9)
    admission = aurora.update(period(0, arrived=600, finished=400, length_s=2.0))
    assert (admission.keep, admission.capacity) == pytest.approx((0.6, 0.9))
    # 2·200 may be outstanding, 100 are: 300 more within two seconds, on top of 200 that leave in each.
    baseline = BaselineController(2.0, headroom=1.0)
    baseline.observe(period(100, arrived=600, finished=400, length_s=2.0))
    assert baseline.rate_tps == pytest.approx(350.0)


def test_a_negative_rate_lets_nothing_in() -> None:
    baseline = BaselineController(1.0, headroom=1.0)
    admission = baseline.update(period(1000))
    assert baseline.rate_tps == pytest.approx(200 - 1000 + 200)
    assert (admission.keep, admission.capacity) == (0.0, 0.0)


@pytest.mark.parametrize(("queue", "keep"), [(399.5, 1.0), (400, 0.0), (5000, 0.0), (0, 1.0)])
def test_after_a_period_without_arrivals_all_or_nothing_may_come(queue: float, keep: float) -> None:
    """What may enter is 1·200 − q + 200 a second: nothing from a queue of 400 on."""
    admission = BaselineController(1.0, headroom=1.0).update(period(queue, arrived=0))
    assert (admission.keep, admission.capacity) == (keep, 0.0)


def test_a_rate_below_one_a_second_is_a_rate() -> None:
    aurora = AuroraController(2.0, headroom=1.0)
    slow = LoadSample(10.0, 10.0, arrived=5, kept=5, outstanding=3.0, finished=2.0, busy_s=10.0)  # 5 s a tuple
    admission = aurora.update(slow)
    assert (aurora.rate_tps, admission.keep, admission.capacity) == pytest.approx((0.2, 0.4, 1.0))


@pytest.mark.parametrize("length_s", [0.0, -1.0, math.nan, math.inf])
def test_a_period_without_a_length_teaches_nothing(length_s: float) -> None:
    aurora = AuroraController(2.0)
    before = aurora.update(period(0, arrived=400))
    aurora.observe(LoadSample(2.0, length_s, 9000, 9000, outstanding=5.0, finished=10.0, busy_s=1.0))
    assert aurora.admit(NOW) == before
    fresh = AuroraController(2.0)
    fresh.observe(LoadSample(2.0, length_s, 9000, 9000, outstanding=5.0, finished=10.0, busy_s=1.0))
    assert fresh.rate_tps is None


def test_before_the_first_cost_all_of_the_processor_is_admitted() -> None:
    admission = AuroraController(2.0).admit(NOW)
    assert (admission.keep, admission.capacity) == (1.0, 1.0)


def test_the_whole_processor_is_a_headroom_and_none_of_it_is_not() -> None:
    assert AuroraController(2.0, headroom=1.0).headroom == 1.0
    for headroom in (0.0, -0.1, 1.001):
        with pytest.raises(InvalidValueError, match="headroom"):
            AuroraController(2.0, headroom=headroom)


# --- pole placement --------------------------------------------------------------------------------------------------


def driven(anti_windup: bool | None, *periods: LoadSample) -> float | None:
    """The rate after these periods: target 2 s, 5 ms a tuple, all of the processor."""
    given = {} if anti_windup is None else {"anti_windup": anti_windup}
    controller = PolePlacementController(2.0, headroom=1.0, **given)
    for one in periods:
        controller.observe(one)
    return controller.rate_tps


def test_without_anti_windup_the_wanted_growth_is_remembered() -> None:
    # e = 2 − 1·0.005: u = 200·0.4·1.995 = 159.6. Then e = 0: u = −200·0.31·1.995 + 0.8·159.6.
    idle, full = period(0, arrived=50, finished=10), period(399, finished=150)
    assert driven(False, idle) == pytest.approx(159.6 + 10)
    assert driven(False, idle, full) == pytest.approx(-123.69 + 127.68 + 150)
    assert driven(None, idle, full) == driven(False, idle, full), "the paper's, if nothing is said"


def test_with_anti_windup_the_possible_growth_is_remembered() -> None:
    """Only 50 came of the 169.6 that were let in, and 10 left: the queue grew by 40, not by 159.6."""
    idle, full = period(0, arrived=50, finished=10), period(399, finished=150)
    assert driven(True, idle) == pytest.approx(159.6 + 10)
    assert driven(True, idle, full) == pytest.approx(-123.69 + 0.8 * 40 + 150)
    # And a queue shrinks by no more than what leaves: e = −4 wants −320, with 100 leaving nothing may enter.
    too_long, right = period(1199, finished=100), period(399, finished=100)
    assert driven(True, too_long) == pytest.approx(-220.0)
    assert driven(True, too_long, right) == pytest.approx(200 * 0.31 * 4 + 0.8 * -100 + 100)


def test_poles_may_be_a_pair_of_mirrors_and_nothing_else_that_is_complex() -> None:
    # (z − 0.5)² + 0.3²: the sum is 1, the product 0.34.
    assert place_poles((0.5 + 0.3j, 0.5 - 0.3j), 0.8) == Gains(0.8, -0.46, -0.8)
    for poles in ((0.3j, 0.3j), (0.5 + 0.1j, 0.2 - 0.1j), (0.1j, 0.2), (0.5 + 0.1j, -0.5 + 0.1j)):
        with pytest.raises(InvalidValueError, match="conjugate"):
            place_poles(poles, 0.8)


def test_gains_are_rounded_to_twelve_digits() -> None:
    assert place_poles((1 / 3, 1 / 3), 0.5) == Gains(0.833333333333, -0.388888888889, -0.5)


@pytest.mark.parametrize("pole", [-1.0, -1.5, 1.0, 1.5])
def test_the_controller_itself_must_be_stable(pole: float) -> None:
    with pytest.raises(InvalidValueError, match="controller"):
        place_poles((0.7, 0.7), pole)
    assert place_poles((0.7, 0.7), math.copysign(0.99, pole)).a == -math.copysign(0.99, pole)
