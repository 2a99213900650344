"""Ranks and drops, against the same thing computed by hand."""

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.engines.spark.control_line import THRESHOLDS, ControlLine
from streamshed.engines.spark.drops import check_column, drop, random_rank, value_rank, well_formed
from streamshed.errors import UnknownNameError
from streamshed.estimates import WEIGHT
from streamshed.qos import Histogram, ValueGraph


def test_random_ranks_are_even_and_depend_on_key_and_salt(spark: SparkSession) -> None:
    frame = spark.range(20_000).select(
        random_rank(["id"]).alias("a"), random_rank(["id"]).alias("b"), random_rank(["id"], 1).alias("c")
    )
    ranks = frame.toPandas()
    assert (ranks["a"] == ranks["b"]).all()
    assert ranks["a"].between(0, 1, inclusive="left").all()
    assert abs(np.corrcoef(ranks["a"], ranks["c"])[0, 1]) < 0.03
    shares = np.histogram(ranks["a"], bins=20, range=(0, 1))[0] / len(ranks)
    assert np.abs(shares - 0.05).max() < 0.006


def test_value_ranks_put_the_least_useful_first(spark: SparkSession) -> None:
    # 40 % stand still and matter most; of the rest, fast ones matter more.
    graph = ValueGraph.of("v", [(0, 1.0), (0, 0.2), (50, 0.2), (50, 0.6), (100, 0.6)])
    histogram = Histogram.of([(0, 0, 4), (0, 50, 3), (50, 100, 3)])
    values = [0.0] * 400 + list(np.linspace(0.1, 49.9, 300)) + list(np.linspace(50.1, 99.9, 300))
    frame = spark.createDataFrame([(i, float(v)) for i, v in enumerate(values)], "id bigint, v double")
    ranked = frame.select("v", value_rank("v", graph, histogram, random_rank(["id"])).alias("rank")).toPandas()
    slow, fast, still = (
        ranked[(ranked.v > 0) & (ranked.v < 50)],
        ranked[ranked.v > 50],
        ranked[ranked.v == 0],
    )
    assert slow["rank"].between(0, 0.3).all()
    assert fast["rank"].between(0.3, 0.6).all()
    assert still["rank"].between(0.6, 1, inclusive="left").all()
    assert slow.sort_values("v")["rank"].is_monotonic_increasing
    for threshold in (0.1, 0.3, 0.5, 0.8):
        assert (ranked["rank"] < threshold).mean() == pytest.approx(threshold, abs=0.03)


def test_values_that_are_unknown_missing_or_no_numbers(spark: SparkSession) -> None:
    graph = ValueGraph.of("v", [(0, 0.5), (10, 0.5), (10, 1.0), (20, 1.0)])
    frame = spark.createDataFrame([(None,), (float("nan"),), (-5.0,), (99.0,), (5.0,)], "v double")
    ranks = [row[0] for row in frame.select(value_rank("v", graph, Histogram.uniform(0, 20), F.lit(0.5))).collect()]
    assert ranks[:2] == [None, None]
    assert ranks[2:] == [0.0, 0.5, 0.25]


def test_malformed_is_never_null(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 1.0), (None, 1.0), (1, float("nan")), (1, None), (7, 1.0)], "a int, b double")
    valid = well_formed(frame, ["a", "b"], "a < 5")
    assert valid is not None
    assert [row[0] for row in frame.select(valid).collect()] == [True, False, False, False, False]
    assert well_formed(frame) is None


def test_unknown_columns_are_named(spark: SparkSession) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'speed'"):
        check_column(spark.createDataFrame([(1.0,)], "speed double"), "sped")


def test_one_broadcast_serves_all_drops_and_nothing_is_moved(spark: SparkSession, tmp_path: Path) -> None:
    line = ControlLine(tmp_path, 3)
    frame = spark.range(1000).withColumn("key", F.col("id") % 10)

    def dropped(frame: DataFrame, name: str, key: str, index: int) -> DataFrame:
        threshold = F.col(THRESHOLDS)[index]
        return drop(frame, name, random_rank([key]), threshold, control=line.thresholds(spark), weighted=True)

    first = dropped(frame, "one", "id", 0)
    second = dropped(frame.withColumnRenamed("id", "other"), "two", "key", 1).drop(WEIGHT)
    result = dropped(first.join(second, "key"), "three", "key", 2).where("key > 3")
    assert set(result.columns) == {"key", "id", "other", WEIGHT}
    result.collect()
    plan = result._jdf.queryExecution().executedPlan().toString().partition("== Initial Plan")[0]
    assert plan.count("FileScan text") == 1
    assert plan.count("ReusedExchange") >= 2
    assert "Python" not in plan
    assert "CollectMetrics one/tuples" in plan
    # The filter of the result is not put below a drop, where it would spoil the counts.
    assert plan.index("> 3)") < plan.index("CollectMetrics three/tuples")
