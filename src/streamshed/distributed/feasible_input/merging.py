"""From the children's tables to a node's own: reverse mapping, merging, and elimination (Borealis, 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from streamshed.distributed.feasible_input.exact import Floats, Ints, at_most, exact, on_common_grid
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment
from streamshed.errors import InvalidValueError


@dataclass(frozen=True)
class Requirement:
    """A table below a node, and the segment that feeds each of its columns."""

    table: FeasibleInputTable
    ends: tuple[Segment, ...]


@dataclass(frozen=True)
class _Column:
    """Rates as counts of a unit."""

    counts: Ints
    unit: Fraction

    @property
    def rates(self) -> Floats:
        rates: Floats = self.counts.astype(np.float64) * float(self.unit)
        return rates


def merged(
    node: NodeModel, requirements: Sequence[Requirement], entries: int | None, most_rows: int
) -> FeasibleInputTable:
    """The node's table: rows of all tables with one another, as far as the node can carry them.

    A row of a child asks for a rate at the node's end; divided by the selectivity that is the rate into the segment.
    Where a flow splits, the highest rate of its branches is asked for, and the rest is dropped ahead of the other
    branches: the local plan.
    """
    picks: list[Ints] = []
    for number, requirement in enumerate(requirements):
        rows = len(picks[0]) if picks else 1
        size = len(requirement.table)
        if rows * size > most_rows:
            raise InvalidValueError(
                "the merged table would be too large",
                where=f"table of {node.name!r}",
                got=f"{rows:,} × {size:,} rows",
                expected=f"at most {most_rows:,}",
                hint="take a greater error, a bound on the size, or corner tables",
            )
        picks = [np.repeat(pick, size) for pick in picks]
        picks.append(np.tile(np.arange(size), rows))
        fits = _eliminated(node, requirements[: number + 1], picks)
        picks = [pick[fits] for pick in picks]
        if entries is not None and number + 1 < len(requirements):
            keep = _table(node, requirements[: number + 1], picks).spaced_rows(entries)
            picks = [pick[keep] for pick in picks]
    table = _table(node, requirements, picks).best_first().without_worse()
    return table if entries is None else table.thinned(entries)


def _eliminated(node: NodeModel, requirements: Sequence[Requirement], picks: Sequence[Ints]) -> np.ndarray:
    """Which rows the node can carry. More branches only add load, so what is too much already is out."""
    columns = _columns(node, requirements, picks)
    load = np.zeros(len(picks[0]))
    possible = np.ones(len(picks[0]), dtype=np.bool_)
    for segment in node.segments:
        if segment.id in columns:
            load += float(exact(segment.cost)) * columns[segment.id].rates
    for requirement, pick in zip(requirements, picks, strict=True):
        for i, end in enumerate(requirement.ends):
            if not exact(end.selectivity):
                possible &= requirement.table.counts[pick, i] == 0
    capacity = exact(node.capacity)

    def exactly(row: int) -> bool:
        exact_load = sum(
            (
                exact(segment.cost) * int(columns[segment.id].counts[row]) * columns[segment.id].unit
                for segment in node.segments
                if segment.id in columns
            ),
            Fraction(0),
        )
        return bool(exact_load <= capacity)

    return at_most(load, float(capacity), exactly) & possible


def _columns(node: NodeModel, requirements: Sequence[Requirement], picks: Sequence[Ints]) -> dict[str, _Column]:
    """The rate into each segment, and under its id into each input, that the rows below ask for."""
    found: dict[str, list[_Column]] = {}
    result: dict[str, _Column] = {}
    for requirement, pick in zip(requirements, picks, strict=True):
        for i, end in enumerate(requirement.ends):
            selectivity = exact(end.selectivity) or Fraction(1)
            found[end.id] = [_Column(requirement.table.counts[pick, i], requirement.table.units[i] / selectivity)]
    for segment in reversed(node.segments):
        below = found.get(segment.id)
        if below is None:
            continue
        if segment.end is None:
            selectivity = exact(segment.selectivity) or Fraction(1)
            below = [_Column(one.counts, one.unit / selectivity) for one in below]
        result[segment.id] = _highest(below)
        found.setdefault(segment.source, []).append(result[segment.id])
    for name in node.inputs:
        if name in found:
            result[name] = _highest(found[name])
    return result


def _highest(columns: Sequence[_Column]) -> _Column:
    if len(columns) == 1:
        return columns[0]
    counts, unit = on_common_grid([(one.counts, one.unit) for one in columns])
    return _Column(np.maximum.reduce(counts), unit)


def _table(node: NodeModel, requirements: Sequence[Requirement], picks: Sequence[Ints]) -> FeasibleInputTable:
    columns = _columns(node, requirements, picks)
    rows = len(picks[0])
    none = _Column(np.zeros(rows, dtype=np.int64), Fraction(1))
    scores = np.zeros(rows)
    for requirement, pick in zip(requirements, picks, strict=True):
        scores += requirement.table.scores[pick]
    inputs = [columns.get(name, none) for name in node.inputs]
    flows = np.column_stack([columns.get(segment.id, none).rates for segment in node.segments])
    planless = np.ones(rows, dtype=np.bool_)
    for segment in node.segments:
        source = next((one for one in node.segments if one.id == segment.source), None)
        whole = columns.get(segment.source, none).rates * (float(exact(source.selectivity)) if source else 1.0)
        planless &= columns.get(segment.id, none).rates >= whole * (1 - 1e-9)
    return FeasibleInputTable(
        node.name,
        node.inputs,
        tuple(one.unit for one in inputs),
        np.column_stack([one.counts for one in inputs]),
        scores,
        tuple(segment.id for segment in node.segments),
        flows,
        planless,
        max_error=sum(requirement.table.max_error for requirement in requirements),
    )
