"""How utilities are shown: with latency, or where nobody knows when tuples arrived that of loss, saying so."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from streamshed.cli.render import percent
from streamshed.cli.tables import Sheet

OF_LOSS = "utility (of loss only: no arrival times)"

Utilities = Mapping[str, float | None]
"""By output; None where it is not known."""


def utility_line(utilities: Utilities, of_loss: Utilities) -> str:
    """Utilities in a line.

    >>> utility_line({"alarms": 0.5, "tolls": None}, {"alarms": 1.0, "tolls": 0.75})
    'utility: alarms 50.0 % | utility (of loss only: no arrival times): tolls 75.0 %'
    """
    told: dict[str, list[str]] = {"utility": [], OF_LOSS: []}
    for output, utility in utilities.items():
        heading, worth = _known(output, utility, of_loss)
        told[heading].append(f"{output} {'unknown' if worth is None else percent(worth)}")
    return " | ".join(f"{heading}: {', '.join(texts)}" for heading, texts in told.items() if texts)


def utility_table(utilities: Utilities, of_loss: Utilities, sic: Mapping[str, float], most: int | None = None) -> Sheet:
    """Utilities as a table, with the outputs' SIC.

    Args:
        utilities: with latency.
        of_loss: without.
        sic: where it is known.
        most: so many outputs at most, the worst ones then.
    """
    rows = {output: _known(output, utility, of_loss) for output, utility in utilities.items()}
    shown = list(rows)
    if most is not None and len(rows) > most:
        shown = sorted(rows, key=lambda output: rows[output][1] or 0.0)[:most]
    headings = [heading for heading in ("utility", OF_LOSS) if any(of == heading for of, _ in rows.values())]
    table = Sheet().names("output").numbers(*headings, "SIC")
    for output in shown:
        of, worth = rows[output]
        cells = [_coloured(worth) if heading == of else Text() for heading in headings]
        table.add_row(output, *cells, percent(sic[output]) if output in sic else "")
    return table


def _known(output: str, utility: float | None, of_loss: Utilities) -> tuple[str, float | None]:
    """What is known of an output, and what it is called."""
    lost = of_loss.get(output)
    return ("utility", utility) if utility is not None or lost is None else (OF_LOSS, lost)


def _coloured(utility: float | None) -> Text:
    if utility is None:
        return Text("unknown", style="dim")
    return Text(percent(utility), style="green" if utility >= 0.9 else "yellow" if utility >= 0.5 else "red")
