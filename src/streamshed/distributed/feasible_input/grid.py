"""Tables on a grid, as the paper has them: a leaf's own (3.2), and those that build on the children's (3.3).

Errors arise where a grid is laid: at a leaf, and at an output in the middle. Mapping upstream, merging and elimination
are exact, so the error of a tree's table is at most the sum of the errors of its grids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from streamshed.distributed.feasible_input.exact import Floats, Ints, at_most, exact
from streamshed.distributed.feasible_input.merging import Requirement, merged
from streamshed.distributed.feasible_input.spread import MaxError, Spread, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Real, Segment
from streamshed.distributed.scores import Score
from streamshed.errors import InvalidValueError, NetworkError

MOST_ROWS = 5_000_000


def grid_table(
    node: NodeModel,
    score: Score,
    spread: Spread,
    children: Iterable[FeasibleInputTable] = (),
    limits_tps: Mapping[str, Real] | None = None,
) -> FeasibleInputTable:
    """The table of a node on a grid.

    Args:
        node: the node.
        score: what results are worth; linear.
        spread: how fine the grid is. For a node that others send to, this is about its own outputs.
        children: the tables of the nodes that it sends to, the columns that it feeds.
        limits_tps: the highest rates worth an entry, for inputs whose tuples cost nothing.
    """
    if not score.is_linear:
        raise InvalidValueError(
            "a grid takes linear scores only", where=f"table of {node.name!r}", got=type(score).__name__,
            expected="throughput, weighted or not", hint="corner tables take every concave score",
        )  # fmt: skip
    tables = list(children)
    limits = {name: exact(value) for name, value in (limits_tps or {}).items()}
    if not tables:
        return _leaf_table(node, score, spread, limits)
    requirements = [_requirement(node, table) for table in tables]
    fed = {column for requirement in requirements for column in requirement.table.inputs}
    own = [end for end in node.ends if end.end not in fed]
    for end in own:
        part = MaxError(exact(spread.error) / len(own)) if isinstance(spread, MaxError) else spread
        requirements.append(Requirement(_output_table(node, end, score, part, limits), (end,)))
    return merged(node, requirements, spread.entries if isinstance(spread, TableSize) else None, MOST_ROWS)


def _requirement(node: NodeModel, table: FeasibleInputTable) -> Requirement:
    ends: list[Segment] = []
    for column in table.inputs:
        feeding = [end for end in node.ends if end.end == column]
        if len(feeding) != 1:
            raise NetworkError(
                "a column of a child's table must be fed by one path",
                where=f"node {node.name!r}, input {column!r} of {table.node!r}",
                got=f"{len(feeding)} paths",
                expected="one",
                hint="corner tables take unions ahead of a child",
            )
        ends.append(feeding[0])
    return Requirement(table, tuple(ends))


@dataclass(frozen=True)
class _Branch:
    """The end of a path, per tuple of its input: what it costs, what it scores, how many tuples enter its segment."""

    segment: str
    column: int
    cost: Fraction
    worth: Fraction
    share: Fraction
    droppable: bool = False

    @property
    def ratio(self) -> Fraction:
        return self.worth / self.cost if self.cost else Fraction(10**12)


def _ahead(node: NodeModel, segment: Segment) -> Fraction:
    """Tuples that enter a segment for each tuple of its input, without drops."""
    share = Fraction(1)
    for one in node.path[segment.id][:-1]:
        share *= exact(one.selectivity)
    return share


def _worth(segment: Segment, score: Score) -> Fraction:
    """The score of a tuple that enters a last segment."""
    slope = exact(score.pieces(segment.end or "")[0][1])
    return slope * (exact(segment.selectivity) if score.counts_results else 1)


def _branches(node: NodeModel, column: int, score: Score) -> tuple[Fraction, list[_Branch]]:
    """What a tuple of an input costs ahead of its branches, and the branches, those worth dropping marked.

    A branch is better dropped than the input if it scores less for its cost than what would be left. In nested splits
    drops sit at the last branches; what lies ahead of them is always paid for.
    """
    name = node.inputs[column]
    mine = [segment for segment in node.segments if node.input_of[segment.id] == name]
    trunk = sum((_ahead(node, one) * exact(one.cost) for one in mine if one.end is None), Fraction(0))
    found: list[_Branch] = []
    for one in mine:
        if one.end is not None:
            share = _ahead(node, one)
            found.append(_Branch(one.id, column, share * exact(one.cost), share * _worth(one, score), share))
    found.sort(key=lambda branch: branch.ratio)
    marked: list[_Branch] = []
    cost, worth = trunk + sum(branch.cost for branch in found), sum(branch.worth for branch in found)
    for branch in found:
        cost, worth = cost - branch.cost, worth - branch.worth
        droppable = len(marked) + 1 < len(found) and (cost == 0 or branch.ratio * cost < worth)
        droppable = droppable and all(one.droppable for one in marked)
        marked.append(_Branch(branch.segment, column, branch.cost, branch.worth, branch.share, droppable))
    return trunk, marked


def _leaf_table(node: NodeModel, score: Score, spread: Spread, limits: Mapping[str, Fraction]) -> FeasibleInputTable:
    capacity = exact(node.capacity)
    trunks: list[Fraction] = []
    branches: list[_Branch] = []
    for column in range(len(node.inputs)):
        trunk, mine = _branches(node, column, score)
        trunks.append(trunk)
        branches.extend(mine)
    full = [trunk + _cost(branches, i) for i, trunk in enumerate(trunks)]
    least = [trunk + _cost(branches, i, droppable=False) for i, trunk in enumerate(trunks)]
    worth = [sum((one.worth for one in branches if one.column == i), Fraction(0)) for i in range(len(trunks))]
    tops = [_top(node, i, capacity, least[i], limits) for i in range(len(trunks))]
    units = spread.of(tops, worth)
    counts = _feasible_counts(
        [cost * unit for cost, unit in zip(least, units, strict=True)],
        [int(top // unit) for top, unit in zip(tops, units, strict=True)],
        capacity,
    )
    rates = counts * np.array([float(unit) for unit in units])
    full_units = [cost * unit for cost, unit in zip(full, units, strict=True)]
    load = counts @ np.array([float(cost) for cost in full_units])
    planless = at_most(load, float(capacity), partial(_within, counts, full_units, capacity))
    flows, scores = _with_local_plans(branches, rates, load, float(capacity), planless)
    error = max((unit * slope for unit, slope in zip(units, worth, strict=True)), default=Fraction(0)) * len(units)
    table = FeasibleInputTable(
        node.name, node.inputs, tuple(units), counts, scores,
        tuple(one.id for one in node.segments), _all_flows(node, rates, branches, flows), planless,
        max_error=float(error),
    )  # fmt: skip
    return table.best_first().without_worse()


def _cost(branches: Sequence[_Branch], column: int, droppable: bool | None = None) -> Fraction:
    return sum(
        (one.cost for one in branches if one.column == column and (droppable is None or one.droppable == droppable)),
        Fraction(0),
    )


def _top(node: NodeModel, column: int, capacity: Fraction, cost: Fraction, limits: Mapping[str, Fraction]) -> Fraction:
    """The highest rate worth an entry: R."""
    name = node.inputs[column]
    tops = [capacity / cost] if cost else []
    tops += [limits[name]] if name in limits else []
    if not tops:
        raise InvalidValueError(
            "nothing limits the rate of an input",
            where=f"input {name!r} of node {node.name!r}",
            got="no cost",
            expected="a cost, or a limit",
            hint="give the highest rate that may come",
        )
    return min(tops)


def _weighted(counts: Ints, coefficients: Sequence[Fraction]) -> Fraction:
    return sum((int(count) * one for count, one in zip(counts, coefficients, strict=True)), Fraction(0))


def _within(counts: Ints, coefficients: Sequence[Fraction], capacity: Fraction, row: int) -> bool:
    return _weighted(counts[row], coefficients) <= capacity


def _feasible_counts(costs: Sequence[Fraction], tops: Sequence[int], capacity: Fraction) -> Ints:
    """All combinations of counts whose cost is within the capacity, dimension by dimension."""
    counts = np.zeros((1, 0), dtype=np.int64)
    load = np.zeros(1)
    for column, (cost, top) in enumerate(zip(costs, tops, strict=True)):
        step = float(cost)
        room = np.full(len(load), top, dtype=np.int64)
        if step > 0:
            # One more than floats say: the border is settled exactly below.
            room = np.minimum(np.floor((float(capacity) - load) / step + 1e-6).astype(np.int64), top)
        room = np.maximum(room, 0)
        if int((room + 1).sum()) > MOST_ROWS:
            raise InvalidValueError(
                "the table would be too large", where="grid", got=f"more than {MOST_ROWS:,} rows",
                expected="a greater error, or a bound on the size", hint="corner tables need far fewer rows",
            )  # fmt: skip
        values = np.arange(int((room + 1).sum())) - np.repeat(np.cumsum(room + 1) - (room + 1), room + 1)
        counts = np.column_stack([np.repeat(counts, room + 1, axis=0), values])
        load = np.repeat(load, room + 1) + values * step
        fits = at_most(load, float(capacity), partial(_within, counts, costs[: column + 1], capacity))
        counts, load = counts[fits], load[fits]
    return counts


def _with_local_plans(
    branches: Sequence[_Branch], rates: Floats, load: Floats, capacity: float, planless: np.ndarray
) -> tuple[Floats, Floats]:
    """The rate of each branch, in tuples of its input, and the score: what is too much goes where it costs least."""
    excess = np.where(planless, 0.0, np.maximum(load - capacity, 0.0))
    kept = np.column_stack([rates[:, branch.column] for branch in branches])
    for branch in sorted(branches, key=lambda one: one.ratio):
        if not branch.droppable or not branch.cost:
            continue
        i = branches.index(branch)
        shed = np.minimum(excess, kept[:, i] * float(branch.cost))
        kept[:, i] -= shed / float(branch.cost)
        excess -= shed
    return kept, kept @ np.array([float(branch.worth) for branch in branches])


def _all_flows(node: NodeModel, rates: Floats, branches: Sequence[_Branch], kept: Floats) -> Floats:
    """The rate into every segment: branches as decided, the rest undropped."""
    by_segment = {branch.segment: kept[:, i] * float(branch.share) for i, branch in enumerate(branches)}
    columns = []
    for segment in node.segments:
        whole = rates[:, node.inputs.index(node.input_of[segment.id])] * float(_ahead(node, segment))
        columns.append(by_segment.get(segment.id, whole))
    return np.column_stack(columns)


def _output_table(
    node: NodeModel, end: Segment, score: Score, spread: Spread, limits: Mapping[str, Fraction]
) -> FeasibleInputTable:
    """The grid of an output of a node in the middle: a table of one column, the rate that leaves the last segment."""
    selectivity, ahead = exact(end.selectivity), _ahead(node, end)
    cost, share = Fraction(0), Fraction(1)
    for one in node.path[end.id]:
        cost += share * exact(one.cost)
        share *= exact(one.selectivity)
    top = _top(node, node.inputs.index(node.input_of[end.id]), exact(node.capacity), cost, limits) * ahead
    (unit,) = spread.of([top], [_worth(end, score)])
    counts = np.arange(int(top // unit) + 1, dtype=np.int64)[:, None]
    scores: Floats = counts[:, 0].astype(np.float64) * float(unit * _worth(end, score))
    # In tuples that leave, as the columns of a child's table are; where nothing leaves, one entry says so.
    leaving = unit * selectivity if selectivity else Fraction(1)
    if not selectivity:
        counts, scores = counts[:1], scores[:1]
    error = float(unit * _worth(end, score))
    return FeasibleInputTable(node.name, (end.end or end.id,), (leaving,), counts, scores, max_error=error)
