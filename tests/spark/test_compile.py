"""Every operator gives what the same computation gives in pandas, whether in one query or cut into stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamshed.engines.spark.arcs import ParquetArc
from streamshed.engines.spark.compile import compile_stages, unchanged
from streamshed.engines.spark.connectors import read_stream
from streamshed.errors import NetworkError
from streamshed.estimates import with_weight
from streamshed.network import Arc, Connector, Network, NetworkBuilder, Stream
from streamshed.network.spec import load_spec
from streamshed.network.stages import Stage, stages

EXAMPLES = Path(__file__).parents[2] / "examples"
START = pd.Timestamp("2024-03-01", tz="UTC")
CARS = {"at": "timestamp", "car": "int", "speed": "double"}
TOLLS = {"at": "timestamp", "car": "int", "toll": "bigint"}


def cars() -> pd.DataFrame:
    random = np.random.default_rng(7)
    seconds = np.sort(random.integers(0, 1200, 400))
    return pd.DataFrame(
        {
            "at": START + pd.to_timedelta(seconds, unit="s"),
            "car": random.integers(0, 5, 400).astype("int32"),
            "speed": random.integers(0, 400, 400) / 4.0,
        }
    )


def tolls() -> pd.DataFrame:
    random = np.random.default_rng(8)
    seconds = np.sort(random.integers(0, 1200, 60))
    return pd.DataFrame(
        {
            "at": START + pd.to_timedelta(seconds, unit="s"),
            "car": random.integers(0, 5, 60).astype("int32"),
            "toll": random.integers(1, 9, 60),
        }
    )


def end_of(day: pd.DataFrame, days: int = 1) -> pd.DataFrame:
    """A row far ahead that closes all windows; it belongs to no key that counts."""
    row = day.iloc[[0]].assign(at=START + pd.Timedelta(days=days))
    return row.assign(car=np.int32(99))


def observed(arc: Arc, frame: DataFrame) -> DataFrame:
    """As in a running application; it also keeps Spark from filtering ahead of the watermark."""
    return frame.observe(arc.id, F.count(F.lit(1)).alias("rows"))


def put(frame: pd.DataFrame, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = frame.assign(at=frame["at"].astype("datetime64[us, UTC]"))
    stored.to_parquet(path, index=False)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("inputs")
    put(cars().iloc[:250], directory / "cars" / "a.parquet")
    put(pd.concat([cars().iloc[250:], end_of(cars())]), directory / "cars" / "b.parquet")
    put(pd.concat([tolls(), end_of(tolls())]), directory / "tolls" / "a.parquet")
    return directory


def build(inputs: Path) -> Network:
    new = NetworkBuilder("all operators")
    files = {"maxFilesPerTrigger": "1"}
    reports = new.stream(
        "cars", CARS, time="at", lateness_s=30, source=Connector("parquet", {"path": str(inputs / "cars"), **files})
    )
    paid = new.stream("tolls", TOLLS, time="at", source=Connector("parquet", {"path": str(inputs / "tolls"), **files}))
    known = reports.filter("known", "car < 90")
    known.output("filtered")
    known.map("select", {"when": "at", "fast": "speed > 50"}).output("selected")
    known.map("keep", {"speed": "speed * 2", "half": "speed / 2"}, keep=True).output("kept")
    ways = reports.split("ways", {"slow": "speed < 40 AND car < 90", "even": "car % 2 = 0 AND car < 90"})
    ways["slow"].union("both", ways["even"]).output("united")
    pairs = known.join("pairs", paid, on=["car"], within_s=12.5)
    pairs.output("paired")
    pairs.aggregate("paid", {"toll": "sum(toll)"}, window_s=300).output("paid_per_window")
    minutes = reports.aggregate(
        "minutes",
        {"n": "count()", "total": "sum(speed)", "mean": "avg(speed)", "low": "min(speed)", "high": "max(speed)"},
        window_s=60,
        group_by=["car"],
    )
    minutes.output("per_minute")
    minutes.filter("busy", "n > 1").aggregate("blocks", {"n": "sum(n)", "rows": "count()"}, window_s=300).output(
        "nested"
    )
    reports.aggregate("moving", {"n": "count()"}, window_s=60, slide_s=20).output("sliding")
    return new.build()


@pytest.fixture(scope="module")
def network(inputs: Path) -> Network:
    return build(inputs)


def compile_whole(
    network: Network, read: Callable[[Stream], DataFrame], at_arc: Callable[[Arc, DataFrame], DataFrame] = unchanged
) -> Mapping[str, DataFrame]:
    """A network without durable arcs."""

    def read_arc(stage: Stage, _schema: StructType) -> DataFrame:
        raise AssertionError(f"stage {stage.id!r} has no arc")

    return compile_stages(network, read, read_arc, at_arc)


@pytest.fixture(scope="module")
def frames(spark: SparkSession, network: Network) -> dict[str, DataFrame]:
    return dict(compile_whole(network, lambda stream: read_stream(spark, stream), observed))


def result(frame: DataFrame, name: str) -> pd.DataFrame:
    """All rows that a stream gives, as pandas, with times in UTC."""
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    table = frame.sparkSession.table(name).toPandas()
    frame.sparkSession.catalog.dropTempView(name)
    for column in table.select_dtypes("datetime"):
        table[column] = table[column].dt.tz_localize("UTC")
    return table


def assert_same(got: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert list(got.columns) == list(expected.columns)
    columns = list(expected.columns)
    pd.testing.assert_frame_equal(
        got.sort_values(columns).reset_index(drop=True),
        expected.sort_values(columns).reset_index(drop=True),
        check_dtype=False,
    )


def paired() -> pd.DataFrame:
    pairs = cars().merge(tolls(), on="car", suffixes=("", "_right"))
    near = (pairs["at"] - pairs["at_right"]).abs() <= pd.Timedelta(seconds=12.5)
    return pairs.loc[near, ["at", "car", "speed", "toll"]]


def windows(frame: pd.DataFrame, seconds: int, start: pd.Series | None = None) -> pd.DataFrame:
    start = frame["at"].dt.floor(f"{seconds}s") if start is None else start
    return frame.assign(window_start=start, window_end=start + pd.Timedelta(seconds=seconds))


def per_minute() -> pd.DataFrame:
    speed = windows(cars(), 60).groupby(["window_start", "window_end", "car"])["speed"]
    return speed.agg(n="size", total="sum", mean="mean", low="min", high="max").reset_index()


def nested() -> pd.DataFrame:
    busy = per_minute().query("n > 1")
    blocks = windows(busy.assign(at=busy["window_start"]), 300).groupby(["window_start", "window_end"])["n"]
    return blocks.agg(n="sum", rows="size").reset_index()


def sliding() -> pd.DataFrame:
    day = cars()
    last = day["at"].dt.floor("20s")
    copies = pd.concat([windows(day, 60, last - pd.Timedelta(seconds=20 * back)) for back in range(3)])
    return copies.groupby(["window_start", "window_end"]).size().reset_index(name="n")


def paid_per_window() -> pd.DataFrame:
    return windows(paired(), 300).groupby(["window_start", "window_end"])["toll"].sum().reset_index()


EXPECTED: dict[str, Callable[[], pd.DataFrame]] = {
    "filtered": cars,
    "selected": lambda: pd.DataFrame({"when": cars()["at"], "fast": cars()["speed"] > 50}),
    "kept": lambda: cars().assign(speed=cars()["speed"] * 2, half=cars()["speed"] / 2),
    "united": lambda: pd.concat([cars().query("speed < 40"), cars().query("car % 2 == 0")]),
    "paired": paired,
    "paid_per_window": paid_per_window,
    "per_minute": per_minute,
    "nested": nested,
    "sliding": sliding,
}


@pytest.mark.parametrize("output", EXPECTED)
def test_operators_give_what_pandas_gives(frames: dict[str, DataFrame], output: str) -> None:
    assert_same(result(frames[output], output), EXPECTED[output]())


def test_schemas_are_those_of_the_network(network: Network, frames: dict[str, DataFrame]) -> None:
    assert set(frames) == {output.id for output in network.outputs}
    for output, frame in frames.items():
        columns = network.schemas[output].columns
        assert frame.columns == list(columns)
        for name, kind in columns.items():
            assert kind in (None, frame.schema[name].dataType.simpleString()), (output, name)


def test_every_arc_is_visited_once_and_shared_operators_are_one_frame(spark: SparkSession, network: Network) -> None:
    visited: list[Arc] = []
    incoming: dict[str, DataFrame] = {}
    read: list[str] = []

    def at_arc(arc: Arc, frame: DataFrame) -> DataFrame:
        visited.append(arc)
        incoming[arc.id] = frame
        return frame

    compile_whole(network, lambda stream: read.append(stream.id) or read_stream(spark, stream), at_arc)
    assert sorted(arc.id for arc in visited) == sorted(arc.id for arc in network.arcs)
    assert read == ["cars", "tolls"]
    assert incoming["known->select"] is incoming["known->keep"] is incoming["known->pairs.left"]


def test_what_happens_at_an_arc_happens_to_its_tuples_only(spark: SparkSession, network: Network) -> None:
    def at_arc(arc: Arc, frame: DataFrame) -> DataFrame:
        frame = frame.withColumn("_seen", F.lit(arc.id))
        return frame.where("car = 1") if arc.id == "known->select" else frame

    frames = compile_whole(network, lambda stream: read_stream(spark, stream), at_arc)
    assert frames["selected"].columns == ["when", "fast"]
    assert len(result(frames["selected"], "some")) == len(cars().query("car == 1"))
    assert len(result(frames["kept"], "every")) == len(cars())


def test_answers_over_what_a_drop_left_are_unbiased(spark: SparkSession, network: Network) -> None:
    rank = F.pmod(F.xxhash64("at", "car", "speed"), F.lit(1024)) / 1024.0

    def at_arc(arc: Arc, frame: DataFrame) -> DataFrame:
        if arc.id != "cars->minutes":
            return frame
        return with_weight(observed(arc, frame).where((rank >= 0.5) | (F.col("car") > 90)), F.lit(0.5))

    frame = compile_whole(network, lambda stream: read_stream(spark, stream), at_arc)["per_minute"]
    assert frame.columns == list(network.schemas["per_minute"].columns)
    got, true = result(frame, "estimated_minutes"), per_minute()
    assert got["n"].dtype == "int64"
    assert set(got["n"] % 2) == {0}
    # 400 tuples, each kept or not: the standard error of the count is 20.
    assert got["n"].sum() == pytest.approx(true["n"].sum(), abs=60)
    assert (got["total"] / got["n"]).tolist() == pytest.approx(got["mean"].tolist())


def test_join_state_and_windows_are_let_go(frames: dict[str, DataFrame]) -> None:
    query = frames["paid_per_window"].writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    totals = {state.operatorName: state.numRowsTotal for state in query.recentProgress[-1].stateOperators}
    # What remains are the rows that close the day: one pair of them, still open.
    assert totals["symmetricHashJoin"] <= 2
    assert totals["stateStoreSave"] <= 1
    counted = sum(progress.observedMetrics["pairs->paid"]["rows"] for progress in query.recentProgress)
    assert counted == len(paired())


def test_a_time_that_is_no_timestamp_is_refused(spark: SparkSession, inputs: Path) -> None:
    new = NetworkBuilder("wrong time")
    source = Connector("parquet", {"path": str(inputs / "cars")})
    new.stream("cars", CARS, time="car", source=source).output("out")
    with pytest.raises(NetworkError, match="holds no timestamps"):
        compile_whole(new.build(), lambda stream: read_stream(spark, stream))


@pytest.mark.parametrize("example", sorted(file.stem for file in EXAMPLES.glob("*.yaml")))
def test_examples_compile_to_their_schemas(spark: SparkSession, example: str) -> None:
    network = load_spec(EXAMPLES / f"{example}.yaml").network

    def empty(columns: Mapping[str, str]) -> DataFrame:
        rate = spark.readStream.format("rate").load()
        return rate.select(*(F.lit(None).cast(kind).alias(name) for name, kind in columns.items()))

    def read_arc(_stage: Stage, schema: StructType) -> DataFrame:
        return empty({field.name: field.dataType.simpleString() for field in schema})

    visited: list[str] = []
    frames = compile_stages(
        network,
        lambda stream: empty(stream.columns),
        read_arc,
        lambda arc, frame: visited.append(arc.id) or observed(arc, frame),
    )
    assert sorted(visited) == sorted(arc.id for arc in network.arcs)
    durable = [stage.id for stage in stages(network) if stage.is_durable]
    assert {name: frame.columns for name, frame in frames.items()} == {
        name: list(network.schemas[name].columns) for name in (*durable, *(output.id for output in network.outputs))
    }


def test_the_expressway_runs_from_the_feeder(spark: SparkSession) -> None:
    network = load_spec(EXAMPLES / "expressway.yaml").network
    options = {"generator": "expressway", "pattern": "constant", "rows": "3000", "paced": "false", "rate_tps": "100"}
    stream = replace(network.streams[0], source=Connector("feeder", options))
    network = replace(network, streams=(stream,))
    frames = compile_whole(network, lambda stream: read_stream(spark, stream), observed)
    table = spark.read.format("feeder").options(**options).load().toPandas()
    assert len(result(frames["accidents"], "accidents")) == len(table.query("speed < 20"))


# --- stages ----------------------------------------------------------------------------------------------------------


class Run:
    """A network cut into stages, each run on what there is, with its checkpoint and its durable arcs."""

    def __init__(self, spark: SparkSession, network: Network, directory: Path) -> None:
        self.spark, self.network, self.directory = spark, network, directory
        self.visited: list[str] = []
        self.frames = compile_stages(network, lambda stream: read_stream(spark, stream), self.read_arc, self.at_arc)

    def at_arc(self, arc: Arc, frame: DataFrame) -> DataFrame:
        self.visited.append(arc.id)
        return observed(arc, frame)

    def arc(self, stage_id: str) -> ParquetArc:
        return ParquetArc(str(self.directory / "arcs" / stage_id))

    def read_arc(self, stage: Stage, schema: object) -> DataFrame:
        return self.arc(stage.id).read(self.spark, schema)  # type: ignore[arg-type]

    def all_available(self) -> None:
        for stage in stages(self.network):
            checkpoint = str(self.directory / "checkpoints" / stage.id)
            frame = self.frames[stage.id]
            if stage.is_durable:
                writer = frame.writeStream.foreachBatch(self.arc(stage.id).write)
            else:
                writer = frame.writeStream.format("parquet").option("path", self.answers(stage.id))
            writer = writer.option("checkpointLocation", checkpoint)
            assert writer.trigger(availableNow=True).start().awaitTermination(120)

    def answers(self, output: str) -> str:
        return str(self.directory / "out" / output)

    def result(self, output: str) -> pd.DataFrame:
        table = self.spark.read.parquet(self.answers(output)).toPandas()
        for column in table.select_dtypes("datetime"):
            table[column] = table[column].dt.tz_localize("UTC")
        return table


def staged(inputs: Path) -> Network:
    new = NetworkBuilder("staged")
    source = Connector("parquet", {"path": str(inputs / "cars")})
    reports = new.stream("cars", CARS, time="at", lateness_s=30, source=source)
    known = reports.filter("known", "car < 90 OR at >= '2024-03-02'", stage=True)
    known.filter("today", "car < 90").map("select", {"when": "at", "fast": "speed > 50"}).output("selected")
    minutes = known.aggregate("minutes", {"n": "count()"}, window_s=60, group_by=["car"], stage=True)
    minutes.aggregate("blocks", {"n": "sum(n)"}, window_s=300).output("nested")
    return new.build()


def test_a_durable_arc_is_computed_once_and_read_twice_with_no_row_twice(spark: SparkSession, tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    put(cars().iloc[:250], inputs / "cars" / "a.parquet")
    network = staged(inputs)
    run = Run(spark, network, tmp_path)
    assert sorted(run.visited) == sorted(arc.id for arc in network.arcs)
    assert list(run.frames) == [stage.id for stage in stages(network)]
    run.all_available()

    # A crash after the rename, before Spark knew of it: the batch comes again, perhaps with other rows in it.
    arc = run.arc("known")
    before = {path: path.stat().st_mtime_ns for path in Path(arc.directory).rglob("*.parquet")}
    again = spark.read.parquet(str(inputs / "cars"))
    arc.write(again, 0)
    arc.write(again.limit(1), 0)
    # A crash before the rename leaves an unfinished batch that nobody may see.
    again.write.parquet(f"{arc.directory}/.batch-000000000001")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(spark.read.parquet(f"{arc.directory}/batch-*").collect()) == 250

    # Windows over an arc close when something later comes along it: the second day closes a minute on the first.
    put(pd.concat([cars().iloc[250:], end_of(cars()), end_of(cars(), 2)]), inputs / "cars" / "b.parquet")
    run = Run(spark, network, tmp_path)
    run.all_available()
    fast = pd.DataFrame({"when": cars()["at"], "fast": cars()["speed"] > 50})
    assert_same(run.result("selected"), fast)
    expected = windows(cars(), 300).groupby(["window_start", "window_end"]).size().reset_index(name="n")
    assert_same(run.result("nested"), expected)


def test_a_staged_split_keeps_only_what_a_branch_takes(spark: SparkSession, inputs: Path, tmp_path: Path) -> None:
    new = NetworkBuilder("split")
    reports = new.stream("cars", CARS, source=Connector("parquet", {"path": str(inputs / "cars")}))
    ways = reports.split("ways", {"slow": "speed < 10", "one": "car = 1"}, stage=True)
    ways["slow"].output("crawling")
    ways["one"].output("first")
    run = Run(spark, new.build(), tmp_path)
    run.all_available()
    kept = spark.read.option("recursiveFileLookup", "true").parquet(run.arc("ways").directory)
    day = cars()
    assert kept.where("car < 90").count() == len(day.query("speed < 10 or car == 1"))
    assert_same(run.result("first"), day.query("car == 1"))
