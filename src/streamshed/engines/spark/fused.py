"""All outputs of a network in one streaming query, so that one micro-batch clock governs them all.

A batch then costs what its arcs cost together, which is what a planner plans with, and every output has the same
delay. Rows have a column for each output, and are united; a sink that is not `noop` gets its own part of every batch.
A stream that is read in several passes is read once: its tuples go through an exchange that all of them reuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from streamshed.distributed.arc_files import ArcFiles, file_name
from streamshed.engines.spark.arcs import ParquetArc
from streamshed.network import Output


def shared(frame: DataFrame, name: str, key: Sequence[str]) -> DataFrame:
    """The same tuples, computed once for all that read them in one query.

    Spark reuses an exchange where two branches have the same one. That takes an exchange (on the key, which needs no
    sort), and that no branch prunes columns ahead of it: the observation looks at all of them, in the cheapest way.
    """
    partitions = frame.sparkSession.sparkContext.defaultParallelism
    some_null = reduce(Column.__or__, (F.col(f"`{column}`").isNull() for column in frame.columns))
    exchanged = frame.repartition(partitions, *(F.col(f"`{column}`") for column in (key or frame.columns[:1])))
    return exchanged.observe(name, F.count_if(some_null).alias("with_nulls"))


def alone(output: str, frame: DataFrame) -> DataFrame:
    """The tuples of one output, as a struct column."""
    return frame.select(F.struct(*(F.col(f"`{name}`") for name in frame.columns)).alias(output))


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows; a column for each output, null in rows that are not for it."""
    types = {field.name: field.dataType for frame in frames for field in frame.schema}

    def with_all(frame: DataFrame) -> DataFrame:
        return frame.select(
            *(
                (F.col(f"`{output}`") if output in frame.columns else F.lit(None).cast(kind)).alias(output)
                for output, kind in types.items()
            )
        )

    return reduce(DataFrame.unionAll, map(with_all, frames))


class Sinks:
    """Writes the parts of every batch where its outputs want them.

    Files without a sink of their own go to `directory/<output>` as Parquet, a directory a batch, replaced as a whole
    when a batch is replayed: each row once. Other formats get a batch again after a crash (at least once).

    Args:
        outputs: all of them; a batch may hold only some.
        directory: for outputs without a sink of their own.
        arcs: those that another application reads, by output id.

    Attributes:
        outputs: all of them; a batch may hold only some.
        tables: what outputs with the sink `memory` have got, by output id.
    """

    def __init__(self, outputs: Sequence[Output], directory: Path, arcs: Mapping[str, ArcFiles] | None = None) -> None:
        self.outputs = outputs
        self.directory = directory
        self.arcs = dict(arcs or {})
        self.tables: dict[str, list[Row]] = {
            output.id: [] for output in outputs if output.sink is not None and output.sink.format == "memory"
        }

    @property
    def keep_nothing(self) -> bool:
        """Whether all outputs go nowhere."""
        return all(output.sink is not None and output.sink.format == "noop" for output in self.outputs)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch of outputs that were put `together`; meant for `foreachBatch`."""
        if self.keep_nothing:
            batch.write.format("noop").mode("overwrite").save()
            return
        if len(self.outputs) == 1 and self.outputs[0].id in self.arcs:  # nothing to tell apart
            self._write_one(self.outputs[0], batch.select(F.col(f"`{self.outputs[0].id}`.*")), batch_id)
            return
        batch = batch.persist()
        try:
            counts = [F.count(F.col(f"`{output}`")).alias(output) for output in batch.columns]
            found = batch.select(*counts).first()
            for output in self.outputs:
                if found is not None and output.id in batch.columns and found[output.id]:
                    rows = batch.where(F.col(f"`{output.id}`").isNotNull()).select(F.col(f"`{output.id}`.*"))
                    self._write_one(output, rows, batch_id)
        finally:
            batch.unpersist()

    def _write_one(self, output: Output, rows: DataFrame, batch_id: int) -> None:
        sink = output.sink
        if output.id in self.arcs:
            ParquetArc(self.arcs[output.id].directory.as_uri()).write(rows, batch_id)
        elif sink is None or (sink.format == "parquet" and "path" not in sink.options):
            ParquetArc((self.directory / file_name(output.id)).as_uri()).write(rows, batch_id)
        elif sink.format == "memory":
            self.tables[output.id].extend(rows.collect())
        elif sink.format == "console":
            rows.show(truncate=False)
        else:
            options: dict[str, Any] = {key: text for key, text in sink.options.items() if key != "outputMode"}
            rows.write.format(sink.format).options(**options).mode("append").save()
