"""A network cut into stages, under control: the same answers, every tuple accounted for, no row twice."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.engines.spark.drops import random_rank
from streamshed.engines.spark.ledger import Ledger
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import SALT, NetworkRunner
from streamshed.engines.spark.stage import RunningStage
from streamshed.errors import NetworkError, StreamshedError
from streamshed.network import Connector, Spec, parse_spec
from streamshed.planning import RoadMapPlanner
from tests.spark.streams import wait_for, wait_for_slot

EXAMPLE = Path(__file__).parents[2] / "examples" / "staged-expressway.yaml"
ROWS = 24_000
SPEC = """\
name: staged
streams:
  reports:
    columns: {ts: timestamp, car: bigint, speed: double, lane: int, segment: int}
    time: ts
    source: {format: feeder}
operators:
  travelling: {type: filter, input: reports, where: lane != 4, stage: true}
  slow: {type: filter, input: travelling, where: speed < 20}
  traffic:
    {type: aggregate, input: travelling, window_s: 1, group_by: [segment], aggregates: {n: count(), v: max(speed)}}
outputs:
  accidents: {input: slow, sink: {format: memory}}
  tolls: {input: traffic, sink: {format: memory}}
statistics: {costs: {travelling: 1.0e-6, slow: 1.0e-6, traffic: 4.0e-6}, selectivities: {travelling: 0.95, slow: 0.07}}
rates: {reports: 4000}
"""
FEEDER = {
    "generator": "expressway",
    "seed": "5",
    "rate_tps": "4000",
    "paced": "false",
    "rows": str(ROWS),
    "maxRowsPerBatch": str(ROWS // 3),
    "eventTime": "arrival",
    "epoch": "1700000000",
}

MEMORY = Connector("memory")


def staged(*, marked: bool = True, sink: Connector | None = MEMORY, **options: object) -> Spec:
    spec = parse_spec(SPEC)
    network = spec.network
    fed = Connector("feeder", {**FEEDER, **{name: str(value) for name, value in options.items()}})
    operators = tuple(replace(op, stage=marked and op.id == "travelling") for op in network.operators)
    outputs = tuple(replace(output, sink=sink) for output in network.outputs)
    streams = (replace(network.streams[0], source=fed),)
    return replace(spec, network=replace(network, streams=streams, operators=operators, outputs=outputs))


@pytest.fixture(scope="module")
def truth(spark: SparkSession) -> DataFrame:
    """All reports, with the rank by which random drops go."""
    from streamshed.engines.spark.sources.feeder import register

    register(spark)
    columns = parse_spec(SPEC).network.streams[0].columns
    table = spark.read.format("feeder").options(**FEEDER).load()
    table = table.select(*(F.col(name).cast(kind).alias(name) for name, kind in columns.items()))
    return table.withColumn("rank", random_rank(list(columns), SALT)).cache()


def answers(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in rows)


def run(
    spark: SparkSession,
    directory: Path,
    spec: Spec,
    thresholds: Mapping[str, float] | None = None,
    **options: Any,
) -> tuple[NetworkRunner, list[NetworkBatch]]:
    """Run it until everything is through, with the same drops in all batches."""
    batches: list[NetworkBatch] = []
    runner = NetworkRunner(
        spark,
        spec,
        directory,
        target_s=2.0,
        planner=RoadMapPlanner(),
        shed=False,
        on_batch=batches.append,
        **options,
    )
    begin = RunningStage.start

    def start(stage: RunningStage, frame: DataFrame, *, lone: bool) -> Any:
        runner.gate.apply(thresholds or {})
        wait_for_slot(runner.gate.line)
        return begin(stage, frame, lone=lone)

    with pytest.MonkeyPatch.context() as patched, runner:
        patched.setattr(RunningStage, "start", start)
        runner.start()
        runner.process_all_available()
    return runner, batches


def by_drop(directory: Path) -> dict[str, tuple[int, int, int]]:
    totals = summarise(directory / "control", "drop")
    assert all(total.balanced for total in totals)
    return {total.key: (total.arrived, total.delivered, total.dropped) for total in totals}


def test_stages_give_what_one_query_gives(spark: SparkSession, tmp_path: Path, truth: DataFrame) -> None:
    single, _ = run(spark, tmp_path / "single", staged(marked=False))
    turns: list[str] = []
    lock = threading.Lock()

    def turn(stage: RunningStage) -> threading.Lock:
        turns.append(stage.id)
        return lock

    fused, batches = run(spark, tmp_path / "fused", staged(), turn=turn)
    apart, _ = run(spark, tmp_path / "apart", staged(), per_output=True)
    assert [stage.id for stage in fused.stages] == ["travelling", "all outputs"]
    assert [stage.id for stage in apart.stages] == ["travelling", "accidents", "tolls"]
    accidents, tolls = (answers(single.sinks.tables[output]) for output in ("accidents", "tolls"))
    assert len(accidents) == truth.where("lane != 4 AND speed < 20").count()
    assert len(tolls) > 100
    for other in (fused, apart):
        assert answers(other.sinks.tables["accidents"]) == accidents
        assert answers(other.sinks.tables["tolls"]) == tolls

    travelling = truth.where("lane != 4").count()
    assert by_drop(tmp_path / "fused") == {
        "reports": (ROWS, ROWS, 0),
        "arc travelling": (travelling, travelling, 0),
        "travelling->slow": (travelling, travelling, 0),
        "travelling->traffic": (travelling, travelling, 0),
    }
    assert by_drop(tmp_path / "apart")["arc travelling"][0] == 2 * travelling, "two stages read it"
    (stream,) = summarise(tmp_path / "apart" / "control")
    assert (stream.key, stream.arrived) == ("reports", ROWS)
    assert {total.key: total.arrived for total in summarise(tmp_path / "fused" / "control", "output")} == {
        "staged": travelling,
        "staged/travelling": ROWS,
    }

    # A batch at the end stands for what led to it; delays are those of tuples at the end.
    last = [batch for batch in batches if batch.stage == "all outputs" and batch.counts["arc travelling"].arrived]
    first = [batch for batch in batches if batch.stage == "travelling" and batch.arrived]
    assert sum(batch.arrived for batch in batches) == sum(batch.arrived for batch in first) == ROWS
    assert sum(batch.sample.arrived for batch in last) == ROWS
    assert all(batch.sample.kept == batch.sample.arrived for batch in last)
    own_s = sum(batch.sample.duration_s for batch in first)
    assert sum(batch.sample.duration_s for batch in last) > own_s
    assert all(batch.sample.delay_p95_s is None for batch in first)
    assert all((batch.sample.delay_p95_s or 0) > 1e6 for batch in last), "they arrived in 2023"
    assert all(batch.utilities == batch.utilities_of_loss == {} for batch in first), "their tuples go on"
    assert all(batch.utilities == {"accidents": 0.0, "tolls": 0.0} for batch in last), "nothing was lost, all is late"
    assert all(batch.utilities_of_loss == {"accidents": 1.0, "tolls": 1.0} for batch in last)
    assert turns.count("travelling") >= 3
    assert turns.count("all outputs") >= 1
    assert fused.stages[1].last is not None
    assert fused.stages[1].waiting_rows == fused.stages[1].waiting_bytes == 0


def test_drops_ahead_of_and_behind_a_durable_arc(spark: SparkSession, tmp_path: Path, truth: DataFrame) -> None:
    runner, batches = run(spark, tmp_path, staged(), {"reports": 0.5, "travelling->slow": 0.75})
    entered = truth.where("rank >= 0.5").count()
    on_arc = truth.where("rank >= 0.5 AND lane != 4").count()
    to_slow = truth.where("rank >= 0.75 AND lane != 4").count()
    assert by_drop(tmp_path) == {
        "reports": (ROWS, entered, ROWS - entered),
        "arc travelling": (on_arc, on_arc, 0),
        "travelling->slow": (on_arc, to_slow, on_arc - to_slow),
        "travelling->traffic": (on_arc, on_arc, 0),
    }
    expected = truth.where("rank >= 0.75 AND lane != 4 AND speed < 20").drop("rank")
    assert answers(runner.sinks.tables["accidents"]) == answers(expected.collect())
    assert all(batch.thresholds["travelling->slow"] == 0.75 for batch in batches)


def last_commit(checkpoint: Path) -> Path:
    return max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))


def test_going_on_after_crashes(spark: SparkSession, tmp_path: Path, truth: DataFrame) -> None:
    drops = {"reports": 0.25, "travelling->slow": 0.5}
    first, last = tmp_path / "stages" / "travelling" / "checkpoint", tmp_path / "checkpoint"
    run(spark, tmp_path, staged(sink=None, rows=ROWS // 3), drops)
    # Both stages had done their last batches, but not noted it: they do them again.
    last_commit(first).unlink()
    last_commit(last).unlink()
    run(spark, tmp_path, staged(sink=None, rows=ROWS * 2 // 3), drops)
    # A batch of the last stage was noted, but its report lost: it is counted again, from the arc.
    rows = Ledger(tmp_path / "control" / "ledger").rows()
    lost = max((row for row in rows if row.drop == "arc travelling" and row.arrived), key=lambda row: row.batch_id)
    ledger = tmp_path / "control" / "ledger" / f"{lost.query_id}.jsonl"
    kept = [line for line in ledger.read_text().splitlines() if f'"batch_id":{lost.batch_id},' not in line]
    ledger.write_text("\n".join(kept) + "\n")
    run(spark, tmp_path, staged(sink=None), drops)

    entered = truth.where("rank >= 0.25").count()
    on_arc = truth.where("rank >= 0.25 AND lane != 4").count()
    counted = by_drop(tmp_path)
    assert counted["reports"] == (ROWS, entered, ROWS - entered)
    assert counted["arc travelling"] == (on_arc, on_arc, 0)
    assert counted["travelling->slow"][0] == on_arc - lost.arrived, "drops further in are not counted again"
    written = spark.read.parquet(f"{tmp_path}/outputs/accidents/batch-*")
    expected = truth.where("rank >= 0.5 AND lane != 4 AND speed < 20").drop("rank")
    assert answers(written.collect()) == answers(expected.collect())

    on_disk = sorted(path.name for path in (tmp_path / "stages" / "travelling" / "arc").glob("batch-*"))
    assert on_disk == ["batch-000000000001", "batch-000000000002"], "but the first; the second had to be counted again"

    with (
        pytest.raises(NetworkError, match="other stages") as error,
        NetworkRunner(spark, staged(), tmp_path, target_s=2.0, per_output=True) as other,
    ):
        other.start()
    assert "'travelling', 'all outputs'" in str(error.value)
    assert not spark.streams.active


@pytest.mark.parametrize("dying", ["travelling", "all outputs"])
def test_a_stage_that_dies_stops_the_others(
    spark: SparkSession, tmp_path: Path, dying: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for_death(stage: RunningStage, _: float) -> None:
        if stage.id == dying:  # before the next one is started
            wait_for(lambda: not stage.is_active, "it to die")

    monkeypatch.setattr(RunningStage, "wait_for_sources", wait_for_death)

    def turn(stage: RunningStage) -> Any:
        if stage.id == dying:
            raise RuntimeError("no turn for me")
        return nullcontext()

    with NetworkRunner(spark, staged(paced="true"), tmp_path, target_s=2.0, turn=turn) as runner:
        runner.start()
        wait_for(lambda: not any(stage.is_active for stage in runner.stages), "all stages to end")
        failure = runner.failure
    assert failure is not None
    assert f"stage {dying!r}" in str(failure)
    assert "no turn for me" in str(failure)


def test_an_arc_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "stages").write_text("in the way")
    with pytest.raises(StreamshedError, match="durable arc cannot be written") as error:
        NetworkRunner(spark, staged(), tmp_path, target_s=2.0)
    assert "stage 'travelling'" in str(error.value)


def test_drops_behind_operators_that_leave_the_key_out(spark: SparkSession, tmp_path: Path) -> None:
    spec = staged(rows=0)
    operators = tuple(replace(op, stage=op.id == "traffic") for op in spec.network.operators)
    outputs = (*spec.network.outputs, replace(spec.network.outputs[1], id="again"))
    spec = replace(spec, network=replace(spec.network, operators=operators, outputs=outputs))
    with NetworkRunner(spark, spec, tmp_path, target_s=2.0, planner=RoadMapPlanner()) as runner:
        runner.start()
        assert runner.is_active
        assert {"traffic->tolls", "traffic->again"} <= runner.gate.fractions.keys()
        assert not any(stage.failure for stage in runner.stages)


def test_the_example_runs_from_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    def interrupt() -> None:
        rows = lambda: "".join(file.read_text() for file in (tmp_path / "run/control/ledger").glob("*.jsonl"))  # noqa: E731
        wait_for(lambda: over.is_set() or '"drop":"arc located"' in rows(), "a batch of the last stage", seconds=280)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)  # as by Ctrl-C

    over, interrupter = threading.Event(), threading.Thread(target=interrupt)
    interrupter.start()
    try:
        told = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}).invoke(
            app, ["run", str(EXAMPLE), "--directory", str(tmp_path / "run"), "--json", str(tmp_path / "run.json")]
        )
    finally:
        over.set()
        interrupter.join()
    assert told.exit_code == 0, (told.output, told.exception)
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["arcs"]["arc located"]["arrived"] > 0
    assert document["arrived"] == document["arcs"]["reports"]["arrived"] > 0
    assert document["p95_s"] > 0
    assert all(total.balanced for total in summarise(tmp_path / "run" / "control", "drop"))
    assert not spark.streams.active
