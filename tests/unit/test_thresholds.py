"""What a plan reads from the control line: its expression, evaluated by a few lines of Python as Spark does it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

from streamshed.engines.spark import control_line
from streamshed.engines.spark.control_line import SLOT_MS, SLOTS, THRESHOLDS, ControlLine

Row = dict[str, Any]


class Value:
    """A column: what it is in a row."""

    def __init__(self, of: Callable[[Row], Any], name: str = "") -> None:
        self.of, self.name = of, name

    def _with(self, other: object, what: Callable[[Any, Any], Any]) -> Value:
        return Value(lambda row: what(self.of(row), value(other).of(row)))

    def __add__(self, other: object) -> Value:
        return self._with(other, lambda a, b: a + b)

    def __mul__(self, other: object) -> Value:
        return self._with(other, lambda a, b: a * b)

    def __truediv__(self, other: object) -> Value:
        return self._with(other, lambda a, b: a / b)

    def __getitem__(self, place: int) -> Value:
        return Value(lambda row: self.of(row)[place])

    def cast(self, kind: str) -> Value:
        to: Callable[[Any], Any] = {"int": int, "double": float}[kind]
        return Value(lambda row: to(self.of(row)))

    def alias(self, name: str) -> Value:
        return Value(self.of, name)


def value(given: object) -> Value:
    """A column as it is, one by its name, or a number."""
    if isinstance(given, Value):
        return given
    return Value(lambda row: row[given] if isinstance(given, str) else given)


def constant(given: object) -> Value:
    """A column that is the same in all rows."""
    return Value(lambda _: given)


def text(of: Callable[..., Any]) -> Callable[..., Value]:
    """A function of columns."""
    return lambda *given: Value(lambda row: of(*(value(one).of(row) for one in given)))


def functions(now_ms: Callable[[], int]) -> SimpleNamespace:
    """Spark's functions, as far as they are used here."""
    return SimpleNamespace(
        lit=constant,
        current_timestamp=lambda: Value(lambda _: now_ms()),
        unix_millis=lambda column: column,
        floor=text(math.floor),
        pmod=text(lambda a, b: a % b),
        substring=text(lambda of, first, length: of[first - 1 : first - 1 + length] if first > 0 else ""),
        rtrim=text(lambda of: of.rstrip(" ")),
        split=lambda column, by: Value(lambda row: column.of(row).split(by)),
        array=text(lambda *of: list(of)),
        coalesce=text(lambda *of: next((one for one in of if one is not None), None)),
        transform=lambda column, what: Value(lambda row: [what(constant(one)).of(row) for one in column.of(row)]),
        zip_with=lambda a, b, what: Value(
            lambda row: [what(constant(x), constant(y)).of(row) for x, y in zip(a.of(row), b.of(row), strict=True)]
        ),
    )


class Session:
    """Reads texts, and says what a column is in each line."""

    def __init__(self) -> None:
        self.read = SimpleNamespace(text=self.text)

    def text(self, uri: str) -> Any:
        lines = Path(unquote(urlparse(uri).path)).read_text().splitlines()
        return SimpleNamespace(
            select=lambda column: (column.name, [column.of({"value": line}) for line in lines]),
        )


@pytest.mark.parametrize("size", [1, 3])
def test_a_batch_reads_the_thresholds_of_the_slot_in_which_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    now_ms = 1_700_000_000_000
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.setattr(control_line, "F", functions(lambda: now_ms))
    line = ControlLine(tmp_path / "with space", size, clock=lambda: now_ms / 1000)
    session: Any = Session()
    seen = set()
    for step in range(1, 40):
        now_ms += 731
        line.write([(step * 13 + place * 71) % 257 / 256 for place in range(size)])
        for _ in range(3):
            now_ms += 49
            read: Any = line.thresholds(session)
            assert read == (THRESHOLDS, [list(line.at(now_ms))])
            seen.add(now_ms // SLOT_MS % SLOTS)
    assert min(seen) < 20
    assert max(seen) > SLOTS - 20
