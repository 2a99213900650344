"""Any Spark format comes in with the declared columns and goes out where its output says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from streamshed.engines.spark.connectors import ARRIVAL, read_stream, well_formed, write_stream
from streamshed.errors import NetworkError
from streamshed.network import Connector, Output, Stream

COLUMNS = {"at": "timestamp", "car": "int", "speed": "double"}
GOOD = {"at": "2024-03-01T00:00:00Z", "car": 1, "speed": 3.5}
LINES = [
    json.dumps(GOOD),
    "{ this is not JSON",
    json.dumps(GOOD | {"car": "seven"}),
    json.dumps(GOOD | {"at": None}),
    json.dumps(GOOD | {"speed": None}),
]


def rows(frame: DataFrame, name: str) -> list[Row]:
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    found = frame.sparkSession.table(name).collect()
    frame.sparkSession.catalog.dropTempView(name)
    return found


def stream(kind: str, columns: dict[str, str] | None = None, **options: str) -> Stream:
    return Stream("cars", columns or COLUMNS, "at", ("car",), source=Connector(kind, options))


@pytest.fixture
def lines(tmp_path: Path) -> str:
    directory = tmp_path / "lines"
    directory.mkdir()
    (directory / "a.txt").write_text("\n".join(LINES) + "\n")
    return str(directory)


@pytest.mark.parametrize("kind", ["json", "text"])
def test_malformed_rows_are_neither_fatal_nor_well_formed(spark: SparkSession, lines: str, kind: str) -> None:
    cars = stream(kind, path=lines)
    frame = read_stream(spark, cars)
    assert frame.columns == list(COLUMNS)
    found = rows(frame.withColumn("fine", well_formed(cars)), f"malformed_{kind}")
    assert [row["fine"] for row in found] == [True, False, False, False, True]


def test_a_declared_column_keeps_what_could_not_be_read(spark: SparkSession, lines: str) -> None:
    cars = stream("json", {**COLUMNS, "broken": "string"}, path=lines, columnNameOfCorruptRecord="broken")
    found = rows(read_stream(spark, cars).withColumn("fine", well_formed(cars)), "corrupt")
    assert [row["broken"] for row in found if row["broken"]] == LINES[1:3]
    assert [row["fine"] for row in found] == [True, False, False, False, True]


def test_a_source_with_its_own_schema_is_cast(spark: SparkSession) -> None:
    ticks = Stream("ticks", {"value": "int", "timestamp": "date"}, source=Connector("rate"))
    kinds = {field.name: field.dataType.simpleString() for field in read_stream(spark, ticks).schema}
    assert kinds == {"value": "int", "timestamp": "date", ARRIVAL: "timestamp"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Stream("cars", COLUMNS), "without a source"),
        (stream("no-such-format"), "cannot open the source"),
        (stream("json", {"at": "timestomp"}, path="."), "not a Spark type"),
        (stream("feeder", {"no_such_column": "int"}), "lacks a declared column"),
    ],
)
def test_what_cannot_be_read_is_refused(spark: SparkSession, wrong: Stream, message: str) -> None:
    with pytest.raises(NetworkError, match=message) as caught:
        read_stream(spark, wrong)
    assert "stream 'cars'" in str(caught.value)


def test_an_output_without_a_sink_goes_to_files_once(spark: SparkSession, lines: str, tmp_path: Path) -> None:
    output = Output("answers", "x")
    for _ in range(2):  # the second time goes on from the checkpoint, and has nothing to do
        frame = read_stream(spark, stream("json", path=lines))
        places = {"checkpoint": tmp_path / "checkpoint", "directory": tmp_path / "out"}
        query = write_stream(frame, output, name="answers", **places).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert spark.read.parquet(str(tmp_path / "out" / "answers")).count() == len(LINES)


def test_the_output_mode_is_ours_and_memory_gets_a_table(spark: SparkSession, lines: str, tmp_path: Path) -> None:
    output = Output("per-car", "x", sink=Connector("memory", {"outputMode": "complete"}))
    frame = read_stream(spark, stream("json", path=lines)).groupBy("car").count()
    writer = write_stream(frame, output, checkpoint=tmp_path / "c", name="run-per-car", directory=tmp_path)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert {row["car"]: row["count"] for row in spark.table("run_per_car").collect()} == {1: 3, None: 2}


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (Connector("console", {"outputMode": "apend"}), "unknown output mode"),
        (Connector("parquet", {"outputMode": "update"}), "can only append"),
    ],
)
def test_what_cannot_be_written_is_refused(spark: SparkSession, sink: Connector, message: str, tmp_path: Path) -> None:
    frame = read_stream(spark, Stream("ticks", {"value": "int"}, source=Connector("rate")))
    with pytest.raises(NetworkError, match=message):
        write_stream(frame, Output("o", "x", sink=sink), checkpoint=tmp_path, name="o", directory=tmp_path)
