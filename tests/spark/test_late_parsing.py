"""Texts are dropped as they come, and only what is left is parsed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from streamshed.engines.spark.drops import random_rank
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.engines.spark.runner import SALT, NetworkRunner
from streamshed.engines.spark.stage import RunningStage
from streamshed.network import Spec, parse_spec
from streamshed.planning import InputRandom, Planner, SemanticRoadMapPlanner
from tests.spark.streams import wait_for_slot

ROWS = 2_000
BROKEN = 100
DROPPED = 0.5
SPEC = """\
name: texts
streams:
  reports:
    columns: {{ts: timestamp, car: bigint, speed: double}}
    time: ts
    {key}
    source: {{format: text, options: {{path: {path}}}}}
operators:
  slow: {{type: filter, input: reports, where: speed < 50}}
  traffic: {{type: aggregate, input: reports, window_s: 10, group_by: [], aggregates: {{n: count()}}}}
outputs:
  accidents: {{input: slow, sink: {{format: memory}}, qos: {{value: {{column: speed, points: [[0, 1], [100, 0]]}}}}}}
  tolls: {{input: traffic, sink: {{format: noop}}}}
statistics:
  costs: {{slow: 1.0e-6, traffic: 1.0e-6}}
  selectivities: {{slow: 0.5, traffic: 0.1}}
  histograms: {{reports: {{speed: [[0, 50, 1], [50, 100, 1]]}}}}
rates: {{reports: 1000}}
"""


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    lines = [
        json.dumps({"ts": f"2024-01-01T00:00:{n % 60:02d}", "car": n, "speed": n % 100}) for n in range(ROWS - BROKEN)
    ]
    lines += [f"broken {n}" for n in range(BROKEN)]
    directory = tmp_path / "texts"
    directory.mkdir()
    (directory / "lines.txt").write_text("\n".join(lines) + "\n")
    return directory


def spec(texts: Path, key: str = "") -> Spec:
    return parse_spec(SPEC.format(path=texts.as_uri(), key=key))


def run(spark: SparkSession, directory: Path, of: Spec, planner: Planner) -> NetworkRunner:
    """Run it until everything is through, with half of what arrives dropped."""
    runner = NetworkRunner(spark, of, directory, target_s=2.0, planner=planner, shed=False)
    begin = RunningStage.start

    def start(stage: RunningStage, frame: DataFrame, *, lone: bool) -> StreamingQuery:
        runner.gate.apply({"reports": DROPPED})
        wait_for_slot(runner.gate.line)
        return begin(stage, frame, lone=lone)

    with pytest.MonkeyPatch.context() as patched, runner:
        patched.setattr(RunningStage, "start", start)
        runner.start()
        runner.process_all_available()
    return runner


def test_what_is_dropped_is_not_parsed(spark: SparkSession, tmp_path: Path, texts: Path) -> None:
    runner = run(spark, tmp_path / "run", spec(texts), InputRandom())
    lines = spark.read.text(str(texts))
    kept = lines.where(random_rank([F.col("value")], SALT) >= DROPPED)
    broken = kept.where(F.col("value").startswith("broken")).count()
    assert 0 < broken < BROKEN, "some of the broken ones were dropped unread"
    (total,) = summarise(tmp_path / "run" / "control")
    assert total.balanced
    assert (total.arrived, total.malformed) == (ROWS, broken)
    assert total.delivered == kept.count() - broken
    expected = kept.select(F.get_json_object("value", "$.car").cast("bigint"), F.get_json_object("value", "$.speed"))
    cars = sorted(row[0] for row in expected.collect() if row[1] is not None and float(row[1]) < 50)
    assert sorted(row["car"] for row in runner.sinks.tables["accidents"]) == cars


@pytest.mark.parametrize(
    ("key", "planner"), [("key: [car]", InputRandom()), ("", SemanticRoadMapPlanner())], ids=["by key", "by value"]
)
def test_drops_that_need_a_column_come_after_parsing(
    spark: SparkSession, tmp_path: Path, texts: Path, key: str, planner: Planner
) -> None:
    run(spark, tmp_path / "run", spec(texts, key), planner)
    (total,) = summarise(tmp_path / "run" / "control")
    assert total.balanced
    assert total.malformed == BROKEN, "all have been looked at"
