"""Utility as Aurora measures it over a run (section 5.4), and what is left of it when answers are late."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamshed.qos.graph import LatencyGraph, LossGraph
from streamshed.qos.value import Cell, ValueGraph


def tuple_utility(loss: LossGraph, epochs: Iterable[tuple[float, float]]) -> float:
    """Mean loss-tolerance utility per tuple, over epochs of (tuples seen, fraction delivered).

    An epoch is a time in which the same fraction is delivered. Without tuples nothing was lost: 1.

    >>> tuple_utility(LossGraph.of([(0, 0), (0.5, 0.8), (1, 1)]), [(300, 1.0), (100, 0.5)])
    0.95
    """
    seen = earned = 0.0
    for tuples, delivered in epochs:
        seen += tuples
        earned += tuples * loss(delivered)
    return earned / seen if seen > 0 else 1.0


def value_utility(value: ValueGraph, offered: Mapping[Cell, float], delivered: Mapping[Cell, float]) -> float:
    """The share of the offered value that was delivered: Σ delivered·u / Σ offered·u over value cells.

    >>> graph = ValueGraph.of("v", [(0, 0.5), (10, 0.5), (10, 1), (20, 1)])
    >>> low, high = Cell(0, 10), Cell(10, 20)
    >>> value_utility(graph, {low: 20, high: 10}, {low: 0, high: 10})
    0.5
    """
    worth = {cell: value.utility(cell.middle) for cell in offered}
    total = sum(count * worth[cell] for cell, count in offered.items())
    if total <= 0:
        return 1.0
    return sum(delivered.get(cell, 0.0) * worth[cell] for cell in offered) / total


def latency_utility(
    latency: LatencyGraph | None, target_s: float, delays_s: Iterable[tuple[float, float, float]]
) -> float:
    """Mean utility of tuples by their delays: by the graph, else 1 for those within the target and 0 for the others.

    Without tuples nothing was late: 1.

    Args:
        latency: the graph of the output, if it has one.
        target_s: the delay asked for.
        delays_s: parts of the tuples: how many, and between which delays they lie, evenly spread.

    >>> latency_utility(None, 2.0, [(10, 1.0, 3.0), (30, 1.0, 1.5)])
    0.875
    >>> latency_utility(LatencyGraph.of([(0, 1), (2, 1), (4, 0)]), 2.0, [(10, 1.0, 3.0), (30, 0.0, 1.0)])
    0.96875
    """
    tuples = earned = 0.0
    for count, least_s, most_s in delays_s:
        tuples += count
        earned += count * (
            _on_time(target_s, least_s, most_s) if latency is None else latency.graph.mean(least_s, most_s)
        )
    return earned / tuples if tuples > 0 else 1.0


def _on_time(target_s: float, least_s: float, most_s: float) -> float:
    """The share of the delays between two that are within a target."""
    if most_s <= target_s:
        return 1.0
    return max(target_s - least_s, 0.0) / (most_s - least_s) if most_s > least_s else 0.0
