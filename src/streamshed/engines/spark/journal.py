"""An append-only file of JSON records that survives the death of its writer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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
        """Write records and wait until they are safe."""
        text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
        with self.path.open("ab+") as file:
            if not self._checked and file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    text = "\n" + text
            self._checked = True
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

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
