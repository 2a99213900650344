"""`streamshed run`: a network on Spark, on time."""

from __future__ import annotations

import math
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamshed.cli.plan import DEFAULT_PLANNER
from streamshed.errors import InvalidValueError, StreamshedError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from streamshed.cli.totals import Totals
    from streamshed.engines.spark.runner import NetworkRunner
    from streamshed.engines.spark.scheduler import StageScheduler
    from streamshed.network import Spec

DEFAULT_TARGET_S = 2.0
DEFAULT_CONTROLLER = "batch"
ROWS_SHOWN = 5
"""Of an output without a sink of its own but `memory` or `console`, at the end."""

CHANGES_SHOWN = 12
"""Decisions of the optimizer, at the end; the file that `--json` names has more."""

_POLL_S = 0.2
_LAST_BATCH_S = 5.0  # to wait for the end of running batches
_LOG_LEVEL = "spark.log.level"
_SHOWN_SINKS = ("console", "memory")


class Stages(StrEnum):
    """How outputs are cut into queries."""

    fused = "fused"
    per_output = "per-output"


def run(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The network, with a source for every stream.")],
    target: Annotated[
        float, typer.Option("--target", "-t", metavar="SECONDS", help="How late an answer may be.")
    ] = DEFAULT_TARGET_S,
    planner: Annotated[
        str, typer.Option("--planner", "-p", metavar="NAME", help="Which planner decides.")
    ] = DEFAULT_PLANNER,
    controller: Annotated[
        str, typer.Option("--controller", metavar="NAME", help="Which controller decides how much to drop.")
    ] = DEFAULT_CONTROLLER,
    master: Annotated[
        str, typer.Option("--master", "-m", metavar="URL", help="Where Spark runs: local[N], or a cluster's URL.")
    ] = "local[*]",
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            "-d",
            metavar="DIR",
            help="For checkpoint, ledger, control line and outputs; the same again to go on from there. "
            "On a cluster, one that all machines see. Default: streamshed-run/<network>.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", "-s", metavar="SECONDS", help="Stop after so long. Default: at Ctrl-C."),
    ] = None,
    stages: Annotated[
        Stages | None,
        typer.Option(
            "--stages",
            help="All outputs in one query, or a query for each. "
            "Operators marked `stage: true` have queries of their own in any case. "
            "Default: fused, with a scheduler per-output.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="NAME",
            help="Run one stage at a time, in the order of a strategy: round-robin, weighted-round-robin, "
            "path-capacity, segment, simplified-segment. Or `optimizer`: it switches strategies to meet the `goals` of "
            "outputs, and sheds only if none is enough, within their `mtre`; then neither --planner nor --controller "
            "have a say. Default: stages run side by side.",
        ),
    ] = None,
    no_shed: Annotated[bool, typer.Option("--no-shed", help="Drop nothing, only watch.")] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the summary as JSON at the end.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting, such as spark.log.level=WARN. Repeatable."),
    ] = None,
) -> None:
    """Run a network on Spark, and hold its delay by dropping what is worth least.

    For a minute: [bold]streamshed run SPEC.yaml --target 2 --seconds 60[/bold]

    It shows how late answers are and what is dropped where, and sums it up at the end. Ctrl-C stops in good order.

    With the same directory again, it goes on where it was stopped or killed.

    Every tuple is accounted for: [bold]streamshed ledger DIR/control[/bold]

    Outputs without a sink go to Parquet files in DIR/outputs. Those to `memory` or `console` show their last rows.

    Exits with 2 if the spec or an option is wrong, or a query died.
    """
    from rich.console import Console

    from streamshed.control import controller_named
    from streamshed.network import load_spec
    from streamshed.planning import planner_named

    _check_positive("--target", target)
    if seconds is not None:
        _check_positive("--seconds", seconds)
    settings = _settings(conf or ())
    chosen = planner_named(planner)
    decides = controller_named(controller, target)
    _check_scheduler(scheduler)
    cut = stages or (Stages.fused if scheduler is None else Stages.per_output)
    loaded = load_spec(spec)
    place = (directory or Path("streamshed-run") / loaded.network.name).absolute()
    check_writable(place, f"--directory {place}", make=True)
    if json is not None:
        check_writable(json.absolute().parent, f"--json {json}")

    from streamshed.cli.totals import Totals

    totals = Totals(target)
    outcome = _Outcome()
    console = Console(highlight=False)
    with ExitStack() as stack:
        from streamshed.cli.live import LiveView
        from streamshed.engines.spark.failures import explained
        from streamshed.engines.spark.runner import NetworkBatch, NetworkRunner
        from streamshed.engines.spark.session import temporary_session

        console.print(f"Starting Spark on {master} …", style="dim", markup=False)
        with explained("Spark does not start", where=f"--master {master}", hint="see --master and --conf"):
            spark = stack.enter_context(temporary_session(master, f"streamshed {loaded.network.name}", settings))
        stopped = stack.enter_context(_stop_signals())
        view = stack.enter_context(LiveView(console, target, loaded.network.name))

        def on_batch(batch: NetworkBatch) -> None:
            totals.add(batch)
            totals.sic = runner.sic.overall()
            view.show(batch)
            for table in runner.sinks.tables.values():
                del table[:-ROWS_SHOWN]  # it may run for days

        runner = NetworkRunner(
            spark,
            _shown_at_the_end(loaded),
            place,
            target_s=target,
            planner=chosen,
            controller=decides,
            shed=not no_shed,
            per_output=cut is Stages.per_output,
            scheduler=scheduler,
            on_batch=on_batch,
        )
        outcome.rows = runner.sinks.tables
        outcome.scheduler = runner.scheduler
        with runner:
            with explained("the network does not start", where=f"network {loaded.network.name!r}"):
                runner.start()
            _wait(runner, stopped, seconds)
            runner.finish(_LAST_BATCH_S)
            outcome.error = runner.failure
    _report(console, outcome, totals, loaded, place)
    if json is not None:
        from streamshed.cli.export import write_json

        about = {
            "network": loaded.network.name,
            "planner": planner,
            "controller": controller,
            "stages": cut.value,
            "shed": not no_shed,
            "directory": str(place),
            "scheduler": outcome.scheduler.as_document() if outcome.scheduler is not None else None,
        }
        write_json(json, {**about, **totals.to_json(), "error": str(outcome.error) if outcome.error else None})
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if outcome.error is not None:
        raise outcome.error


class _Outcome:
    """What is left of a run: the last rows of outputs, why it died, and what the scheduler did."""

    def __init__(self) -> None:
        self.rows: Mapping[str, Sequence[Any]] = {}
        self.error: StreamshedError | None = None
        self.scheduler: StageScheduler | None = None


def _wait(runner: NetworkRunner, stopped: threading.Event, seconds: float | None) -> None:
    """Until the time is over, a signal comes or a query ends."""
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    while runner.is_active and not stopped.is_set() and time.monotonic() < end_s:
        stopped.wait(min(_POLL_S, max(end_s - time.monotonic(), 0.0)))


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Set an event at Ctrl-C and at SIGTERM, the first time; the second time counts as ever.

    PySpark's own handler would cancel the running batch, and so kill the query, before anybody could stop it.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before: dict[int, Callable[..., Any] | int | None] = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def stop(number: int, _: object) -> None:
        stopped.set()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- options ---------------------------------------------------------------------------------------------------------


def _check_positive(option: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValueError("an option is out of range", where=option, got=value, expected="seconds, > 0")


def _check_scheduler(name: str | None) -> None:
    from streamshed.scheduling import OPTIMIZER, STRATEGIES

    known = (OPTIMIZER, *STRATEGIES)
    if name is not None and name not in known:
        raise UnknownNameError(
            f"there is no scheduler {name!r}", where="--scheduler", got=name, hint=did_you_mean(name, known)
        )


def _settings(conf: Sequence[str]) -> dict[str, str]:
    """Spark's settings. Its log would write into the picture, and what kills a query is told anyway."""
    settings = {_LOG_LEVEL: "FATAL"}
    for text in conf:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidValueError(
                "a setting cannot be read",
                where="--conf",
                got=repr(text),
                expected="KEY=VALUE",
                hint="for example --conf spark.sql.shuffle.partitions=4",
            )
        settings[key.strip()] = value.strip()
    return settings


def check_writable(directory: Path, where: str, *, make: bool = False) -> None:
    """Find out before Spark has been started, which takes a while.

    Args:
        directory: to write into.
        where: the option that names it.
        make: whether to make it if it does not exist.
    """
    try:
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise StreamshedError(
            "the directory cannot be written",
            where=where,
            got=error.strerror,
            expected="a directory that this process may write",
        ) from None


def _shown_at_the_end(spec: Spec) -> Spec:
    """The spec with `memory` for `console`, which would print into the picture."""
    from streamshed.network import Connector

    outputs = tuple(
        replace(output, sink=Connector("memory")) if output.sink and output.sink.format == "console" else output
        for output in spec.network.outputs
    )
    return replace(spec, network=replace(spec.network, outputs=outputs))


# --- the end ---------------------------------------------------------------------------------------------------------


def _report(console: Console, outcome: _Outcome, totals: Totals, spec: Spec, place: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    from streamshed.cli.render import number, percent

    def table(*headings: str) -> Table:
        made = Table(box=None, pad_edge=False)
        made.add_column(headings[0], overflow="fold")
        for heading in headings[1:]:
            made.add_column(heading, justify="right", no_wrap=True)
        return made

    console.print()
    if not totals.batches:
        console.print("No batch has ended.", style="yellow")
    else:
        rate = f" ({number(totals.arrived / totals.seconds)} a second)" if totals.seconds > 0 else ""
        console.print(f"{totals.batches:,} batches in {totals.seconds:.1f} s, {totals.arrived:,} tuples arrived{rate}.")
        if totals.within_target is not None:
            quantiles = ", ".join(f"{q:.0%} {totals.delay_s(q) or 0:.2f} s" for q in (0.5, 0.95, 0.99))
            told = f"Delays: {quantiles}; {percent(totals.within_target)} within the target of {totals.target_s:g} s."
            console.print(told)
        if totals.work_kept is not None:
            console.print(f"Work kept: {percent(totals.work_kept)} of what all tuples would have taken.")
        arcs = table("arc", "arrived", "malformed", "delivered", "dropped", "dropped %")
        for arc, sums in totals.arcs.items():
            counts = (sums.arrived, sums.malformed, sums.delivered, sums.dropped)
            share = percent(sums.dropped / sums.arrived) if sums.arrived else ""
            arcs.add_row(Text(arc), *(f"{count:,}" for count in counts), share)
        utilities = table("output", "utility", "SIC")
        for output, utility in totals.utilities.items():
            share = percent(totals.sic[output]) if output in totals.sic else ""
            utilities.add_row(Text(output), percent(utility), share)
        console.print(arcs, utilities, sep="\n\n")
        if totals.jain is not None:
            console.print(f"Fairness of the outputs' SIC (Jain's index): {totals.jain:.4f}")
    if outcome.scheduler is not None:
        _show_scheduler(console, outcome.scheduler)
    for output, rows in outcome.rows.items():
        _show_rows(console, output, rows)
    kept = [output.id for output in spec.network.outputs if (place / "outputs" / output.id).is_dir()]
    if kept:
        console.print(f"Outputs: {place / 'outputs'}", style="dim", soft_wrap=True, markup=False)
    console.print(f"Ledger: streamshed ledger {place / 'control'}", style="dim", soft_wrap=True, markup=False)


def _show_scheduler(console: Console, scheduler: StageScheduler) -> None:
    from streamshed.cli.live import strategies_told

    count = sum(scheduler.switches.values())
    told = f"{count} {'switch' if count == 1 else 'switches'}" if scheduler.decides_drops else "as asked"
    console.print(f"\nScheduler: {scheduler.name}; {strategies_told(scheduler.strategies)}; {told}.", markup=False)
    for decision in scheduler.changes[-CHANGES_SHOWN:]:
        console.print(f"  {decision}", style="dim", soft_wrap=True, markup=False)


def _show_rows(console: Console, output: str, rows: Sequence[Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    last = list(rows)[-ROWS_SHOWN:]
    console.print()
    if not last:
        console.print(f"{output}: no rows", style="dim", markup=False)
        return
    console.print(f"{output}: the last rows", style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for name in last[0].asDict():
        table.add_column(Text(name), overflow="fold")
    for row in last:
        table.add_row(*(Text(str(value)) for value in row))
    console.print(table)
