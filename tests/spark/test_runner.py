"""A network as one query under control: what is dropped, what reaches the outputs, what the ledger says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from streamshed.engines.spark.ledger_totals import summarise
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.network import Connector, Spec, load_spec
from streamshed.planning import Planner, RoadMapPlanner, SemanticRoadMapPlanner
from streamshed.workload import Expressway
from tests.spark.streams import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "expressway.yaml"
ROWS = 40_000
ARCS = ("reports", "reports->slow", "reports->travelling")


def expressway(**sinks: str) -> Spec:
    """The example, fed with a fixed number of reports as fast as it goes; single reports are dropped, not cars."""
    spec = load_spec(EXAMPLE)
    options = {
        "generator": "expressway",
        "expressways": "2",
        "seed": "5",
        "pattern": "constant",
        "rate_tps": "4000",
        "paced": "false",
        "rows": str(ROWS),
        "maxRowsPerBatch": str(ROWS // 2),
        "eventTime": "arrival",
        "epoch": "1700000000",
    }
    stream = replace(spec.network.streams[0], source=Connector("feeder", options), key=())
    outputs = tuple(replace(output, sink=Connector(sinks.get(output.id, "noop"))) for output in spec.network.outputs)
    network = replace(spec.network, streams=(stream,), outputs=outputs)
    return Spec(network, spec.statistics, spec.rates, spec.capacity)


def thresholds(runner: NetworkRunner, shares: dict[str, float]) -> dict[str, float]:
    """Those that drop a share of an arc's tuples, by value where its location goes by value."""
    places = {place.arc: place for place in runner.manager.locations}
    return {
        arc: share if places[arc].column is None else places[arc].threshold_of(share) for arc, share in shares.items()
    }


@pytest.fixture(scope="module")
def speeds() -> np.ndarray:
    return np.asarray(Expressway(expressways=2).generate(0, ROWS, seed=5)["speed"])


def run(
    spark: SparkSession, tmp_path: Path, planner: Planner, shares: dict[str, float], **sinks: str
) -> tuple[NetworkRunner, list[NetworkBatch], str, int]:
    """The runner, with shares dropped by arc, its batches, its physical plan, and how many rows Spark's scans read."""
    batches: list[NetworkBatch] = []
    runner = NetworkRunner(
        spark, expressway(**sinks), tmp_path, target_s=2.0, planner=planner, shed=False, on_batch=batches.append
    )
    with runner:
        runner.start()
        runner.gate.apply(thresholds(runner, shares))
        runner.process_all_available()
        query = runner.stages[0].query
        assert query is not None
        plan = str(query._jsq.streamingQuery().lastExecution().executedPlan().toString())
        scanned = sum(progress.numInputRows for progress in query.recentProgress)
    return runner, batches, plan, scanned


def test_everything_flows_and_the_stream_is_read_once(spark: SparkSession, tmp_path: Path, speeds: np.ndarray) -> None:
    runner, batches, plan, scanned = run(
        spark, tmp_path, SemanticRoadMapPlanner(), {}, accidents="memory", tolls="memory"
    )
    assert sum(batch.counts["reports"].arrived for batch in batches) == ROWS
    for arc in ARCS:
        assert sum(batch.counts[arc].kept for batch in batches) == ROWS
    assert scanned == ROWS, "two readers share one scan; each on its own would read everything"
    assert "Python" not in plan.replace("(Python)", ""), "no Python on the data path but the source itself"
    got = sorted(row["speed"] for row in runner.sinks.tables["accidents"])
    assert got == sorted(speeds[speeds < 20])
    assert all(row["cars"] > 0 for row in runner.sinks.tables["tolls"])
    (total,) = summarise(tmp_path / "control")
    assert (total.arrived, total.delivered, total.dropped, total.balanced) == (ROWS, ROWS, 0, True)


@pytest.mark.parametrize("planner", [SemanticRoadMapPlanner(), RoadMapPlanner()], ids=["by value", "random"])
def test_stopped_cars_survive_drops_by_value_and_not_random_ones(
    spark: SparkSession, tmp_path: Path, speeds: np.ndarray, planner: Planner
) -> None:
    """With 95 % of the reports dropped ahead of `accidents`, all stopped cars arrive, or one in twenty."""
    runner, batches, _, _ = run(spark, tmp_path, planner, {"reports->slow": 0.95}, accidents="memory")
    obeyed = [batch for batch in batches if batch.thresholds["reports->slow"] > 0]
    assert obeyed, "the thresholds came too late for every batch"
    first = ROWS - sum(batch.counts["reports"].arrived for batch in obeyed)
    arrived = [batch.counts["reports->slow"] for batch in obeyed]
    dropped = sum(count.dropped for count in arrived) / sum(count.arrived for count in arrived)
    assert dropped == pytest.approx(0.95, abs=0.02)
    stopped = int((speeds[first:] == 0).sum())
    before = int((speeds[:first] == 0).sum())
    delivered = sum(row["speed"] == 0 for row in runner.sinks.tables["accidents"]) - before
    share = delivered / stopped
    assert share >= 0.99 if planner.name == "semantic" else share < 0.15
    (total,) = summarise(tmp_path / "control")
    assert total.balanced


def test_what_no_reader_keeps_is_dropped_at_the_entry(spark: SparkSession, tmp_path: Path, speeds: np.ndarray) -> None:
    shares = {"reports->slow": 0.75, "reports->travelling": 0.5}
    runner, batches, _, _ = run(spark, tmp_path, RoadMapPlanner(), shares, accidents="memory")
    obeyed = [batch for batch in batches if batch.thresholds["reports->slow"] > 0]
    assert obeyed, "the thresholds came too late for every batch"
    entry, slow, travelling = ([batch.counts[arc] for batch in obeyed] for arc in ARCS)
    for at_entry, at_slow, at_travelling in zip(entry, slow, travelling, strict=True):
        # One hash for all: whatever the stricter drop keeps, the other one keeps as well.
        assert at_entry.kept == at_travelling.arrived == at_travelling.kept == at_slow.arrived
        assert at_entry.kept == pytest.approx(0.5 * at_entry.arrived, rel=0.03)
        assert at_slow.kept == pytest.approx(0.25 * at_entry.arrived, rel=0.05)
    delivered = len(runner.sinks.tables["accidents"])
    first = ROWS - sum(count.arrived for count in entry)
    wanted = int((speeds[:first] < 20).sum()) + 0.25 * int((speeds[first:] < 20).sum())
    assert delivered == pytest.approx(wanted, rel=0.15)
    (total,) = summarise(tmp_path / "control")
    assert total.balanced
    assert total.dropped == sum(count.dropped for count in entry)


def test_values_of_which_the_spec_says_nothing_are_learnt(
    spark: SparkSession, tmp_path: Path, speeds: np.ndarray
) -> None:
    """By value from the first batch on that was planned with what the ones before it held."""
    known = expressway(accidents="memory")
    (stream,) = known.network.streams
    assert stream.source is not None
    small = replace(stream.source, options={**stream.source.options, "maxRowsPerBatch": str(ROWS // 8)})
    network = replace(known.network, streams=(replace(stream, source=small),))
    spec = replace(known, network=network, statistics=replace(known.statistics, histograms={}))
    batches: list[NetworkBatch] = []
    runner = NetworkRunner(spark, spec, tmp_path, target_s=2.0, shed=False, on_batch=batches.append)
    assert runner.notes == ["How reports.speed is spread is not known; it is learnt from the stream."]
    with runner:
        runner.start()
        wait_for(lambda: bool(batches), "a batch")
        (slow,) = (place for place in runner.manager.locations if place.arc == "reports->slow")
        assert slow.order[0].cell.low == 20.0
        assert slow.order[0].share == pytest.approx((speeds > 20).mean(), abs=0.05)
        runner.gate.apply(thresholds(runner, {"reports->slow": 0.95}))
        runner.process_all_available()
    obeyed = [batch for batch in batches if batch.thresholds["reports->slow"] > 0]
    assert obeyed, "the thresholds came too late for every batch"
    first = ROWS - sum(batch.counts["reports"].arrived for batch in obeyed)
    counts = [batch.counts["reports->slow"] for batch in obeyed]
    dropped = sum(count.dropped for count in counts) / sum(count.arrived for count in counts)
    assert dropped == pytest.approx(0.95, abs=0.03)
    stopped = [int((part == 0).sum()) for part in (speeds[:first], speeds[first:])]
    delivered = sum(row["speed"] == 0 for row in runner.sinks.tables["accidents"])
    assert delivered == sum(stopped), "those that matter most, all of them"
