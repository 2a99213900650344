"""Which values flow where: the network's flows, split by ranges of the column that the outputs value.

A semantic drop can only act where the valued column exists. So each value graph is traced back from its output to the
streams; each stream gets one valued column; and every arc on which that column is still present carries a flow per
*cell* (a range of values between cut points, or a single value). Filters on that column pass some cells and reject
others: a rejected cell upstream is work for nothing, the free cycle gain of the paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from streamshed.load import out_selectivity
from streamshed.network import Aggregate, Arc, Filter, Join, Map, Network, Output, Split, Statistics, Stream, Union
from streamshed.network.expressions import RangeTest, renamed_column
from streamshed.network.nodes import Node
from streamshed.qos import Cell, Histogram, cells_between

ANY = Cell(float("-inf"), float("inf"))
"""The single cell of an arc on which no valued column is present."""

MOST_CUTS = 40
"""Into how many pieces a domain is cut at most on account of predicates; a cell may then pass one in part."""

_CONTRADICTION = 1.02
"""A measured selectivity may exceed what the histogram allows by this factor before the histogram is distrusted."""


@dataclass(frozen=True)
class Tracked:
    """The valued column on an arc: its name there, and the value domain (id of the streams' common histogram)."""

    column: str
    domain: str


@dataclass(frozen=True)
class CellFlows:
    """Flows by arc and cell, per tuple of each stream.

    Attributes:
        cells: by arc id: the cells on it, ascending; `(ANY,)` without a valued column.
        tracked: by arc id: the valued column, or None.
        yields: by arc id, cell and stream id: tuples on the arc in this cell per tuple of the stream.
        valued: ids of the outputs whose value graph could be traced to a column of known distribution.
    """

    cells: Mapping[str, tuple[Cell, ...]]
    tracked: Mapping[str, Tracked | None]
    yields: Mapping[str, Mapping[Cell, Mapping[str, float]]]
    valued: frozenset[str]

    def rate(self, arc_id: str, cell: Cell, rates: Mapping[str, float]) -> float:
        """Tuples per second in one cell of an arc."""
        return sum(share * rates[stream] for stream, share in self.yields[arc_id][cell].items())

    def masses(self, arc_id: str, rates: Mapping[str, float]) -> list[tuple[Cell, float]]:
        """The histogram of an arc, in tuples per second."""
        return [(cell, self.rate(arc_id, cell, rates)) for cell in self.cells[arc_id]]


def cell_flows(network: Network, statistics: Statistics, rates: Mapping[str, float]) -> CellFlows:
    """Trace the valued columns and push the streams' histograms through the network."""
    columns, wanted, traces = _valued_columns(network, statistics)
    tracked, domains = _track(network, columns, wanted)
    cells = _domain_cells(network, statistics, tracked, domains, columns, traces)
    valued = frozenset(
        output.id
        for output in network.outputs
        if output.qos.value is not None
        and (here := tracked[network.arcs_into[output.id][0].id]) is not None
        and here.column == output.qos.value.column
    )
    return _push(network, statistics, rates, columns, tracked, cells, valued)


def valued_sources(network: Network, output: Output) -> list[tuple[str, str]]:
    """Where the column that an output values comes from: streams, and its name there. Empty if it is computed."""
    return [(arc.target, column) for arc, column in _traced(network, output) if arc.is_entry]


def _traced(network: Network, output: Output) -> Iterator[tuple[Arc, str]]:
    """The arcs on the way to an output on which the column that it values is present, and its name there."""
    if output.qos.value is None:
        return
    pending = [(network.arcs_into[output.id][0], output.qos.value.column)]
    while pending:
        arc, column = pending.pop()
        yield arc, column
        if not arc.is_entry:
            pending.extend(_upstream(network, arc, column))


_NUMBER = re.compile(r"((tiny|small|big)?int|integer|byte|short|long|float|real|double|dec|decimal|numeric)\b", re.I)


def is_number(column_type: str) -> bool:
    """Whether a column of a Spark SQL type holds numbers.

    >>> is_number("decimal(10, 2)"), is_number("INTEGER"), is_number("string"), is_number("interval day")
    (True, True, False, False)
    """
    return _NUMBER.match(column_type.strip()) is not None


def _valued_columns(
    network: Network, statistics: Statistics
) -> tuple[dict[str, str], set[str], dict[str, list[tuple[str, str]]]]:
    """For each stream the column to value (where a histogram is known), the arcs on the way, the outputs' traces."""
    votes: dict[str, dict[str, float]] = {}
    wanted: set[str] = set()
    traces: dict[str, list[tuple[str, str]]] = {}
    types = {stream.id: stream.columns for stream in network.streams}
    for output in network.outputs:
        for arc, column in _traced(network, output):
            wanted.add(arc.id)
            known = arc.is_entry and column in statistics.histograms.get(arc.target, {})
            if known and is_number(types[arc.target][column]):
                by_column = votes.setdefault(arc.target, {})
                by_column[column] = by_column.get(column, 0.0) + output.qos.weight
                traces.setdefault(output.id, []).append((arc.target, column))
    chosen = {stream: max(by_column, key=lambda name: by_column[name]) for stream, by_column in votes.items()}
    return chosen, wanted, traces


def _upstream(network: Network, arc: Arc, column: str) -> list[tuple[Arc, str]]:
    """Where a column on an arc comes from: the arcs into the arc's source node, with its name there."""
    node = network.nodes[arc.source]
    into = network.arcs_into[node.id]
    match node:
        case Map():
            if column in node.select:
                same = renamed_column(node.select[column], node.id)
                return [(into[0], same)] if same is not None else []
            return [(into[0], column)]
        case Aggregate():
            return [(into[0], column)] if column in node.group_by else []
        case Join():
            sides = [side for side in into if column in network.schemas[side.source].columns]
            return [(side, column) for side in (sides if column in node.on else sides[:1])]
        case _:
            return [(side, column) for side in into]


def _track(
    network: Network, columns: Mapping[str, str], wanted: set[str]
) -> tuple[dict[str, Tracked | None], dict[str, str]]:
    """Follow each stream's valued column forward; streams that meet in a union share a domain."""
    parent: dict[str, str] = {stream: stream for stream in columns}

    def root(domain: str) -> str:
        while parent[domain] != domain:
            domain = parent[domain]
        return domain

    tracked: dict[str, Tracked | None] = {}
    for arc in network.arcs:
        if arc.is_entry:
            column = columns.get(arc.target)
            tracked[arc.id] = Tracked(column, arc.target) if column is not None else None
            continue
        into = network.arcs_into[arc.source]
        node = network.nodes[arc.source]
        tracked[arc.id] = _tracked_out(node, [tracked[side.id] for side in into], [side.id in wanted for side in into])
        if isinstance(node, Union) and tracked[arc.id] is not None:
            first, *others = [root(side.domain) for arc_in in into if (side := tracked[arc_in.id]) is not None]
            for other in others:
                parent[root(other)] = root(first)
    domains = {stream: root(stream) for stream in columns}
    rooted = {
        arc_id: None if here is None else Tracked(here.column, root(here.domain)) for arc_id, here in tracked.items()
    }
    return rooted, domains


def _tracked_out(node: Node, sides: list[Tracked | None], wanted: list[bool]) -> Tracked | None:
    match node:
        case Map():
            here = sides[0]
            if here is None:
                return None
            for name, expression in node.select.items():
                if renamed_column(expression, node.id) == here.column:
                    return Tracked(name, here.domain)
            return here if node.keep and here.column not in node.select else None
        case Aggregate():
            here = sides[0]
            return here if here is not None and here.column in node.group_by else None
        case Union():
            names = {side.column if side is not None else None for side in sides}
            return sides[0] if len(names) == 1 else None
        case Join():
            ranked = sorted(zip(wanted, sides, strict=True), key=lambda pair: not pair[0])
            return next((side for _, side in ranked if side is not None), None)
        case _:
            return sides[0]


def _domain_cells(
    network: Network,
    statistics: Statistics,
    tracked: Mapping[str, Tracked | None],
    domains: Mapping[str, str],
    columns: Mapping[str, str],
    traces: Mapping[str, list[tuple[str, str]]],
) -> dict[str, tuple[Cell, ...]]:
    """Cut each domain where a histogram, a value graph or a predicate changes; keep the cells that hold tuples."""
    cuts: dict[str, set[float]] = {domain: set() for domain in domains.values()}
    for stream, domain in domains.items():
        cuts[domain].update(statistics.histograms[stream][columns[stream]].edges)
    for output in network.outputs:
        if output.qos.value is not None:
            for stream, column in traces.get(output.id, ()):
                if columns.get(stream) == column:
                    cuts[domains[stream]].update(output.qos.value.cuts)
    by_predicates: dict[str, set[float]] = {domain: set() for domain in cuts}
    for node in network.operators:
        here = tracked[network.arcs_into[node.id][0].id]
        if here is not None:
            for predicate in _predicates(node):
                test = RangeTest.of(predicate, here.column, node.id)
                by_predicates[here.domain].update(test.cuts if test is not None else ())
    for domain, points in by_predicates.items():
        cuts[domain].update(_thinned(sorted(points - cuts[domain]), MOST_CUTS - len(cuts[domain])))
    result: dict[str, tuple[Cell, ...]] = {}
    for domain, points in cuts.items():
        histograms: list[Histogram] = [
            statistics.histograms[stream][columns[stream]] for stream, other in domains.items() if other == domain
        ]
        low = min(histogram.edges[0] for histogram in histograms)
        high = max(histogram.edges[-1] for histogram in histograms)
        inside = (point for point in points if low <= point <= high)
        result[domain] = tuple(
            cell for cell in cells_between(inside) if any(histogram.mass(cell) > 0 for histogram in histograms)
        )
    return result


def _thinned(points: list[float], room: int) -> list[float]:
    """As many of the points as there is room for, evenly spread."""
    if len(points) <= room:
        return points
    return [points[i * len(points) // room] for i in range(room)] if room > 0 else []


def _predicates(node: Node) -> Iterable[str]:
    match node:
        case Filter():
            return (node.where,)
        case Split():
            return node.branches.values()
        case _:
            return ()


def _push(
    network: Network,
    statistics: Statistics,
    rates: Mapping[str, float],
    columns: Mapping[str, str],
    tracked: Mapping[str, Tracked | None],
    domain_cells: Mapping[str, tuple[Cell, ...]],
    valued: frozenset[str],
) -> CellFlows:
    cells: dict[str, tuple[Cell, ...]] = {}
    yields: dict[str, dict[Cell, dict[str, float]]] = {}
    for arc in network.arcs:
        here = tracked[arc.id]
        cells[arc.id] = domain_cells[here.domain] if here is not None else (ANY,)
        if arc.is_entry:
            stream = arc.target
            histogram = statistics.histograms[stream][columns[stream]] if here is not None else None
            yields[arc.id] = {
                cell: {stream: histogram.mass(cell) if histogram is not None else 1.0} for cell in cells[arc.id]
            }
            continue
        node = network.nodes[arc.source]
        into = network.arcs_into[node.id]
        incoming = _merged(node, [yields[side.id] for side in into], [tracked[side.id] for side in into], here)
        selectivity = 1.0 if isinstance(node, Stream) else out_selectivity(statistics, arc)
        factors = _cell_selectivities(node, arc, here, incoming, selectivity, rates)
        yields[arc.id] = {
            cell: {stream: share * factors[cell] for stream, share in incoming[cell].items()} for cell in cells[arc.id]
        }
    return CellFlows(cells, tracked, yields, valued)


def _merged(
    node: Node,
    sides: list[dict[Cell, dict[str, float]]],
    tracked: list[Tracked | None],
    here: Tracked | None,
) -> dict[Cell, dict[str, float]]:
    """What enters a node, by the cells of what leaves it.

    Where the valued column ends, cells are summed up. At a join, the side without the valued column brings tuples
    that pair with every cell of the other in proportion.
    """
    if here is None:
        total: dict[str, float] = {}
        for side in sides:
            for by_stream in side.values():
                _add(total, by_stream, 1.0)
        return {ANY: total}
    result: dict[Cell, dict[str, float]] = {}
    own = [side for side, told in zip(sides, sides_told_apart(node, tracked, here), strict=True) if told]
    weights: dict[Cell, float] = {}
    for side in own:
        for cell, by_stream in side.items():
            _add(result.setdefault(cell, {}), by_stream, 1.0)
            weights[cell] = weights.get(cell, 0.0) + sum(by_stream.values())
    everything = sum(weights.values())
    for side in sides:
        if not any(side is other for other in own) and everything > 0:
            for by_stream in side.values():
                for cell, weight in weights.items():
                    _add(result[cell], by_stream, weight / everything)
    return result


def sides_told_apart(node: Node, sides: list[Tracked | None], here: Tracked | None) -> list[bool]:
    """Which inputs of a node bring the cells of its output: all, but at a join only the side with the valued column.

    Both sides of a join do where the valued column is a key: partners then lie in the same cell.
    """
    if not isinstance(node, Join) or here is None:
        return [here is not None] * len(sides)
    own = [side == here for side in sides]
    if here.column in node.on or sum(own) <= 1:
        return own
    return [i == own.index(True) for i in range(len(own))]


def _add(into: dict[str, float], more: Mapping[str, float], factor: float) -> None:
    for stream, share in more.items():
        into[stream] = into.get(stream, 0.0) + share * factor


def _cell_selectivities(
    node: Node,
    arc: Arc,
    here: Tracked | None,
    incoming: Mapping[Cell, Mapping[str, float]],
    selectivity: float,
    rates: Mapping[str, float],
) -> dict[Cell, float]:
    """The selectivity for each cell: what the predicate rejects is 0, the rest shares the measured selectivity."""
    everywhere = dict.fromkeys(incoming, selectivity)
    if here is None or not isinstance(node, Filter | Split):
        return everywhere
    predicate = node.branches[arc.branch or ""] if isinstance(node, Split) else node.where
    test = RangeTest.of(predicate, here.column, node.id)
    if test is None:
        return everywhere
    arriving = {cell: sum(share * rates[s] for s, share in by.items()) for cell, by in incoming.items()}
    total = sum(arriving.values())
    passes = {cell: _passing_share(test, cell) for cell in incoming}
    passing = sum(rate * passes[cell] for cell, rate in arriving.items())
    if total <= 0 or passing <= 0 or selectivity > _CONTRADICTION * passing / total:
        return everywhere
    factor = selectivity * total / passing
    return {cell: factor * share for cell, share in passes.items()}


def _passing_share(test: RangeTest, cell: Cell) -> float:
    """How much of a cell passes a predicate, its values taken as evenly spread."""
    if cell.is_point:
        return float(test(cell.low))
    bounds = [cell.low, *(cut for cut in test.cuts if cell.low < cut < cell.high), cell.high]
    passing = sum(high - low for low, high in pairwise(bounds) if test((low + high) / 2))
    return passing / (cell.high - cell.low)
