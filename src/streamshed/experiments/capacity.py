"""How many tuples this machine can take: what micro-batches cost, and what that leaves of a target."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.session import SparkSession
from streamshed.errors import StreamshedError
from streamshed.network import Spec

TARGET_S = 2.0
FEED = ("generator", "expressways", "cars", "eventTime", "seed")
"""Options of the feeder that say what comes, not how fast."""

_USABLE = 0.85
"""Of half the target: how long a batch may take at the rate that can be held on time."""
_FEWEST = 4  # batches that a duration is taken from
_SOME = 12  # batches that are compared with those before them


@dataclass(frozen=True)
class Capacity:
    """What this machine can do.

    Attributes:
        fixed_s: of any micro-batch.
        tuple_s: of one tuple, read and processed in full.
        target_s: the delay to be held.

    >>> capacity = Capacity(0.7, 2e-6, 4.0)
    >>> round(capacity.rate_tps), round(capacity.on_time_tps)
    (500000, 294118)
    >>> Capacity.shortest_target_s(0.7)
    4.0
    """

    fixed_s: float
    tuple_s: float
    target_s: float

    @property
    def rate_tps(self) -> float:
        """The capacity: what it can process in a second, however long its batches are."""
        return 1 / self.tuple_s

    @property
    def on_time_tps(self) -> float:
        """The highest rate that can be held on time without dropping."""
        batch_s = _USABLE * self.target_s / 2
        return (batch_s - self.fixed_s) / (self.tuple_s * batch_s)

    @property
    def can_hold(self) -> bool:
        """Whether the target leaves time for tuples."""
        return self.fixed_s < 0.8 * _USABLE * self.target_s / 2

    @staticmethod
    def shortest_target_s(fixed_s: float) -> float:
        """The shortest target, in whole seconds, of which set-up takes no more than half of what is usable."""
        return float(math.ceil(fixed_s / (0.5 * _USABLE / 2)))


def holding(fixed_s: float, tuple_s: float, target_s: float | None) -> Capacity:
    """The capacity, with the target that is asked for; None: `TARGET_S`, or what this machine can hold."""
    capacity = Capacity(fixed_s, tuple_s, TARGET_S if target_s is None else target_s)
    shortest_s = Capacity.shortest_target_s(fixed_s)
    if capacity.can_hold:
        return capacity
    if target_s is None:
        return replace(capacity, target_s=shortest_s)
    raise StreamshedError(
        "this machine cannot hold the target, whatever is dropped",
        where="capacity",
        got=f"{fixed_s:.2f} s for an empty micro-batch, and a target of {target_s:g} s",
        expected="about a third of the target, or less, for an empty micro-batch",
        hint=f"try a target of {shortest_s:g} s, or run it while nothing else is running",
    )


def durations_s(spark: SparkSession, spec: Spec, seconds: tuple[float, float], directory: Path) -> list[float]:
    """How long batches take: for so many seconds at least, and until that falls no more, or at most.

    Args:
        spark: the session.
        spec: a network whose feeders give one batch after the other.
        seconds: at least, at most.
        directory: for the checkpoint.
    """
    found_s: list[float] = []
    with NetworkRunner(
        spark,
        spec,
        directory,
        target_s=60.0,
        shed=False,
        on_batch=lambda batch: found_s.append(batch.sample.duration_s),
    ) as runner:
        runner.start()
        begin = time.monotonic()
        while (passed_s := time.monotonic() - begin) < seconds[1] or len(found_s) < _FEWEST:
            check_alive(runner)
            if passed_s >= seconds[0] and settled(found_s):
                break
            time.sleep(0.1)
    return found_s


def settled(durations_s: Sequence[float]) -> bool:
    """Whether batches take no less time than some batches ago.

    >>> settled([0.9] * 12 + [0.6] * 12), settled([0.6] * 12 + [0.59] * 12)
    (False, True)
    """
    if len(durations_s) < 2 * _SOME:
        return False
    before, now = durations_s[-2 * _SOME : -_SOME], durations_s[-_SOME:]
    return statistics.median(now) >= 0.97 * statistics.median(before)


def check_alive(runner: NetworkRunner) -> None:
    """Raise why a run has ended, if it has."""
    if not runner.is_active:
        raise runner.failure or StreamshedError("the query was stopped", where="run")
