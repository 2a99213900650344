"""A picture in a terminal that is renewed while something runs; anywhere else a line now and then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

LINE_EVERY_S = 5.0
"""How often a line is printed where there is no terminal."""

_REFRESHES = 4  # a second


class Picture(ABC):
    """Shows itself from the begin to the end of a block, if there is a terminal.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console,
                get_renderable=self.picture,
                refresh_per_second=_REFRESHES,
                vertical_overflow="crop",
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @abstractmethod
    def picture(self) -> RenderableType:
        """How things are."""
