"""Taking turns: threads that are ready wait here until the master scheduler names them, one at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from streamshed.engines.spark.turn_order import TurnOrder

_POLL_S = 0.2


class TurnGivenUp(Exception):
    """Whoever waited for a turn was stopped before it came."""


class Turns:
    """Gives the turn to one ready stage at a time.

    A stage is ready while a batch of it waits here, so a turn goes at once to the next in order that *is* ready: none
    is kept for a stage that has nothing to do, or that Spark has not called yet.

    Safe for several threads; requests to the master scheduler may come from any of them.

    Args:
        order: decides who is next.
        stages: who may want turns.
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
        order: TurnOrder,
        stages: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
        poll_s: float = _POLL_S,
    ) -> None:
        self._lock = threading.Condition()
        self.given = 0
        self.deciding_s = 0.0
        self.waited_s = 0.0
        self.used_s = dict.fromkeys(stages, 0.0)
        self._order = order
        self._clock = clock
        self._poll_s = poll_s
        self._ready: dict[str, float] = {}
        self._running: str | None = None
        self._began_s = 0.0

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
        took_s = self._clock() - self._began_s
        self.used_s[stage] += took_s
        self._order.ended(stage, took_s)
        self._running = None

    def _hand_over(self) -> None:
        if self._running is not None or not self._ready:
            return
        begin_s = self._clock()
        chosen = self._order.next(self._ready, begin_s)
        del self._ready[chosen]
        self._running = chosen
        self._began_s = begin_s
        self.given += 1
        self.deciding_s += self._clock() - begin_s
        self._lock.notify_all()
