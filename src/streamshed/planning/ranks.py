"""From plans to thresholds: the order in which a location gives its tuples up, and how far a plan goes down it.

An engine drops a tuple if its rank, its place in that order, is below a threshold. At a random location the order is a
hash, and the threshold is the fraction that does not get past, drops upstream included: with one hash for all, nested
drops compose by themselves. At a location that tells values apart the order is that of loss over gain; random drops
upstream take from all values alike, so there the threshold is what the drop by value takes off the rest.

Thresholds are whole steps of 1/256. So each cell of values has a whole number of steps for its ranks, and a threshold
at the end of a cell takes nothing from the next one, which may be worth much more. How many tuples a step is follows
from how the values are spread. That is looked up when a threshold is set, and may change while ranks stay as they are:
a batch that is run or counted again has to find the ranks that it had.

A value that no cell holds is unknown: missing, no number, or beyond all that is known. Unknown values have the last
steps for themselves, and are kept until everything else is given up; then chance decides among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from streamshed.planning.base import DropPlan
from streamshed.planning.flow import EPSILON, FlowGraph, Location
from streamshed.qos import Cell, Histogram, ValueGraph, interval_table

LEVELS = 256
"""Thresholds are whole multiples of 1/256: fine enough for control, and three digits wide."""

_FOR_UNKNOWN = 16  # steps

KNOWN = 1 - _FOR_UNKNOWN / LEVELS
"""Above all ranks of known values; unknown ones are spread from here to 1."""

WITHIN = 1 - 2.0**-20
"""How far up in its cell a value is at most: at the end it would have the first rank of the next one."""


@dataclass(frozen=True)
class RankedCell:
    """A cell of values in the order of a location.

    Attributes:
        cell: the values; of a range without its ends, but for those that `low_in` and `high_in` add.
        start: the lowest rank in it.
        width: how many ranks it has.
        share: of the location's tuples that lie in it.
        low_in: whether the lower end of a range belongs to it: as no cell is just for that value, and the neighbour is
            given up earlier or there is none.
        high_in: the same for the upper end.
        inner_order: whether lower values in it go first; else chance decides, as at a single value, or because it is
            not known how they are spread within it.
    """

    cell: Cell
    start: float
    width: float
    share: float
    low_in: bool = True
    high_in: bool = True
    inner_order: bool = True

    def holds(self, value: float) -> bool:
        """Whether a value is in it."""
        low, high = self.cell.low, self.cell.high
        return low < value < high or (value == low and self.low_in) or (value == high and self.high_in)


@dataclass(frozen=True)
class RankedLocation:
    """A place for a drop.

    Attributes:
        arc: its arc.
        column: the column by whose values tuples are ranked; None for a random order.
        order: the cells of values, first to be given up first.
        unknown: the share of tuples whose values are in none of them.
    """

    arc: str
    column: str | None = None
    order: tuple[RankedCell, ...] = ()
    unknown: float = 0.0

    def with_shares(self, shares: Mapping[Cell, float]) -> RankedLocation:
        """The same ranks, with values spread in another way; what is missing from 1 is unknown."""
        order = tuple(replace(one, share=shares.get(one.cell, 0.0)) for one in self.order)
        return replace(self, order=order, unknown=max(1.0 - sum(shares.values()), 0.0))

    def threshold(self, dropped: Mapping[Cell, float]) -> float:
        """The threshold for a share to drop of each cell; 1, which takes unknown values too, if that is everything.

        Args:
            dropped: the shares. Those of cells that stand further back in the order are to be no larger.
        """
        if all(dropped.get(one.cell, 0.0) >= 1 - EPSILON for one in self.order):
            return 1.0
        return sum(one.width * dropped.get(one.cell, 0.0) for one in self.order)

    def threshold_of(self, share: float) -> float:
        """The threshold that drops a share of all tuples.

        >>> order = ranked_order([(Cell(0, 10), 0.25), (Cell(10, 20), 0.75)])
        >>> place = RankedLocation("s", "v", order).with_shares({Cell(0, 10): 0.5, Cell(10, 20): 0.5})
        >>> [round(LEVELS * place.threshold_of(share)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        [0, 30, 60, 150, 256]
        """
        reached, left = 0.0, share
        for one in self.order:
            if left <= EPSILON:
                return reached
            taken = min(left, one.share)
            reached += one.width * (taken / one.share if one.share > 0 else 1.0)
            left -= taken
        if left <= EPSILON < 1 - share:
            return reached
        return KNOWN + (1 - KNOWN) * min(left / self.unknown, 1.0) if self.unknown > left else 1.0

    def share_below(self, threshold: float) -> float:
        """The share of all tuples that a threshold drops: the inverse of `threshold_of`.

        >>> order = ranked_order([(Cell(0, 10), 0.25), (Cell(10, 20), 0.75)])
        >>> RankedLocation("s", "v", order).share_below(60 / LEVELS)
        0.25
        """
        known = sum(one.share * min(max((threshold - one.start) / one.width, 0.0), 1.0) for one in self.order)
        return known + self.unknown * max(threshold - KNOWN, 0.0) / (1 - KNOWN)


def ranked_order(cells: Sequence[tuple[Cell, float]], *, inner_order: bool = True) -> tuple[RankedCell, ...]:
    """Give cells their ranks: whole steps in proportion to their shares, but at least one.

    Where it is not known how values are spread, each cell has as many: any of them may turn out to hold nearly all.

    Args:
        cells: with their shares of the tuples, first to be given up first.
        inner_order: see `RankedCell`.
    """
    steps = _steps([share if inner_order else 1.0 for _, share in cells])
    starts = [before / LEVELS for before in accumulate(steps, initial=0)]
    place = {cell: i for i, (cell, _) in enumerate(cells)}
    lower = {cell.low: i for cell, i in place.items() if not cell.is_point}
    upper = {cell.high: i for cell, i in place.items() if not cell.is_point}

    def has_end(end: float, own: int, others: Mapping[float, int]) -> bool:
        return Cell(end, end) not in place and others.get(end, -1) < own

    return tuple(
        RankedCell(
            cell,
            starts[i],
            steps[i] / LEVELS,
            share,
            low_in=cell.is_point or has_end(cell.low, i, upper),
            high_in=cell.is_point or has_end(cell.high, i, lower),
            inner_order=inner_order and not cell.is_point,
        )
        for i, (cell, share) in enumerate(cells)
    )


def _steps(shares: Sequence[float]) -> Sequence[float]:
    """How many of the steps for known values each share gets; parts of steps only if there are too many shares.

    >>> _steps([0.5, 0.499, 0.001])
    [120, 119, 1]
    """
    room, total = LEVELS - _FOR_UNKNOWN, sum(shares) or 1.0
    if len(shares) > room:
        return [room * share / total for share in shares]
    ideal = [room * share / total for share in shares]
    steps = [max(int(part), 1) for part in ideal]
    by_rest = sorted(range(len(steps)), key=lambda i: steps[i] - ideal[i])  # who is furthest below what it should have
    for i in by_rest[: max(room - sum(steps), 0)]:
        steps[i] += 1
    while sum(steps) > room:
        steps[max(range(len(steps)), key=lambda i: steps[i] - ideal[i] if steps[i] > 1 else -1.0)] -= 1
    return steps


def value_order(value: ValueGraph, histogram: Histogram, *, inner_order: bool = True) -> tuple[RankedCell, ...]:
    """The order in which a value graph gives values up, lowest utility first."""
    table = interval_table(value, histogram)
    return ranked_order([(row.cell, row.frequency) for row in table], inner_order=inner_order)


def ranked_locations(graph: FlowGraph, *, unordered: frozenset[str] = frozenset()) -> tuple[RankedLocation, ...]:
    """All places for drops in a graph, each with its order.

    Args:
        graph: the graph.
        unordered: the streams of which it is not known how values are spread within a cell.
    """
    return tuple(_ranked(graph, location, unordered) for location in graph.locations)


def respread(locations: Sequence[RankedLocation], graph: FlowGraph) -> tuple[RankedLocation, ...]:
    """The same locations, with values spread as in another graph of the same network."""
    shares = {location.arc: _shares(graph, location) for location in graph.locations if location.by_value}
    return tuple(
        location if location.column is None else location.with_shares(shares.get(location.arc, {}))
        for location in locations
    )


def _shares(graph: FlowGraph, location: Location) -> dict[Cell, float]:
    total = sum(graph.head_rate[node] for node in location.nodes) or 1.0
    return {graph.cell[node]: graph.head_rate[node] / total for node in location.nodes}


def _ranked(graph: FlowGraph, location: Location, unordered: frozenset[str]) -> RankedLocation:
    if not location.by_value or location.column is None:
        return RankedLocation(location.arc)
    shares = _shares(graph, location)
    ratios = {node: _loss_over_gain(graph, node) for node in location.nodes}
    ordered = sorted(location.nodes, key=lambda node: (ratios[node], graph.cell[node]))
    cells = [(graph.cell[node], shares[graph.cell[node]]) for node in ordered]
    streams = {stream for node in location.nodes for stream in graph.head_by_stream[node]}
    order = ranked_order(cells, inner_order=not streams & unordered)
    return RankedLocation(location.arc, location.column, order)


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


def thresholds(plan: DropPlan, locations: Sequence[RankedLocation]) -> dict[str, float]:
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
            result[location.arc] = location.threshold({item.cell: item.dropped for item in drop.ranges})
        else:
            result[location.arc] = location.threshold_of(drop.relative)
    return result
