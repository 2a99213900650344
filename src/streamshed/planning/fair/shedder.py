"""The abstract shedder of a node: input buffer, overload detector, tuple shedder. Engines call it; time is data."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamshed.errors import StreamshedError
from streamshed.planning.fair.cost import OverloadDetector
from streamshed.planning.fair.policies import Batches, FairPolicy, SheddingPolicy
from streamshed.planning.fair.selection import Counts
from streamshed.planning.fair.windows import WINDOW_S, WindowedSum

_MOST_ECHO = 4.0
"""By how much at most the part of other nodes is taken to follow a node's own."""


@dataclass(frozen=True)
class Batch:
    """Tuples of one query that wait together.

    Attributes:
        query: the query's index.
        sic: of all its tuples together.
        tuples: how many are to be processed: of a batch that was cut, the first so many.
        payload: whatever the engine needs; the shedder never looks at it, so it need not be deserialised yet.
        is_derived: whether other nodes have worked on it; false for tuples of a source.
    """

    query: int
    sic: float
    tuples: int
    payload: object = None
    is_derived: bool = False

    def cut(self, tuples: int) -> Batch:
        """The same batch with only some of its tuples."""
        if tuples == self.tuples:
            return self
        return replace(self, tuples=tuples, sic=self.sic * tuples / self.tuples)


class InputBuffer:
    """Batches in the order of their arrival. While it is locked, new ones wait in a second buffer.

    >>> buffer = InputBuffer()
    >>> buffer.put(Batch(0, 0.1, 5))
    >>> held = buffer.lock()
    >>> buffer.put(Batch(1, 0.1, 7))
    >>> buffer.take() is None, len(buffer)
    (True, 12)
    >>> buffer.unlock(held)
    >>> buffer.take()
    Batch(query=0, sic=0.1, tuples=5, payload=None, is_derived=False)
    """

    def __init__(self) -> None:
        self._waiting: deque[Batch] = deque()
        self._second: deque[Batch] = deque()
        self._locked = False
        self._tuples = 0

    def __len__(self) -> int:
        """How many tuples wait, in both buffers."""
        return self._tuples

    def put(self, batch: Batch) -> None:
        """Add a batch that has arrived."""
        self._tuples += batch.tuples
        (self._second if self._locked else self._waiting).append(batch)

    def take(self) -> Batch | None:
        """Remove the oldest batch, for processing; None if there is none, or while the buffer is locked."""
        if self._locked or not self._waiting:
            return None
        batch = self._waiting.popleft()
        self._tuples -= batch.tuples
        return batch

    def lock(self) -> tuple[Batch, ...]:
        """Stop the clock for what waits now, and show it."""
        if self._locked:
            raise StreamshedError("the buffer is locked already", where="input buffer", hint="unlock it first")
        self._locked = True
        return tuple(self._waiting)

    def unlock(self, kept: Iterable[Batch]) -> None:
        """Go on with these batches in place of those that waited, and with what has come in meanwhile."""
        if not self._locked:
            raise StreamshedError("the buffer is not locked", where="input buffer", hint="lock it first")
        self._waiting = deque(kept)
        self._waiting.extend(self._second)
        self._second.clear()
        self._locked = False
        self._tuples = sum(batch.tuples for batch in self._waiting)


@dataclass(frozen=True)
class Shedding:
    """What a look at the buffer led to.

    Attributes:
        kept: tuples of each query that stay in the buffer.
        dropped: those that are gone.
        kept_sic: the SIC of the kept ones, by query.
        dropped_sic: that of the dropped ones.
    """

    kept: Counts
    dropped: Counts
    kept_sic: NDArray[np.float64]
    dropped_sic: NDArray[np.float64]


class Shedder:
    """Keeps the input buffer of a node short, and the SIC of its queries alike if the policy says so.

    An engine puts batches in as they arrive, takes them out to process them, and calls `check` every shedding
    interval. Between `begin` and `finish`, which `check` does at once, arrivals go to the second buffer; an engine in
    which deciding takes time calls these two.

    The SIC that a query will have if all its waiting batches are dropped is what is on its way to the result already:
    what this node has taken out of the buffer within the source time window. Where a coordinator reports the SIC that
    came to the result, the other nodes' part is known as well, as it was when the reported tuples were sent. All nodes
    get the same news and act on it: if each took the others' part as fixed, together they would make up for the same
    lack several times over, and the federation would swing. So the others are expected to do since then what this
    node has done, in proportion to their part (up to four times as much):

        projected = reported + e·(taken now − taken then), e = reported / taken then, from 1 to 4

    A report counts for a window, fades over the next one, and then the node is on its own.

    Args:
        queries: how many there are; those without tuples do no harm.
        policy: decides what to keep; fair by default.
        detector: decides how much; one with the paper's constants by default.
        window_s: the source time window.
        spares_derived: drop derived tuples only if those of sources do not suffice. The paper makes no difference. But
            a derived tuple is few to process and much to lose: dropping it where its query has enough levels down one
            query and lifts no other.

    >>> shedder = Shedder(queries=2)
    >>> for query in (0, 0, 1):
    ...     shedder.put(Batch(query, sic=0.01, tuples=2500))
    >>> outcome = shedder.check(0.3, elapsed_s=0.3, processed=5000)
    >>> outcome.kept.tolist(), outcome.dropped.tolist()
    ([2500, 1666], [2500, 834])
    """

    def __init__(
        self,
        queries: int,
        policy: SheddingPolicy | None = None,
        detector: OverloadDetector | None = None,
        *,
        window_s: float = WINDOW_S,
        spares_derived: bool = False,
    ) -> None:
        self.policy = FairPolicy() if policy is None else policy
        self.detector = OverloadDetector() if detector is None else detector
        self.buffer = InputBuffer()
        self._window_s = window_s
        self._spares_derived = spares_derived
        self._taken = WindowedSum(queries, 2 * window_s, self.detector.interval_s)
        self._elsewhere: NDArray[np.float64] = np.zeros(queries)
        self._echo: NDArray[np.float64] = np.ones(queries)
        self._reported_at_s: NDArray[np.float64] = np.full(queries, -np.inf)
        self._held: tuple[Batch, ...] = ()

    def put(self, batch: Batch) -> None:
        """A batch has arrived."""
        self.buffer.put(batch)

    def take(self, time_s: float) -> Batch | None:
        """The oldest batch, to be processed now."""
        batch = self.buffer.take()
        if batch is not None:
            self._taken.add_one(time_s, batch.query, batch.sic)
        return batch

    def report(self, time_s: float, queries: ArrayLike, result_sic: ArrayLike) -> None:
        """A coordinator says what SIC some queries' results had over the window that ended at this time."""
        reported = np.asarray(queries, dtype=np.int64)
        own = self._taken_within(time_s)[reported]
        result = np.asarray(result_sic, dtype=np.float64)
        self._echo[reported] = np.clip(np.divide(result, own, out=np.ones_like(own), where=own > 0), 1.0, _MOST_ECHO)
        self._elsewhere[reported] = result - self._echo[reported] * own
        self._reported_at_s[reported] = time_s

    def projected(self, time_s: float) -> NDArray[np.float64]:
        """The SIC that each query will have if all its waiting batches are dropped."""
        ages = (time_s - self._reported_at_s) / self._window_s
        trust = np.clip(2.0 - ages, 0.0, 1.0)
        own = self._taken_within(time_s)
        projected: NDArray[np.float64] = own + trust * (self._elsewhere + (self._echo - 1.0) * own)
        return np.maximum(projected, 0.0)

    def _taken_within(self, time_s: float) -> NDArray[np.float64]:
        """What was taken out within the source time window that ends at a time, up to a window ago."""
        return self._taken.at(time_s, since_s=time_s - self._window_s)

    def check(self, time_s: float, elapsed_s: float, processed: int, *, idle_s: float = 0.0) -> Shedding | None:
        """Learn from the time since the last look, and drop what will not be processed before the next one.

        Args:
            time_s: now.
            elapsed_s: the measured time since the last look.
            processed: tuples processed in it.
            idle_s: how long the node had nothing to do in it.

        Returns:
            What was dropped; None if nothing had to be.
        """
        self.begin(elapsed_s, processed, idle_s=idle_s)
        return self.finish(time_s)

    def begin(self, elapsed_s: float, processed: int, *, idle_s: float = 0.0) -> None:
        """Learn, and lock the buffer for a decision."""
        self.detector.cost.observe(elapsed_s, processed, idle_s=idle_s)
        self._held = self.buffer.lock()

    def finish(self, time_s: float) -> Shedding | None:
        """Decide about what waited at `begin`, and let processing go on."""
        held, self._held = self._held, ()
        tuples = np.array([batch.tuples for batch in held], dtype=np.int64)
        waiting = int(tuples.sum())
        excess = self.detector.excess(waiting)
        if excess == 0:
            self.buffer.unlock(held)
            return None
        batches = Batches.of([batch.query for batch in held], [batch.sic for batch in held], tuples)
        kept = self._keep(held, batches, self.projected(time_s), waiting - excess)
        self.buffer.unlock(batch.cut(count) for batch, count in zip(held, kept.tolist(), strict=True) if count > 0)
        return self._outcome(batches, kept)

    def _keep(self, held: tuple[Batch, ...], batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:
        """How many tuples to keep of each batch."""
        spared = np.array([self._spares_derived and batch.is_derived for batch in held])
        if not spared.any():
            return self.policy.keep(batches, projected, capacity)
        kept = np.zeros(len(batches), dtype=np.int64)
        for chosen in (spared, ~spared):
            part = Batches(batches.query[chosen], batches.sic[chosen], batches.tuples[chosen])
            kept[chosen] = self.policy.keep(part, projected, capacity)
            projected = projected + np.bincount(part.query, part.kept_sic(kept[chosen]), projected.size)
            capacity -= int(kept[chosen].sum())
        return kept

    def _outcome(self, batches: Batches, kept: Counts) -> Shedding:
        def by_query(amounts: NDArray[np.float64] | Counts) -> NDArray[np.float64]:
            sums: NDArray[np.float64] = np.zeros(len(self._taken))
            np.add.at(sums, batches.query, amounts)
            return sums

        kept_sic = batches.kept_sic(kept)
        return Shedding(
            by_query(kept).astype(np.int64),
            by_query(batches.tuples - kept).astype(np.int64),
            by_query(kept_sic),
            by_query(batches.sic - kept_sic),
        )
