"""The ranks of a plan's locations as native expressions."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamshed.planning.ranks import KNOWN, WITHIN, RankedCell, RankedLocation


def location_rank(location: RankedLocation, hashed: Column) -> Column:
    """A tuple's place in the order of a location, in [0, 1), given its random one."""
    if location.column is None:
        return hashed
    return order_rank(F.col(location.column), location.order, hashed)


def order_rank(column: Column, order: Sequence[RankedCell], tie: Column) -> Column:
    """A tuple's place in an order of cells; `tie` decides where the value does not."""
    v = column.cast("double")

    def rank(one: RankedCell) -> Column:
        low, high = one.cell.low, one.cell.high
        within = F.least((v - low) / (high - low), F.lit(WITHIN)) if one.inner_order else tie
        return F.lit(one.start) + F.lit(one.width) * within

    return _by_cell(v, order, {one: rank(one) for one in order}, F.lit(KNOWN) + F.lit(1 - KNOWN) * tie)


def cell_number(column: Column, order: Sequence[RankedCell]) -> Column:
    """Which cell of an order a value is in, from 0; null where it is unknown."""
    return _by_cell(
        column.cast("double"), order, {one: F.lit(i) for i, one in enumerate(order)}, F.lit(None).cast("int")
    )


def _by_cell(v: Column, order: Sequence[RankedCell], found: dict[RankedCell, Column], otherwise: Column) -> Column:
    """What belongs to the cell that a value is in. Null is in none, nor is NaN, which Spark puts above all numbers."""

    def inside(one: RankedCell) -> Column:
        low, high = F.lit(one.cell.low), F.lit(one.cell.high)
        if one.cell.is_point:
            return v == low
        return (v >= low if one.low_in else v > low) & (v <= high if one.high_in else v < high)

    ascending = sorted(order, key=lambda one: one.cell)
    return F.coalesce(*(F.when(inside(one), found[one]) for one in ascending), otherwise)
