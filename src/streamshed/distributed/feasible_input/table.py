"""The feasible input table of a node: which rates it can take, and what comes of them (Borealis, 3.1 and 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from streamshed.distributed.feasible_input.exact import Flags, Floats, Ints, units_needed, whole_units
from streamshed.distributed.linear import Mixtures
from streamshed.errors import InvalidValueError, StreamshedError

_MOST_CELLS = 20_000_000
_TIE = 1e-9
_SAME = 1e-7


@dataclass(frozen=True)
class Decision:
    """What a node does about the rates it sees.

    Attributes:
        rates: the rate to let in at each input.
        keep: the share of each input's tuples that this is.
        score: what is expected to come of it.
        flows: the local plan: the rate to let into each segment; empty where the table has none.
    """

    rates: Mapping[str, float]
    keep: Mapping[str, float]
    score: float
    flows: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FeasibleInputTable:
    """Rows of rates with a score, best first.

    A row says: with these rates at my inputs neither I nor anyone below me is overloaded, and this is the score. Where
    the row has a local plan, that holds because the node drops the rest at its splits. Local plans stay at home.

    Attributes:
        node: whose table it is.
        inputs: the ids of the inputs, one for each column.
        units: the unit of each column, in tuples per second.
        counts: the rates, a row for each entry, in these units.
        scores: the score of each entry.
        segments: the segments of the local plans.
        flows: the rate that enters each segment, a row for each entry; None in a table that came from another node.
        planless: which entries need no local plan; None if not known.
        mixing: whether entries may be mixed in any proportion. Everything here is linear, so half of one entry and half
            of another is feasible too, with half of either score; few entries then say as much as a fine grid.
        max_error: how far the best entry can be from the best rates there are, in score.
    """

    node: str
    inputs: tuple[str, ...]
    units: tuple[Fraction, ...]
    counts: Ints
    scores: Floats
    segments: tuple[str, ...] = ()
    flows: Floats | None = None
    planless: Flags | None = None
    mixing: bool = False
    max_error: float = 0.0

    def __post_init__(self) -> None:
        shape = (len(self.scores), len(self.inputs))
        if self.counts.shape != shape or len(self.units) != len(self.inputs) or not len(self.scores):
            raise InvalidValueError(
                "the table's columns do not match", where=f"table of {self.node!r}", got=self.counts.shape,
                expected=f"{shape}, and at least one row",
            )  # fmt: skip

    def take(self, rows: Ints, max_error: float | None = None) -> FeasibleInputTable:
        """The table with these entries only."""
        return replace(
            self,
            counts=self.counts[rows],
            scores=self.scores[rows],
            flows=None if self.flows is None else self.flows[rows],
            planless=None if self.planless is None else self.planless[rows],
            max_error=self.max_error if max_error is None else max_error,
        )

    def best_first(self) -> FeasibleInputTable:
        """The table with its best entries first; among equals, those that let more in."""
        return self.take(self._ranking)

    @property
    def _ranking(self) -> Ints:
        step = _TIE * max(float(np.abs(self.scores).max(initial=0.0)), 1e-300)
        return np.lexsort((-self.rates.sum(axis=1), -np.round(self.scores / step)))

    def without_worse(self) -> FeasibleInputTable:
        """The table without entries that another one beats with no higher rates; nothing is lost with them."""
        if self._index is None:
            return self
        best = self._index[tuple(self._places(self.counts))]
        return self.take(np.flatnonzero(best >= np.arange(len(self))))

    def thinned(self, entries: int) -> FeasibleInputTable:
        """At most so many entries, spread over the whole range of rates, the best of each neighbourhood."""
        if len(self) <= entries:
            return self
        kept = self.take(self.spaced_rows(entries)).best_first()
        best = np.array([kept.scores[row] if row >= 0 else 0.0 for row in kept.best_rows(self.counts)])
        return replace(kept, max_error=self.max_error + max(float((self.scores - best).max()), 0.0))

    def spaced_rows(self, entries: int) -> Ints:
        """The numbers of at most so many entries: the best in every cell of a grid as fine as that allows."""
        ranking = self._ranking
        highest = np.maximum(self.counts.max(axis=0), 1)
        low, high = 1, max(int(highest.max()), 1)
        chosen = ranking[:entries]
        while low <= high:
            levels = (low + high) // 2
            cells = np.ceil(self.counts[ranking] * np.minimum(levels / highest, 1.0)).astype(np.int64)
            _, first = np.unique(cells, axis=0, return_index=True)
            if len(first) <= entries:
                chosen, low = ranking[np.sort(first)], levels + 1
            else:
                high = levels - 1
        return chosen

    def __len__(self) -> int:
        return len(self.scores)

    @cached_property
    def rates(self) -> Floats:
        """The rates in tuples per second."""
        rates: Floats = self.counts * np.array([float(unit) for unit in self.units])
        return rates

    def exact_rates(self, row: int) -> tuple[Fraction, ...]:
        """The rates of an entry, exactly."""
        return tuple(int(count) * unit for count, unit in zip(self.counts[row], self.units, strict=True))

    @cached_property
    def highest(self) -> Mapping[str, float]:
        """The highest rate of each input in any entry."""
        return dict(zip(self.inputs, (float(rate) for rate in self.rates.max(axis=0)), strict=True))

    def carries(self, rates: Mapping[str, float]) -> bool:
        """Whether these rates need no drop at all: some entry without a local plan has them or more."""
        wanted = self._ordered(rates)
        if self.mixing:
            free = self.rates if self.planless is None else self.rates[self.planless]
            if not len(free):
                return not any(wanted)
            return Mixtures(-free, np.zeros(len(free))).best(-np.array(wanted)) is not None
        needed = [units_needed(rate, unit) for rate, unit in zip(wanted, self.units, strict=True)]
        enough = (self.counts >= np.array(needed)).all(axis=1)
        return bool((enough if self.planless is None else enough & self.planless).any())

    def decide(self, rates: Mapping[str, float]) -> Decision:
        """The best entry, or mixture, among those that ask for no more than these rates."""
        wanted = self._ordered(rates)
        if self.mixing:
            weights = self._mixtures.best(np.array(wanted))
            if weights is None:
                raise StreamshedError("the table cannot be read", where=f"table of {self.node!r}", got="no mixture")
            chosen = weights @ self.rates
            score = float(weights @ self.scores)
            flows = None if self.flows is None else weights @ self.flows
        else:
            row = self.best_row(rates)
            if row is None:
                return self._decision(wanted, np.zeros(len(wanted)), 0.0, np.zeros(len(self.segments)))
            chosen, score = self.rates[row], float(self.scores[row])
            flows = None if self.flows is None else self.flows[row]
        return self._decision(wanted, chosen, score, flows)

    def best_row(self, rates: Mapping[str, float]) -> int | None:
        """The number of the best entry that asks for no more than these rates; None if there is none."""
        limits = [whole_units(rate, unit) for rate, unit in zip(self._ordered(rates), self.units, strict=True)]
        row = int(self.best_rows(np.array([limits]))[0])
        return row if row >= 0 else None

    def best_rows(self, limits: Ints) -> Ints:
        """The same for many rates at once, in units; -1 where there is none."""
        if self._index is None:
            return np.array([_first((self.counts <= limit).all(axis=1)) for limit in limits])
        places = self._places(limits)
        inside = np.minimum.reduce(places) >= 0
        rows = np.where(inside, self._index[tuple(np.maximum(place, 0) for place in places)], -1)
        return np.where(rows < len(self), rows, -1)

    def _places(self, counts: Ints) -> list[Ints]:
        """The cell of the index that counts lie in, column by column."""
        return [np.searchsorted(level, counts[:, i], side="right") - 1 for i, level in enumerate(self._levels)]

    @cached_property
    def _levels(self) -> list[Ints]:
        return [np.unique(self.counts[:, column]) for column in range(len(self.inputs))]

    @cached_property
    def _index(self) -> Ints | None:
        """For every cell of the grid that the columns span the best row at or below it: a look-up is one access.

        Rows are sorted, so the best one has the least number, and the least over a corner is a running minimum along
        each axis. None where the grid has too many cells.
        """
        shape = tuple(len(values) for values in self._levels)
        if np.prod([float(size) for size in shape]) > _MOST_CELLS:
            return None
        index = np.full(shape, len(self), dtype=np.int64)
        np.minimum.at(index, tuple(self._places(self.counts)), np.arange(len(self)))
        for axis in range(len(shape)):
            np.minimum.accumulate(index, axis=axis, out=index)
        return index

    @cached_property
    def _mixtures(self) -> Mixtures:
        return Mixtures(self.rates, self.scores)

    def _ordered(self, rates: Mapping[str, float]) -> list[float]:
        missing = [input_id for input_id in self.inputs if input_id not in rates]
        if missing:
            raise InvalidValueError(
                "an input has no rate", where=f"table of {self.node!r}", got=", ".join(missing), expected="all inputs"
            )
        return [max(float(rates[input_id]), 0.0) for input_id in self.inputs]

    def _decision(self, wanted: list[float], chosen: Floats, score: float, flows: Floats | None) -> Decision:
        keep = {
            input_id: 1.0 if rate <= 0 or taken >= rate * (1 - _SAME) else float(taken / rate)
            for input_id, rate, taken in zip(self.inputs, wanted, chosen, strict=True)
        }
        return Decision(
            {input_id: float(taken) for input_id, taken in zip(self.inputs, chosen, strict=True)},
            keep,
            score,
            {} if flows is None else {name: float(x) for name, x in zip(self.segments, flows, strict=True)},
        )


def _first(flags: Flags) -> int:
    row = int(flags.argmax())
    return row if flags[row] else -1
