from pathlib import Path

import pytest

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


def ring(line: ControlLine, time_ms: int) -> tuple[float, ...]:
    """What a batch that started then reads from the file."""
    levels = [int(level) for level in line.path.read_text().split()]
    slot = time_ms // SLOT_MS % SLOTS
    return tuple(level / 256 for level in levels[slot * line.size : (slot + 1) * line.size])


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
    assert line.is_certain(start_ms + 60_000)
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


def test_what_came_too_late_is_not_forgotten_with_the_rest(tmp_path: Path, clock: Clock) -> None:
    line = ControlLine(tmp_path, 1, clock, kept=10)
    for _ in range(15):
        clock.time_s += 1.0
        line.write([0.5])
    slot = clock.ms // SLOT_MS
    line._late.append((slot, slot))
    for _ in range(8):
        clock.time_s += 1.0
        line.write([0.25])
    assert line._since > 0
    again = ControlLine(tmp_path, 1, clock, kept=10)
    assert not again.is_certain(slot * SLOT_MS)
    assert again.is_certain(clock.ms)
