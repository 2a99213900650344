"""The first controller: one batch ahead on the plant model, no more and no less than fits."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from streamshed.control.base import Controller, LoadSample, Outlook, OutOfReach
from streamshed.control.cost import BatchCost, CostEstimator
from streamshed.errors import InvalidValueError
from streamshed.load import Admission

_SMALLEST_MARGIN = 0.1
_LARGEST_MARGIN = 0.25
_DEVIATIONS = 2.0
_LEAST_WORK = 0.1
_HELD_UP = 2.0
_REACH = 0.5  # of the target less its margin: a batch that takes longer is late with nothing in it
_MOST_READING = 0.9  # of the time
_IN_A_ROW, _SAID = 3, 2  # so many batches have to take longer, and the model has to say so after so many
_BACK = 0.45  # below that a target counts as within reach again
_HOPEFUL = 5  # batches in a row by whose model it does, be it sure or not: then it is worth a try
_IN_VAIN = 5.0  # times a batch with everything dropped: how long batches may get where the target cannot be held


@dataclass(frozen=True)
class BatchAdmission(Admission):
    """What may run in the next batch.

    Attributes:
        keep: the fraction of the waiting tuples that may be kept.
        duration_s: how long the batch may take; None while nothing is known about costs.
        attainable: whether the target can be held; see `Controller.out_of_reach`.
    """

    keep: float = 1.0
    duration_s: float | None = None
    attainable: bool = True

    @property
    def fraction(self) -> float:
        """The fraction to drop."""
        return 1.0 - self.keep


class PlantController(Controller):
    """Keeps as many tuples of the next batch as can be done in time.

    A tuple's delay is its wait plus the duration of its batch, and the tuples of the next batch wait for this one. So
    there is room for a batch of half of T − m (target less margin) under overload, or, if the present rate (load ρ < 1)
    can be processed in full, of the D after which the next one still fits, (T − m − a) / (1 + ρ).

    A batch that fits into that room is kept as a whole. It may have waited for too long, because the one before it was
    held up; but the backlog goes away by itself then, and dropping would punish tuples for what load has not caused.
    Otherwise the oldest of them, which has waited w, must be done in time as well: w + D ≤ T − m. The number to keep
    follows from the cost model,

        n = (D − a − c_r·N) / c_p.

    The margin is two standard deviations of the model's error, from 10 to 25 % of the target. Where the batches so far
    were all of one size, what a much larger one costs is a guess: the doubt that comes with the costs keeps the first
    batches of a burst small, until they have told. (A batch of twice the usual size is no burst, but one that follows
    a batch that was held up.)

    Whatever the target says, a tenth of T − m goes into processing, on top of the time that starting the batch and
    reading it takes anyway: a batch that has waited too long has later tuples that are still in time.

    Where a batch takes longer than (T − m)/2 with everything in it dropped, by the model (twice) and as three batches
    in a row have shown, the target is *out of reach*: no drop makes batches short enough, and dropping for it would be
    harm without use. What such a batch takes follows from the rate r at which tuples come, D = a + c_r·r·D: batches of
    a steady length tell D well, even where they don't tell a from c_r. Out of reach only what is too much for the
    machine is dropped: batches may get as long as 5·D, so that a load of up to four fifths of the capacity is kept
    whole. That ends when a batch has taken less than 0.45·(T − m), or when by the model one without tuples would:
    surely, or for five batches on end. With `insist` the target is aimed at all the same.

    Until two batches after the warm-up have been seen, everything is kept.

    Args:
        target_s: the delay to hold.
        estimator: learns the costs; by default one that leaves out two batches.
        insist: whether to drop for a target that is out of reach.

    >>> controller = PlantController(2.0, CostEstimator(warmup=0))
    >>> for n in (1000, 2000, 4000):
    ...     controller.observe(LoadSample(0.0, 0.1 + 1e-4 * n, arrived=n, kept=n))
    >>> controller.admit(Outlook(0.0, waiting=4000, oldest_wait_s=0.5, span_s=0.5)).keep
    1.0
    >>> round(controller.admit(Outlook(0.0, waiting=16_000, oldest_wait_s=0.9, span_s=0.9)).keep, 2)
    0.4
    """

    name = "deadline"
    title = "deadline for micro-batches (ours)"

    def __init__(self, target_s: float, estimator: CostEstimator | None = None, *, insist: bool = False) -> None:
        if not target_s > 0:
            raise InvalidValueError("a target must be positive", where="controller", got=target_s, expected="> 0 s")
        self.target_s = target_s
        self._estimator = estimator or CostEstimator()
        self.insist = insist
        self._latest_s: deque[float] = deque(maxlen=_IN_A_ROW)
        self._hopeful = self._hopeless = 0
        self._start_s = -math.inf

    @property
    def cost(self) -> BatchCost | None:
        """The costs as they are known now."""
        return self._estimator.cost

    def believe(self, cost: BatchCost, arrived: float) -> None:
        """Begin with the costs that another run has found out; `arrived` is the number of tuples of its batches."""
        self._estimator.believe(cost, arrived)

    def observe(self, sample: LoadSample) -> None:
        self._estimator.observe(sample.arrived, sample.kept, sample.duration_s)
        if sample.arrived > 0:
            self._judge(sample)

    def admit(self, outlook: Outlook) -> BatchAdmission:
        cost, waiting, span_s = self.cost, outlook.waiting, max(outlook.span_s, 1e-3)
        if cost is None or waiting <= 0:
            return BatchAdmission(_load(cost, waiting, span_s))
        aim_s = self.target_s - self._margin_s(cost)
        if self.out_of_reach is not None and not self.insist:
            aim_s = max(aim_s, 2 * _IN_VAIN * self.out_of_reach.empty_s)
        load = waiting / span_s * (cost.read_s + cost.process_s)
        room_s = max(aim_s / 2, (aim_s - cost.fixed_s) / (1 + load))
        if cost.at_most_s(waiting, waiting, known=_HELD_UP) <= room_s:
            return BatchAdmission(_load(cost, waiting, span_s), 1.0, room_s, self.out_of_reach is None)
        least_s = cost.duration_s(waiting, 0) + _LEAST_WORK * aim_s
        budget_s = max(min(room_s, aim_s - outlook.oldest_wait_s), least_s)
        kept = cost.affordable(waiting, budget_s)
        return BatchAdmission(_load(cost, kept, span_s), kept / waiting, budget_s, self.out_of_reach is None)

    @property
    def lasting_batch_s(self) -> float | None:
        """How long batches may take that follow each other without a pause; None while costs are not known."""
        cost = self.cost
        return None if cost is None else (self.target_s - self._margin_s(cost)) / 2

    @property
    def lasting_rate_tps(self) -> float | None:
        """How many tuples a second can be kept for good, if none is dropped: those of a batch of that length.

        None while costs are not known, or if even an empty batch takes too long.
        """
        cost, batch_s = self.cost, self.lasting_batch_s
        if cost is None or batch_s is None or cost.read_s + cost.process_s <= 0:
            return None
        rate_tps = (batch_s - cost.fixed_s) / batch_s / (cost.read_s + cost.process_s)
        return rate_tps if rate_tps > 0 else None

    def _judge(self, sample: LoadSample) -> None:
        """Whether the target can be held; where that is not sure, it stays as it was judged."""
        start_s = sample.time_s - sample.duration_s
        # No batch starts before the last one has ended, whatever the clock says.
        since_s = max(start_s - self._start_s, self._latest_s[-1] if self._latest_s else math.inf)
        self._start_s = start_s
        self._latest_s.append(sample.duration_s)
        cost = self.cost
        if cost is None:
            return
        aim_s = self.target_s - self._margin_s(cost)
        working = 1.0 - min(cost.read_s * sample.arrived / since_s, _MOST_READING)
        empty_s = cost.fixed_s / working
        self._hopeless = self._hopeless + 1 if empty_s > _REACH * aim_s else 0
        if self._hopeless >= _SAID and len(self._latest_s) == _IN_A_ROW and min(self._latest_s) > self.target_s / 2:
            least_s = empty_s / _BACK / (1.0 - _SMALLEST_MARGIN)
            self.out_of_reach, self._hopeful = OutOfReach(self.target_s, empty_s, least_s), 0
            return
        limit_s = _BACK * aim_s
        self._hopeful = self._hopeful + 1 if empty_s < limit_s else 0
        surely_s = min(self._latest_s[-1], empty_s + cost.fixed_doubt_s / working)
        if surely_s < limit_s or self._hopeful >= _HOPEFUL:
            self.out_of_reach = None

    def _margin_s(self, cost: BatchCost) -> float:
        wanted_s = _DEVIATIONS * cost.error_s
        return min(max(wanted_s, _SMALLEST_MARGIN * self.target_s), _LARGEST_MARGIN * self.target_s)


def _load(cost: BatchCost | None, kept: float, span_s: float) -> float:
    """Seconds of processing for each second in which the tuples arrived."""
    return kept * cost.process_s / span_s if cost is not None else 1.0
