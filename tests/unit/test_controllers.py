"""The controllers of the paper, to the digit, and the contract that all controllers keep."""

from __future__ import annotations

import math
from dataclasses import replace

import control
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.control import (
    CONTROLLERS,
    ArrivalDeadlineController,
    AuroraController,
    BaselineController,
    Controller,
    DeadlineController,
    LoadSample,
    Outlook,
    PolePlacementController,
    RateController,
    Release,
    controller_named,
    place_poles,
)
from streamshed.errors import InvalidValueError, UnknownNameError

H = 0.97
COST_S = 1 / 190


def sample(
    number: int,
    *,
    arrived: int = 300,
    queue: float = 200,
    finished: float = 184,
    cost_s: float = COST_S,
    period_s: float = 1.0,
) -> LoadSample:
    return LoadSample(
        number * period_s, period_s, arrived, arrived, outstanding=queue, finished=finished, busy_s=finished * cost_s
    )


# --- pole placement ------------------------------------------------------------------------------------------------


def test_the_papers_gains() -> None:
    gains = place_poles((0.7, 0.7), 0.8)
    assert (gains.b0, gains.b1, gains.a) == (0.4, -0.31, -0.8)
    assert PolePlacementController(2.0).gains == gains


@pytest.mark.parametrize("poles", [(0.7, 0.7), (0.5, 0.2), (0.0, 0.0), (0.9, -0.3), (0.5 + 0.3j, 0.5 - 0.3j)])
@pytest.mark.parametrize("controller_pole", [0.8, 0.5, 0.0])
def test_the_closed_loop_has_the_wanted_poles_and_unit_gain(
    poles: tuple[complex, complex], controller_pole: float
) -> None:
    """Against python-control, which knows nothing of the formulas: C·G / (1 + C·G) for C and G as in the paper."""
    gains = place_poles(poles, controller_pole)
    cost_s, period_s = 5.26e-3, 1.0
    plant = control.tf([cost_s * period_s / H], [1, -1], True)
    regulator = control.tf([H * gains.b0, H * gains.b1], [cost_s * period_s, cost_s * period_s * gains.a], True)
    loop = control.feedback(regulator * plant, 1)
    expected = np.sort_complex(np.array(poles, dtype=complex))
    # A double pole is found only to the root of the precision.
    np.testing.assert_allclose(np.sort_complex(loop.poles()), expected, atol=1e-6)
    assert loop.dcgain().real == pytest.approx(1.0)


def test_the_step_response_is_that_of_the_designed_loop() -> None:
    """The controller drives an ideal virtual queue as python-control says that the closed loop moves."""
    gains = place_poles()
    loop = control.tf([gains.b0, gains.b1], [1, gains.a - 1 + gains.b0, gains.b1 - gains.a], True)
    wanted = control.step_response(loop, T=np.arange(30)).outputs
    controller = PolePlacementController(2.0)
    queue, delays = -1.0, []  # ŷ = (q + 1)·c/H starts at 0
    for k in range(30):
        delays.append((queue + 1) * COST_S / H)
        controller.observe(sample(k + 1, arrived=10_000, queue=queue, finished=H / COST_S))
        assert controller.rate_tps is not None
        queue += controller.rate_tps - H / COST_S
    np.testing.assert_allclose(np.array(delays) / 2.0, wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("poles", "pole", "match"),
    [((1.0, 0.5), 0.8, "stable"), ((0.5 + 0.1j, 0.5 + 0.1j), 0.8, "conjugate"), ((0.7, 0.7), 1.0, "controller")],
)
def test_bad_poles_are_refused(poles: tuple[complex, complex], pole: float, match: str) -> None:
    with pytest.raises(InvalidValueError, match=match):
        place_poles(poles, pole)


# --- formulas ------------------------------------------------------------------------------------------------------


def test_ctrl_by_hand_over_three_periods() -> None:
    controller = PolePlacementController(2.0)
    u = e_before = 0.0
    for k, (queue, finished, cost_s) in enumerate([(100, 180, COST_S), (350, 184, 1.2 * COST_S), (500, 150, COST_S)]):
        e = 2.0 - (queue + 1) * cost_s / H
        u = H / cost_s * (0.4 * e - 0.31 * e_before) + 0.8 * u
        e_before = e
        keep = controller.update(sample(k, queue=queue, finished=finished, cost_s=cost_s)).keep
        assert controller.rate_tps == pytest.approx(u + finished)
        assert keep == pytest.approx(min(max((u + finished) / 300, 0.0), 1.0))


def test_ctrl_takes_the_measured_period() -> None:
    short, long = PolePlacementController(2.0), PolePlacementController(2.0)
    short.observe(sample(1, period_s=0.5, arrived=150, finished=92))
    long.observe(sample(1, period_s=1.0, arrived=300, finished=184))
    assert short.rate_tps is not None
    assert long.rate_tps is not None
    assert short.rate_tps - 184 == pytest.approx(2 * (long.rate_tps - 184))


def test_aurora_does_not_look_at_the_queue_nor_the_target() -> None:
    for queue in (0, 5000):
        controller = AuroraController(2.0)
        assert controller.update(sample(1, queue=queue)).keep == pytest.approx(H * 190 / 300)
        controller.target_s = 5.0
        assert controller.update(sample(2, queue=queue)).keep == pytest.approx(H * 190 / 300)


def test_baseline_fills_the_queue_in_one_period() -> None:
    controller = BaselineController(2.0)
    controller.observe(sample(1, queue=200))
    assert controller.rate_tps == pytest.approx(2.0 * H * 190 - 200 + H * 190)


@pytest.mark.parametrize("kind", [BaselineController, PolePlacementController])
def test_a_new_target_is_followed(kind: type[RateController]) -> None:
    """On an ideal queue, until it has settled: the estimated delay is the target, before and after the change."""
    controller = kind(1.0)
    queue = 0.0
    for target_s in (1.0, 3.0, 0.5):
        controller.target_s = target_s
        for k in range(60):
            controller.observe(sample(k, arrived=10_000, queue=queue, finished=H / COST_S))
            assert controller.rate_tps is not None
            queue = max(0.0, queue + controller.rate_tps - H / COST_S)
        assert (queue + 1) * COST_S / H == pytest.approx(target_s, abs=2 * COST_S)


def test_memory_of_an_idle_time_is_bounded_and_anti_windup_forgets_it() -> None:
    """After any idle time u is at most its fixed point, (b0 + b1)/(1 + a)·y_d·H/c; with anti-windup it is none."""
    fixed_point = (0.4 - 0.31) / (1 - 0.8) * 2.0 * H / COST_S
    for anti_windup, bound in ((False, fixed_point + 1), (True, 0.4 * 2.0 * H / COST_S)):
        controller = PolePlacementController(2.0, anti_windup=anti_windup)
        for k in range(200):
            controller.observe(sample(k, arrived=10, queue=0, finished=10))
        assert controller.rate_tps is not None
        assert 0 < controller.rate_tps - 10 <= bound


def test_until_a_cost_is_known_everything_is_kept_and_later_the_last_one_holds() -> None:
    controller = AuroraController(2.0)
    assert controller.update(sample(1, finished=0)).keep == 1.0
    keep = controller.update(sample(2)).keep
    assert controller.update(sample(3, finished=0)).keep == keep < 1


def test_a_micro_batch_is_a_period_too() -> None:
    """An engine with batches tells no virtual queue: the batch is what was finished, what waits is the queue."""
    controller = BaselineController(2.0, headroom=1.0)
    controller.observe(LoadSample(1.0, 2.0, arrived=600, kept=400, waiting=100))
    assert controller.rate_tps == pytest.approx((2.0 * 200 - 100) / 2.0 + 200)


# --- deadline ------------------------------------------------------------------------------------------------------


def held(waiting: float, wait_s: float, outstanding: float = 0.0, time_s: float = 1.0) -> Outlook:
    return Outlook(time_s, waiting, wait_s, max(wait_s, 0.01), outstanding, 0.0, again_s=0.01)


def test_deadline_feeds_what_the_engine_needs_until_the_next_question() -> None:
    controller = DeadlineController(2.0)
    controller.observe(sample(1, queue=0, finished=200, cost_s=0.005))
    release = controller.admit(held(500, 1.0))
    assert release.room == pytest.approx(2 * 0.01 * 1.25 / 0.005)
    assert release.wait_limit_s == pytest.approx(2.0 - 0.01 - 5 * 1.25 * 0.005)
    full = controller.admit(held(500, 1.0, outstanding=50))
    assert full.room == 0
    assert full.wait_limit_s == pytest.approx(2.0 - 0.01 - 50 * 1.25 * 0.005)


def test_deadline_starts_slowly_while_it_knows_nothing() -> None:
    controller = DeadlineController(2.0)
    for outstanding, finished, room in ((0, 0, 1), (1, 0, 0), (0, 1, 2), (2, 7, 6)):
        release = controller.admit(Outlook(0.1, 500, 0.1, 0.1, outstanding, finished, again_s=0.01))
        assert release.room == room
        assert math.isinf(release.wait_limit_s), "nothing is dropped for want of knowledge"


def test_deadline_notices_a_jump_of_the_cost_before_the_next_sample() -> None:
    controller = DeadlineController(2.0)
    controller.observe(sample(1, queue=4, finished=200, cost_s=0.005))
    calm = controller.admit(Outlook(1.5, 400, 1.9, 1.9, 4, finished=100, again_s=0.01))
    jump = controller.admit(Outlook(1.5, 400, 1.9, 1.9, 4, finished=25, again_s=0.01))
    assert calm.room == pytest.approx(1.0)  # 5 ms a tuple still: 5 ahead, 4 of them there
    assert jump.room == 0.0
    assert jump.wait_limit_s < calm.wait_limit_s


def test_deadline_is_more_careful_when_the_cost_is_restless() -> None:
    calm, restless = DeadlineController(2.0), DeadlineController(2.0)
    for k in range(20):
        calm.observe(sample(k))
        restless.observe(sample(k, cost_s=COST_S * (1 + k % 2)))
    restless.observe(sample(20))
    assert restless.admit(held(100, 1.0, 10)).wait_limit_s < calm.admit(held(100, 1.0, 10)).wait_limit_s


def test_on_arrival_the_margin_follows_the_rise_of_the_cost() -> None:
    controller = ArrivalDeadlineController(2.0)
    controller.observe(sample(1))
    calm = controller.admit(Outlook(1.0, 1000, 0.0, 0.01)).keep
    assert calm == pytest.approx(2.0 * math.exp(-0.25) / COST_S / 1000)
    controller.observe(sample(2, cost_s=2 * COST_S))
    controller.observe(sample(3))
    assert controller.admit(Outlook(3.0, 1000, 0.0, 0.01)).keep == pytest.approx(calm / 2 * math.exp(0.25), rel=0.05)


def test_on_arrival_the_margin_follows_delays_that_the_queue_did_not_tell() -> None:
    """The queue tells one second, and tuples come out after three: next time it must tell a third of the target."""
    controller = ArrivalDeadlineController(2.0)
    for k in range(1, 8):
        told = sample(k, queue=190)
        controller.observe(replace(told, delay_p95_s=3.0))
    keep = controller.admit(Outlook(7.0, 1000, 0.0, 0.01)).keep
    assert keep == pytest.approx(2.0 / 3 / COST_S / 1000, rel=0.01)


# --- the contract --------------------------------------------------------------------------------------------------

amounts = st.floats(0, 1e9, allow_nan=False)
samples = st.builds(
    LoadSample,
    time_s=st.floats(0, 1e6),
    duration_s=st.floats(1e-3, 1e3),
    arrived=st.integers(0, 10**9),
    kept=st.integers(0, 10**9),
    waiting=st.none() | amounts,
    outstanding=st.none() | amounts,
    finished=st.none() | amounts,
    busy_s=st.none() | st.floats(0, 1e3),
    delay_p95_s=st.none() | st.floats(0, 1e4),
)
outlooks = st.builds(
    Outlook,
    time_s=st.floats(0, 1e6),
    waiting=amounts,
    oldest_wait_s=st.floats(0, 1e3),
    span_s=st.floats(0, 1e3),
    outstanding=amounts,
    finished=st.none() | amounts,
    again_s=st.none() | st.floats(1e-3, 10),
)


@pytest.mark.parametrize("name", CONTROLLERS)
@given(seen=st.lists(samples, max_size=8), asked=outlooks, target_s=st.floats(1e-3, 1e3))
def test_every_admission_makes_sense(name: str, seen: list[LoadSample], asked: Outlook, target_s: float) -> None:
    controller = controller_named(name, 2.0)
    for one in seen:
        controller.observe(one)
    controller.target_s = target_s
    admission = controller.admit(asked)
    assert 0 <= admission.keep <= 1
    assert admission.capacity >= 0
    assert math.isfinite(admission.capacity)
    if isinstance(admission, Release):
        assert admission.room >= 0
        assert not math.isnan(admission.room)
        assert not math.isnan(admission.wait_limit_s)
    assert controller.admit(asked) == admission, "asking changes nothing"


@pytest.mark.parametrize("name", CONTROLLERS)
def test_nothing_is_shed_below_the_capacity(name: str) -> None:
    controller = controller_named(name, 2.0)
    for k in range(1, 20):
        controller.observe(sample(k, arrived=100, queue=1, finished=100))
        admission = controller.admit(Outlook(k + 0.5, 1, 0.01, 0.01, 1, 50))
        assert admission.keep == 1.0


@pytest.mark.parametrize("name", CONTROLLERS)
def test_silence_is_survived(name: str) -> None:
    controller = controller_named(name, 2.0)
    for k in range(1, 10):
        controller.observe(LoadSample(float(k), 1.0, 0, 0, outstanding=0.0, finished=0.0, busy_s=0.0))
    assert controller.admit(Outlook(10.0, 5, 0.0, 0.01)).keep == 1.0


@pytest.mark.parametrize("name", CONTROLLERS)
def test_memory_does_not_grow(name: str) -> None:
    """However short the period and however long the run, and when the clock is set back."""
    controller = controller_named(name, 2.0)
    for k in range(3000):
        controller.observe(sample(k % 2000, period_s=0.01, arrived=3, finished=2))
    inner = getattr(controller, "_final", controller)
    assert len(getattr(inner, "_recent", ())) <= 50


def test_names() -> None:
    assert next(iter(CONTROLLERS)) == "deadline"
    for name, kind in CONTROLLERS.items():
        made: Controller = controller_named(name, 1.5, headroom=0.9)
        assert type(made) is kind
        assert made.target_s == 1.5
        assert made.title
    with pytest.raises(UnknownNameError, match="deadlin"):
        controller_named("deadlin", 2.0)


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("target_s", [0.0, -1.0, math.nan, math.inf])
def test_bad_targets_are_refused(name: str, target_s: float) -> None:
    with pytest.raises(InvalidValueError, match="target"):
        controller_named(name, target_s)


def test_bad_headroom_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="headroom"):
        AuroraController(2.0, headroom=1.5)
