"""Small replayable streams for tests: a directory of Parquet files, one file a micro-batch."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from streamshed.engines.spark.control_line import ControlLine
from tests.polling import wait_for

__all__ = ["SCHEMA", "add_file", "read_stream", "rows", "wait_for", "wait_for_slot"]

SCHEMA = "id bigint, car int, speed double, arrival timestamp"


def rows(count: int, first: int = 0) -> pd.DataFrame:
    ids = np.arange(first, first + count, dtype=np.int64)
    return pd.DataFrame(
        {
            "id": ids,
            "car": (ids % 97).astype("int32"),
            "speed": (ids * 7919 % 1000) / 10.0,
            "arrival": pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(ids, unit="ms"),
        }
    )


def add_file(directory: Path, frame: pd.DataFrame) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    number = len(list(directory.glob("*.parquet")))
    temporary = directory / f".{number:05d}.tmp"
    frame.to_parquet(temporary, index=False, coerce_timestamps="us")
    temporary.rename(directory / f"{number:05d}.parquet")


def read_stream(spark: SparkSession, directory: Path, schema: str = SCHEMA) -> DataFrame:
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(directory))


def wait_for_slot(line: ControlLine) -> None:
    """Until the slot has begun from which the last change holds: whatever batch starts now obeys it."""
    from_ms = line.holds_from_ms
    wait_for(lambda: time.time() * 1000 >= from_ms, "the slot to begin")
