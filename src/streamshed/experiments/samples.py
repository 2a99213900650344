"""Means over seeds with their spread, and verdicts that take the spread into account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""The confidence of all intervals."""


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


def estimate(samples: Sequence[float] | NDArray[np.float64]) -> Estimate:
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


def difference(left: Sequence[float] | NDArray[np.float64], right: Sequence[float] | NDArray[np.float64]) -> Estimate:
    """The mean of left − right over runs that belong together (same seed): their common luck cancels out.

    >>> str(difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]))
    '0.5 ± 0'
    """
    return estimate(np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64))
