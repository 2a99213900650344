"""The one family of errors that a user of Streamshed meets.

Every message says what is wrong, where (the id its user chose), what was got, what was expected, and a hint.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class StreamshedError(Exception):
    """Base of all errors raised on purpose.

    `at` is the path to what is at fault as a spec file spells it, such as `("operators", "parse", "where")`: whoever
    knows the file turns it into a line.

    >>> print(StreamshedError("cost is negative", where="operator 'parse'", got="-1", expected="a number >= 0"))
    cost is negative
      where:    operator 'parse'
      got:      -1
      expected: a number >= 0
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: object = None,
        expected: object = None,
        hint: str | None = None,
        at: Iterable[str] = (),
    ) -> None:
        self.what = what
        self.where = where
        self.got = None if got is None else str(got)
        self.expected = None if expected is None else str(expected)
        self.hint = hint or None
        self.at = tuple(at)
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        for label in ("where", "got", "expected", "hint"):
            text = getattr(self, label)
            if text is not None:
                lines.append(f"  {label + ':':<9} {text}")
        return "\n".join(lines)


class InvalidValueError(StreamshedError, ValueError):
    """A value outside the range that makes sense for it."""


class UnknownNameError(StreamshedError, KeyError):
    """A reference to an id, column or algorithm that does not exist."""


class NetworkError(StreamshedError, ValueError):
    """A query network that cannot be run: cycle, dangling arc, unknown column, window without time."""


class SpecError(StreamshedError, ValueError):
    """A spec file that cannot be read as a network."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that names the closest known names, or all of them when none is close.

    >>> did_you_mean("sped", ["speed", "lane"])
    "did you mean 'speed'?"
    >>> did_you_mean("x", ["speed", "lane"])
    "known: 'lane', 'speed'"
    """
    options = sorted(set(known))
    close = difflib.get_close_matches(name, options, n=2, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(option) for option in close)}?"
    if not options:
        return "there are none"
    shown = ", ".join(repr(option) for option in options[:12])
    return f"known: {shown}{', …' if len(options) > 12 else ''}"
