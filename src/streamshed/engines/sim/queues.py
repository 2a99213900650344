"""Tuples that wait on an arc."""

from __future__ import annotations

from collections import deque

import numpy as np

from streamshed.engines.sim.tuples import Ids, Times


class ArcQueue:
    """First in, first out: trains of tuple numbers with the time from which each is there to be taken."""

    def __init__(self) -> None:
        self._trains: deque[tuple[Ids, Times]] = deque()
        self.length = 0

    @property
    def head_s(self) -> float:
        """From when the first tuple is there; infinite if there is none."""
        return float(self._trains[0][1][0]) if self._trains else float("inf")

    @property
    def head_id(self) -> int | None:
        """The first tuple; None if there is none."""
        return int(self._trains[0][0][0]) if self._trains else None

    def push(self, ids: Ids, ready_s: Times) -> None:
        """Append a train, its times ascending."""
        if len(ids):
            self._trains.append((ids, ready_s))
            self.length += len(ids)

    def take(self, most: int, until_s: float) -> tuple[Ids, Times]:
        """Remove up to so many tuples that are there by a time; at least one, which may come later."""
        parts: list[tuple[Ids, Times]] = []
        left = most
        while self._trains and left > 0:
            ids, ready_s = self._trains[0]
            count = min(len(ids), left)
            if ready_s[count - 1] > until_s:
                count = int(np.searchsorted(ready_s[:count], until_s, side="right"))
                if count == 0 and not parts:
                    count = 1
            if count == 0:
                break
            if count == len(ids):
                self._trains.popleft()
                parts.append((ids, ready_s))
            else:
                self._trains[0] = (ids[count:], ready_s[count:])
                parts.append((ids[:count], ready_s[:count]))
                left = 0
            left -= count
        taken = parts[0]
        if len(parts) > 1:
            taken = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        self.length -= len(taken[0])
        return taken
