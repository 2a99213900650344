"""The quality of service of one output."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamshed.errors import InvalidValueError
from streamshed.qos.goals import Goals
from streamshed.qos.graph import LatencyGraph, LossGraph
from streamshed.qos.value import ValueGraph


@dataclass(frozen=True)
class Qos:
    """What the reader of an output cares about: how late, how much lost, which values, and how it ranks.

    Attributes:
        latency: utility against delay; None where only a common target counts.
        loss: utility against the fraction delivered; None to derive it from `value` and the histogram, else linear.
        value: utility of each value of one column; None where all tuples are worth the same.
        weight: how much the utility of this output counts in the total.
        goals: latency, memory and throughput over time, for the runtime optimizer; None where it has nothing to do.
        least_share: of its tuples, to be kept before others keep more than theirs; for fair shares.
    """

    latency: LatencyGraph | None = None
    loss: LossGraph | None = None
    value: ValueGraph | None = None
    weight: float = 1.0
    goals: Goals | None = None
    least_share: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InvalidValueError("a weight must be positive", where="qos", got=self.weight, expected="> 0")
        if not 0 <= self.least_share <= 1:
            raise InvalidValueError("not a share", where="qos", got=self.least_share, expected="from 0 to 1")
