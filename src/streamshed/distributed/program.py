"""The linear program in the rates that enter the segments: over one node and its children's tables, or over all nodes.

Maximise the score, where each x is at most what comes from ahead of it, Σ cost·x ≤ capacity at every node, concave
worths are sums over their pieces, and a table below counts as any mixture of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.linear import LinearProgram
from streamshed.distributed.model import NodeModel
from streamshed.distributed.scores import Score
from streamshed.errors import StreamshedError

_THRIFT = 1e-6
"""What a tuple costs beside what it is worth at most, so that no rate is asked for in vain."""


@dataclass(frozen=True)
class Solution:
    """The best that can be made of some rates.

    Attributes:
        score: what comes of them.
        flows: the rate into each segment, by node and segment.
    """

    score: float
    flows: Mapping[tuple[str, str], float]


class FlowProgram:
    """A program built once and solved for many rates.

    Args:
        nodes: the nodes whose decisions are free.
        score: what results are worth.
        tables: what is known about nodes below.
        scale_tps: the order of magnitude of the rates, for the solver's sake.
        free_tps: inputs whose rates are free up to these, at a price, instead of given.
    """

    def __init__(
        self,
        nodes: Sequence[NodeModel],
        score: Score,
        tables: Iterable[FeasibleInputTable] = (),
        scale_tps: float = 1.0,
        free_tps: Mapping[str, float] | None = None,
    ) -> None:
        self._scale = scale_tps if scale_tps > 0 else 1.0
        self._nodes = tuple(nodes)
        self._columns: dict[tuple[str, str], int] = {}
        for node in nodes:
            for segment in node.segments:
                self._columns[node.name, segment.id] = len(self._columns)
        self._worth = [-_THRIFT] * len(self._columns)
        self._width = [np.inf] * len(self._columns)
        self._rows: list[int] = []
        self._places: list[int] = []
        self._entries: list[float] = []
        self._bounds: list[float] = []
        self._entry_rows: dict[str, list[int]] = {}
        self._feeds = self._feeders()
        self._flow_rows()
        self._capacity_rows()
        below = list(tables)
        self._output_rows(score, {column for table in below for column in table.inputs})
        for table in below:
            self._table_rows(table)
        self._free = {name: self._rate_column(name, rate) for name, rate in (free_tps or {}).items()}
        largest = max(self._worth, default=1.0)
        # Worths of tuples differ by orders of magnitude between scores; the solver's tolerances do not.
        self._unit = largest if largest > 0 else 1.0
        worth = np.array(self._worth) / self._unit
        worth[: len(self._columns)] = -_THRIFT
        shape = (len(self._bounds), len(self._worth))
        matrix = csc_array((self._entries, (self._rows, self._places)), shape=shape)
        self._program = LinearProgram(worth, matrix, np.array(self._width))
        self._priced = worth
        self._scores = np.array(self._worth)
        self._scores[: len(self._columns)] = 0.0

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs whose rates have to be given."""
        return tuple(self._entry_rows)

    def solve(self, rates_tps: Mapping[str, float], prices: Mapping[str, float] | None = None) -> Solution:
        """The best decisions for these rates, and for these prices of the free ones, which the score leaves out."""
        bounds = np.array(self._bounds)
        for input_id, rows in self._entry_rows.items():
            bounds[rows] = max(rates_tps[input_id], 0.0) / self._scale
        worth = None
        if self._free:
            worth = self._priced.copy()
            for name, price in (prices or {}).items():
                worth[self._free[name]] = -price * self._scale / self._unit
        found = self._program.solve(bounds, worth)
        if found is None:
            raise StreamshedError("the linear program has no solution", where="nodes", got=dict(rates_tps))
        flows = {key: float(found.values[column]) * self._scale for key, column in self._columns.items()}
        return Solution(float(self._scores @ found.values), flows)

    def _feeders(self) -> dict[str, list[tuple[int, float]]]:
        """For each end the columns that lead there, with the tuples that arrive for each that enters."""
        feeds: dict[str, list[tuple[int, float]]] = {}
        for node in self._nodes:
            for end in node.ends:
                column = self._columns[node.name, end.id]
                feeds.setdefault(str(end.end), []).append((column, float(end.selectivity)))
        return feeds

    def _put(self, column: int, value: float) -> None:
        self._rows.append(len(self._bounds))
        self._places.append(column)
        self._entries.append(value)

    def _flow_rows(self) -> None:
        for node in self._nodes:
            selectivity = {segment.id: float(segment.selectivity) for segment in node.segments}
            for segment in node.segments:
                self._put(self._columns[node.name, segment.id], 1.0)
                if segment.source in selectivity:
                    self._put(self._columns[node.name, segment.source], -selectivity[segment.source])
                elif segment.source in self._feeds:
                    for column, share in self._feeds[segment.source]:
                        self._put(column, -share)
                else:
                    self._entry_rows.setdefault(segment.source, []).append(len(self._bounds))
                self._bounds.append(0.0)

    def _rate_column(self, name: str, most_tps: float) -> int:
        """Makes the rate of an input a column, instead of the bound of its rows."""
        column = len(self._worth)
        self._worth.append(0.0)
        self._width.append(most_tps / self._scale)
        for row in self._entry_rows.pop(name, ()):
            self._rows.append(row)
            self._places.append(column)
            self._entries.append(-1.0)
        return column

    def _capacity_rows(self) -> None:
        for node in self._nodes:
            for segment in node.segments:
                if segment.cost:
                    cost = float(segment.cost) * self._scale / float(node.capacity)
                    self._put(self._columns[node.name, segment.id], cost)
            self._bounds.append(1.0)

    def _output_rows(self, score: Score, elsewhere: set[str]) -> None:
        own = {input_id for node in self._nodes for input_id in node.inputs}
        for output, feeds in self._feeds.items():
            if output in own or output in elsewhere:
                continue
            for width, slope in score.pieces(output):
                self._put(len(self._worth), 1.0)
                self._worth.append(slope * self._scale)
                self._width.append(width / self._scale)
            for column, share in feeds:
                self._put(column, -(share if score.counts_results else 1.0))
            self._bounds.append(0.0)

    def _table_rows(self, table: FeasibleInputTable) -> None:
        first = len(self._worth)
        self._worth.extend(float(score) for score in table.scores)
        self._width.extend([np.inf] * len(table))
        for i, column_id in enumerate(table.inputs):
            for row in np.flatnonzero(table.counts[:, i]):
                self._put(first + int(row), float(table.rates[row, i]) / self._scale)
            for column, share in self._feeds.get(column_id, ()):
                self._put(column, -share)
            self._bounds.append(0.0)
        for place in range(first, len(self._worth)):
            self._put(place, 1.0)
        self._bounds.append(1.0)
