"""Ranks and drops, against the same thing computed by hand."""

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.engines.sim.values import order_rank as simulated_rank
from streamshed.engines.spark.control_line import THRESHOLDS, ControlLine
from streamshed.engines.spark.drops import check_column, drop, random_rank, well_formed
from streamshed.engines.spark.ranks import cell_number, order_rank
from streamshed.errors import UnknownNameError
from streamshed.estimates import WEIGHT
from streamshed.planning.ranks import ranked_order
from streamshed.qos import Cell


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


def test_ranks_by_value_are_those_of_the_simulator(spark: SparkSession) -> None:
    """One order, two engines; in it everything that may come: ends, jumps, single values, gaps, unknown values."""
    cells = [(Cell(50, 100), 0.3), (Cell(0, 50), 0.3), (Cell(0, 0), 0.3), (Cell(120, 130), 0.1)]
    values = [0.0, 1e-9, 12.5, 49.9, 50.0, 75.0, 100.0, 110.0, 120.0, 130.0, 131.0, -1.0, float("nan"), None]
    frame = spark.createDataFrame([(i, v) for i, v in enumerate(values)], "id bigint, v double")
    for inner_order in (True, False):
        order = ranked_order(cells, inner_order=inner_order)
        tie = random_rank(["id"])
        found = frame.select(
            "id", tie.alias("tie"), order_rank(F.col("v"), order, tie), cell_number(F.col("v"), order)
        ).collect()
        ties = np.array([row[1] for row in found])
        expected = simulated_rank(order)(np.array([np.nan if v is None else v for v in values]), ties)
        assert [row[2] for row in found] == pytest.approx(expected.tolist(), abs=1e-12)
        numbers = [next((i for i, one in enumerate(order) if v is not None and one.holds(v)), None) for v in values]
        assert [row[3] for row in found] == numbers
        assert numbers == [2, 1, 1, 1, 1, 0, 0, None, 3, 3, None, None, None, None]


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
