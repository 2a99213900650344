"""A short day, played for real."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamshed.engines.spark.ledger_totals import summarise
from streamshed.experiments.overload import Day, play
from streamshed.network import load_spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "expressway.yaml"


def test_a_day_that_fits_is_delivered_in_full(spark: SparkSession, tmp_path: Path) -> None:
    day = Day(calm_tps=500, burst_tps=2000, length_s=10)
    run = play(spark, load_spec(EXAMPLE), day, 600.0, tmp_path, shed=True)
    summary = run.summary()
    assert summary.arrived == pytest.approx(2 * day.tuples, rel=0.002)
    assert (summary.delivered, summary.dropped) == (summary.arrived, 0)
    assert summary.within_target == 1.0
    assert 0 < summary.p50_s <= summary.p95_s <= summary.p99_s < 600
    assert set(summary.utility) == {"accidents", "tolls"}
    (total,) = summarise(tmp_path / "control")
    assert total.balanced
    assert total.arrived * 2 == summary.arrived
