"""What a guard costs: the guarded job against the same plain PySpark job, in turn, on one Spark session.

The job is what many are: it parses JSON texts of four fields and keeps windowed counts and means for a thousand keys,
with state. The texts are made from Spark's `rate-micro-batch`, a batch of a given size at every trigger, so that both
jobs do the same work. The guard stands right after the source, as it should; it hashes the key, looks at arrival times
and has a target so far away that it never drops: what is measured is its price, not its effect.

Both jobs run in turn, plain, guarded, plain, guarded, each from its own checkpoint, and the first batches of a turn do
not count. A machine that is busy with something else is so for both; medians are compared. Throughput is rows over the
time from the start of a batch to the start of the next one, so everything is in it. At 70 % load it is 1 as long as the
guarded job keeps up; what that leaves in reserve is in the durations of the batches, which are compared as well.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from rich.console import Console
from rich.table import Table

from streamshed.engines.spark.session import temporary_session
from streamshed.errors import StreamshedError
from streamshed.guard import Guard

ROWS = (1_000, 10_000, 100_000, 1_000_000)
DROPS = (1, 10, 100)
ROWS_WITH_DROPS = 100_000
"""In a batch, over all guarded streams together."""

ROUNDS = 2
LOAD = 0.7
BATCHES_S = (1.05, 2.1)
"""Of plain batches at that load: so many seconds over `LOAD` after a batch has started the next one does."""

_TARGET_S = 600.0
_TURN_S = 4.0
_FEWEST = 3  # batches of a turn that count
_FIRST = 2  # batches of a turn that do not
_LONGEST_TURN_S = 240.0
_PARTITIONS = 2

Plan = Callable[[Guard | None], DataFrame]


@dataclass(frozen=True)
class Batch:
    """A finished micro-batch: when it started, and how long it took."""

    start_s: float
    duration_s: float


@dataclass
class Comparison:
    """Both jobs: for each turn the batches that count."""

    plain: list[list[Batch]]
    guarded: list[list[Batch]]

    def duration_s(self, turns: list[list[Batch]]) -> float:
        """The median duration of a batch."""
        return statistics.median(batch.duration_s for turn in turns for batch in turn)

    def period_s(self, turns: list[list[Batch]]) -> float:
        """The median time from start to start."""
        return statistics.median(later.start_s - batch.start_s for turn in turns for batch, later in pairwise(turn))

    def ratios(self, measure: Callable[[list[list[Batch]]], float]) -> list[float]:
        """Plain / guarded, for all turns together, then for each pair of turns."""
        pairs = [measure([plain]) / measure([guarded]) for plain, guarded in zip(self.plain, self.guarded, strict=True)]
        return [measure(self.plain) / measure(self.guarded), *pairs]


class Bench:
    """Runs jobs in turn; directories are thrown away by whoever gave the place."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place
        self._number = 0

    def compare(self, plan: Plan, *, drops: int = 1, every_s: float | None = None, rounds: int = ROUNDS) -> Comparison:
        """Both jobs in turn.

        Args:
            plan: makes the job, with a guard or without.
            drops: how many streams it protects.
            every_s: start a batch so often; None: as soon as the one before it is over.
            rounds: how often each has its turn.
        """
        self._number += 1
        found = Comparison([], [])
        place = self.place / str(self._number)
        for _ in range(rounds):
            found.plain.append(self._turn(plan(None), place / "plain", every_s))
            with Guard(self.spark, _TARGET_S, place / "guard", size=drops) as guard:
                frame = plan(guard)
                found.guarded.append(self._turn(frame, place / "guarded", every_s, guard))
                if any(guard.status().fractions.values()):
                    raise StreamshedError("the guard dropped something", where="benchmark", hint="a longer target")
        return found

    def _turn(
        self, frame: DataFrame, checkpoint: Path, every_s: float | None, guard: Guard | None = None
    ) -> list[Batch]:
        writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
        if every_s is not None:
            writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        query = writer.start()
        try:
            if guard is not None:
                guard.watch(query)
            return _measured(query, _TURN_S if every_s is None else max(_TURN_S, 8 * every_s))
        finally:
            query.stop()


def _measured(query: StreamingQuery, seconds: float) -> list[Batch]:
    """Wait for the first batches, then for so many seconds, and some batches at least."""
    begin_s = counted_s = time.monotonic()
    while time.monotonic() < begin_s + _LONGEST_TURN_S:
        time.sleep(0.05)
        done = len(query.recentProgress)
        if not query.isActive:
            raise StreamshedError("the query died", where="benchmark", got=str(query.exception()))
        if done <= _FIRST:
            counted_s = time.monotonic()
        elif time.monotonic() >= counted_s + seconds and done >= _FIRST + _FEWEST:
            break
    batches = [json.loads(progress.json) for progress in query.recentProgress]
    counted = [
        Batch(datetime.fromisoformat(batch["timestamp"]).timestamp(), batch["durationMs"]["triggerExecution"] / 1000)
        for batch in batches[_FIRST:]
        if batch["numInputRows"]
    ]
    if len(counted) < _FEWEST:
        found = f"{len(batches)} batches in {_LONGEST_TURN_S:.0f} s"
        raise StreamshedError("batches take too long", where="benchmark", got=found, expected=f"{_FIRST + _FEWEST}")
    return counted


def job(spark: SparkSession, rows: int, drops: int = 1) -> Plan:
    """A windowed aggregate over the union of some streams, which have so many rows a batch together."""

    def stream(number: int, guard: Guard | None) -> DataFrame:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", max(1, rows // drops))
        read = source.option("numPartitions", _PARTITIONS if drops == 1 else 1).load()
        return read if guard is None else guard.protect(read, key=["value"], arrival="timestamp", name=f"s{number}")

    def plan(guard: Guard | None) -> DataFrame:
        streams = [stream(number, guard) for number in range(drops)]
        events = reduce(DataFrame.unionAll, streams).withWatermark("timestamp", "1 minute")
        text = F.format_string(
            '{"car": %d, "speed": %d, "lane": %d, "road": "A%d"}', "value", *(F.col("value") % n for n in (113, 4, 7))
        )
        fields = F.from_json(text, "car long, speed double, lane int, road string")
        return (
            events.select("timestamp", fields.alias("report"))
            .groupBy(F.window("timestamp", "1 minute"), (F.col("report.car") % 1000).alias("group"))
            .agg(F.count("*"), F.avg("report.speed"), F.max("report.lane"), F.max("report.road"))
        )

    return plan


def run(console: Console) -> None:
    """Print the tables."""
    settings = {"spark.sql.shuffle.partitions": str(_PARTITIONS), "spark.log.level": "OFF"}
    with (
        tempfile.TemporaryDirectory(prefix="streamshed-bench-", ignore_cleanup_errors=True) as place,
        temporary_session("local[2]", "streamshed-bench", settings) as spark,
        console.status("guard: warming up") as status,
    ):
        bench = Bench(spark, Path(place))
        for rows in (ROWS[1], ROWS[-1]):
            bench.compare(job(spark, rows), rounds=1)
        _by_load(console, bench, status.update)
        _by_rows(console, bench, status.update)
        _by_drops(console, bench, status.update)


def _by_load(console: Console, bench: Bench, tell: Callable[[str], None]) -> None:
    rows = ROWS[-1] // 2
    with _table(console, f"Guarded against plain at {LOAD:.0%} load", "rows per batch") as table:
        for batch_s in BATCHES_S:
            tell(f"guard: at {LOAD:.0%} load, batches of {batch_s:.1f} s")
            # The cost of a row depends a little on how many there are.
            turn = bench.compare(job(bench.spark, rows), rounds=1).plain
            rows = round(rows * batch_s / statistics.median(batch.duration_s for batch in turn[0]) / 10_000) * 10_000
            found = bench.compare(job(bench.spark, rows), every_s=batch_s / LOAD)
            table.add_row(f"{rows:,}", *_cells(found))


def _by_rows(console: Console, bench: Bench, tell: Callable[[str], None]) -> None:
    title = "Guarded against plain, by rows per batch (batch after batch)"
    with _table(console, title, "rows per batch") as table:
        for rows in ROWS:
            tell(f"guard: {rows:,} rows per batch")
            found = bench.compare(job(bench.spark, rows))
            table.add_row(f"{rows:,}", *_cells(found))


def _by_drops(console: Console, bench: Bench, tell: Callable[[str], None]) -> None:
    title = f"Guarded against plain, by drops: a union of so many streams, {ROWS_WITH_DROPS:,} rows together"
    with _table(console, title, "drops") as table:
        for drops in DROPS:
            tell(f"guard: {drops} drops")
            rounds = ROUNDS if drops < DROPS[-1] else 1  # it takes long enough
            found = bench.compare(job(bench.spark, ROWS_WITH_DROPS, drops), drops=drops, rounds=rounds)
            table.add_row(f"{drops:,}", *_cells(found))


@contextmanager
def _table(console: Console, title: str, first: str) -> Iterator[Table]:
    """A table to fill; printed at the end, also where that is an error."""
    table = Table(title=title)
    headings = (first, "plain batch", "guarded batch", "added", "batch time ratio", "throughput ratio", "batches")
    for heading in headings:
        table.add_column(heading, justify="right")
    try:
        yield table
    finally:
        console.print(table)


def _cells(found: Comparison) -> Iterator[str]:
    plain_s, guarded_s = found.duration_s(found.plain), found.duration_s(found.guarded)
    yield f"{plain_s:.3f} s"
    yield f"{guarded_s:.3f} s"
    yield f"{(guarded_s - plain_s) * 1000:+.0f} ms"
    yield _ratios(*found.ratios(found.duration_s))
    yield _ratios(*found.ratios(found.period_s))
    yield " + ".join(str(sum(map(len, turns))) for turns in (found.plain, found.guarded))


def _ratios(together: float, *by_turns: float) -> str:
    return f"{together:.2f} ({min(by_turns):.2f} to {max(by_turns):.2f})"
