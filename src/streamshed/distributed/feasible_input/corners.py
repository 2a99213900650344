"""Tables of corners: the few rates between which the score is linear, instead of a grid.

The best score V(r) that a node can make of rates r is concave and piecewise linear, because it is the value of a linear
program. So entries may be mixed, and a table that has the corners of V has all of it. They are found between two bounds
(see `sandwich`), as many as are needed for the error that is allowed.

A grid of error e needs about (m/e)^m/m! entries for m inputs; this needs as many as V has corners.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction

import numpy as np

from streamshed.distributed.feasible_input.exact import Floats
from streamshed.distributed.feasible_input.sandwich import Point, Sandwich
from streamshed.distributed.feasible_input.spread import MaxError, Spread, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.linear import Mixtures
from streamshed.distributed.model import NodeModel, Real
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Score
from streamshed.errors import InvalidValueError

_STEPS = 2**20
"""Rates are whole numbers of a unit, at least half a million of which make up the highest rate. They are rounded up, so
nobody is promised too much. Units are powers of 2, so that they stay the same when costs drift."""
_LEAST_TOLERANCE = 2e-5
_SEARCHED = 0.9
"""The part of the error that is for the search; the rest is for leaving out entries that hardly matter."""
_SMALLER, _FEW = 1 / 64, 40
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
    """A table with the error that is allowed, or with a smaller one where that takes few points."""
    tolerance = max(tolerance, _LEAST_TOLERANCE * search.top_score)
    search.narrow(tolerance * _SEARCHED)
    search.narrow(tolerance * _SEARCHED * _SMALLER, most=_FEW)
    taken = max(search.gap, tolerance * _SEARCHED * _SMALLER)
    return search.table(below, taken * (1 - _SEARCHED) / _SEARCHED)


def _bounded(search: _Search, entries: int, below: float) -> FeasibleInputTable:
    """The table of the first so many points: each is found where the error was largest without it."""
    least = _LEAST_TOLERANCE * search.top_score
    search.narrow(least, most=entries)
    return search.table(below, least)


class _Search:
    """The search for the corners of one node, which can be gone on with for smaller errors."""

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
        tops = [_highest(node, name, tables, limits_tps) for name in self._columns]
        scale = max([*tops, *fixed_tps.values()], default=1.0)
        self._tops = np.array(tops)
        self._program = FlowProgram((node,), score, tables, scale, dict(zip(self._columns, tops, strict=True)))
        self._unit = 1.0
        top = self._touch(np.zeros(len(self._columns)))
        self.top_score = top.value
        self._sandwich = None
        if self._columns and self.top_score > 0:
            self._unit = self.top_score
            self._sandwich = Sandwich(len(self._columns), self._touch, f"table of {node.name!r}")
        self._points = [top] if self._sandwich is None else self._sandwich.points

    @property
    def gap(self) -> float:
        """How far below V the points found so far can be."""
        return 0.0 if self._sandwich is None else self._sandwich.gap * self.top_score

    def narrow(self, widest: float, most: int | None = None) -> None:
        """Find points until the gap is no wider than that, or there are so many."""
        if self._sandwich is not None:
            self._sandwich.narrow(widest / self.top_score, most)

    def table(self, below: float, tolerance: float) -> FeasibleInputTable:
        """The table of the points found so far, without those that make less of a difference than the tolerance."""
        units = tuple(
            Fraction(2) ** math.ceil(math.log2(top / _STEPS)) if top > 0 else Fraction(1) for top in self._tops
        )
        used = np.array([point.place for point in self._points]) * self._tops
        counts = np.ceil(used / np.array([float(unit) for unit in units]) - 1e-3).astype(np.int64)
        segments = tuple(segment.id for segment in self._node.segments)
        flows = [dict(zip(segments, point.flows.tolist(), strict=True)) for point in self._points]
        scores = np.array([point.value for point in self._points]) * self._unit
        table = FeasibleInputTable(
            self._node.name, self._columns, units, counts, scores, segments,
            np.array([point.flows for point in self._points]),
            np.array([is_planless(self._node, one, self._fixed) for one in flows]),
            mixing=True, max_error=below + self.gap,
        ).best_first()  # fmt: skip
        return _without_redundant(table, tolerance)

    def _touch(self, slopes: Floats) -> Point:
        """The best at some prices of the rates, in shares of the highest score for the highest rates."""
        some = self._tops > 0
        prices = np.divide(slopes * self._unit, self._tops, out=np.zeros_like(slopes), where=some)
        solution = self._program.solve(self._fixed, dict(zip(self._columns, prices.tolist(), strict=True)))
        flows = {segment: flow for (_, segment), flow in solution.flows.items()}
        used = np.array([_used(self._node, name, flows) for name in self._columns])
        place = np.divide(used, self._tops, out=np.zeros_like(used), where=some)
        return Point(place, solution.score / self._unit, np.array(list(flows.values())))


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
