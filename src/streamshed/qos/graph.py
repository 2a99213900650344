"""Piecewise-linear functions, the form in which Aurora states quality of service."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamshed.errors import InvalidValueError

_TOLERANCE = 1e-9
"""How far a utility may be off a straight or level line; in y, since slopes of narrow pieces amplify rounding."""


@dataclass(frozen=True)
class PiecewiseLinear:
    """A function given by its knees; constant beyond the first and the last.

    >>> PiecewiseLinear.of([(0, 0), (0.5, 0.7), (1, 1)])(0.75)
    0.85
    """

    xs: tuple[float, ...]
    ys: tuple[float, ...]

    @classmethod
    def of(cls, points: Iterable[Sequence[float]], where: str = "graph") -> PiecewiseLinear:
        """Build from (x, y) pairs in strictly ascending order of x."""
        pairs = [tuple(float(number) for number in point) for point in points]
        if len(pairs) < 2:
            raise InvalidValueError(
                "a graph needs at least two points", where=where, got=pairs, expected="[[x, y], [x, y], …]"
            )
        require_points(pairs, 2, where)
        xs, ys = zip(*pairs, strict=True)
        if any(right <= left for left, right in pairwise(xs)):
            raise InvalidValueError(
                "the points of a graph must go from left to right",
                where=where,
                got=list(xs),
                expected="strictly ascending x",
            )
        return cls(xs, ys)

    def __call__(self, x: float) -> float:
        xs, ys = self.xs, self.ys
        if x <= xs[0]:
            return ys[0]
        if x >= xs[-1]:
            return ys[-1]
        right = bisect.bisect_right(xs, x)
        left = right - 1
        return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])

    def mean(self, low: float, high: float) -> float:
        """The mean over all x from `low` to `high`, each as likely; at `low` if they are the same.

        >>> PiecewiseLinear.of([(0, 1), (2, 1), (4, 0)]).mean(1, 3)
        0.875
        """
        if not high > low:
            return self(low)
        knees = [low, *(x for x in self.xs if low < x < high), high]
        return sum((self(left) + self(right)) / 2 * (right - left) for left, right in pairwise(knees)) / (high - low)

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """The knees as (x, y) pairs."""
        return tuple(zip(self.xs, self.ys, strict=True))

    @property
    def slopes(self) -> tuple[float, ...]:
        """The slope of every piece, from left to right."""
        return tuple((self.ys[i + 1] - self.ys[i]) / (self.xs[i + 1] - self.xs[i]) for i in range(len(self.xs) - 1))

    @property
    def is_concave(self) -> bool:
        """Whether no piece is steeper upwards than the piece to its left."""
        xs, ys = self.xs, self.ys
        return all(
            (ys[i] - ys[i - 1]) * (xs[i + 1] - xs[i]) - (ys[i + 1] - ys[i]) * (xs[i] - xs[i - 1])
            >= -_TOLERANCE * (xs[i + 1] - xs[i - 1])
            for i in range(1, len(xs) - 1)
        )


@dataclass(frozen=True)
class LatencyGraph:
    """Utility of an answer against its delay in seconds; never rises."""

    graph: PiecewiseLinear

    @classmethod
    def of(cls, points: Iterable[Sequence[float]], where: str = "latency graph") -> LatencyGraph:
        """Build from (delay_s, utility) points."""
        graph = PiecewiseLinear.of(points, where)
        _require_utilities(graph, where)
        if graph.xs[0] < 0:
            raise InvalidValueError("a delay is negative", where=where, got=graph.xs[0], expected="delays >= 0")
        if any(right > left + _TOLERANCE for left, right in pairwise(graph.ys)):
            raise InvalidValueError(
                "a latency graph must not rise", where=where, got=graph.points, expected="utility falling with delay"
            )
        return cls(graph)

    def __call__(self, delay_s: float) -> float:
        return self.graph(delay_s)


@dataclass(frozen=True)
class LossGraph:
    """Utility of an answer against the fraction of its tuples that was delivered (loss tolerance).

    It runs from fraction 0 to fraction 1, never falls, and is concave, as the road map and the linear program need:
    the first tuples lost must be the cheapest ones.

    >>> LossGraph.of([(0, 0), (0.5, 0.7), (1, 1)])(0.5)
    0.7
    """

    graph: PiecewiseLinear

    @classmethod
    def of(cls, points: Iterable[Sequence[float]], where: str = "loss graph") -> LossGraph:
        """Build from (delivered fraction, utility) points."""
        graph = PiecewiseLinear.of(points, where)
        _require_utilities(graph, where)
        if graph.xs[0] != 0 or graph.xs[-1] != 1:
            raise InvalidValueError(
                "a loss graph must cover all delivered fractions",
                where=where,
                got=f"x from {graph.xs[0]:g} to {graph.xs[-1]:g}",
                expected="x from 0 (nothing delivered) to 1 (everything)",
                hint="write fractions, not per cent" if graph.xs[-1] > 1 else None,
            )
        if any(right < left - _TOLERANCE for left, right in pairwise(graph.ys)):
            raise InvalidValueError(
                "a loss graph must not fall", where=where, got=graph.points, expected="utility rising with delivery"
            )
        if not graph.is_concave:
            raise InvalidValueError(
                "a loss graph must be concave",
                where=where,
                got=f"slopes {', '.join(f'{slope:g}' for slope in graph.slopes)}",
                expected="slopes that do not grow from left to right",
                hint="losing more must never cost less per tuple than losing the first ones",
            )
        return cls(graph)

    @classmethod
    def linear(cls) -> LossGraph:
        """Every tuple is worth the same: the default where nothing else is said."""
        return cls(PiecewiseLinear((0.0, 1.0), (0.0, 1.0)))

    def __call__(self, delivered: float) -> float:
        return self.graph(delivered)


def require_points(points: Iterable[Sequence[float]], size: int, where: str) -> None:
    """Raise unless every point is this many finite numbers."""
    for point in points:
        if len(point) != size or not all(math.isfinite(number) for number in point):
            raise InvalidValueError("not a point", where=where, got=list(point), expected=f"{size} finite numbers")


def _require_utilities(graph: PiecewiseLinear, where: str) -> None:
    if any(y < 0 or y > 1 for y in graph.ys):
        raise InvalidValueError(
            "a utility is out of range",
            where=where,
            got=list(graph.ys),
            expected="0 <= y <= 1",
            hint="write fractions, not per cent" if max(graph.ys) > 1 else None,
        )
