"""Cutting operator paths into segments (the works that MavStream builds on, its references 13 and 14)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from streamshed.scheduling.base import Step

SIMILARITY = 0.75
"""How close the memory release of the next operator must come to stay in the first simplified segment."""


def segments(path: Sequence[Step]) -> list[tuple[Step, ...]]:
    """A new segment begins where the next operator releases memory more slowly than the one before it.

    >>> a, b, c = (
    ...     Step("a", "a", 0.01, 0.5, 100, 100),
    ...     Step("b", "b", 0.01, 1.0, 100, 200),
    ...     Step("c", "c", 0.01, 1.0, 200, 0),
    ... )
    >>> [[step.id for step in segment] for segment in segments([a, b, c])]
    [['a'], ['b', 'c']]
    """
    found = [[path[0]]]
    for before, step in pairwise(path):
        if _keeps_up(before, step, 1.0):
            found[-1].append(step)
        else:
            found.append([step])
    return [tuple(segment) for segment in found]


def simplified_segments(path: Sequence[Step], similarity: float = SIMILARITY) -> list[tuple[Step, ...]]:
    """At most two: the leaf with what releases memory nearly as fast as what is before it, and all the rest."""
    end = 1
    while end < len(path) and _keeps_up(path[end - 1], path[end], similarity):
        end += 1
    return [tuple(part) for part in (path[:end], path[end:]) if part]


def _keeps_up(before: Step, step: Step, similarity: float) -> bool:
    # A ratio says nothing about operators that make tuples larger: there the plain order decides.
    least = before.release_bps * similarity if before.release_bps > 0 else before.release_bps
    return step.release_bps >= least
