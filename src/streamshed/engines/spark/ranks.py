"""The ranks of a plan's locations as native expressions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamshed.planning.ranks import RankedLocation
from streamshed.qos import Cell

_BELOW_ONE = 1 - 2.0**-53


def location_rank(location: RankedLocation, hashed: Column) -> Column:
    """A tuple's place in the order of a location, in [0, 1), given its random one."""
    if location.column is None:
        return hashed
    return order_rank(F.col(location.column), location.order, hashed)


def order_rank(column: Column, order: Sequence[tuple[Cell, float]], tie: Column) -> Column:
    """A tuple's place in an order of cells; inside a range the lower value goes first, at one value `tie` decides.

    A value between or beyond the known cells gets the place of the next one below it (above it, at the low end). Null
    and NaN go first of all.
    """
    before: dict[Cell, tuple[float, float]] = {}
    passed = 0.0
    for cell, share in order:
        before[cell] = (passed, share)
        passed += share
    v = column.cast("double")
    rank = F.when(v.isNull() | F.isnan(v), F.lit(0.0))
    last = 0.0
    for cell in sorted(before):
        start, share = before[cell]
        if cell.is_point:
            rank = rank.when(v < cell.low, F.lit(last if last else start))
            rank = rank.when(v == cell.low, F.lit(start) + F.lit(share) * tie)
        else:
            within = F.greatest((v - cell.low) / (cell.high - cell.low), F.lit(0.0))
            rank = rank.when(v < cell.high, F.lit(start) + F.lit(share) * within)
        last = start + share
    return F.least(rank.otherwise(F.lit(last)), F.lit(_BELOW_ONE))
