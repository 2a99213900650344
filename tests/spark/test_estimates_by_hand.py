"""Estimates over a few tuples each, against the module's formulas in numpy and scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from scipy import stats

from streamshed import estimates
from streamshed.errors import InvalidValueError

NAN, INF = math.nan, math.inf


Answers = dict[tuple[str, float], Row]


@dataclass(frozen=True)
class Kept:
    """Tuples that were kept: values, of which nan is none, and weights."""

    y: Sequence[float]
    w: Sequence[float]


_RANDOM = np.random.default_rng(5)
CASES = {
    "alike": Kept([1, 2, 6, -3, 5, 0, 2, 8, 1, 1], [5] * 10),
    "differing": Kept([1, 2, 6, -3, 5, 10], [1, 2, 4, 5, 1.25, 8]),
    "negative": Kept([-4, -5, -7], [2, 4, 8]),
    "thirty": Kept(list(range(30)), [3] * 30),
    "thirty-one": Kept(list(range(31)), [3] * 31),
    "many": Kept(_RANDOM.normal(10, 5, 80).tolist(), (1 / _RANDOM.uniform(0.2, 1, 80)).tolist()),
    "thirds": Kept(list(range(7)), [1 / 0.3] * 7),  # seven that bear the variance, but for rounding
    "all": Kept([1, 2, 6], [1, 1, 1]),
    "rounded": Kept([1, 2, 6], [1 - 1e-12, 1, 1 - 1e-9]),
    "one": Kept([3], [4]),
    "nearly all": Kept([3, 4, 5], [1.01] * 3),
    "one dropped of four": Kept([3, 4, 5, 9], [1, 1, 1, 2]),
    "two dropped of four": Kept([3, 4, 5, 9], [1, 1, 2, 2]),
    "one of great weight": Kept([3, 9], [1, 99]),
    "nothing but zeros": Kept([0, 0, 0], [4, 4, 4]),
    "the same": Kept([2, 2, 2], [4, 8, 4]),
    "with nulls": Kept([1, NAN, 3, NAN, 7], [2, 3, 2, 4, 4]),
    "null is heavy": Kept([1, 3, NAN], [1, 1, 9]),
}
CONFIDENCES = (0.95, 0.5)


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> Answers:
    """With 95 % and the column `WEIGHT`, which are the defaults, and with 50 % and the same weights in a column."""
    rows = [
        (name, None if math.isnan(y) else float(y), float(w))
        for name, kept in CASES.items()
        for y, w in zip(kept.y, kept.w, strict=True)
    ]
    frame = spark.createDataFrame(rows, f"name string, y double, {estimates.WEIGHT} double").coalesce(1)
    half = {"weight": "other", "confidence": 0.5}
    queries = {
        0.95: frame.groupBy("name").agg(estimates.count(), estimates.sum("y"), estimates.avg(F.col("y"))),
        0.5: frame.withColumnRenamed(estimates.WEIGHT, "other")
        .groupBy("name")
        .agg(
            estimates.count(**half),
            estimates.sum(F.col("y"), **half | {"weight": F.col("other")}),
            estimates.avg("y", **half),
        ),
    }
    return {(row["name"], confidence): row for confidence, query in queries.items() for row in query.collect()}


def interval(answer: Row) -> tuple[float, float, float]:
    return answer["estimate"], answer["low"], answer["high"]


def student(freedom: float, confidence: float) -> float:
    """Of whole degrees of freedom up to 30; above the series in 1/freedom (Abramowitz and Stegun, 26.7.5)."""
    if freedom <= 30:
        return float(stats.t.ppf(0.5 + confidence / 2, max(math.floor(freedom + 1e-9), 1)))
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def tuples(name: str, *, of_values: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y, w = np.array(CASES[name].y, float), np.maximum(np.array(CASES[name].w, float), 1.0)
    if of_values:
        y, w = y[~np.isnan(y)], w[~np.isnan(np.array(CASES[name].y, float))]
    return y, w, w * (w - 1)


def bearing(v: np.ndarray) -> float:
    return float(v.sum() ** 2 / (v**2).sum()) if v.any() else 0.0


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("name", CASES)
def test_count(answers: Answers, name: str, confidence: float) -> None:
    _, w, v = tuples(name, of_values=False)
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    quantile = student(bearing(v), confidence) if w.max() > w.min() else z
    per_tuple = v.sum() / w.sum()
    middle = w.sum() + z**2 * per_tuple / 2
    reach = quantile * math.sqrt(v.sum() + per_tuple**2 * z**2 / 4)
    expected = (w.sum(), max(middle - reach, len(w)), middle + reach)
    assert interval(answers[name, confidence]["count"]) == pytest.approx(expected, rel=1e-9)
    if w.max() == w.min():  # Wilson's: the ends solve (N̂ − N)² = z²·N·D
        ends = np.roots([1, -2 * w.sum() - z**2 * per_tuple, w.sum() ** 2])
        assert expected[1:] == pytest.approx((max(ends.real.min(), len(w)), ends.real.max()))


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("name", CASES)
def test_sum(answers: Answers, name: str, confidence: float) -> None:
    y, w, v = tuples(name, of_values=True)
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    total, variance, size = (w * y).sum(), (v * y**2).sum(), (w * np.abs(y)).sum()
    expected = (total, total, total)
    if variance > 0:
        per_tuple = variance / size
        middle = total + z**2 * per_tuple / 2 * total / size
        reach = student(bearing(v), confidence) * math.sqrt(variance + per_tuple**2 * z**2 / 4)
        expected = (total, middle - reach, middle + reach)
    assert interval(answers[name, confidence]["sum"]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("name", CASES)
def test_average(answers: Answers, name: str, confidence: float) -> None:
    y, w, v = tuples(name, of_values=True)
    mean = (w * y).sum() / w.sum()
    freedom = bearing(v) - w[w > 1].sum() / w.sum()
    expected = (mean, mean, mean)
    if v.any() and freedom < 0.5:
        expected = (mean, -INF, INF)
    elif v.any():
        variance = (v * (y - mean) ** 2).sum() / w.sum() ** 2 * bearing(v) / freedom
        reach = student(freedom, confidence) * math.sqrt(variance)
        expected = (mean, mean - reach, mean + reach)
    assert interval(answers[name, confidence]["avg"]) == pytest.approx(expected, rel=1e-7, abs=1e-6)


def test_what_the_cases_are_for(answers: Answers) -> None:
    """The branches that they are to go through."""
    assert interval(answers["one", 0.95]["avg"])[1:] == (-INF, INF), "one says nothing about the spread"
    assert interval(answers["one dropped of four", 0.95]["avg"])[2] < 100, "three more are certain"
    assert interval(answers["one of great weight", 0.95]["avg"])[1:] == (-INF, INF)
    assert interval(answers["nearly all", 0.95]["count"])[1] == 3, "no less than were seen"
    assert interval(answers["null is heavy", 0.95]["sum"]) == (4, 4, 4)
    assert interval(answers["null is heavy", 0.95]["avg"]) == (2, 2, 2)
    assert interval(answers["rounded", 0.95]["count"]) == (3, 3, 3)


def test_the_series_for_many_degrees_of_freedom_is_students() -> None:
    for freedom in (30.5, 31, 60, 1000):
        for confidence in CONFIDENCES:
            exact = float(stats.t.ppf(0.5 + confidence / 2, freedom))
            assert student(freedom, confidence) == pytest.approx(exact, rel=1e-3)


def test_weights_of_drops(spark: SparkSession) -> None:
    """Independent drops multiply; those by one rank count the stricter one, beside what came from elsewhere."""
    new, both = spark.range(1), spark.range(1).withColumn(estimates.WEIGHT_BEFORE, F.lit(3.0))
    half, quarter = F.lit(0.5), F.lit(0.25).cast("decimal(3, 2)")
    frames = {
        2.0: estimates.with_weight(new, half),
        8.0: estimates.with_weight(estimates.with_weight(new, half), quarter),
        4.0: estimates.with_weight(estimates.with_weight(new, half), quarter, nested=True),
        5.0: estimates.with_weight(new.withColumn(estimates.WEIGHT, F.lit(5.0)), quarter, nested=True),
        12.0: estimates.with_weight(both.withColumn(estimates.WEIGHT, F.lit(6.0)), quarter, nested=True),
        13.0: estimates.with_weight(both.withColumn(estimates.WEIGHT, F.lit(13.0)), quarter, nested=True),
        24.0: estimates.with_weight(both.withColumn(estimates.WEIGHT, F.lit(6.0)), quarter),
    }
    found = None
    for expected, frame in frames.items():
        row = frame.select(F.lit(expected).alias("expected"), estimates.WEIGHT)
        found = row if found is None else found.unionAll(row)
    assert found is not None
    assert {row["expected"]: row[estimates.WEIGHT] for row in found.collect()} == {key: key for key in frames}


@pytest.mark.parametrize("confidence", [0.0, 1.0, -0.5, 1.5])
def test_a_confidence_lies_between_0_and_1(spark: SparkSession, confidence: float) -> None:
    with pytest.raises(InvalidValueError, match="confidence"):
        estimates.count(confidence=confidence)
