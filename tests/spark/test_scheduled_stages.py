"""Stages that take turns under a master scheduler, on Spark."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.engines.spark.connectors import ARRIVAL
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.network import Spec, parse_spec
from streamshed.scheduling import Monitoring, OptimizerSettings
from tests.polling import PATIENCE_S
from tests.spark.streams import add_file, read_stream, wait_for

ROWS = 4000
MTRE = 0.25
SPEC = """\
name: turns
streams:
  readings: {columns: {id: bigint, value: double}}
operators:
  kept: {type: filter, input: readings, where: value >= 50, stage: true}
  high: {type: filter, input: kept, where: value >= 75}
outputs:
  alarms:
    input: high
    sink: {format: memory}
    qos:
      goals:
        latency_s: {points: GOAL, priority: must satisfy}
        memory_bytes: {points: [[0, 1.0e+12]], priority: must satisfy}
        mtre: 0.25
statistics: {costs: {kept: 1.0e-6, high: 1.0e-6}, selectivities: {kept: 0.5, high: 0.5}}
rates: {readings: 1000}
"""


def network(goal: str) -> Spec:
    return parse_spec(SPEC.replace("GOAL", goal))


def readings(spark: SparkSession) -> DataFrame:
    """A thousand a second; a source inside the JVM starts sooner than the feeder."""
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    value = (F.pmod(F.xxhash64("value"), F.lit(1000)) / 10).alias("value")
    return ticks.select(F.col("value").alias("id"), value, F.col("timestamp").alias(ARRIVAL))


def test_strategies_first_then_shedding_until_the_goal_is_met_and_a_prompt_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches: list[NetworkBatch] = []
    goal = "[[0, 0.01], [15, 0.01], [15, 3600]]"  # out of reach, so that it has to come to shedding; then no trouble
    with NetworkRunner(
        spark,
        network(goal),
        tmp_path,
        read=lambda _: readings(spark),
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

        def losses() -> list[tuple[int, int]]:
            """What arrived and what was dropped, batch by batch."""
            counts = [batch.counts.get("readings") for batch in batches]
            return [(count.arrived, count.dropped) for count in counts if count is not None and count.arrived]

        wait_for(lambda: any(dropped for _, dropped in losses()), "drops")
        wait_for(lambda: not losses()[-1][1] and len(scheduler.changes) == 3, "the end of drops")
        assert [stage.query.runId for stage in runner.stages if stage.query is not None] == runs, "no restart"
        assert scheduler.turns.given >= sum(1 for batch in batches if batch.counts)
        # While a shedder is at work less is passed on; what is measured follows.
        wait_for(lambda: abs(scheduler.capacities["kept"].selectivity - 0.5) < 0.1, "the selectivity as it is")

        hold, let_go, write = threading.Event(), threading.Event(), runner.sinks.write

        def held(batch: DataFrame, batch_id: int) -> None:
            hold.wait(PATIENCE_S)
            let_go.set()
            write(batch, batch_id)

        runner.sinks.write = held  # type: ignore[method-assign]
        wait_for(lambda: scheduler.turns.ready == ("kept",), "a stage to wait for the turn of the other one")
        waiting = runner.stages[0]
        waiting.stop()
        assert not let_go.is_set(), "it does not wait for a turn that may never come"
        assert not waiting.is_active
        hold.set()
    assert runner.failure is None
    first, second, third = scheduler.changes
    assert (first.before, first.after, first.shedding) == ("simplified-segment", "path-capacity", {})
    assert (second.after, second.shedding) == ("path-capacity", {"readings": MTRE})
    assert max(second.scores.values()) == second.scores["path-capacity"], "no strategy is better"
    assert (third.after, third.shedding, third.violated) == ("path-capacity", {}, ()), "the goal is met"
    assert scheduler.switches == {"alarms": 1}
    assert {batch.strategies["alarms"] for batch in batches} == {"simplified-segment", "path-capacity"}
    shed = [(arrived, dropped) for arrived, dropped in losses() if dropped]
    assert sum(dropped for _, dropped in shed) <= MTRE * sum(arrived for arrived, _ in shed) + 60
    assert all(total.balanced for total in summarise(tmp_path / "control", "drop"))


def test_the_answers_are_the_same_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    ids = np.arange(ROWS)
    table = pd.DataFrame({"id": ids, "value": ids * 7919 % 1000 / 10})
    for part in (table[: ROWS // 2], table[ROWS // 2 :]):
        add_file(tmp_path / "readings", part)
    with NetworkRunner(
        spark,
        network("[[0, 60]]"),
        tmp_path / "run",
        target_s=60.0,
        shed=False,
        per_output=True,
        scheduler="segment",
        read=lambda _: read_stream(spark, tmp_path / "readings", "id bigint, value double"),
    ) as runner:
        runner.start()
        runner.process_all_available()
    assert sorted(row.id for row in runner.sinks.tables["alarms"]) == list(table[table.value >= 75].id)
    assert runner.failure is None
