"""From plans to thresholds: the order in which a location gives its tuples up, and how far a plan goes down it.

An engine drops a tuple if its rank, its place in that order, is below a threshold. At a random location the order is a
hash, and the threshold is the fraction that does not get past, drops upstream included: with one hash for all, nested
drops compose by themselves. At a location that tells values apart the order is that of loss over gain; random drops
upstream take from all values alike, so there the threshold is what the drop by value takes off the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.planning.base import DropPlan
from streamshed.planning.flow import FlowGraph, Location
from streamshed.qos import Cell


@dataclass(frozen=True)
class RankedLocation:
    """A place for a drop.

    Attributes:
        arc: its arc.
        column: the column by whose values tuples are ranked; None for a random order.
        order: the cells of values with their share of the arc's tuples, first to be given up first.
    """

    arc: str
    column: str | None = None
    order: tuple[tuple[Cell, float], ...] = ()


def ranked_locations(graph: FlowGraph) -> tuple[RankedLocation, ...]:
    """All places for drops in a graph, each with its order."""
    return tuple(_ranked(graph, location) for location in graph.locations)


def _ranked(graph: FlowGraph, location: Location) -> RankedLocation:
    if not location.by_value:
        return RankedLocation(location.arc)
    rates = {node: graph.head_rate[node] for node in location.nodes}
    total = sum(rates.values()) or 1.0
    ratios = {node: _loss_over_gain(graph, node) for node in location.nodes}
    ordered = sorted(location.nodes, key=lambda node: (ratios[node], graph.cell[node]))
    return RankedLocation(
        location.arc, location.column, tuple((graph.cell[node], rates[node] / total) for node in ordered)
    )


def _loss_over_gain(graph: FlowGraph, start: int) -> float:
    """Utility lost per load saved when the flow of one node goes, everything else flowing in full."""
    falls = {start: 1.0}
    gain = 0.0
    pending = [start]
    reached = {start}
    while pending:
        for child in graph.children[pending.pop()]:
            if child not in reached:
                reached.add(child)
                pending.append(child)
    for node in sorted(reached):
        if node != start:
            shares = zip(graph.parents[node], graph.shares[node], strict=True)
            is_mean = graph.rule[node].value == "mean"
            parts = [falls.get(parent, 0.0) * (share if is_mean else 1.0) for parent, share in shares]
            falls[node] = sum(parts) if is_mean else max(parts)
        gain += graph.weight[node] * falls[node]
    loss = 0.0
    for leaf in graph.leaves:
        slope = leaf.graph.graph.slopes[-1]
        fall = sum(share * falls.get(node, 0.0) for node, share in zip(leaf.nodes, leaf.shares, strict=True))
        loss += leaf.weight * slope * fall
    return loss / gain if gain > 0 else float("inf")


def thresholds(plan: DropPlan, locations: tuple[RankedLocation, ...]) -> dict[str, float]:
    """The threshold of every location under a plan, by arc; 0 where nothing is dropped.

    >>> from streamshed.planning.base import Drop
    >>> plan = DropPlan("p", (Drop("a", 0.5, 0.5), Drop("a->b", 0.75, 0.5)), (), 1.0, 0.5, 0.5)
    >>> thresholds(plan, (RankedLocation("a"), RankedLocation("a->b"), RankedLocation("a->c")))
    {'a': 0.5, 'a->b': 0.75, 'a->c': 0.0}
    """
    dropped = {drop.arc: drop for drop in plan.drops}
    result: dict[str, float] = {}
    for location in locations:
        drop = dropped.get(location.arc)
        if drop is None:
            result[location.arc] = 0.0
        elif location.column is None:
            result[location.arc] = drop.fraction
        elif drop.ranges:
            share: Mapping[Cell, float] = dict(location.order)
            result[location.arc] = sum(share.get(item.cell, 0.0) * item.dropped for item in drop.ranges)
        else:
            result[location.arc] = drop.relative
    return result
