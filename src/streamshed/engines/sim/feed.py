"""What sources send to a federation: batches with the SIC that their tuples have when they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamshed.engines.sim.federation import Federation
from streamshed.engines.sim.fragments import Floats, Rows
from streamshed.engines.sim.sites import Parcel, parcel_of
from streamshed.planning.fair import Batch, SourceWindow
from streamshed.workload.hashing import hash64, unit

_KIN_SALT, _OWN_SALT, _PHASE_SALT = 1 << 40, 1 << 41, 1 << 42


class Feed:
    """The batches of all sources, one tick after the other, and the tuples in them.

    A tuple's value is drawn from its number alone, so it is the same whatever was dropped before it.

    Args:
        federation: whose sources.
        seconds: for how long they send.
        span_s: the source time window.
        seed: of values and phases.

    Attributes:
        tuples: how many were sent so far.
    """

    def __init__(self, federation: Federation, seconds: float, span_s: float, seed: int) -> None:
        self._federation, self._seed = federation, seed
        sources = federation.sources
        self.query: Sequence[int] = [federation.fragments[source.fragment].query for source in sources]
        own: list[list[int]] = [[] for _ in range(federation.queries)]
        for number, query in enumerate(self.query):
            own[query].append(number)
        self._window = SourceWindow(own, span_s, federation.batch_s)
        self._edges_s: Floats = (
            np.arange(round(seconds / federation.batch_s) + 1, dtype=np.float64) * federation.batch_s
        )
        self._numbers = np.array([source.pattern.cumulative(self._edges_s) for source in sources], dtype=np.int64)
        self._phases_s = unit(hash64(seed, _PHASE_SALT, np.arange(len(sources)))) * federation.batch_s
        self._tick = 0
        self.tuples = 0

    def next(self) -> tuple[Floats, Iterator[tuple[Batch, float]]]:
        """What the sources send at the end of the next tick.

        Returns:
            The SIC that each query is sent, and the batches, each with the time after which its source sends it: they
            do not come all at once.
        """
        self._tick += 1
        if self._tick >= len(self._edges_s):
            return np.zeros(self._federation.queries), iter(())
        now_s = float(self._edges_s[self._tick])
        before = self._numbers[:, self._tick - 1]
        counts = self._numbers[:, self._tick] - before
        self._window.observe(now_s, counts)
        sic = np.zeros(len(counts))
        sic[self._window.source] = self._window.tuple_sic(now_s)
        sic *= counts
        self.tuples += int(counts.sum())
        by_query: Floats = np.zeros(self._federation.queries)
        np.add.at(by_query, self.query, sic)
        return by_query, self._batches(now_s, before.tolist(), counts.tolist(), sic.tolist())

    def _batches(
        self, now_s: float, before: list[int], counts: list[int], sic: list[float]
    ) -> Iterator[tuple[Batch, float]]:
        start_s = now_s - self._federation.batch_s
        for number, source in enumerate(self._federation.sources):
            if counts[number]:
                phase_s = float(self._phases_s[number])
                parcel = Parcel(
                    source.fragment, source.side, now_s + phase_s, None, number, before[number], counts[number], start_s
                )
                yield Batch(self.query[number], sic[number], counts[number], parcel), phase_s

    def rows(self, batch: Batch) -> Rows:
        """The tuples of a batch: of one that was cut, the first ones."""
        parcel = parcel_of(batch)
        if parcel.rows is not None:
            return parcel.rows if len(parcel.rows) == batch.tuples else parcel.rows.where(np.arange(batch.tuples))
        source = self._federation.sources[parcel.source]
        numbers = np.arange(parcel.first, parcel.first + batch.tuples)
        keys = numbers % source.keys if source.keys else numbers
        values = (1 - source.kinship) * unit(hash64(self._seed, _OWN_SALT + parcel.source, numbers))
        if source.kinship:
            values += source.kinship * unit(hash64(self._seed, _KIN_SALT + batch.query, keys))
        steps = np.arange(1, batch.tuples + 1) / parcel.count
        return Rows.of(parcel.start_s + steps * self._federation.batch_s, keys, 100 * values)
