"""What a rate of results is worth: the last column of a feasible input table.

A score is a sum over the outputs of a concave, piecewise linear worth of their rates, because a sum is what tables of
several children can be merged by, and a concave worth is what a linear program can maximise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from streamshed.errors import InvalidValueError

Pieces = tuple[tuple[float, float], ...]
"""(width in tuples per second, worth of a tuple), from the steepest on; the last may be infinitely wide."""


class Score(ABC):
    """Says what an output's results are worth.

    Attributes:
        counts_results: whether tuples count as they leave the last segment of a query, or as they enter it.
    """

    counts_results: bool = True

    @abstractmethod
    def pieces(self, output: str) -> Pieces:
        """The worth of an output's rate."""

    @property
    def is_linear(self) -> bool:
        """Whether a tuple is always worth the same."""
        return True

    def worth(self, output: str, rate_tps: float) -> float:
        """The worth of a rate."""
        total = 0.0
        for width, slope in self.pieces(output):
            total += slope * min(rate_tps, width)
            rate_tps -= min(rate_tps, width)
        return total

    def total(self, rates_tps: Mapping[str, float]) -> float:
        """The score of all outputs."""
        return sum(self.worth(output, rate) for output, rate in rates_tps.items())


@dataclass(frozen=True)
class Throughput(Score):
    """Total query throughput, as in the paper, or its weighted form.

    Attributes:
        weights: what a result of an output counts; 1 where not given.
        counts_results: False to count tuples ahead of the last segment's selectivity, as table 1 of the paper does.

    >>> Throughput({"gold": 3.0}).total({"gold": 2.0, "free": 5.0})
    11.0
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    counts_results: bool = True

    def __post_init__(self) -> None:
        _check_weights(self.weights)

    def pieces(self, output: str) -> Pieces:
        return ((math.inf, self.weights.get(output, 1.0)),)


_HALVINGS = 8


@dataclass(frozen=True)
class Fairness(Score):
    """Queries degrade alike: the less a query gets of what it would get without shedding, the more a tuple is worth.

    The worth of a share x grows like a logarithm, in pieces: with every halving of the share a tuple is worth `bias`
    times as much. A bias of 2 is proportional fairness; the greater it is, the closer to an equal share for all.
    Without shedding an output scores its weight.

    Attributes:
        demands_tps: the rate of each output without shedding. An output without one counts nothing.
        weights: how much an output counts; 1 where not given.
        bias: see above; 1 is the share alone, without fairness.
    """

    demands_tps: Mapping[str, float]
    weights: Mapping[str, float] = field(default_factory=dict)
    bias: float = 2.0

    def __post_init__(self) -> None:
        _check_weights(self.weights)
        if not (1 <= self.bias < math.inf):
            raise InvalidValueError("the bias is out of range", where="fairness", got=self.bias, expected=">= 1")

    @property
    def is_linear(self) -> bool:
        return False

    def pieces(self, output: str) -> Pieces:
        demand = self.demands_tps.get(output, 0.0)
        if demand <= 0:
            return ((math.inf, 0.0),)
        edges = [0.0, *(0.5 ** (_HALVINGS - i) for i in range(_HALVINGS + 1))]
        slopes = [self.bias ** (_HALVINGS - i) for i in range(_HALVINGS + 1)]
        widths = [high - low for low, high in pairwise(edges)]
        unit = sum(width * slope for width, slope in zip(widths, slopes, strict=True))
        scale = self.weights.get(output, 1.0) / unit / demand
        parts = [(width * demand, slope * scale) for width, slope in zip(widths, slopes, strict=True)]
        return (*parts, (math.inf, 0.0))


def jain(shares: Iterable[float]) -> float:
    """Jain's index of fairness: 1 if all shares are equal, 1/n if one has everything.

    >>> jain([0.5, 0.5]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    values = list(shares)
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else 1.0


def _check_weights(weights: Mapping[str, float]) -> None:
    for output, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise InvalidValueError(
                "a weight is out of range", where=f"output {output!r}", got=weight, expected="a number >= 0"
            )
