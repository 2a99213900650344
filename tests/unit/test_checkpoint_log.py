"""Spark's offset and commit logs, as Spark 4.3 writes them, on a local disk and on another file system."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark.checkpoint import BatchStart, CheckpointLog


class Remote:
    """Hadoop's file system as Python sees it, over a local directory."""

    def __init__(self, scheme: str, root: Path) -> None:
        self.scheme, self.root, self.closed = scheme, root, 0
        io = SimpleNamespace(IOUtils=SimpleNamespace(toString=lambda stream, coding: stream.read().decode(coding)))
        self.org = SimpleNamespace(apache=SimpleNamespace(
            hadoop=SimpleNamespace(fs=SimpleNamespace(Path=self.path)), commons=SimpleNamespace(io=io),
        ))  # fmt: skip

    def path(self, root: str, name: str) -> Any:
        file = self.root / root.removeprefix(self.scheme) / name

        def opened(_: object) -> Any:
            stream = file.open("rb")

            def close() -> None:
                self.closed += 1
                stream.close()

            return SimpleNamespace(read=stream.read, close=close)

        system = SimpleNamespace(
            exists=lambda _: file.exists(),
            open=opened,
            listStatus=lambda _: [self.status(entry) for entry in file.iterdir()],
            getFileStatus=lambda _: self.status(file),
        )
        return SimpleNamespace(getFileSystem=lambda _: system)

    def status(self, file: Path) -> Any:
        return SimpleNamespace(getPath=lambda: SimpleNamespace(getName=lambda: file.name), isDirectory=file.is_dir)


def session(jvm: object = None) -> Any:
    hadoop = SimpleNamespace(hadoopConfiguration=lambda: None)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=hadoop))


@pytest.fixture(params=["local", "with a scheme", "remote"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointLog:
    """Of a checkpoint in `tmp_path / "check point"`."""
    root = tmp_path / "check point"
    for folder in ("offsets", "commits", "sources"):
        (root / folder).mkdir(parents=True)
    if request.param == "remote":
        return CheckpointLog(session(Remote("s3a://", tmp_path)), "s3a://check point")
    return CheckpointLog(session(), root.as_uri() if request.param == "with a scheme" else str(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "check point"


def start(root: Path, number: int, *offsets: str, time_ms: int = 1_000) -> None:
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": time_ms, "conf": {"a": "b"}})
    (root / "offsets" / str(number)).write_text("\n".join(["v1", head, *offsets]))


def commit(root: Path, number: int) -> None:
    (root / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


# --- which batches ---------------------------------------------------------------------------------------------------


def test_batches_are_in_the_order_of_their_numbers(log: CheckpointLog, root: Path) -> None:
    for number in (9, 10, 11):
        start(root, number)
        (root / "offsets" / f".{number}.crc").write_text("")
    commit(root, 10)
    commit(root, 9)
    assert (log.started(), log.committed()) == ([9, 10, 11], [9, 10])
    assert [log.is_committed(number) for number in (9, 10, 11)] == [True, True, False]


def test_a_checkpoint_that_is_not_there_is_empty(log: CheckpointLog, root: Path) -> None:
    for folder in ("offsets", "commits", "sources"):
        (root / folder).rmdir()
    assert (log.started(), log.committed(), log.latest()) == ([], [], None)
    assert log.batch(0) is None
    assert not log.is_committed(0)
    assert not log.has_source(0)


def test_an_entry_says_when_and_up_to_where(log: CheckpointLog, root: Path) -> None:
    start(root, 4, '{"logOffset":7}', "-", '{"index":3}', time_ms=1_795_029_442_921)
    assert log.batch(4) == BatchStart(4, 1_795_029_442_921, ('{"logOffset":7}', None, '{"index":3}'))
    assert log.batch(5) is None


def test_an_entry_is_read_once(log: CheckpointLog, root: Path) -> None:
    start(root, 4, '{"index":3}')
    known = log.batch(4)
    (root / "offsets" / "4").unlink()
    assert log.batch(4) == known


def test_a_thousand_entries_are_remembered(log: CheckpointLog, root: Path) -> None:
    log._known = {number: BatchStart(number, 0, ()) for number in range(1000)}
    start(root, 2000)
    start(root, 2001)
    assert log.batch(2000) is not None
    assert len(log._known) == 1001
    assert log.batch(2001) is not None
    assert list(log._known) == [2001]


def test_only_a_remote_log_is_dear(log: CheckpointLog, request: pytest.FixtureRequest) -> None:
    assert log.is_local == (not log.root.startswith("s3a"))


def test_streams_of_a_remote_log_are_closed(tmp_path: Path, root: Path) -> None:
    (root / "offsets").mkdir(parents=True)
    start(root, 0)
    remote = Remote("s3a://", tmp_path)
    log = CheckpointLog(session(remote), "s3a://check point")
    assert log.batch(0) is not None
    assert log.batch(1) is None
    assert remote.closed == 1


@pytest.mark.parametrize("after", [-1, 3, 4, 5, 0])
def test_the_latest_is_found_from_wherever_one_looks(log: CheckpointLog, root: Path, after: int) -> None:
    for number in (3, 4, 5):  # those before are purged
        start(root, number, time_ms=number)
    found = log.latest(after)
    assert found is not None
    assert (found.batch_id, found.time_ms) == (5, 5)


def test_the_latest_may_be_the_first(log: CheckpointLog, root: Path) -> None:
    start(root, 0)
    assert log.latest() == log.latest(0) == BatchStart(0, 1000, ())
    start(root, 1)
    assert log.latest(0) == BatchStart(1, 1000, ())


# --- files -----------------------------------------------------------------------------------------------------------


def entries(root: Path, name: str, *files: tuple[str, int]) -> None:
    """Of the log of file source 1."""
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": batch}) for path, batch in files]
    place = root / "sources" / "1" / name
    place.parent.mkdir(exist_ok=True)
    place.write_text("\n".join(["v1", *lines]))


def at(number: int) -> str:
    return json.dumps({"logOffset": number})


def test_files_are_those_of_the_entries_up_to_an_offset_and_after_another(log: CheckpointLog, root: Path) -> None:
    entries(root, "0", ("a", 0), ("b", 0))
    entries(root, "1", ("c", 1))
    entries(root, "2", ("d", 2), ("e", 2))
    assert log.files_read(1, at(2)) == ["a", "b", "c", "d", "e"]
    assert log.files_read(1, at(1)) == ["a", "b", "c"]
    assert log.files_read(1, at(2), at(0)) == ["c", "d", "e"]
    assert log.files_read(1, at(2), at(2)) == []
    assert log.files_read(1, at(0), None) == ["a", "b"]
    assert log.files_read(0, at(2)) == [], "another source"


def test_a_compacted_entry_holds_all_before_it(log: CheckpointLog, root: Path) -> None:
    entries(root, "8", ("old", 8))  # still there, and in the compacted one as well
    entries(root, "9.compact", ("a", 0), ("b", 7), ("old", 8), ("c", 9))
    entries(root, "10", ("d", 10))
    entries(root, "11", ("e", 11))
    assert log.files_read(1, at(11)) == ["a", "b", "old", "c", "d", "e"]
    assert log.files_read(1, at(11), at(7)) == ["old", "c", "d", "e"]
    assert log.files_read(1, at(11), at(8)) == ["c", "d", "e"]
    assert log.files_read(1, at(11), at(9)) == ["d", "e"]
    assert log.files_read(1, at(9), at(6)) == ["b", "old", "c"]


def test_of_an_entry_that_was_purged_a_later_compacted_one_tells(log: CheckpointLog, root: Path) -> None:
    entries(root, "9.compact", ("a", 0), ("b", 3), ("c", 4), ("d", 4), ("e", 9))
    entries(root, "19.compact", ("a", 0), ("b", 3), ("c", 4), ("d", 4), ("e", 9), ("f", 19))
    assert log.files_read(1, at(4)) == ["a", "b", "c", "d"]
    assert log.files_read(1, at(4), at(3)) == ["c", "d"]
    assert log.files_read(1, at(15), at(4)) == ["e"]


@pytest.mark.parametrize("offset", [None, '{"index":3}'])
def test_sources_of_other_kinds_read_no_files(log: CheckpointLog, root: Path, offset: str | None) -> None:
    entries(root, "0", ("a", 0))
    assert log.files_read(1, offset) == []


def test_a_source_that_keeps_notes_is_known(log: CheckpointLog, root: Path) -> None:
    entries(root, "0", ("a", 0))
    assert [log.has_source(number) for number in range(3)] == [False, True, False]


# --- copies ----------------------------------------------------------------------------------------------------------


def test_a_copy_ends_just_before_the_batch_is_committed(log: CheckpointLog, root: Path, tmp_path: Path) -> None:
    for number in range(5):
        start(root, number, f"a{number}", f"b{number}", time_ms=number)
        if number < 4:
            commit(root, number)
    copy = tmp_path / "copy"
    log.copy_for_replay(2, copy, [0, 1])
    assert sorted(entry.name for entry in (copy / "offsets").iterdir()) == ["0", "1", "2"]
    assert sorted(entry.name for entry in (copy / "commits").iterdir()) == ["0", "1"]
    for name in ("offsets/0", "offsets/2", "commits/1"):
        assert (copy / name).read_text() == (root / name).read_text()
    (root / "metadata").write_text('{"id":"own"}')
    identity = json.loads((copy / "metadata").read_text())["id"]
    log.copy_for_replay(2, tmp_path / "other", [0, 1])
    assert identity != json.loads((tmp_path / "other" / "metadata").read_text())["id"]


def test_a_copy_has_the_sources_that_are_asked_for_in_their_order(
    log: CheckpointLog, root: Path, tmp_path: Path
) -> None:
    start(root, 0, "a", "b", "a")
    log.copy_for_replay(0, tmp_path / "copy", [1, 0])
    assert (tmp_path / "copy" / "offsets" / "0").read_text().splitlines()[2:] == ["b", "a"]


def test_a_copy_has_the_notes_of_sources_but_no_checksums(log: CheckpointLog, root: Path, tmp_path: Path) -> None:
    start(root, 0, at(0))
    entries(root, "0", ("a", 0))
    (root / "sources" / "1" / ".0.crc").write_text("crc")
    (root / "sources" / "1" / "deep").mkdir()
    (root / "sources" / "1" / "deep" / "0").write_text("kept")
    (root / "sources" / "note").write_text("here")
    log.copy_for_replay(0, tmp_path / "copy", [0])
    copied = tmp_path / "copy" / "sources"
    files = sorted(str(file.relative_to(copied)) for file in copied.rglob("*") if file.is_file())
    assert files == ["1/0", "1/deep/0", "note"]
    assert (copied / "1" / "0").read_text() == (root / "sources" / "1" / "0").read_text()
    assert (copied / "note").read_text() == "here"
