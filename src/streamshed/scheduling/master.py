"""The master scheduler: several strategies side by side, each with queries of its own (MavStream, 4.3)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from streamshed.errors import UnknownNameError, did_you_mean
from streamshed.scheduling.base import Job, Strategy, Turn
from streamshed.scheduling.strategies import PathCapacity, RoundRobin, Segment, SimplifiedSegment, WeightedRoundRobin

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind for kind in (RoundRobin, WeightedRoundRobin, PathCapacity, Segment, SimplifiedSegment)
}
"""Every strategy by name."""

_KEPT_ROUNDS = 2.0  # a strategy's time that is kept for it, the present round included


def strategy_named(name: str) -> type[Strategy]:
    """A strategy by its name."""
    if name not in STRATEGIES:
        raise UnknownNameError(
            f"there is no strategy {name!r}", where="scheduler", got=name, hint=did_you_mean(name, STRATEGIES)
        )
    return STRATEGIES[name]


class MasterScheduler:
    """Goes around the strategies and gives each a time in proportion to its operators (algorithm 3).

    Queries may count differently there (`Job.weight`); in the thesis all count the same.

    Requests to start a query, to change its strategy, to update or to stop it are queued, and carried out between two
    rounds, when no operator runs. Time that a strategy cannot use goes to the others at once, but it is not lost: a
    strategy with nothing to do for a moment has it when there is something again, up to two rounds' worth. Whoever took
    longer than his time, because an operator is not interrupted, has so much less in the rounds that follow. So the
    shares hold over time, also where turns are long, and where there are gaps between them.

    There is no clock here: an engine asks `next`, runs what it is told, and says how long it took (`spent`).

    >>> from streamshed.scheduling.base import Step
    >>> master = MasterScheduler(quantum_s=0.01)
    >>> master.start(Job("q", ((Step("s->a", "a", 0.001), Step("a->b", "b", 0.001)),)), "segment")
    >>> master.next({"s->a": 3}).strategy
    'segment'
    >>> master.change("q", "path-capacity")
    >>> master.spent(1.0)  # the round is over
    >>> master.next({"s->a": 3}).strategy
    'path-capacity'
    """

    def __init__(self, quantum_s: float = 0.01) -> None:
        self.quantum_s = quantum_s
        self._schedulers: dict[str, Strategy] = {}
        self._home: dict[str, str] = {}
        self._requests: deque[tuple[str, Job | None, str | None]] = deque()
        self._left_s: dict[str, float] = {}  # of the strategies with queries, in the order of the round
        self._running: str | None = None

    def start(self, job: Job, strategy: str) -> None:
        """Ask to schedule a query; one that is there already gets new statistics and the strategy."""
        self._requests.append((job.id, job, strategy_named(strategy).name))

    def update(self, job: Job) -> None:
        """Ask to take note of new statistics of a query."""
        self._requests.append((job.id, job, None))

    def change(self, job_id: str, strategy: str) -> None:
        """Ask to put a query under another strategy."""
        self._requests.append((job_id, None, strategy_named(strategy).name))

    def stop(self, job_id: str) -> None:
        """Ask to schedule a query no longer."""
        self._requests.append((job_id, None, None))

    def strategy_of(self, job_id: str) -> str | None:
        """The strategy that a query is under at present; None if it is not scheduled."""
        return self._home.get(job_id)

    def next(self, waiting: Mapping[str, float]) -> Turn | None:
        """Who runs next; None if nothing waits."""
        turn = self._of_this_round(waiting)
        while turn is None:
            self._carry_out()
            overdrawn = [name for name, left_s in self._left_s.items() if left_s <= 0]
            if overdrawn:
                self._allot(min(1 + math.floor(-self._left_s[name] / self._round_s(name)) for name in overdrawn))
            turn = self._of_this_round(waiting)
            if turn is None and not overdrawn:  # nothing waits, so nobody has missed anything
                self._left_s = dict.fromkeys(self._left_s, 0.0)
                return None
        self._running = turn.strategy
        return turn

    def spent(self, seconds: float) -> None:
        """The turn given last has taken so long."""
        if self._running in self._left_s:
            self._left_s[self._running] -= seconds

    def _of_this_round(self, waiting: Mapping[str, float]) -> Turn | None:
        """The turn of the first strategy with time left and something to do."""
        for name, left_s in self._left_s.items():
            if left_s > 0:
                turn = self._schedulers[name].next(waiting)
                if turn is not None:
                    return turn
        return None

    def _round_s(self, name: str) -> float:
        return self.quantum_s * self._schedulers[name].weight

    def _allot(self, rounds: int) -> None:
        """Begin so many rounds, of which all but the last one go by at once, with nobody to run in them."""
        for name, left_s in self._left_s.items():
            round_s = self._round_s(name)
            self._left_s[name] = min(left_s + rounds * round_s, _KEPT_ROUNDS * round_s)

    def _carry_out(self) -> None:
        while self._requests:
            job_id, job, strategy = self._requests.popleft()
            home = self._home.get(job_id)
            if home is not None and job is None and strategy is None:
                self._schedulers[home].remove(job_id)
                del self._home[job_id]
                continue
            if home is not None:
                job, strategy = job or self._schedulers[home].jobs[job_id], strategy or home
            if job is None or strategy is None:
                continue  # it was stopped meanwhile
            if home is not None and home != strategy:
                self._schedulers[home].remove(job_id)
            if strategy not in self._schedulers:
                self._schedulers[strategy] = strategy_named(strategy)(self.quantum_s)
            self._schedulers[strategy].add(job)
            self._home[job_id] = strategy
        self._left_s = {
            name: self._left_s.get(name, 0.0) for name, scheduler in self._schedulers.items() if scheduler.jobs
        }
