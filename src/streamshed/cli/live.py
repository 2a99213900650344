"""What a running network does, as it does it: a picture in a terminal, a line now and then anywhere else."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamshed.cli.picture import LINE_EVERY_S, Picture
from streamshed.cli.render import number, percent
from streamshed.cli.tables import Sheet
from streamshed.cli.utilities import utility_line, utility_table
from streamshed.planning.fair import jain_index

if TYPE_CHECKING:
    from streamshed.engines.spark.monitor import DropCounts
    from streamshed.engines.spark.network_batch import NetworkBatch

_HISTORY = 60  # batches
_BAR = 24
_GAP = 4
_MOST_ARCS = 12
_BLOCKS = "▁▂▃▄▅▆▇█"


class LiveView(Picture):
    """Shows the latest batch: delay against the target, arrival rate, work kept, drops by arc.

    Also the utility of each output, in the latest batch that ended at it.

    `show` may be called from any thread and returns at once; in a terminal the picture is renewed four times a second.

        with LiveView(console, 2.0, "expressway") as view:
            runner = NetworkRunner(..., on_batch=view.show)

    Args:
        console: where to; whether it is a terminal decides on picture or lines.
        target_s: the delay to be held.
        title: of what is running.
    """

    def __init__(self, console: Console, target_s: float, title: str) -> None:
        super().__init__(console)
        self.target_s, self.title = target_s, title
        self._lock = threading.Lock()
        self._batch: NetworkBatch | None = None
        self._delay_s: float | None = None
        self._counts: dict[str, DropCounts] = {}
        self._utilities: dict[str, float | None] = {}
        self._of_loss: dict[str, float | None] = {}
        self._rates_tps: dict[str, float] = {}
        self._entered_s: dict[str, float] = {}
        self._delays: deque[float] = deque(maxlen=_HISTORY)
        self._began_s = time.time()
        self._line_s = 0.0

    def __enter__(self) -> Self:
        self._began_s = time.time()
        return super().__enter__()

    def show(self, batch: NetworkBatch) -> None:
        """Take notice of a batch."""
        with self._lock:
            self._batch = batch
            self._counts.update(batch.counts)
            self._utilities.update(batch.utilities)
            self._of_loss.update(batch.utilities_of_loss)
            before_s = self._entered_s.get(batch.stage)
            if batch.arrived:
                if before_s is not None and batch.start_s > before_s:
                    self._rates_tps[batch.stage] = batch.arrived / (batch.start_s - before_s)
                self._entered_s[batch.stage] = batch.start_s
            if batch.sample.delay_p95_s is not None:
                self._delay_s = batch.sample.delay_p95_s
                self._delays.append(batch.sample.delay_p95_s)
            now_s = time.time()
            due = not self.console.is_terminal and now_s - self._line_s >= LINE_EVERY_S
            if due:
                self._line_s = now_s
        if due:
            self.console.print(self.line(), soft_wrap=True, highlight=False, markup=False)

    def line(self) -> str:
        """How things stand, in one line."""
        with self._lock:
            batch, rate_tps, delay_s = self._batch, self._rate_tps, self._delay_s
            shares = _dropped(self._counts)
            utilities, of_loss = dict(self._utilities), dict(self._of_loss)
        elapsed = f"{time.time() - self._began_s:5.0f} s"
        if batch is None:
            return f"{elapsed}  waiting for the first batch"
        parts = [
            f"{elapsed}  batch {batch.batch_id}",
            f"delay {_time(delay_s)} of {self.target_s:g} s",
            f"{_rate(rate_tps)} arriving",
            f"work kept {_share(batch.load_share)}",
        ]
        dropped = [f"{arc} {percent(share)}" for arc, share in shares if share > 0]
        parts.append(f"dropped: {', '.join(dropped)}" if dropped else "nothing dropped")
        if batch.out_of_reach is not None:
            parts.append(f"out of reach: {batch.out_of_reach}")
        if utilities:
            parts.append(utility_line(utilities, of_loss))
        if len(batch.sic) > 1:
            parts.append(f"SIC {_range(list(batch.sic.values()))}, {_fairness(batch)}")
        if batch.strategies:
            parts.append(f"strategy: {strategies_told(batch.strategies)}")
        return " | ".join(parts)

    def picture(self) -> RenderableType:
        """How things stand, for a terminal."""
        with self._lock:
            batch, rate_tps, delay_s, delays = self._batch, self._rate_tps, self._delay_s, list(self._delays)
            counts, utilities, of_loss = dict(self._counts), dict(self._utilities), dict(self._of_loss)
        now_s = time.time()
        elapsed = f"  running {now_s - self._began_s:.0f} s"
        head = Text.assemble((self.title, "bold cyan"), f"  target {self.target_s:g} s", (elapsed, "dim"))
        if batch is None:
            return Group(head, Text("waiting for the first batch, which takes several seconds", style="dim"))
        figures = Sheet(padding=(0, 2), show_header=False).words("", "", "")
        figures.add_row("delay", self._bar(delay_s), _spark(delays, self.target_s))
        figures.add_row("batch", f"{batch.sample.duration_s:.2f} s", f"number {batch.batch_id:,}")
        figures.add_row("arriving", _rate(rate_tps), f"{batch.sample.arrived:,} in the batch")
        figures.add_row("work kept", _share(batch.load_share), _fairness(batch) if len(batch.sic) > 1 else "")
        if batch.strategies:
            figures.add_row("strategy", strategies_told(batch.strategies), self._switches(batch))
        idle_s = now_s - batch.sample.time_s
        told = [Text(f"no batch for {idle_s:.0f} s", style="yellow")] if idle_s > max(5.0, 2 * self.target_s) else []
        if batch.out_of_reach is not None:
            told.append(Text(f"out of reach: {batch.out_of_reach}", style="bold yellow"))
        width, drops = self.console.width, self._drops(counts)
        outputs = utility_table(utilities, of_loss, batch.sic, _MOST_ARCS)
        if drops.least_width + _GAP + outputs.least_width > width:
            tables = [drops.within(width), Text(""), outputs.within(width)]
        else:
            beside = Table.grid(padding=(0, _GAP))
            beside.add_row(drops, outputs)
            tables = [beside]
        return Group(head, figures.within(width), *told, Text(""), *tables)

    @property
    def _rate_tps(self) -> float | None:
        """Over all stages that read streams."""
        return sum(self._rates_tps.values()) if self._rates_tps else None

    def _bar(self, delay_s: float | None) -> Text:
        if delay_s is None:
            return Text("not known: no arrival times", style="dim")
        filled = min(_BAR, round(delay_s / self.target_s * _BAR))
        style = "green" if delay_s <= self.target_s else "red"
        bar = ("█" * filled, style), ("░" * (_BAR - filled), "dim")
        return Text.assemble((f"{delay_s:6.2f} s ", f"bold {style}"), *bar, (" 95 % are faster", "dim"))

    @staticmethod
    def _switches(batch: NetworkBatch) -> str:
        return f"{batch.switches} {'switch' if batch.switches == 1 else 'switches'}"

    @staticmethod
    def _drops(counts: Mapping[str, DropCounts]) -> Sheet:
        table = Sheet().names("arc").numbers("arrived", "dropped")
        shares = _dropped(counts)
        if len(shares) > _MOST_ARCS:
            shares = sorted(shares, key=lambda item: -item[1])
        for arc, share in shares[:_MOST_ARCS]:
            table.add_row(arc, f"{counts[arc].arrived:,}", Text(percent(share), style="red" if share > 0 else "dim"))
        if len(shares) > _MOST_ARCS:
            table.add_row(Text(f"and {len(shares) - _MOST_ARCS:,} more", style="dim"))
        return table


def strategies_told(strategies: Mapping[str, str]) -> str:
    """Under which strategy queries are.

    >>> strategies_told({"a": "segment", "b": "segment"}), strategies_told({"a": "segment", "b": "round-robin"})
    ('segment', 'a segment, b round-robin')
    """
    distinct = set(strategies.values())
    if len(distinct) == 1:
        return distinct.pop()
    return ", ".join(f"{query} {strategy}" for query, strategy in strategies.items())


def _dropped(counts: Mapping[str, DropCounts]) -> list[tuple[str, float]]:
    """The share of what reached each arc that was dropped there."""
    return [(arc, of_arc.dropped / of_arc.arrived if of_arc.arrived else 0.0) for arc, of_arc in counts.items()]


def _fairness(batch: NetworkBatch) -> str:
    return f"fairness {jain_index(list(batch.sic.values())):.3f}"


def _range(shares: list[float]) -> str:
    return f"{percent(min(shares))} to {percent(max(shares))}"


def _time(delay_s: float | None) -> str:
    return "unknown" if delay_s is None else f"{delay_s:.2f} s"


def _rate(rate_tps: float | None) -> str:
    return "…" if rate_tps is None else f"{number(rate_tps)} tuples/s"


def _share(share: float) -> str:
    return "unknown" if share != share else percent(share)  # nan is not itself


def _spark(delays: list[float], target_s: float) -> Text:
    """The latest delays as a row of bars; full at one and a half times the target."""
    text = Text()
    for delay_s in delays[-_BAR:]:
        height = min(int(delay_s / (1.5 * target_s) * len(_BLOCKS)), len(_BLOCKS) - 1)
        text.append(_BLOCKS[height], style="green" if delay_s <= target_s else "red")
    return text
