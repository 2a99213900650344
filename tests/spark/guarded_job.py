"""A job for tests that kill it: python -m tests.spark.guarded_job PLACE MASTER"""

import sys
from pathlib import Path

from streamshed.control import Outlook, PlantController
from streamshed.control.plant import BatchAdmission
from streamshed.engines.spark.session import session
from streamshed.guard import Guard
from tests.spark.streams import read_stream


class Restless(PlantController):
    """Wants something else all the time."""

    def admit(self, outlook: Outlook) -> BatchAdmission:
        return BatchAdmission(1.0, (int(outlook.time_s * 20) * 37 % 256) / 256)


def main(place: Path, master: str) -> None:
    spark = session(master, "guarded-job", {"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("ERROR")
    with Guard(spark, 1.0, place / "guard", controller=Restless) as guard:
        events = guard.protect(read_stream(spark, place / "in"), key=["id"], name="cars", arrival="arrival")
        writer = events.writeStream.format("parquet").queryName("kept").option("path", str(place / "out"))
        query = guard.watch(writer.option("checkpointLocation", str(place / "checkpoint")).start())
        query.processAllAvailable()
        query.stop()
        guard.gate.accounts.wait(30)
        print("left open:", guard.settle())
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
