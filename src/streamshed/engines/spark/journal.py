"""An append-only file of JSON records that survives the death of its writer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Journal:
    """JSON lines, each on disk before `append` returns.

    A writer that dies in mid-record leaves a line without an end; readers skip it, the next writer closes it off.

    >>> import tempfile
    >>> journal = Journal(Path(tempfile.mkdtemp()) / "journal.jsonl")
    >>> journal.append({"batch": 1})
    >>> list(journal.read())
    [{'batch': 1}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked = False

    def append(self, *records: Record) -> None:
        """Write records and wait until they are safe; if the disk fails, nothing is written, as far as it can be."""
        lines = b"".join(_line(record) for record in records)
        checked, self._checked = self._checked, False
        with self.path.open("ab+", buffering=0) as file:
            end = file.tell()
            if not checked and end > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    lines = b"\n" + lines
            try:
                rest = memoryview(lines)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(end)
                raise
        self._checked = True

    def replace(self, records: Iterable[Record]) -> None:
        """Put records in the place of all that are there; whoever reads meanwhile sees the ones or the others."""
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        with temporary.open("wb") as file:
            file.writelines(_line(record) for record in records)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)  # noqa: PTH105  (one system call, and atomic)

    def read(self) -> Iterator[Record]:
        """All records in the order in which they were written."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # the end of a writer that died
                if isinstance(record, dict):
                    yield record


def _line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
