"""What a stage can do, as its batches tell."""

from __future__ import annotations

from collections import deque

from streamshed.control.cost import CostEstimator
from streamshed.engines.spark.stage import StageBatch
from streamshed.scheduling import StageCapacity

_LATEST = 10  # batches
_FORGETTING = 0.9  # of a stage's earlier batches, when one more has ended


class CapacityMeter:
    """What a stage can do, from its batches: the cost of a row as the control loop identifies it, without the fixed
    cost of a batch. With that, a stage would look slow only because it has had little to do.

    Where batches of all sizes happen to take equally long, a row would cost nothing. So it costs at least a third of
    what it did in the best of the latest batches, all told.

    >>> from dataclasses import astuple
    >>> meter = CapacityMeter(StageCapacity(1.0, 1.0, 8.0))
    >>> for rows in (2, 2, 100, 300, 200):
    ...     meter.add(StageBatch(0, rows, 10.0, 0.0, 0.2 + 0.002 * rows, passed_on=rows // 2, passed_bytes=rows * 10))
    >>> [round(float(number), 3) for number in astuple(meter.capacity)]
    [0.002, 0.5, 20.0]
    """

    def __init__(self, foreseen: StageCapacity) -> None:
        self.capacity = foreseen
        self._estimator = CostEstimator(_FORGETTING)
        self._all_told_s: deque[float] = deque(maxlen=_LATEST)
        self._rows = self._passed_on = self._passed_bytes = 0.0

    def add(self, batch: StageBatch) -> None:
        """A batch has ended."""
        self._estimator.observe(batch.rows, batch.rows, batch.worked_s)
        cost = self._estimator.cost
        if self._estimator.batches and batch.rows:
            self._all_told_s.append(batch.worked_s / batch.rows)
        self._rows = _FORGETTING * self._rows + batch.rows
        self._passed_on = _FORGETTING * self._passed_on + batch.passed_on
        self._passed_bytes = _FORGETTING * self._passed_bytes + batch.passed_bytes
        self.capacity = StageCapacity(
            self.capacity.cost_s if cost is None else max(cost.read_s + cost.process_s, min(self._all_told_s) / 3),
            self._passed_on / self._rows if self._rows else self.capacity.selectivity,
            self._passed_bytes / self._passed_on if self._passed_on else self.capacity.row_bytes,
        )
