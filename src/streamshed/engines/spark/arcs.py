"""Durable arcs: what one stage writes and others read, each at its own pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from streamshed.distributed.arc_files import batch_number
from streamshed.errors import StreamshedError


class ArcError(StreamshedError, OSError):
    """A durable arc cannot be used."""


@dataclass(frozen=True)
class ArcBatch:
    """A micro-batch that lies on an arc."""

    number: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class ParquetArc:
    """A directory of Parquet files, a sub-directory for each micro-batch of the stage that writes it.

    A batch appears at once and stays as it is: it is written under a name that readers pass over, then renamed. Spark
    may call the writer again with a batch that it wrote before a crash; such a replay is computed (state must go on,
    and observations be made) but not written, because readers may have taken the first version already. So each row
    is there once, as long as the file system renames a directory in one step: local disks and HDFS do, most object
    stores do not.

    Attributes:
        directory: path or URI, on a file system that all nodes of the cluster share.
    """

    directory: str

    def write(self, batch: DataFrame, batch_id: int) -> ArcBatch:
        """Add a micro-batch; meant for `foreachBatch`. Does nothing but compute it if it is there already.

        One without rows leaves nothing: readers would have to run a batch of their own to see that it is empty.
        """
        spark = batch.sparkSession
        target = self._place(batch_id)
        if _exists(spark, target):
            batch.write.format("noop").mode("overwrite").save()
            return self._size(spark, target, batch_id)
        unfinished = f"{self.directory}/.batch-{batch_id:012d}"
        batch.write.mode("overwrite").parquet(unfinished)
        written = self._size(spark, unfinished, batch_id)
        if written.rows:
            _rename(spark, unfinished, target)
        else:
            _delete(spark, unfinished)
        return written

    def read(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """The rows as a stream. The schema is that of the frame that is written."""
        _make_directory(spark, self.directory)
        # Field metadata would carry the producer's watermark along, without the watermark itself.
        plain = StructType([StructField(field.name, field.dataType) for field in schema.fields])
        # With a pattern each batch is a root of its own. A root may vanish while files are listed; what is within one
        # may not.
        return spark.readStream.schema(plain).parquet(f"{self.directory}/batch-*")

    def check_writable(self, spark: SparkSession, where: str) -> None:
        """Make the directory, and see whether files can be written there.

        Raises:
            ArcError: if not.
        """
        try:
            _make_directory(spark, self.directory)
            files, probe = _file_system(spark, f"{self.directory}/.probe")
            files.create(probe).close()
            files.delete(probe, False)
        except Py4JError as error:
            reason = getattr(error, "java_exception", None)
            raise ArcError(
                "a durable arc cannot be written",
                where=where,
                got=f"{self.directory}: {reason.getMessage() if reason is not None else error}",
                expected="a directory that this process may write, and that all machines of the cluster see",
            ) from None

    def batches(self, spark: SparkSession) -> list[int]:
        """The numbers of the batches that are there, in order."""
        files, place = _file_system(spark, self.directory)
        if not files.exists(place):
            return []
        numbers = (batch_number(status.getPath().getName()) for status in files.listStatus(place))
        return sorted(number for number in numbers if number is not None)

    def batch(self, spark: SparkSession, number: int) -> ArcBatch:
        """How large a batch is."""
        return self._size(spark, self._place(number), number)

    @staticmethod
    def _size(spark: SparkSession, path: str, number: int) -> ArcBatch:
        """From the ends of the files, which hold their numbers of rows."""
        jvm: Any = spark._jvm
        files, place = _file_system(spark, path)
        rows = size = 0
        for status in files.listStatus(place) if files.exists(place) else ():
            if status.getPath().getName().endswith(".parquet"):
                file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(status.getPath(), files.getConf())
                reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
                rows, size = rows + int(reader.getRecordCount()), size + int(status.getLen())
                reader.close()
        return ArcBatch(number, rows, size)

    def remove(self, spark: SparkSession, number: int) -> None:
        """Delete a batch that nobody needs any more; does nothing if it is gone."""
        _delete(spark, self._place(number))

    def _place(self, number: int) -> str:
        return f"{self.directory}/batch-{number:012d}"


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), place


def _exists(spark: SparkSession, path: str) -> bool:
    files, place = _file_system(spark, path)
    return bool(files.exists(place))


def _make_directory(spark: SparkSession, path: str) -> None:
    files, place = _file_system(spark, path)
    files.mkdirs(place)


def _delete(spark: SparkSession, path: str) -> None:
    files, place = _file_system(spark, path)
    files.delete(place, True)


def _rename(spark: SparkSession, source: str, target: str) -> None:
    files, place = _file_system(spark, source)
    if not files.rename(place, _file_system(spark, target)[1]):
        raise OSError(f"cannot rename {source} to {target}")
