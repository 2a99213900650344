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
One that is missing between two others is open, too, whether anybody has noted it or not.

The files are JSON lines, one file per query, on disk before the writer goes on. The last row of a (batch, drop) counts.
The rows of a batch are written together; all but the last say that there are more, so that a batch of which a dying
writer left the first rows only is not taken for entered.

A query may run for months. Rows of its latest batches are kept as they are, by the ten thousand; those of older ones
are added up by the minute, drop by drop. So sums stay as exact as they were, and the file, the memory that it takes and
the time of a restart stay small. Spark's checkpoint has long forgotten these batches: none of them can come again.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from streamshed.engines.spark.journal import Journal, Record

KEPT_ROWS = 20_000
"""So many rows of a query are kept, and up to twice as many before older ones are added up."""

_MINUTE_MS = 60_000


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
class LedgerSum:
    """One drop in all batches that started within a minute, and are too old to be kept one by one.

    Attributes:
        query_id: of the query.
        output: its name.
        drop: the name of the drop.
        stream: whose tuples it drops.
        entry: whether all tuples of the stream pass here.
        source: whether all tuples of a source of the query pass here.
        time_ms: the begin of the minute, milliseconds since 1970.
        batches: how many.
        arrived: tuples that came in.
        delivered: tuples that went on.
        dropped: tuples that were shed.
        malformed: tuples that were not well-formed.
    """

    query_id: str
    output: str
    drop: str
    stream: str
    entry: bool
    source: bool
    time_ms: int
    batches: int
    arrived: int
    delivered: int
    dropped: int
    malformed: int


_COUNTED = ("batches", "arrived", "delivered", "dropped", "malformed")
_NAMED = tuple(one.name for one in fields(LedgerSum) if one.name not in _COUNTED)


@dataclass(frozen=True)
class LedgerPage:
    """What the file of one query says.

    Attributes:
        query_id: of the query.
        query: the query, if it says so.
        rows: of the latest batches, in the order of batches and drops.
        sums: of those before.
        open: the batches that have not been entered: noted as open, broken off, or missing between others.
    """

    query_id: str
    query: LedgerQuery | None
    rows: list[LedgerRow]
    sums: list[LedgerSum]
    open: set[int]


def _page(query_id: str, records: Sequence[Record]) -> LedgerPage:
    book = _Book(records)
    return LedgerPage(
        query_id,
        _query(records),
        [LedgerRow(**_content(record)) for record in _latest_rows(records, book.entered)],
        [LedgerSum(**_content(record)) for record in _of_kind("sum", records)],
        book.open | book.holes,
    )


def _query(records: Iterable[Record]) -> LedgerQuery | None:
    """As noted last; but the first batch under control is that of the first run."""
    found = [LedgerQuery(**_content(record)) for record in _of_kind("query", records)]
    return replace(found[-1], first_batch=found[0].first_batch) if found else None


def _of_kind(kind: str, records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.get("kind") == kind)


def _content(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in ("kind", "more")}


def _latest_rows(records: Iterable[Record], entered: Collection[int]) -> list[Record]:
    """The last one of each batch and drop, in their order; of batches that have been entered."""
    rows = (record for record in _of_kind("batch", records) if record["batch_id"] in entered)
    latest = {(record["batch_id"], record["drop"]): record for record in rows}
    return [latest[key] for key in sorted(latest)]


def _added_up(records: Iterable[Record]) -> list[Record]:
    """Records of rows and sums, as one sum for each drop and minute."""
    found: dict[tuple[object, ...], Record] = {}
    for record in records:
        part = {"batches": 1, **record, "time_ms": record["time_ms"] - record["time_ms"] % _MINUTE_MS}
        key = tuple(part[name] for name in _NAMED)
        if key not in found:
            found[key] = {"kind": "sum", **dict(zip(_NAMED, key, strict=True)), **dict.fromkeys(_COUNTED, 0)}
        total = found[key]
        for name in _COUNTED:
            total[name] += part[name]
    return list(found.values())


class _Book:
    """Which batches are in the records of one query."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.rows = 0
        self.entered: set[int] = set()
        self.noted: set[int] = set()
        self.folded_to = -1
        self.first: int | None = None
        for record in records:
            self.note(record)

    def note(self, record: Record) -> None:
        match record.get("kind"):
            case "query":
                self.first = record["first_batch"] if self.first is None else self.first
            case "batch":
                self.rows += 1
                if not record.get("more"):
                    self.entered.add(record["batch_id"])
            case "open":
                self.noted.add(record["batch_id"])
            case "folded":
                self.folded_to = record["to"]

    @property
    def open(self) -> set[int]:
        return self.noted - self.entered

    @property
    def holes(self) -> set[int]:
        """What is missing before the last batch that was entered."""
        return self.missing(max(self.entered, default=0))

    def missing(self, end: int) -> set[int]:
        """What has not been entered of the batches before one, from the first one under control on."""
        first = min(self.entered, default=0) if self.first is None else self.first
        return {batch_id for batch_id in range(max(first, self.folded_to + 1), end) if not self.has(batch_id)}

    def has(self, batch_id: int) -> bool:
        return batch_id in self.entered or (batch_id <= self.folded_to and batch_id not in self.noted)


class Ledger:
    """Writes and reads the ledger in a directory; made if it does not exist.

    One process writes, from any of its threads.

    Args:
        directory: holds it.
        kept_rows: how many rows of a query are kept.
    """

    def __init__(self, directory: str | Path, kept_rows: int = KEPT_ROWS) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._kept_rows = kept_rows
        self._lock = threading.RLock()
        self._books: dict[str, tuple[Journal, _Book]] = {}

    # --- writing -----------------------------------------------------------------------------------------------------

    def add_query(self, query: LedgerQuery) -> None:
        """Note that a query runs under control."""
        with self._lock:
            self._write(query.query_id, {"kind": "query", **vars(query)})

    def add(self, rows: Iterable[LedgerRow]) -> None:
        """Write the rows of a batch; earlier rows of the same batch and drop no longer count.

        Nothing is written of a batch that has been added up: it comes for the second time.
        """
        batches: dict[tuple[str, int], list[Record]] = {}
        for row in rows:
            batches.setdefault((row.query_id, row.batch_id), []).append({"kind": "batch", "more": True, **vars(row)})
        with self._lock:
            for (query_id, batch_id), of_batch in batches.items():
                book = self._book(query_id)
                if book.has(batch_id) and batch_id not in book.entered:
                    continue
                del of_batch[-1]["more"]
                self._write(query_id, *of_batch)
                if book.rows > 2 * self._kept_rows:
                    self._fold(query_id)

    def open_batch(self, query_id: str, batch_id: int) -> None:
        """Note that a batch is over of which there is no report."""
        with self._lock:
            self._write(query_id, {"kind": "open", "batch_id": batch_id})

    def _fold(self, query_id: str) -> None:
        """Add rows up that are older than those to be kept."""
        journal, book = self._books.pop(query_id)
        records = list(journal.read())
        rows = _latest_rows(records, book.entered)
        first = rows[-self._kept_rows]["batch_id"]
        old = [record for record in rows if record["batch_id"] < first]
        query = _query(records)
        journal.replace(
            [
                *([{"kind": "query", **vars(query)}] if query is not None else []),
                {"kind": "folded", "to": max(first - 1, book.folded_to)},
                *_added_up([*_of_kind("sum", records), *old]),
                *({"kind": "open", "batch_id": batch_id} for batch_id in sorted(book.open | book.holes)),
                *rows[len(old) :],
            ]
        )

    # --- reading -----------------------------------------------------------------------------------------------------

    def has(self, query_id: str, batch_id: int) -> bool:
        """Whether a batch has been entered."""
        with self._lock:
            return self._book(query_id).has(batch_id)

    def noted_open(self, query_id: str) -> set[int]:
        """The batches of a query that were noted as open and have not been entered yet."""
        with self._lock:
            return self._book(query_id).open

    def missing(self, query_id: str, end: int) -> set[int]:
        """The batches of a query before a certain one that have not been entered, noted as open or not."""
        with self._lock:
            book = self._book(query_id)
            return book.open | book.missing(end)

    def queries(self) -> dict[str, LedgerQuery]:
        """All queries by id."""
        return {page.query.query_id: page.query for page in self.pages() if page.query is not None}

    def pages(self) -> list[LedgerPage]:
        """What the files say, each read once: what is added up meanwhile is neither missed nor counted twice."""
        return [_page(path.stem, list(Journal(path).read())) for path in sorted(self.directory.glob("*.jsonl"))]

    def rows(self) -> list[LedgerRow]:
        """The rows that count, in the order of queries, batches and drops."""
        return [row for page in self.pages() for row in page.rows]

    def _write(self, query_id: str, *records: Record) -> None:
        book = self._book(query_id)
        self._books[query_id][0].append(*records)
        for record in records:
            book.note(record)

    def _book(self, query_id: str) -> _Book:
        if query_id not in self._books:
            journal = Journal(self.directory / f"{query_id}.jsonl")
            self._books[query_id] = journal, _Book(journal.read())
        return self._books[query_id][1]
