"""How far apart the rates of a grid lie (Borealis, 3.2)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from streamshed.distributed.feasible_input.exact import exact
from streamshed.distributed.model import Real
from streamshed.errors import InvalidValueError


class Spread(ABC):
    """Decides the spread along each dimension, from the highest rate R and the score of a tuple there."""

    @abstractmethod
    def of(self, highest: Sequence[Fraction], slopes: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """The spread along each dimension."""


@dataclass(frozen=True)
class MaxError(Spread):
    """No rates have a score more than `error` above that of an entry: s_i = e_max/(m·sel_i).

    >>> [str(spread) for spread in MaxError(0.1).of([Fraction(1, 3), Fraction(1)], [Fraction(1, 2), Fraction(1)])]
    ['1/10', '1/20']
    """

    error: Real

    def __post_init__(self) -> None:
        if not (0 < self.error < math.inf):
            raise InvalidValueError("a maximum error must be positive", where="spread", got=self.error, expected="> 0")

    def of(self, highest: Sequence[Fraction], slopes: Sequence[Fraction]) -> tuple[Fraction, ...]:
        share = exact(self.error) / len(highest)
        # Where a tuple scores nothing, no rate but 0 is worth an entry.
        return tuple(share / slope if slope else top or Fraction(1) for top, slope in zip(highest, slopes, strict=True))


@dataclass(frozen=True)
class TableSize(Spread):
    """At most `entries` entries ahead of the elimination, with the same error along every dimension.

    With B_i points along i, ΠB_i ≤ B, and the same error s_i·m·sel_i along all i: the least such error is searched.
    """

    entries: int

    def __post_init__(self) -> None:
        if self.entries < 1:
            raise InvalidValueError("a table needs room", where="spread", got=self.entries, expected="entries, >= 1")

    def of(self, highest: Sequence[Fraction], slopes: Sequence[Fraction]) -> tuple[Fraction, ...]:
        tops = [top * slope for top, slope in zip(highest, slopes, strict=True)]
        low, high = 0.0, 2 * float(max(*tops, Fraction(0))) or 1.0  # with this step there is one point besides 0
        for _ in range(60):
            step = (low + high) / 2
            low, high = (low, step) if self._points(tops, step) <= self.entries else (step, high)
        unit = exact(high * (1 + 1e-8))
        return tuple(unit / slope if slope else top or Fraction(1) for top, slope in zip(highest, slopes, strict=True))

    @staticmethod
    def _points(tops: Sequence[Fraction], step: float) -> float:
        return math.prod(math.floor(float(top) / step) + 1 if step > 0 else math.inf for top in tops)
