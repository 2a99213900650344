"""SIC over time: sums over the source time window, what a source tuple is worth now, what a query has got lately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamshed.errors import InvalidValueError
from streamshed.planning.fair.sic import source_sic

WINDOW_S = 10.0
"""The source time window: long against the delay of an answer, short against changes of the load."""

INTERVAL_S = 0.25
"""The shedding interval δ."""

_TOUCHING = 1e-9  # of a slot: the end of a slot stays in it although times are rounded


class WindowedSum:
    """Sums over a sliding window of time, for many counters at once.

    Time is cut into slots; an amount at time t belongs to the slot that ends at or after t. What leaves the window is
    not subtracted: the slots that are left are added up again, so an empty window is exactly 0.

    Args:
        size: the number of counters.
        window_s: the length of the window, rounded up to whole slots.
        slot_s: the length of a slot.

    >>> sums = WindowedSum(2, window_s=1.0, slot_s=0.25)
    >>> sums.add(0.2, 0, 5.0)
    >>> sums.add(0.5, [0, 1, 1], [1.0, 2.0, 3.0])
    >>> sums.at(0.5).tolist(), sums.at(1.25).tolist(), sums.at(9.0).tolist()
    ([6.0, 5.0], [1.0, 5.0], [0.0, 0.0])
    """

    def __init__(self, size: int, window_s: float = WINDOW_S, slot_s: float = INTERVAL_S) -> None:
        if not (0 < slot_s <= window_s < math.inf):
            raise InvalidValueError(
                "not a window", where="windowed sum", got=f"{window_s} s in slots of {slot_s} s", expected="0 < slot"
            )
        self.slot_s = slot_s
        slots = math.ceil(window_s / slot_s - _TOUCHING)
        self.window_s = slots * slot_s
        self._sums: NDArray[np.float64] = np.zeros((slots, size))
        self._slot_of_row = np.full(slots, np.iinfo(np.int64).min)

    def __len__(self) -> int:
        return int(self._sums.shape[1])

    def slot(self, time_s: float) -> int:
        """The number of the slot that a time belongs to."""
        return math.ceil(time_s / self.slot_s - _TOUCHING)

    def add(self, time_s: float, counters: ArrayLike, amounts: ArrayLike) -> None:
        """Add amounts to some counters. What comes later than a whole window is left out."""
        row = self._row(time_s)
        if row is not None:
            np.add.at(self._sums[row], np.asarray(counters, dtype=np.int64), amounts)

    def add_one(self, time_s: float, counter: int, amount: float) -> None:
        """The same for a single counter, which takes a tenth of the time."""
        row = self._row(time_s)
        if row is not None:
            self._sums[row, counter] += amount

    def _row(self, time_s: float) -> int | None:
        """Where the slot of a time is, cleared if it is a new one; None if it has left the window."""
        slot = self.slot(time_s)
        row = slot % len(self._sums)
        if self._slot_of_row[row] > slot:
            return None
        if self._slot_of_row[row] < slot:
            self._slot_of_row[row] = slot
            self._sums[row] = 0.0
        return row

    def at(self, time_s: float, *, since_s: float = -math.inf) -> NDArray[np.float64]:
        """The sums over the window that ends now, or over the slots in it that begin at `since_s` or later."""
        last = self.slot(time_s)
        first = last - len(self._sums) + 1
        if math.isfinite(since_s):
            first = max(first, self.slot(since_s) + 1)
        rows = (self._slot_of_row >= first) & (self._slot_of_row <= last)
        sums: NDArray[np.float64] = self._sums[rows].sum(axis=0)
        return sums


class SourceWindow:
    """What a tuple of each source is worth to each query that reads it, by what the sources sent lately.

    How many tuples a source sends in a window is estimated from those of the last window; before one is full, from
    the rate so far. A source that sent nothing is not counted among a query's sources: it has nothing that could be
    lost. A query whose sources are all silent has no tuples, so nothing to decide.

    Args:
        sources_of: for each query, the indices of its sources.
        window_s: the source time window.
        slot_s: how finely it is cut.

    Two queries, the first with two sources; 100 and 50 tuples in a quarter of a second are 400 and 200 in one:

    >>> window = SourceWindow([[0, 1], [1]], window_s=1.0)
    >>> window.observe(0.25, [100, 50])
    >>> window.per_window(0.25).tolist(), window.tuple_sic(0.25).tolist()
    ([400.0, 200.0], [0.00125, 0.0025, 0.005])
    """

    def __init__(
        self, sources_of: Sequence[Sequence[int]], window_s: float = WINDOW_S, slot_s: float = INTERVAL_S
    ) -> None:
        self.query: NDArray[np.int64] = np.repeat(np.arange(len(sources_of)), [len(own) for own in sources_of])
        self.source: NDArray[np.int64] = np.fromiter(chain.from_iterable(sources_of), np.int64, len(self.query))
        self._queries = len(sources_of)
        self._counts = WindowedSum(int(self.source.max(initial=-1)) + 1, window_s, slot_s)
        self._start_s = math.inf

    def observe(self, time_s: float, counts: ArrayLike) -> None:
        """Tuples that each source has sent since the last call, dropped or not."""
        start_s = (self._counts.slot(time_s) - 1) * self._counts.slot_s
        self._start_s = min(self._start_s, start_s)
        self._counts.add(time_s, np.arange(len(self._counts)), counts)

    def per_window(self, time_s: float) -> NDArray[np.float64]:
        """N_s: how many tuples each source sends in a window."""
        counts = self._counts
        oldest_s = counts.slot(time_s) * counts.slot_s - counts.window_s
        covered_s = max(time_s - max(oldest_s, self._start_s), counts.slot_s)
        return counts.at(time_s) * (counts.window_s / covered_s)

    def tuple_sic(self, time_s: float) -> NDArray[np.float64]:
        """The SIC of a tuple for each pair in `query` and `source`."""
        tuples = self.per_window(time_s)[self.source]
        sending = np.bincount(self.query, weights=tuples > 0, minlength=self._queries)
        return source_sic(sending[self.query], tuples)


class ResultSic:
    """What has come out of each query over the window, as a share of what its sources sent.

    The paper compares *normalised* values. Dividing by what was sent in the same window makes them so even while the
    estimate of a source's rate lags behind: without drops the share is 1, not nearly 1. A query that was sent nothing
    has lost nothing: 1.

    >>> result = ResultSic(2, window_s=1.0)
    >>> result.sent(0.25, 0, 0.5)
    >>> result.arrived(0.5, 0, 0.25)
    >>> result.at(0.5).tolist(), result.active(0.5).tolist()
    ([0.5, 1.0], [True, False])
    """

    def __init__(self, queries: int, window_s: float = WINDOW_S, slot_s: float = INTERVAL_S) -> None:
        self._sent = WindowedSum(queries, window_s, slot_s)
        self._arrived = WindowedSum(queries, window_s, slot_s)

    def sent(self, time_s: float, queries: ArrayLike, sic: ArrayLike) -> None:
        """Sources have sent tuples of so much SIC, dropped or not."""
        self._sent.add(time_s, queries, sic)

    def arrived(self, time_s: float, queries: ArrayLike, sic: ArrayLike) -> None:
        """So much SIC has come to the results, or was used by an operator without output."""
        self._arrived.add(time_s, queries, sic)

    def active(self, time_s: float) -> NDArray[np.bool_]:
        """Which queries were sent anything in the window."""
        return self._sent.at(time_s) > 0

    def at(self, time_s: float) -> NDArray[np.float64]:
        """The result SIC of each query, from 0 to 1."""
        sent = self._sent.at(time_s)
        share = np.divide(self._arrived.at(time_s), sent, out=np.ones_like(sent), where=sent > 0)
        return np.minimum(share, 1.0)
