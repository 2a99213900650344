"""A Spark session that is set up for Streamshed, and an understandable error where Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from streamshed.errors import StreamshedError

__all__ = [
    "LOCAL_SETTINGS",
    "OLDEST_JAVA",
    "JavaError",
    "SparkSession",
    "find_java",
    "java_version",
    "session",
    "temporary_session",
]

OLDEST_JAVA = 17
"""What Spark 4 needs."""

LOCAL_SETTINGS = {
    # A streaming query writes some small files for every micro-batch. By default Spark does so through Hadoop's checked
    # local file system, which starts a process for each (chmod, readlink): about 0.1 s a batch. Files are still written
    # beside their place and renamed into it.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Batches without tuples would only delay those with tuples; windows are closed by the next batch that has some.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # With few cores Java has one compiler thread, which is minutes behind with all of Spark's code. The stack is for a
    # query that is stopped while it writes from Python: Spark then looks for the cause in a long message, with a
    # regular expression that takes five calls a letter.
    "spark.driver.extraJavaOptions": "-XX:CICompilerCount=4 -Xss16m",
}
"""What makes micro-batches short where Spark runs in this process and keeps its checkpoints on a local disk."""

_INSTALL = f"install a Java runtime, version {OLDEST_JAVA} or newer, and set JAVA_HOME to its directory"


class JavaError(StreamshedError, RuntimeError):
    """There is no Java runtime that Spark could use."""


def session(
    master: str = "local[*]",
    app_name: str = "streamshed",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a Spark session, or get the one that runs.

    Times are in UTC, the web interface is off, and Python workers run the interpreter of the driver.

    Args:
        master: where Spark runs: `local[*]`, or the URL of a cluster.
        app_name: the name that the cluster shows.
        config: further settings; they win over the defaults here.
    """
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **(LOCAL_SETTINGS if master.startswith("local[") else {}),
        **(config or {}),
    }
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def temporary_session(
    master: str = "local[*]", app_name: str = "streamshed", config: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that is stopped at the end of the block, unless it ran before: then it is used as it is.

    Where Spark runs in this process, state is kept in as many partitions as there are cores, unless `config` has
    `spark.sql.shuffle.partitions`: Spark's own 200 would make every micro-batch write hundreds of small files.
    """
    if SparkContext._active_spark_context is not None:
        yield SparkSession.builder.getOrCreate()
        return
    spark = session(master, app_name, config)
    try:
        if master.startswith("local[") and "spark.sql.shuffle.partitions" not in (config or {}):
            spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism)
        yield spark
    finally:
        spark.stop()


def find_java() -> Path:
    """The Java program that Spark will start: the one in JAVA_HOME, else the one on the path.

    Raises:
        JavaError: if there is none, it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise JavaError("Spark needs Java, and none was found", expected=f"Java {OLDEST_JAVA} or newer", hint=_INSTALL)
    where = f"JAVA_HOME={home}" if home else found
    try:
        # Java writes its version to the error stream.
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError("Java does not start", where=where, got=error, hint=_INSTALL) from error
    version = java_version(answer)
    if version is not None and version < OLDEST_JAVA:
        raise JavaError("Java is too old", where=where, got=version, expected=f">= {OLDEST_JAVA}", hint=_INSTALL)
    return Path(found)


def java_version(answer: str) -> int | None:
    """The major version in what `java -version` says, or None if it does not say.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_202"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match.group(1)) if match else None
