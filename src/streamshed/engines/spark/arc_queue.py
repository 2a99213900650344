"""What lies on a durable arc: how much waits for each of its readers, and what nobody needs any more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from streamshed.engines.spark.arcs import ArcBatch, ParquetArc
from streamshed.engines.spark.passes import Pass

_LOG = logging.getLogger(__name__)


class ArcQueue:
    """The batches on a durable arc, and how far each reader is. Safe for several threads.

    A batch is taken by a reader when a batch of the reader's query starts that reads it, and finished when that one is
    committed and in the ledger: before, Spark may replay it, or it may have to be counted again. What all readers have
    finished is deleted, but not the newest batch: if the stage that writes the arc runs it again, it must find it. A
    deletion that a crash cuts off is made up for after the restart, and nobody reads the remains: each reader's
    checkpoint knows the files that it has had.

    Batches are deleted while all readers process one of their own. Between two of them Spark lists the files, and a
    directory that vanishes just then kills the query ("Permission denied").

    Args:
        spark: the session.
        arc: the directory.
        readers: the ids of the stages that read it.

    Attributes:
        passes: what led to each batch, as far as this run knows.
    """

    def __init__(self, spark: SparkSession, arc: ParquetArc, readers: Sequence[str]) -> None:
        self.arc = arc
        self.readers = tuple(readers)
        self.passes: dict[int, Pass] = {}
        self._spark = spark
        self._lock = threading.Lock()
        self._batches = {number: arc.batch(spark, number) for number in arc.batches(spark)}
        self._taken: dict[str, set[int]] = {reader: set() for reader in self.readers}
        self._finished: dict[str, set[int]] = {reader: set() for reader in self.readers}
        self._deleting = threading.Lock()
        self._processing: set[str] = set()

    def put(self, batch: DataFrame, batch_id: int) -> ArcBatch:
        """Write a batch; give how large it is."""
        written = self.arc.write(batch, batch_id)
        if written.rows:
            with self._lock:
                self._batches[batch_id] = written
        return written

    def take(self, reader: str, numbers: Iterable[int]) -> None:
        """A reader has begun to process batches."""
        with self._lock:
            self._taken[reader] |= self._there(numbers)

    def finish(self, reader: str, numbers: Iterable[int]) -> None:
        """A reader is done with batches for good."""
        with self._lock:
            self._finished[reader] |= self._there(numbers)

    def waiting(self, reader: str) -> list[ArcBatch]:
        """The batches that a reader has not begun to process, in order."""
        with self._lock:
            return [self._batches[number] for number in sorted(self._batches.keys() - self._taken[reader])]

    def unfinished(self, reader: str) -> list[ArcBatch]:
        """The batches that a reader is not done with, in order."""
        with self._lock:
            return [self._batches[number] for number in sorted(self._batches.keys() - self._finished[reader])]

    def waiting_tuples(self, reader: str) -> int:
        """How many tuples of streams led to what waits for a reader; its rows, where that is not known."""
        found = ((self.passes.get(batch.number), batch) for batch in self.waiting(reader))
        return sum(batch.rows if known is None else known.tuples for known, batch in found)

    @contextmanager
    def processing(self, reader: str) -> Iterator[None]:
        """While a reader processes a batch of its own. If all do, what nobody needs any more is deleted."""
        with self._deleting:
            self._processing.add(reader)
            if len(self._processing) == len(self.readers):
                self._sweep()
        try:
            yield
        finally:
            with self._deleting:
                self._processing.discard(reader)

    def _sweep(self) -> None:
        with self._lock:
            finished = set.intersection(*self._finished.values())
            newest = max(self._batches, default=-1)
            old = sorted(number for number in finished if number < newest)
        for number in old:
            try:
                self.arc.remove(self._spark, number)
            except Exception as error:
                _LOG.warning("batch %d of %s cannot be deleted yet: %s", number, self.arc.directory, error)
                continue
            with self._lock:
                self._batches.pop(number, None)
                self.passes.pop(number, None)
                for of_reader in (*self._taken.values(), *self._finished.values()):
                    of_reader.discard(number)

    def _there(self, numbers: Iterable[int]) -> set[int]:
        """Those that have not been deleted. A reader may see a batch before its writer has come round to saying so."""
        newest = max(self._batches, default=-1)
        return {number for number in numbers if number in self._batches or number > newest}
