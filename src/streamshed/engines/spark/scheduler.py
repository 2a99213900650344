"""Stages under scheduling strategies: who has the turn, what stages can do, and what the optimizer does for goals."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from streamshed.engines.spark.backlog import Backlog
from streamshed.engines.spark.capacity import CapacityMeter
from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.stage import RunningStage, StageBatch
from streamshed.engines.spark.turn_order import TurnOrder
from streamshed.engines.spark.turns import Turns
from streamshed.errors import InvalidValueError
from streamshed.manager import Decision as Drops
from streamshed.manager import Manager
from streamshed.network import Spec
from streamshed.network.paths import Query, goals_of
from streamshed.network.stages import Stage
from streamshed.planning import PlaceWeightPlanner, drop_places
from streamshed.planning.ranks import LEVELS
from streamshed.qos import Goals, Measure, Priority, PriorityWeights
from streamshed.scheduling import (
    OPTIMIZER,
    STRATEGIES,
    Decision,
    Job,
    MasterScheduler,
    Monitoring,
    OptimizerSettings,
    RuntimeOptimizer,
    StageCapacity,
    foreseen,
    stage_jobs,
    stage_queries,
    step_id,
    strategy_named,
)
from streamshed.shedding import Shedder

MONITORING = Monitoring(max_s=3.0)
"""How often it looks: as in the thesis's experiments. Where goals do not change, its bounds alone would let it sleep
through a burst."""

_QUANTUM_S = 0.5  # of a stage, for sharing the time out among strategies: about a micro-batch
_NEWS = 0.1  # a change of a capacity by so much is told to the strategies
_WARM_UP_S = 30.0  # a query is old enough to be judged when all its stages have ended a batch, or after so long
_DECISIONS_KEPT = 200


@dataclass
class _Outlet:
    """What came out of a query since somebody last looked."""

    since_s: float = 0.0
    rows: int = 0
    timed: int = 0
    delay_s: float = 0.0

    def add(self, counts: DropCounts, end_s: float, changed_s: float) -> None:
        self.rows += counts.kept
        mean_s = counts.mean_delay_s(end_s)
        if mean_s is not None:
            self.timed += counts.kept
            self.delay_s += min(mean_s, end_s - changed_s) * counts.kept


@dataclass
class _Watched:
    """A query, and what is known about it.

    Attributes:
        spare_s: what the tuples that came out last had left of a latency goal that must be met; half of it before that.
    """

    query: Query
    stages: tuple[str, ...]
    goals: Goals | None = None
    outlet: _Outlet = field(default_factory=_Outlet)
    entered_s: float | None = None
    is_judged: bool = False
    spare_s: float = math.inf

    def __post_init__(self) -> None:
        if self.must_be_on_time:
            self.spare_s = self._latency_goal_s(0.0) / 2

    @property
    def must_be_on_time(self) -> bool:
        return self.goals is not None and Measure.LATENCY in self.goals.of_priority(Priority.MUST_SATISFY)

    def came_out(self, delay_s: float, now_s: float) -> None:
        """Tuples have come out, so late on average."""
        if self.must_be_on_time:
            goal_s = self._latency_goal_s(now_s - (self.entered_s or now_s))
            self.spare_s = max(goal_s - delay_s, 0.0)

    def _latency_goal_s(self, age_s: float) -> float:
        assert self.goals is not None
        return self.goals.measures[Measure.LATENCY].graph(age_s)


class StageScheduler:
    """Orders the stages of a running network, and switches strategies where goals ask for it.

    With a strategy by name, all queries are under it. With `optimizer`, each query starts with the strategy that the
    decision table scores best for its goals, and the runtime optimizer decides; queries without goals are under round
    robin. Where goals tolerate an error, it may also put shedders to work, which the network's runner carries out.

    What a tuple had waited before a change of strategy is not held against the new one, so that shedding does not begin
    for what it is about to mend: delays count from the change on.

    Where queries are under different strategies, these share the time out by priorities: a stage of a query counts as
    much as the most urgent of its goals. A query that nobody stated goals for counts as *best effort*.

    Args:
        spec: the network, what is known about it, its rates and goals.
        stages: what it is cut into, each after those it reads.
        name: a strategy, or `optimizer`.
        settings: of the optimizer; by default it looks every three seconds, with the priorities of the spec.

    Attributes:
        turns: who has the turn.
        master: keeps the strategies.
        changes: the decisions that changed anything, the latest ones.
        switches: how often the strategy of each query was changed.
        optimizing_s: processor time that looking at queries and deciding for them took.
    """

    def __init__(
        self, spec: Spec, stages: Sequence[Stage], name: str, settings: OptimizerSettings | None = None
    ) -> None:
        strategy = None if name == OPTIMIZER else strategy_named(name).name
        self.name = name
        self._network = spec.network
        self._cut = tuple(stages)
        known = foreseen(spec.network, spec.statistics, spec.rates, stages)
        self._meter = CapacityMeter(known, [stage.id for stage in stages if stage.is_durable])
        self._told = dict(known)
        self._queries = stage_queries(spec.network, stages)
        self.master = MasterScheduler(_QUANTUM_S)
        steps = {stage.id: tuple(step_id(source, stage.id) for source in stage.inputs) for stage in stages}
        self.changes: list[Decision] = []
        self.switches = {query.id: 0 for query in self._queries}
        self.optimizing_s = 0.0
        self._optimizer = RuntimeOptimizer(
            self.master, settings or OptimizerSettings(MONITORING, weights=spec.priorities)
        )
        self._shedders = {query.id: _shedders(spec, query) for query in self._queries} if name == OPTIMIZER else {}
        self._watched: dict[str, _Watched] = {}
        self._weights = {query.id: _weight(goals_of(spec.network, query), spec.priorities) for query in self._queries}
        for query, job in zip(self._queries, self._jobs(), strict=True):
            goals = goals_of(spec.network, query) if name == OPTIMIZER else None
            self.master.start(job, strategy or self._optimizer.first(goals))
            self._watched[query.id] = _Watched(query, tuple(dict.fromkeys(step.task for step in job.steps)), goals)
        self._through: dict[str, list[_Watched]] = {stage.id: [] for stage in stages}
        for watched in self._watched.values():
            for stage_id in watched.stages:
                self._through[stage_id].append(watched)
        self._most_rest_s: dict[str, float] = {}
        for watched in self._watched.values():
            self._let_rest(watched)
        self.turns = Turns(TurnOrder(self.master, steps, self._most_rest_s), steps)
        self.master.next({})  # carries the requests out
        self._shedding: dict[str, dict[str, float]] = {}
        self._planned: dict[str, float] = {}
        self._drops: Drops | None = None
        self._stages: dict[str, RunningStage] = {}
        self._backlog: Backlog | None = None
        if name == OPTIMIZER and not any(watched.goals for watched in self._watched.values()):
            raise InvalidValueError(
                "the optimizer has no goals to meet",
                where=f"network {spec.network.name!r}",
                got="no output with `goals`",
                expected="goals in the qos of an output",
                hint="state goals, or name a strategy: " + ", ".join(STRATEGIES),
            )

    def attach(self, stages: Sequence[RunningStage], backlog: Backlog) -> None:
        """Look after stages that run."""
        self._stages = {stage.id: stage for stage in stages}
        self._backlog = backlog

    def turn(self, stage: RunningStage) -> AbstractContextManager[object]:
        """What a batch of a stage runs in; the wait ends when the stage is stopped."""
        return self.turns.turn(stage.id, lambda: stage.query is None or stage.query.isActive)

    @property
    def decides_drops(self) -> bool:
        """Whether drops follow from goals."""
        return self.name == OPTIMIZER

    @property
    def capacities(self) -> dict[str, StageCapacity]:
        """What each stage can do, as far as is known."""
        return self._meter.capacities

    @property
    def strategies(self) -> dict[str, str]:
        """The strategy that each query is under."""
        return {query.id: self.master.strategy_of(query.id) or "" for query in self._queries}

    def _let_rest(self, watched: _Watched) -> None:
        """Say how long stages of a query may stand back after a turn, if it must be on time, so that it is.

        It is what its latest tuples had left of the goal, an equal part for each stage.
        """
        if watched.must_be_on_time:
            for stage in watched.stages:
                must = (other for other in self._through[stage] if other.must_be_on_time)
                self._most_rest_s[stage] = min(other.spare_s / len(other.stages) for other in must)

    # --- what batches tell -------------------------------------------------------------------------------------------

    def learn(self, stage: RunningStage, sources: Sequence[DropCounts]) -> None:
        """A batch of a stage has ended, `stage.last`.

        Args:
            stage: whose.
            sources: what came in from its streams and arcs, with arrival times if it went no further.
        """
        batch = stage.last
        if batch is None:
            return
        self._meter.add(stage.id, batch)
        now = self.capacities
        changed = {name for name, capacity in now.items() if _differ(capacity, self._told[name])}
        if changed:
            self._told.update({name: now[name] for name in changed})
            for job in self._jobs():
                if any(step.task in changed for step in job.steps):
                    self.master.update(job)
        for watched in self._through[stage.id]:
            if watched.entered_s is None:
                watched.entered_s = batch.end_s
            if stage.plan.outputs:
                for counts in sources:
                    watched.outlet.add(counts, batch.end_s, self._optimizer.changed_s(watched.query.id))
                delays_s = [counts.mean_delay_s(batch.end_s) for counts in sources]
                known_s = [delay_s for delay_s in delays_s if delay_s is not None]
                if known_s:
                    watched.came_out(max(known_s), batch.end_s)
                    self._let_rest(watched)

    def _jobs(self) -> list[Job]:
        found = stage_jobs(self._network, self._cut, self._queries, self._told)
        return [replace(job, weight=self._weights[job.id]) for job in found]

    # --- goals -------------------------------------------------------------------------------------------------------

    def review(self, now_s: float) -> dict[str, float]:
        """Let the optimizer look at the queries that are due; give the share to drop at each place, by arc."""
        for watched in self._watched.values():
            if watched.goals is not None and not watched.is_judged and self._is_warm(watched, now_s):
                watched.is_judged, watched.outlet = True, _Outlet(now_s)
                query = watched.query.id
                first = self._optimizer.first(watched.goals)
                self._optimizer.watch(query, watched.goals, first, self._shedders[query], now_s)
        if now_s >= self._optimizer.next_s:
            for decision in self._optimizer.review(now_s, lambda query: self.measure(query, now_s)):
                self._take_note(decision)
            del self._optimizer.log[:-_DECISIONS_KEPT]
        # Thresholds have steps, and the next one up would be beyond the tolerable error.
        return {
            arc: math.floor(share * LEVELS) / LEVELS
            for of_query in self._shedding.values()
            for arc, share in of_query.items()
        }

    def drops(self, now_s: float, manager: Manager) -> Drops | None:
        """What to drop from now on, after a review; None as long as nothing had to be dropped."""
        begin_s = time.thread_time()
        shedding = self.review(now_s)
        if shedding != self._planned:
            plan = PlaceWeightPlanner().plan_with(manager.network, manager.statistics, manager.rates, shedding)
            self._planned, self._drops = shedding, manager.decision(plan)
        self.optimizing_s += time.thread_time() - begin_s
        return self._drops

    def measure(self, query: str, now_s: float) -> dict[Measure, float]:
        """What has become of a query since the last time, as the optimizer wants to know it.

        Latency is the mean delay of the tuples that its last stages have worked on, from the latest change of strategy
        on; where there were none, the longest that anything has waited for a stage since then.
        """
        watched = self._watched[query]
        outlet, watched.outlet = watched.outlet, _Outlet(now_s)
        span_s = now_s - outlet.since_s
        found = {
            Measure.MEMORY: self.memory_bytes(query, now_s),
            Measure.THROUGHPUT: outlet.rows / span_s if span_s > 0 else 0.0,
        }
        latency_s = outlet.delay_s / outlet.timed if outlet.timed else self._longest_wait_s(watched, now_s)
        return found if latency_s is None else {Measure.LATENCY: latency_s, **found}

    def memory_bytes(self, query: str, now_s: float) -> float:
        """What waits for the stages of a query or is being worked on, at sources and on arcs, and its state."""
        if self._backlog is None:
            return 0.0
        found = (self._stages[stage_id] for stage_id in self._watched[query].stages)
        return sum(self._backlog.held_bytes(stage, now_s) for stage in found)

    def _longest_wait_s(self, watched: _Watched, now_s: float) -> float | None:
        if self._backlog is None:
            return None
        waits_s = [
            now_s - max(_begin_s(stage.last), self._optimizer.changed_s(watched.query.id))
            for stage_id in watched.stages
            if (stage := self._stages.get(stage_id)) is not None and stage.last is not None
            if stage.unfinished or any(self._backlog.unprocessed(stage, now_s).values())
        ]
        return max(waits_s, default=None)

    def _is_warm(self, watched: _Watched, now_s: float) -> bool:
        if watched.entered_s is None:
            return False
        found = [self._stages.get(stage_id) for stage_id in watched.stages]
        return now_s > watched.entered_s + _WARM_UP_S or all(stage is not None and stage.last for stage in found)

    def _take_note(self, decision: Decision) -> None:
        if decision.switches:
            self.switches[decision.query] += 1
        if decision.switches or decision.shedding != self._shedding.get(decision.query, {}):
            self.changes.append(decision)
            del self.changes[:-_DECISIONS_KEPT]
        self._shedding[decision.query] = dict(decision.shedding)

    # --- the record --------------------------------------------------------------------------------------------------

    def as_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "strategies": self.strategies,
            "switches": dict(self.switches),
            "turns": self.turns.given,
            "waited_s": self.turns.waited_s,
            "deciding_s": self.turns.deciding_s,
            "optimizing_s": self.optimizing_s,
            "used_s": dict(self.turns.used_s),
            "capacities": {name: vars(capacity) for name, capacity in self.capacities.items()},
            "changes": [decision.as_document() for decision in self.changes],
            "decisions": [decision.as_document() for decision in self._optimizer.log],
        }


def _shedders(spec: Spec, query: Query) -> tuple[Shedder, ...]:
    goals = goals_of(spec.network, query)
    if goals is None:
        return ()
    if goals.shed_by is not None:
        raise InvalidValueError(
            "shedders that go by values are not there on Spark",
            where=f"output {query.id!r}",
            got=f"shed_by {goals.shed_by.column}",
            expected="random shedders",
            hint="leave `shed_by` out, or run the spec in the simulator",
        )
    mtre = dict.fromkeys(query.outputs, goals.mtre)
    return drop_places(spec.network, spec.statistics, spec.rates, query.paths, mtre)


def _weight(goals: Goals | None, weights: PriorityWeights) -> float:
    classes = [goal.priority for goal in goals.measures.values()] if goals is not None else []
    return max((weights.of(priority) for priority in classes), default=weights.best_effort)


def _begin_s(batch: StageBatch) -> float:
    return batch.end_s - batch.duration_s


def _differ(one: StageCapacity, other: StageCapacity) -> bool:
    pairs = zip(astuple(one), astuple(other), strict=True)
    return any(abs(now - then) > _NEWS * max(then, 1e-12) for now, then in pairs)
