"""The ledger across lost reports, skipped replays, kill -9 and restart: exact to the tuple."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamshed.engines.spark.drops import random_rank
from streamshed.engines.spark.ledger import Ledger, LedgerRow
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.guard import Guard
from tests.spark.streams import add_file, read_stream, rows, wait_for, wait_for_slot

ROOT = Path(__file__).parents[2]
ROWS = 500


def row(batch_id: int, dropped: int, **changes: object) -> LedgerRow:
    values = {
        "query_id": "q",
        "run_id": "r",
        "output": "out",
        "batch_id": batch_id,
        "drop": "cars",
        "stream": "cars",
        "entry": True,
        "time_ms": 60_000 * batch_id,
        "arrived": 100,
        "delivered": 100 - dropped,
        "dropped": dropped,
        "malformed": 0,
        "fraction": dropped / 100,
        "salt": 0,
    }
    return LedgerRow(**{**values, **changes})  # type: ignore[arg-type]


def test_the_last_row_of_a_batch_counts_and_torn_lines_do_not(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.add([row(0, 0), row(1, 30)])
    with (tmp_path / "ledger" / "q.jsonl").open("a") as file:
        file.write('{"kind":"batch","query_id":"q","batch')
    again = Ledger(tmp_path / "ledger")
    again.add([row(1, 40), row(2, 50), row(2, 10, drop="later", entry=False)])
    assert [(r.batch_id, r.dropped) for r in again.rows()] == [(0, 0), (1, 40), (2, 50), (2, 10)]
    (total,) = summarise(tmp_path)
    assert (total.key, total.batches, total.arrived, total.delivered, total.dropped) == ("cars", 3, 300, 210, 90)
    assert total.balanced
    assert [t.key for t in summarise(tmp_path, by="drop")] == ["cars", "later"]
    assert [t.key for t in summarise(tmp_path, by="time")] == [f"1970-01-01 00:0{i}" for i in range(3)]
    again.open_batch("q", 7)
    (total,) = summarise(tmp_path, by="output")
    assert total.open == 1
    assert not total.balanced


def test_no_ledger_and_no_such_sum(tmp_path: Path) -> None:
    with pytest.raises(StreamshedError, match="no ledger"):
        summarise(tmp_path)
    Ledger(tmp_path).add([row(0, 0)])
    with pytest.raises(InvalidValueError, match="summed"):
        summarise(tmp_path, by="colour")  # type: ignore[arg-type]


def run_guarded(spark: SparkSession, place: Path, fractions: list[float]) -> None:
    """One file and one batch for each fraction, into a file sink."""
    with Guard(spark, 1.0, place / "guard", tick_s=0) as guard:
        events = guard.protect(read_stream(spark, place / "in"), key=["id"], name="cars", required=["speed"])
        writer = events.writeStream.format("parquet").option("path", str(place / "out"))
        query = guard.watch(writer.option("checkpointLocation", str(place / "checkpoint")).start())
        query.processAllAvailable()
        for fraction in fractions:
            guard.gate.apply({"cars": fraction})
            wait_for_slot(guard.gate.line)
            add_file(place / "in", rows(ROWS, first=ROWS * len(list((place / "in").glob("*.parquet")))))
            query.processAllAvailable()
        ledger = Ledger(place / "guard" / "ledger")
        files = len(list((place / "in").glob("*.parquet")))
        wait_for(lambda: len(ledger.rows()) == files, "the ledger")
        query.stop()
        wait_for(lambda: guard.settle() == [], "all batches to be settled")


def test_lost_reports_and_skipped_replays_are_counted_again(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    run_guarded(spark, tmp_path, [0.25, 0.5, 0.75])
    before = Ledger(tmp_path / "guard" / "ledger").rows()
    assert [r.fraction for r in before] == [0.25, 0.5, 0.75]
    # The driver died: the reports of two batches were lost, and the last one was not committed, though the sink had it.
    (path,) = (tmp_path / "guard" / "ledger").glob("*.jsonl")
    kept = [line for line in path.read_text().splitlines() if json.loads(line).get("batch_id") not in (1, 2)]
    path.write_text("\n".join(kept) + "\n")
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    run_guarded(spark, tmp_path, [0.0])
    after = Ledger(tmp_path / "guard" / "ledger").rows()
    assert [(r.fraction, r.arrived, r.dropped) for r in after[:3]] == [
        (r.fraction, r.arrived, r.dropped) for r in before
    ]
    assert [r.recounted for r in after] == [False, True, True, False]
    (total,) = summarise(tmp_path / "guard")
    assert total.balanced
    assert total.arrived == 4 * ROWS
    assert total.delivered == spark.read.parquet(str(tmp_path / "out")).count()


def test_a_replayed_batch_drops_the_same_tuples(spark: SparkSession, tmp_path: Path) -> None:
    """Even into a sink that knows nothing of batches: here one that only sees what is replayed."""
    (tmp_path / "in").mkdir()
    run_guarded(spark, tmp_path, [0.5, 0.75])
    first = {r.batch_id: r for r in Ledger(tmp_path / "guard" / "ledger").rows()}
    out = spark.read.parquet(str(tmp_path / "out")).where(F.col("id") >= ROWS)
    expected = sorted(r["id"] for r in out.collect())
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    with Guard(spark, 1.0, tmp_path / "guard", tick_s=0) as guard:
        events = guard.protect(read_stream(spark, tmp_path / "in"), key=["id"], name="cars", required=["speed"])
        seen: list[int] = []
        query = guard.watch(
            events.writeStream.foreachBatch(lambda frame, _: seen.extend(r["id"] for r in frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()
    assert sorted(seen) == expected
    again = {r.batch_id: r for r in Ledger(tmp_path / "guard" / "ledger").rows()}
    assert again[1].dropped == first[1].dropped
    assert again[1].fraction == 0.75


def start_job(place: Path, master: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.guarded_job", str(place), master],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(job: subprocess.Popen[str]) -> None:
    output, _ = job.communicate(timeout=240)
    assert job.returncode == 0, output
    assert "left open: []" in output


def offset(row: LedgerRow, which: str) -> int:
    """The number of the last file before a batch, or of its last; -1 if there is none."""
    (source,) = row.sources
    given = source[which]
    return -1 if given is None else int((json.loads(given) if isinstance(given, str) else given)["logOffset"])


def check_against_output(spark: SparkSession, place: Path, files: int) -> None:
    """What a batch should have kept can be computed from its row in the ledger, which tells the files that it read.

    It is one file, but for a batch that was killed after Spark had noted its file, and before its end: then it goes on
    with the next file, too.
    """
    found = Ledger(place / "guard" / "ledger").rows()
    assert [r.batch_id for r in found] == list(range(len(found)))
    of_file = {file: r.fraction for r in found for file in range(offset(r, "start") + 1, offset(r, "end") + 1)}
    assert list(of_file) == list(range(files))
    source = spark.read.parquet(str(place / "in")).select("id", random_rank(["id"]).alias("rank")).toPandas()
    expected = source[source["rank"] >= (source["id"] // ROWS).map(pd.Series(of_file))]
    out = sorted(r["id"] for r in spark.read.parquet(str(place / "out")).collect())
    assert len(out) == len(set(out)), "an output row came twice"
    assert out == sorted(expected["id"])
    (total,) = summarise(place / "guard")
    assert total.balanced
    assert total.arrived == files * ROWS
    assert total.delivered == len(out)
    assert 0 < total.dropped < total.arrived


def test_kill_9_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    files = 24
    for i in range(files):
        add_file(tmp_path / "in", rows(ROWS, first=ROWS * i))
    ledger = Ledger(tmp_path / "guard" / "ledger")
    job = start_job(tmp_path, "local[2]")
    try:
        wait_for(lambda: len(ledger.rows()) >= 4 or job.poll() is not None, "some batches")
        assert job.poll() is None, job.communicate()[0]
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
    assert len(ledger.rows()) < files
    finish(start_job(tmp_path, "local[2]"))
    check_against_output(spark, tmp_path, files)


@pytest.mark.slow
def test_on_a_cluster_of_processes(spark: SparkSession, tmp_path: Path) -> None:
    files = 8
    for i in range(files):
        add_file(tmp_path / "in", rows(ROWS, first=ROWS * i))
    finish(start_job(tmp_path, "local-cluster[2,1,1024]"))
    check_against_output(spark, tmp_path, files)
