"""`streamshed run` on Spark: a run that is stopped and goes on, and one that dies."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from streamshed.cli import app
from streamshed.engines.spark.ledger_totals import summarise
from tests.spark.streams import wait_for

SPEC = """\
name: tiny
streams:
  readings:
    columns: {{id: bigint, value: double}}
    source: {{format: feeder, options: {{{options}}}}}
operators:
  high: {{type: filter, input: readings, where: value >= 50}}
outputs:
  alarms: {{input: high, sink: {{format: memory}}}}
  shown: {{input: readings, sink: {{format: console}}}}
  kept: {{input: high}}
statistics: {{costs: {{high: 1.0e-6}}, selectivities: {{high: 0.5}}}}
rates: {{readings: 2000}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run"


def invoke(tmp_path: Path, options: str, *arguments: object) -> Result:
    file = tmp_path / "tiny.yaml"
    file.write_text(SPEC.format(options=options))
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["run", str(file), "--directory", str(tmp_path / "run"), *map(str, arguments)])


def interrupted_after_a_batch(place: Path, invoked: Callable[[], Result]) -> Result:
    """As by Ctrl-C, once the ledger has a batch more."""

    def batches() -> int:
        return sum(file.read_text().count('"kind":"batch"') for file in (place / "control" / "ledger").glob("*.jsonl"))

    def interrupt() -> None:
        wait_for(lambda: over.is_set() or batches() > before, "a batch in the ledger", seconds=280)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    over, before = threading.Event(), batches()
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        return invoked()
    finally:
        over.set()
        interrupter.join()


def read_json(file: Path) -> Any:
    return json.loads(file.read_text())


def test_a_run_that_is_interrupted_and_goes_on(spark: SparkSession, tmp_path: Path, place: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    options = f"generator: uniform, rate_tps: 2000, epoch: {time.time() - 5:.0f}"  # some tuples wait already
    first = interrupted_after_a_batch(
        place, lambda: invoke(tmp_path, options, "--json", tmp_path / "first.json", "--target", 5)
    )
    assert first.exit_code == 0, (first.output, first.exception)
    assert "batch 0" in first.output, "a line for where there is no terminal"
    assert "alarms: the last rows" in first.output
    assert "shown: the last rows" in first.output
    assert f"streamshed ledger {place / 'control'}" in first.output
    assert signal.getsignal(signal.SIGINT) is handler

    second = interrupted_after_a_batch(
        place, lambda: invoke(tmp_path, options, "--json", tmp_path / "second.json", "--no-shed")
    )
    assert second.exit_code == 0, (second.output, second.exception)

    documents = [read_json(tmp_path / name) for name in ("first.json", "second.json")]
    for document in documents:
        assert document["batches"] >= 1
        assert document["error"] is None
        assert document["p50_s"] <= document["p95_s"] <= document["p99_s"]
        for arc in document["arcs"].values():
            assert arc["arrived"] == arc["delivered"] + arc["dropped"] + arc["malformed"]
    assert [document["shed"] for document in documents] == [True, False]
    (total,) = summarise(place / "control")
    assert total.balanced
    assert total.arrived == sum(document["arcs"]["readings"]["arrived"] for document in documents)
    assert total.batches == sum(document["batches"] for document in documents), "the second goes on with the next batch"

    written = spark.read.option("recursiveFileLookup", "true").parquet(str(place / "outputs" / "kept"))
    assert written.count() > 0
    assert not spark.streams.active, "the session of another is left running, but nothing of ours in it"


def test_a_source_that_dies(spark: SparkSession, tmp_path: Path, place: Path) -> None:
    options = "generator: uniform, rate_tps: 2000, paced: false, rows: 9000, maxRowsPerBatch: 3000, failAt: 4000"
    result = invoke(tmp_path, options, "--json", tmp_path / "run.json")
    assert result.exit_code == 2
    assert "the query died" in result.stderr
    assert "the source died" in result.stderr
    assert "failAt=4000" in result.stderr
    assert "Traceback" not in result.stderr
    assert "\tat " not in result.stderr
    document = read_json(tmp_path / "run.json")
    assert document["batches"] == 1, "what was done is summed up all the same"
    assert "the source died" in document["error"]
    (total,) = summarise(place / "control")
    assert (total.arrived, total.balanced) == (3000, True)
    assert not spark.streams.active


def test_a_spec_that_spark_refuses(spark: SparkSession, tmp_path: Path) -> None:
    result = invoke(tmp_path, "generator: uniform, rate_tps: fast", "--seconds", 1)
    assert result.exit_code == 2
    assert "rate_tps" in result.stderr
    assert not spark.streams.active
