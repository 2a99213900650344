"""The control line: the fractions to drop, in a file that every micro-batch reads anew.

A drop joins a stream with the one row that this file gives, broadcast, and compares ranks with it. Spark reads the file
in every micro-batch, so that a change of the file changes the next micro-batch of the running query. One line holds
the thresholds of all drops of an application, and one broadcast serves them all.

**What a batch drops is settled when it starts.** Time is cut into slots of 50 ms. The line is a ring: for each slot
it holds the thresholds of a batch that starts within it. A batch takes those of its own start time, which is
`current_timestamp()` in a streaming plan: Spark writes it to the offset log before the batch runs, and a batch that is
replayed after a crash has it again. A change holds from a slot that has not begun yet, and is in the durable history
beside the line before it can be seen, where it stays for hours. So the thresholds of a batch follow from two durable
logs, a replay drops the same tuples as the first attempt, and a batch of which nothing else is left can be counted
again. (This is why there is a join and not a scalar subquery: in a subquery, `current_timestamp()` is the time of
planning.)

The ring reaches 12.8 s back (for batches that have started but not read it yet) and 12.8 s ahead (for a writer that is
held up). A batch that is replayed later than that is pinned: its slot keeps what it was.

Hazards that shape the file: Spark caches its length, so the width is fixed; it is renamed into place, so that no one
reads half of it; a checksum file that a Hadoop client left behind would go stale, so it is removed. It is read by a
Spark task: on a cluster the directory must be one that all machines see under the same path.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.engines.spark.journal import Journal, Record
from streamshed.errors import InvalidValueError, StreamshedError

LEVELS = 256
"""Thresholds are whole multiples of 1/256: fine enough for control, and three digits wide."""

THRESHOLDS = "_thresholds"
"""The column that holds the fractions of all drops."""

SLOT_MS = 50
SLOTS = 512
_AHEAD = SLOTS // 2
_LEAST_LEAD_MS = 20  # a change must be visible to readers before the slot from which it holds
_MOST_LEAD_MS = 2000
_SPARE_MS = 5

KEPT_CHANGES = 50_000
"""Of the thresholds: those of some hours at least."""

_DIGITS = 4  # of a level, with the space behind it

Levels = tuple[int, ...]


class ControlError(StreamshedError, OSError):
    """The control directory cannot be used."""


class ControlLine:
    """The thresholds of an application's drops, readable by its running queries.

    One driver writes; not safe for several threads.

    Args:
        directory: holds the line and its history; it is made if it does not exist.
        size: how many thresholds there are.
        clock: the time in seconds since 1970, by the clock of the Spark driver.
        kept: how many changes the history keeps, and up to twice as many before it forgets the older ones.

    >>> import tempfile
    >>> line = ControlLine(tempfile.mkdtemp(), 2, clock=lambda: 1000.0)
    >>> slot = line.write([0.25, 1.0])
    >>> line.read(), line.at(999_000), line.at(1_000_100)
    ((0.25, 1.0), (0.0, 0.0), (0.25, 1.0))
    """

    def __init__(
        self, directory: str | Path, size: int, clock: Callable[[], float] = time.time, kept: int = KEPT_CHANGES
    ) -> None:
        if size < 1:
            raise InvalidValueError("a control line needs a threshold", where="control line", got=size, expected=">= 1")
        self.size = size
        self.directory = usable(Path(directory))
        self.path = self.directory / "control"
        self._clock = clock
        self._kept = kept
        self._since = 0
        self._froms: list[int] = []
        self._levels: list[Levels] = []
        self._late: list[tuple[int, int]] = []
        self._pins: dict[int, Levels] = {}
        self._covered = 0
        self._last = 0
        self._history = Journal(self.directory / "control-history.jsonl")
        self._lead_ms = float(_LEAST_LEAD_MS)
        for record in self._published():
            self._replay(record)
        self._ring: NDArray[np.int64] = np.zeros((SLOTS, size), dtype=np.int64)
        self._last = self._froms[-1] if self._froms else 0
        self._forget()
        now = self._slot()
        for slot in range(now - _AHEAD, now):
            self._ring[slot % SLOTS] = self._at(slot)
        self.write([0.0] * size)

    # --- writing ---------------------------------------------------------------------------------------------------

    def write(self, fractions: Sequence[float]) -> int:
        """Set the fraction to drop of every drop; give the time in ms from which batches obey."""
        if len(fractions) != self.size or not all(0 <= fraction <= 1 for fraction in fractions):
            raise InvalidValueError(
                "not fractions to drop",
                where="control line",
                got=list(fractions),
                expected=f"{self.size} numbers from 0 to 1",
            )
        levels = _levels(fractions)
        record = self._announce(levels)
        start = int(record["from"])
        self._replay(record)
        self._publish(start, levels)
        if self._slot() >= start:
            # Held up just now: a batch that started meanwhile may have read the line before the change.
            late: Record = {"late": [start, self._slot()]}
            self._history.append(late)
            self._replay(late)
        self._forget()
        return start * SLOT_MS

    @staticmethod
    def quantised(fractions: Sequence[float]) -> tuple[float, ...]:
        """The fractions as the line holds them."""
        return tuple(level / LEVELS for level in _levels(fractions))

    def refresh(self) -> None:
        """Carry the last thresholds on; to be called at least every few seconds."""
        if self._slot() + _AHEAD // 2 > self._covered:
            self.write(self.read())

    def pin(self, time_ms: int) -> None:
        """Keep the thresholds of a batch that started then, because it is going to be replayed."""
        slot = time_ms // SLOT_MS
        self._pins[slot] = self._at(slot)
        self.write(self.read())

    def release(self, time_ms: int) -> None:
        """The replay is over."""
        self._pins.pop(time_ms // SLOT_MS, None)

    def close(self) -> None:
        """Drop nothing any more, for good: queries that go on are not controlled."""
        self._pins.clear()
        self.write([0.0] * self.size)
        self._ring[:] = 0
        self._store()

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> tuple[float, ...]:
        """The fractions that were written last."""
        return tuple(level / LEVELS for level in self._at(self._froms[-1]))

    @property
    def holds_from_ms(self) -> int:
        """When the last change begins to hold, milliseconds since 1970."""
        return self._last * SLOT_MS

    def at(self, time_ms: int) -> tuple[float, ...]:
        """The fractions of a batch that started at a time."""
        return tuple(level / LEVELS for level in self._at(time_ms // SLOT_MS))

    def is_certain(self, time_ms: int) -> bool:
        """Whether a batch that started then surely read what `at` says.

        Not if a change came too late for it, or the history does not go back so far.
        """
        slot = time_ms // SLOT_MS
        return slot >= self._since and not any(start <= slot <= end for start, end in self._late)

    def thresholds(self, spark: SparkSession) -> DataFrame:
        """One row for the plan of a streaming query: the fractions to drop in its running batch, as `THRESHOLDS`."""
        width = _DIGITS * self.size

        def fractions(line: Column, _: Column) -> Column:
            slot = F.pmod(F.floor(F.unix_millis(F.current_timestamp()) / SLOT_MS), F.lit(SLOTS))
            levels = F.split(F.rtrim(F.substring(line, (slot * width + 1).cast("int"), F.lit(width))), " ")
            return F.transform(levels, lambda level: level.cast("double") / LEVELS)

        # Spark interprets `zip_with` (other than `transform`), so that the start time does not get into generated code:
        # that would be compiled anew, twice, for every batch.
        lines = F.array("value")
        taken = F.zip_with(lines, lines, fractions)[0]
        return spark.read.text(self.path.as_uri()).select(F.coalesce(taken, F.array()).alias(THRESHOLDS))

    # --- within ----------------------------------------------------------------------------------------------------

    def _announce(self, levels: Levels) -> Record:
        """Write a change to the history, with a start that leaves time to publish it."""
        while True:
            asked_ms = self._clock() * 1000
            start = int(asked_ms + self._lead_ms) // SLOT_MS + 1
            start = max(start, self._last)  # also if the clock was set back
            pins = [(start + (pin - start) % SLOTS, of_pin) for pin, of_pin in self._pins.items()]
            pins = [(slot, of_pin) for slot, of_pin in sorted(pins) if slot < start + _AHEAD]
            record: Record = {"from": start, "x": levels, "pins": pins}
            self._history.append(record)
            now_ms = self._clock() * 1000
            self._lead_ms = max(_LEAST_LEAD_MS, 2 * (now_ms - asked_ms), 0.95 * self._lead_ms)
            if now_ms + _SPARE_MS < start * SLOT_MS or self._lead_ms > _MOST_LEAD_MS:
                self._last = start
                return record
            self._history.append({"void": start})  # the disk was slow: too late for this start

    def _published(self) -> list[Record]:
        """The history without what never came to be seen: changes taken back, or cut off by the writer's death."""
        records: list[Record] = []
        for record in self._history.read():
            if "void" in record:
                records.pop()
            else:
                records.append(record)
        if records and "from" in records[-1] and not self._shows(records[-1]):
            self._history.append({"void": records.pop()["from"]})
        return records

    def _shows(self, record: Record) -> bool:
        """Whether the line, as an earlier writer left it, holds a change."""
        levels = self.path.read_text().split() if self.path.exists() else []
        width, slot = len(levels) // SLOTS, int(record["from"]) % SLOTS
        return [f"{level:03d}" for level in record["x"]] == levels[slot * width : (slot + 1) * width]

    def _slot(self) -> int:
        return int(self._clock() * 1000) // SLOT_MS

    def _at(self, slot: int) -> Levels:
        entry = bisect_right(self._froms, slot)
        levels = self._levels[entry - 1] if entry else ()
        return (*levels, *[0] * self.size)[: self.size]

    def _replay(self, record: Record) -> None:
        """Take a record of the history: a change takes the place of all that was to come from its start on."""
        if "since" in record:
            self._since = record["since"]
            return
        if "late" in record:
            self._late.append(tuple(record["late"]))
            return
        start, levels = int(record["from"]), tuple(record["x"])
        keep = bisect_right(self._froms, start - 1)
        del self._froms[keep:], self._levels[keep:]
        self._put(start, levels)
        for slot, of_pin in record["pins"]:
            self._put(slot, tuple(of_pin))
            self._put(slot + 1, levels)

    def _forget(self) -> None:
        """Forget the older half of a long history: batches that started then are over and in the ledger."""
        if len(self._froms) <= 2 * self._kept:
            return
        del self._froms[: -self._kept], self._levels[: -self._kept]
        self._since = self._froms[0]
        self._late = [(start, end) for start, end in self._late if end >= self._since]
        changes = zip(self._froms, self._levels, strict=True)
        self._history.replace(
            [
                {"since": self._since},
                *({"late": late} for late in self._late),
                *({"from": start, "x": levels, "pins": []} for start, levels in changes),
            ]
        )

    def _put(self, start: int, levels: Levels) -> None:
        if self._froms and self._froms[-1] == start:
            self._levels[-1] = levels
        else:
            self._froms.append(start)
            self._levels.append(levels)

    def _publish(self, start: int, levels: Levels) -> None:
        self._covered = start + _AHEAD
        self._ring[np.arange(start, self._covered) % SLOTS] = levels
        for pin, of_pin in self._pins.items():
            self._ring[pin % SLOTS] = of_pin
        self._store()

    def _store(self) -> None:
        temporary = self.path.with_name(".control.tmp")
        temporary.write_text(" ".join(f"{level:03d}" for level in (*self._ring.ravel(), 0)) + "\n")
        os.replace(temporary, self.path)  # noqa: PTH105  (one system call, and atomic)


def _levels(fractions: Sequence[float]) -> Levels:
    return tuple(math.floor(fraction * LEVELS + 0.5) for fraction in fractions)


def usable(directory: Path) -> Path:
    """The directory for a control line, resolved; made if it does not exist.

    Raises:
        ControlError: if it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
        (directory / ".control.crc").unlink(missing_ok=True)
    except OSError as error:
        raise ControlError(
            "the control directory cannot be written",
            where=str(directory),
            got=error.strerror or error,
            expected="a directory that this process may write, and that all machines of the cluster see",
        ) from error
    return directory.resolve()
