"""Options as Spark hands them over: text by name, whatever the case."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean

T = TypeVar("T")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


class Options:
    """Reads typed values out of text, and knows afterwards which options nobody asked for.

    Names match whatever their case, with or without `_` and `-`: `maxRowsPerBatch` is `max_rows_per_batch`.

    Args:
        options: text by name.
        where: what the options belong to, for messages.

    >>> options = Options({"RateTps": "2.5", "repeat": "true", "bata": "1"}, where="feeder")
    >>> options.number("rate_tps", 1.0), options.flag("repeat", False), options.number("beta", 0.5)
    (2.5, True, 0.5)
    >>> options.refuse_rest()
    Traceback (most recent call last):
        ...
    streamshed.errors.UnknownNameError: an option that nothing reads
      where:    feeder option 'bata'
      got:      1
      hint:     did you mean 'beta'?
    """

    def __init__(self, options: Mapping[str, object], where: str) -> None:
        self.where = where
        self._given = {_plain(name): (name, str(value).strip()) for name, value in options.items()}
        self._asked: dict[str, str] = {}

    def _take(self, name: str) -> str | None:
        self._asked[_plain(name)] = name
        found = self._given.get(_plain(name))
        return None if found is None else found[1]

    def _parse(self, name: str, default: T, parse: Callable[[str], T], expected: str) -> T:
        text = self._take(name)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise InvalidValueError(
                "an option cannot be read", where=f"{self.where} option {name!r}", got=repr(text), expected=expected
            ) from error

    def text(self, name: str, default: T) -> str | T:
        """The text as it is."""
        text = self._take(name)
        return default if text is None else text

    def choice(self, name: str, default: str, known: Mapping[str, T]) -> T:
        """One of several things, by name."""
        text = self.text(name, default)
        by_plain_name = {_plain(key): value for key, value in known.items()}
        if _plain(text) not in by_plain_name:
            raise UnknownNameError(
                f"there is no such {name}",
                where=f"{self.where} option {name!r}",
                got=repr(text),
                hint=did_you_mean(text, known),
            )
        return by_plain_name[_plain(text)]

    def number(self, name: str, default: float | T) -> float | T:
        """A finite number."""
        return self._parse(name, default, _finite, "a number")

    def integer(self, name: str, default: int | T) -> int | T:
        """A whole number; `1_000_000` and `1e6` are understood."""
        return self._parse(name, default, _whole, "a whole number")

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        return self._parse(name, default, _boolean, "true or false")

    def phases(self, name: str) -> tuple[tuple[float, float], ...]:
        """Pairs of rate and seconds: `1000:60, 3000:30, 1000:60`."""
        return self._parse(name, (), _phases, "rate:seconds, rate:seconds, … (such as 1000:60, 3000:30, 1000:60)")

    def build(self, kind: type[T], **fixed: object) -> T:
        """Make a dataclass whose fields are options; `fixed` fields are not looked up."""
        hints = get_type_hints(kind)
        values: dict[str, Any] = dict(fixed)
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            if field.name in fixed or not field.init:
                continue
            absent = object()
            readers: dict[object, Callable[[str, Any], Any]] = {
                float: self.number,
                float | None: self.number,
                int: self.integer,
                bool: self.flag,
                str: self.text,
            }
            if hints[field.name] in readers:
                value = readers[hints[field.name]](field.name, absent)
            else:
                value = self.phases(field.name) or absent
            if value is not absent:
                values[field.name] = value
            elif field.default is dataclasses.MISSING:
                raise InvalidValueError(
                    "an option is missing", where=f"{self.where} option {field.name!r}", expected="a value"
                )
        return kind(**values)

    def refuse_rest(self) -> None:
        """Raise if an option was given that nothing has asked for: a typing mistake must not pass in silence."""
        for plain_name, (name, text) in self._given.items():
            if plain_name not in self._asked:
                raise UnknownNameError(
                    "an option that nothing reads",
                    where=f"{self.where} option {name!r}",
                    got=text,
                    hint=did_you_mean(name, self._asked.values()),
                )


def check_range(where: str, name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    """Raise unless low <= value <= high (low < value with `above`).

    >>> check_range("pattern 'constant'", "rate_tps", -1, 0, 1e9)
    Traceback (most recent call last):
        ...
    streamshed.errors.InvalidValueError: rate_tps is out of range
      where:    pattern 'constant'
      got:      -1
      expected: a number from 0 to 1e+09
    """
    if not (low <= value <= high) or (above and value == low):
        limits = f"above {low:g}, at most {high:g}" if above else f"from {low:g} to {high:g}"
        if math.isinf(high):
            limits = f"> {low:g}" if above else f">= {low:g}"
        raise InvalidValueError(f"{name} is out of range", where=where, got=value, expected=f"a number {limits}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        value = _finite(text)
        if value != int(value):
            raise
        return int(value)


def _boolean(text: str) -> bool:
    words = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _phases(text: str) -> tuple[tuple[float, float], ...]:
    pairs = []
    for part in text.split(","):
        rate, seconds = part.split(":")
        pairs.append((_finite(rate), _finite(seconds)))
    return tuple(pairs)
