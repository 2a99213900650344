"""Shedding policies: which of the waiting tuples to keep. One contract, `SheddingPolicy.keep`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean

Counts = NDArray[np.int64]

_UNIT_BITS = 40
"""SIC values are compared in units of 2^-40: sums of the same amounts in another order are still equal."""


@dataclass(frozen=True)
class Batches:
    """The batches that wait for a decision, as columns. All tuples of a batch belong to one query.

    A tuple that serves several queries is in a batch of each: dropping it for one keeps it for the others.

    Attributes:
        query: whose they are.
        sic: the SIC of all tuples of a batch together.
        tuples: how many these are.
    """

    query: Counts
    sic: NDArray[np.float64]
    tuples: Counts

    @classmethod
    def of(cls, query: ArrayLike, sic: ArrayLike, tuples: ArrayLike) -> Batches:
        """From any sequences of numbers, checked."""
        columns = (
            np.asarray(query, dtype=np.int64),
            np.asarray(sic, dtype=np.float64),
            np.asarray(tuples, dtype=np.int64),
        )
        if len({column.shape for column in columns}) > 1 or columns[0].ndim != 1:
            raise InvalidValueError(
                "columns of different length", where="batches", got=[column.shape for column in columns]
            )
        if columns[0].min(initial=0) < 0 or columns[2].min(initial=0) < 0:
            raise InvalidValueError(
                "a query or a number of tuples is negative", where="batches", expected="query >= 0, tuples >= 0"
            )
        if not (np.isfinite(columns[1]).all() and columns[1].min(initial=0.0) >= 0):
            raise InvalidValueError("a SIC is out of range", where="batches", expected="SIC >= 0")
        return cls(*columns)

    @classmethod
    def of_tuples(cls, query: ArrayLike, batch_of_tuple: ArrayLike, sic_of_tuple: ArrayLike) -> Batches:
        """From single tuples: the query of each batch, and the batch and SIC of each tuple."""
        owners = np.asarray(query, dtype=np.int64)
        batch = np.asarray(batch_of_tuple, dtype=np.int64)
        sic = np.bincount(batch, weights=np.asarray(sic_of_tuple, dtype=np.float64), minlength=owners.size)
        return cls.of(owners, sic, np.bincount(batch, minlength=owners.size))

    def __len__(self) -> int:
        return self.query.size

    def kept_sic(self, kept: Counts) -> NDArray[np.float64]:
        """The SIC of the tuples kept of each batch; those of one batch are worth the same."""
        return np.divide(self.sic * kept, self.tuples, out=np.zeros(len(self)), where=self.tuples > 0)


class SheddingPolicy(ABC):
    """Chooses what to keep of the waiting tuples. It may remember who was served, so keep one for a node.

    Attributes:
        name: how it is called in the registry, on the command line and in figures.
        title: the same for people.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:
        """How many tuples to keep of each batch: `capacity` in all, or everything if that is less.

        Args:
            batches: what waits.
            projected: the SIC that each query will have if all its batches are dropped, by query.
            capacity: the number of tuples that can be processed.
        """
        if batches.query.max(initial=-1) >= projected.size:
            raise InvalidValueError(
                "a batch of a query without a projected SIC",
                where=f"policy {self.name!r}",
                got=f"query {batches.query.max()}",
                expected=f"queries below {projected.size}",
            )
        if int(batches.tuples.sum()) <= capacity:
            return batches.tuples.copy()
        if capacity <= 0:
            return np.zeros(len(batches), dtype=np.int64)
        return self._keep(batches, projected, capacity)

    @abstractmethod
    def _keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:
        """The same when there is something to choose: more tuples than capacity, and some capacity."""


class FairPolicy(SheddingPolicy):
    """Algorithm 1: take all batches as dropped; while there is room, the query with the least SIC gets its best one.

    A query's batches are taken from the highest SIC down, and with each its projected SIC rises. So the values at
    which its batches have their turn never fall, and the priority queue of queries merges sorted lists: the order in
    which it hands batches out is the order of "SIC of the query before this batch", which two sorts give for all at
    once, in O(batches·log batches).

    Where the paper is silent: the batch that no longer fits is cut, so that what is kept is the capacity, neither more
    nor less. Of queries with the same SIC that comes first which was served longest ago, so that a tie is not decided
    for the same query each time. Batches without SIC come last: they would never lift their query off the least.

    >>> waiting = Batches.of(query=[0, 0, 1, 1], sic=[0.1, 0.2, 0.1, 0.1], tuples=[10, 10, 10, 10])
    >>> FairPolicy().keep(waiting, np.array([0.0, 0.05]), capacity=25).tolist()
    [0, 10, 10, 5]
    """

    name: ClassVar[str] = "fair"
    title: ClassVar[str] = "Fair (SIC)"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._served = np.zeros(0, dtype=np.int64)
        self._decisions = 0

    def keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:
        self._decisions += 1
        if projected.size > self._served.size:
            self._served = np.concatenate([self._served, np.zeros(projected.size - self._served.size, dtype=np.int64)])
        kept = super().keep(batches, projected, capacity)
        self._served[batches.query[kept > 0]] = self._decisions
        return kept

    def _keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:
        sic, before = _in_units(batches.sic, projected)
        turn = np.empty(projected.size, dtype=np.int64)
        turn[np.argsort(self._served[: projected.size], kind="stable")] = np.arange(projected.size)
        order = np.lexsort((-sic, turn[batches.query]))
        query, sic = batches.query[order], sic[order]
        ahead = np.cumsum(sic) - sic
        first = np.flatnonzero(np.diff(query, prepend=-1))
        ahead -= np.repeat(ahead[first], np.diff(first, append=query.size))
        due = np.where(sic > 0, before[query] + ahead, np.iinfo(np.int64).max)
        order = order[np.argsort(due, kind="stable")]
        return _filled(batches.tuples, order, capacity)


class RandomPolicy(SheddingPolicy):
    """Keeps batches in random order until there is no more room. It knows nothing of queries."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Random"

    def _keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:  # noqa: ARG002
        return _filled(batches.tuples, self._rng.permutation(len(batches)), capacity)


class ProportionalPolicy(SheddingPolicy):
    """Keeps the same share of the tuples of each query, and of each of its batches.

    The tuples of all batches, put in one row, are sampled at equal distances from a random start: each batch is at
    most one tuple off its share, and none is rounded down each time.
    """

    name: ClassVar[str] = "proportional"
    title: ClassVar[str] = "Same share of each query"

    def _keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> Counts:  # noqa: ARG002
        order = np.argsort(batches.query, kind="stable")
        ends = np.cumsum(batches.tuples[order])
        marks = np.floor(ends * (capacity / ends[-1]) + self._rng.random()).astype(np.int64)
        marks = np.minimum(marks, capacity)
        marks[ends == ends[-1]] = capacity
        kept = np.empty_like(marks)
        kept[order] = np.diff(marks, prepend=0)
        within: Counts = np.minimum(kept, batches.tuples)
        return within


def _in_units(sic: NDArray[np.float64], projected: NDArray[np.float64]) -> tuple[Counts, Counts]:
    """SIC values as whole numbers, as fine as their sum allows."""
    largest = float(sic.sum()) + float(np.abs(projected).max(initial=0.0))
    unit = 2.0 ** min(_UNIT_BITS, 61 - np.frexp(largest)[1])
    return np.rint(sic * unit).astype(np.int64), np.rint(projected * unit).astype(np.int64)


def _filled(tuples: Counts, order: Counts, capacity: int) -> Counts:
    """Keep batches in an order, up to the capacity; the last one is cut."""
    ends = np.cumsum(tuples[order])
    kept = np.empty_like(tuples)
    kept[order] = np.clip(capacity - (ends - tuples[order]), 0, tuples[order])
    return kept


POLICIES: dict[str, type[SheddingPolicy]] = {
    policy.name: policy for policy in (FairPolicy, ProportionalPolicy, RandomPolicy)
}
"""Every shedding policy by name, the best known first."""


def policy_named(name: str, seed: int = 0) -> SheddingPolicy:
    """A new policy by its name."""
    if name not in POLICIES:
        raise UnknownNameError(
            f"there is no shedding policy {name!r}", where="policy", got=name, hint=did_you_mean(name, POLICIES)
        )
    return POLICIES[name](seed)
