"""CTRL: the feedback controller whose closed loop has the poles one wants."""

from __future__ import annotations

from dataclasses import dataclass

from streamshed.control.rate import HEADROOM, Period, RateController
from streamshed.errors import InvalidValueError

POLES = (0.7, 0.7)
"""The paper's choice (appendix A): no oscillation, and 63 % of a change within three periods."""

CONTROLLER_POLE = 0.8
"""The pole −a of the controller itself, which the equations leave open; the paper has a = −0.8."""


@dataclass(frozen=True)
class Gains:
    """The parameters of C(z) = H·(b0·z + b1) / (c·T·(z + a)), equation 15."""

    b0: float
    b1: float
    a: float


def place_poles(poles: tuple[complex, complex] = POLES, controller_pole: float = CONTROLLER_POLE) -> Gains:
    """Solve the Diophantine equations of appendix A.

    With the plant G(z) = c·T / (H·(z − 1)) the closed loop is

        (b0·z + b1) / (z² + (a − 1 + b0)·z + (b1 − a)).

    Matching its denominator with (z − p1)(z − p2) gives b0 = 1 − a − (p1 + p2) and b1 = p1·p2 + a. Its gain at z = 1 is
    then one whatever a is, because the plant integrates: numerator and denominator both become b0 + b1. So of the three
    parameters one is free, as the paper notes (any solution is to perform alike): the pole −a of the controller.

    Args:
        poles: p1 and p2 of the closed loop, inside the unit circle; both real, or a conjugate pair.
        controller_pole: −a; from 0 (no memory) up to below 1.

    >>> place_poles((0.7, 0.7), 0.8)
    Gains(b0=0.4, b1=-0.31, a=-0.8)
    """
    first, second = (complex(pole) for pole in poles)
    total, product = first + second, first * second
    if abs(total.imag) > 1e-12 or abs(product.imag) > 1e-12:
        raise InvalidValueError(
            "complex poles must be conjugate", where="poles", got=poles, expected="two real poles, or p and its mirror"
        )
    if not max(abs(first), abs(second)) < 1:
        raise InvalidValueError(
            "the closed loop would not be stable", where="poles", got=poles, expected="poles inside the unit circle"
        )
    if not -1 < controller_pole < 1:
        raise InvalidValueError(
            "the controller would not be stable", where="controller pole", got=controller_pole, expected="between ±1"
        )
    a = -controller_pole
    # Rounded at the last digits, so that a controller given by its poles is the one given by its printed gains.
    return Gains(round(1 - a - total.real, 12), round(product.real + a, 12), a)


class PolePlacementController(RateController):
    """Lets the estimated delay approach the target as a system with the wanted poles does (eq. 10):

        e(k) = y_d − ŷ(k),   ŷ(k) = (q(k) + 1)·c(k)/H
        u(k) = H/(c(k)·T)·(b0·e(k) + b1·e(k−1)) − a·u(k−1)
        v(k) = u(k) + f_out(k).

    u is by how much the queue may grow per second. T is the period as it was measured, not as it was planned. A target
    that changes enters through e.

    If the arrivals are fewer than v, or v is negative, the plant cannot do what u says. The paper leaves u as it is:
    its memory is short (a = −0.8 halves it in three periods), but it lets the first second or two of a burst in. With
    `anti_windup` u is set to what the plant could do, as of the rate of the last period.

    Args:
        target_s: the delay to hold.
        poles: of the closed loop.
        controller_pole: −a, the parameter that the equations leave open.
        headroom: H.
        anti_windup: whether u remembers what could be done instead of what was wanted.

    >>> from streamshed.control import LoadSample
    >>> controller = PolePlacementController(2.0)
    >>> sample = LoadSample(1.0, 1.0, arrived=400, kept=400, finished=194, busy_s=0.97, outstanding=193)
    >>> round(controller.update(sample).keep * 400, 6)  # e = 1: u = 194·0.4, v = u + 194
    271.6
    """

    name = "ctrl"
    title = "CTRL"

    def __init__(
        self,
        target_s: float,
        *,
        poles: tuple[complex, complex] = POLES,
        controller_pole: float = CONTROLLER_POLE,
        headroom: float = HEADROOM,
        anti_windup: bool = False,
    ) -> None:
        super().__init__(target_s, headroom=headroom)
        self.gains = place_poles(poles, controller_pole)
        self.anti_windup = anti_windup
        self._error_s = 0.0
        self._growth_tps = 0.0

    def _next_rate_tps(self, period: Period) -> float:
        error_s = self.target_s - period.delay_s(self.headroom)
        gain = self.headroom / (period.cost_s * period.length_s)
        growth_tps = gain * (self.gains.b0 * error_s + self.gains.b1 * self._error_s) - self.gains.a * self._growth_tps
        rate_tps = growth_tps + period.departure_tps
        if self.anti_windup:
            growth_tps = min(max(rate_tps, 0.0), period.arrival_tps) - period.departure_tps
        self._error_s, self._growth_tps = error_s, growth_tps
        return rate_tps
