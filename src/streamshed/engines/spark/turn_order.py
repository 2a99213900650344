"""Whose turn it is among stages that are ready: what a strategy says, and what micro-batches ask for besides."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from streamshed.scheduling import MasterScheduler

_REMEMBERED = 8  # turns of a stage
_PATIENCE = 6.0  # in rests
_REST = 2.0
"""In rounds of batches that have nothing to do: fixed costs take at most one part in so many of the time."""


class TurnOrder:
    """Chooses the next stage among those that are ready, in the order of a master scheduler.

    Strategies that order by capacity would starve stages. A stage of a fast path is ready again a moment after its
    batch, with next to nothing to do, and would have every second turn at the fixed cost of a batch. So a stage that
    has just had a turn stands back behind those that have not, for twice as long as a round of all stages would take if
    they had next to nothing to do: their number times the shortest batch of late. Then fixed costs take half of the
    time at most, and whoever is behind has the other half. Who must be on time can ask for less, and comes before all
    others when it is over, whatever the strategy. Nobody waits for ever, either: after some such times it is his turn,
    if only to find out what the stage can do by now.

    A path or segment has a batch of each of its stages that is ready, the one nearest to its end first. What the others
    hand on meanwhile comes too late for that: Spark has to commit it, and to plan the batch that reads it. From the
    base on, every tuple would wait for one more batch of the stage before.

    Args:
        master: decides who is next.
        steps: the steps of each stage.
        most_rest_s: of stages that must be on time: how long each stands back at most. It may change any time.

    >>> from streamshed.scheduling import Job, Step
    >>> master = MasterScheduler(quantum_s=1.0)
    >>> master.start(Job("dear", ((Step("s->slow", "slow", 1.0),),)), "path-capacity")
    >>> master.start(Job("cheap", ((Step("t->fast", "fast", 0.1),),)), "path-capacity")
    >>> order = TurnOrder(master, {"slow": ["s->slow"], "fast": ["t->fast"]})
    >>> order.next({"slow": 0.0, "fast": 0.0}, now_s=0.0)
    'fast'
    >>> order.ended("fast", took_s=0.2)
    >>> order.next({"slow": 0.0, "fast": 0.2}, now_s=0.2)
    'slow'
    """

    def __init__(
        self,
        master: MasterScheduler,
        steps: Mapping[str, Sequence[str]],
        most_rest_s: Mapping[str, float] | None = None,
    ) -> None:
        self._master = master
        self._steps = steps
        self._most_rest_s = most_rest_s if most_rest_s is not None else {}
        self._slices: deque[str] = deque()
        self._owed: dict[str, int] = {}
        self._began_s = dict.fromkeys(steps, -math.inf)
        self._took_s: dict[str, deque[float]] = {stage: deque(maxlen=_REMEMBERED) for stage in steps}
        self._shortest_s: dict[str, float] = {}

    def next(self, ready: Mapping[str, float], now_s: float) -> str:
        """Give the turn to a stage.

        Args:
            ready: when each stage that is ready became so, those that have waited longest first; there is one at least.
            now_s: the time.
        """
        chosen = self._next(ready, now_s)
        self._began_s[chosen] = now_s
        return chosen

    def ended(self, stage: str, took_s: float) -> None:
        """The turn of a stage is over."""
        self._took_s[stage].append(took_s)
        self._shortest_s[stage] = min(self._took_s[stage])
        self._master.spent(took_s)

    def _next(self, ready: Mapping[str, float], now_s: float) -> str:
        while self._slices:  # the turn of a path or segment goes on
            stage = self._slices.popleft()
            if stage in ready:
                return stage
        owed = next((stage for stage in self._owed if stage in ready), None)
        if owed is not None:
            self._owe(owed, self._owed[owed] - 1)
            return owed
        candidates = dict.fromkeys(self._candidates(ready, now_s))
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

    def _candidates(self, ready: Mapping[str, float], now_s: float) -> Iterable[str]:
        """The stages among which the master scheduler may choose."""
        rest_s = _REST * len(self._steps) * min(self._shortest_s.values(), default=0.0)
        first = next(iter(ready))  # has waited longest
        if now_s - ready[first] > _PATIENCE * rest_s > 0:
            return [first]
        rested = [stage for stage in ready if now_s - self._began_s[stage] >= rest_s]
        must = [stage for stage in rested if stage in self._most_rest_s]
        must += [
            stage
            for stage, most_s in self._most_rest_s.items()
            if stage in ready and rest_s > now_s - self._began_s[stage] >= most_s
        ]
        return must or rested or ready
