"""Water filling: fair shares in continuous amounts, where capacity is seconds and queries differ in cost.

All queries are lifted together, like water in connected vessels, until the capacity is used up. One that has all it can
get stays full while the others rise on. What that gives is the *lexicographic* maximum: no query can get more without
taking it from one that has no more, weighted by what they may claim.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamshed.errors import InvalidValueError

Values = NDArray[np.float64]


def water_level(costs: Values, slopes: Values, offsets: Values, low: Values, high: Values, capacity: float) -> float:
    """The highest level t at which Σ cost·clip(slope·t + offset, low, high) is within the capacity.

    The sum is piecewise linear in t and never falls, so its knees, sorted, give the level exactly, in O(n·log n).
    Infinite where everything fits; −∞ where not even the low ends do.

    >>> one, none = np.ones(2), np.zeros(2)
    >>> water_level(np.array([1.0, 3.0]), one, none, none, one, capacity=2.0)
    0.5
    """
    rising = (costs > 0) & (slopes > 0) & (high > low)
    spent = float(np.where(rising, costs * low, costs * np.clip(offsets, low, high)).sum())
    room = capacity - spent
    if room < 0:
        return -np.inf
    cost, slope, offset = costs[rising], slopes[rising], offsets[rising]
    knees = np.concatenate([(low[rising] - offset) / slope, (high[rising] - offset) / slope])
    order = np.argsort(knees, kind="stable")
    knees = knees[order]
    steepness = np.cumsum(np.concatenate([cost * slope, -cost * slope])[order])
    used = np.concatenate([[0.0], np.cumsum(np.diff(knees) * steepness[:-1])])
    # The last knee at or below the room; after it the sum rises past the room, or not at all.
    knee = int(np.searchsorted(used, room, side="right")) - 1
    if knees.size == 0 or knee == knees.size - 1:
        return np.inf
    return float(min(knees[knee] + (room - used[knee]) / steepness[knee], knees[knee + 1]))


def water_fill(
    costs_s: ArrayLike,
    capacity_s: float,
    *,
    weights: ArrayLike = 1.0,
    minimum: ArrayLike = 0.0,
    settled: ArrayLike = 0.0,
    pending: ArrayLike = 1.0,
) -> Values:
    """The share of its waiting tuples that each query may keep, so that the least (settled + pending·share) / weight
    is as large as can be, then the next to least, and so on.

    Minimum shares come first; if they alone are too much, all of them shrink by the same factor. What costs nothing is
    kept.

    Args:
        costs_s: seconds for all waiting tuples of each query.
        capacity_s: seconds that there are.
        weights: a query of weight 2 is to get twice the SIC of one of weight 1.
        minimum: the share of each query that is not to be dropped.
        settled: the SIC that each query has if all that waits is dropped.
        pending: the SIC of what waits.

    Equal shares, whatever queries cost; then with one that lags behind:

    >>> water_fill([1.0, 3.0], 2.0).tolist()
    [0.5, 0.5]
    >>> water_fill([1.0, 3.0], 2.0, settled=[0.0, 0.4], pending=0.5).round(6).tolist()
    [1.0, 0.333333]
    """
    costs, weight, least, has, waits = np.broadcast_arrays(
        *(np.asarray(column, dtype=np.float64) for column in (costs_s, weights, minimum, settled, pending))
    )
    _check(costs, weight, least, has, waits)
    free = (costs <= 0) | (waits <= 0)
    costs = np.where(free, 0.0, costs)
    waits = np.where(free, 1.0, waits)
    needed_s = float((costs * least).sum())
    if needed_s > capacity_s:
        return np.where(free, 1.0, least * max(capacity_s, 0.0) / needed_s)
    level = water_level(costs, weight / waits, -has / waits, least, np.ones_like(costs), capacity_s)
    return np.where(free, 1.0, np.clip((weight * level - has) / waits, least, 1.0))


def _check(costs: Values, weight: Values, least: Values, has: Values, waits: Values) -> None:
    for what, column, fine, expected in (
        ("a cost", costs, costs >= 0, "seconds, >= 0"),
        ("a weight", weight, weight > 0, "> 0"),
        ("a minimum share", least, (least >= 0) & (least <= 1), "from 0 to 1"),
        ("a settled SIC", has, has >= 0, ">= 0"),
        ("a pending SIC", waits, waits >= 0, ">= 0"),
    ):
        bad = ~(fine & np.isfinite(column))
        if bad.any():
            raise InvalidValueError(
                f"{what} is out of range", where="water filling", got=column[bad][0], expected=expected
            )
