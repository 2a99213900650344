"""Stages that take turns under a master scheduler, on Spark."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamshed.engines.spark.ledger import summarise
from streamshed.engines.spark.runner import NetworkBatch, NetworkRunner
from streamshed.network import Spec, parse_spec
from streamshed.scheduling import Monitoring, OptimizerSettings
from tests.spark.streams import wait_for

ROWS = 6000
SPEC = """\
name: turns
streams:
  readings: {columns: {id: bigint, value: double}, source: {format: feeder, options: {OPTIONS}}}
operators:
  kept: {type: filter, input: readings, where: value >= 50, stage: true}
  high: {type: filter, input: kept, where: value >= 75}
outputs:
  alarms:
    input: high
    sink: {format: memory}
    qos: {goals: {latency_s: {points: [[0, GOAL]], priority: must satisfy}, mtre: 0.25}}
statistics: {costs: {kept: 1.0e-6, high: 1.0e-6}, selectivities: {kept: 0.5, high: 0.5}}
rates: {readings: 1000}
"""


def network(goal_s: float, options: str) -> Spec:
    return parse_spec(SPEC.replace("OPTIONS", options).replace("GOAL", f"{goal_s:g}"))


def test_turns_shedding_as_the_last_resort_and_a_prompt_end(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[NetworkBatch] = []
    goal_s = 0.01  # out of reach: it has to come to shedding
    with NetworkRunner(
        spark,
        network(goal_s, "rate_tps: 1000"),
        tmp_path,
        target_s=60.0,
        per_output=True,
        scheduler="optimizer",
        optimizer=OptimizerSettings(Monitoring(min_s=0.5, max_s=0.5, lookahead_s=0.1)),
        on_batch=batches.append,
    ) as runner:
        runner.start()
        scheduler = runner.scheduler
        assert scheduler is not None
        runs = [stage.query.runId for stage in runner.stages if stage.query is not None]
        wait_for(
            lambda: any(batch.counts.get("readings") and batch.counts["readings"].dropped for batch in batches), ""
        )
        assert [stage.query.runId for stage in runner.stages if stage.query is not None] == runs, "no restart"
        ended = sum(1 for batch in batches if batch.counts)
        assert scheduler.turns.given >= ended
        assert scheduler.capacities["kept"].selectivity == pytest.approx(0.5, abs=0.1), "as measured"

        hold, write = threading.Event(), runner.sinks.write
        runner.sinks.write = lambda batch, number: (hold.wait(60), write(batch, number))  # type: ignore[method-assign]
        wait_for(lambda: scheduler.turns.ready == ("kept",), "a stage to wait for the turn of the other one")
        waiting = runner.stages[0]
        begin_s = time.monotonic()
        waiting.stop()
        assert time.monotonic() - begin_s < 10.0, "it does not wait for a turn that may never come"
        assert not waiting.is_active
        hold.set()
    assert runner.failure is None
    first, *rest = scheduler.changes
    assert (first.before, first.after, first.shedding) == ("round-robin", "path-capacity", {})
    assert all(decision.after == "path-capacity" and decision.shedding == {"readings": 0.25} for decision in rest)
    assert scheduler.switches == {"alarms": 1}
    assert {batch.strategies["alarms"] for batch in batches} == {"round-robin", "path-capacity"}
    for batch in batches:
        counts = batch.counts.get("readings")
        assert counts is None or counts.dropped <= 0.25 * counts.arrived + 60, "never beyond the tolerable error"
    assert all(total.balanced for total in summarise(tmp_path / "control", "drop"))


def test_the_answers_are_the_same_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    options = f"rate_tps: 1000, paced: false, rows: {ROWS}, maxRowsPerBatch: 2000, epoch: 1700000000"
    with NetworkRunner(
        spark, network(60.0, options), tmp_path, target_s=60.0, shed=False, per_output=True, scheduler="segment"
    ) as runner:
        runner.start()
        runner.process_all_available()
    table = spark.read.format("feeder").options(rate_tps=1000, rows=ROWS, epoch=1700000000).load()
    expected = sorted(row.id for row in table.where("value >= 75").select("id").collect())
    assert sorted(row.id for row in runner.sinks.tables["alarms"]) == expected
    assert runner.failure is None
