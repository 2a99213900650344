"""Tables and lines in which every number is whole, however narrow the terminal or the log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

Item = TypeVar("Item")

_NAME = 16
"""Columns that a name keeps at least."""

_BAR, _WIDE = 40, 100
"""Columns of a bar, where there are so many."""

_NUMBER = re.compile(r"[^A-Za-z]*\d[^A-Za-z]*")


class Sheet(Table):
    """A table whose names give way where there is little room, and whose numbers do not.

    Names fold. Where that is not enough, the table is wider than the console: `show` prints it so, and `within` makes
    lines of it, for a picture that cannot be wider.

    Args:
        title: a line above.
        note: a line below.
        look: as of rich's tables; without a box by default.

    >>> from rich.console import Console
    >>> sheet = Sheet().names("arc").numbers("arrived", "dropped")
    >>> sheet.add_row("readings", "10,060,000,000", "4,030,000,000")
    >>> show(Console(width=20), sheet)
    arc              arrived        dropped
    readings  10,060,000,000  4,030,000,000
    """

    def __init__(self, title: str | None = None, *, note: str | None = None, **look: Any) -> None:
        super().__init__(**{"box": None, "pad_edge": False, **look})
        self._above, self._below = title, note
        self._lines: list[list[Text]] = []

    def names(self, *headings: str | Text) -> Self:
        """Add columns that fold where there is no room."""
        return self._columns(headings, overflow="fold")

    def words(self, *headings: str | Text) -> Self:
        """Add columns of texts that stay on one line."""
        return self._columns(headings, no_wrap=True)

    def numbers(self, *headings: str | Text, style: str = "") -> Self:
        """Add columns of numbers."""
        return self._columns(headings, justify="right", no_wrap=True, style=style)

    def add_row(self, *cells: RenderableType | None, style: Any = None, end_section: bool = False) -> None:
        """Add a row.

        Args:
            cells: texts; those that are not rich's are taken as they are, without markup.
            style: of the row.
            end_section: whether a line follows.
        """
        texts = [cell if isinstance(cell, Text) else Text(str(cell or "")) for cell in cells]
        for column, text in zip(self.columns, texts, strict=False):
            self._make_room(column, text)
        self._lines.append(texts)
        super().add_row(*texts, style=style, end_section=end_section)

    @property
    def least_width(self) -> int:
        """So wide is the table at its narrowest (a little less, if it collapses its padding)."""
        _, right, _, left = self.padding
        columns, edges = len(self.columns), 2 if self.box and self.show_edge else 0
        between = (columns - (not self.pad_edge)) * (left + right) + (columns - 1 if self.box else 0)
        return sum(column.min_width or 0 for column in self.columns) + between + edges

    def within(self, width: int) -> RenderableType:
        """The table if it fits into a width, else a line for each row, which may fold between its numbers."""
        if self.least_width <= width:
            return self
        headings = [_plain(column.header) for column in self.columns]
        lines: list[Text] = []
        for texts in self._lines:
            line = texts[0].copy()
            for heading, text in zip(headings[1:], texts[1:], strict=False):
                if text.plain.strip():
                    line.append("  ").append(f"{heading} ".lstrip().replace("\n", " "), style="dim").append_text(text)
            lines.append(line)
        return Group(*lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it, wider than asked if it must be."""
        if self._above is not None:
            yield Sentence(Text(self._above, style="bold"))
        yield from super().__rich_console__(console, options.update(width=max(options.max_width, self.least_width)))
        if self._below is not None:
            yield Sentence(Text(self._below, style="dim"))

    def _columns(self, headings: tuple[str | Text, ...], **how: Any) -> Self:
        for heading in headings:
            text = heading if isinstance(heading, Text) else Text(heading)
            self.add_column(text, **how)
            self._make_room(self.columns[-1], text)
        return self

    @staticmethod
    def _make_room(column: Any, text: Text) -> None:
        needed = max(cell_len(line) for line in text.plain.split("\n"))
        if not column.no_wrap:
            longest = max((cell_len(word) for word in text.plain.split() if _NUMBER.fullmatch(word)), default=0)
            needed = max(longest, min(needed, _NAME))
        column.min_width = max(column.min_width or 0, needed)


class Sentence:
    """Text that wraps between words, and is wider than asked where a word is."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it."""
        longest = max((cell_len(word) for word in self._text.plain.split()), default=0)
        yield from console.render(self._text, options.update(width=max(options.max_width, longest)))


def show(console: Console, *parts: RenderableType, style: str | None = None) -> None:
    """Print tables and sentences, one below the other; sentences wrap between words.

    Nothing is cut: what is wider than the console is left to the terminal to wrap. Square brackets are no markup.
    """
    for part in parts:
        text = Text(part) if isinstance(part, str) else part
        console.print(Sentence(text) if isinstance(text, Text) else text, style=style, highlight=False, crop=False)


def progress(console: Console, *, counts: bool = False) -> Progress:
    """Say how far tasks are, in a terminal, until they are done; where there is little room, the bar gives way.

    Args:
        console: where to.
        counts: whether to show how many steps are done instead of a percentage.
    """
    whole = Column(no_wrap=True)
    how_far: ProgressColumn = (
        MofNCompleteColumn(table_column=whole) if counts else TaskProgressColumn(table_column=whole)
    )
    what = TextColumn("{task.description}", table_column=Column(overflow="fold"))
    columns = (what, BarColumn(None if console.width < _WIDE else _BAR), how_far, TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def tracked(console: Console, items: Sequence[Item], what: str) -> Iterator[Item]:
    """Go through items, and say how far it is."""
    with progress(console) as bar:
        yield from bar.track(items, description=what)


def _plain(text: RenderableType) -> str:
    return text.plain if isinstance(text, Text) else str(text)
