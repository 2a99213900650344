"""A streaming source that makes its own tuples: any arrival pattern, any generator, live or as fast as it can."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.workload.arrivals import ArrivalPattern, pattern_from_options
from streamshed.workload.generators import Generator, generator_from_options
from streamshed.workload.options import Options, check_range
from streamshed.workload.rows import TIMESTAMP, timestamps

ARRIVAL = "arrival"
_ROWS_PER_ARROW_BATCH = 16_384  # small enough for the processor's cache, large enough to make batches cheap

Offset = Mapping[str, Any]
"""Where the stream stands: `index` of the next tuple, and `epoch_us`, when the pattern began."""


class FeederError(StreamshedError, RuntimeError):
    """The feeder died while it was read."""


@dataclass(frozen=True)
class FeederClock:
    """How many tuples there are at a time: what the source itself uses, and what a driver may ask it about.

    Attributes:
        pattern: when tuples arrive.
        rows: the index at which the stream ends; None for no end but the pattern's.
        paced: whether tuples come when the pattern says, or are all there at once.
        start_index: the first tuple of a new stream.
        epoch_us: when the pattern begins, microseconds since 1970; None: when the stream is first started. An epoch in
            an offset counts more than this one.

    >>> clock = FeederClock.from_options({"pattern": "constant", "rate_tps": "1000", "epoch": "1700000000"})
    >>> clock.available(1700000002.5), clock.waiting({"index": 1800}, 1700000002.5)
    (2500, 700)
    """

    pattern: ArrivalPattern
    rows: int | None = None
    paced: bool = True
    start_index: int = 0
    epoch_us: int | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> FeederClock:
        """The clock of a feeder that gets these options."""
        return FeederSettings.from_options(options).clock

    @property
    def end(self) -> int | None:
        """The index at which the stream ends, or None."""
        ends = [end for end in (self.rows, self.pattern.total) if end is not None]
        return min(ends) if ends else None

    def available(self, now_s: float, epoch_us: int | None = None) -> int:
        """How many tuples have arrived since the stream began, read or not.

        Args:
            now_s: the time, seconds since 1970.
            epoch_us: when the pattern began, if an offset tells.
        """
        if not self.paced:
            assert self.end is not None  # settings without an end are refused
            return self.end
        epoch_us = self.epoch_us if epoch_us is None else epoch_us
        if epoch_us is None:
            return 0
        arrived = self.pattern.cumulative((round(now_s * 1e6) - epoch_us) / 1e6)
        return arrived if self.rows is None else min(arrived, self.rows)

    def waiting(self, offset: Offset | str | None, now_s: float) -> int:
        """How many tuples have arrived and are not read yet: what a micro-batch that starts now would take.

        Args:
            offset: up to where the stream is read: an offset, its JSON text as in a query's progress, or None if
                nothing is read yet.
            now_s: the time, seconds since 1970.
        """
        if offset is None:
            return max(0, self.available(now_s) - self.start_index)
        read: Offset = json.loads(offset) if isinstance(offset, str) else offset
        return max(0, self.available(now_s, read.get("epoch_us")) - int(read["index"]))


@dataclass(frozen=True)
class FeederSettings:
    """All that the options of a feeder say.

    Attributes:
        clock: how many tuples there are.
        generator: what they hold.
        seed: chooses the stream, and the rates of a Pareto pattern.
        partitions: how many tasks read a micro-batch.
        max_rows_per_batch: the largest micro-batch, or None.
        event_time_is_arrival: whether the generator's own event times are replaced by the times of arrival.
        fail_at: the index at which the source dies, for tests; or None.
    """

    clock: FeederClock
    generator: Generator
    seed: int = 0
    partitions: int = 2
    max_rows_per_batch: int | None = None
    event_time_is_arrival: bool = False
    fail_at: int | None = None

    @classmethod
    def from_options(cls, given: Mapping[str, str]) -> FeederSettings:
        """Read the options; raise on what is unknown, unreadable or makes no sense."""
        options = Options(given, where="feeder")
        none: int | None = None
        event_times = {"generated": False, "arrival": True}
        clock = FeederClock(
            pattern=pattern_from_options(options),
            rows=options.integer("rows", none),
            paced=options.flag("paced", True),
            start_index=options.integer("startIndex", 0),
            epoch_us=_epoch_us(options.text("epoch", None)),
        )
        settings = cls(
            clock=clock,
            generator=generator_from_options(options),
            seed=options.integer("seed", 0),
            partitions=options.integer("partitions", 2),
            max_rows_per_batch=options.integer("maxRowsPerBatch", none),
            event_time_is_arrival=options.choice("eventTime", "generated", event_times),
            fail_at=options.integer("failAt", none),
        )
        options.refuse_rest()
        settings._check()
        return settings

    def _check(self) -> None:
        where = "feeder"
        check_range(where, "partitions", self.partitions, 1, 10_000)
        check_range(where, "startIndex", self.clock.start_index, 0, float("inf"))
        if self.clock.rows is not None:
            check_range(where, "rows", self.clock.rows, 0, float("inf"))
        if self.max_rows_per_batch is not None:
            check_range(where, "maxRowsPerBatch", self.max_rows_per_batch, 1, float("inf"))
        if not self.clock.paced and self.clock.end is None:
            raise InvalidValueError(
                "all tuples at once, but there is no end to them",
                where=where,
                got="paced=false",
                expected="`rows`, or a pattern with an end",
            )

    @property
    def schema(self) -> pa.Schema:
        """The generator's columns, and when the tuple arrived."""
        return self.generator.schema.append(pa.field(ARRIVAL, TIMESTAMP))

    def split(self, start: int, stop: int, epoch_us: int) -> list[FeederPartition]:
        """Cut a range of tuples into one range for each task, in the order of arrival."""
        cuts = [start + (stop - start) * number // self.partitions for number in range(self.partitions + 1)]
        return [FeederPartition(low, high, epoch_us) for low, high in pairwise(cuts) if low < high]

    def batches(self, start: int, stop: int, epoch_us: int) -> Iterator[pa.RecordBatch]:
        """Make a range of tuples."""
        for low in range(start, stop, _ROWS_PER_ARROW_BATCH):
            high = min(low + _ROWS_PER_ARROW_BATCH, stop)
            if self.fail_at is not None and high > self.fail_at:
                raise FeederError(
                    "the source died",
                    where=f"feeder, tuples {low} to {high}",
                    got=f"failAt={self.fail_at}",
                    hint="the option `failAt` makes it die there, to see how the rest bears it",
                )
            arrival_us = epoch_us + self.clock.pattern.arrival_us(np.arange(low, high, dtype=np.int64))
            times_us = arrival_us if self.event_time_is_arrival else None
            batch = self.generator.generate(low, high, self.seed, times_us=times_us)
            yield pa.RecordBatch.from_arrays([*batch.columns, timestamps(arrival_us)], schema=self.schema)


@cache
def _set_modules_aside() -> None:
    """Tell Python, once in a worker process, that what has been loaded so far is no garbage.

    PySpark collects garbage after every task. To look through all modules takes 40 ms then, each time, in which the
    worker can do nothing else.
    """
    gc.freeze()


def _epoch_us(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(Decimal(text) * 1_000_000)
    except (InvalidOperation, OverflowError, ValueError) as error:
        raise InvalidValueError(
            "an option cannot be read", where="feeder option 'epoch'", got=repr(text), expected="seconds since 1970"
        ) from error


class FeederPartition(InputPartition):
    """A range of tuples for one task."""

    def __init__(self, start: int, stop: int, epoch_us: int) -> None:
        super().__init__((start, stop, epoch_us))


class FeederStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the feeder as a stream.

    The epoch travels in the offsets, so a query that goes on from its checkpoint finds the tuples that arrived while it
    was away. The end of a batch is what counts: the start of the very first one is not in the checkpoint, and is made
    anew, with another epoch, when that batch has to be repeated.
    """

    def __init__(self, settings: FeederSettings) -> None:
        self.settings = settings
        self._epoch_us = settings.clock.epoch_us
        self._last_s: float | None = None

    def initialOffset(self) -> dict[str, int]:
        if self._epoch_us is None:
            self._epoch_us = round(time.time() * 1e6)
        return {"index": self.settings.clock.start_index, "epoch_us": self._epoch_us}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.settings.max_rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last_s = time.time()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        self._epoch_us = start["epoch_us"]
        index = max(start["index"], self._available())
        if isinstance(limit, ReadMaxRows):
            index = min(index, start["index"] + limit.max_rows)
        return {"index": index, "epoch_us": self._epoch_us}

    def reportLatestOffset(self) -> dict[str, int] | None:
        if self._epoch_us is None:
            return None
        return {"index": self._available(), "epoch_us": self._epoch_us}

    def _available(self) -> int:
        now_s = time.time() if self._last_s is None else self._last_s
        return self.settings.clock.available(now_s, self._epoch_us)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FeederPartition]:
        return self.settings.split(start["index"], end["index"], end["epoch_us"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _set_modules_aside()
        return self.settings.batches(*partition.value)


class FeederBatchReader(DataSourceReader):
    """Reads the feeder as a table: all its tuples, whatever the time; to settle what was dropped, or know the truth."""

    def __init__(self, settings: FeederSettings) -> None:
        if settings.clock.end is None:
            raise InvalidValueError(
                "a table of tuples without end", where="feeder", expected="`rows`, or a pattern with an end"
            )
        self.settings = settings
        self._end = settings.clock.end

    def partitions(self) -> list[InputPartition]:
        epoch_us = self.settings.clock.epoch_us
        epoch_us = round(time.time() * 1e6) if epoch_us is None else epoch_us
        start = self.settings.clock.start_index
        # Spark makes a partition without a value of an empty list, and then reads that.
        return [*self.settings.split(start, self._end, epoch_us)] or [FeederPartition(0, 0, epoch_us)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        _set_modules_aside()
        return self.settings.batches(*partition.value)


class Feeder(DataSource):
    """The data source `feeder`.

    Options (all text, names in any case, with or without `_`):

    - `pattern` and its fields: see `streamshed.workload.arrivals`. Default: constant, `rate_tps` = 1000.
    - `generator` and its fields, `encoding`: see `streamshed.workload.generators`. Default: uniform.
    - `seed`: chooses the stream. Default: 0.
    - `partitions`: tasks that read a micro-batch. Default: 2.
    - `rows`: the index at which the stream ends. Default: none.
    - `startIndex`: the first tuple of a new stream. Default: 0.
    - `paced`: false makes all tuples available at once, up to `rows`. Default: true.
    - `epoch`: when the pattern begins, in seconds since 1970. Default: when the stream is first started.
    - `maxRowsPerBatch`: the largest micro-batch. Default: all that has arrived.
    - `eventTime`: `generated` (the generator's own) or `arrival`. Default: generated.
    - `failAt`: the index at which the source dies, for tests.

    A tuple's columns are those of the generator and `arrival`, the time at which it arrived: epoch + the pattern's time
    for its index, in live and in unpaced streams alike.
    """

    @classmethod
    def name(cls) -> str:
        return "feeder"

    @property
    def _settings(self) -> FeederSettings:
        return FeederSettings.from_options(dict(self.options))

    def schema(self) -> StructType:
        return from_arrow_schema(self._settings.schema, prefer_timestamp_ntz=False)

    def streamReader(self, schema: StructType) -> FeederStreamReader:  # noqa: ARG002
        return FeederStreamReader(self._settings)

    def reader(self, schema: StructType) -> FeederBatchReader:  # noqa: ARG002
        return FeederBatchReader(self._settings)


def register(spark: SparkSession) -> None:
    """Make the format `feeder` known to a session."""
    spark.dataSource.register(Feeder)


def read_feeder(spark: SparkSession, options: Mapping[str, object]) -> DataFrame:
    """A feeder as a streaming DataFrame; wrong options are refused here, before Spark wraps the message."""
    texts = {name: str(value) for name, value in options.items()}
    FeederSettings.from_options(texts)
    register(spark)
    return spark.readStream.format(Feeder.name()).options(**texts).load()
