"""Arrivals in virtual time: the tuples of every stream, cut into the ticks in which they are decided upon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Literal

import numpy as np

from streamshed.engines.sim.places import Places
from streamshed.engines.sim.tuples import Ids, Times, Tuples
from streamshed.engines.sim.values import draws_from
from streamshed.network import Statistics
from streamshed.workload import ArrivalPattern
from streamshed.workload.hashing import hash64, unit

Spacing = Literal["even", "poisson"]
"""Between tuples: as the pattern has it (evenly within its pieces), or exponential times at the pattern's rate."""

_RANK_SALT, _VALUE_SALT = 1, 16
_BLOCK_TICKS = 64


class Arrivals:
    """The tuples of one stream, drawn in blocks of ticks.

    Args:
        stream: its id.
        number: tells its random numbers from those of other streams.
        pattern: when tuples arrive.
        spacing: how they lie within the pattern.
        places: for the slots of its values.
        statistics: for its histograms.
        seed: of ranks, values and random spacing.
    """

    def __init__(
        self,
        stream: str,
        number: int,
        pattern: ArrivalPattern,
        spacing: Spacing,
        places: Places,
        statistics: Statistics,
        seed: int,
    ) -> None:
        self.stream = stream
        self._pattern = pattern
        self._salt = number << 8
        self._seed = seed
        self._spacing = spacing
        self._random = np.random.default_rng([seed, number])
        self._values: list[tuple[int, int, Callable[[Times], Times]]] = [
            (slot, self._salt + _VALUE_SALT + i, draws_from(statistics.histograms[stream][column]))
            for i, (column, slot) in enumerate(sorted(places.slots.of_stream(stream).items()))
        ]
        self._count = 0

    def block(self, edges_s: Times, tuples: Tuples) -> list[tuple[Ids, Times]]:
        """The tuples between the first and the last of some times, cut at those in between."""
        times_s = self._even(edges_s) if self._spacing == "even" else self._poisson(edges_s)
        index = np.arange(self._count, self._count + len(times_s))
        self._count += len(times_s)
        ids = tuples.add(times_s, unit(hash64(self._seed, self._salt + _RANK_SALT, index)))
        at = tuples.at(ids)
        for slot, salt, draw in self._values:
            tuples.values[slot][at] = draw(unit(hash64(self._seed, salt, index)))
        cuts = [0, *np.searchsorted(times_s, edges_s[1:-1], side="left").tolist(), len(times_s)]
        return [(ids[a:b], times_s[a:b]) for a, b in pairwise(cuts)]

    def _even(self, edges_s: Times) -> Times:
        # A tuple that arrives on an edge belongs to the tick that begins there.
        first, last = (int(n) for n in self._pattern.cumulative(edges_s[[0, -1]] - 1e-6))
        return self._pattern.arrival_time(np.arange(first, last))

    def _poisson(self, edges_s: Times) -> Times:
        widths_s = np.diff(edges_s)
        counts = self._random.poisson(self._pattern.rate(edges_s[:-1] + widths_s / 2) * widths_s)
        where = np.repeat(np.arange(len(widths_s)), counts)
        times_s = edges_s[where] + widths_s[where] * self._random.random(len(where))
        times_s.sort()
        return times_s


def ticks(
    arrivals: Mapping[str, Arrivals], tick_s: float, count: int, tuples: Tuples, before_block: Callable[[], None]
) -> Iterator[list[tuple[str, Ids, Times]]]:
    """For every tick the tuples of each stream.

    Args:
        arrivals: by stream.
        tick_s: the length of a tick.
        count: how many there are.
        tuples: where the new ones go.
        before_block: called before new tuples are drawn, which may take the room of those that have left.
    """
    for start in range(0, count, _BLOCK_TICKS):
        before_block()
        edges_s: Times = np.arange(start, min(start + _BLOCK_TICKS, count) + 1, dtype=np.float64) * tick_s
        blocks = [(stream, of_stream.block(edges_s, tuples)) for stream, of_stream in arrivals.items()]
        for i in range(len(edges_s) - 1):
            yield [(stream, *block[i]) for stream, block in blocks if len(block[i][0])]
