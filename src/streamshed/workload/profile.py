"""Arrivals as a line of pieces with constant rate, counted exactly on a clock of microseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Array = TypeVar("Array", Ints, Floats)

NEVER_US = 1 << 62
_LAST_US = 1 << 53  # 285 years: beyond it a float no longer tells microseconds apart


@dataclass(frozen=True, eq=False)
class Profile:
    """How many tuples have arrived by each microsecond, and its inverse.

    Time is a whole number of microseconds, as in Spark's timestamps, which makes both directions exact:
    `first_us(n)` is the smallest u with `count(u) >= n`. Within a piece, tuples are evenly spaced.

    Attributes:
        starts_us: where each piece begins, from 0.
        counts: tuples (with fractions) that arrived before each piece.
        rates_tps: the rate within each piece.
        limits: tuples that arrived before the piece after it; infinite for a last piece that goes on for ever.
        cycle_us: length after which everything repeats, or 0.

    >>> profile = Profile.of([10, 0, 20], [1.0, 2.0, 1.0], after="repeat")
    >>> profile.count(np.array([0, 100_000, 1_000_000, 3_050_000, 4_000_000, 7_050_000])).tolist()
    [0, 1, 10, 11, 30, 41]
    >>> profile.first_us(np.array([1, 11, 41])).tolist()
    [100000, 3050000, 7050000]
    """

    starts_us: Ints
    counts: Floats
    rates_tps: Floats
    limits: Floats
    cycle_us: int

    @classmethod
    def of(
        cls,
        rates_tps: Sequence[float] | Floats,
        seconds: Sequence[float] | Floats,
        after: Literal["stop", "repeat", "hold"],
    ) -> Profile:
        """Build from the rate and length of each piece.

        Args:
            rates_tps: tuples per second.
            seconds: how long each lasts; rounded to microseconds.
            after: what follows the last piece: nothing, the first piece again, or its own rate for ever.
        """
        rates = np.asarray(rates_tps, dtype=np.float64)
        ends_us = np.cumsum(np.rint(np.asarray(seconds, dtype=np.float64) * 1e6).astype(np.int64))
        starts_us = np.concatenate([np.zeros(1, dtype=np.int64), ends_us])
        counts = np.concatenate([np.zeros(1), np.cumsum(rates * np.diff(starts_us) / 1e6)])
        return cls.from_counts(starts_us, counts, rates, after)

    @classmethod
    def from_counts(
        cls, knots_us: Ints, counts: Floats, rates_tps: Floats, after: Literal["stop", "repeat", "hold"]
    ) -> Profile:
        """Build from the counts at the knots: one more knot than rates."""
        if after == "hold":
            limits = np.append(counts[1:-1], np.inf)
            return cls(knots_us[:-1], counts[:-1], rates_tps, limits, 0)
        if after == "repeat":
            return cls(knots_us[:-1], counts[:-1], rates_tps, counts[1:], int(knots_us[-1]))
        limits = np.append(counts[1:], counts[-1])
        return cls(knots_us, counts, np.append(rates_tps, 0.0), limits, 0)

    @property
    def total(self) -> int | None:
        """How many tuples ever arrive; None if there is no end to them."""
        last = float(self.limits[-1])
        if self.cycle_us:
            return 0 if last == 0 else None
        if np.isfinite(last):
            return int(last)
        return int(self.counts[-1]) if self.rates_tps[-1] == 0 else None

    def _split(self, at_us: Ints) -> tuple[Ints, Ints, Ints]:
        """The cycle, the time within it, and the piece; cycle and piece have one element where all share it."""
        at_us = np.clip(at_us, 0, _LAST_US)
        cycle = np.zeros(1, dtype=np.int64)
        if self.cycle_us:
            cycle = _shared(at_us, lambda some: some // self.cycle_us)
            at_us = at_us - cycle * self.cycle_us
        piece = _shared(at_us, lambda some: np.searchsorted(self.starts_us, some, side="right") - 1)
        return cycle, at_us, piece

    def rate(self, at_us: Ints) -> Floats:
        """Tuples per second at a time; nothing arrives before 0."""
        piece = self._split(at_us)[2]
        return np.where(at_us < 0, 0.0, self.rates_tps[piece])

    def count(self, at_us: Ints) -> Ints:
        """Tuples that have arrived by a time, that microsecond included."""
        cycle, within_us, piece = self._split(at_us)
        # First times, then divided: a whole rate on a whole second gives the whole number, with no rounding.
        count = self.counts[piece] + self.rates_tps[piece] * (within_us - self.starts_us[piece]) / 1e6
        count = np.minimum(count, self.limits[piece])
        if self.cycle_us:
            per_cycle = self.limits[-1]
            count = np.minimum(cycle * per_cycle + count, (cycle + 1) * per_cycle)
        return np.floor(count).astype(np.int64)

    def first_us(self, number: Ints) -> Ints:
        """When the number-th tuple (from 1) arrives: `NEVER_US` if it never does."""
        found = np.full(number.shape, NEVER_US, dtype=np.int64)
        comes = np.ones(number.shape, dtype=bool) if self.total is None else number <= self.total
        wanted = number[comes]
        if not wanted.size:
            return found
        guess = self._guess_us(wanted)
        wrong = np.flatnonzero((self.count(guess) < wanted) | ((guess > 0) & (self.count(guess - 1) >= wanted)))
        if wrong.size:
            guess[wrong] = self._search_us(wanted[wrong], guess[wrong])
        found[comes] = np.where(guess >= _LAST_US, NEVER_US, guess)
        return found

    def _guess_us(self, number: Ints) -> Ints:
        """The inverse in floating point: right but for the last digit."""
        left = number.astype(np.float64)
        begin_us: Ints | int = 0
        if self.cycle_us:
            per_cycle = float(self.limits[-1])
            cycle = np.maximum(np.ceil(left / per_cycle) - 1, 0)
            left -= cycle * per_cycle
            begin_us = cycle.astype(np.int64) * self.cycle_us
        piece = _shared(left, lambda some: np.maximum(np.searchsorted(self.counts, some, side="left") - 1, 0))
        rate = self.rates_tps[piece]
        wait_us = np.ceil(np.maximum(left - self.counts[piece], 0) * 1e6 / np.where(rate > 0, rate, np.inf))
        return begin_us + self.starts_us[piece] + np.minimum(wait_us, _LAST_US).astype(np.int64)

    def _search_us(self, number: Ints, guess: Ints) -> Ints:
        """Bisection around a guess, for the few that rounding put beside the mark."""
        low, high = np.maximum(guess - 2, -1), guess + 2
        step = 2
        while step < _LAST_US and (np.any(self.count(low) >= number) or np.any(self.count(high) < number)):
            low = np.where(self.count(low) >= number, np.maximum(low - step, -1), low)
            high = np.where(self.count(high) < number, np.minimum(high + step, _LAST_US), high)
            step *= 2
        while np.any(high - low > 1):
            middle = (low + high) // 2
            reached = self.count(middle) >= number
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return high


def _shared(values: Array, find: Callable[[Array], Ints]) -> Ints:
    """Apply a function that never falls; once instead of for every value where the least and the greatest agree.

    Neighbouring tuples are mostly in one piece: with thousands of pieces this halves the time that arrivals take.
    """
    if values.size > 1:
        ends = find(np.array([values.min(), values.max()]))
        if ends[0] == ends[1]:
            return ends[:1]
    return find(values)
