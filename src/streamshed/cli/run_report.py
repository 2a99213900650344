"""What `streamshed run` says at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamshed.errors import StreamshedError

if TYPE_CHECKING:
    from rich.console import Console

    from streamshed.cli.totals import Totals
    from streamshed.engines.spark.scheduler import StageScheduler
    from streamshed.network import Spec

ROWS_SHOWN = 5
"""Of an output without a sink of its own but `memory` or `console`, at the end."""

CHANGES_SHOWN = 12
"""Decisions of the optimizer, at the end; the file that `--json` names has more."""


class Outcome:
    """What is left of a run: the last rows of outputs, why it died, and what the scheduler did."""

    def __init__(self) -> None:
        self.rows: Mapping[str, Sequence[Any]] = {}
        self.error: StreamshedError | None = None
        self.scheduler: StageScheduler | None = None


def report(console: Console, outcome: Outcome, totals: Totals, spec: Spec, place: Path) -> None:
    """Sum a run up; `place` is where it kept its things."""
    from rich.table import Table
    from rich.text import Text

    from streamshed.cli.render import number, percent

    def table(*headings: str) -> Table:
        made = Table(box=None, pad_edge=False)
        made.add_column(headings[0], overflow="fold")
        for heading in headings[1:]:
            made.add_column(heading, justify="right", no_wrap=True)
        return made

    console.print()
    if not totals.batches:
        console.print("No batch has ended.", style="yellow")
    else:
        rate = f" ({number(totals.arrived / totals.seconds)} a second)" if totals.seconds > 0 else ""
        console.print(f"{totals.batches:,} batches in {totals.seconds:.1f} s, {totals.arrived:,} tuples arrived{rate}.")
        if totals.within_target is not None:
            quantiles = ", ".join(f"{q:.0%} {totals.delay_s(q) or 0:.2f} s" for q in (0.5, 0.95, 0.99))
            told = f"Delays: {quantiles}; {percent(totals.within_target)} within the target of {totals.target_s:g} s."
            console.print(told)
        if totals.work_kept is not None:
            console.print(f"Work kept: {percent(totals.work_kept)} of what all tuples would have taken.")
        arcs = table("arc", "arrived", "malformed", "delivered", "dropped", "dropped %")
        for arc, sums in totals.arcs.items():
            counts = (sums.arrived, sums.malformed, sums.delivered, sums.dropped)
            share = percent(sums.dropped / sums.arrived) if sums.arrived else ""
            arcs.add_row(Text(arc), *(f"{count:,}" for count in counts), share)
        utilities = table("output", "utility", "SIC")
        for output, utility in totals.utilities.items():
            share = percent(totals.sic[output]) if output in totals.sic else ""
            utilities.add_row(Text(output), percent(utility), share)
        console.print(arcs, utilities, sep="\n\n")
        if totals.jain is not None:
            console.print(f"Fairness of the outputs' SIC (Jain's index): {totals.jain:.4f}")
    if outcome.scheduler is not None:
        _show_scheduler(console, outcome.scheduler)
    for output, rows in outcome.rows.items():
        _show_rows(console, output, rows)
    kept = [output.id for output in spec.network.outputs if (place / "outputs" / output.id).is_dir()]
    if kept:
        console.print(f"Outputs: {place / 'outputs'}", style="dim", soft_wrap=True, markup=False)
    console.print(f"Ledger: streamshed ledger {place / 'control'}", style="dim", soft_wrap=True, markup=False)


def _show_scheduler(console: Console, scheduler: StageScheduler) -> None:
    from streamshed.cli.live import strategies_told

    count = sum(scheduler.switches.values())
    told = f"{count} {'switch' if count == 1 else 'switches'}" if scheduler.decides_drops else "as asked"
    console.print(f"\nScheduler: {scheduler.name}; {strategies_told(scheduler.strategies)}; {told}.", markup=False)
    for decision in scheduler.changes[-CHANGES_SHOWN:]:
        console.print(f"  {decision}", style="dim", soft_wrap=True, markup=False)


def _show_rows(console: Console, output: str, rows: Sequence[Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    last = list(rows)[-ROWS_SHOWN:]
    console.print()
    if not last:
        console.print(f"{output}: no rows", style="dim", markup=False)
        return
    console.print(f"{output}: the last rows", style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for name in last[0].asDict():
        table.add_column(Text(name), overflow="fold")
    for row in last:
        table.add_row(*(Text(str(value)) for value in row))
    console.print(table)
