"""`streamshed reproduce`: the papers' experiments, run again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from streamshed.cli.tables import Sheet
    from streamshed.experiments import Claim, Reproduction

_LINE_EVERY_S = 30.0


def _paper_names() -> list[str]:
    from streamshed.experiments import PAPERS

    return list(PAPERS)


def reproduce(
    papers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAPER]...", help="Which papers: all by default.", autocompletion=_paper_names),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the claims with their verdicts as JSON.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write figures (PNG) and numbers (CSV) there.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A reduced run, to see that it works.")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Where all randomness comes from.")] = 0,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Recorded arrivals, for papers that can use them (CSV)."),
    ] = None,
) -> None:
    """Run the experiments of the papers again and compare with what they say.

    A claim that does not hold is a result, with its likely reason, and no error: the exit code is 0.
    """
    from rich.console import Console

    from streamshed.cli.export import write_json
    from streamshed.cli.tables import show
    from streamshed.experiments import PAPERS, Settings, as_documents, paper_named
    from streamshed.experiments import reproduce as run

    names = list(dict.fromkeys(papers or PAPERS))
    for name in names:
        paper_named(name)
    _check_targets(json, out)
    console = Console(highlight=False)
    claims: list[Claim] = []
    for name in names:
        with _Bar() as progress:
            result = run(name, Settings(seed=seed, quick=quick, trace=trace, progress=progress))
        claims.extend(result.claims)
        show(console, _verdicts(f"{name}: {PAPERS[name].title}", result.claims))
        if out is not None:
            _write(console, out, name, result)
    held = sum(claim.holds for claim in claims)
    show(console, f"{held} of {len(claims)} claims hold{' (quick run: few seeds)' if quick else ''}.", style="bold")
    if json is not None:
        write_json(json, as_documents(tuple(claims)))
        console.print(f"Claims: {json}", style="dim", soft_wrap=True, markup=False)


def _check_targets(json: Path | None, out: Path | None) -> None:
    """Raise before minutes of work go into files that cannot be written."""
    from streamshed.errors import StreamshedError

    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        if json is not None:
            json.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StreamshedError(
            "the directory cannot be made", where=str(error.filename), got=error.strerror, expected="a directory"
        ) from None
    if json is not None and json.is_dir():
        raise StreamshedError(
            "the file cannot be written", where=f"--json {json}", got="a directory", expected="a file"
        )


class _Bar:
    """How far each part of a run is, on standard error.

    People see a bar, which is gone when the run is over; a log file gets a line now and then.
    """

    def __init__(self) -> None:
        from rich.console import Console

        from streamshed.cli.tables import progress

        self._console = Console(stderr=True, highlight=False)
        self._progress = progress(self._console, counts=True)
        self._task = self._progress.add_task("starting", total=None)
        self._line_s = time.monotonic()

    def begin(self, what: str, steps: int) -> None:
        self._progress.reset(self._task, description=what, total=steps)

    def advance(self) -> None:
        self._progress.advance(self._task)
        now_s = time.monotonic()
        if not self._console.is_terminal and now_s >= self._line_s + _LINE_EVERY_S:
            self._line_s = now_s
            part = self._progress.tasks[0]
            self._console.print(f"{part.description}: {part.completed:.0f} of {part.total:.0f}", markup=False)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _verdicts(title: str, claims: tuple[Claim, ...]) -> Sheet:
    from rich import box
    from rich.text import Text

    from streamshed.cli.tables import Sheet

    table = Sheet(title, box=box.SIMPLE_HEAD).words("holds").names("claim", "the paper says", "measured here")
    for claim in claims:
        measured = Text(claim.measured)
        if claim.reason:
            measured.append(f"\nLikely reason: {claim.reason}", style="yellow")
        verdict = Text("yes", style="green") if claim.holds else Text("no", style="bold red")
        table.add_row(verdict, Text(claim.claim), Text(claim.paper, style="dim"), measured)
        table.add_section()
    return table


def _write(console: Console, out: Path, name: str, result: Reproduction) -> None:
    import csv
    import io

    from streamshed.cli.export import replacing

    for table in result.tables:
        text = io.StringIO()
        text.write(f"# {table.title}\n")
        csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
        with replacing(out / f"{name}-{table.name}.csv", "--out") as stream:
            stream.write(text.getvalue().encode())
    for figure, draw in result.figures.items():
        with replacing(out / f"{name}-{figure}.png", "--out") as stream:
            draw().savefig(stream, format="png", dpi=160)
    files = len(result.tables) + len(result.figures)
    console.print(f"{files} files: {out}/{name}-*", style="dim", soft_wrap=True, markup=False)
