"""What controllers see and decide.

The plant is a micro-batch engine. A finished batch is the natural sample: it tells what was offered, what was kept,
how long it took and how late its tuples were. But the decision is about the *next* batch, whose tuples are already
waiting when it starts. So a controller learns from samples and decides on outlooks; an engine may ask it for a
decision as often as it likes between two samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from streamshed.load import Admission


@dataclass(frozen=True)
class Outlook:
    """The batch that would run if it started now.

    Attributes:
        time_s: now.
        waiting: how many tuples it would take.
        oldest_wait_s: how long the oldest of them has waited.
        span_s: in how much time they arrived.
    """

    time_s: float
    waiting: float
    oldest_wait_s: float
    span_s: float


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

    @property
    def outlook(self) -> Outlook:
        """The next batch, as of the end of this one, if batches follow each other without a pause."""
        wait_s = self.duration_s if self.oldest_wait_s is None else self.oldest_wait_s
        waiting = float(self.arrived) if self.waiting is None else self.waiting
        return Outlook(self.time_s, waiting, wait_s, max(wait_s, 1e-3))


class Controller(ABC):
    """Decides how much load may run so that delays stay within a target.

    The decision is an `Admission`: seconds of processing that may be caused by each second of arrivals. For a network,
    a planner turns it into drops; for one guarded stream the fraction to keep is the admitted over the demanded load.
    """

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
