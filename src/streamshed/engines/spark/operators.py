"""The operators of a network as transformations of streaming DataFrames.

A frame may hold more than the columns of its schema; such columns go on along maps, unions and joins, and end at
aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from streamshed.estimates import WEIGHT, WEIGHT_BEFORE
from streamshed.network import Aggregate, Aggregation, Join, Map
from streamshed.network.nodes import WINDOW_END, WINDOW_START
from streamshed.network.validation import Schema

EVENT_TIME = "_event_time"
"""The event time of an aggregate's rows for Spark: the last microsecond inside the window. Its end lies outside, so
that windows over windows that went by `window_end` would count the last part of each whole with the next."""

_RIGHT = "_right_"
_WINDOW = "_window"
_FUNCTIONS = {"count": F.count, "sum": F.sum, "avg": F.avg, "min": F.min, "max": F.max}


@dataclass(frozen=True)
class Flow:
    """What comes along an arc: a frame, and the schema that its reader knows of."""

    frame: DataFrame
    schema: Schema

    @property
    def time(self) -> str:
        """The column with the event time that Spark's watermark follows."""
        return EVENT_TIME if EVENT_TIME in self.frame.columns else str(self.schema.time)

    @property
    def hidden(self) -> list[str]:
        """The columns that travel along unseen."""
        return [name for name in self.frame.columns if name not in self.schema.columns]


def mapped(node: Map, flow: Flow, schema: Schema) -> DataFrame:
    """Computed columns, beside the existing ones or instead of them."""
    computed = [
        F.expr(node.select[name]).alias(name) if name in node.select else column(name) for name in schema.columns
    ]
    hidden = [name for name in flow.hidden if name not in schema.columns]
    if schema.time is None and EVENT_TIME in hidden:
        hidden.remove(EVENT_TIME)
    return flow.frame.select(*computed, *map(column, hidden))


def united(flows: Sequence[Flow], schema: Schema) -> DataFrame:
    """All inputs, by column names."""
    hidden = dict.fromkeys(name for flow in flows for name in flow.hidden)
    # An input without a weight has lost nothing; one that is no aggregate has its own time.
    missing = {WEIGHT: F.lit(1.0), WEIGHT_BEFORE: F.lit(1.0)}
    if schema.time is None:
        hidden.pop(EVENT_TIME, None)
    else:
        missing[EVENT_TIME] = column(schema.time)
    aligned = [
        flow.frame.select(
            *map(column, schema.columns),
            *(
                column(name) if name in flow.frame.columns else missing.get(name, F.lit(None)).alias(name)
                for name in hidden
            ),
        )
        for flow in flows
    ]
    return reduce(DataFrame.unionByName, aligned)


def joined(node: Join, schema: Schema, left: Flow, right: Flow) -> DataFrame:
    """Pairs with equal keys, at most `within_s` apart."""
    other = right.frame.select(*(column(name).alias(_RIGHT + name) for name in right.frame.columns))
    left_time, right_time = column(left.time), column(_RIGHT + right.time)
    # Two comparisons at constant distances: that is where Spark finds out when state can go. The time of an aggregate
    # is the end of its window, one microsecond after the event time.
    distance = microseconds(node.within_s)
    ahead = (right.time == EVENT_TIME) - (left.time == EVENT_TIME)
    near = (left_time >= right_time + _interval(ahead - distance)) & (
        left_time <= right_time + _interval(ahead + distance)
    )
    same = [column(name) == column(_RIGHT + name) for name in node.on]
    pairs = left.frame.join(other, on=reduce(Column.__and__, same, near), how="inner")
    columns = [
        column(name) if name in left.schema.columns else column(_RIGHT + name).alias(name) for name in schema.columns
    ]
    hidden = dict.fromkeys((*left.hidden, *(name for name in right.hidden if name != EVENT_TIME)))
    return pairs.select(*columns, *(_of_pair(name, left, right) for name in hidden if name not in schema.columns))


def aggregated(node: Aggregate, flow: Flow) -> DataFrame:
    """One row for each window and group; counts, sums and averages are unbiased where tuples carry a weight."""
    slide = node.window_s if node.slide_s is None else node.slide_s
    window = F.window(
        column(flow.time), f"{microseconds(node.window_s)} microseconds", f"{microseconds(slide)} microseconds"
    )
    aggregates = [_aggregate(function, flow.frame).alias(name) for name, function in node.aggregates.items()]
    grouped = flow.frame.groupBy(window.alias(_WINDOW), *map(column, node.group_by)).agg(*aggregates)
    return grouped.select(
        F.col(f"{_WINDOW}.start").alias(WINDOW_START),
        F.col(f"{_WINDOW}.end").alias(WINDOW_END),
        *map(column, (*node.group_by, *node.aggregates)),
        F.window_time(F.col(_WINDOW)).alias(EVENT_TIME),
    )


def _aggregate(function: Aggregation, frame: DataFrame) -> Column:
    value = F.lit(1) if function.column is None else column(function.column)
    plain = _FUNCTIONS[function.function](value)
    if WEIGHT not in frame.columns or function.function in ("min", "max"):
        return plain
    weight = F.when(value.isNotNull(), F.coalesce(column(WEIGHT), F.lit(1.0)))
    kind = frame.select(plain).schema[0].dataType
    number = F.lit(1.0) if function.function == "count" else value.cast("double")
    total = F.sum(weight * number)
    if function.function == "avg":
        return F.try_divide(total, F.sum(weight)).cast(kind)
    if function.function == "count":
        total = F.coalesce(total, F.lit(0.0))
    return (F.round(total) if isinstance(kind, LongType) else total).cast(kind)


def column(name: str) -> Column:
    """A column by its name, whatever letters it has."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def microseconds(seconds: float) -> int:
    """A time in Spark's resolution."""
    return round(seconds * 1_000_000)


def _of_pair(name: str, left: Flow, right: Flow) -> Column:
    """What travels with a pair: the heavier weight (partners survive together), the later arrival."""
    sides = [column(name)] if name in left.hidden else []
    if name in right.hidden and name != EVENT_TIME:
        sides.append(column(_RIGHT + name))
    return (sides[0] if len(sides) == 1 else F.greatest(*sides)).alias(name)


def _interval(length_us: int) -> Column:
    sign = "-" if length_us < 0 else ""
    seconds, rest = divmod(abs(length_us), 1_000_000)
    return F.expr(f"INTERVAL '{sign}{seconds}.{rest:06d}' SECOND")
