"""The tuple cost model and the overload detector: how many of the waiting tuples can be processed in time."""

from __future__ import annotations

import math
from collections import deque

from streamshed.errors import InvalidValueError
from streamshed.planning.fair.windows import INTERVAL_S

SMOOTHED_OVER = 40
"""Measurements that the moving average looks back over; 10 s at a shedding interval of 250 ms."""


class TupleCostModel:
    """The mean time for a tuple of any query: C = t / n, over the measured time t, not the nominal interval.

    The time and the number of tuples are smoothed by moving averages each, and C is their ratio. So an interval counts
    by what was done in it: one with three tuples does not outweigh one with three thousand.

    Args:
        smoothed_over: the number of measurements in an average.

    >>> model = TupleCostModel()
    >>> model.observe(elapsed_s=0.3, processed=5000)
    >>> round(model.cost_s * 1000, 6), model.affordable(0.25)
    (0.06, 4166)
    """

    def __init__(self, smoothed_over: int = SMOOTHED_OVER) -> None:
        if smoothed_over < 1:
            raise InvalidValueError(
                "nothing to average over", where="tuple cost model", got=smoothed_over, expected="at least 1"
            )
        self._measured: deque[tuple[float, int]] = deque(maxlen=smoothed_over)

    def observe(self, elapsed_s: float, processed: int, *, idle_s: float = 0.0) -> None:
        """Learn from an interval. One without tuples, or without time at work, says nothing about their cost.

        Args:
            elapsed_s: the measured time since the last call.
            processed: tuples processed in it.
            idle_s: how long there was nothing to do. Without it a node that waits for tuples looks like one that
                takes long over them, and would shed the first burst after a quiet time.
        """
        busy_s = elapsed_s - idle_s
        if processed > 0 and 0 < busy_s < math.inf:
            self._measured.append((busy_s, processed))

    @property
    def cost_s(self) -> float | None:
        """C, in seconds per tuple; None before there is a measurement."""
        if not self._measured:
            return None
        return math.fsum(busy_s for busy_s, _ in self._measured) / sum(processed for _, processed in self._measured)

    def affordable(self, interval_s: float) -> int | None:
        """N = δ / C: how many tuples can be processed in an interval; None as long as the cost is unknown."""
        cost_s = self.cost_s
        return None if cost_s is None else math.floor(interval_s / cost_s * (1 + 1e-12))


class OverloadDetector:
    """Compares what waits with what can be processed until it looks again.

    Args:
        interval_s: the shedding interval δ.
        cost: the cost model; a new one by default.

    >>> detector = OverloadDetector()
    >>> detector.excess(1_000_000)
    0
    >>> detector.cost.observe(0.3, 5000)
    >>> detector.excess(5_000), detector.excess(3_000)
    (834, 0)
    """

    def __init__(self, interval_s: float = INTERVAL_S, cost: TupleCostModel | None = None) -> None:
        if not 0 < interval_s < math.inf:
            raise InvalidValueError(
                "not a shedding interval", where="overload detector", got=interval_s, expected="seconds, > 0"
            )
        self.interval_s = interval_s
        self.cost = TupleCostModel() if cost is None else cost

    def excess(self, waiting: int) -> int:
        """How many of the waiting tuples have to go; none as long as the cost is unknown."""
        affordable = self.cost.affordable(self.interval_s)
        return 0 if affordable is None else max(0, waiting - affordable)
