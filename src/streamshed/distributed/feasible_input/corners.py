"""Tables of corners: the few rates between which the score is linear, instead of a grid.

The best score V(r) that a node can make of rates r is concave and piecewise linear, because it is the value of a linear
program. So entries may be mixed, and a table that has the corners of V has all of it. They are found from both sides
(Benson's outer approximation): solving the program at r gives V there, and its dual a bound U ≥ V everywhere. Between
the corners of U it is linear and V concave: if U − V ≤ e at all of them, the mixtures of the entries there are at most
e below V everywhere. Where it is more, the dual there sharpens U.

A grid of error e needs about (m/e)^m/m! entries for m inputs; this needs as many as V has corners.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.spatial import HalfspaceIntersection

from streamshed.distributed.feasible_input.exact import Floats
from streamshed.distributed.feasible_input.spread import MaxError, Spread, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.linear import Mixtures
from streamshed.distributed.model import NodeModel, Real
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Score
from streamshed.errors import InvalidValueError, StreamshedError

_STEPS = 2**20
"""Rates are whole numbers of a unit, at least half a million of which make up the highest rate. They are rounded up, so
nobody is promised too much. Units are powers of 2, so that they stay the same when costs drift."""
_LEAST_TOLERANCE = 2e-5
_ROUNDS, _BATCH = 2000, 12
_FINER = 2.0
_FIRST_TRY, _FEW = 1 / 64, 40
"""A node that gets by with a few points takes only this part of the error that it may add: others need it more."""


def corner_table(
    node: NodeModel,
    score: Score,
    spread: Spread,
    children: Iterable[FeasibleInputTable] = (),
    limits_tps: Mapping[str, Real] | None = None,
    fixed_tps: Mapping[str, float] | None = None,
) -> FeasibleInputTable:
    """The table of a node as corners.

    Args:
        node: the node.
        score: what results are worth.
        spread: the error that this node may add to that of its children's tables, or the number of entries.
        children: the tables of the nodes that it sends to, the columns that it feeds.
        limits_tps: the highest rates worth an entry, for inputs whose tuples cost nothing anywhere.
        fixed_tps: rates of inputs that the parent has nothing to do with: they get no column.
    """
    tables = tuple(children)
    fixed = dict(fixed_tps or {})
    search = _Search(node, score, tables, limits_tps or {}, fixed)
    below = sum(table.max_error for table in tables)
    if isinstance(spread, TableSize):
        return _bounded(search, spread.entries, below)
    if not isinstance(spread, MaxError):
        raise InvalidValueError("this spread is for grids", where="corner table", got=type(spread).__name__)
    return _thrifty(search, float(spread.error), below)


def _thrifty(search: _Search, tolerance: float, below: float) -> FeasibleInputTable:
    """A table with a small error where that takes few points, else with the error that is allowed."""
    smaller = tolerance * _FIRST_TRY
    while smaller < tolerance:
        try:
            return search.table(smaller, below, most=_FEW)
        except _TooManyError:
            smaller *= _FINER**2
    return search.table(tolerance, below)


def _bounded(search: _Search, entries: int, below: float) -> FeasibleInputTable:
    """The table with the least error, in steps of a factor, that has few enough entries."""
    tolerance = search.top_score / 2
    table = search.table(tolerance, below)
    while len(table) <= entries and tolerance > _LEAST_TOLERANCE * search.top_score:
        tolerance /= _FINER
        try:
            finer = search.table(tolerance, below, most=4 * entries)
        except _TooManyError:
            return table
        if len(finer) > entries:
            return table
        table = finer
    if len(table) <= entries:
        return table
    kept = table.take(np.sort(table.spaced_rows(entries)))
    shortfall = max(
        float(score) - kept.decide(dict(zip(kept.inputs, rates, strict=True))).score
        for rates, score in zip(table.rates.tolist(), table.scores, strict=True)
    )
    return replace(kept, max_error=table.max_error + max(shortfall, 0.0))


class _TooManyError(Exception):
    """The search would go on for too long."""


@dataclass(frozen=True)
class _Point:
    """What comes of some rates."""

    used: Floats
    score: float
    flows: Floats
    slopes: Floats
    planless: bool


class _Search:
    """The search for the corners of one node. Points once solved are kept for other tolerances."""

    def __init__(
        self,
        node: NodeModel,
        score: Score,
        tables: tuple[FeasibleInputTable, ...],
        limits_tps: Mapping[str, Real],
        fixed_tps: Mapping[str, float],
    ) -> None:
        self._node = node
        self._fixed = fixed_tps
        self._columns = tuple(name for name in node.inputs if name not in fixed_tps)
        self._tops = np.array([_highest(node, name, tables, limits_tps) for name in self._columns])
        every = [*self._tops, *fixed_tps.values()]
        self._program = FlowProgram((node,), score, tables, max(every, default=1.0))
        self._known: dict[bytes, _Point] = {}
        self.top_score = self._solve(np.ones(len(self._columns))).score

    def table(self, tolerance: float, below: float, most: int | None = None) -> FeasibleInputTable:
        """The table with an error of at most `tolerance`; raises where more than `most` points are needed."""
        tolerance = max(tolerance, _LEAST_TOLERANCE * self.top_score)
        points, gap = self._corners(tolerance / 2, most)
        units = tuple(
            Fraction(2) ** math.ceil(math.log2(top / _STEPS)) if top > 0 else Fraction(1) for top in self._tops
        )
        used = np.array([point.used for point in points])
        counts = np.ceil(used / np.array([float(unit) for unit in units]) - 1e-3).astype(np.int64)
        scores = np.array([point.score for point in points])
        table = FeasibleInputTable(
            self._node.name, self._columns, units, counts, scores,
            tuple(segment.id for segment in self._node.segments), np.array([point.flows for point in points]),
            np.array([point.planless for point in points]), mixing=True, max_error=below + gap,
        ).best_first()  # fmt: skip
        return _without_redundant(table, tolerance / 2)

    def _corners(self, tolerance: float, most: int | None) -> tuple[list[_Point], float]:
        """Points that together are nowhere further below V than the tolerance, and how far they are at most."""
        dimensions = len(self._columns)
        if not dimensions:
            return [self._solve(np.zeros(0))], 0.0
        start = [np.ones(dimensions), np.zeros(dimensions), *np.eye(dimensions)]
        points = [self._solve(place) for place in start]
        if self.top_score <= 0:
            return points[1:2], 0.0
        cuts = [self._cut(place, point) for place, point in zip(start, points, strict=True)]
        corners = _corners_of(np.array(cuts))
        for _ in range(_ROUNDS):
            missing = corners[:, -1] * self.top_score - self._at_least(corners[:, :-1], points)
            wide = np.flatnonzero(missing > tolerance)
            if not len(wide):
                return points, max(float(missing.max()), 0.0)
            if most is not None and len(points) > most:
                raise _TooManyError
            # Only the widest gaps at a time: a cut there closes many others.
            known = len(cuts)
            for corner in corners[wide[np.argsort(-missing[wide])[:_BATCH]]]:
                points.append(self._solve(corner[:-1]))
                if corner[-1] * self.top_score - points[-1].score > tolerance:
                    cuts.append(self._cut(corner[:-1], points[-1]))
            if len(cuts) > known:
                corners = _corners_of(np.unique(np.round(cuts, 12), axis=0))
        raise StreamshedError(
            "the corners of a table are not found", where=f"table of {self._node.name!r}", got=f"{len(points)} points",
            hint="allow a greater error",
        )  # fmt: skip

    def _at_least(self, places: Floats, points: list[_Point]) -> Floats:
        """What a point that is known already, or part of it, scores at some rates: cheaper than to solve again."""
        used = np.array([point.used for point in points])
        scores = np.array([point.score for point in points])
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(used > 0, (places * self._tops)[:, None, :] / used, 1.0).min(axis=2)
        best: Floats = (scores * np.minimum(shares, 1.0)).max(axis=1)
        return best

    def _solve(self, place: Floats) -> _Point:
        """The best at a share of the highest rates."""
        key = np.round(place, 10).tobytes()
        if key in self._known:
            return self._known[key]
        rates = {**self._fixed, **dict(zip(self._columns, np.maximum(place, 0.0) * self._tops, strict=True))}
        solution = self._program.solve({name: rates.get(name, 0.0) for name in self._program.inputs})
        flows = {segment: flow for (_, segment), flow in solution.flows.items()}
        used = np.array([_used(self._node, name, flows) for name in self._columns])
        slopes = np.array([solution.slopes.get(name, 0.0) for name in self._columns])
        self._known[key] = _Point(
            used, solution.score, np.array(list(flows.values())), slopes, is_planless(self._node, flows, self._fixed)
        )
        return self._known[key]

    def _cut(self, place: Floats, point: _Point) -> Floats:
        """The bound w ≤ slopes·u + rest as a half-space in shares of the highest rates and of the highest score."""
        slopes = point.slopes * self._tops / self.top_score
        rest = point.score / self.top_score - float(slopes @ place)
        return np.array([*-slopes, 1.0, -rest])


def _corners_of(cuts: Floats) -> Floats:
    """The corners of the bound: where cuts and the sides of the box of rates meet."""
    size = cuts.shape[1] - 2
    box = np.zeros((2 * size + 1, size + 2))
    for i in range(size):
        box[2 * i, i], box[2 * i, -1] = 1.0, -1.0
        box[2 * i + 1, i] = -1.0
    box[-1, -2], box[-1, -1] = -1.0, -1.0
    inside = np.append(np.full(size, 0.5), -0.5)
    corners = HalfspaceIntersection(np.vstack([box, cuts]), inside).intersections
    upper = corners[corners[:, -1] > -1 + 1e-6]
    upper[:, :-1] = np.clip(upper[:, :-1], 0.0, 1.0)
    found: Floats = np.unique(np.round(upper, 9), axis=0)
    return found


def _highest(
    node: NodeModel, name: str, tables: tuple[FeasibleInputTable, ...], limits_tps: Mapping[str, Real]
) -> float:
    """The highest rate of an input that could be of use to any path."""
    below = {column: rate for table in tables for column, rate in table.highest.items()}
    best = 0.0
    for end in node.ends:
        if node.input_of[end.id] != name:
            continue
        cost, share = 0.0, 1.0
        for segment in node.path[end.id]:
            cost += share * float(segment.cost)
            share *= float(segment.selectivity)
        bounds = [float(node.capacity) / cost] if cost > 0 else []
        if end.end in below:
            bounds.append(below[end.end] / share if share > 0 else 0.0)
        if name in limits_tps:
            bounds.append(float(limits_tps[name]))
        if not bounds:
            raise InvalidValueError(
                "nothing limits the rate of an input", where=f"input {name!r} of node {node.name!r}", got="no cost",
                expected="a cost, or a limit", hint="give the highest rate that may come",
            )  # fmt: skip
        best = max(best, min(bounds))
    return best


def _used(node: NodeModel, name: str, flows: Mapping[str, float]) -> float:
    return max((flows[segment.id] for segment in node.segments if segment.source == name), default=0.0)


def is_planless(node: NodeModel, flows: Mapping[str, float], fixed_tps: Mapping[str, float]) -> bool:
    """Whether nothing is dropped inside the node: drops at inputs that have a column are the parent's."""
    for segment in node.segments:
        if segment.source in fixed_tps:
            whole = fixed_tps[segment.source]
        elif segment.source in node.inputs:
            whole = _used(node, segment.source, flows)
        else:
            source = next(one for one in node.segments if one.id == segment.source)
            whole = flows[source.id] * float(source.selectivity)
        if flows[segment.id] < whole * (1 - 1e-6):
            return False
    return True


def _without_redundant(table: FeasibleInputTable, tolerance: float) -> FeasibleInputTable:
    """The table without entries that mixtures of better ones replace, but for the tolerance."""
    kept = [0]
    worst = 0.0
    above = Mixtures(table.rates[:1], table.scores[:1], table.rates.max(axis=0))
    for row in range(1, len(table)):
        missing = float(table.scores[row])
        if missing > tolerance:
            weights = above.best(table.rates[row])
            missing -= float(weights @ table.scores[kept]) if weights is not None else 0.0
        if missing > tolerance:
            kept.append(row)
            above.add(table.rates[row], float(table.scores[row]))
        else:
            worst = max(worst, missing)
    return table.take(np.array(kept), table.max_error + worst)
