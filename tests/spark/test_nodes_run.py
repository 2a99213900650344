"""Two nodes of a network, joined by a durable arc: every tuple accounted for, and tables that are obeyed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from streamshed.control import CostEstimator, PlantController
from streamshed.coordination import measured_model, table_for_parent
from streamshed.distributed.arc_files import ArcFiles, Inbox
from streamshed.distributed.cutting import topology_of
from streamshed.distributed.exchange import TableDirectory
from streamshed.distributed.feasible_input.wire import encode, whole
from streamshed.distributed.scores import Throughput
from streamshed.engines.spark.ledger_totals import Total, summarise
from streamshed.engines.spark.node import NodeRunner
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.stage import RunningStage
from streamshed.estimates import WEIGHT, WEIGHT_BEFORE, with_weight
from streamshed.network import Connector, Spec, parse_spec
from tests.spark.streams import wait_for, wait_for_slot

ROWS = 12_000
SPEC = """\
name: chain
streams:
  reports:
    columns: {ts: timestamp, car: bigint, speed: double, lane: int, segment: int}
    time: ts
    source: {format: feeder}
operators:
  travelling: {type: filter, input: reports, where: lane != 4}
  slow: {type: filter, input: travelling, where: speed < 20}
outputs:
  accidents: {input: slow}
statistics: {costs: {travelling: 1.0e-5, slow: 5.0e-5}, selectivities: {travelling: 0.95, slow: 0.07}}
rates: {reports: 4000}
nodes:
  edge: {operators: [travelling]}
  core: {operators: [slow]}
"""
FEEDER = {
    "generator": "expressway",
    "seed": "5",
    "rate_tps": "2000",
    "paced": "false",
    "rows": str(ROWS),
    "maxRowsPerBatch": str(ROWS // 2),
    "eventTime": "arrival",
    "epoch": "1700000000",
}


def fed(**options: str) -> Spec:
    spec = parse_spec(SPEC)
    stream = replace(spec.network.streams[0], source=Connector("feeder", {**FEEDER, **options}))
    return replace(spec, network=replace(spec.network, streams=(stream,)))


@contextmanager
def dropping(monkeypatch: pytest.MonkeyPatch, runner: NetworkRunner, drops: dict[str, float]) -> Iterator[None]:
    """Drops that hold from the first batch on."""
    begin = RunningStage.start

    def start(stage: RunningStage, frame: DataFrame, *, lone: bool) -> StreamingQuery:
        runner.gate.apply(drops)
        wait_for_slot(runner.gate.line)
        return begin(stage, frame, lone=lone)

    with monkeypatch.context() as patched:
        patched.setattr(RunningStage, "start", start)
        yield


def ledger(place: Path, name: str) -> dict[str, Total]:
    totals = summarise(place / "nodes" / name / "control")
    assert all(total.balanced for total in totals)
    return {total.key: total for total in totals}


@pytest.mark.parametrize("at_once", [True, False], ids=["batch by batch", "all in one batch"])
def test_a_chain_of_two_nodes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Half of the tuples are dropped upstream, and half of the rest downstream, by other ranks."""
    spec = fed()
    arc = ArcFiles(tmp_path / "arcs", "travelling-core")
    with (
        NodeRunner(spark, spec, "edge", tmp_path, target_s=4.0, shed=False) as edge,
        NodeRunner(spark, spec, "core", tmp_path, target_s=4.0, shed=False) as core,
    ):
        with dropping(monkeypatch, edge.runner, {"reports": 0.5}):
            edge.start()
        if not at_once:
            edge.runner.process_all_available()
        with dropping(monkeypatch, core.runner, {"travelling": 0.5}):
            core.start()
        edge.runner.process_all_available()
        core.runner.process_all_available()
    reports, travelling = ledger(tmp_path, "edge")["reports"], ledger(tmp_path, "core")["travelling"]
    assert reports.arrived == ROWS
    assert reports.delivered == pytest.approx(ROWS / 2, rel=0.05)
    assert arc.written_rows() == pytest.approx(0.95 * ROWS / 2, rel=0.1)
    assert travelling.arrived == arc.written_rows()
    assert travelling.delivered == pytest.approx(travelling.arrived / 2, rel=0.05), "independent of the drop before"
    assert (arc.finished(), Inbox(arc).waiting_rows()) == (arc.batches()[-1], 0)
    outputs = f"{tmp_path}/nodes/core/outputs/accidents/batch-*"
    before = sorted(map(tuple, spark.read.parquet(outputs).collect()))
    assert spark.read.parquet(outputs).columns == ["ts", "car", "speed", "lane", "segment"], (
        "nothing that travelled along"
    )

    # The core had done its last batch, but not noted it: it does it again, and neither counts nor writes it twice.
    commits = tmp_path / "nodes" / "core" / "checkpoint" / "commits"
    max(commits.glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    with (
        NodeRunner(spark, spec, "core", tmp_path, target_s=4.0, shed=False) as core,
        dropping(monkeypatch, core.runner, {"travelling": 0.5}),
    ):
        core.start()
        core.runner.process_all_available()
    again = ledger(tmp_path, "core")["travelling"]
    assert (again.arrived, again.delivered) == (travelling.arrived, travelling.delivered)
    assert sorted(map(tuple, spark.read.parquet(outputs).collect())) == before


def test_weights_from_another_application_are_multiplied(spark: SparkSession) -> None:
    brought = spark.createDataFrame([(1, 4.0)], f"v int, {WEIGHT} double").withColumn(WEIGHT_BEFORE, F.col(WEIGHT))
    entered = with_weight(brought, F.lit(0.5), nested=True)
    inside = with_weight(with_weight(entered, F.lit(0.8), nested=True), F.lit(0.25), nested=True)
    assert [row[WEIGHT] for row in (*entered.collect(), *inside.collect())] == [8.0, 16.0]


def test_a_node_obeys_a_table_until_it_is_stale(spark: SparkSession, tmp_path: Path) -> None:
    spec = fed(paced="true", epoch=f"{time.time():.3f}", rows=str(10**9), maxRowsPerBatch=str(10**6))
    model = topology_of(spec).node["core"]
    rates = {"core/travelling": 1900.0}
    table = table_for_parent(measured_model(model, rates, 475.0), Throughput(), {}, rates, frozenset(rates))
    believing = PlantController(4.0, CostEstimator(warmup=1000))  # its spec, however long the first batches take here
    with NodeRunner(spark, spec, "edge", tmp_path, target_s=8.0, controller=believing, stale_after_s=30.0) as edge:
        edge.start()
        wait_for(lambda: edge.rates.tps.get("reports", 0) > 0, "two batches of the edge")
        assert edge.runner.gate.fractions["reports"] == 0.0
        TableDirectory(tmp_path / "tables" / "edge").publish("core", encode(whole(table, 1, time.time())))
        wait_for(lambda: edge.runner.gate.fractions["reports"] > 0.5, "the edge to shed for the core")
        wait_for(lambda: ledger(tmp_path, "edge")["reports"].dropped > 0, "a batch with drops")
        assert edge.mailbox.ages_s(time.time())["core"] is not None
        edge.tick(time.time() + 60.0)  # nothing was heard for a minute
        edge.runner.gate.tick(time.time())
        assert edge.runner.gate.fractions["reports"] == 0.0
    total = ledger(tmp_path, "edge")["reports"]
    assert total.arrived == total.delivered + total.dropped
