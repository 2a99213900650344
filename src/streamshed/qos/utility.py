"""Utility as Aurora measures it over a run (section 5.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamshed.qos.graph import LossGraph
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
