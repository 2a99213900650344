"""The intervals cover the truth as often as they say, and a plain count over what is left does not."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed import estimates
from streamshed.errors import InvalidValueError

START = pd.Timestamp("2024-03-01")
WINDOWS, GROUPS = 30, 20
GROUP = ["window", "segment"]


@pytest.fixture(scope="module")
def reports(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """600 window-groups with 5 to 300 tuples in each: speeds around a mean, and fares with a long tail."""
    random = np.random.default_rng(3)
    sizes = np.exp(random.uniform(math.log(5), math.log(300), (WINDOWS, GROUPS))).astype(int)
    window, segment = (index.ravel() for index in np.indices(sizes.shape))
    window, segment = (np.repeat(index, sizes.ravel()) for index in (window, segment))
    number = len(window)
    table = pd.DataFrame(
        {
            "at": START + pd.to_timedelta(window * 60 + random.uniform(0, 60, number), unit="s"),
            "segment": segment,
            "id": np.arange(number),
            "speed": random.normal(60, 12, number),
            "fare": random.gamma(2.0, 3.0, number),
            "change": random.normal(0, 5, number),
        }
    )
    path = tmp_path_factory.mktemp("reports") / "in.parquet"
    stored = table.assign(at=table["at"].dt.tz_localize("UTC").astype("datetime64[us, UTC]"))
    stored.to_parquet(path, index=False)
    return spark.read.schema(
        "at timestamp, segment bigint, id bigint, speed double, fare double, change double"
    ).parquet(str(path.parent))


def dropped(frame: DataFrame, fraction: Column, salt: int) -> DataFrame:
    """Drop by a keyed hash, as the engine does, and give what is left its weight."""
    rank = F.pmod(F.xxhash64(F.col("id"), F.lit(salt)), F.lit(1 << 20)) / F.lit(float(1 << 20))
    return estimates.with_weight(frame.where(rank >= fraction), 1 - fraction)


FRACTIONS = {
    "half": lambda: F.lit(0.5),
    "four fifths": lambda: F.lit(0.8),
    # As a controller does it: the fraction changes every seven seconds, also within a window.
    "changing": lambda: F.element_at(
        F.array(*map(F.lit, (0.0, 0.3, 0.6, 0.8, 0.5))),
        (F.pmod(F.floor(F.unix_timestamp("at") / 7), F.lit(5)) + 1).cast("int"),
    ),
}


def answers(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "60 seconds").alias("window"), "segment").agg(
        estimates.count().alias("reports"),
        estimates.sum("fare").alias("fares"),
        estimates.sum("change").alias("changes"),
        estimates.avg("speed").alias("speed"),
        F.count(F.lit(1)).alias("kept"),
    )


def truth(frame: DataFrame) -> DataFrame:
    return frame.groupBy(F.window("at", "60 seconds").alias("window"), "segment").agg(
        F.count(F.lit(1)).alias("true_reports"),
        F.sum("fare").alias("true_fares"),
        F.sum("change").alias("true_changes"),
        F.avg("speed").alias("true_speed"),
    )


def flat(frame: DataFrame) -> pd.DataFrame:
    columns = [
        F.col(name) if "struct" not in kind else F.col(f"{name}.{part}").alias(f"{name}_{part}")
        for name, kind in frame.dtypes
        for part in (("estimate", "low", "high") if "struct" in kind else ("",))
    ]
    return frame.select(*columns).toPandas()


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_intervals_cover_the_truth_and_plain_counts_do_not(reports: DataFrame, fraction: str) -> None:
    left = dropped(reports, FRACTIONS[fraction](), salt=11)
    table = flat(answers(left).join(truth(reports), on=GROUP).drop("window"))
    assert len(table) >= 200
    for answer in ("reports", "fares", "changes", "speed"):
        low, high, true = (table[name] for name in (f"{answer}_low", f"{answer}_high", f"true_{answer}"))
        covered = ((low - 1e-6 <= true) & (true <= high + 1e-6)).mean()
        width = ((high - low) / true.abs()).replace(math.inf, math.nan).median()
        print(f"{fraction}, {answer}: {covered:.3f} of {len(table)} covered, median width {width:.2f} of the value")
        assert 0.90 <= covered <= 0.99, (answer, covered)
    # No bias: over all groups the estimates come to the truth within four standard errors or so.
    total = table["true_reports"].sum()
    assert table["reports_estimate"].sum() == pytest.approx(total, rel=0.03)
    assert table["fares_estimate"].sum() == pytest.approx(table["true_fares"].sum(), rel=0.03)
    # What is left, counted as if it were all, is far off, and outside nearly every interval.
    assert table["kept"].sum() < 0.7 * total
    outside = (table["kept"] < table["reports_low"] - 1e-6).mean()
    assert outside > 0.5


def test_nothing_dropped_gives_the_exact_answer_without_width(reports: DataFrame) -> None:
    weighted = estimates.with_weight(reports, F.lit(1.0))
    table = flat(answers(weighted).join(truth(reports), on=GROUP).drop("window"))
    for answer in ("reports", "fares", "changes", "speed"):
        estimate = table[f"{answer}_estimate"]
        assert (table[f"{answer}_low"] == estimate).all()
        assert (table[f"{answer}_high"] == estimate).all()
        np.testing.assert_allclose(estimate, table[f"true_{answer}"], rtol=1e-9, atol=1e-9)


def one(frame: DataFrame, expression: Column) -> tuple[float, float, float]:
    answer = frame.agg(expression.alias("answer")).collect()[0]["answer"]
    return answer["estimate"], answer["low"], answer["high"]


def test_count_is_wilsons_interval(spark: SparkSession) -> None:
    four_of_five_dropped = spark.range(10).withColumn(estimates.WEIGHT, F.lit(5.0))
    # N = n/p + z²q/2p ± z/p √(nq + z²q²/4) with n = 10, p = 0.2, q = 0.8, z = 1.96
    z, n, p, q = 1.959964, 10, 0.2, 0.8
    centre, reach = n / p + z * z * q / (2 * p), z / p * math.sqrt(n * q + z * z * q * q / 4)
    assert one(four_of_five_dropped, estimates.count()) == pytest.approx((50, centre - reach, centre + reach), rel=1e-6)
    # What was seen was there, however few.
    assert one(four_of_five_dropped.limit(1), estimates.count())[1] >= 1


def test_average_is_students_interval(spark: SparkSession) -> None:
    kept = spark.createDataFrame([(1.0,), (2.0,), (6.0,)], "y double").withColumn(estimates.WEIGHT, F.lit(4.0))
    # Three of about twelve: s² = 7, variance of the mean s²/n · (1 − p), t with 2 degrees of freedom
    reach = 4.302653 * math.sqrt(7 / 3 * 0.75)
    assert one(kept, estimates.avg("y")) == pytest.approx((3, 3 - reach, 3 + reach), rel=1e-6)
    assert one(kept.limit(1), estimates.avg("y"))[1:] == (-math.inf, math.inf)


def test_confidence_widens_and_has_bounds(spark: SparkSession) -> None:
    kept = spark.range(40).withColumn(estimates.WEIGHT, F.lit(2.0))
    for aggregate in (estimates.count, lambda **given: estimates.sum("id", **given)):
        _, low, high = one(kept, aggregate(confidence=0.95))
        _, lower, higher = one(kept, aggregate(confidence=0.99))
        assert lower < low < high < higher
    with pytest.raises(InvalidValueError, match="between 0 and 1"):
        estimates.count(confidence=95)


def test_nulls_do_not_count_and_an_empty_group_is_null(spark: SparkSession) -> None:
    kept = spark.createDataFrame([(1.0,), (None,), (3.0,)], "y double").withColumn(estimates.WEIGHT, F.lit(1.0))
    assert one(kept, estimates.sum("y")) == (4, 4, 4)
    assert one(kept, estimates.avg(F.col("y"))) == (2, 2, 2)
    assert one(kept, estimates.count())[0] == 3
    assert one(kept.where("y IS NULL"), estimates.avg("y"))[0] is None


def test_weights_multiply_unless_drops_share_their_rank(spark: SparkSession) -> None:
    once = estimates.with_weight(spark.range(1), F.lit(0.5))
    assert estimates.with_weight(once, F.lit(0.25)).first()[estimates.WEIGHT] == 8.0
    assert estimates.with_weight(once, F.lit(0.25), nested=True).first()[estimates.WEIGHT] == 4.0
    assert estimates.with_weight(once, F.lit(0.8), nested=True).first()[estimates.WEIGHT] == 2.0


def test_estimates_run_in_a_stream_without_python(spark: SparkSession, reports: DataFrame, tmp_path: Path) -> None:
    source = Path(re.sub("^file:", "", reports.inputFiles()[0])).parent
    stream = spark.readStream.schema(reports.schema).parquet(str(source)).withWatermark("at", "10 seconds")
    left = dropped(stream, F.lit(0.5), salt=4)
    writer = answers(left).writeStream.format("memory").queryName("estimated").outputMode("complete")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    streamed = flat(spark.table("estimated").orderBy(*GROUP).drop("window"))
    batch = answers(dropped(reports, F.lit(0.5), salt=4))
    pd.testing.assert_frame_equal(streamed, flat(batch.orderBy(*GROUP).drop("window")), rtol=1e-9)
    plan = batch._jdf.queryExecution().executedPlan().toString()
    assert "HashAggregate" in plan
    assert "Python" not in plan
