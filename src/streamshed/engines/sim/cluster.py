"""Several machines in virtual time: nodes with a queue and a processor each, and what travels between them.

Nothing here knows what is processed or why something is sent. A node is given what an item costs and what is to happen
when it is done; the post is given who is to receive a thing. So the same small piece carries batches of tuples, reports
on quality and tables of feasible loads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import simpy

from streamshed.errors import InvalidValueError

Item = TypeVar("Item")
Process = Generator[Any, Any, None]


class Waiting(Protocol[Item]):
    """What waits at a node; a `deque` will do."""

    def append(self, item: Item, /) -> None:
        """One more, at the end."""

    def popleft(self) -> Item:
        """Take out the one whose turn it is."""

    def clear(self) -> None:
        """Forget all of them."""

    def __iter__(self) -> Iterator[Item]: ...

    def __len__(self) -> int:
        """0 if there is nothing that could be taken out now; not necessarily the number of items."""


class Node(Generic[Item]):
    """A machine: one processor, first come, first served, in front of it the items that wait.

    A node that fails loses what waits and what is being processed; what arrives while it is down is lost, too. It comes
    back empty.

    Args:
        env: the clock.
        name: what it is called.
        waiting: where items wait.
        cost_s: the processing time of an item at full speed; asked when its turn comes.
        done: what to do with an item that has been processed.
        lost: told of every item that a failure has cost; by default nobody is.

    Attributes:
        speed: how much of the machine the work gets: below 1 while something else needs it (a spike).
        is_up: whether it runs.
        busy_s: processing time spent so far, also on something else.
        served: items processed so far.

    >>> from collections import deque
    >>> env, seen = simpy.Environment(), []
    >>> node = Node(env, "n", deque(), cost_s=float, done=lambda item: seen.append((item, env.now)))
    >>> node.accept(2), node.accept(3), env.run()
    (None, None, None)
    >>> seen
    [(2, 2.0), (3, 5.0)]
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: str,
        waiting: Waiting[Item],
        cost_s: Callable[[Item], float],
        done: Callable[[Item], None],
        lost: Callable[[Item], None] | None = None,
    ) -> None:
        self.name = name
        self.waiting = waiting
        self.speed = 1.0
        self.is_up = True
        self.busy_s = 0.0
        self.served = 0
        self._env = env
        self._cost_s = cost_s
        self._done = done
        self._lost = lost or _nobody_cares
        self._lives = 0
        self._held_until_s = self._extra_s = 0.0
        self._is_serving = False
        self._idle: simpy.Event | None = None
        env.process(self._serve())

    def accept(self, item: Item) -> None:
        """An item has arrived."""
        if not self.is_up:
            self._lost(item)
            return
        self.waiting.append(item)
        self.wake()

    def hold(self, seconds: float) -> None:
        """The processor is needed for something else: an item in work takes that much longer, others begin later."""
        self.busy_s += seconds
        if self._is_serving:
            self._extra_s += seconds
        else:
            self._held_until_s = max(self._held_until_s, self._env.now) + seconds

    def fail(self) -> None:
        """Go down, and lose what waits."""
        self.is_up = False
        self._lives += 1
        for item in self.waiting:
            self._lost(item)
        self.waiting.clear()

    def recover(self) -> None:
        """Come back, empty."""
        self.is_up = True

    def wake(self) -> None:
        """Something may be there to be taken out."""
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def _serve(self) -> Process:
        env = self._env
        while True:
            if not len(self.waiting):
                self._idle = env.event()
                yield self._idle
                continue
            if self._held_until_s > env.now:
                yield env.timeout(self._held_until_s - env.now)
                continue
            item, life = self.waiting.popleft(), self._lives
            lasts_s = self._cost_s(item) / self.speed
            self._is_serving = True
            if lasts_s > 0:
                yield env.timeout(lasts_s)
            while self._extra_s > 0:
                extra_s, self._extra_s = self._extra_s, 0.0
                yield env.timeout(extra_s)
            self._is_serving = False
            if life != self._lives:
                self._lost(item)
                continue
            self.busy_s += lasts_s
            self.served += 1
            self._done(item)


def _nobody_cares(_: object) -> None:
    """About an item that was lost."""


class Post:
    """Carries things to those who receive them, after the delay of the way; some ways lose things.

    What is sent over one way at one time arrives in the order in which it was sent.

    Args:
        env: the clock.
        delay_s: how long everything takes that is not given a delay of its own.
        seed: decides what is lost.

    Attributes:
        sent: how many things were sent.
        lost: how many of them did not arrive.

    >>> env, seen = simpy.Environment(), []
    >>> Post(env, delay_s=0.5).send(lambda thing: seen.append((thing, env.now)), "letter")
    >>> env.run()
    >>> seen
    [('letter', 0.5)]
    """

    def __init__(self, env: simpy.Environment, delay_s: float, seed: int = 0) -> None:
        if not delay_s >= 0:
            raise InvalidValueError("a delay is negative", where="post", got=delay_s, expected=">= 0 seconds")
        self._env = env
        self._delay_s = delay_s
        self._random = np.random.default_rng([seed, 0x90])
        self.sent = self.lost = 0

    def send(
        self, receiver: Callable[[Item], None], thing: Item, *, delay_s: float | None = None, loss: float = 0.0
    ) -> None:
        """Send a thing on its way.

        Args:
            receiver: gets it on arrival.
            thing: what is sent; whoever gets it must not change it.
            delay_s: how long it takes.
            loss: the chance that it gets lost.
        """
        self.sent += 1
        if loss > 0 and self._random.random() < loss:
            self.lost += 1
            return
        arrival = self._env.timeout(self._delay_s if delay_s is None else delay_s, thing)
        arrival.callbacks.append(lambda event: receiver(event.value))


def every(env: simpy.Environment, period_s: float, action: Callable[[], None], *, first_s: float | None = None) -> None:
    """Do something again and again.

    Args:
        env: the clock.
        period_s: the time between two times.
        action: what to do.
        first_s: when for the first time, from now on; after one period by default.

    >>> env, seen = simpy.Environment(), []
    >>> every(env, 2.0, lambda: seen.append(env.now), first_s=0.5)
    >>> env.run(until=5)
    >>> seen
    [0.5, 2.5, 4.5]
    """
    if not period_s > 0:
        raise InvalidValueError("a period is not positive", where="repeated action", got=period_s, expected="> 0")
    start_s = env.now + (period_s if first_s is None else first_s)

    def repeat() -> Process:
        count = 0
        while True:  # from the start, so that rounding does not add up
            yield env.timeout(max(0.0, start_s + count * period_s - env.now))
            action()
            count += 1

    env.process(repeat())


def at(env: simpy.Environment, time_s: float, action: Callable[[], None]) -> None:
    """Do something once, at a time that is not over yet: a spike begins, a node fails, one joins.

    >>> env, seen = simpy.Environment(), []
    >>> at(env, 3.0, lambda: seen.append(env.now))
    >>> env.run()
    >>> seen
    [3.0]
    """
    if time_s < env.now:
        raise InvalidValueError("the time is over", where="planned event", got=time_s, expected=f">= {env.now:g} s")
    env.timeout(time_s - env.now).callbacks.append(lambda _: action())
