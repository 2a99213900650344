"""Counts the tuples of a past micro-batch again, for a ledger whose report was lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.engines.spark.checkpoint import CheckpointLog
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.errors import StreamshedError

_NAME = "streamshed-recount"

At = Callable[[Callable[[int], Column]], DataFrame]
"""Makes a drop again with thresholds of its own, given by their places on the control line."""

Recount = Callable[[CheckpointLog, int, Mapping[str, At], Sequence[float], Sequence[str]], Mapping[str, DropCounts]]
"""What `recount` does."""


def is_recount(query_name: str | None) -> bool:
    """Whether a query is there only to count again: what it reports is no batch of its own."""
    return query_name is not None and query_name.startswith(f"{_NAME}/")


class RecountError(StreamshedError, RuntimeError):
    """A batch cannot be counted again."""


def recount(
    log: CheckpointLog, batch_id: int, drops: Mapping[str, At], fractions: Sequence[float], plan_order: Sequence[str]
) -> dict[str, DropCounts]:
    """What each drop did in a batch that is over.

    A query that does nothing but count is started from a copy of the checkpoint's logs that ends just before the
    batch, so that Spark itself reads the same tuples again, whatever the source.

    Args:
        log: of the query that ran the batch.
        batch_id: which one.
        drops: makes each drop again, by observation name; in the order of the query's sources.
        fractions: of the batch, by their places on the control line.
        plan_order: the observation names of the drops as they are in the query's plan, from left to right: a stream
            that is read in several places has its drop there as often.

    Raises:
        RecountError: if the sources of the drops are not those of the query, or the batch is no longer in the log.
    """
    batch = log.batch(batch_id)
    if batch is None:
        raise RecountError("the batch is no longer in the checkpoint", where=log.root, got=f"batch {batch_id}")
    if len(batch.offsets) != len(plan_order):
        raise RecountError(
            "a batch can be counted again only if every source of its query is guarded, once",
            where=log.root,
            got=f"{len(batch.offsets)} sources, {len(plan_order)} drops",
        )
    scratch = Path(tempfile.mkdtemp(prefix="streamshed-recount-"))
    try:
        log.copy_for_replay(batch_id, scratch / "checkpoint", [plan_order.index(name) for name in drops])
        frames = [at(lambda place: F.lit(fractions[place])) for at in drops.values()]
        report = _replay(batch_id, frames, scratch / "checkpoint")
        # A source without tuples in this batch leaves no counts.
        return {name: report.counts(name) or DropCounts(0, 0, 0) for name in drops}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _replay(batch_id: int, frames: Sequence[DataFrame], checkpoint: Path) -> BatchReport:
    together = reduce(DataFrame.unionAll, [frame.select(F.lit(1).alias("tuple")) for frame in frames])
    writer = together.writeStream.format("noop").option("checkpointLocation", checkpoint.as_uri())
    # `once` runs the batch that is begun and no other; `availableNow` would go on with new tuples.
    query = writer.queryName(f"{_NAME}/{checkpoint.parent.name}").trigger(once=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        report = BatchReport.from_json(progress.json)
        if report.batch_id == batch_id:
            return report
    raise RecountError("Spark did not run the batch again", where=str(checkpoint), got=f"batch {batch_id}")
