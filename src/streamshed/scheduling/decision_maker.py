"""The decision maker: which strategy a query needs, and when it has to shed (MavStream, algorithms 1 and 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamshed.qos import Goals, Measure, Priority, PriorityWeights
from streamshed.scheduling.decision_table import DEFAULT_TABLE, DecisionTable
from streamshed.shedding import Shedder

_SLACK = 0.99
"""A reduced weight stays above the weight of the next class, else the classes would change places."""

_ROUNDING = 1e-12
_REMEMBERED = 100
"""For so many looks a measure that is met again still counts as one that was violated."""


@dataclass(frozen=True)
class Decision:
    """What was decided for a query, and why.

    Attributes:
        time_s: when, as the age of the query.
        query: for whom.
        measured: what was measured.
        expected: the goals that it was compared with, those of a little later (look-ahead).
        violated: the measures that miss their goals, of the classes that were looked at.
        satisfied: those that meet them.
        weights: what each measure counted in the scores.
        scores: of the strategies; empty where none had to be chosen.
        before: the strategy up to now.
        after: the strategy from now on.
        shedding: the share that each shedder at work drops at most, by arc.
        reason: what led to it, for people.
        next_s: when to look again.
    """

    time_s: float
    query: str
    measured: Mapping[Measure, float]
    expected: Mapping[Measure, float]
    violated: tuple[Measure, ...]
    satisfied: tuple[Measure, ...]
    weights: Mapping[Measure, float]
    scores: Mapping[str, float]
    before: str
    after: str
    shedding: Mapping[str, float]
    reason: str
    next_s: float

    @property
    def switches(self) -> bool:
        """Whether the strategy changes."""
        return self.before != self.after

    def __str__(self) -> str:
        shown = []
        for measure in (*self.violated, *self.satisfied):
            sign = "misses" if measure in self.violated else "meets"
            shown.append(f"{measure.value} {self.measured[measure]:.4g} {sign} {self.expected[measure]:.4g}")
        scores = ", ".join(f"{name} {score:.4g}" for name, score in self.scores.items())
        parts = [f"{self.time_s:.1f} s, {self.query}: {'; '.join(shown) or 'nothing measured'}"]
        if scores:
            parts.append(f"scores: {scores}")
        change = f"{self.before} → {self.after}" if self.switches else self.after
        shed = f", shedding on {', '.join(self.shedding)}" if self.shedding else ""
        return ". ".join([*parts, f"{self.reason}: {change}{shed}"])

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "time_s": self.time_s,
            "query": self.query,
            "measured": {measure.value: value for measure, value in self.measured.items()},
            "expected": {measure.value: value for measure, value in self.expected.items()},
            "violated": [measure.value for measure in self.violated],
            "satisfied": [measure.value for measure in self.satisfied],
            "weights": {measure.value: weight for measure, weight in self.weights.items()},
            "scores": dict(self.scores),
            "before": self.before,
            "after": self.after,
            "shedding": dict(self.shedding),
            "reason": self.reason,
        }


def reduced_weight(
    weights: PriorityWeights, priority: Priority, measure: Measure, measured: float, expected: float
) -> float:
    """What a satisfied measure counts: the less, the better it is off (equations 4.2 and 4.3).

    >>> reduced_weight(PriorityWeights(), Priority.MUST_SATISFY, Measure.LATENCY, 1.0, 2.0)
    0.75
    """
    slack = min(_SLACK, measure.slack(measured, expected))
    return weights.of(priority) - slack * weights.range_of(priority)


@dataclass
class _Verdict:
    """What a look at the measurements has led to so far."""

    violated: list[Measure] = field(default_factory=list)
    satisfied: list[Measure] = field(default_factory=list)
    weights: dict[Measure, float] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    reason: str = "all goals are met"


class _Grievances:
    """The measures that were violated in a piece of the goals, and for how long they count.

    One that has been met for some looks is forgotten, else nobody would ever go back to a strategy, however much the
    load has changed. If it is violated again after that, it will be remembered for twice as long: what comes with every
    burst is forgotten a few times at first, and then no more.

    >>> grievances = _Grievances(2)
    >>> for missed in (True, False, False, True, False, False, False):
    ...     grievances.take_note([Measure.MEMORY] * missed, [Measure.MEMORY] * (not missed))
    ...     print(Measure.MEMORY in grievances, end=" ")
    True True False True True True True
    """

    def __init__(self, looks: int = _REMEMBERED) -> None:
        self._looks = looks
        self._patience: dict[Measure, int] = {}
        self._left: dict[Measure, int] = {}

    def __contains__(self, measure: Measure) -> bool:
        return self._left.get(measure, 0) > 0

    def take_note(self, missed: Iterable[Measure], met: Iterable[Measure]) -> None:
        """What a look has shown."""
        for measure in missed:
            if measure not in self:
                self._patience[measure] = 2 * self._patience[measure] if measure in self._patience else self._looks
            self._left[measure] = self._patience[measure]
        for measure in met:
            self._left[measure] = self._left.get(measure, 0) - 1


class DecisionMaker:
    """Decides for one query.

    Classes of priority are looked at from the highest down, and only as long as all goals above are met. For violated
    goals the strategy with the best score is taken; satisfied measures of *higher* classes count with reduced weights,
    so that they are not broken for the sake of lower ones. If none is better than the present strategy and the class
    is *must satisfy*, the shedder with the greatest place weight that is not at work yet is put to work, at its most.
    Shedders go off one by one while the goals are met, and all at once when a better strategy is found.

    Strategies are not gone through in circles: what was violated before, in the same piece of the goals, counts as if
    it were now. In its own class it is scored along, which is a compromise; and nothing is done for a lower class that
    would serve it less. So every change serves more goals than the one before, and there are few of them. Where a goal
    passes from one piece to the next, the history starts anew; and a measure that is met for long is forgotten.

    A new strategy is not blamed for what it found: memory beyond its goal does not count as long as it gets less.
    (And engines measure latency from the change on.)

    Args:
        query: for whom.
        goals: what is to be met.
        strategy: what it starts with.
        shedders: in falling order of place weight; none to decide without shedding.
        table: the decision table.
        weights: of the priority classes.
        lookahead_s: measurements are compared with the goals of so much later, because a new strategy takes time.
    """

    def __init__(
        self,
        query: str,
        goals: Goals,
        strategy: str,
        shedders: Sequence[Shedder] = (),
        table: DecisionTable = DEFAULT_TABLE,
        weights: PriorityWeights | None = None,
        lookahead_s: float = 1.0,
    ) -> None:
        self.query = query
        self.goals = goals
        self.strategy = strategy
        self._shedders = tuple(shedders)
        self._at_work = 0
        self._table = table
        self._weights = weights or PriorityWeights()
        self._lookahead_s = lookahead_s
        self._piece: tuple[int, ...] | None = None
        self._grievances = _Grievances()
        self._found_bytes: float | None = None

    @property
    def shedding(self) -> dict[str, float]:
        """The shedders at work, with the share that each drops at most."""
        return {shedder.arc: shedder.most for shedder in self._shedders[: self._at_work]}

    def decide(self, age_s: float, measured: Mapping[Measure, float], next_s: float) -> Decision:
        """Look at measurements and decide.

        Args:
            age_s: the age of the query.
            measured: what was measured since the last time; measures without a value are left out.
            next_s: when it will be asked again, for the record.
        """
        before = self.strategy
        ahead_s = age_s + self._lookahead_s
        if (piece := self.goals.piece(ahead_s)) != self._piece:
            self._piece, self._grievances = piece, _Grievances()
        expected = {measure: goal.graph(ahead_s) for measure, goal in self.goals.measures.items()}
        verdict = _Verdict()
        judged = self._judged(measured, expected)
        for priority in Priority:
            of_class = [measure for measure in self.goals.of_priority(priority) if measure in judged]
            missed = [measure for measure in of_class if measure.is_violated(measured[measure], expected[measure])]
            met = [measure for measure in of_class if measure not in missed]
            self._grievances.take_note(missed, met)
            verdict.violated += missed
            verdict.satisfied += met
            if missed:
                if priority is Priority.MUST_SATISFY or not self._at_work:
                    self._act(priority, verdict)
                break
            if priority is Priority.MUST_SATISFY and met and self._at_work:
                self._at_work -= 1
                verdict.reason = f"goals that must be met are met, the shedder on {self._last_arc()} goes off"
            for measure in met:
                now = self.goals.measures[measure].graph(age_s)
                verdict.weights[measure] = reduced_weight(self._weights, priority, measure, measured[measure], now)
        if len(judged) < len(measured):
            verdict.reason += ", memory is not judged yet: it gets less since the change"
        elif not verdict.violated and not verdict.satisfied:
            verdict.reason = "nothing to compare"
        if before != self.strategy:
            self._found_bytes = measured.get(Measure.MEMORY)
        return Decision(
            age_s,
            self.query,
            {measure: measured[measure] for measure in (*verdict.violated, *verdict.satisfied)},
            expected,
            tuple(verdict.violated),
            tuple(verdict.satisfied),
            verdict.weights if verdict.scores else {},
            verdict.scores,
            before,
            self.strategy,
            self.shedding,
            verdict.reason,
            next_s,
        )

    def _last_arc(self) -> str:
        return self._shedders[self._at_work].arc

    def _judged(self, measured: Mapping[Measure, float], expected: Mapping[Measure, float]) -> set[Measure]:
        """What the present strategy can be blamed for: not for memory that it found when it began, and works off."""
        judged, found_bytes = set(measured), self._found_bytes
        self._found_bytes = None
        if found_bytes is not None and Measure.MEMORY in measured and Measure.MEMORY in expected:
            now_bytes = measured[Measure.MEMORY]
            if expected[Measure.MEMORY] < now_bytes < found_bytes:
                self._found_bytes = now_bytes
                judged.remove(Measure.MEMORY)
        return judged

    def _act(self, priority: Priority, verdict: _Verdict) -> None:
        """Do something about violated goals of a class."""
        counting = [measure for measure in self.goals.of_priority(priority) if measure in self._grievances]
        verdict.weights |= dict.fromkeys(counting, self._weights.of(priority))
        verdict.scores = self._table.scores(verdict.weights)
        chosen = self._choose(priority, verdict)
        if chosen != self.strategy:
            before = " and ".join(measure.value for measure in counting if measure not in verdict.violated)
            verdict.reason = "a better strategy" + (f", also for {before}, which was missed before" if before else "")
            if self._at_work:
                verdict.reason += ", shedders go off"
            self._at_work = 0
            self.strategy = chosen
        elif priority is not Priority.MUST_SATISFY:
            verdict.reason = "no better strategy"
        elif self._at_work < len(self._shedders):
            self._at_work += 1
            verdict.reason = f"no better strategy, the shedder on {self._shedders[self._at_work - 1].arc} goes on"
        else:
            verdict.reason = "no better strategy" + (", all shedders are at work" if self._shedders else "")

    def _choose(self, priority: Priority, verdict: _Verdict) -> str:
        """The best strategy (for *don't care*, the first that is any better); the present one if none is better."""
        of_class = self.goals.of_priority(priority)
        above = [measure for measure in verdict.satisfied if measure in self._grievances and measure not in of_class]
        for_above = self._table.scores(dict.fromkeys(above, 1.0))
        least, least_above = (scores.get(self.strategy, -math.inf) for scores in (verdict.scores, for_above))
        better = [
            name
            for name, score in verdict.scores.items()
            if score > least + _ROUNDING and for_above[name] > least_above - _ROUNDING
        ]
        if priority is Priority.DONT_CARE:
            return next(iter(better), self.strategy)
        return max(better, key=lambda name: verdict.scores[name], default=self.strategy)
