"""Means over seeds with their spread, and verdicts that take the spread into account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""The confidence of all intervals."""


Samples = Sequence[float] | NDArray[np.float64]
"""One number for each run."""


@dataclass(frozen=True)
class Estimate:
    """A mean over independent runs.

    Attributes:
        mean: the mean.
        margin: half the width of its 95 % confidence interval (Student's t); infinite for a single run.
        runs: over how many runs.
    """

    mean: float
    margin: float
    runs: int

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.margin

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.margin

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.margin:.2g}"


def estimate(samples: Samples) -> Estimate:
    """The mean of independent runs, with its confidence interval.

    >>> str(estimate([1.0, 2.0, 3.0]))
    '2 ± 2.5'
    """
    from scipy.stats import t

    values = np.asarray(samples, dtype=np.float64)
    count = len(values)
    if count < 2:
        return Estimate(float(values.mean()), float("inf"), count)
    margin = float(t.ppf((1 + LEVEL) / 2, count - 1)) * float(values.std(ddof=1)) / count**0.5
    return Estimate(float(values.mean()), margin, count)


def difference(left: Samples, right: Samples) -> Estimate:
    """The mean of left − right over runs that belong together (same seed): their common luck cancels out.

    >>> str(difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]))
    '0.5 ± 0'
    """
    return estimate(np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64))


def ratio(over: Samples, under: Samples) -> Estimate:
    """The ratio of two means over runs that belong together (delta method: as if it were linear near the means).

    Unlike a mean of ratios it stands a run in which next to nothing is below the line.

    >>> str(ratio([2.0, 4.1, 6.0], [1.0, 2.0, 3.0]))
    '2.02 ± 0.075'
    """
    found, influences = _ratio(over, under)
    return Estimate(found, estimate(influences).margin, len(influences))


def ratio_difference(left: tuple[Samples, Samples], right: tuple[Samples, Samples]) -> Estimate:
    """The difference of two ratios of means, left − right, over runs that belong together.

    >>> str(ratio_difference(([2.0, 4.1], [1.0, 2.0]), ([2.0, 4.1], [1.0, 2.0])))
    '0 ± 0'
    """
    (left_ratio, left_influences), (right_ratio, right_influences) = _ratio(*left), _ratio(*right)
    return Estimate(left_ratio - right_ratio, estimate(left_influences - right_influences).margin, len(left_influences))


def _ratio(over: Samples, under: Samples) -> tuple[float, NDArray[np.float64]]:
    above, below = np.asarray(over, dtype=np.float64), np.asarray(under, dtype=np.float64)
    if below.mean() == 0:
        return float("inf"), np.zeros(len(below))
    found = float(above.mean() / below.mean())
    return found, (above - found * below) / below.mean()
