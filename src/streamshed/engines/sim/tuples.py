"""All tuples under way, as columns: what queues and operators pass around are only their numbers."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Times = NDArray[np.float64]
Mask = NDArray[np.bool_]
_Column = TypeVar("_Column", NDArray[np.float64], NDArray[np.int32], NDArray[np.uint8])

FILTERED, DROPPED, DELIVERED = 1, 2, 4
"""How a copy of a tuple may end; a tuple's fate is the union over its copies."""


class Tuples:
    """Columns over a window of tuple numbers, from the oldest one that is still under way to the newest.

    A tuple may be under way in several copies (fan-out), and has left when the last of them has. The columns are used
    as a ring and grow only if the window does: memory follows the tuples under way, not the length of the run.

    Attributes:
        arrived_s: when it arrived.
        left_s: when its last copy so far ended.
        copies: how many copies are under way.
        fate: how its copies ended.
        rank: its place in the order of random drops, in [0, 1).
        values: one column per slot; NaN where a tuple has no such value.
    """

    def __init__(self, slots: int, capacity: int = 1 << 12) -> None:
        self._mask = capacity - 1
        self.first = 0
        self.next = 0
        self.arrived_s: Times = np.zeros(capacity)
        self.left_s: Times = np.zeros(capacity)
        self.copies = np.zeros(capacity, dtype=np.int32)
        self.fate = np.zeros(capacity, dtype=np.uint8)
        self.rank: Times = np.zeros(capacity)
        self.values: list[Times] = [np.full(capacity, np.nan) for _ in range(slots)]

    @property
    def capacity(self) -> int:
        """How many tuples fit at present."""
        return self._mask + 1

    def at(self, ids: Ids) -> Ids:
        """Where in the columns tuples are."""
        return ids & self._mask

    def add(self, arrived_s: Times, rank: Times) -> Ids:
        """Number new tuples, each with one copy under way."""
        count = len(arrived_s)
        self._trim()
        while self.next + count - self.first > self.capacity:
            self._grow()
        ids = np.arange(self.next, self.next + count)
        self.next += count
        at = self.at(ids)
        self.arrived_s[at] = arrived_s
        self.left_s[at] = -np.inf
        self.copies[at] = 1
        self.fate[at] = 0
        self.rank[at] = rank
        for column in self.values:
            column[at] = np.nan
        return ids

    def _trim(self) -> None:
        """Let go of the oldest tuples that have left."""
        if self.first == self.next:
            return
        under_way = self.copies[self.at(np.arange(self.first, self.next))] > 0
        oldest = int(under_way.argmax())
        self.first = self.first + oldest if under_way[oldest] else self.next

    def _grow(self) -> None:
        ids = np.arange(self.first, self.next)
        old, new = self.at(ids), ids & (2 * self.capacity - 1)

        def moved(column: _Column) -> _Column:
            larger = np.zeros(2 * len(column), dtype=column.dtype)
            larger[new] = column[old]
            return larger

        self.arrived_s, self.left_s, self.rank = moved(self.arrived_s), moved(self.left_s), moved(self.rank)
        self.copies, self.fate = moved(self.copies), moved(self.fate)
        self.values = [moved(column) for column in self.values]
        self._mask = 2 * self.capacity - 1
