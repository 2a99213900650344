"""`streamshed simulate`: virtual time, for what no machine at hand can hold."""

from __future__ import annotations

import typer

from streamshed.cli import simulate_control

app = typer.Typer(help="Simulate in virtual time.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Simulate in virtual time."""


app.command("control")(simulate_control.control)
