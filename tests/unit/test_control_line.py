import errno
import json
import os
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark import control_line, journal
from streamshed.engines.spark.control_line import SLOT_MS, SLOTS, ControlError, ControlLine
from streamshed.errors import InvalidValueError


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, time_s: float = 1_000_000.0) -> None:
        self.time_s = time_s

    def __call__(self) -> float:
        return self.time_s

    @property
    def ms(self) -> int:
        return int(self.time_s * 1000)


@lru_cache(maxsize=2)
def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def ring(line: ControlLine, time_ms: int) -> tuple[float, ...]:
    """What a batch that started then reads from the file."""
    levels = numbers(line.path.read_text())
    slot = time_ms // SLOT_MS % SLOTS
    return tuple(level / 256 for level in levels[slot * line.size : (slot + 1) * line.size])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def test_fractions_are_quantised_and_the_width_never_changes(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 3, clock)
    width = line.path.stat().st_size
    for fractions in ([0, 0.3, 1], [0.001, 0.999, 0.5], [1, 1, 1]):
        clock.time_s += 0.1
        line.write(fractions)
        assert line.path.stat().st_size == width
        assert all(abs(got - wanted) <= 1 / 512 for got, wanted in zip(line.read(), fractions, strict=True))


def test_a_change_holds_from_a_slot_that_has_not_begun(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1
    start_ms = line.write([0.5])
    assert clock.ms < start_ms <= clock.ms + 2 * SLOT_MS + 20
    assert ring(line, start_ms - 1) == line.at(start_ms - 1) == (0.0,)
    assert ring(line, start_ms) == line.at(start_ms) == (0.5,)


def test_history_and_ring_agree_for_every_slot_in_reach(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 2, clock)
    for step in range(400):
        clock.time_s += 0.013 * (step % 7)
        line.write([(step * 37 % 256) / 256, (step * 91 % 256) / 256])
    for back in range(SLOTS // 2 - 2):
        time_ms = clock.ms - back * SLOT_MS
        assert ring(line, time_ms) == line.at(time_ms)
    for ahead in range(SLOTS // 2):
        time_ms = clock.ms + ahead * SLOT_MS
        assert ring(line, time_ms) == line.at(time_ms)


def test_the_line_is_carried_on(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1
    line.write([0.25])
    for _ in range(100):
        clock.time_s += 1
        line.refresh()
        assert ring(line, clock.ms) == line.at(clock.ms) == (0.25,)


def test_the_history_survives_the_writer(tmp_path: Path, clock: Clock) -> None:
    first = ControlLine(tmp_path, 2, clock)
    clock.time_s += 1
    start_ms = first.write([0.75, 0.5])
    clock.time_s += 60
    with (tmp_path / "control-history.jsonl").open("a") as history:
        history.write('{"from": 12')  # died in mid-record
    second = ControlLine(tmp_path, 2, clock)
    assert second.at(start_ms) == (0.75, 0.5)
    assert second.at(clock.ms + 1000) == (0.0, 0.0)
    clock.time_s += 1
    start_ms = second.write([0.125, 0.0])
    clock.time_s += 1
    assert ControlLine(tmp_path, 2, clock).at(start_ms) == (0.125, 0.0)


def test_a_replayed_batch_gets_its_thresholds_again(tmp_path: Path, clock: Clock) -> None:
    first = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1
    replayed_ms = first.write([0.75]) + 10
    clock.time_s += 3600.0
    second = ControlLine(tmp_path, 1, clock)
    second.pin(replayed_ms)
    for step in range(60):
        clock.time_s += 0.5
        second.write([step / 256])
        assert ring(second, replayed_ms) == (0.75,)
        # Live batches whose slot is the pinned one obey it too, and the history knows.
        for ahead in range(SLOTS // 2):
            time_ms = clock.ms + ahead * SLOT_MS
            assert ring(second, time_ms) == second.at(time_ms)
    second.release(replayed_ms)
    clock.time_s += SLOTS * SLOT_MS / 1000
    second.write([0.5])
    assert {ring(second, clock.ms + 100 + ahead * SLOT_MS) for ahead in range(200)} == {(0.5,)}


class Scripted(Clock):
    """A clock that goes on by given steps, one at each look, and then stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []

    def __call__(self) -> float:
        if self.steps:
            self.time_s += self.steps.pop(0)
        return self.time_s


def test_a_slow_disk_only_delays_a_change(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0, 0.3, 0.0, 0.3]  # the first attempt takes 300 ms, and so does the second
    start_ms = line.write([0.5])
    assert start_ms > clock.ms
    assert line.is_certain(start_ms)
    assert line.at(start_ms - 1) == (0.0,)
    clock.time_s += 10
    assert ControlLine(tmp_path, 1, clock).at(start_ms - 1) == (0.0,)
    assert ControlLine(tmp_path, 1, clock).at(start_ms) == (0.5,)


def test_a_late_change_is_known_to_be_uncertain(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0, 0.0, 0.5]  # held up for half a second when the change is already in the history
    start_ms = line.write([0.5])
    assert not line.is_certain(start_ms)
    assert line.is_certain(clock.ms + SLOT_MS)
    assert not ControlLine(tmp_path, 1, clock).is_certain(start_ms)


def test_a_change_that_was_never_published_does_not_count(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1
    published = line.path.read_text()
    start_ms = line.write([0.5])
    line.path.write_text(published)  # as if the writer had died between history and line
    clock.time_s += 1
    for _ in range(2):
        assert ControlLine(tmp_path, 1, clock).at(start_ms) == (0.0,)
        clock.time_s += 1


def test_a_clock_that_goes_back_does_not_rewrite_the_past(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 10
    start_ms = line.write([0.5])
    clock.time_s -= 5
    line.write([0.25])
    assert line.at(start_ms - 1) == (0.0,)


def test_closing_keeps_everything(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    line.write([1.0])
    line.close()
    assert {ring(line, slot * SLOT_MS) for slot in range(SLOTS)} == {(0.0,)}


def test_a_stale_checksum_is_removed(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / ".control.crc").write_bytes(b"crc")
    ControlLine(tmp_path, 1, clock)
    assert not (tmp_path / ".control.crc").exists()


def test_an_unusable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ControlError, match=r"cannot be written(.|\n)*file"):
        ControlLine(tmp_path / "file", 1)


@pytest.mark.parametrize("fractions", [[0.5], [0.5, 1.5], [0.5, -0.1]])
def test_bad_fractions_are_refused(tmp_path: Path, fractions: list[float]) -> None:
    with pytest.raises(InvalidValueError, match="fractions"):
        ControlLine(tmp_path, 2).write(fractions)


def test_a_line_needs_a_threshold(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="threshold"):
        ControlLine(tmp_path, 0)


def test_a_long_history_forgets_its_beginning_and_says_so(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock, kept=10)
    began_ms = clock.ms
    seen = {}
    for number in range(100):
        clock.time_s += 1.0
        seen[line.write([number / 256])] = number / 256
    history = tmp_path / "control-history.jsonl"
    assert len(history.read_text().splitlines()) <= 22
    latest = dict(list(seen.items())[-10:])
    clock.time_s += 1.0
    for known in (line, ControlLine(tmp_path, 1, clock, kept=10)):
        assert {time_ms: known.at(time_ms)[0] for time_ms in latest} == latest
        assert all(known.is_certain(time_ms) for time_ms in latest)
        assert not known.is_certain(began_ms + 1000), "nobody knows any more what held then"


def test_what_came_too_late_is_not_forgotten_with_the_rest(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock, kept=10)
    first_ms = line.write([0.5])
    for _ in range(14):
        clock.time_s += 1.0
        line.write([0.5])
    clock.steps = [1.0, 0.0, 0.5]  # held up in the middle
    late_ms = line.write([0.75])
    for _ in range(8):
        clock.time_s += 1.0
        line.write([0.25])
    again = ControlLine(tmp_path, 1, clock, kept=10)
    for known in (line, again):
        assert not known.is_certain(first_ms), "forgotten"
        assert not known.is_certain(late_ms)
        assert known.is_certain(late_ms - SLOT_MS)
        assert known.is_certain(clock.ms)


# --- when the line and its history may differ ------------------------------------------------------------------------


def history(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "control-history.jsonl").read_text().splitlines()]


def agree(line: ControlLine, times_ms: range) -> bool:
    """Whether batches that start then read what the history says, wherever that is certain; and some are."""
    certain = [time_ms for time_ms in times_ms if line.is_certain(time_ms)]
    return bool(certain) and all(ring(line, time_ms) == line.at(time_ms) for time_ms in certain)


def test_a_change_holds_for_the_first_slot_after_the_lead(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0  # the begin of a slot: 20 ms later it is still the same one
    assert line.write([0.5]) == clock.ms + SLOT_MS
    clock.time_s += 1.035  # 35 ms in a slot: with 20 ms of lead, the next one is too early
    assert line.write([0.25]) == clock.ms - 35 + 2 * SLOT_MS
    assert line.holds_from_ms == clock.ms - 35 + 2 * SLOT_MS


def test_the_line_is_certain_as_far_as_it_is_written(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0
    start_ms = line.write([0.5])
    end_ms = start_ms + SLOTS // 2 * SLOT_MS
    assert line.is_certain(end_ms - 1)
    assert not line.is_certain(end_ms)


def test_a_refresh_comes_when_half_of_what_lies_ahead_is_used_up(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0
    start_ms = line.write([0.5])
    known = len(history(tmp_path))
    clock.time_s = (start_ms + SLOTS // 4 * SLOT_MS) / 1000
    line.refresh()
    assert len(history(tmp_path)) == known
    clock.time_s += SLOT_MS / 1000
    line.refresh()
    assert len(history(tmp_path)) == known + 1
    assert line.read() == (0.5,)


def test_a_writer_that_was_held_up_for_too_long_does_not_claim_to_know(tmp_path: Path, clock: Clock) -> None:
    """Nobody has carried the line on: a batch that started then has read what was there 25.6 s before."""
    line = ControlLine(tmp_path, 1, clock)
    line.write([0.75])
    clock.time_s += 5
    start_ms = line.write([0.5])
    end_ms = start_ms + SLOTS // 2 * SLOT_MS
    clock.time_s += 20
    assert not line.is_certain(clock.ms)
    assert line.at(clock.ms) == (0.5,) != ring(line, clock.ms)
    line.refresh()
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.is_certain(end_ms - 1)
        assert not known.is_certain(end_ms)
        assert not known.is_certain(clock.ms)
    assert line.is_certain(clock.ms + 2 * SLOT_MS)


def test_a_change_without_a_gap_leaves_no_doubt(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0
    start_ms = line.write([0.5])
    end_ms = start_ms + SLOTS // 2 * SLOT_MS
    clock.time_s = end_ms / 1000 - 0.05  # the next change begins right where the line ends
    assert line.write([0.25]) == end_ms
    assert all(line.is_certain(time_ms) for time_ms in range(start_ms, end_ms + 1000, SLOT_MS))


def test_the_late_slots_are_those_from_the_start_to_the_time_when_it_was_shown(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0, 0.0, 0.5]
    start_ms = line.write([0.5])
    uncertain = [start_ms + 50 * i for i in range(-3, 20) if not line.is_certain(start_ms + 50 * i)]
    # Shown 0.5 s after it was asked for, 50 ms of which were left.
    assert uncertain == [start_ms + 50 * i for i in range(10)]
    assert {"late": [start_ms // SLOT_MS, clock.ms // SLOT_MS]} in history(tmp_path)


def test_a_disk_that_is_always_slow_gets_its_change_at_last(tmp_path: Path) -> None:
    """The lead grows to twice what a change takes; past 2 s it is shown late, and that is known."""
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0] + [0.0, 5.0] * 3
    start_ms = line.write([0.5])
    assert ring(line, start_ms) == line.at(start_ms) == (0.5,)
    assert not line.is_certain(start_ms)
    assert clock.ms > start_ms


def test_the_lead_shrinks_again_by_a_twentieth_a_change(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0, 0.3]
    line.write([0.5])  # took 300 ms: the second try has 600 ms of lead
    clock.time_s += 100 - clock.time_s % 1
    leads = []
    for _ in range(4):
        leads.append(line.write([0.5]) - clock.ms)
        clock.time_s += 10
    # 600 * 0.95 (the second try itself), and on from there: 570, 541.5, 514.4, 488.7; then to the next slot.
    assert leads == [600, 550, 550, 500]


def test_a_change_that_was_taken_back_on_a_slow_disk_is_no_part_of_the_history(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0, 0.3]
    start_ms = line.write([0.5])
    kinds = [next(iter(record)) for record in history(tmp_path)]
    assert kinds == ["from", "from", "void", "from"]
    clock.time_s += 2.0
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.at(start_ms - 1) == (0.0,)
        assert known.at(start_ms) == (0.5,)


class FullDisk:
    """Puts itself in the place of the system's calls; the one that is set fails once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = ""
        calls = SimpleNamespace(fsync=self.call("fsync"), replace=self.call("replace"), SEEK_END=os.SEEK_END)
        monkeypatch.setattr(control_line, "os", calls)
        monkeypatch.setattr(journal, "os", calls)

    def call(self, name: str) -> Any:
        real = getattr(os, name)

        def called(*given: Any) -> Any:
            if self.fails == name:
                self.fails = ""
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*given)

        return called


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_change_that_the_disk_refuses_holds_for_nobody(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    disk = FullDisk(monkeypatch)
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0
    line.write([0.25])
    clock.time_s += 1.0
    disk.fails = step
    with pytest.raises(OSError, match="No space"):
        line.write([0.75])
    assert line.read() == (0.25,), "so that it is tried again"
    clock.time_s += 1.0
    assert line.at(clock.ms) == ring(line, clock.ms) == (0.25,)
    line.write([0.5])
    clock.time_s += 1.0
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.at(clock.ms - 1000) == (0.25,)
        assert known.at(clock.ms) == (0.5,)


def test_a_change_that_the_disk_refused_before_a_crash_does_not_count(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0
    disk.fails = "replace"
    with pytest.raises(OSError, match="No space"):
        line.write([0.75])
    clock.time_s += 1.0
    assert ControlLine(tmp_path, 1, clock).at(clock.ms) == (0.0,)


def test_a_clock_set_back_by_a_little_changes_nothing_about_slots_that_were_seen(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1.0
    line.write([0.25])
    clock.time_s += 3.0
    line.refresh()  # looks at the clock, and has nothing to write
    seen_ms = clock.ms
    clock.time_s -= 1.0
    assert line.write([0.75]) == seen_ms - seen_ms % SLOT_MS + SLOT_MS
    assert line.at(seen_ms) == ring(line, seen_ms) == (0.25,)


def test_a_clock_set_back_by_far_leaves_doubt_until_it_has_caught_up(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    for step in range(20):
        clock.time_s += 5.0
        line.write([step / 32])
    seen_ms = clock.ms
    clock.time_s -= 40.0
    line.refresh()
    records = len(history(tmp_path))
    line.refresh()
    assert len(history(tmp_path)) == records, "said once"
    assert agree(line, range(clock.ms - 12_000, seen_ms + 10_000, SLOT_MS))
    assert line.is_certain(seen_ms - 4000)
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert not known.is_certain(clock.ms)
        assert not known.is_certain(clock.ms + 10_000)
        assert known.at(seen_ms - 4000) == (18 / 32,)


def test_a_change_that_begins_far_ahead_does_not_run_over_the_present_unnoticed(tmp_path: Path, clock: Clock) -> None:
    """As after a restart with a clock that was set back: the ring is too short for both."""
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 20
    line.write([0.5])
    clock.time_s -= 15
    again = ControlLine(tmp_path, 1, clock)
    assert again.holds_from_ms > clock.ms + SLOTS // 2 * SLOT_MS
    assert not again.is_certain(clock.ms)
    assert agree(again, range(clock.ms, again.holds_from_ms, SLOT_MS))


def test_a_hiccup_of_the_disk_does_not_delay_changes_by_more_than_two_seconds(tmp_path: Path) -> None:
    clock = Scripted()
    line = ControlLine(tmp_path, 1, clock)
    clock.steps = [1.0, 8.0]
    line.write([0.5])
    clock.time_s += 100 - clock.time_s % 1
    assert line.write([0.25]) == clock.ms + 2050
    again = ControlLine(tmp_path, 1, clock)
    assert again.holds_from_ms == clock.ms + 2050, "that is no clock set back"


def test_a_writer_that_finds_the_clock_set_back_does_not_rewrite_the_past(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 10
    start_ms = line.write([0.5])
    clock.time_s -= 600
    again = ControlLine(tmp_path, 1, clock)
    assert again.at(start_ms) == again.at(start_ms + 12_000) == (0.5,)
    clock.time_s += 1200
    again.refresh()
    assert agree(again, range(clock.ms, clock.ms + 10_000, SLOT_MS))


def test_a_writer_that_comes_back_at_once_begins_to_drop_nothing_at_once(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1
    start_ms = line.write([0.5])
    again = ControlLine(tmp_path, 1, clock)
    assert again.holds_from_ms == start_ms, "the old change has not begun yet: the new one takes its place"
    clock.time_s += 0.2
    assert again.at(clock.ms) == ring(again, clock.ms) == (0.0,)


def test_until_a_new_writers_first_change_holds_the_line_is_that_of_the_old_one(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    line.write([0.5])
    clock.time_s += 1
    again = ControlLine(tmp_path, 1, clock)
    assert again.at(clock.ms) == ring(again, clock.ms) == (0.5,)
    assert again.is_certain(clock.ms)
    assert agree(again, range(clock.ms - 12_000, clock.ms + 12_000, SLOT_MS))


def test_after_a_long_rest_nothing_is_dropped_by_thresholds_of_long_ago(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    line.write([0.5])
    clock.time_s += 3600
    again = ControlLine(tmp_path, 1, clock)
    assert {ring(again, clock.ms + ahead * SLOT_MS) for ahead in range(SLOTS)} == {(0.0,)}


# --- pins ------------------------------------------------------------------------------------------------------------


def elapse(line: ControlLine, clock: Clock, seconds: int, fraction: float) -> None:
    """Half a minute goes by with a change every half second."""
    for _ in range(2 * seconds):
        clock.time_s += 0.5
        line.write([fraction])


def test_two_batches_of_one_slot_need_two_releases(tmp_path: Path, clock: Clock) -> None:
    """Queries with the same trigger start their batches in the same slot."""
    line = ControlLine(tmp_path, 1, clock)
    first_ms = line.write([0.75])
    clock.time_s += 1
    line.pin(first_ms)
    line.pin(first_ms + 7)
    line.release(first_ms)
    elapse(line, clock, 60, 0.25)
    assert ring(line, first_ms) == (0.75,)
    line.release(first_ms + 7)
    elapse(line, clock, 60, 0.25)
    assert ring(line, first_ms) == (0.25,)
    line.release(first_ms)  # one too many does no harm


def test_several_batches_are_pinned_in_one_write(tmp_path: Path, clock: Clock) -> None:
    """One after the other, the first write could overwrite what the second one is to keep."""
    line = ControlLine(tmp_path, 1, clock)
    times_ms = []
    for step in range(3):
        times_ms.append(line.write([step / 4]))
        clock.time_s += 1
    known = len(history(tmp_path))
    line.pin(*times_ms)
    assert [next(iter(record)) for record in history(tmp_path)[known:]] == ["from"]
    elapse(line, clock, 60, 1.0)
    assert [ring(line, time_ms) for time_ms in times_ms] == [(0.0,), (0.25,), (0.5,)]
    line.release(*times_ms)
    elapse(line, clock, 60, 1.0)
    assert [ring(line, time_ms) for time_ms in times_ms] == [(1.0,)] * 3


def test_what_is_pinned_already_is_not_written_again(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    line.pin(clock.ms)
    known = history(tmp_path)
    line.pin(clock.ms)
    assert history(tmp_path) == known


def test_a_pin_that_cannot_be_written_is_none(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk(monkeypatch)
    line = ControlLine(tmp_path, 1, clock)
    first_ms = line.write([0.75])
    clock.time_s += 1
    disk.fails = "fsync"
    with pytest.raises(OSError, match="No space"):
        line.pin(first_ms)
    line.pin(first_ms)
    line.release(first_ms)
    elapse(line, clock, 60, 0.25)
    assert ring(line, first_ms) == (0.25,)


def test_of_two_pins_in_one_place_of_the_ring_the_younger_one_is_uncertain(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    first_ms = line.write([0.75])
    elapse(line, clock, 60, 0.25)
    second_ms = first_ms + 2 * SLOTS * SLOT_MS
    line.pin(first_ms)
    assert line.is_certain(second_ms) == (ring(line, second_ms) == (0.25,))
    line.pin(second_ms)
    elapse(line, clock, 30, 0.5)
    assert ring(line, first_ms) == (0.75,)
    assert agree(line, range(clock.ms - 12_000, clock.ms + 12_000, SLOT_MS))
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.is_certain(first_ms)
        assert not known.is_certain(second_ms)


def test_two_pins_in_one_place_that_agree_are_both_certain(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    first_ms = line.write([0.75])
    elapse(line, clock, 60, 0.75)
    second_ms = first_ms + 2 * SLOTS * SLOT_MS
    line.pin(first_ms, second_ms)
    assert line.is_certain(first_ms)
    assert line.is_certain(second_ms)


def test_a_slot_just_past_that_a_pin_overwrites_is_uncertain(tmp_path: Path, clock: Clock) -> None:
    """A live batch that started in it may not have read its own thresholds yet."""
    line = ControlLine(tmp_path, 1, clock)
    old_ms = line.write([0.75])
    clock.time_s += 1
    line.write([0.25])
    elapse(line, clock, 27, 0.25)
    past_ms = old_ms + SLOTS * SLOT_MS
    assert past_ms < clock.ms
    assert line.is_certain(past_ms)
    line.pin(old_ms)
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert not known.is_certain(past_ms)
        assert known.is_certain(past_ms - SLOT_MS)
        assert known.is_certain(past_ms + SLOT_MS)
    lates = [record for record in history(tmp_path) if "late" in record]
    elapse(line, clock, 60, 0.5)
    assert [record for record in history(tmp_path) if "late" in record] == lates, "later ones know of the pin"
    assert agree(line, range(clock.ms - 12_000, clock.ms + 12_000, SLOT_MS))


def test_a_new_writer_with_pins_ahead_changes_at_once(tmp_path: Path, clock: Clock) -> None:
    """The slots of pins lie up to 12.8 s ahead; a crash and a restart within that time must not wait for them."""
    line = ControlLine(tmp_path, 1, clock)
    old_ms = line.write([0.75])
    clock.time_s += 14
    line.pin(old_ms)  # comes round in 11.6 s
    clock.time_s += 1
    line.write([0.25])
    clock.time_s += 1
    again = ControlLine(tmp_path, 1, clock)
    assert again.holds_from_ms <= clock.ms + 2 * SLOT_MS
    assert agree(again, range(clock.ms - 12_000, clock.ms + 12_000, SLOT_MS))
    assert again.at(clock.ms + 1000) == (0.0,)


def test_a_change_that_begins_in_a_pinned_slot_was_published_all_the_same(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    old_ms = line.write([0.75])
    clock.time_s += 1
    line.pin(old_ms)
    clock.time_s = (old_ms + SLOTS * SLOT_MS) / 1000 - 0.05
    start_ms = line.write([0.25])
    assert (start_ms - old_ms) // SLOT_MS == SLOTS
    clock.time_s += 1.0
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.at(start_ms) == (0.75,)
        assert known.at(start_ms + SLOT_MS) == (0.25,)
    assert "void" not in [next(iter(record)) for record in history(tmp_path)]


def test_pins_that_were_never_published_do_not_count(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    old_ms = line.write([0.75])
    clock.time_s += 14
    line.write([0.25])
    before = line.path.read_text()
    line.pin(old_ms)
    line.path.write_text(before)  # the writer died between history and line; Spark went on for a moment
    comes_round_ms = old_ms + SLOTS * SLOT_MS
    assert line.at(comes_round_ms) == (0.75,)
    clock.time_s += 0.5
    assert ControlLine(tmp_path, 1, clock).at(comes_round_ms) != (0.75,)


def test_what_a_change_overwrites_before_it_was_read_is_uncertain(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    elapse(line, clock, 10, 0.5)
    line.unread_since_ms = clock.ms - 6000 + 20  # in the middle of a slot
    clock.time_s += 6
    line.write([0.25])  # reaches back to 12.8 s before it: nothing is lost
    assert line.is_certain(clock.ms - 12_000)
    clock.time_s += 6
    start_ms = line.write([0.25])
    reach_ms = start_ms - SLOTS // 2 * SLOT_MS
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.is_certain(line.unread_since_ms - SLOT_MS)
        assert not known.is_certain(line.unread_since_ms)
        assert not known.is_certain(reach_ms - 1)
        assert known.is_certain(reach_ms)


def test_closing_while_queries_run_leaves_doubt_about_their_batches(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    first_ms = line.write([0.75])
    clock.time_s += 3
    line.close([first_ms, None])
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert not known.is_certain(first_ms)
        assert known.is_certain(first_ms + SLOT_MS)
        assert not known.is_certain(clock.ms), "the next batch may start before the last change holds"
        assert known.is_certain(clock.ms + 2 * SLOT_MS)


def test_closing_when_no_query_runs_leaves_no_doubt_then_or_later(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock)
    first_ms = line.write([0.75])
    line.pin(first_ms)
    clock.time_s += 3
    line.close()
    assert {ring(line, slot * SLOT_MS) for slot in range(SLOTS)} == {(0.0,)}
    assert line.is_certain(clock.ms)
    clock.time_s += 86_400
    for known in (line, ControlLine(tmp_path, 1, clock)):
        assert known.is_certain(first_ms)
        assert known.is_certain(clock.ms - 3600_000), "what went on without a writer has dropped nothing"
        assert known.at(clock.ms - 3600_000) == (0.0,)


# --- what is on disk -------------------------------------------------------------------------------------------------


def test_histories_of_earlier_versions_are_understood(tmp_path: Path, clock: Clock) -> None:
    """They did not say up to where the line was written: always 256 slots ahead."""
    line = ControlLine(tmp_path, 1, clock)
    clock.time_s += 1
    start_ms = line.write([0.5])
    file = tmp_path / "control-history.jsonl"
    records = [{name: value for name, value in record.items() if name != "to"} for record in history(tmp_path)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    clock.time_s += 60
    again = ControlLine(tmp_path, 1, clock)
    assert "void" not in [next(iter(record)) for record in history(tmp_path)]
    assert again.at(start_ms) == (0.5,)
    assert again.is_certain(start_ms)
    assert again.is_certain(start_ms + 256 * SLOT_MS - 1)
    assert not again.is_certain(start_ms + 256 * SLOT_MS)


@pytest.mark.parametrize("size", [1, 3])
def test_a_line_may_have_more_or_fewer_thresholds_after_a_restart(tmp_path: Path, clock: Clock, size: int) -> None:
    line = ControlLine(tmp_path, 2, clock)
    clock.time_s += 1
    start_ms = line.write([0.5, 0.25])
    clock.time_s += 1
    again = ControlLine(tmp_path, size, clock)
    assert again.at(start_ms) == (0.5, 0.25, 0.0)[:size]
    assert len(again.path.read_text().split()) == SLOTS * size + 1
    assert agree(again, range(clock.ms - 5000, clock.ms + 5000, SLOT_MS))


def test_a_history_that_forgot_its_beginning_has_the_rest_right_with_pins(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock, kept=10)
    old_ms = line.write([0.75])
    clock.time_s += 14
    line.pin(old_ms)
    seen: dict[int, tuple[float, ...]] = {}
    for number in range(60):
        clock.time_s += 0.7
        line.write([number / 256])
        seen |= {time_ms: line.at(time_ms) for time_ms in range(clock.ms - 2000, clock.ms, SLOT_MS)}
    again = ControlLine(tmp_path, 1, clock, kept=10)
    for known in (line, again):
        certain = [time_ms for time_ms in seen if known.is_certain(time_ms)]
        assert len(certain) > 20
        assert all(known.at(time_ms) == seen[time_ms] for time_ms in certain)
    assert agree(again, range(clock.ms - 12_000, clock.ms + 12_000, SLOT_MS))


def test_quantised_is_to_the_nearest_of_256() -> None:
    assert ControlLine.quantised([0.0, 0.3, 1.0, 0.5 / 256, 0.4 / 256]) == (0.0, 77 / 256, 1.0, 1 / 256, 0.0)
