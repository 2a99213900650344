"""`python -m streamshed`: the command line, where there is no script of that name."""

from streamshed.cli import app

app(prog_name="streamshed")
