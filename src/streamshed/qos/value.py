"""Value graphs, histograms, and the loss tolerance that follows from the two (Aurora, section 4.3.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamshed.errors import InvalidValueError
from streamshed.qos.graph import LossGraph, require_points

DEFAULT_CHUNKS = 10
"""Into how many intervals of constant utility a sloped piece of a value graph is cut (the paper's chunk_size)."""


@dataclass(frozen=True, order=True)
class Cell:
    """A piece of a column's domain: the open range between two values, or one value (low = high)."""

    low: float
    high: float

    @property
    def is_point(self) -> bool:
        """Whether the cell is a single value."""
        return self.low == self.high

    @property
    def middle(self) -> float:
        """A value inside the cell."""
        return self.low if self.is_point else (self.low + self.high) / 2


def cells_between(cuts: Iterable[float]) -> tuple[Cell, ...]:
    """Partition a domain at its cut points, in ascending order: point, range, point, range, …, point.

    >>> cells_between([0, 10])
    (Cell(low=0, high=0), Cell(low=0, high=10), Cell(low=10, high=10))
    """
    ordered = sorted(set(cuts))
    cells: list[Cell] = []
    for i, cut in enumerate(ordered):
        cells.append(Cell(cut, cut))
        if i + 1 < len(ordered):
            cells.append(Cell(cut, ordered[i + 1]))
    return tuple(cells)


@dataclass(frozen=True)
class Histogram:
    """How the values of a column are spread: ranges with the share of tuples in each, uniform inside a range.

    A range may be a single value (low = high), for values that pile up, such as a speed of zero.

    >>> Histogram.of([(0, 50, 40), (51, 100, 60)]).mass(Cell(0, 25))
    0.2
    """

    bins: tuple[tuple[float, float, float], ...]

    @classmethod
    def of(cls, bins: Iterable[Sequence[float]], where: str = "histogram") -> Histogram:
        """Build from (low, high, weight) triples in ascending order; weights are normalised to sum to 1."""
        rows = [tuple(float(number) for number in row) for row in bins]
        if not rows:
            raise InvalidValueError(
                "a histogram needs at least one range", where=where, got=rows, expected="[[low, high, weight], …]"
            )
        require_points(rows, 3, where)
        for low, high, weight in rows:
            if high < low or weight < 0:
                raise InvalidValueError(
                    "a histogram range is not valid",
                    where=where,
                    got=[low, high, weight],
                    expected="low <= high and weight >= 0",
                )
        for left, right in pairwise(rows):
            if right[0] < left[1]:
                raise InvalidValueError(
                    "histogram ranges overlap or are out of order",
                    where=where,
                    got=[list(left), list(right)],
                    expected="ascending ranges",
                )
        total = math.fsum(row[2] for row in rows)
        if total <= 0:
            raise InvalidValueError("a histogram holds no tuples", where=where, got=total, expected="a weight above 0")
        if math.isclose(total, 1.0, rel_tol=1e-12):
            total = 1.0  # already normalised: dividing once more would move the last digits at every round trip
        return cls(tuple((low, high, weight / total) for low, high, weight in rows))

    @classmethod
    def uniform(cls, low: float, high: float) -> Histogram:
        """All values between two bounds are equally likely."""
        return cls.of([(low, high, 1.0)])

    @property
    def edges(self) -> tuple[float, ...]:
        """All range bounds, ascending, each once."""
        return tuple(sorted({bound for low, high, _ in self.bins for bound in (low, high)}))

    def mass(self, cell: Cell) -> float:
        """The share of tuples in a cell."""
        total = 0.0
        for low, high, share in self.bins:
            if low == high:
                inside = low == cell.low if cell.is_point else cell.low < low < cell.high
                total += share if inside else 0.0
            elif not cell.is_point:
                total += share * max(0.0, min(high, cell.high) - max(low, cell.low)) / (high - low)
        return total


@dataclass(frozen=True)
class ValueGraph:
    """How important each value of an output column is: piecewise linear, jumps allowed by repeating an x.

    >>> graph = ValueGraph.of("value", [(0, 0.2), (50, 0.2), (50, 1.0), (100, 1.0)])
    >>> graph.utility(30), graph.utility(50), graph.utility(70)
    (0.2, 1.0, 1.0)
    """

    column: str
    points: tuple[tuple[float, float], ...]
    chunks: int = DEFAULT_CHUNKS

    @classmethod
    def of(
        cls, column: str, points: Iterable[Sequence[float]], chunks: int = DEFAULT_CHUNKS, where: str = "value graph"
    ) -> ValueGraph:
        """Build from (value, utility) points with x never descending."""
        numbers = [tuple(float(number) for number in point) for point in points]
        if len(numbers) < 2:
            raise InvalidValueError(
                "a value graph needs at least two points", where=where, got=numbers, expected="[[x, u], [x, u], …]"
            )
        require_points(numbers, 2, where)
        pairs = tuple((point[0], point[1]) for point in numbers)
        if any(right[0] < left[0] for left, right in pairwise(pairs)):
            raise InvalidValueError(
                "the points of a value graph must go from left to right",
                where=where,
                got=[x for x, _ in pairs],
                expected="ascending x (a repeated x is a jump)",
            )
        if any(not 0 <= utility <= 1 for _, utility in pairs):
            raise InvalidValueError(
                "a utility is out of range", where=where, got=[u for _, u in pairs], expected="0 <= utility <= 1"
            )
        if chunks < 1:
            raise InvalidValueError("chunks must be at least 1", where=where, got=chunks, expected=">= 1")
        return cls(column, pairs, chunks)

    @property
    def cuts(self) -> tuple[float, ...]:
        """Where the domain is cut so that utility counts as constant in between: knees, and chunks of slopes."""
        cuts = {x for x, _ in self.points}
        for (low, u_low), (high, u_high) in pairwise(self.points):
            if u_low != u_high and high > low:
                cuts.update(low + (high - low) * k / self.chunks for k in range(1, self.chunks))
        return tuple(sorted(cuts))

    def utility(self, value: float) -> float:
        """The utility of one value; at a jump, the larger of the two; beyond the ends, that of the end."""
        points = self.points
        if value < points[0][0]:
            return points[0][1]
        if value > points[-1][0]:
            return points[-1][1]
        best = 0.0
        for (low, u_low), (high, u_high) in pairwise(points):
            if low <= value <= high:
                here = max(u_low, u_high) if high == low else u_low + (u_high - u_low) * (value - low) / (high - low)
                best = max(best, here)
        return best


@dataclass(frozen=True)
class ValueShare:
    """One row of the paper's table 1: a cell with its utility u, frequency f and normalised utility n = u·f / Σ u·f."""

    cell: Cell
    utility: float
    frequency: float
    normalised: float


def value_shares(value: ValueGraph, masses: Iterable[tuple[Cell, float]]) -> tuple[ValueShare, ...]:
    """The cells of an output in the order in which they are given up, lowest utility first.

    Cells without tuples are left out. Where no value has any utility, normalised utility is the frequency.
    """
    present = [(cell, mass, value.utility(cell.middle)) for cell, mass in masses if mass > 0]
    total = sum(mass for _, mass, _ in present)
    weighted = sum(mass * utility for _, mass, utility in present)
    rows = [
        ValueShare(cell, utility, mass / total, mass * utility / weighted if weighted > 0 else mass / total)
        for cell, mass, utility in present
    ]
    return tuple(sorted(rows, key=lambda row: (row.utility, row.cell)))


def interval_table(value: ValueGraph, histogram: Histogram) -> tuple[ValueShare, ...]:
    """The paper's table 1 for a value graph over a histogram.

    >>> table = interval_table(
    ...     ValueGraph.of("v", [(0, 0.2), (50, 0.2), (51, 1), (100, 1)]), Histogram.of([(0, 50, 4), (51, 100, 6)])
    ... )
    >>> [round(row.normalised, 4) for row in table]
    [0.1176, 0.8824]
    """
    cells = cells_between((*value.cuts, *histogram.edges))
    return value_shares(value, ((cell, histogram.mass(cell)) for cell in cells))


def loss_graph_from_shares(table: Sequence[ValueShare]) -> LossGraph:
    """The loss tolerance that follows when values are given up in the order of the table.

    Giving up a cell with frequency f and normalised utility n moves delivery down by f and utility down by n.
    """
    if not table:
        return LossGraph.linear()
    points = [(0.0, 0.0)]
    delivered = utility = 0.0
    # From the last cell kept to the first given up: sums that start at 0 keep the narrow, valuable cells exact.
    for i in range(len(table) - 1, 0, -1):
        delivered, utility = delivered + table[i].frequency, utility + table[i].normalised
        if table[i - 1].utility != table[i].utility and points[-1][0] < delivered < 1:
            points.append((delivered, min(1.0, utility)))
    return LossGraph.of([*points, (1.0, 1.0)], "derived loss graph")


def derive_loss_graph(value: ValueGraph, histogram: Histogram) -> LossGraph:
    """Loss tolerance from a value graph and the histogram of the output (section 4.3.4, figure 8).

    >>> value = ValueGraph.of("v", [(0, 0.2), (50, 0.2), (51, 1), (100, 1)])
    >>> loss = derive_loss_graph(value, Histogram.of([(0, 50, 4), (51, 100, 6)]))
    >>> [(round(x, 2), round(y, 2)) for x, y in loss.graph.points]
    [(0.0, 0.0), (0.6, 0.88), (1.0, 1.0)]
    """
    return loss_graph_from_shares(interval_table(value, histogram))
