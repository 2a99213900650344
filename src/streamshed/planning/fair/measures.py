"""How evenly the damage is shared out: Jain's index, the spread, and the rest of what a report needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def jain_index(values: ArrayLike) -> float:
    """Jain's fairness index (Σx)² / (n·Σx²): 1 if all are equal, 1/n if one has everything.

    Without values, or if all are zero, nobody is worse off than another: 1.

    >>> jain_index([0.5, 0.5, 0.5]), jain_index([1.0, 0.0, 0.0, 0.0])
    (1.0, 0.25)
    """
    given = _values(values)
    largest = given.max(initial=0.0)
    if largest <= 0:
        return 1.0
    scaled = given / largest  # the index does not depend on the scale, but squares of tiny values would vanish
    return float(scaled.sum() ** 2 / (scaled.size * np.square(scaled).sum()))


@dataclass(frozen=True)
class Fairness:
    """What a set of queries got, as numbers to compare policies by.

    Attributes:
        queries: how many there are.
        mean: the mean SIC.
        least: the SIC of the query that got least.
        spread: the largest SIC less the smallest one.
        deviation: the standard deviation.
        jain: Jain's index.
    """

    queries: int
    mean: float
    least: float
    spread: float
    deviation: float
    jain: float

    @classmethod
    def of(cls, values: ArrayLike) -> Fairness:
        """Sum up the SIC values of some queries; leave out those whose sources sent nothing.

        >>> Fairness.of([0.5, 0.25])
        Fairness(queries=2, mean=0.375, least=0.25, spread=0.25, deviation=0.125, jain=0.9)
        """
        given = _values(values)
        if given.size == 0:
            return cls(0, 1.0, 1.0, 0.0, 0.0, 1.0)
        return cls(
            given.size,
            float(given.mean()),
            float(given.min()),
            float(given.max() - given.min()),
            float(given.std()),
            jain_index(given),
        )


def _values(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64).ravel()
