"""Where streams come from and answers go to: any Spark format with its options."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamshed.distributed.arc_files import file_name
from streamshed.engines.spark.drops import random_rank
from streamshed.errors import NetworkError, did_you_mean
from streamshed.network import Connector, Output, Stream

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FEEDER = "feeder"
FILE_FORMATS = frozenset({"avro", "csv", "json", "orc", "parquet", "xml"})
"""Formats that are told the columns to read; all others have a schema of their own."""

PASSING_SINKS = frozenset({"console", "memory", "noop"})
"""Sinks that keep nothing over a restart: Spark gives them a checkpoint of their own, and refuses to go on from one."""

ARRIVAL = "_arrival"
"""Travels along unseen with the tuples of a source that can tell: when each of them arrived."""

RAW = "_raw"
"""A line or message as it came, of a stream that is parsed only after its entry drop."""
RANK = "_rank"
"""Travels along with what was such a line: its hash, by which random drops go."""

CORRUPT = "columnNameOfCorruptRecord"
_ARRIVALS = {FEEDER: "arrival", "kafka": "timestamp", "rate": "timestamp", "rate-micro-batch": "timestamp"}
_VALUE = "value"
_PARSED = "_parsed"
_OUTPUT_MODES = ("append", "update", "complete")


def read_stream(spark: SparkSession, stream: Stream, *, late_salt: int | None = None) -> DataFrame:
    """The tuples of a stream: its declared columns, in their order and types, and `ARRIVAL` where the source has it.

    - Files (JSON, CSV, Parquet, …) are read with the declared columns as their schema.
    - A source with a schema of its own (`rate`, `feeder`, any Python data source, the fields of a Kafka record) is
      cast to the declared types; what cannot be cast becomes null.
    - A source of lines or messages (`text`, `socket`, `kafka`) whose schema lacks the declared columns is taken as
      JSON, one object in each `value`. The options of Spark's JSON reader apply.

    A row that cannot be read is kept, with nulls, in the reader's default mode PERMISSIVE: see `well_formed`.

    Args:
        spark: the session.
        stream: its columns and source.
        late_salt: if given, JSON is left for `parsed`: then there are `RAW`, `RANK` (with this salt) and `ARRIVAL`.
    """
    source = stream.source
    if source is None:
        raise NetworkError(
            "a stream without a source cannot be run",
            where=f"stream {stream.id!r}",
            got="none",
            expected="a Spark format with its options",
        )
    schema = _declared(stream)
    frame = _load(spark, stream, source, schema)
    if not _is_json(frame, stream):
        return _conform(frame, stream, source, schema)
    value, arrival = _quoted(_VALUE), _arrival(source)
    if late_salt is not None:
        return frame.select(value.alias(RAW), random_rank([value], late_salt).alias(RANK), *arrival)
    return parsed(frame.select(value.alias(RAW), *arrival), stream, F.lit(True))


def parsed(frame: DataFrame, stream: Stream, wanted: Column) -> DataFrame:
    """The declared columns, in place of `RAW`; all null in rows that are not wanted, which costs next to nothing."""
    options = dict(stream.source.options) if stream.source is not None else {}
    json = F.from_json(F.when(wanted, F.col(RAW).cast("string")), _declared(stream), options)
    rest = [name for name in frame.columns if name != RAW]
    return frame.select(json.alias(_PARSED), *rest).select(f"{_PARSED}.*", *rest)


def well_formed(stream: Stream) -> Column:
    """Whether a row of a stream could be read: false for what PERMISSIVE readers leave of a malformed one.

    That is a row with nothing in it, without its time or one of its keys, or with something in the column for corrupt
    records, where one is declared.
    """
    needed = list(dict.fromkeys([*([stream.time] if stream.time else []), *stream.key]))
    options = stream.source.options if stream.source is not None else {}
    corrupt = options.get(CORRUPT, "_corrupt_record")
    values = [name for name in stream.columns if name != corrupt]
    present = [_quoted(name).isNotNull() for name in values]
    conditions = [reduce(Column.__or__, present, F.lit(False)), *(_quoted(name).isNotNull() for name in needed)]
    if corrupt in stream.columns:
        conditions.append(_quoted(corrupt).isNull())
    return reduce(Column.__and__, conditions)


def write_stream(
    frame: DataFrame, output: Output, *, checkpoint: str | Path, name: str, directory: str | Path
) -> DataStreamWriter:
    """The query that writes an output to its sink, ready to be given a trigger and started.

    An output without a sink goes to Parquet files, each row exactly once, in `directory` under its own id. The mode is
    append, unless the sink's options have another `outputMode` (that one is ours, it is not passed on).

    Args:
        frame: what to write.
        output: its id and sink.
        checkpoint: where the query keeps its progress; not used for sinks that keep nothing over a restart.
        name: the query's name. The `memory` sink makes it a table, with `_` for what no table name may have.
        directory: where outputs without a sink go.
    """
    sink = output.sink or Connector("parquet", {"path": str(Path(directory) / file_name(output.id))})
    options = dict(sink.options)
    mode = options.pop("outputMode", "append")
    if mode not in _OUTPUT_MODES:
        raise NetworkError(
            "unknown output mode",
            where=f"output {output.id!r}",
            got=repr(mode),
            expected=", ".join(_OUTPUT_MODES),
            hint=did_you_mean(mode, _OUTPUT_MODES),
        )
    if sink.format in FILE_FORMATS and mode != "append":
        raise NetworkError(
            "a file sink can only append",
            where=f"output {output.id!r}",
            got=mode,
            expected="append",
            hint="leave out `outputMode`, or use a sink that can replace rows",
        )
    if sink.format == "memory":
        name = "".join(letter if letter.isalnum() else "_" for letter in name)
    writer = frame.writeStream.format(sink.format).options(**options).outputMode(mode).queryName(name)
    return writer if sink.format in PASSING_SINKS else writer.option("checkpointLocation", str(checkpoint))


def _load(spark: SparkSession, stream: Stream, source: Connector, schema: StructType) -> DataFrame:
    if source.format == FEEDER:
        from streamshed.engines.spark.sources.feeder import read_feeder

        return read_feeder(spark, source.options)
    reader = spark.readStream.format(source.format).options(**source.options)
    if source.format in FILE_FORMATS:
        reader = reader.schema(schema)
    try:
        return reader.load()
    except (PySparkException, Py4JError) as error:
        raise NetworkError(
            "Spark cannot open the source",
            where=f"stream {stream.id!r}",
            got=f"{source.format} with options {', '.join(sorted(source.options)) or 'none'}",
            expected="a format that Spark knows, with the options it needs",
            hint=_first_words(error),
        ) from error


def _declared(stream: Stream) -> StructType:
    text = ", ".join(f"{_escaped(name)} {kind}" for name, kind in stream.columns.items())
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise NetworkError(
            "not a Spark type",
            where=f"stream {stream.id!r}",
            got=text,
            expected="column names with Spark SQL types",
            hint=_first_words(error),
        ) from error
    assert isinstance(schema, StructType)
    return schema


def _conform(frame: DataFrame, stream: Stream, source: Connector, schema: StructType) -> DataFrame:
    missing = _missing(frame, stream)
    if missing:
        raise NetworkError(
            "the source lacks a declared column",
            where=f"stream {stream.id!r}",
            got=", ".join(frame.columns),
            expected=", ".join(stream.columns),
            hint=did_you_mean(missing[0], frame.columns),
        )
    declared = [
        _quoted(field.name)
        if frame.schema[field.name].dataType == field.dataType
        else _quoted(field.name).try_cast(field.dataType).alias(field.name)
        for field in schema.fields
    ]
    return frame.select(*declared, *_arrival(source))


def _arrival(source: Connector) -> list[Column]:
    return [_quoted(_ARRIVALS[source.format]).alias(ARRIVAL)] if source.format in _ARRIVALS else []


def _missing(frame: DataFrame, stream: Stream) -> list[str]:
    return [name for name in stream.columns if name not in frame.columns]


def _is_json(frame: DataFrame, stream: Stream) -> bool:
    """Whether the declared columns are in texts."""
    return bool(_missing(frame, stream)) and dict(frame.dtypes).get(_VALUE) in ("string", "binary")


def _first_words(error: PySparkException | Py4JError) -> str:
    """What Spark says, without the trace of the virtual machine."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage()).strip().splitlines()[0]
    return str(error).strip().splitlines()[0]


def _escaped(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> Column:
    return F.col(_escaped(name))
