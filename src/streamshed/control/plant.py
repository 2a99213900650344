"""The first controller: one batch ahead on the plant model, no more and no less than fits."""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.control.base import Controller, LoadSample, Outlook
from streamshed.control.cost import BatchCost, CostEstimator
from streamshed.errors import InvalidValueError
from streamshed.load import Admission

_SMALLEST_MARGIN = 0.1
_LARGEST_MARGIN = 0.25
_DEVIATIONS = 2.0
_LEAST_WORK = 0.1
_HELD_UP = 2.0


@dataclass(frozen=True)
class BatchAdmission(Admission):
    """What may run in the next batch.

    Attributes:
        keep: the fraction of the waiting tuples that may be kept.
        duration_s: how long the batch may take; None while nothing is known about costs.
        attainable: whether the target can be held; False if even an empty batch takes too long.
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

    Whatever the target says, a tenth of it goes into processing, on top of the time that starting the batch and reading
    it takes anyway. A batch that has waited too long has later tuples that are still in time; and where the target
    cannot be held at all, because starting and reading take too long by themselves, dropping everything would not help.

    Until two batches after the warm-up have been seen, everything is kept.

    Args:
        target_s: the delay to hold.
        estimator: learns the costs; by default one that leaves out two batches.

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

    def __init__(self, target_s: float, estimator: CostEstimator | None = None) -> None:
        if not target_s > 0:
            raise InvalidValueError("a target must be positive", where="controller", got=target_s, expected="> 0 s")
        self.target_s = target_s
        self._estimator = estimator or CostEstimator()

    @property
    def cost(self) -> BatchCost | None:
        """The costs as they are known now."""
        return self._estimator.cost

    def believe(self, cost: BatchCost, arrived: float) -> None:
        """Begin with the costs that another run has found out; `arrived` is the number of tuples of its batches."""
        self._estimator.believe(cost, arrived)

    def observe(self, sample: LoadSample) -> None:
        self._estimator.observe(sample.arrived, sample.kept, sample.duration_s)

    def admit(self, outlook: Outlook) -> BatchAdmission:
        cost, waiting, span_s = self.cost, outlook.waiting, max(outlook.span_s, 1e-3)
        if cost is None or waiting <= 0:
            return BatchAdmission(_load(cost, waiting, span_s))
        aim_s = self.target_s - self._margin_s(cost)
        load = waiting / span_s * (cost.read_s + cost.process_s)
        room_s = max(aim_s / 2, (aim_s - cost.fixed_s) / (1 + load))
        attainable = 2 * cost.fixed_s < aim_s
        if cost.at_most_s(waiting, waiting, known=_HELD_UP) <= room_s:
            return BatchAdmission(_load(cost, waiting, span_s), 1.0, room_s, attainable)
        least_s = cost.duration_s(waiting, 0) + _LEAST_WORK * aim_s
        budget_s = max(min(room_s, aim_s - outlook.oldest_wait_s), least_s)
        kept = cost.affordable(waiting, budget_s)
        return BatchAdmission(_load(cost, kept, span_s), kept / waiting, budget_s, attainable)

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

    def _margin_s(self, cost: BatchCost) -> float:
        wanted_s = _DEVIATIONS * cost.error_s
        return min(max(wanted_s, _SMALLEST_MARGIN * self.target_s), _LARGEST_MARGIN * self.target_s)


def _load(cost: BatchCost | None, kept: float, span_s: float) -> float:
    """Seconds of processing for each second in which the tuples arrived."""
    return kept * cost.process_s / span_s if cost is not None else 1.0
