"""What is known of values: what is believed before a stream has been seen, what is learnt from it, what never can be.

A drop by value needs to know how the valued column is spread. A spec may tell by a histogram. Where it does not, all
cells of the value graph are believed to be equally full, until the stream has shown how full they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from streamshed.network import Network, Statistics
from streamshed.planning.cells import cell_flows, is_number, valued_sources
from streamshed.planning.ranks import RankedCell, RankedLocation
from streamshed.qos import Cell, Histogram, ValueGraph

_FAR = 1e100  # beyond all values that are numbers
_FORGETTING = 0.9
_LEAST_SHARE = 1e-6  # of a cell in which no tuple was seen: it stays one, and may fill up
_LEAST_DRIFT = 0.02
_DEVIATIONS = 2.0


@dataclass(frozen=True)
class Beliefs:
    """Statistics with a histogram for every column by which tuples can be told apart.

    Attributes:
        statistics: with histograms of the spec, or believed ones.
        believed: streams and columns whose histogram is a belief.
    """

    statistics: Statistics
    believed: frozenset[tuple[str, str]] = frozenset()


def believed_values(network: Network, statistics: Statistics) -> Beliefs:
    """Believe that values are spread evenly over the cells of their value graphs where nothing is known of them."""
    graphs: dict[tuple[str, str], list[ValueGraph]] = {}
    columns = {stream.id: stream.columns for stream in network.streams}
    for output in network.outputs:
        if output.qos.value is not None:
            for stream, column in valued_sources(network, output):
                if column not in statistics.histograms.get(stream, {}) and is_number(columns[stream][column]):
                    graphs.setdefault((stream, column), []).append(output.qos.value)
    histograms = {stream: dict(known) for stream, known in statistics.histograms.items()}
    for (stream, column), of_column in graphs.items():
        histograms.setdefault(stream, {})[column] = even_histogram(of_column)
    return Beliefs(replace(statistics, histograms=histograms), frozenset(graphs))


def even_histogram(graphs: Sequence[ValueGraph]) -> Histogram:
    """The same share for each piece of the graphs' domain, and for all that lies on either side of it.

    >>> even_histogram([ValueGraph.of("v", [(0, 1), (20, 1), (20, 0.1), (100, 0.1)])]).bins
    ((-1e+100, 0.0, 0.25), (0.0, 20.0, 0.25), (20.0, 100.0, 0.25), (100.0, 1e+100, 0.25))
    """
    edges = [-_FAR, *sorted({cut for graph in graphs for cut in graph.cuts}), _FAR]
    peaks = {peak for graph in graphs for peak in _peaks(graph)}
    bins: list[tuple[float, float, float]] = []
    for low, high in pairwise(edges):
        if low in peaks:
            bins.append((low, low, 1.0))
        bins.append((low, high, 1.0))
    return Histogram.of(bins)


def _peaks(graph: ValueGraph) -> list[float]:
    """Single values that are worth more than those on either side of them."""
    at: dict[float, list[float]] = {}
    for x, utility in graph.points:
        at.setdefault(x, []).append(utility)
    return [x for x, utilities in at.items() if max(utilities) > max(utilities[0], utilities[-1])]


def not_by_value(network: Network, statistics: Statistics, rates: Mapping[str, float]) -> dict[str, str]:
    """The outputs whose value graph no drop can go by, each with the reason."""
    reasons: dict[str, str] = {}
    able = cell_flows(network, statistics, rates).valued
    columns = {stream.id: stream.columns for stream in network.streams}
    for output in network.outputs:
        if output.qos.value is None or output.id in able:
            continue
        name = output.qos.value.column
        sources = valued_sources(network, output)
        numbers = [(stream, column) for stream, column in sources if is_number(columns[stream][column])]
        unknown = [end for end in numbers if end[1] not in statistics.histograms.get(end[0], {})]
        if not sources:
            reasons[output.id] = f"{name} is computed on the way: tuples of the streams do not have it"
        elif not numbers:
            reasons[output.id] = f"{name} is no number, but {columns[sources[0][0]][sources[0][1]]}"
        elif unknown:
            reasons[output.id] = f"there is no histogram of {unknown[0][0]}.{unknown[0][1]}"
        else:
            reasons[output.id] = f"another column of the same stream counts more than {name}, or streams differ in it"
    return reasons


def value_notes(network: Network, beliefs: Beliefs, rates: Mapping[str, float]) -> Iterator[str]:
    """What a person should know of drops by value before they begin."""
    for stream, column in sorted(beliefs.believed):
        yield f"How {stream}.{column} is spread is not known; it is learnt from the stream."
    for output, reason in not_by_value(network, beliefs.statistics, rates).items():
        yield f"No drop goes by the value graph of {output}, because {reason}."


class LearntHistogram:
    """How values are spread over given cells, from counts of what came by; batch by batch older ones count less.

    Args:
        cells: the cells.

    >>> learnt = LearntHistogram([Cell(0, 10), Cell(10, 20)])
    >>> learnt.observe([100, 300])
    >>> [round(share, 2) for _, _, share in learnt.histogram.bins]
    [0.25, 0.75]
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._counts = dict.fromkeys(cells, 0.0)
        self._unknown = 0.0

    def observe(self, counts: Sequence[int], unknown: int = 0) -> None:
        """Take in how many tuples of a batch lie in each cell, in their order, and how many in none."""
        if sum(counts) + unknown > 0:
            for cell, count in zip(self._counts, counts, strict=True):
                self._counts[cell] = _FORGETTING * self._counts[cell] + count
            self._unknown = _FORGETTING * self._unknown + unknown

    @property
    def shares(self) -> dict[Cell, float]:
        """Of the tuples, by cell; nothing if none has come by."""
        seen = sum(self._counts.values()) + self._unknown
        return {cell: count / seen for cell, count in self._counts.items()} if seen > 0 else {}

    @property
    def histogram(self) -> Histogram:
        """As it is now; evenly spread if nothing has come by."""
        least = _LEAST_SHARE * sum(self._counts.values()) or 1.0
        return Histogram.of([(cell.low, cell.high, max(self._counts[cell], least)) for cell in sorted(self._counts)])

    def has_drifted_from(self, known: Histogram) -> bool:
        """Whether the stream differs from what is known, by more than 2 % of its tuples and than chance may do."""
        seen = sum(self._counts.values())
        if seen <= 0:
            return False
        total = sum(known.mass(cell) for cell in self._counts) or 1.0
        apart = sum(abs(count / seen - known.mass(cell) / total) for cell, count in self._counts.items()) / 2
        return apart > max(_LEAST_DRIFT, _DEVIATIONS * math.sqrt(len(self._counts) / seen) / 2)


class ValueLearner:
    """Keeps the histograms of streams as the streams are.

    Args:
        network: the network.
        statistics: what is known or believed at first.
        rates: tuples per second of each stream.
        locations: where drops go by value. Cells are those of their ranks.

    Attributes:
        valued: by stream, the column by which its tuples are told apart, and the cells to count them in.
        statistics: with the histograms that hold now.
    """

    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        rates: Mapping[str, float],
        locations: Sequence[RankedLocation],
    ) -> None:
        self.statistics = statistics
        flows = cell_flows(network, statistics, rates)
        orders = {frozenset(one.cell for one in location.order): location.order for location in locations}
        self.valued: dict[str, tuple[str, tuple[RankedCell, ...]]] = {}
        for stream in network.streams:
            entry = network.arcs_into[stream.id][0].id
            column, order = flows.tracked[entry], orders.get(frozenset(flows.cells[entry]))
            if column is not None and order:
                self.valued[stream.id] = column.column, order
        self._learnt = {
            stream: LearntHistogram([one.cell for one in order]) for stream, (_, order) in self.valued.items()
        }

    def observe(self, stream: str, counts: Sequence[int]) -> bool:
        """Take in how many tuples of a batch lie in each cell; give whether the statistics are others now."""
        learnt = self._learnt.get(stream)
        if learnt is None or not counts:
            return False
        learnt.observe(counts)
        column = self.valued[stream][0]
        if not learnt.has_drifted_from(self.statistics.histograms[stream][column]):
            return False
        of_stream = {**self.statistics.histograms[stream], column: learnt.histogram}
        self.statistics = replace(self.statistics, histograms={**self.statistics.histograms, stream: of_stream})
        return True
