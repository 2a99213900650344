"""How the nodes of a cluster are shown."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from streamshed.cli.children import Child
from streamshed.cli.picture import LINE_EVERY_S, Picture
from streamshed.cli.render import number
from streamshed.cli.tables import Sheet


class ClusterView(Picture):
    """Shows all nodes: a table in a terminal; anywhere else a line for each now and then, if it says anything new."""

    def __init__(self, console: Console, title: str, target_s: float, children: Sequence[Child]) -> None:
        super().__init__(console)
        self._title, self._target_s, self._children = title, target_s, children
        self._began_s = time.monotonic()
        self._line_s = -LINE_EVERY_S
        self._lines: dict[str, str] = {}

    def show(self) -> None:
        """Look at the nodes; print lines if it is time to."""
        now_s = time.monotonic()
        if self.console.is_terminal or now_s - self._line_s < LINE_EVERY_S:
            return
        self._line_s = now_s
        for child in self._children:
            cells = zip(_HEADINGS, self._cells(child), strict=True)
            text = " | ".join(f"{heading} {cell}" if heading != "node" else cell for heading, cell in cells if cell)
            if self._lines.get(child.node.name) != text:
                self._lines[child.node.name] = text
                self.tell(text)

    def tell(self, text: str, style: str | None = None) -> None:
        """Print something, with the time since the start."""
        elapsed = f"{time.monotonic() - self._began_s:5.0f} s  "
        self.console.print(elapsed + text, style=style, soft_wrap=True, highlight=False, markup=False)

    def picture(self) -> RenderableType:
        """How the nodes are, for a terminal."""
        elapsed = f"  target {self._target_s:g} s  running {time.monotonic() - self._began_s:.0f} s"
        shown = [name for name in _HEADINGS if self.console.width >= _WIDE or name not in _ONLY_WIDE]
        table = Sheet()
        for name in shown:
            table.names(name) if name in _TEXTS else table.numbers(name)
        for child in self._children:
            cells = dict(zip(_HEADINGS, self._cells(child), strict=True))
            table.add_row(*(cells[name] for name in shown))
        return Group(Text.assemble((self._title, "bold cyan"), (elapsed, "dim")), table.within(self.console.width))

    def _cells(self, child: Child) -> list[str]:
        status = child.status()
        if not status:
            return [child.node.name, child.state, *[""] * (len(_HEADINGS) - 2)]
        delay_s, due_s = status.get("delay_s"), status.get("due_s")
        ages = [f"{name} {_age(age_s)}" for name, age_s in (status.get("table_ages_s") or {}).items()]
        takes = [f"{number(rate)}/s" for rate in (status.get("takes_tps") or {}).values()]
        arriving = sum((status.get("arriving_tps") or {}).values())
        return [
            child.node.name,
            child.state,
            "" if delay_s is None else f"{delay_s:.1f} of {due_s:g} s",
            f"{number(arriving)}/s" if arriving else "",
            f"{status['arrived']:,}",
            f"{status['delivered']:,}",
            f"{status['dropped']:,}",
            f"{sum((status.get('waiting') or {}).values()):,}" if status.get("waiting") else "",
            ", ".join(takes),
            ", ".join(ages),
            f"{status['refused']:,}" if status.get("refused") else "",
        ]


_HEADINGS = (
    "node", "state", "delay", "arriving", "arrived", "delivered", "dropped", "waiting", "takes", "tables", "refused",
)  # fmt: skip
_TEXTS = ("node", "state", "tables")
_ONLY_WIDE, _WIDE = ("arrived", "delivered", "refused"), 110


def _age(age_s: float | None) -> str:
    return "none" if age_s is None else f"{age_s:.0f} s old"
