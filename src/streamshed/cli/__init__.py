"""The command line.

A command is one module with one function, and one line here. These modules are imported on every call, also for
`--help`: what is slow to import (planners, Spark, figures) is imported inside the function.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamshed import __version__
from streamshed.cli import cluster, demo, fit, ledger, plan, reproduce, run, simulate
from streamshed.cli.failures import CommandGroup

app = typer.Typer(
    name="streamshed",
    cls=CommandGroup,
    help="Keep Spark streams on time by shedding the least valuable part of an overload.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("cluster")(cluster.cluster)
app.command("demo")(demo.demo)
app.command("fit")(fit.fit)
app.command("ledger")(ledger.ledger)
app.command("plan", cls=plan.PlanCommand)(plan.plan)
app.command("reproduce")(reproduce.reproduce)
app.command("run", cls=plan.PlanCommand)(run.run)
app.add_typer(simulate.app, name="simulate")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamshed {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Keep Spark streams on time by shedding the least valuable part of an overload."""


__all__ = ["app"]
