"""What can be scheduled, and the contract of all scheduling strategies.

Nothing here knows whether a step is an operator in the simulator or a stage on Spark: it has a queue, something that
runs when it gets the turn, and what is known about both.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean
from streamshed.load import chain_capacity_tps


@dataclass(frozen=True)
class Step:
    """A queue and what runs to empty it; a join is a step for each of its sides (a semi-operator).

    Attributes:
        id: the queue: an arc, or the input of a stage.
        task: the operator or stage that runs.
        cost_s: seconds of processing per tuple.
        selectivity: tuples handed on per tuple.
        bytes_in: the size of a tuple that waits here.
        bytes_out: the size of a tuple handed on; 0 where it leaves for good.
        weight: how many quanta it gets in a weighted round.
    """

    id: str
    task: str
    cost_s: float
    selectivity: float = 1.0
    bytes_in: float = 1.0
    bytes_out: float = 1.0
    weight: float = 1.0

    @property
    def release_bps(self) -> float:
        """Memory release capacity: bytes per second that running it sets free."""
        return release_bps((self,))


def capacity_tps(steps: Sequence[Step]) -> float:
    """The processing capacity of a path or segment: tuples per second (equation 4.4)."""
    return chain_capacity_tps([step.cost_s for step in steps], [step.selectivity for step in steps])


def release_bps(steps: Sequence[Step]) -> float:
    """The memory release capacity of a segment: its processing capacity times what a tuple sets free on it.

    A tuple comes in with its bytes, and leaves the product of the selectivities times the bytes at the end.

    >>> release_bps([Step("a", "a", 0.01, 0.5, bytes_in=100, bytes_out=100)])
    5000.0
    """
    left = math.prod(step.selectivity for step in steps) * steps[-1].bytes_out
    freed = steps[0].bytes_in - left
    capacity = capacity_tps(steps)
    return freed * capacity if freed else 0.0  # a step may cost nothing: zero times infinity


@dataclass(frozen=True)
class Job:
    """A query as schedulers see it.

    Attributes:
        id: the query.
        paths: its operator paths, each from the stream on. Paths share steps behind a union or join.
        weight: what an operator of it counts, where time is shared out among strategies.
    """

    id: str
    paths: tuple[tuple[Step, ...], ...]
    weight: float = 1.0

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step once, level by level from the leaves to the root."""
        level: dict[str, int] = {}
        found: dict[str, Step] = {}
        for path in self.paths:
            for depth, step in enumerate(path):
                found.setdefault(step.id, step)
                level[step.id] = max(level.get(step.id, 0), depth)
        return tuple(sorted(found.values(), key=lambda step: level[step.id]))


@dataclass(frozen=True)
class Unit:
    """What a strategy gives the turn to as a whole: an operator, a path or a segment.

    Attributes:
        job: the query that it belongs to.
        steps: its steps, in the order in which they run.
        quantum_s: how long a turn may take.
    """

    job: str
    steps: tuple[Step, ...]
    quantum_s: float


@dataclass(frozen=True)
class Slice:
    """A step of a turn, and how many tuples it may take at most."""

    step: Step
    most: int


@dataclass(frozen=True)
class Turn:
    """Who runs next.

    Attributes:
        job: the query.
        strategy: the strategy that decided.
        slices: what to run, one after the other.
        quantum_s: how long it may take.
    """

    job: str
    strategy: str
    slices: tuple[Slice, ...]
    quantum_s: float = 0.0

    @property
    def tasks(self) -> tuple[str, ...]:
        """The operators or stages that run, in order."""
        return tuple(dict.fromkeys(part.step.task for part in self.slices))


class Strategy(ABC):
    """Decides which of the steps with something to do gets the turn. One instance serves any number of queries.

    Args:
        quantum_s: how long an operator may run before others are asked.

    Attributes:
        name: how it is called in the registry and on the command line.
        title: the same for people.
    """

    name: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, quantum_s: float = 0.01) -> None:
        if not quantum_s > 0:
            raise InvalidValueError("the quantum must be positive", where="scheduling", got=quantum_s, expected="> 0")
        self.quantum_s = quantum_s
        self.jobs: dict[str, Job] = {}
        self._units: dict[str, list[Unit]] = {}
        self._tasks: dict[str, int] = {}
        self._is_arranged = False

    def add(self, job: Job) -> None:
        """Take a query over, or take note of what is new about it."""
        self.jobs[job.id] = job
        self._units[job.id] = self.units(job)
        self._tasks[job.id] = len({step.task for step in job.steps})
        self._is_arranged = False

    def remove(self, job_id: str) -> Job:
        """Give a query up."""
        if job_id not in self.jobs:
            raise UnknownNameError(
                "the strategy does not have the query",
                where=f"strategy {self.name!r}",
                got=repr(job_id),
                hint=did_you_mean(job_id, self.jobs),
            )
        self._is_arranged = False
        del self._units[job_id], self._tasks[job_id]
        return self.jobs.pop(job_id)

    @property
    def weight(self) -> float:
        """Its share of the time: the operators or stages of its queries, each as much as its query counts."""
        return sum(count * self.jobs[job].weight for job, count in self._tasks.items())

    def next(self, waiting: Mapping[str, float]) -> Turn | None:
        """Who runs next.

        Args:
            waiting: tuples in the queues, by step; empty queues and steps of other strategies do not matter.

        Returns:
            None if nothing waits at any of its steps.
        """
        if not self._is_arranged:
            self._arrange([unit for units in self._units.values() for unit in units])
            self._is_arranged = True
        return self._next(waiting)

    @abstractmethod
    def units(self, job: Job) -> list[Unit]:
        """How it divides a query."""

    @abstractmethod
    def _arrange(self, units: list[Unit]) -> None:
        """Prepare for decisions among these units."""

    @abstractmethod
    def _next(self, waiting: Mapping[str, float]) -> Turn | None: ...


def one_after_another(unit: Unit, strategy: str) -> Turn:
    """The turn of a path or segment: as many tuples at its base as it can carry to its end, and what they become."""
    carried = _most(unit.quantum_s * capacity_tps(unit.steps))
    further = (Slice(step, _most(unit.quantum_s / step.cost_s if step.cost_s else math.inf)) for step in unit.steps[1:])
    return Turn(unit.job, strategy, (Slice(unit.steps[0], carried), *further), unit.quantum_s)


def side_by_side(unit: Unit, strategy: str) -> Turn:
    """The turn of an operator: its inputs share the time."""
    share_s = unit.quantum_s / len(unit.steps)
    return Turn(
        unit.job,
        strategy,
        tuple(Slice(step, _most(share_s / step.cost_s if step.cost_s else math.inf)) for step in unit.steps),
        unit.quantum_s,
    )


_PLENTY = 1 << 31


def _most(tuples: float) -> int:
    return max(1, int(min(tuples, _PLENTY)))
