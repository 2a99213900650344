"""How commands fail: a clear message on standard error and an exit code, never a traceback for what a user did."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from streamshed.errors import StreamshedError

BAD_INPUT = 2
"""Exit code where the spec or an option is wrong."""
DOES_NOT_FIT = 3
"""Exit code where no plan of the chosen planner brings the load into the capacity."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it: 128 + SIGINT."""


class CommandGroup(TyperGroup):
    """Runs a command and turns what goes wrong on purpose into a message and an exit code."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command.

        Args:
            ctx: typer's context.
        """
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal without µ and ├ gets ? instead of a traceback
        try:
            return super().invoke(ctx)
        except StreamshedError as error:
            show_error(error)
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt:
            Console(stderr=True).print("interrupted", style="yellow")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader (head, less) has gone. Nothing more may be written, not even when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None


def show_error(error: StreamshedError) -> None:
    """Print what, where, got, expected and hint on standard error. Long lines are the terminal's to wrap."""
    console = Console(stderr=True, highlight=False)
    console.print(Text.assemble(("error: ", "bold red"), (error.what, "bold")), soft_wrap=True)
    for label, style in (("where", "cyan"), ("got", "red"), ("expected", ""), ("hint", "green")):
        text = getattr(error, label)
        if text is not None:
            console.print(Text.assemble((f"  {label + ':':<9} ", "dim"), (text, style)), soft_wrap=True)
