"""The journal: what a dying or failing writer leaves, and what becomes of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamshed.engines.spark.journal import Journal


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_records_come_back_in_order_and_are_one_line_each(file: Path) -> None:
    written = Journal(file)
    written.append({"n": 1}, {"n": 2})
    written.append({"n": 3})
    assert file.read_bytes() == b'{"n":1}\n{"n":2}\n{"n":3}\n'
    assert list(Journal(file).read()) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_journal_that_is_not_there_is_empty(file: Path) -> None:
    assert list(Journal(file).read()) == []


def test_a_torn_line_is_closed_off_once_and_skipped(file: Path) -> None:
    file.write_bytes(b'{"n":1}\n{"n":')
    written = Journal(file)
    written.append({"n": 2})
    written.append({"n": 3})
    assert file.read_bytes() == b'{"n":1}\n{"n":\n{"n":2}\n{"n":3}\n'
    assert list(written.read()) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_whole_last_line_gets_no_second_end(file: Path) -> None:
    file.write_bytes(b'{"n":1}\n')
    Journal(file).append({"n": 2})
    assert file.read_bytes() == b'{"n":1}\n{"n":2}\n'


def test_what_is_no_object_is_skipped(file: Path) -> None:
    file.write_bytes(b'7\n[{"n":1}]\n"n"\n\n{"n":2}\n')
    assert list(Journal(file).read()) == [{"n": 2}]


def test_records_are_on_disk_before_append_and_replace_return(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(os.fstat(handle).st_size))
    written = Journal(file)
    written.append({"n": 1})
    written.append({"n": 2})
    written.replace([{"n": 3}])
    assert seen == [8, 16, 8]


@pytest.mark.parametrize("torn", [b"", b'{"n":0}\n{"n'])
def test_a_disk_that_fails_leaves_nothing_of_a_record(file: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes) -> None:
    file.write_bytes(torn)
    written = Journal(file)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            written.append({"n": 1})
    assert file.read_bytes() == torn
    written.append({"n": 2})
    assert list(Journal(file).read()) == [*([{"n": 0}] if torn else []), {"n": 2}]


def test_after_a_failure_in_the_middle_of_a_line_the_next_record_is_whole(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Journal(file)
    written.append({"n": 1})

    def torn(_: int) -> None:
        os.truncate(file, file.stat().st_size - 3)
        raise KeyboardInterrupt  # no time to clear anything away

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", torn)
        with pytest.raises(KeyboardInterrupt):
            written.append({"n": 2})
    written.append({"n": 3})
    assert list(written.read()) == [{"n": 1}, {"n": 3}]


def test_replacing_keeps_only_the_new_records_and_what_follows(file: Path) -> None:
    written = Journal(file)
    written.append({"n": 1}, {"n": 2})
    written.replace(iter([{"n": 3}, {"n": 4}]))
    written.append({"n": 5})
    assert [record["n"] for record in Journal(file).read()] == [3, 4, 5]
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_a_replacement_that_fails_leaves_the_old_records(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = Journal(file)
    written.append({"n": 1})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            written.replace([{"n": 2}])
    assert list(Journal(file).read()) == [{"n": 1}]
