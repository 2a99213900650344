"""A guarded job: drops that change while it runs, everything native behind them, every tuple accounted for."""

import os
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamshed.control import LoadSample
from streamshed.engines.spark.drops import random_rank
from streamshed.engines.spark.ledger import Ledger, LedgerRow
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.errors import InvalidValueError, StreamshedError, UnknownNameError
from streamshed.guard import Guard, GuardStatus
from streamshed.qos import Histogram, ValueGraph
from tests.spark.streams import add_file, read_stream, rows, wait_for, wait_for_slot


class Job:
    """A guard whose fraction the test sets, over a directory of files."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place
        self.input, self.directory = place / "in", place / "guard"
        self.input.mkdir(parents=True, exist_ok=True)
        self.guard = Guard(spark, 2.0, self.directory, tick_s=0)

    def drop(self, **fractions: float) -> None:
        """From the next batch on."""
        self.guard.gate.apply(fractions)
        wait_for_slot(self.guard.gate.line)

    def ledger(self) -> list[LedgerRow]:
        return Ledger(self.directory / "ledger").rows()

    def settled(self, batches: int) -> list[LedgerRow]:
        """The rows, once all batches are in."""
        wait_for(lambda: len(self.ledger()) >= batches, "the ledger")
        found = self.ledger()
        assert all(row.arrived == row.delivered + row.dropped + row.malformed for row in found)
        return found


def ranks(spark: SparkSession, frame: pd.DataFrame, key: list[str]) -> pd.Series:
    return spark.createDataFrame(frame).select(random_rank(key).alias("rank")).toPandas()["rank"]


def test_a_running_query_obeys_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    with job.guard as guard:
        events = guard.protect(read_stream(spark, job.input), key=["id"], arrival="arrival", name="cars")
        writer = events.writeStream.format("memory").queryName("kept_cars")
        query = guard.watch(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        fractions = [0.0, 0.5, 0.25, 1.0, 0.0]
        expected: list[int] = []
        for i, fraction in enumerate(fractions):
            job.drop(cars=fraction)
            frame = rows(1000, first=1000 * i)
            add_file(job.input, frame)
            query.processAllAvailable()
            expected += frame["id"][ranks(spark, frame, ["id"]) >= fraction].tolist()
        found = job.settled(len(fractions))
        plan = query._jsq.explainInternal(False)
        query.stop()
    kept = sorted(row["id"] for row in spark.table("kept_cars").collect())
    assert kept == sorted(expected)
    assert [row.fraction for row in found] == fractions
    assert [row.arrived for row in found] == [1000] * 5
    assert sum(row.delivered for row in found) == len(kept)
    assert [row.batch_id for row in found] == [0, 1, 2, 3, 4]
    assert found[0].sources[0]["end"] == {"logOffset": 0}
    assert "Python" not in plan
    (total,) = summarise(job.directory)
    assert total.key == "cars"
    assert total.arrived == 5000
    assert total.balanced
    sample = guard.status().samples["kept_cars"]
    assert sample.delay_p50_s is not None
    assert sample.time_s - sample.delay_p50_s == pytest.approx(
        pd.Timestamp("2024-01-01T00:00:04.5Z").timestamp(), abs=0.1
    )
    assert guard.error is None


@pytest.mark.parametrize("histogram", [Histogram.uniform(0, 100), None], ids=["told", "learnt"])
def test_value_drops_keep_the_best_and_unknown_values_and_malformed_rows_stay_out(
    spark: SparkSession, tmp_path: Path, histogram: Histogram | None
) -> None:
    job = Job(spark, tmp_path)
    with job.guard as guard:
        graph = ValueGraph.of("speed", [(0, 1.0), (20, 1.0), (20, 0.1), (100, 0.1)])
        events = guard.protect(
            read_stream(spark, job.input),
            key=["id"],
            value=graph,
            histogram=histogram,
            required=["car"],
            valid="id >= 0",
            name="cars",
        )
        query = guard.watch(
            events.groupBy(
                F.window("arrival", "1 second"), F.when(~F.isnan("speed"), F.col("speed") <= 20).alias("slow")
            )
            .count()
            .writeStream.format("memory")
            .queryName("by_speed")
            .outputMode("complete")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        if histogram is None:  # one batch tells how values are spread
            add_file(job.input, rows(2000, first=10_000))
            query.processAllAvailable()
            wait_for(lambda: bool(guard.status().samples), "the batch to be learnt from")
        order = guard._orders["cars"]
        job.drop(cars=order.threshold_of(0.75))
        assert guard.status().fractions["cars"] == pytest.approx(0.75, abs=0.01)
        frame = rows(2000)
        frame["car"] = frame["car"].astype("Int32")
        frame.loc[:99, "car"] = pd.NA
        frame.loc[100:149, "speed"] = float("nan")
        frame.loc[150:159, "id"] = -1
        add_file(job.input, frame)
        query.processAllAvailable()
        row = job.settled(1 if histogram is not None else 2)[-1]
        query.stop()
    well = frame.iloc[160:]
    counts = {
        row["slow"]: row["n"]
        for row in spark.sql(
            "select slow, sum(count) n from by_speed where window.start < '2024-01-01 00:00:05' group by slow"
        ).collect()
    }
    assert row.malformed == 110
    assert row.arrived == 2000
    assert counts[True] == (well["speed"] <= 20).sum(), "nothing that is worth more was dropped"
    assert counts[None] == 50, "what is not known is kept"
    assert sum(counts.values()) == row.delivered
    assert row.dropped == pytest.approx(0.75 * len(well), rel=0.05)


def test_partners_of_a_join_survive_together(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    (tmp_path / "other").mkdir()
    with job.guard as guard:
        left = guard.protect(read_stream(spark, job.input), key=["id"], name="left")
        right = guard.protect(
            read_stream(spark, tmp_path / "other").select(F.col("id").alias("partner"), F.col("arrival").alias("then")),
            key=["partner"],
            name="right",
        )
        joined = left.withWatermark("arrival", "10 seconds").join(
            right.withWatermark("then", "10 seconds"), F.expr("id = partner and arrival = then")
        )
        add_file(job.input, rows(1000))
        add_file(tmp_path / "other", rows(1000))
        job.drop(left=0.5, right=0.5)
        writer = joined.writeStream.format("memory").queryName("pairs")
        query = guard.watch(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())
        query.processAllAvailable()
        found = job.settled(2)
        query.stop()
    by_drop = {row.drop: row for row in found if row.arrived}
    pairs = spark.table("pairs").count()
    assert by_drop["left"].delivered == by_drop["right"].delivered == pairs
    assert 400 < pairs < 600


def flood(spark: SparkSession, place: Path) -> tuple[list[LoadSample], GuardStatus]:
    """Batch after batch until more than half of one is dropped; what they were like, and how things stood then."""
    samples: list[LoadSample] = []
    files = 0
    (place / "in").mkdir(exist_ok=True)
    # The source tells of a flood, so that the guard must drop as soon as it knows what a batch costs.
    with Guard(spark, 0.05, place / "guard", on_sample=lambda _, sample: samples.append(sample)) as guard:
        frame = read_stream(spark, place / "in")
        events = guard.protect(frame, key=["id"], arrival="arrival", name="cars", waiting=lambda _offset, _now: 1e7)
        writer = events.writeStream.format("noop").queryName("flood")
        query = guard.watch(writer.option("checkpointLocation", str(place / "checkpoint")).start())
        while not any(sample.kept < sample.arrived / 2 for sample in samples):
            assert files < 60, "no drop came"
            add_file(place / "in", rows(1000 * (1 + files % 3)))
            files += 1
            query.processAllAvailable()
            wait_for(lambda: len(samples) >= files, "a sample")  # noqa: B023
        status = guard.status()
        query.stop()
    return samples, status


def test_drops_come_by_themselves_and_sooner_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    samples, status = flood(spark, tmp_path)
    assert len(samples) > 4, "the first batches are for learning"
    assert all(sample.kept == sample.arrived for sample in samples[:4])
    assert status.costs["flood"] is not None
    assert status.samples["flood"] == samples[-1]
    (total,) = summarise(tmp_path / "guard", by="output")
    assert (total.key, total.batches) == ("flood", len(samples))
    assert total.arrived == sum(sample.arrived for sample in samples)
    assert total.delivered == sum(sample.kept for sample in samples)
    assert total.balanced
    again, _ = flood(spark, tmp_path)
    assert len(again) <= 4, "what batches cost is known from the last time"


def backfill(spark: SparkSession, place: Path, trigger: dict[str, bool], **options: bool) -> list[LedgerRow]:
    """A query that reads what is there and stops, over a stream of which everything was being dropped."""
    for number in range(3):
        add_file(place / "in", rows(1000, first=1000 * number))
    with Guard(spark, 2.0, place / "guard", tick_s=0, **options) as guard:  # type: ignore[arg-type]
        events = guard.protect(read_stream(spark, place / "in"), key=["id"], name="cars")
        guard.gate.apply({"cars": 1.0})
        wait_for_slot(guard.gate.line)
        writer = events.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint"))
        query = guard.watch(writer.trigger(**trigger).start())  # type: ignore[call-overload]
        guard.gate.apply({"cars": 1.0})  # somebody still wants it
        query.awaitTermination()
        wait_for(lambda: bool(Ledger(place / "guard" / "ledger").rows()), "the ledger")
    return Ledger(place / "guard" / "ledger").rows()


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_a_query_that_reads_what_is_there_and_stops_is_not_shed(
    spark: SparkSession, tmp_path: Path, trigger: str
) -> None:
    found = backfill(spark, tmp_path, {trigger: True})
    assert sum(row.arrived for row in found) > 0
    assert sum(row.dropped for row in found) == 0
    assert {row.fraction for row in found} == {0.0}


def test_such_a_query_is_shed_for_those_who_say_so(spark: SparkSession, tmp_path: Path) -> None:
    found = backfill(spark, tmp_path, {"availableNow": True}, shed_backfills=True)
    assert sum(row.arrived for row in found) == sum(row.dropped for row in found) == 3000


def test_a_query_that_dies_is_reported_and_the_ledger_is_intact(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(spark, tmp_path)
    with job.guard as guard:
        events = guard.protect(read_stream(spark, job.input), key=["id"], name="cars")
        broken = events.select(F.when(F.col("id") < 1000, F.col("id")).otherwise(F.raise_error(F.lit("kaputt"))))
        writer = broken.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = guard.watch(writer.start())
        add_file(job.input, rows(1000))
        query.processAllAvailable()
        add_file(job.input, rows(1000, first=1000))
        with pytest.raises(StreamingQueryException, match="kaputt"):
            query.processAllAvailable()
        wait_for(lambda: guard.error is not None, "the error")
        assert "kaputt" in str(guard.error)
        assert [row.arrived for row in job.ledger()] == [1000]


def test_bad_arguments_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    stream = read_stream(spark, tmp_path / "in")
    graph = ValueGraph.of("sped", [(0, 0), (1, 1)])
    with Guard(spark, 1.0, tmp_path / "guard", size=2, tick_s=0) as guard:
        for options in ({"key": ["idd"]}, {"arrival": "arival"}, {"required": ["carr"]}):
            with pytest.raises(UnknownNameError, match="did you mean"):
                guard.protect(stream, **options)  # type: ignore[arg-type]
        with pytest.raises(UnknownNameError, match="did you mean 'speed'"):
            guard.protect(stream, value=graph, histogram=Histogram.uniform(0, 1))
        with pytest.raises(InvalidValueError, match="no weights"):
            guard.protect(stream, value=ValueGraph.of("speed", [(0, 0), (1, 1)]), weighted=True)
        with pytest.raises(InvalidValueError, match="about numbers"):
            guard.protect(stream, value=ValueGraph.of("arrival", [(0, 0), (1, 1)]))
        with pytest.raises(InvalidValueError, match="streams"):
            guard.protect(spark.range(3))
        guard.protect(stream, name="a")
        with pytest.raises(InvalidValueError, match="name"):
            guard.protect(stream, name="a")
        guard.protect(stream, name="b")
        with pytest.raises(InvalidValueError, match="full"):
            guard.protect(stream, name="c")
        plain = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(StreamshedError, match="protects"):
            guard.watch(plain)
        plain.stop()
    with pytest.raises(InvalidValueError, match="target"):
        Guard(spark, 0, tmp_path / "guard")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_named(spark: SparkSession, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StreamshedError, match="cannot be written"):
        Guard(spark, 1.0, tmp_path / "guard")


def test_no_batch_is_compiled_anew(spark: SparkSession, tmp_path: Path) -> None:
    """The start of a batch, or a threshold, in generated code would make every batch run cold."""

    def compiled() -> int:
        return int(spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    with Guard(spark, 600.0, tmp_path / "guard", tick_s=0) as guard:
        frame = guard.protect(source, key=["value"], arrival="timestamp", name="s", weighted=True)
        query = guard.watch(frame.writeStream.format("noop").start())
        counts: list[int] = []
        for batch in range(8):
            wait_for(lambda: len(query.recentProgress) > batch + 1, "a batch")  # noqa: B023
            guard.gate.apply({"s": batch / 10})
            counts.append(compiled())
        query.stop()
    assert counts[-1] == counts[3], counts
