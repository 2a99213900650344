"""A node with a shedder: what waits at it is the shedder's input buffer, and its detector looks at it now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import simpy

from streamshed.engines.sim.cluster import Node, at
from streamshed.engines.sim.fragments import Rows
from streamshed.planning.fair import Batch, Shedder


@dataclass(frozen=True)
class Parcel:
    """What a batch holds: tuples, or where to draw them from when its turn comes (late deserialisation).

    Attributes:
        fragment: the number of the fragment that it goes to.
        side: on which side.
        sent_s: when it was sent.
        rows: the tuples; None if they are still to be drawn.
        source: the number of the source to draw from.
        first: the number of the source's first tuple in it.
        count: how many tuples the source sent.
        start_s: from when on these came into being.
    """

    fragment: int
    side: int
    sent_s: float
    rows: Rows | None = None
    source: int = 0
    first: int = 0
    count: int = 0
    start_s: float = 0.0


def parcel_of(batch: Batch) -> Parcel:
    """What a batch holds."""
    parcel = batch.payload
    assert isinstance(parcel, Parcel)
    return parcel


class _Buffer:
    """The buffer of a shedder as what waits at a node."""

    def __init__(self, env: simpy.Environment, shedder: Shedder) -> None:
        self._env = env
        self.shedder = shedder
        self.is_locked = False

    def append(self, item: Batch, /) -> None:
        self.shedder.put(item)

    def popleft(self) -> Batch:
        batch = self.shedder.take(self._env.now)
        assert batch is not None, "a node looks at the length first"
        return batch

    def __iter__(self) -> Iterator[Batch]:
        held = self.shedder.buffer.lock()
        self.shedder.buffer.unlock(held)
        return iter(held)

    def __len__(self) -> int:
        return 0 if self.is_locked else len(self.shedder.buffer)

    def clear(self) -> None:
        self.shedder.buffer.lock()
        self.shedder.buffer.unlock(())


class Site:
    """A node, its shedder, and the detector that looks at the buffer at every shedding interval.

    Args:
        env: the clock.
        name: of the node.
        speed: the processing time that it has per second.
        new_shedder: makes its shedder; a node that has failed gets a new one, which knows nothing.
        cost_s: the processing time of a batch.
        done: what to do with a batch that was processed.
        decision_s: how long the node stands still while the shedder decides; arrivals go to the second buffer then.

    Attributes:
        dropped: tuples that the shedder dropped.
        dropped_sic: their SIC.
        lost: tuples that failures have cost.
        lost_sic: their SIC.
        decisions: how often the shedder had to choose.
        waits_s: how long ago the oldest batch was sent, whenever the detector looked.
    """

    def __init__(
        self,
        env: simpy.Environment,
        name: str,
        speed: float,
        new_shedder: Callable[[], Shedder],
        cost_s: Callable[[Batch], float],
        done: Callable[[Batch], None],
        decision_s: float,
    ) -> None:
        self._env = env
        self._new_shedder = new_shedder
        self._done = done
        self._decision_s = decision_s
        self._buffer = _Buffer(env, new_shedder())
        self.node = Node(env, name, self._buffer, cost_s, self._processed, self._lost)
        self.node.speed = speed
        self.dropped = self.lost = self.decisions = 0
        self.dropped_sic = self.lost_sic = 0.0
        self.waits_s: list[float] = []
        self._start_interval()

    def report(self, as_of_s: float, query: int, sic: float) -> None:
        """A coordinator's report has arrived."""
        if self.node.is_up:
            self._buffer.shedder.report(as_of_s, query, sic)

    def watch(self) -> None:
        """Note how long the oldest batch has been waiting; without a shedder that is all."""
        oldest = next(iter(self._buffer), None)
        self.waits_s.append(0.0 if oldest is None else self._env.now - parcel_of(oldest).sent_s)

    def look(self) -> None:
        """The overload detector looks at the buffer."""
        if not self.node.is_up or self._buffer.is_locked:
            return
        self.watch()
        now_s = self._env.now
        elapsed_s, busy_s = now_s - self._looked_s, self.node.busy_s - self._busy_s
        self._buffer.shedder.begin(elapsed_s, self._processed_since, idle_s=elapsed_s - busy_s)
        self._start_interval()
        if self._decision_s > 0:
            self._buffer.is_locked = True
            self.node.hold(self._decision_s)
            at(self._env, now_s + self._decision_s, self._decide)
        else:
            self._decide()

    def fail(self) -> None:
        """Go down, and lose everything."""
        if self._buffer.is_locked:
            self._decide()
        self.node.fail()
        self._buffer.shedder = self._new_shedder()

    def recover(self) -> None:
        """Come back, empty."""
        self.node.recover()
        self._start_interval()

    def _start_interval(self) -> None:
        self._looked_s, self._busy_s, self._processed_since = self._env.now, self.node.busy_s, 0

    def _decide(self) -> None:
        if self._decision_s > 0 and not self._buffer.is_locked:
            return  # the node failed meanwhile
        outcome = self._buffer.shedder.finish(self._env.now)
        if outcome is not None:
            self.decisions += 1
            self.dropped += int(outcome.dropped.sum())
            self.dropped_sic += float(outcome.dropped_sic.sum())
        self._buffer.is_locked = False
        self.node.wake()

    def _processed(self, batch: Batch) -> None:
        self._processed_since += batch.tuples
        self._done(batch)

    def _lost(self, batch: Batch) -> None:
        self.lost += batch.tuples
        self.lost_sic += batch.sic
