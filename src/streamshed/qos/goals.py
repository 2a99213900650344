"""Quality of service over time: what latency, memory and throughput a query is to have at each age (MavStream, 4.1)."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from streamshed.errors import InvalidValueError
from streamshed.qos.graph import require_points


class Measure(Enum):
    """What is measured of a query; the value is its key in spec files, with the unit."""

    LATENCY = "latency_s"
    MEMORY = "memory_bytes"
    THROUGHPUT = "throughput_tps"

    @property
    def is_floor(self) -> bool:
        """Whether more is better: a goal of throughput is a least value, the others are greatest ones."""
        return self is Measure.THROUGHPUT

    def is_violated(self, measured: float, expected: float) -> bool:
        """Whether a measurement misses its goal."""
        return measured < expected if self.is_floor else measured > expected

    def slack(self, measured: float, expected: float) -> float:
        """By which share of the goal a measurement is better than it (equation 4.2), from 0 to 1."""
        if expected <= 0:
            return 0.0
        better = measured - expected if self.is_floor else expected - measured
        return min(1.0, max(0.0, better / expected))


class Priority(Enum):
    """What is done about a violated goal: anything, a change of strategy, or that if nothing else is at stake."""

    MUST_SATISFY = "must satisfy"
    BEST_EFFORT = "best effort"
    DONT_CARE = "don't care"


@dataclass(frozen=True)
class PriorityWeights:
    """How much a measure counts in the scores of strategies, by its class; the defaults are the thesis's.

    >>> PriorityWeights().range_of(Priority.MUST_SATISFY)
    0.5
    """

    must_satisfy: float = 1.0
    best_effort: float = 0.5
    dont_care: float = 0.01

    def __post_init__(self) -> None:
        weights = [self.must_satisfy, self.best_effort, self.dont_care]
        fine = all(math.isfinite(weight) and weight > 0 for weight in weights)
        if not (fine and all(high > low for high, low in pairwise(weights))):
            raise InvalidValueError(
                "the weights of the priority classes must fall",
                where="priorities",
                got=", ".join(f"{weight:g}" for weight in weights),
                expected="must satisfy > best effort > don't care > 0",
                at=("priorities",),
            )

    def of(self, priority: Priority) -> float:
        """The weight of a class."""
        match priority:
            case Priority.MUST_SATISFY:
                return self.must_satisfy
            case Priority.BEST_EFFORT:
                return self.best_effort
            case Priority.DONT_CARE:
                return self.dont_care

    def range_of(self, priority: Priority) -> float:
        """By how much the weight of a class may be reduced: down to that of the next class."""
        lower = {Priority.MUST_SATISFY: self.best_effort, Priority.BEST_EFFORT: self.dont_care}
        return self.of(priority) - lower.get(priority, 0.0)


@dataclass(frozen=True)
class OverTime:
    """A value over the age of a query, in pieces of straight lines.

    Points are the ends of intervals, in order of time. Between them, also between two intervals, the value lies on the
    straight line; before the first and after the last it stays. Two points at one time are a jump, and from that time
    on the second counts. One point alone is a constant.

    >>> memory = OverTime.of([(0, 10.0), (500, 10.0), (500, 1.0), (600, 3.0)])
    >>> memory(0), memory(499), memory(500), memory(550), memory(9999)
    (10.0, 10.0, 1.0, 2.0, 3.0)
    """

    ages_s: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, points: Iterable[Sequence[float]], where: str = "goal") -> OverTime:
        """Build from (age_s, value) points whose ages do not fall."""
        pairs = [tuple(float(number) for number in point) for point in points]
        if not pairs:
            raise InvalidValueError(
                "a goal needs at least one point", where=where, got="none", expected="[[age_s, value], …]"
            )
        require_points(pairs, 2, where)
        ages_s, values = zip(*pairs, strict=True)
        if ages_s[0] < 0 or any(right < left for left, right in pairwise(ages_s)):
            raise InvalidValueError(
                "the points of a goal must go forward in time",
                where=where,
                got=list(ages_s),
                expected="ages >= 0 that do not fall",
            )
        if any(ages_s[i] == ages_s[i + 2] for i in range(len(ages_s) - 2)):
            raise InvalidValueError(
                "three points of a goal lie at one time", where=where, got=list(ages_s), expected="at most two: a jump"
            )
        if min(values) < 0:
            raise InvalidValueError("a goal is negative", where=where, got=min(values), expected=">= 0")
        return cls(ages_s, values)

    def __call__(self, age_s: float) -> float:
        ages_s, values = self.ages_s, self.values
        right = bisect.bisect_right(ages_s, age_s)
        if right == 0:
            return values[0]
        if right == len(ages_s):
            return values[-1]
        left = right - 1
        return values[left] + (values[right] - values[left]) * (age_s - ages_s[left]) / (ages_s[right] - ages_s[left])

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """The ends of the intervals as (age, value) pairs."""
        return tuple(zip(self.ages_s, self.values, strict=True))

    def piece(self, age_s: float) -> int:
        """The number of the piece that an age lies in."""
        return bisect.bisect_right(self.ages_s, age_s)

    def piece_ends_s(self, age_s: float) -> tuple[float, float]:
        """Where that piece begins and ends; it goes on for ever after the last point."""
        right = self.piece(age_s)
        begin_s = self.ages_s[right - 1] if right else 0.0
        return begin_s, self.ages_s[right] if right < len(self.ages_s) else math.inf


@dataclass(frozen=True)
class Goal:
    """What a measure is to be over time, and how much that matters."""

    graph: OverTime
    priority: Priority = Priority.BEST_EFFORT


class DropOrder(Enum):
    """Which values a semantic shedder gives up first, seen from the range of values observed so far."""

    LOWEST = "lowest"
    CENTRE = "centre"
    HIGHEST = "highest"


@dataclass(frozen=True)
class SheddingBy:
    """What a semantic shedder looks at: a column, and which of its values go first."""

    column: str
    first: DropOrder


@dataclass(frozen=True)
class Goals:
    """The goals of an output for the runtime optimizer.

    Attributes:
        measures: the goals that there are.
        mtre: most tolerable relative error of the answers: how much of the tuples may be shed at most. 0 forbids
            shedding.
        shed_by: by which values to shed; None for a random choice.

    >>> goals = Goals({Measure.LATENCY: Goal(OverTime.of([(0, 1.0)]), Priority.MUST_SATISFY)}, mtre=0.2)
    >>> goals.of_priority(Priority.MUST_SATISFY)
    (<Measure.LATENCY: 'latency_s'>,)
    """

    measures: Mapping[Measure, Goal] = field(default_factory=dict)
    mtre: float = 0.0
    shed_by: SheddingBy | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.mtre <= 1:
            raise InvalidValueError(
                "the most tolerable relative error is out of range",
                where="goals",
                got=self.mtre,
                expected="0 <= mtre <= 1",
                hint="write a fraction, not per cent" if self.mtre > 1 else None,
            )

    def of_priority(self, priority: Priority) -> tuple[Measure, ...]:
        """The measures of a class."""
        return tuple(measure for measure, goal in self.measures.items() if goal.priority is priority)

    def piece(self, age_s: float) -> tuple[int, ...]:
        """Tells times apart between which a goal has passed from one piece to the next."""
        return tuple(goal.graph.piece(age_s) for goal in self.measures.values())

    def piece_ends_s(self, age_s: float) -> tuple[float, float]:
        """The time around an age in which no goal passes from one piece to the next."""
        ends = [goal.graph.piece_ends_s(age_s) for goal in self.measures.values()]
        return max((begin for begin, _ in ends), default=0.0), min((end for _, end in ends), default=math.inf)
