"""The feeder in a running query: exactly the rows it says, also over a restart."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from streamshed.engines.spark.sources.feeder import (
    FeederClock,
    FeederSettings,
    FeederStreamReader,
    read_feeder,
    register,
)
from streamshed.errors import InvalidValueError, UnknownNameError
from streamshed.workload import Expressway, Json, Uniform

EPOCH = 1_700_000_000
HOUR = {"epoch": str(EPOCH), "pattern": "constant", "rate_tps": "1000"}


def start(frame: DataFrame, where: Path, **trigger: bool) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(where / "checkpoint"))
    return writer.trigger(**trigger).start(str(where / "out")) if trigger else writer.start(str(where / "out"))


def run_now(frame: DataFrame, where: Path) -> StreamingQuery:
    query = start(frame, where, availableNow=True)
    assert query.awaitTermination(120)
    return query


def poll(query: StreamingQuery, until: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, query.lastProgress
        assert not query.awaitTermination(0.1), "the query ended"


def arrow(frame: DataFrame, order: str) -> pa.Table:
    return frame.orderBy(order).toArrow()


def test_a_stream_has_exactly_the_generated_rows(spark: SparkSession, tmp_path: Path) -> None:
    options = {**HOUR, "generator": "expressway", "cars": "200", "seed": "9", "paced": "false", "rows": "50000"}
    query = run_now(read_feeder(spark, {**options, "maxRowsPerBatch": "20000"}), tmp_path)
    assert [progress.numInputRows for progress in query.recentProgress][:3] == [20_000, 20_000, 10_000]

    read = arrow(spark.read.parquet(str(tmp_path / "out")), "arrival")
    expected = Expressway(cars=200).generate(0, 50_000, seed=9)
    assert read["arrival"].cast(pa.int64()).to_pylist() == [EPOCH * 10**6 + 1000 * (i + 1) for i in range(50_000)]
    for name in expected.schema.names:
        assert read[name].combine_chunks().equals(expected[name]), name


def test_a_batch_has_several_partitions_and_any_range_can_be_read_again(spark: SparkSession) -> None:
    register(spark)
    reader = spark.read.format("feeder").options(**HOUR, generator="uniform", seed="3", partitions="3")
    frame = reader.options(startIndex="1000", rows="4000").load()
    assert frame.rdd.getNumPartitions() == 3
    read = arrow(frame, "id")
    expected = Uniform().generate(1000, 4000, seed=3)
    assert read["id"].to_pylist() == list(range(1000, 4000))
    assert read["value"].combine_chunks().equals(expected["value"])
    assert reader.options(startIndex="0", rows="0").load().count() == 0


def test_a_restart_leaves_no_gap_and_repeats_nothing(spark: SparkSession, tmp_path: Path) -> None:
    options = {"pattern": "constant", "rate_tps": "2000", "generator": "uniform"}

    def play(rows: int) -> int:
        query = start(read_feeder(spark, options), tmp_path)
        index = 0

        def far_enough() -> bool:
            nonlocal index
            progress = query.lastProgress
            index = json.loads(str(progress.sources[0].endOffset or '{"index": 0}'))["index"] if progress else 0
            return index > rows

        try:
            poll(query, far_enough)
        finally:
            query.stop()
        return index

    first = play(1000)
    second = play(first + 3000)
    assert second > first + 3000

    read = arrow(spark.read.parquet(str(tmp_path / "out")), "id")
    assert read["id"].to_pylist() == list(range(read.num_rows))
    assert read.num_rows >= second
    # One epoch over both runs: the tuples of the time in between are there, with their own times of arrival.
    gaps = np.diff(read["arrival"].cast(pa.int64()).to_numpy())
    assert (gaps == 500).all()


def test_waiting_is_what_the_next_batch_delivers(spark: SparkSession, tmp_path: Path) -> None:
    begun = time.time() - 100
    options = {"pattern": "phases", "phases": "100:5, 300:5", "epoch": f"{begun:.6f}", "maxRowsPerBatch": "1500"}
    clock = FeederClock.from_options(options)
    assert clock.waiting(None, time.time()) == 2000
    query = run_now(read_feeder(spark, options), tmp_path)
    delivered = [progress for progress in query.recentProgress if progress.numInputRows]
    assert [progress.numInputRows for progress in delivered] == [1500, 500]
    ends = [progress.sources[0].endOffset for progress in delivered]
    assert [clock.waiting(str(end), time.time()) for end in ends] == [500, 0]


def test_waiting_of_a_live_stream(spark: SparkSession, tmp_path: Path) -> None:
    options = {"pattern": "constant", "rate_tps": "500", "epoch": f"{time.time() - 10:.6f}"}
    clock = FeederClock.from_options(options)
    end: str | None = None
    for _ in range(2):
        least = clock.waiting(end, time.time())
        query = run_now(read_feeder(spark, options), tmp_path)
        most = clock.waiting(end, time.time())
        assert least <= sum(progress.numInputRows for progress in query.recentProgress) <= most
        end = str([progress for progress in query.recentProgress if progress.numInputRows][-1].sources[0].endOffset)


def test_malformed_json_is_as_many_rows_as_announced(spark: SparkSession) -> None:
    register(spark)
    options = {**HOUR, "generator": "expressway_json", "malformed": "0.05", "rows": "4000", "eventTime": "arrival"}
    frame = spark.read.format("feeder").options(**options).load()
    parsed = frame.select(F.from_json("body", "ts timestamp, car bigint, position int").alias("row"), "arrival")
    sound = parsed.where("row.car is not null and row.position is not null")
    assert sound.where("row.ts != arrival").count() == 0
    bad = Json(Expressway(), malformed=0.05).malformed_rows(0, 4000)
    assert sound.count() == 4000 - bad.sum()


def test_spoiled_columns_pass_through_spark(spark: SparkSession) -> None:
    register(spark)
    options = {**HOUR, "generator": "expressway", "malformed": "0.05", "rows": "4000"}
    frame = spark.read.format("feeder").options(**options).load()
    sound = frame.where(
        "car is not null and speed >= 0 and not isnan(speed) and ts between '2000-01-01' and '2100-01-01'"
    )
    assert frame.count() == 4000
    assert sound.count() == 4000 - Expressway(malformed=0.05).malformed_rows(0, 4000).sum()


def test_a_source_that_dies_says_so(spark: SparkSession, tmp_path: Path) -> None:
    options = {**HOUR, "paced": "false", "rows": "3000", "maxRowsPerBatch": "1000", "failAt": "2500"}
    query = start(read_feeder(spark, options), tmp_path)
    with pytest.raises(StreamingQueryException, match="the source died"):
        query.awaitTermination(120)
    assert not query.isActive
    # What came before stands, and the stream goes on from there once the source is well again.
    assert spark.read.parquet(str(tmp_path / "out")).count() == 2000
    del options["failAt"]
    run_now(read_feeder(spark, options), tmp_path)
    read = arrow(spark.read.parquet(str(tmp_path / "out")), "id")
    assert read["id"].to_pylist() == list(range(3000))


def test_wrong_options_are_refused_before_anything_starts(spark: SparkSession) -> None:
    with pytest.raises(UnknownNameError, match="nothing reads") as caught:
        read_feeder(spark, {"maxRowsPerBach": 5})
    assert caught.value.hint == "did you mean 'maxRowsPerBatch'?"
    with pytest.raises(InvalidValueError, match="there is no end to them"):
        read_feeder(spark, {"paced": "false"})
    with pytest.raises(InvalidValueError, match="cannot be read"):
        read_feeder(spark, {"epoch": "yesterday"})
    register(spark)
    with pytest.raises(AnalysisException, match="did you mean 'maxRowsPerBatch'"):
        spark.readStream.format("feeder").option("maxRowsPerBach", "5").load()


def reader(**options: str) -> FeederStreamReader:
    return FeederStreamReader(FeederSettings.from_options(options))


def test_a_repeated_first_batch_keeps_its_epoch() -> None:
    first, again = reader(paced="false", rows="10"), reader(paced="false", rows="10")
    begin = first.initialOffset()
    end = first.latestOffset(begin, ReadAllAvailable())
    later = {**again.initialOffset(), "epoch_us": begin["epoch_us"] + 5_000_000}
    assert [part.value for part in again.partitions(later, end)] == [
        part.value for part in first.partitions(begin, end)
    ]
    assert again.latestOffset(end, ReadAllAvailable()) == end


def test_limits_and_ends_of_offsets() -> None:
    source = reader(paced="false", rows="1000", startIndex="100", epoch="5.000001")
    begin = source.initialOffset()
    assert begin == {"index": 100, "epoch_us": 5_000_001}
    assert source.latestOffset(begin, ReadMaxRows(30))["index"] == 130
    assert source.latestOffset(begin, ReadAllAvailable())["index"] == 1000
    assert source.reportLatestOffset() == {"index": 1000, "epoch_us": 5_000_001}
    # An offset beyond what this source has (its options were changed) never runs backwards.
    beyond = {"index": 5000, "epoch_us": 5_000_001}
    assert source.latestOffset(beyond, ReadAllAvailable()) == beyond
    assert source.partitions(beyond, beyond) == []


def test_available_now_is_fixed_when_it_is_prepared() -> None:
    source = reader(rate_tps="1e6", epoch=f"{time.time() - 1:.6f}")
    begin = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    target = source.latestOffset(begin, ReadAllAvailable())
    assert source.latestOffset(target, ReadAllAvailable()) == target
