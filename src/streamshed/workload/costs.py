"""How the cost of processing varies over time: factors on the nominal cost, as functions of time.

The control-based shedder is tried on a trace of per-tuple costs (its figure 14) made of Pareto noise with events in
it: a small peak, a large one that begins with a jump, and a terrace that is climbed slowly and left at once. Here each
of these is a factor that is 1 at rest, and traces are multiplied to combine them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from streamshed.workload.arrivals import Pareto
from streamshed.workload.options import check_range
from streamshed.workload.profile import Floats

_MAX_S = 1e8
_MAX_FACTOR = 1e6


class CostTrace(ABC):
    """The contract: by how much a tuple costs more than nominally, at any time. A pure function of its fields.

    >>> trace = CostJump(at_s=10, height=3, fall_s=5) * ConstantCost(2)
    >>> [trace.factor(t) for t in (9.0, 10.0, 12.5, 15.0)]
    [2.0, 6.0, 4.0, 2.0]
    """

    @overload
    def factor(self, t_s: float) -> float: ...
    @overload
    def factor(self, t_s: Floats) -> Floats: ...
    def factor(self, t_s: float | Floats) -> float | Floats:
        """The factor at some time, or at many."""
        factors = self._factors(np.asarray(t_s, dtype=np.float64))
        return factors if isinstance(t_s, np.ndarray) else float(factors)

    @abstractmethod
    def _factors(self, t_s: Floats) -> Floats: ...

    def __mul__(self, other: CostTrace) -> CostTrace:
        return CostProduct((self, other))


@dataclass(frozen=True)
class CostProduct(CostTrace):
    """Several traces at once: their factors multiplied."""

    parts: tuple[CostTrace, ...]

    def _factors(self, t_s: Floats) -> Floats:
        factors = np.ones(t_s.shape)
        for part in self.parts:
            factors = factors * part.factor(t_s)
        return factors


@dataclass(frozen=True)
class ConstantCost(CostTrace):
    """Always the same."""

    level: float = 1.0

    def __post_init__(self) -> None:
        check_range("cost 'constant'", "level", self.level, 0, _MAX_FACTOR, above=True)

    def _factors(self, t_s: Floats) -> Floats:
        return np.full(t_s.shape, self.level)


@dataclass(frozen=True)
class CostNoise(CostTrace):
    """A factor drawn anew for every period from a bounded Pareto distribution with mean 1.

    Attributes:
        beta: bias factor; the smaller, the more extreme.
        most: the largest factor there can be.
        period_s: how long a factor lasts.
        seed: chooses the factors.

    >>> noise = CostNoise(beta=2, most=2).factor(np.arange(4096.0))
    >>> round(float(noise.mean()), 2), bool(noise.max() <= 2)
    (1.0, True)
    """

    beta: float = 1.0
    most: float = 2.0
    period_s: float = 1.0
    seed: int = 0
    _drawn: Pareto = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The distribution is that of bursty arrivals; a seed of its own keeps the two from rising together.
        drawn = Pareto(1.0, self.beta, self.most, self.period_s, seed=self.seed ^ _NOISE_SEED)
        object.__setattr__(self, "_drawn", drawn)

    def _factors(self, t_s: Floats) -> Floats:
        return self._drawn.rate(t_s)


_NOISE_SEED = 0x5EED_C057


@dataclass(frozen=True)
class CostPeak(CostTrace):
    """Up to a height in a straight line, and down again.

    >>> CostPeak(at_s=50, height=2, rise_s=4, fall_s=4).factor(np.array([46.0, 48.0, 50.0, 52.0, 54.0])).tolist()
    [1.0, 1.5, 2.0, 1.5, 1.0]
    """

    at_s: float
    height: float
    rise_s: float = 5.0
    fall_s: float = 5.0

    def __post_init__(self) -> None:
        _check_event("peak", self.at_s, self.height)
        check_range("cost 'peak'", "rise_s", self.rise_s, 1e-6, _MAX_S)
        check_range("cost 'peak'", "fall_s", self.fall_s, 1e-6, _MAX_S)

    def _factors(self, t_s: Floats) -> Floats:
        corners = [self.at_s - self.rise_s, self.at_s, self.at_s + self.fall_s]
        return np.interp(t_s, corners, [1.0, self.height, 1.0])


@dataclass(frozen=True)
class CostJump(CostTrace):
    """Up to a height at once, and slowly down again."""

    at_s: float
    height: float
    fall_s: float = 20.0

    def __post_init__(self) -> None:
        _check_event("jump", self.at_s, self.height)
        check_range("cost 'jump'", "fall_s", self.fall_s, 1e-6, _MAX_S)

    def _factors(self, t_s: Floats) -> Floats:
        falling = np.interp(t_s, [self.at_s, self.at_s + self.fall_s], [self.height, 1.0])
        return np.where(t_s < self.at_s, 1.0, falling)


@dataclass(frozen=True)
class CostTerrace(CostTrace):
    """Slowly up to a height, level for a time, and down at once.

    >>> CostTerrace(start_s=250, end_s=350, height=2, rise_s=20).factor(np.array([230.0, 240.0, 349.0, 350.0])).tolist()
    [1.0, 1.5, 2.0, 1.0]
    """

    start_s: float
    end_s: float
    height: float
    rise_s: float = 20.0

    def __post_init__(self) -> None:
        _check_event("terrace", self.start_s, self.height)
        check_range("cost 'terrace'", "end_s", self.end_s, self.start_s, _MAX_S, above=True)
        check_range("cost 'terrace'", "rise_s", self.rise_s, 1e-6, _MAX_S)

    def _factors(self, t_s: Floats) -> Floats:
        climbing = np.interp(t_s, [self.start_s - self.rise_s, self.start_s], [1.0, self.height])
        return np.where(t_s >= self.end_s, 1.0, climbing)


@dataclass(frozen=True)
class VaryingCost(CostTrace):
    """The shapes of the paper's figure 14 at its times: noise, a small peak, a jump, a terrace.

    The figure's heights are not in the text. These are ours: twice the cost at the small peak (50 s), three times at
    the jump (125 s), twice on the terrace (250 to 350 s, climbed from 230 s on), and noise of at most 1.5 times.

    >>> trace = VaryingCost()
    >>> [round(float(trace.factor(np.arange(a, b, 1.0)).mean()), 1) for a, b in ((0, 40), (260, 340), (360, 400))]
    [1.0, 2.0, 1.0]
    """

    seed: int = 0
    parts: tuple[CostTrace, ...] = field(init=False)

    def __post_init__(self) -> None:
        parts = (
            CostNoise(beta=1.0, most=1.5, seed=self.seed),
            CostPeak(at_s=50, height=2, rise_s=5, fall_s=5),
            CostJump(at_s=125, height=3, fall_s=30),
            CostTerrace(start_s=250, end_s=350, height=2, rise_s=20),
        )
        object.__setattr__(self, "parts", parts)

    def _factors(self, t_s: Floats) -> Floats:
        return CostProduct(self.parts).factor(t_s)


def _check_event(kind: str, at_s: float, height: float) -> None:
    check_range(f"cost {kind!r}", "at_s", at_s, 0, _MAX_S)
    check_range(f"cost {kind!r}", "height", height, 0, _MAX_FACTOR, above=True)
