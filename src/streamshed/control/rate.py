"""What the controllers of the control-based shedder's paper have in common: they set the rate of the next period."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

from streamshed.control.base import Controller, LoadSample, Outlook
from streamshed.errors import InvalidValueError
from streamshed.load import Admission

HEADROOM = 0.97
"""The share H of the processor that queries get; the paper found 0.97 to fit its system best (section 4.2)."""


@dataclass(frozen=True)
class Period:
    """A control period in the paper's symbols.

    Attributes:
        length_s: T, as measured.
        queue: q(k), tuples outstanding at its end.
        cost_s: c(k), processing time of a tuple.
        arrival_tps: f_in(k), tuples offered per second.
        departure_tps: f_out(k), tuples finished per second.
    """

    length_s: float
    queue: float
    cost_s: float
    arrival_tps: float
    departure_tps: float

    def delay_s(self, headroom: float) -> float:
        """The delay that a tuple arriving now will have, by the virtual queue: ŷ = (q + 1)·c / H (eq. 11).

        >>> Period(1.0, queue=368, cost_s=1 / 190, arrival_tps=300, departure_tps=184).delay_s(0.97)
        2.002...
        """
        return (self.queue + 1) * self.cost_s / headroom


class RateController(Controller):
    """Finds the rate v(k) at which tuples may enter during the next period, once a period.

    The actuator is a coin at the entry: of the next period's tuples the fraction α = 1 − v(k)/f_in(k) is dropped, as if
    they came at the rate of the last one (eq. 13). Where a planner decides on the drops, it gets the load v(k)·c(k) to
    leave; what is above is the load to shed.

    Until the cost of a tuple has been measured once, everything is kept. While nothing is finished, the last cost
    holds.

    Args:
        target_s: the delay to hold, y_d.
        headroom: H, the share of the processor that queries get.
    """

    def __init__(self, target_s: float, *, headroom: float = HEADROOM) -> None:
        if not (math.isfinite(target_s) and target_s > 0):
            raise InvalidValueError("a target must be positive", where="controller", got=target_s, expected="> 0 s")
        if not 0 < headroom <= 1:
            raise InvalidValueError("not a headroom factor", where="controller", got=headroom, expected="0 < H <= 1")
        self.target_s = target_s
        self.headroom = headroom
        self.rate_tps: float | None = None
        """v(k): what may enter per second; negative if even what is queued is too much. None before the first cost."""
        self._cost_s: float | None = None
        self._admission = Admission(1.0)

    def observe(self, sample: LoadSample) -> None:
        if not (math.isfinite(sample.duration_s) and sample.duration_s > 0):
            return
        self._cost_s = sample.cost_s or self._cost_s
        if self._cost_s is None:
            return
        period = Period(
            sample.duration_s,
            sample.queue,
            self._cost_s,
            sample.arrived / sample.duration_s,
            sample.departed / sample.duration_s,
        )
        self.rate_tps = self._next_rate_tps(period)
        wanted_tps = max(self.rate_tps, 0.0)
        admitted_tps = min(wanted_tps, period.arrival_tps)
        if period.arrival_tps > 0:
            keep = admitted_tps / period.arrival_tps
        else:
            keep = 1.0 if wanted_tps > 0 else 0.0
        self._admission = Admission(admitted_tps * period.cost_s, keep)

    def admit(self, outlook: Outlook) -> Admission:  # noqa: ARG002 - the decision was made when the period ended
        return self._admission

    @abstractmethod
    def _next_rate_tps(self, period: Period) -> float:
        """v(k)."""
