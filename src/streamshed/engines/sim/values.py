"""Tuple values: where they come from, and what is read off them, for whole trains at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.tuples import Mask, Times
from streamshed.network import Aggregate, Arc, Join, Map, Network, Statistics, Stream
from streamshed.network.expressions import RangeTest, renamed_column
from streamshed.planning.ranks import KNOWN, WITHIN, RankedCell
from streamshed.qos import Histogram, ValueGraph


class Steps:
    """Finds for values the piece of the line that they lie on: below the first cut, on it, between it and the next, …

    >>> Steps([10, 20]).pieces(np.array([5, 10, 15, 20, 25])).tolist()
    [0, 1, 2, 3, 4]
    """

    def __init__(self, cuts: Iterable[float]) -> None:
        self.cuts: Times = np.array(sorted(set(cuts)), dtype=np.float64)

    def pieces(self, values: Times) -> NDArray[np.intp]:
        """The number of the piece of each value: odd for a cut itself."""
        return np.searchsorted(self.cuts, values, side="left") + np.searchsorted(self.cuts, values, side="right")

    def inside(self) -> list[float]:
        """A value on every piece."""
        cuts = self.cuts
        if not len(cuts):
            return [0.0]
        found = [float(cuts[0]) - 1.0]
        for i, cut in enumerate(cuts):
            found.append(float(cut))
            found.append(float(cut + cuts[i + 1]) / 2 if i + 1 < len(cuts) else float(cut) + 1.0)
        return found


def value_test(test: RangeTest) -> Callable[[Times], Mask]:
    """A predicate on many values at once; a missing value (NaN) does not pass.

    >>> value_test(RangeTest.of("v > 10 AND v <= 20", "v"))(np.array([10, 15, 20, 25, np.nan])).tolist()
    [False, True, True, False, False]
    """
    steps = Steps(test.cuts)
    passing = np.array([test(value) for value in steps.inside()])
    if len(test.cuts) == 1 and (passing[0], passing[2]) == (False, True):
        cut = test.cuts[0]
        return (lambda values: values >= cut) if passing[1] else (lambda values: values > cut)
    if len(test.cuts) == 1 and (passing[0], passing[2]) == (True, False):
        cut = test.cuts[0]
        return (lambda values: values <= cut) if passing[1] else (lambda values: values < cut)
    return lambda values: passing[steps.pieces(values)] & ~np.isnan(values)


def value_utility_of(graph: ValueGraph) -> Callable[[Times], Times]:
    """The utility of many values at once.

    >>> value_utility_of(ValueGraph.of("v", [(0, 0), (10, 1), (10, 0.5), (20, 0.5)]))(
    ...     np.array([5, 10, 15, 99])
    ... ).tolist()
    [0.5, 1.0, 0.5, 0.5]
    """
    steps = Steps(x for x, _ in graph.points)
    # On a piece the utility is linear: two values on it give the line.
    starts, slopes, origins = [], [], []
    for piece, inside in enumerate(steps.inside()):
        between = piece % 2 == 0 and 0 < piece < 2 * len(steps.cuts)
        here = graph.utility(inside)
        slope = 0.0
        if between:
            quarter = (inside - float(steps.cuts[piece // 2 - 1])) / 2
            slope = (here - graph.utility(inside - quarter)) / quarter
        starts.append(here)
        slopes.append(slope)
        origins.append(inside)
    base, slope_of, origin = np.array(starts), np.array(slopes), np.array(origins)

    def utilities(values: Times) -> Times:
        piece = steps.pieces(values)
        found: Times = base[piece] + slope_of[piece] * (values - origin[piece])
        return found

    return utilities


def order_rank(order: Sequence[RankedCell]) -> Callable[[Times, Times], Times]:
    """A tuple's place in an order of cells, from its value and a tie-breaking rank.

    >>> from streamshed.planning.ranks import ranked_order
    >>> from streamshed.qos import Cell
    >>> order = ranked_order([(Cell(0, 0), 0.25), (Cell(0, 10), 0.75)])
    >>> ranks = order_rank(order)(np.array([0.0, 2.5, -1.0, np.nan]), np.array([0.5, 0.9, 0.1, 0.1]))
    >>> (256 * ranks).round(2).tolist()
    [30.0, 105.0, 241.6, 241.6]
    """
    steps = Steps(bound for one in order for bound in (one.cell.low, one.cell.high))
    homes = [next((one for one in order if one.holds(value)), None) for value in steps.inside()]
    table = np.array([_UNPLACED if home is None else _placed(home) for home in homes]).T

    def ranks(values: Times, ties: Times) -> Times:
        start, width, low, scale, of_tie = table[:, steps.pieces(values)]
        within = np.minimum((values - low) * scale + ties * of_tie, WITHIN)
        return np.where(np.isnan(values), KNOWN + (1 - KNOWN) * ties, start + width * within)

    return ranks


_UNPLACED = (KNOWN, 1 - KNOWN, 0.0, 0.0, 1.0)


def _placed(home: RankedCell) -> tuple[float, ...]:
    """Where the ranks of a cell begin, how many it has, and how a value's place in it follows from value and tie."""
    cell = home.cell
    if home.inner_order:
        return home.start, home.width, cell.low, 1.0 / (cell.high - cell.low), 0.0
    return home.start, home.width, 0.0, 0.0, 1.0


def draws_from(histogram: Histogram) -> Callable[[Times], Times]:
    """Values spread as a histogram says, from numbers spread evenly over [0, 1).

    >>> draws_from(Histogram.of([(0, 0, 1), (10, 20, 3)]))(np.array([0.1, 0.25, 0.625])).tolist()
    [0.0, 10.0, 15.0]
    """
    bins = [row for row in histogram.bins if row[2] > 0]
    low, high, share = np.array(bins).T
    before = np.concatenate([[0.0], np.cumsum(share)[:-1]])

    def draw(even: Times) -> Times:
        piece = np.searchsorted(before, even, side="right") - 1
        drawn: Times = low[piece] + (high[piece] - low[piece]) * (even - before[piece]) / share[piece]
        return drawn

    return draw


class Slots:
    """Which columns of which streams are kept as values, and in which slot a column of an arc is found.

    A column that reaches an arc unchanged from streams with known histograms has a slot; streams whose columns meet
    there share it. Computed columns, and those of unknown distribution, have none.

    Args:
        network: the network.
        statistics: for the histograms.
        wanted: pairs of an arc and a column that somebody looks at there.
    """

    def __init__(self, network: Network, statistics: Statistics, wanted: Iterable[tuple[Arc, str]]) -> None:
        self._network = network
        self._statistics = statistics
        self._origins: dict[tuple[str, str], frozenset[tuple[str, str]] | None] = {}
        groups: list[set[tuple[str, str]]] = []
        for arc, column in wanted:
            origin = self._origin(arc, column)
            if origin is None:
                continue
            merged = set(origin)
            rest = []
            for group in groups:
                if group & merged:
                    merged |= group
                else:
                    rest.append(group)
            groups = [*rest, merged]
        # One tuple has one value in a slot: two columns of one stream that meet under one name cannot be told apart.
        sound = [group for group in groups if len({stream for stream, _ in group}) == len(group)]
        self._slot = {origin: slot for slot, group in enumerate(sound) for origin in group}
        self.count = len(sound)

    def slot(self, arc: Arc, column: str) -> int | None:
        """Where the values of a column are found for tuples on an arc; None if they are not known."""
        origin = self._origin(arc, column)
        return None if origin is None else self._slot.get(next(iter(origin)))

    def of_stream(self, stream: str) -> Mapping[str, int]:
        """The columns of a stream that have a slot."""
        return {column: slot for (owner, column), slot in self._slot.items() if owner == stream}

    def _origin(self, arc: Arc, column: str) -> frozenset[tuple[str, str]] | None:
        key = (arc.id, column)
        if key not in self._origins:
            self._origins[key] = self._trace(arc, column)
        return self._origins[key]

    def _trace(self, arc: Arc, column: str) -> frozenset[tuple[str, str]] | None:
        if arc.is_entry:
            known = column in self._statistics.histograms.get(arc.target, {})
            return frozenset({(arc.target, column)}) if known else None
        node = self._network.nodes[arc.source]
        into = self._network.arcs_into[node.id]
        match node:
            case Map():
                if column in node.select:
                    same = renamed_column(node.select[column], node.id)
                    return self._origin(into[0], same) if same is not None else None
                return self._origin(into[0], column) if node.keep else None
            case Aggregate():
                return self._origin(into[0], column) if column in node.group_by else None
            case Join():
                sides = [side for side in into if column in self._network.schemas[side.source].columns]
                sides = sides if column in node.on else sides[:1]
            case Stream():
                sides = [into[0]]
            case _:
                sides = list(into)
        origins = [self._origin(side, column) for side in sides]
        known_origins = [origin for origin in origins if origin is not None]
        if not known_origins or len(known_origins) < len(origins):
            return None
        return frozenset().union(*known_origins)
