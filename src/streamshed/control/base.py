"""What controllers see and decide.

The plant is a micro-batch engine. A finished batch is the natural sample: it tells what was offered, what was kept,
how long it took and how late its tuples were. But the decision is about the *next* batch, whose tuples are already
waiting when it starts. So a controller learns from samples and decides on outlooks; an engine may ask it for a
decision as often as it likes between two samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from streamshed.load import Admission

_NO_COST_S, _NO_TUPLE = 1e-12, 1e-9  # less is rounding, not work


@dataclass(frozen=True)
class Outlook:
    """The batch that would run if it started now.

    Attributes:
        time_s: now.
        waiting: how many tuples it would take.
        oldest_wait_s: how long the oldest of them has waited.
        span_s: in how much time they arrived.
        outstanding: tuples admitted before, and not finished yet, that will be processed ahead of them (the virtual
            queue, in full tuples); 0 in an engine that finishes one batch before it takes the next.
        finished: tuples that have left the virtual queue since the last sample; None if nobody counts them.
        again_s: after which time the engine will ask about those again that do not go on now; None where the decision
            is final.
    """

    time_s: float
    waiting: float
    oldest_wait_s: float
    span_s: float
    outstanding: float = 0.0
    finished: float | None = None
    again_s: float | None = None


@dataclass(frozen=True)
class LoadSample:
    """A finished micro-batch, or a control period of an engine without batches.

    Attributes:
        time_s: when it ended.
        duration_s: how long it took.
        arrived: tuples offered (malformed ones left out).
        kept: tuples that got past the drops.
        waiting: tuples that wait for the next one; None if nobody can tell.
        oldest_wait_s: how long the oldest of those has waited.
        delay_p50_s: median delay of the kept tuples, from arrival to the end of the batch; None without arrival times.
        delay_p95_s: 95 % were faster.
        delay_p99_s: 99 % were faster.
        delay_max_s: the slowest.
        outstanding: tuples admitted and not finished when it ended: the length q of the virtual queue, in full tuples.
            None in an engine that finishes one batch before it takes the next.
        finished: full tuples that left the virtual queue in this time.
        busy_s: processing time that was spent on tuples.
    """

    time_s: float
    duration_s: float
    arrived: int
    kept: int
    waiting: float | None = None
    oldest_wait_s: float | None = None
    delay_p50_s: float | None = None
    delay_p95_s: float | None = None
    delay_p99_s: float | None = None
    delay_max_s: float | None = None
    outstanding: float | None = None
    finished: float | None = None
    busy_s: float | None = None

    @property
    def queue(self) -> float:
        """Tuples ahead of one that arrives now; in a micro-batch engine those that wait for the next batch."""
        return (self.waiting or 0.0) if self.outstanding is None else self.outstanding

    @property
    def departed(self) -> float:
        """Tuples that are done with: finished ones, or those of the batch."""
        return float(self.kept) if self.finished is None else self.finished

    @property
    def cost_s(self) -> float | None:
        """Processing time of a full tuple, c(k); None where nothing was finished."""
        busy_s = self.duration_s if self.busy_s is None else self.busy_s
        cost_s = busy_s / self.departed if self.departed > _NO_TUPLE else 0.0
        return cost_s if cost_s > _NO_COST_S else None

    @property
    def outlook(self) -> Outlook:
        """The next batch, as of the end of this one, if batches follow each other without a pause."""
        wait_s = self.duration_s if self.oldest_wait_s is None else self.oldest_wait_s
        waiting = float(self.arrived) if self.waiting is None else self.waiting
        return Outlook(self.time_s, waiting, wait_s, max(wait_s, 1e-3), self.outstanding or 0.0)


@dataclass(frozen=True)
class OutOfReach:
    """A target that cannot be held, whatever is dropped.

    Attributes:
        target_s: the target.
        empty_s: how long an empty batch takes, with all that comes in read and dropped.
        least_s: the shortest target that could be held.

    >>> print(OutOfReach(2.0, 3.4, 10.49))
    an empty batch takes 3.4 s: a target of 2 s cannot be held, one of 11 s can
    """

    target_s: float
    empty_s: float
    least_s: float

    def __str__(self) -> str:
        step = 10.0 ** math.floor(math.log10(self.least_s) - 1)  # two digits, rounded up
        least_s = math.ceil(self.least_s / step - 1e-9) * step
        return (
            f"an empty batch takes {self.empty_s:.2g} s: a target of {self.target_s:g} s cannot be held, "
            f"one of {least_s:g} s can"
        )


class Controller(ABC):
    """Decides how much load may run so that delays stay within a target.

    The decision is an `Admission`: seconds of processing that may be caused by each second of arrivals. For a network,
    a planner turns it into drops; for one guarded stream the fraction to keep is the admitted over the demanded load.

    Attributes:
        name: by which it is chosen.
        title: for people.
        target_s: the delay to hold; may be changed at any time.
        out_of_reach: why the target cannot be held, as far as the controller can tell; None if it can.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    target_s: float
    out_of_reach: OutOfReach | None = None

    @abstractmethod
    def observe(self, sample: LoadSample) -> None:
        """Learn from what has happened."""

    @abstractmethod
    def admit(self, outlook: Outlook) -> Admission:
        """Decide on what comes next; asking changes nothing."""

    def update(self, sample: LoadSample) -> Admission:
        """Learn from a sample and decide at once: one step of a controller that is asked once a period."""
        self.observe(sample)
        return self.admit(sample.outlook)


@dataclass(frozen=True)
class Release(Admission):
    """What becomes of tuples that are held back at the entry.

    Attributes:
        room: how many of them go on now, the oldest first.
        wait_limit_s: those that have waited longer are dropped.
    """

    room: float = 0.0
    wait_limit_s: float = math.inf


class HoldingController(Controller):
    """Decides on tuples when they are due, not when they arrive.

    An engine that can hold tuples back at its entry does so for such a controller: it asks every now and then, drops
    those that have waited too long, and lets as many go on as there is room for. The rest is asked about again.
    """

    @abstractmethod
    def admit(self, outlook: Outlook) -> Release: ...
