"""What stages can do, as their batches tell."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping

from streamshed.engines.spark.stage import StageBatch
from streamshed.scheduling import StageCapacity

_LATEST = 10  # batches
_FORGETTING = 0.9  # of a stage's earlier batches, when one more has ended
_WARM_UP = 2  # batches of a stage, in which code is compiled
_LEAST = 1 / 3


class CapacityMeter:
    """What the stages of a network can do, from their batches.

    Rows cost what batches take beyond the shortest of late of all stages of their kind, which had next to nothing to
    do: with the fixed cost of a batch, a stage would look slow only because few rows come to it. Where all batches of a
    stage have the size that its source allows, they alone would not tell one cost from the other. Stages that write an
    arc are of one kind, those that end in outputs of another: to commit a file takes its time.

    Batches of few rows tell little about them. So the statistics count, too: as much as so many rows that they cost, by
    the statistics, as much as a batch without rows. A row costs at least a third of what it did in the best of the
    latest batches, all told.

    Args:
        foreseen: what stages can do by the statistics.
        writers: those that write an arc.

    >>> from dataclasses import astuple
    >>> meter = CapacityMeter({"a": StageCapacity(0.01, 1.0, 8.0), "b": StageCapacity(0.01, 1.0, 8.0)}, {"a", "b"})
    >>> for number in range(9):
    ...     meter.add("a", StageBatch(number, 300, 10.0, 0.0, 0.2 + 0.002 * 300, passed_on=150, passed_bytes=3000))
    ...     meter.add("b", StageBatch(number, 1, 10.0, 0.0, 0.2, passed_on=1, passed_bytes=8))
    >>> [round(float(number), 4) for number in astuple(meter.capacities["a"])]
    [0.0021, 0.5, 20.0]
    """

    def __init__(self, foreseen: Mapping[str, StageCapacity], writers: Collection[str]) -> None:
        self._stages = {stage_id: _Batches(capacity) for stage_id, capacity in foreseen.items()}
        self._writers = frozenset(writers)

    @property
    def capacities(self) -> dict[str, StageCapacity]:
        """What each stage can do, as far as is known."""
        fixed_s = {kind: min(self._latest_s(kind), default=0.0) for kind in (True, False)}
        return {name: batches.capacity(fixed_s[name in self._writers]) for name, batches in self._stages.items()}

    def add(self, stage: str, batch: StageBatch) -> None:
        """A batch of a stage has ended."""
        self._stages[stage].add(batch)

    def _latest_s(self, writes: bool) -> Iterator[float]:
        """How long the latest batches took of the stages that write an arc, or of those that do not."""
        of_kind = (batches for name, batches in self._stages.items() if (name in self._writers) == writes)
        return (worked_s for batches in of_kind for worked_s, _ in batches.latest)


class _Batches:
    """What the batches of one stage took and gave."""

    def __init__(self, foreseen: StageCapacity) -> None:
        self._foreseen = foreseen
        self._skip = _WARM_UP
        self._number = self._worked_s = self._rows = self._passed_on = self._passed_bytes = 0.0
        self.latest: deque[tuple[float, int]] = deque(maxlen=_LATEST)

    def add(self, batch: StageBatch) -> None:
        if batch.rows <= 0 or not math.isfinite(batch.worked_s):
            return
        if self._skip:
            self._skip -= 1
            return
        self.latest.append((batch.worked_s, batch.rows))
        self._number = _FORGETTING * self._number + 1
        self._worked_s = _FORGETTING * self._worked_s + batch.worked_s
        self._rows = _FORGETTING * self._rows + batch.rows
        self._passed_on = _FORGETTING * self._passed_on + batch.passed_on
        self._passed_bytes = _FORGETTING * self._passed_bytes + batch.passed_bytes

    def capacity(self, fixed_s: float) -> StageCapacity:
        if not self._rows:
            return self._foreseen
        least_s = _LEAST * min(worked_s / rows for worked_s, rows in self.latest)
        for_rows_s = self._worked_s - self._number * fixed_s
        believed = fixed_s / self._foreseen.cost_s if self._foreseen.cost_s > 0 else 0.0
        return StageCapacity(
            max((for_rows_s + believed * self._foreseen.cost_s) / (self._rows + believed), least_s),
            self._passed_on / self._rows,
            self._passed_bytes / self._passed_on if self._passed_on else self._foreseen.row_bytes,
        )
