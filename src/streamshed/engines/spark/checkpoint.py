"""Reads the logs that Spark keeps in a query's checkpoint: which batches started, when, up to where, which ended."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession


@dataclass(frozen=True)
class BatchStart:
    """An entry of the offset log, written before the batch runs.

    Attributes:
        batch_id: counted from 0.
        time_ms: when the batch started; the same again if it is replayed.
        offsets: up to where it reads each source, as JSON text; None for a source that has nothing yet.
    """

    batch_id: int
    time_ms: int
    offsets: tuple[str | None, ...]


class CheckpointLog:
    """The offset and commit logs of one query, on any file system that Spark can write.

    Args:
        spark: its Hadoop configuration is used where the checkpoint is not local.
        root: the checkpoint location, as Spark resolved it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root
        url = urlparse(root)
        self._local = Path(unquote(url.path)) if url.scheme in ("", "file") else None
        self._jvm: Any = spark.sparkContext._jvm
        self._hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._known: dict[int, BatchStart] = {}

    @property
    def is_local(self) -> bool:
        """Whether reading it is cheap."""
        return self._local is not None

    def started(self) -> list[int]:
        """The batches in the offset log, in order."""
        return self._entries("offsets")

    def committed(self) -> list[int]:
        """The batches in the commit log, in order."""
        return self._entries("commits")

    def is_committed(self, batch_id: int) -> bool:
        """Whether a batch is over."""
        if self._local is not None:
            return (self._local / "commits" / str(batch_id)).exists()
        path = self._path(f"commits/{batch_id}")
        return bool(path.getFileSystem(self._hadoop).exists(path))

    def batch(self, batch_id: int) -> BatchStart | None:
        """The entry of one batch, if it has started and is not purged yet."""
        if batch_id in self._known:
            return self._known[batch_id]
        text = self._text(f"offsets/{batch_id}")
        if text is None:
            return None
        lines = text.splitlines()  # version, metadata, then a line for every source
        offsets = tuple(None if line == "-" else line for line in lines[2:])
        entry = BatchStart(batch_id, int(json.loads(lines[1])["batchTimestampMs"]), offsets)
        if len(self._known) > 1000:
            self._known.clear()
        self._known[batch_id] = entry
        return entry

    def latest(self, after: int = -1) -> BatchStart | None:
        """The batch that started last; `after` is one that is known to have started, to save a listing."""
        found = self.batch(after) if after >= 0 else None
        if found is None:
            started = self.started()
            found = self.batch(started[-1]) if started else None
        while found is not None:
            following = self.batch(found.batch_id + 1)
            if following is None:
                return found
            found = following
        return None

    def files_read(self, source: int, offset: str | None, after: str | None = None) -> list[str]:
        """The files that a file source takes up to an offset, and after another; both as in the offset log."""
        last, first = _log_offset(offset), _log_offset(after) + 1
        found: list[str] = []
        for number in range(last, first - 1, -1):
            text = self._text(f"sources/{source}/{number}")
            lines = (self._compacted(source, number) if text is None else text).splitlines()[1:]
            # A compacted entry holds all before it, too, oldest first; so the new ones are at its end.
            for line in reversed(lines):
                entry = json.loads(line)
                if entry["batchId"] < first:
                    break
                if entry["batchId"] <= number:
                    found.append(entry["path"])
            if text is None:
                break
        return found[::-1]

    def has_source(self, number: int) -> bool:
        """Whether a source with this number, counted from 0, keeps notes of its own."""
        return str(number) in self._names("sources")

    def copy_for_replay(self, batch_id: int, target: Path, sources: Sequence[int]) -> None:
        """Make a checkpoint from which a query over the same sources runs just one batch again.

        Args:
            batch_id: which one.
            target: where to.
            sources: which lines of the offset log count: a source that is read in several places has several.
        """
        for name in ("offsets", "commits", "sources"):
            (target / name).mkdir(parents=True)
        # A name of its own: a query with the id of a running one would stop that one.
        (target / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        for entry in self.started():
            if entry <= batch_id:
                lines = (self._text(f"offsets/{entry}") or "").splitlines()
                kept = [*lines[:2], *(lines[2 + source] for source in sources)]
                (target / "offsets" / str(entry)).write_text("\n".join(kept))
        for entry in self.committed():
            if entry < batch_id:
                (target / "commits" / str(entry)).write_text(self._text(f"commits/{entry}") or "")
        self._copy_tree("sources", target / "sources")

    def _compacted(self, source: int, number: int) -> str:
        """The first compacted entry that holds one with a certain number, which may have been purged."""
        names = (
            name.removesuffix(".compact") for name in self._names(f"sources/{source}") if name.endswith(".compact")
        )
        numbers = [int(name) for name in names if name.isdigit() and int(name) >= number]
        return (self._text(f"sources/{source}/{min(numbers)}.compact") or "") if numbers else ""

    # --- file systems ----------------------------------------------------------------------------------------------

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.root, name)

    def _entries(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self._names(folder) if name.isdigit())

    def _names(self, folder: str) -> list[str]:
        if self._local is not None:
            place = self._local / folder
            return [entry.name for entry in place.iterdir()] if place.is_dir() else []
        path = self._path(folder)
        system = path.getFileSystem(self._hadoop)
        return [status.getPath().getName() for status in system.listStatus(path)] if system.exists(path) else []

    def _text(self, name: str) -> str | None:
        if self._local is not None:
            try:
                return (self._local / name).read_text()
            except FileNotFoundError:
                return None
        path = self._path(name)
        system = path.getFileSystem(self._hadoop)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _copy_tree(self, name: str, target: Path) -> None:
        """Copy what the sources keep for themselves, such as the file source's list of files."""
        target.mkdir(exist_ok=True)
        for entry in self._names(name):
            if entry.startswith("."):
                continue
            inner = f"{name}/{entry}"
            if self._names_if_folder(inner) is None:
                (target / entry).write_text(self._text(inner) or "")
            else:
                self._copy_tree(inner, target / entry)

    def _names_if_folder(self, name: str) -> list[str] | None:
        if self._local is not None:
            return self._names(name) if (self._local / name).is_dir() else None
        path = self._path(name)
        is_folder = path.getFileSystem(self._hadoop).getFileStatus(path).isDirectory()
        return self._names(name) if is_folder else None


def _log_offset(offset: str | None) -> int:
    """Where a file source is; -1 before its first entry, and for other sources."""
    return int(json.loads(offset).get("logOffset", -1)) if offset else -1
