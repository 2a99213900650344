"""The ledger: for every micro-batch and drop, how many tuples came in, were dropped, were malformed, went on.

**What is exact when.** Spark reports a batch only after it is committed, and asynchronously: a driver that is killed
may take the report of its last batches with it. Nothing in the ledger rests on that report alone:

1. *The batch was reported.* Its row is on disk; counts are those of the operators themselves.
2. *The batch was not committed.* Spark replays it from the same offsets with the same start time, so that the control
   line gives it the same thresholds, and drops the same tuples. Its row takes the place of an earlier one.
3. *The batch was committed (or a sink that had it already skipped the replay), but its report is lost.* The batch is in
   the checkpoint's offset log without a row here: it is open. Its tuples are read again from the source, between the
   same offsets, and counted with the thresholds that the control history has for its start time. This needs sources
   that can be read again, each with one entry drop, and tuples ahead of it that depend on nothing else (no state).
   Drops further in have no row for such a batch.

An open batch is in the summary as such until it is settled, so that sums never pass for complete when they are not.

The files are JSON lines, one file per query, on disk before the writer goes on. The last row of a (batch, drop) counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from streamshed.engines.spark.journal import Journal
from streamshed.errors import InvalidValueError, StreamshedError

By = Literal["stream", "drop", "output", "time"]


@dataclass(frozen=True)
class LedgerRow:
    """One drop in one micro-batch.

    Attributes:
        query_id: of the query, the same after a restart.
        run_id: of the run that did the batch.
        output: the name of the query, or its id if it has none.
        batch_id: counted from 0.
        drop: the name of the drop.
        stream: whose tuples it drops.
        entry: whether all tuples of the stream pass here; other drops lie behind one that does.
        time_ms: when the batch started, milliseconds since 1970.
        arrived: tuples that came in.
        delivered: tuples that went on.
        dropped: tuples that were shed.
        malformed: tuples that were not well-formed.
        fraction: the threshold, as applied.
        salt: of the rank.
        sources: for each source its description, start and end offset.
        source: whether all tuples of a source of the query pass here: a stream, or the durable arc between two stages.
        recounted: whether the tuples were counted again because the report was lost.
    """

    query_id: str
    run_id: str
    output: str
    batch_id: int
    drop: str
    stream: str
    entry: bool
    time_ms: int
    arrived: int
    delivered: int
    dropped: int
    malformed: int
    fraction: float
    salt: int
    sources: list[Mapping[str, Any]] = field(default_factory=list)
    source: bool = False
    recounted: bool = False


@dataclass(frozen=True)
class LedgerQuery:
    """A query that the ledger is about.

    Attributes:
        query_id: of the query.
        output: its name, or its id.
        checkpoint: where its checkpoint is.
        first_batch: the first batch that ran under control.
        drops: the names of its drops, in the order of its sources.
    """

    query_id: str
    output: str
    checkpoint: str
    first_batch: int
    drops: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Total:
    """Sums over the rows of one stream, drop, output or minute.

    Attributes:
        key: of what.
        batches: how many micro-batches.
        arrived: tuples that came in.
        delivered: tuples that went on.
        dropped: tuples that were shed.
        malformed: tuples that were not well-formed.
        open: batches whose tuples are still to be counted.
    """

    key: str
    batches: int
    arrived: int
    delivered: int
    dropped: int
    malformed: int
    open: int = 0

    @property
    def balanced(self) -> bool:
        """Whether every tuple is accounted for."""
        return self.open == 0 and self.arrived == self.delivered + self.dropped + self.malformed


class Ledger:
    """Writes and reads the ledger in a directory; made if it does not exist."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._journals: dict[str, Journal] = {}

    def add_query(self, query: LedgerQuery) -> None:
        """Note that a query runs under control."""
        self._journal(query.query_id).append({"kind": "query", **asdict(query)})

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Write the rows of a batch; earlier rows of the same batch and drop no longer count."""
        records: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            records.setdefault(row.query_id, []).append({"kind": "batch", **asdict(row)})
        for query_id, of_query in records.items():
            self._journal(query_id).append(*of_query)

    def open_batch(self, query_id: str, batch_id: int) -> None:
        """Note that a batch is over of which there is no report."""
        self._journal(query_id).append({"kind": "open", "batch_id": batch_id})

    def queries(self) -> dict[str, LedgerQuery]:
        """All queries by id. The first batch under control is that of the first run."""
        found: dict[str, LedgerQuery] = {}
        for record in self._records("query"):
            query = LedgerQuery(**record)
            if query.query_id in found:
                query = LedgerQuery(**{**record, "first_batch": found[query.query_id].first_batch})
            found[query.query_id] = query
        return found

    def rows(self, query_id: str = "*") -> list[LedgerRow]:
        """The rows that count, of one query or of all, in the order of queries, batches and drops."""
        rows = [LedgerRow(**record) for record in self._records("batch", query_id)]
        latest = {(row.query_id, row.batch_id, row.drop): row for row in rows}
        return [latest[key] for key in sorted(latest)]

    def open_batches(self) -> dict[str, set[int]]:
        """The batches, by query, that were noted as open and have no rows yet."""
        found: dict[str, set[int]] = {}
        for path in self._paths():
            records = list(Journal(path).read())
            done = {record["batch_id"] for record in records if record.get("kind") == "batch"}
            left = {record["batch_id"] for record in records if record.get("kind") == "open"} - done
            if left:
                found[path.stem] = left
        return found

    def _journal(self, query_id: str) -> Journal:
        return self._journals.setdefault(query_id, Journal(self.directory / f"{query_id}.jsonl"))

    def _paths(self, query_id: str = "*") -> list[Path]:
        return sorted(self.directory.glob(f"{query_id}.jsonl"))

    def _records(self, kind: str, query_id: str = "*") -> Iterable[dict[str, Any]]:
        for path in self._paths(query_id):
            for record in Journal(path).read():
                if record.pop("kind", None) == kind:
                    yield record


def summarise(directory: str | Path, by: By = "stream") -> list[Total]:
    """Sum a ledger up.

    Args:
        directory: that of the ledger, or of the guard that keeps it.
        by: what to sum over. Only `drop` shows drops that lie behind others; the rest count each tuple where it
            enters: the network, or with `output` the query (a durable arc is a source, too, of the stage that reads
            it). A stream that two queries read is counted in both.

    Raises:
        StreamshedError: if there is no ledger.
    """
    place = Path(directory)
    place = place / "ledger" if (place / "ledger").is_dir() else place
    if not any(place.glob("*.jsonl")):
        raise StreamshedError("there is no ledger", where=str(directory), expected="the directory of a guard")
    ledger = Ledger(place)
    keys = {
        "stream": lambda row: row.stream,
        "drop": lambda row: row.drop,
        "output": lambda row: row.output,
        "time": lambda row: datetime.fromtimestamp(row.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
    }
    if by not in keys:
        raise InvalidValueError("a ledger cannot be summed so", where="ledger", got=by, expected=", ".join(keys))
    groups: dict[str, list[LedgerRow]] = {}
    for row in ledger.rows():
        if row.entry or by == "drop" or (by == "output" and row.source):
            groups.setdefault(keys[by](row), []).append(row)
    waiting = ledger.open_batches()
    totals = [_total(key, rows, waiting) for key, rows in sorted(groups.items())]
    unseen = set(waiting) - {row.query_id for rows in groups.values() for row in rows}
    totals += [Total(query_id, 0, 0, 0, 0, 0, len(waiting[query_id])) for query_id in sorted(unseen)]
    return totals


def _total(key: str, rows: list[LedgerRow], waiting: Mapping[str, set[int]]) -> Total:
    queries = {row.query_id for row in rows}
    return Total(
        key,
        len({(row.query_id, row.batch_id) for row in rows}),
        sum(row.arrived for row in rows),
        sum(row.delivered for row in rows),
        sum(row.dropped for row in rows),
        sum(row.malformed for row in rows),
        sum(len(waiting.get(query_id, ())) for query_id in queries),
    )
