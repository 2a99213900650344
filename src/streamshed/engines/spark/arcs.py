"""Durable arcs: what one stage writes and others read, each at its own pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Add a micro-batch; meant for `foreachBatch`. Does nothing but compute it if it is there already."""
        spark = batch.sparkSession
        target = f"{self.directory}/batch-{batch_id:012d}"
        if _exists(spark, target):
            batch.write.format("noop").mode("overwrite").save()
            return
        unfinished = f"{self.directory}/.batch-{batch_id:012d}"
        batch.write.mode("overwrite").parquet(unfinished)
        _rename(spark, unfinished, target)

    def read(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """The rows as a stream. The schema is that of the frame that is written."""
        _make_directory(spark, self.directory)
        # Field metadata would carry the producer's watermark along, without the watermark itself.
        plain = StructType([StructField(field.name, field.dataType) for field in schema.fields])
        return spark.readStream.schema(plain).option("recursiveFileLookup", "true").parquet(self.directory)

    def writer(self, frame: DataFrame, *, checkpoint: str, name: str) -> DataStreamWriter:
        """The query that writes a stage's frame here, ready to be given a trigger and started."""
        return frame.writeStream.queryName(name).option("checkpointLocation", checkpoint).foreachBatch(self.write)


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


def _rename(spark: SparkSession, source: str, target: str) -> None:
    files, place = _file_system(spark, source)
    if not files.rename(place, _file_system(spark, target)[1]):
        raise OSError(f"cannot rename {source} to {target}")
