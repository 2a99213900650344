"""When tuples arrive: patterns that a feeder plays in real time and a simulator in virtual time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from streamshed.errors import InvalidValueError
from streamshed.workload.hashing import hash64, unit
from streamshed.workload.options import Options, check_range
from streamshed.workload.profile import NEVER_US, Floats, Ints, Profile

_MAX_TPS = 1e9
_MAX_S = 1e8  # three years
_PIECES_PER_PERIOD = 360


class ArrivalPattern(ABC):
    """The contract: how many have arrived by a time, and when a given one arrives.

    Times are seconds from the start of the pattern, exact to the microsecond. `arrival_time(i)` is the first
    microsecond t with `cumulative(t) > i`; tuples are numbered from 0. Every pattern is a pure function of its fields.
    """

    @property
    @abstractmethod
    def profile(self) -> Profile:
        """The pattern as pieces of constant rate."""

    @property
    def total(self) -> int | None:
        """How many tuples ever arrive; None if there is no end to them."""
        return self.profile.total

    @overload
    def cumulative(self, t_s: float) -> int: ...
    @overload
    def cumulative(self, t_s: Floats) -> Ints: ...
    def cumulative(self, t_s: float | Floats) -> int | Ints:
        """Tuples that have arrived by a time."""
        counts = self.profile.count(_to_us(t_s))
        return counts if isinstance(t_s, np.ndarray) else int(counts)

    @overload
    def rate(self, t_s: float) -> float: ...
    @overload
    def rate(self, t_s: Floats) -> Floats: ...
    def rate(self, t_s: float | Floats) -> float | Floats:
        """Tuples per second at a time."""
        rates = self.profile.rate(_to_us(t_s))
        return rates if isinstance(t_s, np.ndarray) else float(rates)

    def arrival_us(self, index: Ints) -> Ints:
        """When tuples arrive, in whole microseconds; `NEVER_US` for one that never does."""
        return self.profile.first_us(np.asarray(index, dtype=np.int64) + 1)

    def arrival_time(self, index: Ints) -> Floats:
        """When tuples arrive, in seconds; infinite for one that never does."""
        at_us = self.arrival_us(index)
        return np.where(at_us == NEVER_US, np.inf, at_us / 1e6)


@dataclass(frozen=True)
class Constant(ArrivalPattern):
    """The same rate for ever.

    >>> pattern = Constant(rate_tps=4)
    >>> pattern.cumulative(1.0), pattern.arrival_time(np.arange(4)).tolist()
    (4, [0.25, 0.5, 0.75, 1.0])
    """

    rate_tps: float = 1000.0

    def __post_init__(self) -> None:
        check_range("pattern 'constant'", "rate_tps", self.rate_tps, 0, _MAX_TPS)

    @cached_property
    def profile(self) -> Profile:
        return Profile.of([self.rate_tps], [1.0], after="hold")


@dataclass(frozen=True)
class Step(ArrivalPattern):
    """One rate until a time, another from then on.

    >>> Step(before_tps=100, after_tps=300, at_s=10).cumulative(np.array([10.0, 11.0])).tolist()
    [1000, 1300]
    """

    before_tps: float
    after_tps: float
    at_s: float

    def __post_init__(self) -> None:
        where = "pattern 'step'"
        check_range(where, "before_tps", self.before_tps, 0, _MAX_TPS)
        check_range(where, "after_tps", self.after_tps, 0, _MAX_TPS)
        check_range(where, "at_s", self.at_s, 0, _MAX_S)

    @cached_property
    def profile(self) -> Profile:
        return Profile.of([self.before_tps, self.after_tps], [self.at_s, 1.0], after="hold")


@dataclass(frozen=True)
class Burst(ArrivalPattern):
    """Calm, a burst, and calm again for ever.

    >>> pattern = Burst(calm_tps=100, burst_tps=500, start_s=10, length_s=5)
    >>> [pattern.rate(t) for t in (9.9, 10.0, 14.9, 15.0)], pattern.cumulative(20.0)
    ([100.0, 500.0, 500.0, 100.0], 4000)
    """

    calm_tps: float
    burst_tps: float
    start_s: float
    length_s: float

    def __post_init__(self) -> None:
        where = "pattern 'burst'"
        check_range(where, "calm_tps", self.calm_tps, 0, _MAX_TPS)
        check_range(where, "burst_tps", self.burst_tps, 0, _MAX_TPS)
        check_range(where, "start_s", self.start_s, 0, _MAX_S)
        check_range(where, "length_s", self.length_s, 0, _MAX_S)

    @cached_property
    def profile(self) -> Profile:
        rates = [self.calm_tps, self.burst_tps, self.calm_tps]
        return Profile.of(rates, [self.start_s, self.length_s, 1.0], after="hold")


@dataclass(frozen=True)
class Phases(ArrivalPattern):
    """Rates that follow one another, each for some seconds; then nothing, or all over again.

    >>> day = Phases(((100, 60), (300, 30), (100, 60)))
    >>> day.total, day.cumulative(75.0), day.arrival_time(np.array([20_999, 21_000])).tolist()
    (21000, 10500, [150.0, inf])
    """

    phases: tuple[tuple[float, float], ...]
    repeat: bool = False

    def __post_init__(self) -> None:
        if not self.phases:
            raise InvalidValueError("there are no phases", where="pattern 'phases'", expected="(rate, seconds) pairs")
        for number, (rate_tps, seconds) in enumerate(self.phases, start=1):
            check_range(f"pattern 'phases', phase {number}", "the rate", rate_tps, 0, _MAX_TPS)
            check_range(f"pattern 'phases', phase {number}", "the time", seconds, 1e-6, _MAX_S)

    @cached_property
    def profile(self) -> Profile:
        rates, seconds = zip(*self.phases, strict=True)
        return Profile.of(rates, seconds, after="repeat" if self.repeat else "stop")


@dataclass(frozen=True)
class Sinusoid(ArrivalPattern):
    """A rate that swings: mean + amplitude · sin(2π (t + phase) / period).

    A period is counted in 360 pieces, each with the exact number of tuples that the formula gives for it.

    >>> pattern = Sinusoid(mean_tps=100, amplitude_tps=50, period_s=8)
    >>> pattern.rate(2.0), pattern.cumulative(8.0), pattern.cumulative(4.0)
    (150.0, 800, 527)
    """

    mean_tps: float
    amplitude_tps: float
    period_s: float
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        where = "pattern 'sinusoid'"
        check_range(where, "mean_tps", self.mean_tps, 0, _MAX_TPS)
        check_range(where, "amplitude_tps", self.amplitude_tps, 0, self.mean_tps)
        check_range(where, "period_s", self.period_s, 1e-3, _MAX_S)

    @cached_property
    def profile(self) -> Profile:
        turns = 2 * np.pi / self.period_s
        knots_us = np.rint(np.linspace(0, self.period_s, _PIECES_PER_PERIOD + 1) * 1e6).astype(np.int64)
        swing = np.cos(turns * self.phase_s) - np.cos(turns * (knots_us / 1e6 + self.phase_s))
        counts = np.maximum.accumulate(self.mean_tps * knots_us / 1e6 + self.amplitude_tps / turns * swing)
        counts[-1] = self.mean_tps * knots_us[-1] / 1e6
        counts = np.minimum(counts, counts[-1])
        return Profile.from_counts(knots_us, counts, np.diff(counts) * 1e6 / np.diff(knots_us), after="repeat")

    @overload
    def rate(self, t_s: float) -> float: ...
    @overload
    def rate(self, t_s: Floats) -> Floats: ...
    def rate(self, t_s: float | Floats) -> float | Floats:
        swing = np.sin(2 * np.pi / self.period_s * (np.asarray(t_s) + self.phase_s))
        rates = np.where(np.asarray(t_s) < 0, 0.0, self.mean_tps + self.amplitude_tps * swing)
        return rates if isinstance(t_s, np.ndarray) else float(rates)


@dataclass(frozen=True)
class Pareto(ArrivalPattern):
    """A rate drawn anew for every period from a bounded Pareto distribution: long calm, sudden bursts.

    The share of periods with a rate above x is ((low/x)^β − (low/peak)^β) / (1 − (low/peak)^β) for low <= x <= peak.
    Mean and peak are given, `low` follows from them. So the bias factor β moves burstiness alone, not the load: the
    smaller β, the more bursty, as in the synthetic streams of the control-based shedder's paper (section 5, β from 0.1
    to 1.5), which leaves open how it bounds the distribution.

    Attributes:
        mean_tps: the mean of the distribution.
        beta: bias factor.
        peak_tps: the highest rate there can be, up to 100 times the mean; four times if not given.
        period_s: how long a rate lasts.
        periods: after so many periods the same rates come again.
        seed: chooses the rates.

    >>> def spread(beta):
    ...     rates = Pareto(mean_tps=200, beta=beta).profile.rates_tps
    ...     return round(float(rates.mean())), round(float(rates.std() / rates.mean()), 1)
    >>> spread(0.1), spread(1.5)
    ((199, 1.0), (200, 0.6))
    """

    mean_tps: float
    beta: float = 1.0
    peak_tps: float | None = None
    period_s: float = 1.0
    periods: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        where = "pattern 'pareto'"
        check_range(where, "mean_tps", self.mean_tps, 0, _MAX_TPS, above=True)
        check_range(where, "beta", self.beta, 0.01, 100)
        check_range(where, "peak_tps", self._peak_tps, self.mean_tps, 100 * self.mean_tps, above=True)
        check_range(where, "period_s", self.period_s, 1e-3, _MAX_S)
        check_range(where, "periods", self.periods, 1, 1 << 20)

    @property
    def _peak_tps(self) -> float:
        return 4 * self.mean_tps if self.peak_tps is None else self.peak_tps

    @cached_property
    def low_tps(self) -> float:
        """The lowest rate there can be: bisection on a logarithmic scale, since the mean rises with it."""
        low, high = math.log(self._peak_tps) - 700, math.log(self.mean_tps)
        for _ in range(100):
            middle = (low + high) / 2
            if _bounded_pareto_mean(middle - math.log(self._peak_tps), self.beta) * self._peak_tps < self.mean_tps:
                low = middle
            else:
                high = middle
        return math.exp(high)

    @cached_property
    def profile(self) -> Profile:
        chance = unit(hash64(self.seed, _PARETO_SALT, np.arange(self.periods)))
        kept = -math.expm1(self.beta * math.log(self.low_tps / self._peak_tps))
        rates = self.low_tps * (1 - chance * kept) ** (-1 / self.beta)
        return Profile.of(np.minimum(rates, self._peak_tps), np.full(self.periods, self.period_s), after="repeat")


_PARETO_SALT = 0x50


def _bounded_pareto_mean(log_low: float, beta: float) -> float:
    """The mean of a Pareto distribution between exp(log_low) and 1."""
    kept = -math.expm1(beta * log_low)
    if abs(1 - beta) < 1e-9:
        return -log_low * math.exp(log_low) / kept
    return beta * (math.exp(beta * log_low) - math.exp(log_low)) / (1 - beta) / kept


@dataclass(frozen=True)
class Trace(ArrivalPattern):
    """Recorded arrivals: a CSV file with one column `count`, the arrivals in each bin; lines with `#` are comments.

    The file is read when the pattern is made, and a pickled pattern carries its counts with it.

    Attributes:
        path: the file.
        scale: multiplies every count.
        start_s: skips the beginning of the trace, to whole bins.
        bin_s: how long a bin is.
        repeat: start again at the end; otherwise nothing comes after it.
    """

    path: str
    scale: float = 1.0
    start_s: float = 0.0
    bin_s: float = 0.1
    repeat: bool = False

    def __post_init__(self) -> None:
        where = "pattern 'trace'"
        check_range(where, "scale", self.scale, 0, 1e6)
        check_range(where, "bin_s", self.bin_s, 1e-3, _MAX_S)
        counts = _read_counts(self.path)
        check_range(where, "start_s", self.start_s, 0, (len(counts) - 1) * self.bin_s)
        skipped = round(self.start_s / self.bin_s)
        object.__setattr__(self, "_profile", self._build(counts[skipped:]))

    def _build(self, counts: Ints) -> Profile:
        knots_us = np.arange(len(counts) + 1) * round(self.bin_s * 1e6)
        arrived = self.scale * np.concatenate([[0], np.cumsum(counts)])
        rates = counts.astype(np.float64) * self.scale / self.bin_s
        return Profile.from_counts(knots_us, arrived, rates, after="repeat" if self.repeat else "stop")

    @property
    def profile(self) -> Profile:
        profile: Profile = self.__dict__["_profile"]
        return profile


def _read_counts(path: str) -> Ints:
    where = f"trace file {path!r}"
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            "the trace cannot be read", where=where, got=error, expected="a CSV file with one column 'count'"
        ) from error
    rows = [(number, line.strip()) for number, line in enumerate(lines, start=1)]
    rows = [(number, text) for number, text in rows if text and not text.startswith("#")]
    if not rows or rows[0][1].strip('"') != "count":
        got = repr(rows[0][1][:60]) if rows else "an empty file"
        raise InvalidValueError("the trace has no header", where=where, got=got, expected="the first line: count")
    if len(rows) == 1:
        raise InvalidValueError("the trace is empty", where=where, expected="at least one count")
    for number, text in rows[1:]:
        if not (text.isascii() and text.isdigit()):
            raise InvalidValueError(
                "a count is not a whole number",
                where=f"{where}, line {number}",
                got=repr(text[:60]),
                expected="arrivals in this bin, >= 0",
            )
    return np.array([int(text) for _, text in rows[1:]], dtype=np.int64)


PATTERNS: Mapping[str, type[ArrivalPattern]] = {
    "constant": Constant,
    "step": Step,
    "burst": Burst,
    "phases": Phases,
    "sinusoid": Sinusoid,
    "pareto": Pareto,
    "trace": Trace,
}


def pattern_from_options(options: Mapping[str, str] | Options) -> ArrivalPattern:
    """Make the pattern that the option `pattern` names (default: constant); its fields are further options.

    Args:
        options: text by name. Options that the pattern does not have are refused, unless the caller passes `Options`
            and looks after the rest itself.

    >>> pattern_from_options({"pattern": "step", "before_tps": "100", "AfterTps": "3e2", "at_s": "5"})
    Step(before_tps=100.0, after_tps=300.0, at_s=5.0)
    >>> pattern_from_options({"pattern": "phases", "phases": "100:60, 300:30, 100:60"}).total
    21000
    >>> pattern_from_options({"pattern": "sinusiod"})
    Traceback (most recent call last):
        ...
    streamshed.errors.UnknownNameError: there is no such pattern
      where:    arrivals option 'pattern'
      got:      'sinusiod'
      hint:     did you mean 'sinusoid'?
    """
    known = options if isinstance(options, Options) else Options(options, where="arrivals")
    kind: Callable[..., Any] = known.choice("pattern", "constant", PATTERNS)
    pattern: ArrivalPattern = known.build(kind)  # type: ignore[arg-type]
    if known is not options:
        known.refuse_rest()
    return pattern


def _to_us(t_s: float | Floats) -> Ints:
    return np.rint(np.clip(np.asarray(t_s, dtype=np.float64) * 1e6, -1.0, 2.0**53)).astype(np.int64)
