"""Drops: native expressions that give every tuple a rank, and filters that keep those at or above a threshold.

A rank lies in [0, 1) and follows from the tuple alone, so that what was dropped can be named again later. A tuple is
kept if and only if `rank >= x`; with ranks spread evenly, x is the fraction that is dropped. Equal salts make drops
nest: whatever passes the larger threshold passes the smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.errors import UnknownNameError, did_you_mean
from streamshed.estimates import with_weight

ARRIVAL_QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the arrival times of the kept tuples in a batch; the earliest arrivals are the longest delays."""

_ACCURACY = 500  # of the quantiles: to 1/500 of what is looked at
_SAMPLED_OF = 8  # quantiles are dear: one arrival time of so many is looked at

_WANTED, _KEPT, _MALFORMED, _ARRIVAL, _SAMPLE, _CELL = (
    f"_streamshed_{mark}" for mark in ("wanted", "kept", "malformed", "arrival", "sample", "cell")
)

Parse = Callable[[DataFrame, Column], DataFrame]
"""Gives tuples their columns; needs to do so only where a condition holds."""


@dataclass(frozen=True)
class Cells:
    """How to tell in which cell of values a tuple is.

    Attributes:
        number: of the cell, from 0; null where the value is unknown.
        count: how many cells there are.
    """

    number: Column
    count: int


def cell_count(number: int) -> str:
    """What the count of a cell is called in an observation."""
    return f"cell{number}"


def random_rank(key: Sequence[str | Column], salt: int = 0) -> Column:
    """A rank that is an even hash of the key.

    Tuples with equal keys live and die together. The two sides of a join do so if both hash the join key, with the
    same salt and the same types (an int and a bigint have different hashes).
    """
    hashed = F.xxhash64(F.lit(salt), *(F.col(part) if isinstance(part, str) else part for part in key))
    return F.shiftrightunsigned(hashed, 11) * F.lit(2.0**-53)


def well_formed(frame: DataFrame, required: Sequence[str] = (), valid: str | None = None) -> Column | None:
    """Whether a tuple can be worked on: nothing null (or NaN) in required columns, and a predicate holds.

    Returns:
        A column that is never null; None if nothing is asked for.
    """
    conditions = [F.expr(valid)] if valid is not None else []
    for name in required:
        column = F.col(check_column(frame, name))
        conditions.append(column.isNotNull())
        if frame.schema[name].dataType.typeName() in ("float", "double"):
            conditions.append(~F.isnan(column))
    if not conditions:
        return None
    return F.coalesce(reduce(Column.__and__, conditions), F.lit(False))


def drop(
    frame: DataFrame,
    name: str,
    rank: Column,
    threshold: Column,
    *,
    control: DataFrame | None = None,
    needed: Column | None = None,
    valid: Column | None = None,
    parse: Parse | None = None,
    arrival: Column | None = None,
    cells: Cells | None = None,
    weighted: bool = False,
    nested: bool = False,
) -> DataFrame:
    """Keep the tuples whose rank reaches the threshold, and have both sides counted in every micro-batch.

    The observation `observation(name)` (arrived, malformed, kept, and quantiles of the arrival time) also pins the drop
    to its place: the optimiser moves nothing past it. What it looks at is computed ahead of it, in generated code;
    within it, quantiles would be interpreted.

    Args:
        frame: a streaming DataFrame.
        name: of the observation, unique in the query.
        rank: in [0, 1).
        threshold: the fraction to drop, from columns of `control` if that is given.
        control: one row, broadcast to all tuples: `ControlLine.thresholds`.
        needed: whether anything further on will take the tuple, if that is known here; others are dropped.
        valid: whether a tuple is well-formed; others are counted and kept out.
        parse: if given, tuples get their columns only here, and only those that are not dropped: of the others nobody
            knows whether they are well-formed, they count as dropped.
        arrival: seconds since 1970.
        cells: in which cell of values a tuple is; then well-formed tuples are counted by cell, dropped or not.
        weighted: whether to add the weight that `streamshed.estimates` needs.
        nested: whether the drops upstream go by the same rank.
    """
    if control is not None:
        frame = frame.crossJoin(F.broadcast(control))
    if weighted:
        frame = with_weight(frame, 1 - threshold, nested=nested)
    wanted = rank >= threshold if needed is None else (rank >= threshold) & needed
    if parse is not None:
        frame = parse(frame.withColumn(_WANTED, F.coalesce(wanted, F.lit(False))), F.col(_WANTED))
        wanted = F.col(_WANTED)
    keep = F.coalesce(wanted if valid is None else F.when(valid, wanted), F.lit(False))
    marks = {_KEPT: keep}
    counts = [F.count(F.lit(1)).alias("arrived"), F.count_if(F.col(_KEPT)).alias("kept")]
    if valid is not None:
        marks[_MALFORMED] = ~valid if parse is None else wanted & ~valid
        counts.append(F.count_if(F.col(_MALFORMED)).alias("malformed"))
    if arrival is not None:
        marks[_ARRIVAL] = F.when(keep, arrival)
        marks[_SAMPLE] = F.when(keep & (F.pmod(F.hash(arrival), F.lit(_SAMPLED_OF)) == 0), arrival)
        counts += [
            F.min(_ARRIVAL).alias("first"),
            F.max(_ARRIVAL).alias("last"),
            F.percentile_approx(_SAMPLE, list(ARRIVAL_QUANTILES), _ACCURACY).alias("quantiles"),
        ]
    if cells is not None:
        marks[_CELL] = cells.number if valid is None else F.when(valid, cells.number)
        counts += [F.count_if(F.col(_CELL) == number).alias(cell_count(number)) for number in range(cells.count)]
    marked = frame.select("*", *(mark.alias(column) for column, mark in marks.items()))
    if control is not None:
        marked = marked.drop(*control.columns)
    return marked.observe(observation(name), *counts).where(F.col(_KEPT)).drop(*marks, _WANTED)


def mark(
    frame: DataFrame, name: str, rank: Column, threshold: Column, *, control: DataFrame, on: Column
) -> tuple[DataFrame, Column]:
    """A drop for some tuples in a frame that others share: nothing is taken out.

    Args:
        frame: a streaming DataFrame; gets the columns of `control`, unless it has them already.
        name: of the observation, unique in the query.
        rank: in [0, 1).
        threshold: the fraction to drop, from columns of `control`.
        control: one row, broadcast to all tuples: `ControlLine.thresholds`.
        on: whether a tuple is one of those.

    Returns:
        The frame, and the condition for tuples that are, and are kept.
    """
    if not set(control.columns) <= set(frame.columns):
        frame = frame.crossJoin(F.broadcast(control))
    kept, there = f"{_KEPT} {name}", f"{_WANTED} {name}"
    marks = {there: on, kept: F.coalesce(on & (rank >= threshold), F.lit(False))}
    counts = [F.count_if(F.col(f"`{there}`")).alias("arrived"), F.count_if(F.col(f"`{kept}`")).alias("kept")]
    return frame.withColumns(marks).observe(observation(name), *counts).drop(there), F.col(f"`{kept}`")


def observation(name: str) -> str:
    """What the observation of a drop is called."""
    return f"{name}/tuples"


def check_column(frame: DataFrame, name: str) -> str:
    """The name, if the frame has such a column.

    Raises:
        UnknownNameError: otherwise, with the closest names.
    """
    if name not in frame.columns:
        raise UnknownNameError(
            "there is no such column",
            where="guarded DataFrame",
            got=repr(name),
            expected="one of its columns",
            hint=did_you_mean(name, frame.columns),
        )
    return name
