"""Taking turns: threads that are ready wait here until the master scheduler names them, one at a time."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from streamshed.scheduling import MasterScheduler

_POLL_S = 0.2
_REMEMBERED = 8  # turns of a stage
_PATIENCE = 6.0  # in rests
_REST = 2.0
"""In rounds of batches that have nothing to do: fixed costs take at most one part in so many of the time."""


class TurnGivenUp(Exception):
    """Whoever waited for a turn was stopped before it came."""


class Turns:
    """Gives the turn to one ready stage at a time, in the order of a master scheduler.

    A stage is ready while a batch of it waits here, so a turn goes at once to the next in order that *is* ready: none
    is kept for a stage that has nothing to do, or that Spark has not called yet.

    Because of that, strategies that order by capacity would starve stages. A stage of a fast path is ready again a
    moment after its batch, with next to nothing to do, and would have every second turn at the fixed cost of a batch.
    So a stage that has just had a turn stands back behind those that have not, for twice as long as a round of all
    stages would take if they had next to nothing to do: their number times the shortest batch of late. Then fixed costs
    take half of the time at most, and whoever is behind has the other half. Who must be on time can ask for less, and
    comes before all others when it is over, whatever the strategy. Nobody waits for ever, either: after some such times
    it is his turn, if only to find out what the stage can do by now.

    A path or segment has a batch of each of its stages that is ready, the one nearest to its end first. What the others
    hand on meanwhile comes too late for that: Spark has to commit it, and to plan the batch that reads it. From the
    base on, every tuple would wait for one more batch of the stage before.

    Safe for several threads; requests to the master scheduler may come from any of them.

    Args:
        master: decides who is next.
        steps: the steps of each stage.
        most_rest_s: of stages that must be on time: how long each stands back at most. It may change any time.
        clock: tells the time, in seconds.
        poll_s: how often somebody who waits looks whether he still may.

    Attributes:
        given: how many turns there were.
        deciding_s: how long the decisions took in all.
        waited_s: how long stages waited in all.
        used_s: how long each stage had the turn in all.
    """

    def __init__(
        self,
        master: MasterScheduler,
        steps: Mapping[str, Sequence[str]],
        most_rest_s: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        poll_s: float = _POLL_S,
    ) -> None:
        self._lock = threading.Condition()
        self.given = 0
        self.deciding_s = 0.0
        self.waited_s = 0.0
        self.used_s = dict.fromkeys(steps, 0.0)
        self._master = master
        self._steps = steps
        self._most_rest_s = most_rest_s if most_rest_s is not None else {}
        self._clock = clock
        self._poll_s = poll_s
        self._ready: dict[str, float] = {}
        self._running: str | None = None
        self._slices: deque[str] = deque()
        self._owed: dict[str, int] = {}
        self._began_s = dict.fromkeys(steps, -math.inf)
        self._took_s: dict[str, deque[float]] = {stage: deque(maxlen=_REMEMBERED) for stage in steps}
        self._shortest_s: dict[str, float] = {}

    @property
    def ready(self) -> tuple[str, ...]:
        """The stages that wait for a turn."""
        with self._lock:
            return tuple(self._ready)

    @contextmanager
    def turn(self, stage: str, may_wait: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Wait for the turn, and have it until the end of the block.

        Args:
            stage: who wants it.
            may_wait: whether to go on waiting; asked now and then.

        Raises:
            TurnGivenUp: if not.
        """
        came_s = self._clock()
        with self._lock:
            self._ready[stage] = came_s
            self._hand_over()
        try:
            while not self._has_come(stage):
                if not may_wait():
                    raise TurnGivenUp(f"stage {stage!r} was stopped while it waited for its turn")
            with self._lock:
                self.waited_s += self._clock() - came_s
            yield
        finally:
            with self._lock:
                self._ready.pop(stage, None)
                if self._running == stage:
                    self._end(stage)
                self._hand_over()

    def _has_come(self, stage: str) -> bool:
        with self._lock:
            if self._running != stage:
                self._lock.wait(self._poll_s)
            return self._running == stage

    def _end(self, stage: str) -> None:
        took_s = self._clock() - self._began_s[stage]
        self._took_s[stage].append(took_s)
        self._shortest_s[stage] = min(self._took_s[stage])
        self.used_s[stage] += took_s
        self._master.spent(took_s)
        self._running = None

    def _hand_over(self) -> None:
        if self._running is not None or not self._ready:
            return
        begin_s = self._clock()
        chosen = self._next(begin_s)
        del self._ready[chosen]
        self._running = chosen
        self._began_s[chosen] = begin_s
        self.given += 1
        self.deciding_s += self._clock() - begin_s
        self._lock.notify_all()

    def _next(self, now_s: float) -> str:
        while self._slices:  # the turn of a path or segment goes on
            stage = self._slices.popleft()
            if stage in self._ready:
                return stage
        owed = next((stage for stage in self._owed if stage in self._ready), None)
        if owed is not None:
            self._owe(owed, self._owed[owed] - 1)
            return owed
        candidates = dict.fromkeys(self._candidates(now_s))
        turn = self._master.next({step: 1.0 for stage in candidates for step in self._steps[stage]})
        if turn is None:
            return next(iter(candidates))
        found = next(task for task in reversed(turn.tasks) if task in candidates)
        self._slices.extend(task for task in reversed(turn.tasks) if task != found)
        if len(turn.tasks) == 1:
            self._owe(found, round(turn.quantum_s / self._master.quantum_s) - 1)
        return found

    def _owe(self, stage: str, turns: int) -> None:
        self._owed.pop(stage, None)
        if turns > 0:
            self._owed[stage] = turns

    def _candidates(self, now_s: float) -> Iterable[str]:
        """The stages among which the master scheduler may choose."""
        rest_s = _REST * len(self._steps) * min(self._shortest_s.values(), default=0.0)
        first = next(iter(self._ready))  # has waited longest
        if now_s - self._ready[first] > _PATIENCE * rest_s > 0:
            return [first]
        rested = [stage for stage in self._ready if now_s - self._began_s[stage] >= rest_s]
        must = [stage for stage in rested if stage in self._most_rest_s]
        must += [
            stage
            for stage, most_s in self._most_rest_s.items()
            if stage in self._ready and rest_s > now_s - self._began_s[stage] >= most_s
        ]
        return must or rested or self._ready
