"""The form that the experiments of all papers share: data → table → figure → verdict.

An experiment measures, puts what it measured into tables, draws figures from the same numbers, and judges what the
paper says about them. A verdict is computed: nobody writes down that a claim holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamshed.errors import InvalidValueError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Value = str | float | int | bool
"""What stands in a cell of a table."""


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and whether it was found to be so.

    Attributes:
        claim: what is claimed, in a few words, with the figure or section it comes from.
        paper: what the paper says, with its numbers where it gives some.
        measured: what was measured here, with its spread.
        holds: whether the measurement bears the claim out.
        reason: why it probably does not; empty where it holds.
    """

    claim: str
    paper: str
    measured: str
    holds: bool
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", bool(self.holds))  # numpy's own booleans are none for JSON
        if self.holds == bool(self.reason):
            raise InvalidValueError(
                "a reason is given for a claim that holds"
                if self.holds
                else "a claim that does not hold needs a reason",
                where=f"claim {self.claim!r}",
                got=self.reason or "none",
                expected="a reason where, and only where, the claim does not hold",
            )


def judged(claim: str, paper: str, measured: str, holds: bool, *, otherwise: str) -> Claim:
    """A claim with its verdict; `otherwise` is the likely reason, and is kept only if the claim does not hold.

    >>> judged("the loss grows", "it grows", "0.1 to 0.3", 0.3 > 0.1, otherwise="too few tuples").reason
    ''
    """
    return Claim(claim, paper, measured, holds, "" if holds else otherwise)


@dataclass(frozen=True)
class DataTable:
    """Numbers of an experiment, one row a point; written as CSV.

    Attributes:
        name: what it is called as a file, without suffix.
        title: what it shows.
        columns: the headings, with units.
        rows: a value for each heading.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


@dataclass(frozen=True)
class Reproduction:
    """All that the experiments of one paper gave.

    Attributes:
        claims: every claim with its verdict.
        tables: the numbers that were measured.
        figures: by file name without suffix, how to draw each; drawn only where somebody wants to see it.
    """

    claims: tuple[Claim, ...]
    tables: tuple[DataTable, ...] = ()
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)


class Progress(Protocol):
    """Who wants to know how far a run is."""

    def begin(self, what: str, steps: int) -> None:
        """A part begins, of so many steps."""

    def advance(self) -> None:
        """A step of the part is done."""


class Silent:
    """Nobody wants to know."""

    def begin(self, what: str, steps: int) -> None:
        """Say nothing."""

    def advance(self) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class Settings:
    """How to run the experiments of a paper.

    Attributes:
        seed: where all randomness comes from; the same seed gives the same numbers.
        quick: a reduced run that shows that everything works; its verdicts mean less.
        trace: recorded arrivals (CSV, one column `count` per 100 ms) for papers that can use them; else synthetic ones.
        progress: whom to tell.
    """

    seed: int = 0
    quick: bool = False
    trace: Path | None = None
    progress: Progress = field(default_factory=Silent)


@dataclass(frozen=True)
class Paper:
    """A paper whose experiments can be run again.

    Attributes:
        title: what it is called, and where it appeared.
        module: the module with its experiments. It has `reproduce(settings: Settings) -> Reproduction`, and is imported
            only when it is wanted.
    """

    title: str
    module: str


def as_documents(claims: tuple[Claim, ...]) -> list[dict[str, Any]]:
    """Claims for JSON: objects with exactly claim, paper, measured, holds, reason."""
    return [asdict(claim) for claim in claims]
