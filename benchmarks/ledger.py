"""The ledger of a query that runs for long: how large it gets, and how long it takes to read after a restart.

Once as it is, with old batches added up by the minute, and once with every row kept. A batch has two drops and takes a
second, so that 86,400 of them are a day.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from streamshed.engines.spark.ledger import KEPT_ROWS, Ledger, LedgerRow
from streamshed.engines.spark.ledger_totals import Total, summarise

BATCHES = (10_000, 30_000, 100_000)
DROPS = ("cars", "tolls")
_AT_ONCE = 1000  # batches: one wait for the disk
_ALL = 10**9


def run(console: Console) -> None:
    """Print a table."""
    table = Table(title="The ledger of a long run", title_justify="left")
    for heading in ("batches", "kept", "MB", "µs a row", "restart s", "sums s"):
        table.add_column(heading, justify="right")
    cases = list(itertools.product(BATCHES, (KEPT_ROWS, _ALL)))
    found: dict[int, list[Total]] = {}
    for batches, kept in track(cases, "ledgers", console=console, transient=True):
        with tempfile.TemporaryDirectory() as place:
            row_s = _fill(Path(place), batches, kept)
            begin_s = time.perf_counter()
            Ledger(place).has("q", 0)
            restart_s = time.perf_counter() - begin_s
            totals = summarise(place)
            sums_s = time.perf_counter() - begin_s - restart_s
            size = sum(path.stat().st_size for path in Path(place).iterdir())
        if found.setdefault(batches, totals) != totals:
            raise AssertionError(f"sums differ: {totals}, {found[batches]}")
        name = "all" if kept == _ALL else f"{kept:,} rows"
        table.add_row(
            f"{batches:,}", name, f"{size / 1e6:.0f}", f"{row_s * 1e6:.0f}", f"{restart_s:.2f}", f"{sums_s:.2f}"
        )
    console.print(table)


def _fill(place: Path, batches: int, kept: int) -> float:
    """Write a ledger; give the time that a row took."""
    ledger = Ledger(place, kept)
    begin_s = time.perf_counter()
    for first in range(0, batches, _AT_ONCE):
        ledger.add(_row(batch_id, drop) for batch_id in range(first, first + _AT_ONCE) for drop in DROPS)
    return (time.perf_counter() - begin_s) / (batches * len(DROPS))


def _row(batch_id: int, drop: str) -> LedgerRow:
    dropped = batch_id * 7 % 1000
    return LedgerRow(
        query_id="q",
        run_id="00000000-0000-0000-0000-000000000000",
        output="report",
        batch_id=batch_id,
        drop=drop,
        stream=drop,
        entry=True,
        time_ms=1_700_000_000_000 + 1000 * batch_id,
        arrived=1000,
        delivered=1000 - dropped,
        dropped=dropped,
        malformed=0,
        fraction=dropped / 1000,
        salt=0,
        sources=[{"description": "Feeder", "start": f'{{"rows": {batch_id}}}', "end": f'{{"rows": {batch_id + 1}}}'}],
    )
