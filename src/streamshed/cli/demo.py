"""`streamshed demo`: the expressway example, overloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FACTOR = 3.0


def demo(
    figure: Annotated[
        Path, typer.Option("--figure", metavar="FILE.png", help="Where to draw utility against excess load.")
    ] = Path("expressway.png"),
) -> None:
    """Show what the expressway example loses at three times its load, with every planner."""
    from streamshed.cli.examples import example_path
    from streamshed.cli.outlook import outlook
    from streamshed.cli.plan import DEFAULT_PLANNER, report
    from streamshed.network import load_spec

    file = example_path("expressway")
    view = outlook(load_spec(file), f"examples/{file.name}", factor=FACTOR)
    report(view, DEFAULT_PLANNER, compare=True, figure=figure)
