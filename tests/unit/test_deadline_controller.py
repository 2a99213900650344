"""The deadline controllers by hand: 5 ms a tuple, a target of two seconds."""

from __future__ import annotations

import math

import pytest

from streamshed.control import ArrivalDeadlineController, DeadlineController, LoadSample, Outlook
from streamshed.control.deadline import Pace

TARGET_S = 2.0
COST_S = 0.005
BUSY = 10_000.0  # a queue of 50 s: there has been work all along


def sample(
    time_s: float,
    cost_s: float | None = COST_S,
    *,
    queue: float | None = 0.0,
    duration_s: float = 1.0,
    p95_s: float | None = None,
) -> LoadSample:
    finished = 0.0 if cost_s is None else 100.0
    return LoadSample(
        time_s,
        duration_s,
        300,
        300,
        outstanding=queue,
        finished=finished,
        busy_s=finished * (cost_s or 0.0),
        delay_p95_s=p95_s,
    )


def ask(time_s: float, waiting: float = 1000, wait_s: float = 0.0, outstanding: float = 0.0) -> Outlook:
    """A question at once after a sample: nothing has been finished since."""
    return Outlook(time_s, waiting, wait_s, 0.1, outstanding)


# --- pace ------------------------------------------------------------------------------------------------------------


def test_the_spread_is_three_times_the_smoothed_change_of_the_cost() -> None:
    pace = Pace()
    assert (pace.tuple_s, pace.spread) == (None, 0.25)
    pace.observe(sample(1, 0.005))
    assert (pace.tuple_s, pace.spread) == (0.005, 0.25)
    pace.observe(sample(2, 0.010))  # ln 2, of which a tenth counts: 0.0693
    assert (pace.tuple_s, pace.spread) == (0.010, 0.25)
    pace.observe(sample(3, 0.005))  # and back, by as much: 0.9·0.0693 + 0.0693
    assert pace.spread == pytest.approx(3 * 0.19 * math.log(2))
    pace.observe(sample(4, None))
    assert pace.tuple_s == 0.005, "where nothing was finished the last cost holds"
    assert pace.spread == pytest.approx(3 * 0.19 * math.log(2))
    pace.observe(sample(5, 0.005))
    assert pace.spread == pytest.approx(3 * 0.171 * math.log(2))
    for k in range(6, 40):
        pace.observe(sample(k, 0.005))
    assert pace.spread == 0.25, "calm again"


def test_the_spread_is_at_most_all_of_it() -> None:
    pace = Pace()
    pace.observe(sample(1, 0.001))
    pace.observe(sample(2, 0.001 * math.exp(3.0)))
    assert pace.spread == pytest.approx(0.9)
    pace.observe(sample(3, 0.001))
    assert pace.spread == 1.0


def test_tuples_finished_since_the_sample_are_mixed_with_what_it_told() -> None:
    """A belief of 0.1 s is worth 20 tuples; in 0.4 s 30 more were finished: 0.5 s for 50."""
    pace = Pace()
    pace.observe(sample(1))
    since = Outlook(1.4, 100, 0.1, 0.1, finished=30)
    assert pace.now_s(since, backlog_s=0.5, belief_s=0.1) == pytest.approx(0.01)
    assert pace.now_s(since, backlog_s=1.4 - 1.0, belief_s=0.1) == pytest.approx(0.01)
    assert pace.now_s(since, backlog_s=0.39, belief_s=0.1) == 0.005, "it may have been idle meanwhile"
    assert pace.now_s(Outlook(1.0, 100, 0.1, 0.1, finished=30), 0.5, 0.1) == 0.005, "no time has passed"
    assert pace.now_s(Outlook(0.5, 100, 0.1, 0.1, finished=30), 0.5, 0.1) == 0.005, "the clock was set back"
    assert pace.now_s(Outlook(1.4, 100, 0.1, 0.1), 0.5, 0.1) == 0.005, "nobody counts"
    # A fifth of a second without a single one: 0.3 s for the 20 that are believed.
    assert pace.now_s(Outlook(1.2, 100, 0.1, 0.1, finished=0), 0.5, 0.1) == pytest.approx(0.015)


def test_time_counts_from_the_last_sample_also_if_nothing_was_finished_in_it() -> None:
    pace = Pace()
    assert pace.now_s(Outlook(1.4, 100, 0.1, 0.1, finished=30), 0.5, 0.1) is None
    pace.observe(sample(1))
    pace.observe(sample(2, None))
    assert pace.now_s(Outlook(2.4, 100, 0.1, 0.1, finished=30), 0.5, 0.1) == pytest.approx(0.01)


# --- on arrival ------------------------------------------------------------------------------------------------------


def margin(controller: ArrivalDeadlineController, time_s: float, pace_s: float = COST_S) -> float:
    """The rise that it reckons with: of 1,000 tuples as many are kept as take T·exp(−rise)."""
    kept = controller.admit(ask(time_s)).keep * 1000
    assert 0 < kept < 1000
    return -math.log(kept * pace_s / TARGET_S)


def seen(*samples: LoadSample) -> ArrivalDeadlineController:
    controller = ArrivalDeadlineController(TARGET_S)
    for one in samples:
        controller.observe(one)
    return controller


def test_on_arrival_wait_and_queue_come_off_the_target() -> None:
    """w + (q + kept)·pace ≤ T·exp(−1/4): 1.5576 s."""
    controller = seen(sample(1))
    whole = TARGET_S * math.exp(-0.25)
    assert controller.admit(ask(1, 400)).keep == pytest.approx(whole / COST_S / 400)
    assert controller.admit(ask(1, 400, wait_s=0.5)).keep == pytest.approx((whole - 0.5) / COST_S / 400)
    assert controller.admit(ask(1, 400, 0.5, 100)).keep == pytest.approx(((whole - 0.5) / COST_S - 100) / 400)
    assert controller.admit(ask(1, 400, 0.5, 300)).keep == 0.0, "those ahead are late already"
    assert controller.admit(ask(1, 400, 1.6)).keep == 0.0
    assert controller.admit(ask(1, 311)).keep == 1.0
    assert controller.admit(ask(1, 312)).keep < 1.0
    assert controller.admit(ask(1, 0.5)).keep == 1.0
    assert controller.admit(ask(1, 0.5, wait_s=1.6)).keep == 0.0
    assert controller.admit(ask(1, 0, wait_s=99)).keep == 1.0
    assert controller.admit(ask(1, 400)).capacity == 1.0, "the entry sheds; the network gets the processor"


def test_on_arrival_all_is_kept_before_there_is_a_pace() -> None:
    controller = ArrivalDeadlineController(TARGET_S)
    controller.observe(sample(1, None))
    everything = controller.admit(ask(1, 1e6, wait_s=99))
    assert (everything.keep, everything.capacity) == (1.0, 1.0)
    controller.observe(sample(2, COST_S))
    assert margin(controller, 2) == pytest.approx(0.25)


def test_on_arrival_what_was_finished_counts_if_the_queue_lasted_so_long() -> None:
    """A belief of 5 % of the target, 0.1 s or 20 tuples; 30 more in 0.4 s, if there was a queue of 0.4 s or 80."""
    controller = seen(sample(1))
    left_s = TARGET_S * math.exp(-0.25)
    busy = Outlook(1.4, 1000, 0.0, 0.1, outstanding=80.5, finished=30)
    assert controller.admit(busy).keep == pytest.approx((left_s / 0.01 - 80.5) / 1000)
    idle = Outlook(1.4, 1000, 0.0, 0.1, outstanding=79.5, finished=30)
    assert controller.admit(idle).keep == pytest.approx((left_s / 0.005 - 79.5) / 1000)


@pytest.mark.parametrize(
    ("factor", "rise"), [(1.0, 0.25), (1.2, 0.25), (2.0, math.log(2)), (8.0, math.log(8)), (20.0, math.log(8))]
)
def test_the_margin_is_the_rise_of_the_cost_from_a_quarter_to_a_factor_of_eight(factor: float, rise: float) -> None:
    controller = seen(sample(1), sample(2, factor * COST_S))
    assert margin(controller, 2, factor * COST_S) == pytest.approx(rise)


@pytest.mark.parametrize("duration_s", [0.5, 1.0])
def test_a_rise_is_looked_for_over_a_target_and_a_period(duration_s: float) -> None:
    """A cost that was less at t = 1 is a rise until 1 + T + the period, and none after that."""
    reach_s = 1 + TARGET_S + duration_s
    within = seen(sample(1), sample(reach_s, 2 * COST_S, duration_s=duration_s))
    assert margin(within, reach_s, 2 * COST_S) == pytest.approx(math.log(2))
    beyond = seen(sample(1), sample(reach_s + 0.01, 2 * COST_S, duration_s=duration_s))
    assert margin(beyond, reach_s, 2 * COST_S) == pytest.approx(0.25)


def test_the_least_cost_of_that_time_counts() -> None:
    costs = (0.004, 0.002, 0.003, 0.008)
    controller = seen(*(sample(1 + 0.5 * k, cost_s) for k, cost_s in enumerate(costs)))
    assert margin(controller, 2.5, 0.008) == pytest.approx(math.log(4))


def test_a_rise_is_forgotten_over_a_minute() -> None:
    high = 4 * COST_S
    controller = seen(sample(1), sample(2, high), sample(32, high, duration_s=30))
    assert margin(controller, 32, high) == pytest.approx(math.log(4) * math.exp(-0.5))
    controller.observe(sample(62, high, duration_s=30))
    assert margin(controller, 62, high) == pytest.approx(math.log(4) * math.exp(-1.0))
    controller.observe(sample(182, high, duration_s=120))
    assert margin(controller, 182, high) == pytest.approx(0.25)


def test_the_past_is_kept_in_steps_of_an_eighth_of_the_target() -> None:
    """A cost that was seen less than 0.25 s after the one before it leaves no trace."""
    for time_s, rise in ((1.24, 0.25), (1.25, math.log(2))):
        controller = seen(sample(1, 2 * COST_S), sample(time_s), sample(2, 2 * COST_S))
        assert margin(controller, 2, 2 * COST_S) == pytest.approx(rise)


def test_the_past_is_forgotten_when_the_clock_is_set_back() -> None:
    """Else what was measured in the time to come would count until that has come."""
    controller = seen(sample(100), sample(1, 2 * COST_S))
    assert margin(controller, 1, 2 * COST_S) == pytest.approx(0.25)
    again = seen(sample(100, 2 * COST_S), sample(1), sample(2, 2 * COST_S))
    assert margin(again, 2, 2 * COST_S) == pytest.approx(math.log(2)), "and is written anew"
    at_once = seen(sample(1), sample(1, 2 * COST_S))
    assert margin(at_once, 1, 2 * COST_S) == pytest.approx(math.log(2)), "a clock that stands still is not set back"


# --- delays that the queue did not tell ------------------------------------------------------------------------------


def stretched(p95_s: float | None, *queues: float, time_s: float | None = None) -> float:
    """The margin after samples at 1, 2, … with these queues, the last of which tells the delay."""
    *before, last = queues
    samples = [sample(1 + k, queue=queue) for k, queue in enumerate(before)]
    end_s = 1.0 + len(before) if time_s is None else time_s
    return margin(seen(*samples, sample(end_s, queue=last, p95_s=p95_s)), end_s)


def test_the_margin_is_the_factor_by_which_a_delay_exceeded_what_was_told_when_it_began() -> None:
    # 3 s at t = 4: they came at 1, when the queue told 1 s. What it told later does not matter, nor what it tells now.
    assert stretched(3.0, 200, 10, 10, 10) == pytest.approx(math.log(3.0))
    assert stretched(3.0, 200, 10, 399, 10) == pytest.approx(math.log(3.0))
    assert stretched(3.0, 200, 10, 10, 900) == pytest.approx(math.log(3.0))


def test_between_two_samples_the_longer_queue_counts() -> None:
    # 2.5 s at t = 4: they came at 1.5, between a queue of 1 s and one of 1.5 s.
    assert stretched(2.5, 200, 300, 10, 10) == pytest.approx(math.log(2.5 / 1.5))
    assert stretched(2.5, 300, 200, 10, 10) == pytest.approx(math.log(2.5 / 1.5))
    # They came in since the last sample, 1.1 s ago, or so it seems: then the queue of now is the one after.
    assert stretched(1.1, 10, 100, time_s=2.5) == pytest.approx(math.log(1.1 / 0.5))


def test_a_delay_within_what_was_told_changes_nothing() -> None:
    assert stretched(2.5, 600, 600, 10, 10) == pytest.approx(0.25)


def test_delays_up_to_half_the_target_do_not_matter() -> None:
    assert stretched(1.0, 100, 100) == pytest.approx(0.25)
    assert stretched(1.001, 100, 100, time_s=2.5) == pytest.approx(math.log(1.001 / 0.5))


def test_without_a_queue_a_delay_or_a_past_nothing_was_told() -> None:
    assert stretched(None, 100, 100, 100) == pytest.approx(0.25)
    assert stretched(9.0, 100, 100, 100) == pytest.approx(0.25), "it began before the first sample"
    assert stretched(3.0, 0, 0, 0, 0) == pytest.approx(0.25)
    batches = seen(sample(1, queue=None), sample(2, queue=None), sample(3, queue=None, p95_s=1.5))
    assert margin(batches, 3) == pytest.approx(0.25)


def test_a_delay_is_looked_for_over_five_targets() -> None:
    def after(wait_s: float) -> float:
        end_s = 1 + wait_s
        return margin(seen(sample(1, queue=500), sample(end_s, queue=10, p95_s=wait_s)), end_s)

    assert after(10.0) == pytest.approx(math.log(10.0 / 2.5))
    assert after(10.1) == pytest.approx(0.25), "the queue of so long ago is not remembered"


# --- held back -------------------------------------------------------------------------------------------------------


def held(
    waiting: float = 500,
    wait_s: float = 1.0,
    outstanding: float = 0.0,
    *,
    time_s: float = 1.0,
    again_s: float | None = 0.02,
    finished: float | None = 0.0,
) -> Outlook:
    return Outlook(time_s, waiting, wait_s, 1.0, outstanding, finished, again_s)


def known(target_s: float = TARGET_S) -> DeadlineController:
    controller = DeadlineController(target_s)
    controller.observe(sample(1))
    return controller


def test_the_work_ahead_is_made_twice_as_long_as_until_the_next_question() -> None:
    """2·1.25·0.02 s are ten tuples of 5 ms; the limit is 2 − 0.02 − 1.25·10·0.005."""
    release = known().admit(held())
    assert (release.keep, release.capacity) == (1.0, 1.0)
    assert (release.room, release.wait_limit_s) == pytest.approx((10.0, 1.9175))
    some = known().admit(held(outstanding=4))
    assert (some.room, some.wait_limit_s) == pytest.approx((6.0, 1.9175)), "ahead are ten all the same"
    full = known().admit(held(outstanding=30))
    assert (full.room, full.wait_limit_s) == pytest.approx((0.0, 2 - 0.02 - 1.25 * 30 * 0.005))
    few = known().admit(held(waiting=3, outstanding=4))
    assert (few.room, few.wait_limit_s) == pytest.approx((6.0, 2 - 0.02 - 1.25 * 7 * 0.005)), "no more than wait"


def test_a_new_target_moves_the_limit_by_as_much() -> None:
    controller = known()
    before = controller.admit(held()).wait_limit_s
    controller.target_s = 5.0
    assert controller.admit(held()).wait_limit_s == pytest.approx(before + 3.0)


def test_held_back_what_was_finished_counts_if_the_oldest_has_waited_since() -> None:
    """Who has waited at the entry since the sample has been waiting for an engine that was busy."""
    since = {"time_s": 1.4, "finished": 30.0}  # 10 ms a tuple instead of five, with a belief of 0.1 s
    busy = known().admit(held(wait_s=0.5, **since))
    assert busy.room == pytest.approx(2 * 1.25 * 0.02 / 0.01)
    idle = known().admit(held(wait_s=0.3, **since))
    assert idle.room == pytest.approx(2 * 1.25 * 0.02 / 0.005)


def test_a_restless_cost_widens_room_and_margin() -> None:
    controller = DeadlineController(TARGET_S)
    for k, cost_s in enumerate((0.001, 0.001 * math.exp(3.0), 0.001)):  # a spread of 1
        controller.observe(sample(1 + k, cost_s))
    release = controller.admit(held(time_s=3.0))
    assert release.room == pytest.approx(2 * 2 * 0.02 / 0.001)
    assert release.wait_limit_s == pytest.approx(2 - 0.02 - 2 * 80 * 0.001)


def test_a_slow_start_gives_one_more_than_was_finished() -> None:
    controller = DeadlineController(TARGET_S)
    for outstanding, finished, room in ((0.0, None, 1.0), (0.0, 3.0, 4.0), (3.0, 3.0, 1.0), (9.0, 3.0, 0.0)):
        release = controller.admit(held(outstanding=outstanding, finished=finished))
        assert (release.capacity, release.keep, release.room, release.wait_limit_s) == (1.0, 1.0, room, math.inf)


def test_where_the_decision_is_final_it_is_that_on_arrival() -> None:
    """With the target of now, and room for what is kept."""
    for target_s in (2.0, 1.0):
        controller, on_arrival = known(), seen(sample(1))
        controller.target_s = on_arrival.target_s = target_s
        asked = held(waiting=400, wait_s=0.25, outstanding=10, again_s=None)
        release, expected = controller.admit(asked), on_arrival.admit(asked)
        assert 0 < expected.keep < 1
        assert (release.keep, release.capacity) == (expected.keep, expected.capacity)
        assert release.room == pytest.approx(400 * expected.keep)


def test_a_target_may_be_shorter_than_a_second() -> None:
    release = known(0.5).admit(held(wait_s=0.1))
    assert (release.room, release.wait_limit_s) == pytest.approx((10.0, 0.4175))


@pytest.mark.parametrize("per_step", [3, 4, 8])
def test_an_engine_fed_so_is_always_busy_and_never_late(per_step: int) -> None:
    """In steps of 0.02 s it does four tuples; what it cannot do is dropped, and nothing else."""
    controller, steps = known(), 500
    entry: list[float] = []
    engine: list[float] = []
    delays_s: list[float] = []
    dropped = 0
    for step in range(steps):
        now_s = 1.0 + 0.02 * step
        entry += [now_s] * per_step
        delays_s += [now_s - came_s for came_s in engine[:4]]
        del engine[:4]
        if step % 50 == 49:
            controller.observe(sample(now_s))
        release = controller.admit(held(len(entry), now_s - entry[0], len(engine), time_s=now_s, finished=None))
        late = sum(now_s - came_s > release.wait_limit_s for came_s in entry)
        room = math.floor(release.room + 1e-9)
        engine += entry[late:][:room]
        dropped += late
        del entry[: late + room]
    assert len(delays_s) == min(per_step, 4) * (steps - 1)
    assert max(delays_s) <= TARGET_S
    assert (dropped > 0) == (per_step > 4)
