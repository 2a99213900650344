"""`streamshed ledger`: what was dropped, to the tuple."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class By(StrEnum):
    """What a ledger can be summed over."""

    stream = "stream"
    drop = "drop"
    output = "output"
    time = "time"


def ledger(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of a guard.")],
    by: Annotated[By, typer.Option("--by", help="What to sum over; `time` sums by the minute (UTC).")] = By.stream,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the sums as JSON.")] = None,
) -> None:
    """Sum up the ledger of a guard: tuples arrived, delivered, dropped, malformed. Exit code 3 if that is not exact."""
    from rich.console import Console

    from streamshed.cli.export import write_json
    from streamshed.cli.tables import Sheet, show
    from streamshed.engines.spark.ledger_totals import summarise

    totals = summarise(directory, by.value)
    table = Sheet().names(by.value)
    table.numbers("batches", "arrived", "delivered", "dropped", "malformed", "dropped %", "balance")
    for total in totals:
        balance = "exact" if total.balanced else f"{total.open} open" if total.open else "OFF"
        share = f"{total.dropped / total.arrived:.1%}" if total.arrived else ""
        numbers = (total.batches, total.arrived, total.delivered, total.dropped, total.malformed)
        table.add_row(total.key, *(f"{number:,}" for number in numbers), share, balance)
    show(Console(), table)
    if json_file is not None:
        write_json(json_file, [{**asdict(total), "balanced": total.balanced} for total in totals])
    if not all(total.balanced for total in totals):
        raise typer.Exit(3)
