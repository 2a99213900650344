"""A durable arc between two applications, as files: what was written, how far its reader is, what can go.

The arc is a directory with a sub-directory of Parquet files for each micro-batch of the writer. Beside them lie three
small files that are replaced as a whole: `schema.json`, by the writer, when it starts; `reader.json`, by the reader,
says up to which batch it has finished; `swept.json`, by the reader, too, says up to which batch it has deleted, and how
many rows that were. So either side knows what it needs without asking the other one, which may be dead.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamshed.errors import StreamshedError

_BATCH = re.compile(r"batch-(\d{12})")
_LONGEST, _DIGITS = 120, 16
"""Of a name in a path: file systems take 255 bytes, and some files' names are made of it."""


def batch_number(name: str) -> int | None:
    """The number of the batch that a directory holds, or None if it is not one of an arc's.

    >>> batch_number("batch-000000000012"), batch_number(".batch-000000000012")
    (12, None)
    """
    match = _BATCH.fullmatch(name)
    return int(match.group(1)) if match else None


def file_name(name: str) -> str:
    """A name as part of a path: one that every file system, and Spark's patterns, take as it is.

    It never leads elsewhere, is never hidden, and never too long: of a long name the end gives way to a digest.

    >>> file_name("ways.hot-core"), file_name("my node"), file_name("../../evil")
    ('ways.hot-core', 'my_20node', '_2e._2f.._2fevil')
    """
    safe = "".join(one if one.isascii() and (one.isalnum() or one in "_-.") else f"_{ord(one):x}" for one in name)
    if not safe or safe.startswith("."):
        safe = f"_2e{safe[1:]}" if safe else "_"
    if len(safe) <= _LONGEST:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{safe[: _LONGEST - _DIGITS - 1]}_{digest}"


def write_atomically(file: Path, text: str) -> None:
    """Replace a file as a whole: who reads it sees the old text or all of the new one."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, "w") as stream:
            stream.write(text)
        Path(name).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def read_document(file: Path) -> dict[str, Any]:
    """A JSON object from a file; empty if it is not there."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StreamshedError("a file cannot be read", where=str(file), got=error, expected="a JSON object") from None
    if not isinstance(found, dict):
        raise StreamshedError("a file cannot be read", where=str(file), got=type(found).__name__, expected="an object")
    return found


class ArcFiles:
    """The files of one arc. Safe for several threads.

    Args:
        root: where all arcs are, a directory that both applications see.
        name: of the arc.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.directory = root / file_name(name)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._rows: dict[int, int] = {}
        self._lock = threading.Lock()

    # --- both ------------------------------------------------------------------------------------------------------

    def batches(self) -> list[int]:
        """The numbers of the batches that are there, in order, without remains of a deletion."""
        swept = self._swept()[0]
        return [number for number in self._present() if number > swept]

    def rows(self, number: int) -> int:
        """How many rows a batch has, from the ends of its files; 0 if it is gone."""
        with self._lock:
            known = self._rows.get(number)
        if known is not None:
            return known
        try:
            found = sum(int(pq.read_metadata(file).num_rows) for file in sorted(self._place(number).glob("*.parquet")))
        except FileNotFoundError:
            return 0
        with self._lock:
            self._rows[number] = found
        return found

    def written_rows(self) -> int:
        """How many rows were ever written."""
        return self._swept()[1] + sum(self.rows(number) for number in self.batches())

    def finished(self) -> int:
        """The batch up to which the reader has finished all; -1 if there is none."""
        return int(read_document(self.directory / "reader.json").get("finished", -1))

    def schema(self) -> str | None:
        """The schema of its rows as Spark's JSON; None before the writer has said so."""
        file = self.directory / "schema.json"
        return file.read_text() if file.exists() else None

    # --- the writer ------------------------------------------------------------------------------------------------

    def set_schema(self, text: str) -> None:
        """Say what rows look like. An arc does not change its columns.

        Raises:
            StreamshedError: if rows with other columns were written before.
        """
        known = self.schema()
        if known is not None and json.loads(known) != json.loads(text) and self.written_rows() > 0:
            raise StreamshedError(
                "an arc cannot change its columns", where=f"arc {self.name!r}", got=text[:200], expected=known[:200],
                hint="go on with the spec of that run, or begin anew in another directory",
            )  # fmt: skip
        write_atomically(self.directory / "schema.json", text)

    # --- the reader ------------------------------------------------------------------------------------------------

    def finish(self, upto: int) -> None:
        """The reader is done with all batches up to this one, for good."""
        if upto > self.finished():
            write_atomically(self.directory / "reader.json", json.dumps({"finished": upto}))

    def sweep(self, reading: Collection[int] = ()) -> int:
        """Delete the batches that the reader has finished, but for the newest; give how many went.

        If the writer runs that one again, it must find it. The reader does this while it processes a batch of its own:
        between two of them Spark lists the files, and a directory that vanishes just then kills the query. What goes is
        written down before it goes: a crash in between leaves remains, which no longer count.

        Args:
            reading: what the reader is about to read, which it may have finished before: if Spark's note that a batch
                is done was lost in a crash, it runs again.
        """
        below = min(reading, default=math.inf)
        finished = self.finished()
        swept, rows = self._swept()
        old = [number for number in self.batches()[:-1] if number <= finished and number < below]
        if old:
            total = rows + sum(self.rows(number) for number in old)
            swept = old[-1]
            write_atomically(self.directory / "swept.json", json.dumps({"swept": swept, "rows": total}))
        remains = [number for number in self._present() if number <= swept]
        for number in remains:
            shutil.rmtree(self._place(number), ignore_errors=True)
            with self._lock:
                self._rows.pop(number, None)
        return len(remains)

    # --- within ----------------------------------------------------------------------------------------------------

    def _swept(self) -> tuple[int, int]:
        found = read_document(self.directory / "swept.json")
        return int(found.get("swept", -1)), int(found.get("rows", 0))

    def _present(self) -> list[int]:
        numbers = (batch_number(entry.name) for entry in self.directory.iterdir())
        return sorted(number for number in numbers if number is not None)

    def waited_since_s(self, number: int) -> float | None:
        """When a batch was written, seconds since 1970; None if it is gone."""
        try:
            return self._place(number).stat().st_mtime
        except FileNotFoundError:
            return None

    def _place(self, number: int) -> Path:
        return self.directory / f"batch-{number:012d}"


class Inbox:
    """What an arc holds for its reader. Safe for several threads.

    A batch is taken when a batch of the reader's query starts that reads it, and finished when that one is committed
    and in the ledger.
    """

    def __init__(self, files: ArcFiles) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._finished: set[int] = set()
        self._upto = files.finished()

    def take(self, numbers: Iterable[int]) -> None:
        """The reader has begun to process batches."""
        with self._lock:
            self._taken |= {number for number in numbers if number > self._upto}

    def finish(self, numbers: Iterable[int]) -> None:
        """The reader is done with batches for good; the writer gets to know up to which all are."""
        with self._lock:
            self._finished |= {number for number in numbers if number > self._upto}
            upto = self._upto
            for number in self.files.batches():
                if number > upto:
                    if number not in self._finished:
                        break
                    upto = number
            if upto > self._upto:
                self.files.finish(upto)
                self._upto = upto
                self._taken = {number for number in self._taken if number > upto}
                self._finished = {number for number in self._finished if number > upto}

    def sweep(self, reading: Collection[int]) -> None:
        """Delete what is not needed any more; only while the reader processes a batch, which reads these."""
        self.files.sweep(reading)

    def waiting_batches(self) -> list[int]:
        """The batches that the reader has not begun to process."""
        with self._lock:
            taken, upto = set(self._taken), self._upto
        return [number for number in self.files.batches() if number > upto and number not in taken]

    def waiting_rows(self) -> int:
        """How many rows these have."""
        return sum(self.files.rows(number) for number in self.waiting_batches())

    def waiting(self, _: object, __: float) -> int:
        """The same, as sources are asked: whatever the offset and the time."""
        return self.waiting_rows()

    def oldest_wait_s(self, now_s: float) -> float:
        """How long the oldest batch has waited here; 0 if none does."""
        for number in self.waiting_batches():
            since_s = self.files.waited_since_s(number)
            if since_s is not None:
                return max(now_s - since_s, 0.0)
        return 0.0
