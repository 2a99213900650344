"""What `streamshed run` says at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
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
    from streamshed.cli.render import number, percent
    from streamshed.cli.tables import Sheet, show
    from streamshed.cli.utilities import utility_table
    from streamshed.distributed.arc_files import file_name

    console.print()
    if not totals.batches:
        show(console, "No batch has ended.", style="yellow")
    else:
        rate = f" ({number(totals.arrived / totals.seconds)} a second)" if totals.seconds > 0 else ""
        show(
            console, f"{totals.batches:,} batches in {totals.seconds:,.1f} s, {totals.arrived:,} tuples arrived{rate}."
        )
        if totals.within_target is not None:
            quantiles = ", ".join(f"{q:.0%} {totals.delay_s(q) or 0:.2f} s" for q in (0.5, 0.95, 0.99))
            told = f"Delays: {quantiles}; {percent(totals.within_target)} within the target of {totals.target_s:g} s."
            show(console, told)
        if totals.out_of_reach is not None:
            show(console, f"The target is out of reach: {totals.out_of_reach}.", style="yellow")
        if totals.work_kept is not None:
            show(console, f"Work kept: {percent(totals.work_kept)} of what all tuples would have taken.")
        arcs = Sheet().names("arc").numbers("arrived", "malformed", "delivered", "dropped", "dropped %")
        for arc, sums in totals.arcs.items():
            counts = (sums.arrived, sums.malformed, sums.delivered, sums.dropped)
            share = percent(sums.dropped / sums.arrived) if sums.arrived else ""
            arcs.add_row(arc, *(f"{count:,}" for count in counts), share)
        show(console, "", arcs, "", utility_table(totals.utilities, totals.utilities_of_loss, totals.sic))
        if totals.jain is not None:
            show(console, f"Fairness of the outputs' SIC (Jain's index): {totals.jain:.4f}")
    if outcome.scheduler is not None:
        _show_scheduler(console, outcome.scheduler)
    for output, rows in outcome.rows.items():
        _show_rows(console, output, rows)
    kept = [output.id for output in spec.network.outputs if (place / "outputs" / file_name(output.id)).is_dir()]
    if kept:
        console.print(f"Outputs: {place / 'outputs'}", style="dim", soft_wrap=True, markup=False)
    console.print(f"Ledger: streamshed ledger {place / 'control'}", style="dim", soft_wrap=True, markup=False)


def _show_scheduler(console: Console, scheduler: StageScheduler) -> None:
    from streamshed.cli.live import strategies_told
    from streamshed.cli.tables import show

    count = sum(scheduler.switches.values())
    told = f"{count} {'switch' if count == 1 else 'switches'}" if scheduler.decides_drops else "as asked"
    show(console, "", f"Scheduler: {scheduler.name}; {strategies_told(scheduler.strategies)}; {told}.")
    for decision in scheduler.changes[-CHANGES_SHOWN:]:
        console.print(f"  {decision}", style="dim", soft_wrap=True, markup=False)


def _show_rows(console: Console, output: str, rows: Sequence[Any]) -> None:
    from streamshed.cli.tables import Sheet, show

    last = list(rows)[-ROWS_SHOWN:]
    console.print()
    if not last:
        show(console, f"{output}: no rows", style="dim")
        return
    columns = list(last[0].asDict())
    table = Sheet(f"{output}: the last rows")
    for i, name in enumerate(columns):
        plain = all(row[i] is None or isinstance(row[i], int | float | Decimal | date) for row in last)
        (table.words if plain else table.names)(name)
    for row in last:
        table.add_row(*(str(value) for value in row))
    show(console, table)
