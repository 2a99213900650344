"""What a control decision costs: one sample learnt and one admission decided."""

from __future__ import annotations

from rich.console import Console
from rich.progress import track
from rich.table import Table

from streamshed.control import CONTROLLERS
from streamshed.experiments.control_robustness import update_s

TRIES = 5
GOAL_US = 20.0


def run(console: Console) -> None:
    """Print the table."""
    table = Table(title=f"One update of a controller (goal: < {GOAL_US:.0f} µs)")
    table.add_column("controller")
    table.add_column("µs", justify="right")
    for name, kind in track(CONTROLLERS.items(), "controllers", console=console, transient=True):
        # The fastest of some tries: the machine is noisy, and noise only adds.
        fastest_us = min(1e6 * update_s(name, 10_000) for _ in range(TRIES))
        table.add_row(kind.title, f"{fastest_us:.1f}")
    console.print(table)
