"""The files of an arc and its inbox: what counts, what waits, what is finished, and what may go."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamshed.distributed.arc_files import (
    ArcFiles,
    Inbox,
    batch_number,
    file_name,
    read_document,
    write_atomically,
)
from streamshed.errors import StreamshedError


def put(files: ArcFiles, number: int, *rows: int, at_s: float = 0.0) -> None:
    """A batch with a file for each number of rows, written at a time."""
    place = files.directory / f"batch-{number:012d}"
    place.mkdir()
    for part, count in enumerate(rows):
        pq.write_table(pa.table({"v": list(range(count))}), place / f"part-{part}.parquet")
    os.utime(place, (at_s, at_s))


def there(files: ArcFiles) -> list[int]:
    return sorted(int(place.name[-12:]) for place in files.directory.glob("batch-*"))


def restarted(files: ArcFiles) -> ArcFiles:
    return ArcFiles(files.directory.parent, files.name)


@pytest.fixture
def arc(tmp_path: Path) -> ArcFiles:
    files = ArcFiles(tmp_path / "arcs", "ways.hot-core")
    for number, rows in enumerate((10, 20, 30, 40)):
        put(files, number, rows, at_s=100.0 + number)
    return files


# --- files -----------------------------------------------------------------------------------------------------------


def test_names_of_batches_and_of_arcs() -> None:
    assert batch_number("batch-000000000000") == 0
    assert batch_number("batch-000000001234") == 1234
    for name in (
        "batch-12",
        "batch-0000000000123",
        "batch-00000000000a",
        ".batch-000000000001",
        "batch-000000000001.x",
    ):
        assert batch_number(name) is None
    assert file_name("A-b_c.9") == "A-b_c.9"
    assert file_name("ä/ *") == "_e4_2f_20_2a"


def test_a_file_is_replaced_as_a_whole_or_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "reader.json"
    write_atomically(file, '{"finished": 1}')
    write_atomically(file, '{"finished": 2}')
    assert read_document(file) == {"finished": 2}

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="full"):
        write_atomically(file, '{"finished": 3}')
    assert read_document(file) == {"finished": 2}
    assert [one.name for one in tmp_path.iterdir()] == ["reader.json"], "nothing is left behind"


def test_documents_are_objects(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    assert read_document(file) == {}
    for text in ("[1]", "3", "{", ""):
        file.write_text(text)
        with pytest.raises(StreamshedError, match="cannot be read"):
            read_document(file)


def test_an_arc_with_rows_keeps_its_columns(tmp_path: Path) -> None:
    files = ArcFiles(tmp_path, "a")
    assert files.schema() is None
    files.set_schema('{"fields": [1]}')
    files.set_schema('{"fields": [2]}')  # nothing was written yet
    assert files.schema() == '{"fields": [2]}'
    put(files, 0)
    files.set_schema('{"fields": [3]}')  # no row was written yet
    put(files, 1, 1)
    files.set_schema('{"fields":  [3]}')
    assert files.schema() == '{"fields":  [3]}'
    with pytest.raises(StreamshedError, match="cannot change its columns"):
        files.set_schema('{"fields": [4]}')
    Inbox(files).finish([0, 1])
    put(files, 2)
    files.sweep()
    with pytest.raises(StreamshedError, match="cannot change its columns"):
        files.set_schema('{"fields": [4]}')  # the rows have gone, and were written all the same
    assert files.schema() == '{"fields":  [3]}'


def test_rows_are_counted_at_the_ends_of_all_files_and_once(arc: ArcFiles) -> None:
    put(arc, 7, 5, 6, 7)
    put(arc, 8)
    assert [arc.rows(number) for number in (0, 3, 7, 8, 9)] == [10, 40, 18, 0, 0]
    assert arc.batches() == [0, 1, 2, 3, 7, 8]
    assert arc.written_rows() == 118
    for file in arc.directory.glob("*/*.parquet"):
        file.write_bytes(b"broken since")
    assert arc.rows(7) == 18, "what was counted is known"
    (arc.directory / "batch-000000000099").write_text("a file, no directory")
    assert arc.rows(99) == 0


def test_a_batch_was_written_when_its_directory_was(arc: ArcFiles) -> None:
    assert arc.waited_since_s(2) == 102.0
    assert arc.waited_since_s(9) is None


def test_how_far_the_reader_is_only_grows(arc: ArcFiles) -> None:
    assert arc.finished() == -1
    arc.finish(-1)
    assert not (arc.directory / "reader.json").exists()
    arc.finish(0)
    assert arc.finished() == 0
    arc.finish(2)
    arc.finish(1)
    assert restarted(arc).finished() == 2


def test_what_is_finished_goes_but_for_the_newest_and_what_is_read_again(arc: ArcFiles) -> None:
    assert arc.sweep() == 0, "nothing is finished"
    arc.finish(2)
    assert arc.sweep(reading=[1, 3]) == 1, "from the first one that is read again on all may be"
    assert there(arc) == [1, 2, 3]
    assert arc.sweep(reading=[2, 3]) == 1
    assert arc.sweep() == 1
    assert there(arc) == [3]
    arc.finish(3)
    assert arc.sweep() == 0, "the newest may be written again"
    assert arc.batches() == [3]
    assert (arc.written_rows(), restarted(arc).written_rows()) == (100, 100)
    assert read_document(arc.directory / "swept.json") == {"swept": 2, "rows": 60}
    put(arc, 4, 50)
    assert arc.sweep() == 1
    assert read_document(arc.directory / "swept.json") == {"swept": 3, "rows": 100}
    assert restarted(arc).written_rows() == 150


def test_what_goes_is_written_down_before_it_goes(arc: ArcFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    arc.finish(1)
    seen = []

    def look(place: Path, ignore_errors: bool) -> None:
        assert ignore_errors
        seen.append((place.name[-1], read_document(arc.directory / "swept.json"), restarted(arc).written_rows()))

    monkeypatch.setattr("shutil.rmtree", look)
    noted = {"swept": 1, "rows": 30}
    assert arc.sweep() == 2
    assert seen == [("0", noted, 100), ("1", noted, 100)]
    # They are still there, as after a crash: they no longer count, and go with the next sweep.
    assert arc.batches() == [2, 3]
    assert arc.sweep() == 2
    assert len(seen) == 4
    assert read_document(arc.directory / "swept.json") == noted


def test_a_batch_that_is_written_anew_after_it_went_is_counted_anew(arc: ArcFiles) -> None:
    """Its old number of rows must not be remembered."""
    assert arc.rows(0) == 10
    arc.finish(0)
    assert arc.sweep() == 1
    put(arc, 0, 3)
    assert arc.rows(0) == 3


# --- the inbox -------------------------------------------------------------------------------------------------------


def test_what_waits_is_what_was_not_begun(arc: ArcFiles) -> None:
    box = Inbox(arc)
    assert (box.waiting_batches(), box.waiting_rows(), box.waiting(None, 5.0)) == ([0, 1, 2, 3], 100, 100)
    box.take([1])
    assert (box.waiting_batches(), box.waiting_rows()) == ([0, 2, 3], 80)
    box.take([0, 2, 9])
    assert (box.waiting_batches(), box.waiting_rows()) == ([3], 40)
    put(arc, 4, 50)
    assert box.waiting_rows() == 90
    assert arc.finished() == -1, "begun is not finished"


def test_the_oldest_wait_is_that_of_the_first_batch_not_begun(arc: ArcFiles) -> None:
    box = Inbox(arc)
    assert box.oldest_wait_s(110.0) == 10.0
    box.take([0, 1])
    assert box.oldest_wait_s(110.0) == 8.0
    assert box.oldest_wait_s(101.0) == 0.0, "clocks may differ"
    box.take([2, 3])
    assert box.oldest_wait_s(110.0) == 0.0


def test_a_batch_that_goes_while_somebody_looks_does_not_wait(arc: ArcFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Inbox(arc)
    monkeypatch.setattr(arc, "waited_since_s", {0: None, 1: 101.0}.get)
    assert box.oldest_wait_s(110.0) == 9.0


def test_finished_is_up_to_the_first_gap(arc: ArcFiles) -> None:
    box = Inbox(arc)
    box.take([0, 1, 2, 3])
    box.finish([2])
    assert arc.finished() == -1
    box.finish([0])
    assert arc.finished() == 0
    box.finish([1])
    assert arc.finished() == 2, "what was finished before counts when the gap closes"
    box.finish([1])
    assert arc.finished() == 2
    box.finish([3, 4])
    assert arc.finished() == 3, "a batch that is not there yet is not finished"
    assert box.waiting_rows() == 0
    put(arc, 7, 1)  # those between had no rows
    assert box.waiting_batches() == [7]
    box.take([7])
    box.finish([7])
    assert arc.finished() == 7


def test_a_reader_that_begins_again_goes_on_where_it_was(arc: ArcFiles) -> None:
    box = Inbox(arc)
    box.take([0, 1, 2])
    box.finish([0, 1])
    again = Inbox(restarted(arc))
    assert again.waiting_batches() == [2, 3], "what was begun and not finished waits again"
    again.take([1, 2])
    again.finish([0, 1])  # done again, and finished before
    assert (again.waiting_batches(), arc.finished()) == ([3], 1)
    again.finish([2, 3])
    assert (again.waiting_batches(), arc.finished()) == ([], 3)
    again.sweep([3])
    assert there(arc) == [3]
    again.sweep([])
    assert there(arc) == [3]


def test_a_sweep_spares_what_is_read(arc: ArcFiles) -> None:
    box = Inbox(arc)
    box.finish([0, 1, 2])
    box.sweep([1])
    assert there(arc) == [1, 2, 3]
