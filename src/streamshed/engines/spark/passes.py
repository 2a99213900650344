"""Batches along a chain of stages, counted as one batch of the whole network.

A controller knows batches: so many tuples came, so many (full) tuples were worked on, so long it took. In a chain, a
batch of the last stage goes on with what batches upstream have left on its arcs. Such a *pass* has come to an end
after the sum of the times that its stages took, along the longest way; and as each stage's batch waits for the one
before it, a tuple's delay is at most about twice that, as with a single query.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pass:
    """What has become of some tuples up to the end of a stage's batch.

    Attributes:
        arrived: well-formed tuples that came in for it, by stream.
        duration_s: the time that batches took, along the longest way.
        full_s: what they would have cost without drops, by the statistics.
        worked_s: what they did cost, by the statistics; nan if the share is not known.
    """

    arrived: Mapping[str, int] = field(default_factory=dict)
    duration_s: float = 0.0
    full_s: float = 0.0
    worked_s: float = 0.0

    @property
    def tuples(self) -> int:
        """How many tuples came in for it."""
        return sum(self.arrived.values())

    @property
    def share(self) -> float:
        """The work that was left, as a share of the work without drops; nan if that is not known."""
        return self.worked_s / self.full_s if self.full_s > 0 else self.worked_s if math.isnan(self.worked_s) else 1.0


def follow(
    arrived: Mapping[str, int],
    before: Sequence[Sequence[Pass]],
    *,
    duration_s: float,
    tuple_s: float,
    share: float,
) -> Pass:
    """The pass that ends with a stage's batch.

    Args:
        arrived: tuples that the batch read itself, by stream.
        before: for each arc that it read, the passes that ended there.
        duration_s: how long the batch took.
        tuple_s: what one of the tuples that come in costs in this stage, by the statistics.
        share: the work that drops left in this batch, as a share of the work without them.

    >>> first = follow({"s": 100}, [], duration_s=0.5, tuple_s=0.002, share=1.0)
    >>> last = follow({}, [[first, first]], duration_s=0.7, tuple_s=0.001, share=0.5)
    >>> last.tuples, round(last.duration_s, 2), round(last.share, 2)
    (200, 1.7, 0.83)
    """
    came = dict(arrived)
    for passes in before:
        of_arc: dict[str, int] = {}
        for one in passes:
            for stream, tuples in one.arrived.items():
                of_arc[stream] = of_arc.get(stream, 0) + tuples
        for stream, tuples in of_arc.items():  # the same tuples may come on several ways
            came[stream] = max(came.get(stream, 0), tuples)
    full_s = tuple_s * sum(came.values())
    every = [one for passes in before for one in passes]
    return Pass(
        came,
        duration_s + max((sum(one.duration_s for one in passes) for passes in before), default=0.0),
        full_s + sum(one.full_s for one in every),
        full_s * share + sum(one.worked_s for one in every),
    )


class SlowestWay:
    """Picks the stage whose passes take longest: that is the one to be held within the target."""

    _MEMORY = 0.7

    def __init__(self) -> None:
        self._durations_s: dict[str, float] = {}

    def leads_to(self, stage_id: str, duration_s: float) -> bool:
        """Whether the stage is the slowest one, now that a pass has ended there after so long."""
        known_s = self._durations_s.get(stage_id, duration_s)
        self._durations_s[stage_id] = self._MEMORY * known_s + (1 - self._MEMORY) * duration_s
        return self._durations_s[stage_id] >= max(self._durations_s.values())
