"""Algorithm 1: which batches to keep so that the least SIC of a query is as large as can be.

It takes all batches as dropped. While there is room, the query with the least projected SIC gets its batch with the
highest SIC back. A query's batches are thus taken from the highest SIC down, and with each its projected SIC rises. So
the values at which its batches have their turn never fall, and the priority queue of queries merges sorted lists: the
order in which it hands batches out is the order of "SIC of the query before this batch", which two sorts give for all
at once.

The paper stops after the batch that fills the room, and keeps more than there is room for. Here what is kept is the
room. From the first batch that does not fit, the query with the least SIC gets what is worth most in the room that is
left: its best batch that fits, or a part of one that does not. All in all O(batches·log batches).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

_UNIT_BITS = 40
"""SIC values are compared in units of 2^-40: sums of the same amounts in another order are still equal."""


def least_first(
    query: Counts,
    sic: NDArray[np.float64],
    tuples: Counts,
    projected: NDArray[np.float64],
    turn: Counts,
    capacity: int,
) -> Counts:
    """How many tuples to keep of each batch, `capacity` in all.

    Args:
        query: of each batch.
        sic: of each batch.
        tuples: of each batch, more than the capacity in all.
        projected: the SIC of each query if all its batches are dropped.
        turn: the place of each query among those with the same SIC, all different.
        capacity: how many tuples can be kept.
    """
    gain, before = _in_units(sic, projected)
    order = np.lexsort((-gain, turn[query]))
    owner, gain, size = query[order], gain[order], tuples[order]
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    ahead = np.cumsum(gain) - gain
    ahead -= np.repeat(ahead[first], np.diff(first, append=owner.size))
    due = before[owner] + ahead
    # Batches without SIC come last: they would never lift their query off the least.
    ranking = np.argsort(np.where(gain > 0, due, np.iinfo(np.int64).max), kind="stable")
    ends = np.cumsum(size[ranking])
    whole = int(np.searchsorted(ends, capacity, side="right"))
    kept = np.zeros_like(size)
    kept[ranking[:whole]] = size[ranking[:whole]]
    room = capacity - (int(ends[whole - 1]) if whole > 0 else 0)
    if room > 0:
        picked = np.zeros_like(size)
        picked[ranking[:whole]] = 1
        taken = np.add.reduceat(picked, first)
        _Rest(gain, size, due, first + taken, np.append(first[1:], owner.size)).fill(kept, room)
    result = np.empty_like(kept)
    result[order] = kept
    return result


@dataclass
class _Rest:
    """What is left when the next batch does not fit: of each query the batches from `start` to before `end`.

    A batch that does not fit will not fit later, so each is looked at once. Of those that do not fit only the one with
    the most SIC a tuple matters, and only against a batch that fits with less SIC than it has as a whole.
    """

    gain: Counts
    size: Counts
    due: Counts
    start: Counts
    end: Counts

    def fill(self, kept: Counts, room: int) -> None:
        """Use the room up."""
        waiting = np.flatnonzero(self.start < self.end)
        waiting = waiting[self.gain[self.start[waiting]] > 0]
        queue = list(zip(self.due[self.start[waiting]].tolist(), waiting.tolist(), strict=True))
        heapq.heapify(queue)
        densest: dict[int, tuple[int, int, int]] = {}
        while room > 0 and queue:
            level, query = heapq.heappop(queue)
            fitting = self._next_fitting(query, room, densest)
            gain = int(self.gain[fitting]) if fitting is not None else 0
            part, of, at = densest.get(query, (0, 1, -1))
            if fitting is not None and gain * of >= part * room:
                kept[fitting] = self.size[fitting]
                room -= int(self.size[fitting])
                self.start[query] = fitting + 1
                heapq.heappush(queue, (level + gain, query))
            elif at >= 0:
                kept[at] = room
                room = 0
        worthless = np.flatnonzero((self.gain == 0) & (kept == 0))
        size = self.size[worthless]
        kept[worthless] = np.clip(room - (np.cumsum(size) - size), 0, size)

    def _next_fitting(self, query: int, room: int, densest: dict[int, tuple[int, int, int]]) -> int | None:
        """The batch with the highest SIC that fits; notes the densest of those that were passed over."""
        at, end = int(self.start[query]), int(self.end[query])
        while at < end and self.gain[at] > 0:
            gain, size = int(self.gain[at]), int(self.size[at])
            if size <= room:
                return at
            best, of, _ = densest.get(query, (0, 1, -1))
            if gain * of > best * size:
                densest[query] = (gain, size, at)
            at += 1
            self.start[query] = at
        return None


def _in_units(sic: NDArray[np.float64], projected: NDArray[np.float64]) -> tuple[Counts, Counts]:
    """SIC values as whole numbers, as fine as their sum allows."""
    largest = float(sic.sum()) + float(np.abs(projected).max(initial=0.0))
    unit = 2.0 ** min(_UNIT_BITS, 61 - np.frexp(largest)[1])
    return np.rint(sic * unit).astype(np.int64), np.rint(projected * unit).astype(np.int64)
