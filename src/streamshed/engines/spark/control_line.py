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
held up). A batch that is at work for longer, or is replayed, is pinned: its slot keeps what it was. Where ring and
history may differ all the same (a writer that was held up for too long, or in the middle of a change; a clock that was
set back by far; two pins in one place of the ring), the history says so: `is_certain`.

Hazards that shape the file: Spark caches its length, so the width is fixed; it is renamed into place, so that no one
reads half of it; a checksum file that a Hadoop client left behind would go stale, so it is removed. It is read by a
Spark task: on a cluster the directory must be one that all machines see under the same path.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamshed.engines.spark.control_history import ControlHistory, Levels
from streamshed.engines.spark.journal import Record
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.planning.ranks import LEVELS

THRESHOLDS = "_thresholds"
"""The column that holds the fractions of all drops."""

SLOT_MS = 50
SLOTS = 512
_AHEAD = SLOTS // 2
_LEAST_LEAD_MS = 20  # a change must be visible to readers before the slot from which it holds
_MOST_LEAD_MS = 2000.0
_SPARE_MS = 5

_NEVER_MS = 2**62

KEPT_CHANGES = 50_000
"""Of the thresholds: those of some hours at least."""

_DIGITS = 4  # of a level, with the space behind it


class ControlError(StreamshedError, OSError):
    """The control directory cannot be used."""


@dataclass(frozen=True)
class _Pin:
    """The thresholds of a slot that stay, and how many batches need them."""

    levels: Levels
    batches: int

    def again(self, more: int) -> _Pin:
        """The same for more batches."""
        return _Pin(self.levels, self.batches + more)


class ControlLine:
    """The thresholds of an application's drops, readable by its running queries.

    One driver writes; not safe for several threads.

    Args:
        directory: holds the line and its history; it is made if it does not exist.
        size: how many thresholds there are.
        clock: the time in seconds since 1970, by the clock of the Spark driver.
        kept: how many changes the history keeps, and up to twice as many before it forgets the older ones.

    Attributes:
        unread_since_ms: when the first batch started, milliseconds since 1970, that is not pinned and may not have read
            the line yet; whoever knows says so again and again. Until then the ring is taken to reach back far enough.

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
        self._next = self.path.with_name(".control.tmp")
        self._clock = clock
        self._pins: dict[int, _Pin] = {}
        self._shown_pins: dict[int, Levels] = {}
        self._lead_ms = float(_LEAST_LEAD_MS)
        self._latest = 0
        self.unread_since_ms = _NEVER_MS
        self._history = ControlHistory(self.directory / "control-history.jsonl", size, kept, self._shows)
        self._ring: NDArray[np.int64] = np.zeros((SLOTS, size), dtype=np.int64)
        now = self._latest = self._slot()
        if now < self._history.last - int(_MOST_LEAD_MS) // SLOT_MS - 1:
            self._latest = self._history.last + _AHEAD  # the clock was set back: until then batches may have started
        for slot in range(now - _AHEAD, max(now + _AHEAD, self._latest + 1)):
            if self._history.is_certain(slot):
                self._ring[slot % SLOTS] = self._history.at(slot)
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
        start = self._change(_levels(fractions))
        if self._slot() >= start:
            # Held up just now: a batch that started meanwhile may have read the line before the change.
            self._history.doubt(start, self._slot())
        return start * SLOT_MS

    @staticmethod
    def quantised(fractions: Sequence[float]) -> tuple[float, ...]:
        """The fractions as the line holds them."""
        return tuple(level / LEVELS for level in _levels(fractions))

    def refresh(self) -> None:
        """Carry the last thresholds on; to be called at least every few seconds."""
        now = self._slot()
        reach = self._history.covered - SLOTS
        if now < reach and self._history.is_certain(now):
            # The clock was set back: what the ring holds for this slot is meant for one that is to come.
            self._history.doubt(now - _AHEAD, reach - 1)
        if now + _AHEAD // 2 > self._history.covered:
            self.write(self.read())

    def pin(self, *times_ms: int) -> None:
        """Keep the thresholds of batches that started then: they read them late, or again. As often as `release`."""
        new: list[int] = []
        for slot in (time_ms // SLOT_MS for time_ms in times_ms):
            known = self._pins.get(slot)
            if known is None:
                new.append(slot)
            self._pins[slot] = _Pin(self._history.at(slot), 1) if known is None else known.again(1)
        try:
            for slot in new:
                if self._held()[slot % SLOTS] != self._pins[slot].levels:
                    self._history.doubt(slot, slot)  # its place in the ring is that of an older one
            if new:
                self.write(self.read())
        except OSError:
            self.release(*times_ms)
            raise

    def release(self, *times_ms: int) -> None:
        """Batches that were pinned are over."""
        for slot in (time_ms // SLOT_MS for time_ms in times_ms):
            known = self._pins.pop(slot, None)
            if known is not None and known.batches > 1:
                self._pins[slot] = known.again(-1)

    def close(self, running: Collection[int | None] = ()) -> None:
        """Drop nothing any more, for good: queries that go on are not controlled.

        Args:
            running: for each query that goes on, when the batch started that it is at work on, milliseconds since 1970;
                None if it is at work on none. Whether that one has read the line already, nobody knows.
        """
        self._pins.clear()
        now = self._slot()
        start = self.write([0.0] * self.size) // SLOT_MS
        if running:
            self._history.doubt(now, start - 1)
        for time_ms in running:
            if time_ms is not None:
                self._history.doubt(time_ms // SLOT_MS, time_ms // SLOT_MS)
        self._ring[:] = 0
        self._store(self._ring)
        self._show()
        self._history.close()

    # --- reading ---------------------------------------------------------------------------------------------------

    def read(self) -> tuple[float, ...]:
        """The fractions that were written last."""
        return tuple(level / LEVELS for level in self._history.latest)

    @property
    def holds_from_ms(self) -> int:
        """When the last change begins to hold, milliseconds since 1970."""
        return self._history.last * SLOT_MS

    def at(self, time_ms: int) -> tuple[float, ...]:
        """The fractions of a batch that started at a time."""
        return tuple(level / LEVELS for level in self._history.at(time_ms // SLOT_MS))

    def is_certain(self, time_ms: int) -> bool:
        """Whether a batch that started then surely read what `at` says.

        Not if a change came too late for it, if nobody carried the line on until then, or if the history does not go
        back so far.
        """
        return self._history.is_certain(time_ms // SLOT_MS)

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

    def _change(self, levels: Levels) -> int:
        """Write a change to the history, then to the line, with a start that leaves time for both; give the start."""
        while True:
            asked_ms = self._clock() * 1000
            start = int(asked_ms + self._lead_ms) // SLOT_MS + 1
            start = max(start, self._history.last, self._latest + 1)  # also if the clock was set back
            held = self._held()
            doubted = [*self._lost(start, int(asked_ms) // SLOT_MS), *self._run_over(start, held)]
            record = self._history.announce(start, start + _AHEAD, levels, _ahead(start, held), doubted)
            ring = self._ring.copy()
            ring[np.arange(start, start + _AHEAD) % SLOTS] = levels
            for place, of_pin in held.items():
                ring[place] = of_pin
            self._store(ring)
            now_ms = self._clock() * 1000
            self._lead_ms = max(_LEAST_LEAD_MS, 2 * (now_ms - asked_ms), 0.95 * self._lead_ms)
            self._lead_ms = min(self._lead_ms, _MOST_LEAD_MS)
            if now_ms + _SPARE_MS < start * SLOT_MS or self._lead_ms >= _MOST_LEAD_MS:
                break
        self._show()
        self._ring, self._shown_pins = ring, held
        self._history.confirm(record)
        return start

    def _held(self) -> dict[int, Levels]:
        """What pins hold, by their places in the ring: where there are two, the older one."""
        held: dict[int, Levels] = {}
        for slot, pin in self._pins.items():
            held.setdefault(slot % SLOTS, pin.levels)
        return held

    def _lost(self, start: int, now: int) -> list[tuple[int, int]]:
        """The slots that a change overwrites in the ring though a batch may not have read them."""
        first, last = min(self.unread_since_ms // SLOT_MS, now), start + _AHEAD - SLOTS - 1
        return [(first, last)] if last >= first else []

    def _run_over(self, start: int, held: Mapping[int, Levels]) -> list[tuple[int, int]]:
        """The slots just past that new pins overwrite: a batch that started then may not have read its own."""
        found: list[tuple[int, int]] = []
        for place, levels in held.items():
            past = start - 1 - (start - 1 - place) % SLOTS
            is_new = self._shown_pins.get(place) != levels
            if is_new and past not in self._pins and self._history.at(past) != levels:
                found.append((past, past))
        return found

    def _shows(self, change: Record) -> bool:
        """Whether the line, as an earlier writer left it, holds a change in all slots that it reaches."""
        words = self.path.read_text().split()[:-1] if self.path.exists() else []
        width, start = len(words) // SLOTS, int(change["from"])
        pinned: dict[int, list[int]] = dict(change["pins"])
        return width > 0 and all(
            [int(word) for word in words[slot % SLOTS * width :][:width]] == pinned.get(slot, change["x"])
            for slot in range(start, min(int(change.get("to", start + _AHEAD)), start + _AHEAD))
        )

    def _slot(self) -> int:
        slot = int(self._clock() * 1000) // SLOT_MS
        self._latest = max(self._latest, slot)
        return slot

    def _store(self, ring: NDArray[np.int64]) -> None:
        """Write the line beside the one that is there."""
        self._next.write_text(" ".join(f"{level:03d}" for level in (*ring.ravel(), 0)) + "\n")

    def _show(self) -> None:
        """Have readers see what was stored."""
        os.replace(self._next, self.path)  # noqa: PTH105  (one system call, and atomic)


def _ahead(start: int, held: Mapping[int, Levels]) -> list[tuple[int, Levels]]:
    """What pins hold from a slot on, as far as the line is written ahead: slots in their order, and levels."""
    found = sorted((start + (place - start) % SLOTS, levels) for place, levels in held.items())
    return [(slot, levels) for slot, levels in found if slot < start + _AHEAD]


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
