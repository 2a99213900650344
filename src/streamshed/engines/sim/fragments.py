"""Parts of queries: filters, unions, joins and windows over batches of tuples, with the SIC that they hand on.

A fragment is what one node does for one query: filters on its inputs, and a window over what passes them. Inputs on the
same side are a union; a window over two sides is a join. SIC is conserved in every step (see `planning.fair.sic`): what
a filter rejects was used, and what goes into a window is divided among its results, or was used if it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Keys = NDArray[np.int64]

_TOUCHING = 1e-9  # of a window: its end belongs to it although times are rounded


@dataclass(frozen=True)
class Rows:
    """Tuples as columns.

    Attributes:
        times_s: when each came into being.
        keys: what it is about; joins compare them.
        values: its value.
        weights: how many tuples it stands for.
    """

    times_s: Floats
    keys: Keys
    values: Floats
    weights: Floats

    @classmethod
    def of(cls, times_s: Floats, keys: Keys, values: Floats) -> Rows:
        """Tuples that stand for themselves."""
        return cls(times_s, keys, values, np.ones(len(values)))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All tuples of several lots."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
        return cls(
            np.concatenate([part.times_s for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.values)

    def where(self, chosen: NDArray[np.bool_] | Keys) -> Rows:
        """Some of them."""
        return Rows(self.times_s[chosen], self.keys[chosen], self.values[chosen], self.weights[chosen])


Finish = Callable[[Sequence[Rows]], Rows]
"""What becomes of a window: from the tuples on each side to the results, whose times the fragment sets."""


def _single(value: float, weight: float) -> Rows:
    return Rows(np.zeros(1), np.zeros(1, dtype=np.int64), np.array([value]), np.array([weight]))


def average(sides: Sequence[Rows]) -> Rows:
    """The mean, by weight: also of means, or of covariances, that other fragments have found."""
    weight = float(sides[0].weights.sum())
    return _single(float(sides[0].values @ sides[0].weights) / weight, weight) if weight > 0 else Rows.joined([])


def count(sides: Sequence[Rows]) -> Rows:
    """How many there are."""
    weight = float(sides[0].weights.sum())
    return _single(weight, weight)


def largest(sides: Sequence[Rows]) -> Rows:
    """The largest value."""
    (rows,) = sides
    return _single(float(rows.values.max()), float(rows.weights.sum())) if len(rows) else rows


def everything(sides: Sequence[Rows]) -> Rows:
    """All tuples of all sides: a union, put out at the end of the window."""
    return Rows.joined(sides)


def pairs(sides: Sequence[Rows]) -> Rows:
    """An equi-join: for each key on both sides the first tuple of the left one, and the right one's value as weight."""
    left, right = sides
    _, at_left, at_right = np.intersect1d(left.keys, right.keys, return_indices=True)
    found = left.where(at_left)
    return Rows(found.times_s, found.keys, found.values, right.values[at_right])


def top_five(sides: Sequence[Rows]) -> Rows:
    """The five keys with the largest mean value; with two sides, of those that are on both."""
    rows = sides[0]
    if len(sides) == 2:
        rows = rows.where(np.isin(rows.keys, sides[1].keys))
    keys, where = np.unique(rows.keys, return_inverse=True)
    weights: Floats = np.bincount(where, weights=rows.weights, minlength=len(keys)).astype(np.float64)
    means = np.bincount(where, weights=rows.values * rows.weights, minlength=len(keys)) / weights
    best = np.argsort(-means, kind="stable")[:5]
    return Rows(np.zeros(len(best)), keys[best], means[best], weights[best])


def covariance(sides: Sequence[Rows]) -> Rows:
    """The covariance of the values that belong together."""
    both = pairs(sides)
    if len(both) < 2:
        return Rows.joined([])
    return _single(float(np.cov(both.values, both.weights)[0, 1]), float(len(both)))


@dataclass(frozen=True)
class Fragment:
    """What one node does for one query.

    Attributes:
        query: the query's number.
        node: where it is placed at the beginning.
        cost_s: processing time per input tuple.
        finish: what becomes of a window.
        at_least: for each side, the value below which its filter rejects a tuple; None if there is no filter.
        to: the number of the fragment that gets the results; None if they are the query's.
    """

    query: int
    node: str
    cost_s: float
    finish: Finish
    at_least: tuple[float | None, ...] = (None,)
    to: int | None = None


class OpenWindows:
    """The windows of a fragment that are not over yet, by their number: window k is the time (k − 1, k] · length.

    A tuple that comes too late for its window goes into the oldest one that is open: nothing is lost without a drop.

    Args:
        fragment: what is done.
        window_s: how long windows are.
    """

    def __init__(self, fragment: Fragment, window_s: float) -> None:
        self.fragment = fragment
        self._window_s = window_s
        self._closed = 0
        self._rows: dict[int, tuple[list[Rows], ...]] = {}
        self._sic: dict[int, float] = {}

    def push(self, rows: Rows, side: int, sic: float) -> float:
        """Tuples come in, in the order of their times, all worth the same.

        Returns:
            The SIC of those that the filter rejected: used.
        """
        total = len(rows)
        if total == 0:
            return sic
        least = self.fragment.at_least[side]
        if least is not None:
            passing = rows.values >= least
            if not passing.all():
                rows = rows.where(passing)
        each = sic / total
        if len(rows):
            first = max(window_of(rows.times_s.item(0), self._window_s), self._closed + 1)
            last = max(window_of(rows.times_s.item(-1), self._window_s), self._closed + 1)
            if first == last:
                self._put(first, side, rows, each)
            else:
                self._distribute(rows, side, each)
        return each * (total - len(rows))

    def _distribute(self, rows: Rows, side: int, each: float) -> None:
        numbers = np.ceil(rows.times_s / self._window_s - _TOUCHING).astype(np.int64)
        np.maximum(numbers, self._closed + 1, out=numbers)
        for number in np.unique(numbers).tolist():
            self._put(number, side, rows.where(numbers == number), each)

    def _put(self, number: int, side: int, rows: Rows, each: float) -> None:
        if number not in self._rows:
            self._rows[number] = tuple([] for _ in self.fragment.at_least)
            self._sic[number] = 0.0
        self._rows[number][side].append(rows)
        self._sic[number] += each * len(rows)

    def close(self, number: int) -> tuple[Rows, float]:
        """A window is over: its results, and their SIC; without results it was used."""
        self._closed = number
        parts = self._rows.pop(number, None)
        if parts is None:
            return Rows.joined([]), 0.0
        found = self.fragment.finish([Rows.joined(part) for part in parts])
        times_s = np.full(len(found), number * self._window_s)
        return Rows(times_s, found.keys, found.values, found.weights), self._sic.pop(number)

    @property
    def sic(self) -> float:
        """What is in the windows that are still open."""
        return sum(self._sic.values())


def window_of(time_s: float, window_s: float) -> int:
    """The number of the window that a time belongs to.

    >>> window_of(0.2, 1.0), window_of(1.0, 1.0), window_of(1.1, 1.0)
    (1, 1, 2)
    """
    return ceil(time_s / window_s - _TOUCHING)
