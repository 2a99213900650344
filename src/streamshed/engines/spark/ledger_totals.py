"""The ledger summed up: by stream, drop, output or minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from streamshed.engines.spark.ledger import Ledger, LedgerRow, LedgerSum
from streamshed.errors import InvalidValueError, StreamshedError

By = Literal["stream", "drop", "output", "time"]


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
    keys: dict[str, Callable[[LedgerRow | LedgerSum], str]] = {
        "stream": lambda row: row.stream,
        "drop": lambda row: row.drop,
        "output": lambda row: row.output,
        "time": lambda row: datetime.fromtimestamp(row.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
    }
    if by not in keys:
        raise InvalidValueError("a ledger cannot be summed so", where="ledger", got=by, expected=", ".join(keys))
    groups: dict[str, list[LedgerRow | LedgerSum]] = {}
    pages = Ledger(place).pages()
    for page in pages:
        found: list[LedgerRow | LedgerSum] = [*page.sums, *page.rows]
        for row in found:
            if row.entry or by == "drop" or (by == "output" and row.source):
                groups.setdefault(keys[by](row), []).append(row)
    waiting = {page.query_id: page.open for page in pages if page.open}
    totals = [_total(key, rows, waiting) for key, rows in sorted(groups.items())]
    unseen = set(waiting) - {row.query_id for rows in groups.values() for row in rows}
    totals += [Total(query_id, 0, 0, 0, 0, 0, len(waiting[query_id])) for query_id in sorted(unseen)]
    return totals


def _total(key: str, rows: list[LedgerRow | LedgerSum], waiting: Mapping[str, set[int]]) -> Total:
    queries = {row.query_id for row in rows}
    return Total(
        key,
        _batches(rows),
        sum(row.arrived for row in rows),
        sum(row.delivered for row in rows),
        sum(row.dropped for row in rows),
        sum(row.malformed for row in rows),
        sum(len(waiting.get(query_id, ())) for query_id in queries),
    )


def _batches(rows: list[LedgerRow | LedgerSum]) -> int:
    """How many batches it is about: each has a row for every drop, and so counts in several sums of its minute."""
    single = {(row.query_id, row.batch_id) for row in rows if isinstance(row, LedgerRow)}
    of_minute: dict[tuple[str, int], int] = {}
    for row in rows:
        if isinstance(row, LedgerSum):
            minute = (row.query_id, row.time_ms)
            of_minute[minute] = max(of_minute.get(minute, 0), row.batches)
    return len(single) + sum(of_minute.values())
