"""What is counted while a run goes on. Tuples are forgotten as soon as they have been counted."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.gauges import DelayCounts
from streamshed.engines.sim.result import Delays, Series
from streamshed.engines.sim.tuples import DELIVERED, DROPPED, Ids, Times, Tuples


class Measures:
    """Counts of a run: totals, a histogram of delays, one row per control period.

    Args:
        period_s: the control period.
        periods: how many there are.
        target_s: the delay beyond which a tuple is late; may be changed at any time.
        keep_tuples: whether to remember when each tuple arrived and left.
    """

    def __init__(self, period_s: float, periods: int, target_s: float, keep_tuples: bool) -> None:
        self.target_s = target_s
        self.delivered = self.dropped = self.filtered = 0
        self.delayed = 0
        self.violations_s = self.overshoot_s = 0.0
        self._fresh: list[tuple[Times, Times, NDArray[np.uint8]]] = []
        self._period_s = period_s
        self._delays = DelayCounts()
        self._counts = np.zeros(periods + 1)
        self._sums_s = np.zeros(periods + 1)
        self._maxima_s = np.zeros(periods + 1)
        self._keep_tuples = keep_tuples
        self._arrivals: list[Times] = []
        self._departures: list[Times] = []
        self._rows: list[tuple[float, ...]] = []

    def left(self, tuples: Tuples, at: Ids) -> None:
        """Take note of tuples whose last copy has ended."""
        self._fresh.append((tuples.arrived_s[at], tuples.left_s[at], tuples.fate[at]))

    def delays_of_period(self) -> Times:
        """Count what was noted since the last time, all at once.

        Returns:
            The delays of the tuples among it that got through.
        """
        if not self._fresh:
            return np.zeros(0)
        arrived_s, left_s, fate = (np.concatenate(column) for column in zip(*self._fresh, strict=True))
        self._fresh.clear()
        delivered = int(np.count_nonzero(fate & DELIVERED))
        lost = (fate & (DELIVERED | DROPPED)) == DROPPED
        dropped = int(np.count_nonzero(lost))
        self.delivered += delivered
        self.dropped += dropped
        self.filtered += len(fate) - delivered - dropped
        if dropped:
            arrived_s, left_s = arrived_s[~lost], left_s[~lost]
        if self._keep_tuples:
            self._arrivals.append(arrived_s)
            self._departures.append(left_s)
        delay_s: Times = left_s - arrived_s
        if len(delay_s):
            self._count(arrived_s, delay_s)
        return delay_s

    def _count(self, arrived_s: Times, delay_s: Times) -> None:
        self._delays.add(delay_s)
        longest_s = float(delay_s.max())
        if longest_s > self.target_s:
            beyond_s = delay_s[delay_s > self.target_s] - self.target_s
            self.violations_s += float(beyond_s.sum())
            self.delayed += len(beyond_s)
            self.overshoot_s = max(self.overshoot_s, longest_s - self.target_s)
        period = (arrived_s / self._period_s).astype(np.int64)
        for number in np.unique(period):
            of_period = delay_s[period == number]
            self._counts[number] += len(of_period)
            self._sums_s[number] += of_period.sum()
            self._maxima_s[number] = max(self._maxima_s[number], of_period.max())

    def refused(self, count: int) -> None:
        """Count tuples that were dropped where they came in."""
        self.dropped += count

    def end_period(
        self, time_s: float, arrived: float, admitted: float, finished: float, outstanding: float, busy_s: float
    ) -> None:
        """Close the books on a control period."""
        cost_s = busy_s / finished if finished else math.nan
        self._rows.append((time_s, arrived, admitted, finished, outstanding, busy_s, cost_s, self.target_s))

    @property
    def delays(self) -> Delays:
        """Of all that got through."""
        return self._delays.delays

    @property
    def tuples_s(self) -> tuple[Times, Times]:
        """Arrivals and departures, if they were kept."""
        if not self._arrivals:
            return np.zeros(0), np.zeros(0)
        return np.concatenate(self._arrivals), np.concatenate(self._departures)

    @property
    def series(self) -> Series:
        """One row per control period."""
        time_s, arrived, admitted, finished, outstanding, busy_s, cost_s, target_s = (
            np.array(self._rows).reshape(-1, 8).T
        )
        rows = len(self._rows)
        with np.errstate(invalid="ignore"):
            means_s = self._sums_s[:rows] / self._counts[:rows]
        return Series(
            time_s, arrived, admitted, finished, outstanding, busy_s, cost_s, means_s, self._maxima_s[:rows], target_s
        )
