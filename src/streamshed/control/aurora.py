"""AURORA: shed what is above the capacity, and look at nothing else."""

from __future__ import annotations

from streamshed.control.rate import Period, RateController


class AuroraController(RateController):
    """The open loop of Aurora and early Borealis: v(k) = L_0 = H / c(k) (control-based shedder, figure 1, section 5).

    It sheds the excess of the last period's rate over the capacity. The queue does not enter, so a backlog from a rate
    that has risen meanwhile, or from a cost that was wrong, stays for ever: q(k) = q(k−1) + f_in(k) − f_in(k−1). The
    target does not enter either.

    >>> from streamshed.control import LoadSample
    >>> controller = AuroraController(2.0)
    >>> controller.update(LoadSample(1.0, 1.0, arrived=400, kept=400, finished=100, busy_s=0.5, outstanding=300)).keep
    0.485
    """

    name = "aurora"
    title = "AURORA"

    def _next_rate_tps(self, period: Period) -> float:
        return self.headroom / period.cost_s
