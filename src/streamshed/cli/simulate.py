"""`streamshed simulate`: virtual time, for what no machine at hand can hold."""

from __future__ import annotations

import typer
from typer.core import TyperGroup

from streamshed.cli import simulate_control, simulate_loads, simulate_network


class SpecOrCommand(TyperGroup):
    """Takes what is no command's name for the spec of a network: `simulate SPEC` is `simulate network SPEC`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the command's name in front where it is missing.

        Args:
            ctx: typer's context.
            args: what was given after `simulate`.
        """
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["network", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=SpecOrCommand, no_args_is_help=True)


@app.callback()
def main() -> None:
    """Simulate in virtual time: a network ([bold]simulate SPEC.yaml[/bold]), or controllers side by side."""


app.command("network")(simulate_network.network)
app.command("control")(simulate_control.control)
app.command("loads")(simulate_loads.loads)
