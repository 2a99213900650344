from pathlib import Path

import pytest

from streamshed.engines.spark.places import Places
from streamshed.errors import InvalidValueError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "places.json"


def test_places_are_given_in_order(file: Path) -> None:
    places = Places(file, 3)
    assert [places.of(name) for name in ("b", "a", "b", "c")] == [0, 1, 0, 2]


def test_they_stay_after_a_restart_in_whatever_order_drops_are_made(file: Path) -> None:
    first = Places(file, 4)
    assert [first.of(name) for name in "abc"] == [0, 1, 2]
    again = Places(file, 4)
    assert [again.of(name) for name in "cdba"] == [2, 3, 1, 0]


def test_a_new_drop_takes_no_place_of_the_last_run_as_long_as_there_are_others(file: Path) -> None:
    first = Places(file, 3)
    assert [first.of(name) for name in "ab"] == [0, 1]
    again = Places(file, 3)
    assert [again.of(name) for name in "xa"] == [2, 0]
    assert again.of("y") == 1, "b has not come back"
    assert [Places(file, 3).of(name) for name in "yxa"] == [1, 2, 0], "and b is forgotten"


def test_a_place_that_was_taken_over_is_not_given_twice(file: Path) -> None:
    first = Places(file, 2)
    assert [first.of(name) for name in "ab"] == [0, 1]
    again = Places(file, 2)
    assert [again.of(name) for name in "xa"] == [0, 1]


def test_a_line_that_got_shorter_has_places_for_all_that_fit(file: Path) -> None:
    first = Places(file, 3)
    assert [first.of(name) for name in "abc"] == [0, 1, 2]
    again = Places(file, 1)
    assert again.of("c") == 0


def test_a_full_line_says_so(file: Path) -> None:
    places = Places(file, 2)
    assert [places.of(name) for name in "ab"] == [0, 1]
    with pytest.raises(InvalidValueError, match=r"full(.|\n)*'c'(.|\n)*3(.|\n)*at most 2"):
        places.of("c")
    assert places.of("a") == 0


def test_a_place_is_on_disk_before_it_is_used_and_written_once(file: Path) -> None:
    Places(file, 2).of("a")
    written = file.stat().st_mtime_ns, file.stat().st_ino
    Places(file, 2).of("a")
    assert (file.stat().st_mtime_ns, file.stat().st_ino) == written


@pytest.mark.parametrize("text", ["{", "[]", '{"a": null}', '{"a": "x"}'])
def test_a_damaged_file_is_said_and_begun_anew(file: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(text)
    assert Places(file, 2).of("b") == 0
    assert "cannot be read" in caplog.text
    assert Places(file, 2).of("b") == 0
