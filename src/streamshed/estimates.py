"""Unbiased answers over what a random drop left: count, sum and average with confidence intervals.

A tuple that was kept with probability p stands for 1/p tuples: that is its weight (Horvitz and Thompson, 1952). The
engine puts it into the column `WEIGHT` where it drops; each tuple carries its own, so that the fraction may change
within a window. `count`, `sum` and `avg` are native Spark aggregates, for `groupBy(...).agg(...)` on batches and
streams, and give a struct of `estimate`, `low` and `high`:

    from streamshed import estimates

    reports.groupBy(F.window("time", "1 minute"), "segment").agg(
        estimates.count().alias("cars"), estimates.avg("speed").alias("speed")
    )

With w the weight of a kept tuple, y its value and v = w(w−1) = (1−p)/p², all sums over the kept tuples:

- count: N̂ = Σw, variance Σv. The interval is Wilson's: it solves (N̂−N)² ≤ z²·N·D with D = Σv/Σw for N, and never
  goes below the number of tuples seen. (The plain N̂ ± z√Σv is far too narrow for a handful of tuples.) Where weights
  differ, D has to be learnt from the tuples too: then Student's t stands for z.
- sum: Ŝ = Σwy, variance V = Σvy². The same with D = V/Σw|y|, moved by z²D/2 towards the sign of the values, and always
  with Student's t, because V has to be learnt.
- avg: R = Σwy/Σw (Hájek), variance Σv(y−R)²/(Σw)² with the square multiplied out, so that only sums are needed,
  corrected for the degree of freedom that R costs; Student's t. One kept tuple says nothing about the spread: its
  interval is infinite.

Degrees of freedom are those of the tuples that bear the variance, (Σv)²/Σv². Nothing dropped: the interval has no
width, and the estimate is the exact answer.

The intervals hold where tuples are dropped independently of one another: hash something that differs from tuple to
tuple. Where one hash decides over many (a join key), estimates stay unbiased, but the intervals are too narrow. They
are also too narrow for averages of very skewed values over few tuples, and where a window is so small that all tuples
of its heavily dropped part are missing. A group of which nothing was kept gives no row.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from scipy.special import ndtri, stdtrit

from streamshed.errors import InvalidValueError

WEIGHT = "_weight"
"""The column with the weight of each tuple."""

WEIGHT_BEFORE = "_weight_before"
"""The column with the weight that a tuple brought along from another application, whose drops go by other ranks."""

_TABLED = 30
_INFINITE = float("inf")


def with_weight(frame: DataFrame, keep_probability: Column, *, nested: bool = False) -> DataFrame:
    """Give each tuple the weight that a drop leaves it with: one over the probability of being kept.

    Args:
        frame: the tuples, before or after the drop.
        keep_probability: of each tuple, in (0, 1].
        nested: whether this drop uses the same rank as those before it, so that what passes the stricter one passes
            both: then the greater weight stands. Independent drops multiply.
    """
    weight = F.try_divide(F.lit(1.0), keep_probability.cast("double"))
    if WEIGHT in frame.columns:
        before = F.col(WEIGHT_BEFORE) if WEIGHT_BEFORE in frame.columns else F.lit(1.0)
        weight = F.greatest(F.col(WEIGHT), before * weight) if nested else F.col(WEIGHT) * weight
    return frame.withColumn(WEIGHT, weight)


def count(*, weight: Column | str = WEIGHT, confidence: float = 0.95) -> Column:
    """How many tuples there were before the drops."""
    z = _normal(confidence)
    w = _weight(weight)
    v = w * (w - 1)
    estimate = F.sum(w)
    variance = F.sum(v)
    one = _ratio(variance, estimate)
    shift = one * (z * z / 2)
    quantile = F.when(F.max(w) > F.min(w), _student(_bearing(v), confidence)).otherwise(z)
    reach = F.sqrt(variance + one * one * (z * z / 4)) * quantile
    seen = F.count(F.lit(1)).cast("double")
    return _interval(estimate, F.greatest(estimate + shift - reach, seen), estimate + shift + reach).alias("count")


def sum(column: Column | str, *, weight: Column | str = WEIGHT, confidence: float = 0.95) -> Column:
    """The sum over all tuples there were before the drops; nulls do not count."""
    z = _normal(confidence)
    y, w = _value_and_weight(column, weight)
    v = w * (w - 1)
    estimate = F.sum(w * y)
    variance = F.sum(v * y * y)
    size = F.sum(w * F.abs(y))
    one = _ratio(variance, size)
    shift = one * _ratio(estimate, size) * (z * z / 2)
    reach = F.sqrt(variance + one * one * (z * z / 4)) * _student(_bearing(v), confidence)
    reach = F.when(variance > 0, reach).otherwise(0.0)
    return _interval(estimate, estimate + shift - reach, estimate + shift + reach).alias("sum")


def avg(column: Column | str, *, weight: Column | str = WEIGHT, confidence: float = 0.95) -> Column:
    """The average over all tuples there were before the drops; nulls do not count."""
    y, w = _value_and_weight(column, weight)
    v = w * (w - 1)
    number = F.sum(w)
    estimate = F.try_divide(F.sum(w * y), number)
    spread = F.sum(v * y * y) - estimate * F.sum(v * y) * 2 + estimate * estimate * F.sum(v)
    bearing = _bearing(v)
    # The estimate takes a degree of freedom from the tuples that bear the variance, as far as it rests on them.
    freedom = bearing - _ratio(F.sum(F.when(w > 1, w).otherwise(0.0)), number)
    variance = _ratio(F.greatest(spread, F.lit(0.0)), number * number) * _ratio(bearing, freedom)
    reach = F.sqrt(variance) * _student(freedom, confidence)
    reach = F.when(F.sum(v) > 0, F.when(freedom >= 0.5, reach).otherwise(_INFINITE)).otherwise(0.0)
    return _interval(estimate, estimate - reach, estimate + reach).alias("avg")


def _interval(estimate: Column, low: Column, high: Column) -> Column:
    return F.struct(estimate.alias("estimate"), low.alias("low"), high.alias("high"))


def _weight(weight: Column | str) -> Column:
    column = F.col(weight) if isinstance(weight, str) else weight
    # Rounding in 1/p must not make a weight less than one: nobody stands for less than himself.
    return F.greatest(column.cast("double"), F.lit(1.0))


def _value_and_weight(column: Column | str, weight: Column | str) -> tuple[Column, Column]:
    y = (F.col(column) if isinstance(column, str) else column).cast("double")
    return y, F.when(y.isNotNull(), _weight(weight))


def _bearing(v: Column) -> Column:
    """How many tuples bear the variance."""
    return _ratio(F.sum(v) * F.sum(v), F.sum(v * v))


def _ratio(numerator: Column, denominator: Column) -> Column:
    return F.coalesce(F.try_divide(numerator, denominator), F.lit(0.0))


def _normal(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise InvalidValueError(
            "a confidence must lie between 0 and 1", where="estimates", got=confidence, expected="such as 0.95"
        )
    return float(ndtri(0.5 + confidence / 2))


def _student(freedom: Column, confidence: float) -> Column:
    """The two-sided quantile of Student's t: from a table for few degrees of freedom, then by its expansion."""
    z = _normal(confidence)
    table = F.array(*(F.lit(float(stdtrit(k, 0.5 + confidence / 2))) for k in range(1, _TABLED + 1)))
    # 1e-9: a whole number that rounding has left a little too small must not fall to the one below.
    row = F.greatest(F.floor(F.least(freedom, F.lit(float(_TABLED))) + 1e-9), F.lit(1)).cast("int")
    many = F.greatest(freedom, F.lit(float(_TABLED)))
    expansion = F.lit(z) + F.lit((z**3 + z) / 4) / many + F.lit((5 * z**5 + 16 * z**3 + 3 * z) / 96) / (many * many)
    return F.when(freedom > _TABLED, expansion).otherwise(F.element_at(table, row))
