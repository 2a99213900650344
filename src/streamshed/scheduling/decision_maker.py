"""The decision maker: which strategy a query needs, and when it has to shed (MavStream, algorithms 1 and 4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamshed.qos import Goals, Measure, Priority, PriorityWeights
from streamshed.scheduling.decision_table import DEFAULT_TABLE, DecisionTable
from streamshed.shedding import Shedder

_SLACK = 0.99
"""A reduced weight stays above the weight of the next class, else the classes would change places."""


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


class DecisionMaker:
    """Decides for one query.

    Classes of priority are looked at from the highest down, and only as long as all goals above are met. For violated
    goals the strategy with the best score is taken; satisfied measures of *higher* classes count with reduced weights,
    so that they are not broken for the sake of lower ones. If none is better than the present strategy and the class
    is *must satisfy*, the shedder with the greatest place weight that is not at work yet is put to work, at its most.
    Shedders go off one by one while the goals are met, and all at once when a better strategy is found.

    Before going back to the strategy that it came from, it looks whether what was violated then is what is satisfied
    now, and the other way round. That is a cycle, and it takes a strategy that serves both. Where a goal passes from
    one piece to the next, this history starts anew.

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
        self._previous: str | None = None
        self._then_violated: frozenset[Measure] = frozenset()
        self._then_satisfied: frozenset[Measure] = frozenset()

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
            self._piece, self._previous = piece, None
        expected = {measure: goal.graph(ahead_s) for measure, goal in self.goals.measures.items()}
        verdict = _Verdict()
        for priority in Priority:
            missed = [
                measure
                for measure in self.goals.of_priority(priority)
                if measure in measured and measure.is_violated(measured[measure], expected[measure])
            ]
            met = [
                measure for measure in self.goals.of_priority(priority) if measure in measured and measure not in missed
            ]
            verdict.violated += missed
            verdict.satisfied += met
            if missed:
                if priority is Priority.MUST_SATISFY or not self._at_work:
                    self._act(priority, missed, verdict)
                break
            if priority is Priority.MUST_SATISFY and met and self._at_work:
                self._at_work -= 1
                verdict.reason = f"goals that must be met are met, the shedder on {self._last_arc()} goes off"
            for measure in met:
                now = self.goals.measures[measure].graph(age_s)
                verdict.weights[measure] = reduced_weight(self._weights, priority, measure, measured[measure], now)
        if not verdict.violated and not verdict.satisfied:
            verdict.reason = "nothing to compare"
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

    def _act(self, priority: Priority, missed: Sequence[Measure], verdict: _Verdict) -> None:
        """Do something about violated goals of a class."""
        weight = self._weights.of(priority)
        verdict.weights |= dict.fromkeys(missed, weight)
        verdict.scores = self._table.scores(verdict.weights)
        chosen = self._choose(verdict.scores, any_better=priority is Priority.DONT_CARE)
        verdict.reason = "a better strategy"
        if chosen == self._previous and self._is_cycle(verdict):
            both = dict.fromkeys((*self._then_violated, *missed))
            verdict.weights = {measure: self._weights.of(self.goals.measures[measure].priority) for measure in both}
            verdict.scores = self._table.scores(verdict.weights)
            chosen = self._choose(verdict.scores)
            verdict.reason = f"going back to {self._previous} would be a cycle"
        if chosen != self.strategy:
            if self._at_work:
                verdict.reason += ", shedders go off"
            self._at_work = 0
            self._previous, self.strategy = self.strategy, chosen
            self._then_violated, self._then_satisfied = frozenset(verdict.violated), frozenset(verdict.satisfied)
        elif priority is not Priority.MUST_SATISFY:
            verdict.reason = "no better strategy"
        elif self._at_work < len(self._shedders):
            self._at_work += 1
            verdict.reason = f"no better strategy, the shedder on {self._shedders[self._at_work - 1].arc} goes on"
        else:
            verdict.reason = "no better strategy" + (", all shedders are at work" if self._shedders else "")

    def _choose(self, scores: Mapping[str, float], *, any_better: bool = False) -> str:
        """The best strategy (or the first that is any better); the present one if none is better than it."""
        present = scores.get(self.strategy, float("-inf"))
        better: Iterable[str] = [name for name, score in scores.items() if score > present + 1e-12]
        if any_better:
            return next(iter(better), self.strategy)
        return max(better, key=lambda name: scores[name], default=self.strategy)

    def _is_cycle(self, verdict: _Verdict) -> bool:
        return frozenset(verdict.violated) == self._then_satisfied and (
            frozenset(verdict.satisfied) == self._then_violated
        )
