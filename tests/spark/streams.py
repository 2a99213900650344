"""Small replayable streams for tests: a directory of Parquet files, one file a micro-batch."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

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


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
