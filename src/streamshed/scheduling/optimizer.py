"""The runtime optimizer: looks at queries when they are due and lets the decision maker act (MavStream, 4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from streamshed.errors import InvalidValueError
from streamshed.qos import Goals, Measure, PriorityWeights
from streamshed.scheduling.decision_maker import Decision, DecisionMaker
from streamshed.scheduling.decision_table import DEFAULT_TABLE, DecisionTable
from streamshed.scheduling.master import MasterScheduler
from streamshed.scheduling.strategies import RoundRobin
from streamshed.shedding import Shedder

OPTIMIZER = "optimizer"
"""What it is called where one may also name a strategy."""


@dataclass(frozen=True)
class Monitoring:
    """How often a query is looked at.

    Attributes:
        times: how often within a piece of its goals.
        min_s: not more often than this; longer than it takes to run every operator once.
        max_s: not more seldom than this.
        lookahead_s: how far ahead goals are looked up; less than `min_s`.

    >>> Monitoring(times=10, min_s=3, max_s=30).interval_s(0.0, 100.0, 42.0)
    10.0
    """

    times: int = 10
    min_s: float = 3.0
    max_s: float = 30.0
    lookahead_s: float = 1.0

    def __post_init__(self) -> None:
        if not (self.times >= 1 and 0 < self.min_s <= self.max_s and 0 <= self.lookahead_s < self.min_s):
            raise InvalidValueError(
                "the monitoring interval makes no sense",
                where="monitoring",
                got=f"times {self.times}, min_s {self.min_s}, max_s {self.max_s}, lookahead_s {self.lookahead_s}",
                expected="times >= 1, 0 <= lookahead_s < min_s <= max_s",
            )

    def interval_s(self, begin_s: float, end_s: float, age_s: float) -> float:
        """How long to wait at an age in a piece of the goals: a part of it, within the bounds, and not past its end."""
        wanted_s = (end_s - begin_s) / self.times
        to_end_s = end_s - self.lookahead_s - age_s
        if to_end_s > 0:
            wanted_s = min(wanted_s, to_end_s)
        return min(self.max_s, max(self.min_s, wanted_s))


@dataclass(frozen=True)
class OptimizerSettings:
    """How the optimizer works.

    Attributes:
        monitoring: how often it looks.
        table: the decision table.
        weights: of the priority classes.
        may_shed: whether it may shed where goals state a tolerable error.
    """

    monitoring: Monitoring = field(default_factory=Monitoring)
    table: DecisionTable = DEFAULT_TABLE
    weights: PriorityWeights = field(default_factory=PriorityWeights)
    may_shed: bool = True


@dataclass
class _Watched:
    maker: DecisionMaker
    start_s: float
    due_s: float
    changed_s: float = -math.inf


class RuntimeOptimizer:
    """Looks after queries with goals: system monitor (algorithm 2) and decision makers.

    An engine asks when it is next due (`next_s`), then calls `review` with a way to measure queries. Changes of
    strategy go to the master scheduler as requests. Shedders are the engine's: it reads them from the decisions. Every
    decision is kept in `log`.

    Args:
        master: gets the requests to change strategies.
        settings: how to work.
    """

    def __init__(self, master: MasterScheduler, settings: OptimizerSettings | None = None) -> None:
        self._master = master
        self._settings = settings or OptimizerSettings()
        self._watched: dict[str, _Watched] = {}
        self.log: list[Decision] = []

    def first(self, goals: Goals | None) -> str:
        """What a query starts with where nobody says otherwise: the best for its goals; round robin without any."""
        return RoundRobin.name if goals is None else self._settings.table.best_for(goals)

    def watch(
        self, query: str, goals: Goals, strategy: str, shedders: Sequence[Shedder] = (), start_s: float = 0.0
    ) -> None:
        """Look after a query from a time on, which is under a strategy by then."""
        settings = self._settings
        maker = DecisionMaker(
            query,
            goals,
            strategy,
            shedders if settings.may_shed else (),
            settings.table,
            settings.weights,
            settings.monitoring.lookahead_s,
        )
        wait_s = settings.monitoring.interval_s(*goals.piece_ends_s(0.0), 0.0)
        self._watched[query] = _Watched(maker, start_s, start_s + wait_s)

    def forget(self, query: str) -> None:
        """Look after a query no longer."""
        self._watched.pop(query, None)

    @property
    def next_s(self) -> float:
        """When the next query is due; infinite if none is looked after."""
        return min((watched.due_s for watched in self._watched.values()), default=math.inf)

    def review(self, now_s: float, measure: Callable[[str], Mapping[Measure, float]]) -> tuple[Decision, ...]:
        """Decide for the queries that are due.

        Args:
            now_s: the time.
            measure: what was measured of a query since it was last asked; measures without a value are left out. A
                delay counts from the latest change of strategy on (`changed_s`): before, another one held tuples up.
        """
        decisions = []
        for query, watched in self._watched.items():
            if now_s < watched.due_s - 1e-9:
                continue
            age_s = now_s - watched.start_s
            begin_s, end_s = watched.maker.goals.piece_ends_s(age_s)
            watched.due_s = now_s + self._settings.monitoring.interval_s(begin_s, end_s, age_s)
            decision = watched.maker.decide(age_s, measure(query), watched.due_s)
            if decision.switches:
                self._master.change(query, decision.after)
                watched.changed_s = now_s
            decisions.append(decision)
        self.log.extend(decisions)
        return tuple(decisions)

    def changed_s(self, query: str) -> float:
        """When the strategy of a query was changed last; long ago if it never was."""
        return self._watched[query].changed_s if query in self._watched else -math.inf

    def switches(self, query: str) -> int:
        """How often the strategy of a query was changed."""
        return sum(decision.switches for decision in self.log if decision.query == query)
