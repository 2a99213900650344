"""Ours: no tuple is processed that will be late, and none is given up that will not."""

from __future__ import annotations

import math
from collections import deque

from streamshed.control.base import Controller, HoldingController, LoadSample, Outlook, Release
from streamshed.errors import InvalidValueError
from streamshed.load import Admission

_LEAST_SPREAD, _LARGEST_SPREAD = 0.25, 1.0
_FORGETTING = 0.9
_AHEAD = 2.0
_RISE_MEMORY_S = 60.0
_BELIEF = 0.05
_LARGEST_RISE = math.log(8.0)
_LOOK_BACK, _STEPS = 5.0, 8


class Pace:
    """How long the engine takes for a tuple while it has work, and how far that may be off.

    It is the cost of the last sample, as long as that is the last word. While the next sample is under way, what has
    been finished since corrects it: a belief worth 5 % of the target's work is mixed with the tuples seen. So a jump of
    the cost is noticed long before a measurement that lags tells of it. The spread is a multiple of the mean relative
    change from sample to sample. Of the processor's headroom nothing need be known: it is small against the spread.

    Attributes:
        tuple_s: seconds a tuple, as of the last sample; None before there was one.
        spread: by which share of it to be careful.
    """

    def __init__(self) -> None:
        self.tuple_s: float | None = None
        self.spread = _LEAST_SPREAD
        self._change = 0.0
        self._time_s = 0.0

    def observe(self, sample: LoadSample) -> None:
        """Learn from a sample."""
        self._time_s = sample.time_s
        found_s = sample.cost_s
        if found_s is None:
            return
        if self.tuple_s is not None:
            change = abs(math.log(found_s) - math.log(self.tuple_s))
            self._change = _FORGETTING * self._change + (1 - _FORGETTING) * change
            self.spread = min(max(3 * self._change, _LEAST_SPREAD), _LARGEST_SPREAD)
        self.tuple_s = found_s

    def now_s(self, outlook: Outlook, backlog_s: float, belief_s: float) -> float | None:
        """The pace at this moment.

        Args:
            outlook: what was finished since the sample.
            backlog_s: for how long there has been work without a pause, at least. What was finished counts only if
                that reaches back to the sample: else the engine may have been idle.
            belief_s: how much work the last sample is worth.
        """
        since_s = outlook.time_s - self._time_s
        if self.tuple_s is None or outlook.finished is None or not 0 < since_s <= backlog_s:
            return self.tuple_s
        return (belief_s + since_s) / (belief_s / self.tuple_s + outlook.finished)


def _check_target(target_s: float) -> float:
    if not (math.isfinite(target_s) and target_s > 0):
        raise InvalidValueError("a target must be positive", where="controller", got=target_s, expected="> 0 s")
    return target_s


class ArrivalDeadlineController(Controller):
    """Admits a tuple if, by the virtual queue, it will be done in time: a decision that is final.

    For engines that cannot hold tuples back. Of n tuples that have waited for w and find q outstanding, so many are
    kept that

        w + (q + kept)·pace ≤ target·exp(−rise).

    The queue is then a promise about the cost of the next `target` seconds, and the margin has to follow how far that
    promise has been off: `rise` is, on a logarithmic scale, the larger of

    - how far the pace has risen within a stretch as long as the target, and
    - by what factor delays (the 95th percentile) exceeded what the queue told when their tuples came in, as they do in
      a network whose operators do not share the processor as their queues grow,

    forgotten over a minute, and at least a quarter.

    Args:
        target_s: the delay to hold.

    >>> controller = ArrivalDeadlineController(2.0)
    >>> controller.observe(LoadSample(1.0, 1.0, arrived=300, kept=200, outstanding=4, finished=200, busy_s=1.0))
    >>> round(controller.admit(Outlook(1.1, waiting=40, oldest_wait_s=0.0, span_s=0.1, outstanding=300)).keep, 3)
    0.288
    """

    name = "deadline-on-arrival"
    title = "deadline, on arrival"

    def __init__(self, target_s: float) -> None:
        self.target_s = _check_target(target_s)
        self.pace = Pace()
        self._recent: deque[tuple[float, float, float]] = deque()
        self._rise = _LEAST_SPREAD

    def observe(self, sample: LoadSample) -> None:
        self.pace.observe(sample)
        if self.pace.tuple_s is None:
            return
        pace = math.log(self.pace.tuple_s)
        self._remember(sample.time_s, pace, sample.queue * self.pace.tuple_s)
        since_s = sample.time_s - self.target_s - sample.duration_s
        rise = pace - min((before for time_s, before, _ in self._recent if time_s >= since_s), default=pace)
        faded = self._rise * math.exp(-sample.duration_s / _RISE_MEMORY_S)
        self._rise = min(max(rise, self._stretch(sample), faded, _LEAST_SPREAD), _LARGEST_RISE)

    def _remember(self, now_s: float, pace: float, backlog_s: float) -> None:
        """Keep what is a few targets back, in steps: with a short control period there would be too many."""
        recent = self._recent
        if recent and now_s < recent[-1][0]:
            recent.clear()  # the clock was set back
        if not recent or now_s - recent[-1][0] >= self.target_s / _STEPS:
            recent.append((now_s, pace, backlog_s))
        while recent[0][0] < now_s - _LOOK_BACK * self.target_s:
            recent.popleft()

    def _stretch(self, sample: LoadSample) -> float:
        """The logarithm of the factor by which delays exceeded what the queue told; 0 where they did not matter."""
        delay_s = sample.delay_p95_s
        if sample.outstanding is None or delay_s is None or delay_s <= self.target_s / 2:
            return 0.0
        came_s = sample.time_s - delay_s
        # They came in between two samples, and a burst may have come with them: the longer of the two queues counts.
        told_s = after_s = 0.0
        for time_s, _, backlog_s in reversed(self._recent):
            if time_s <= came_s:
                told_s = max(backlog_s, after_s)
                break
            after_s = backlog_s
        return math.log(delay_s / told_s) if told_s > 0 else 0.0

    def admit(self, outlook: Outlook) -> Admission:
        backlog_s = outlook.outstanding * (self.pace.tuple_s or 0.0)
        pace_s = self.pace.now_s(outlook, backlog_s, _BELIEF * self.target_s)
        if pace_s is None or outlook.waiting <= 0:
            return Admission(1.0)
        left_s = self.target_s * math.exp(-self._rise) - outlook.oldest_wait_s
        fits = left_s / pace_s - outlook.outstanding
        return Admission(1.0, min(max(fits / outlook.waiting, 0.0), 1.0))


class DeadlineController(HoldingController):
    """Holds tuples back until they are due, and drops those that would be late.

    Three observations lead here. Under lasting overload the loss is set by the excess, whatever the queue is: a tuple
    that is admitted only to come out late has cost another one its place. Whether a tuple will be late depends on the
    cost of all tuples ahead of it, so a prediction at arrival looks as far ahead as the target is long; at the moment
    when the tuple is due it looks ahead by the little that is already in the engine. And until then nothing is lost by
    waiting: if the burst ends or the cost falls, the tuple is processed after all.

    So tuples wait at the entry, and the engine is given just enough to be busy until it asks again, in `again`: `room`
    makes the work ahead twice that long. A tuple is dropped when its wait exceeds

        target − again − (1 + spread)·(tuples ahead, room included)·pace,

    where one `again` is for what the engine has begun and does not count as outstanding any more.

    With equal costs that is earliest deadline first, which finishes as many tuples in time as can be finished in time:
    no controller that holds the target loses less, but for the short work ahead. The margin is `spread` of that work
    (25 to 100 %, following the change of the pace), not of the target, because nothing else is uncertain.

    Where the decision is final (`again_s` is None), it is that of `ArrivalDeadlineController`.

    Before a pace has been measured, the engine gets as many tuples as it has finished so far: a slow start.

    Args:
        target_s: the delay to hold. There is nothing else to set.

    >>> controller = DeadlineController(2.0)
    >>> controller.observe(LoadSample(1.0, 1.0, arrived=300, kept=200, outstanding=4, finished=200, busy_s=1.0))
    >>> release = controller.admit(Outlook(1.0, 400, oldest_wait_s=1.9, span_s=1.9, outstanding=2, again_s=0.02))
    >>> round(release.room, 6), round(release.wait_limit_s, 6)  # 5 ms a tuple: 10 ahead, and 25 % to be careful
    (8.0, 1.9175)
    """

    name = "deadline"
    title = "deadline (ours)"

    def __init__(self, target_s: float) -> None:
        self.target_s = _check_target(target_s)
        self._final = ArrivalDeadlineController(target_s)

    def observe(self, sample: LoadSample) -> None:
        self._final.observe(sample)

    def admit(self, outlook: Outlook) -> Release:
        if outlook.again_s is None:
            self._final.target_s = self.target_s
            final = self._final.admit(outlook)
            return Release(final.capacity, final.keep, room=final.keep * outlook.waiting)
        pace = self._final.pace
        pace_s = pace.now_s(outlook, outlook.oldest_wait_s, _BELIEF * self.target_s)
        if pace_s is None:
            return Release(1.0, room=max((outlook.finished or 0.0) + 1 - outlook.outstanding, 0.0))
        careful = 1 + pace.spread
        room = max(_AHEAD * careful * outlook.again_s / pace_s - outlook.outstanding, 0.0)
        ahead = outlook.outstanding + min(room, outlook.waiting)
        limit_s = self.target_s - outlook.again_s - careful * ahead * pace_s
        return Release(1.0, room=room, wait_limit_s=limit_s)
