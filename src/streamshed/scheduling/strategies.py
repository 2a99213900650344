"""The five scheduling strategies of MavStream (section 3.5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from streamshed.scheduling.base import (
    Job,
    Step,
    Strategy,
    Turn,
    Unit,
    capacity_tps,
    one_after_another,
    release_bps,
    side_by_side,
)
from streamshed.scheduling.segments import segments, simplified_segments


class RoundRobin(Strategy):
    """Every operator in turn, from the leaves to the root, each for the same time.

    >>> a, b = Step("s->a", "a", 0.001), Step("a->b", "b", 0.002)
    >>> strategy = RoundRobin(quantum_s=0.01)
    >>> strategy.add(Job("q", ((a, b),)))
    >>> [strategy.next({"s->a": 50, "a->b": 50}).tasks for _ in range(3)]
    [('a',), ('b',), ('a',)]
    """

    name: ClassVar[str] = "round-robin"
    title: ClassVar[str] = "Round robin"

    def units(self, job: Job) -> list[Unit]:
        by_task: dict[str, list[Step]] = {}
        for step in job.steps:
            by_task.setdefault(step.task, []).append(step)
        return [Unit(job.id, tuple(steps), self._quantum_s(steps[0])) for steps in by_task.values()]

    def _quantum_s(self, step: Step) -> float:  # noqa: ARG002 - all the same here
        return self.quantum_s

    def __init__(self, quantum_s: float = 0.01) -> None:
        super().__init__(quantum_s)
        self._turns: list[Turn] = []
        self._cursor = 0

    def _arrange(self, units: list[Unit]) -> None:
        following = self._turns[self._cursor].slices[0].step.id if self._turns else None
        self._turns = [side_by_side(unit, self.name) for unit in units]
        self._position = {part.step.id: i for i, turn in enumerate(self._turns) for part in turn.slices}
        # New statistics do not begin the round anew: whoever comes late in it would never have a turn.
        self._cursor = self._position.get(following, 0) if following is not None else 0

    def _next(self, waiting: Mapping[str, float]) -> Turn | None:
        count, cursor, position = len(self._turns), self._cursor, self._position
        nearest = count
        for step, tuples in waiting.items():
            if tuples > 0 and (at := position.get(step)) is not None:
                distance = (at - cursor) % count
                if distance < nearest:
                    nearest = distance
                    if not distance:
                        break
        if nearest == count:
            return None
        chosen = (cursor + nearest) % count
        self._cursor = (chosen + 1) % count
        return self._turns[chosen]


class WeightedRoundRobin(RoundRobin):
    """Every operator in turn, for as many quanta as its weight says: leaves and joins get more."""

    name: ClassVar[str] = "weighted-round-robin"
    title: ClassVar[str] = "Weighted round robin"

    def _quantum_s(self, step: Step) -> float:
        return self.quantum_s * step.weight


class PriorityStrategy(Strategy):
    """Gives the turn to the most urgent unit with something to do, and asks again after it.

    A unit has something to do if a tuple waits anywhere on it. The thesis looks at its base alone; but after a change
    of strategy tuples wait in between, and they have to get on, too.
    """

    def units(self, job: Job) -> list[Unit]:
        parts = dict.fromkeys(part for path in job.paths for part in self.parts(path))
        distinct = {tuple(step.id for step in part): part for part in parts}  # paths share what is behind a join
        return [Unit(job.id, part, self.quantum_s * len(part)) for part in distinct.values()]

    @abstractmethod
    def parts(self, path: tuple[Step, ...]) -> list[tuple[Step, ...]]:
        """How it divides a path."""

    @abstractmethod
    def urgency(self, steps: tuple[Step, ...]) -> float:
        """By what units are ordered, the greatest first."""

    def _arrange(self, units: list[Unit]) -> None:
        ordered = sorted(units, key=lambda unit: -self.urgency(unit.steps))
        self._turns = [one_after_another(unit, self.name) for unit in ordered]
        self._best: dict[str, int] = {}
        for rank, unit in enumerate(ordered):
            for step in unit.steps:
                self._best.setdefault(step.id, rank)

    def _next(self, waiting: Mapping[str, float]) -> Turn | None:
        best = self._best
        first = len(self._turns)
        for step, tuples in waiting.items():
            if tuples > 0 and (rank := best.get(step, first)) < first:
                first = rank
        return self._turns[first] if first < len(self._turns) else None


class PathCapacity(PriorityStrategy):
    """The path with the greatest processing capacity first: tuples get through as soon as possible.

    >>> slow, fast = Step("s->slow", "slow", 0.1), Step("s->fast", "fast", 0.01)
    >>> strategy = PathCapacity()
    >>> strategy.add(Job("q", ((slow,), (fast,))))
    >>> strategy.next({"s->slow": 10, "s->fast": 1}).tasks, strategy.next({"s->slow": 10}).tasks
    (('fast',), ('slow',))
    """

    name: ClassVar[str] = "path-capacity"
    title: ClassVar[str] = "Path capacity"

    def parts(self, path: tuple[Step, ...]) -> list[tuple[Step, ...]]:
        return [path]

    def urgency(self, steps: tuple[Step, ...]) -> float:
        return capacity_tps(steps)


class Segment(PriorityStrategy):
    """The segment with the greatest memory release capacity first: memory is set free as soon as possible."""

    name: ClassVar[str] = "segment"
    title: ClassVar[str] = "Segment"

    def parts(self, path: tuple[Step, ...]) -> list[tuple[Step, ...]]:
        return segments(path)

    def urgency(self, steps: tuple[Step, ...]) -> float:
        return release_bps(steps)


class SimplifiedSegment(Segment):
    """As segment, with at most two segments a path: a little more memory, less latency."""

    name: ClassVar[str] = "simplified-segment"
    title: ClassVar[str] = "Simplified segment"

    def parts(self, path: tuple[Step, ...]) -> list[tuple[Step, ...]]:
        return simplified_segments(path)
