"""BASELINE: fill the virtual queue up to the target in one period."""

from __future__ import annotations

from streamshed.control.rate import Period, RateController


class BaselineController(RateController):
    """Feedback without a designed controller (control-based shedder, section 5).

    The target allows y_d·H/c outstanding tuples. What is missing may be added in the next period, on top of what leaves
    in it:

        v(k) = (y_d·H/c(k) − q(k)) / T + H/c(k).

    That is a deadbeat controller: it corrects everything at once, errors of measurement included.

    >>> from streamshed.control import LoadSample
    >>> controller = BaselineController(2.0)
    >>> sample = LoadSample(1.0, 1.0, arrived=400, kept=400, finished=200, busy_s=1.0, outstanding=300)
    >>> round(controller.update(sample).keep, 6), round(controller.rate_tps, 6)  # 388 − 300 + 194
    (0.705, 282.0)
    """

    name = "baseline"
    title = "BASELINE"

    def _next_rate_tps(self, period: Period) -> float:
        capacity_tps = self.headroom / period.cost_s
        return (self.target_s * capacity_tps - period.queue) / period.length_s + capacity_tps
