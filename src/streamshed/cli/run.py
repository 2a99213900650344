"""`streamshed run`: a network on Spark, on time."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamshed.cli.node import StatusFile, logged_to, stop_with_parent, token_for
from streamshed.cli.plan import DEFAULT_PLANNER
from streamshed.cli.run_report import ROWS_SHOWN, Outcome, report
from streamshed.cli.stopping import stop_signals
from streamshed.errors import InvalidValueError, StreamshedError, UnknownNameError, did_you_mean

if TYPE_CHECKING:
    from streamshed.control import Controller
    from streamshed.engines.spark.runner import NetworkRunner
    from streamshed.network import Network, Spec

DEFAULT_TARGET_S = 2.0
DEFAULT_CONTROLLER = "deadline"
_POLL_S = 0.2
_LAST_BATCH_S = 5.0  # to wait for the end of running batches
_LOG_LEVEL = "spark.log.level"
_SHOWN_SINKS = ("console", "memory")


class Shed(StrEnum):
    """By what a node sheds."""

    tables = "tables"
    local = "local"


class Exchange(StrEnum):
    """How nodes pass tables on."""

    directory = "directory"
    http = "http"


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
    insist: Annotated[
        bool,
        typer.Option(
            "--insist",
            help="Drop for the target even where no drop can hold it, because an empty batch takes too long. "
            "Default: say so, and drop only what is too much for the machine.",
        ),
    ] = False,
    no_shed: Annotated[bool, typer.Option("--no-shed", help="Drop nothing, only watch.")] = False,
    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            "-n",
            metavar="NAME",
            help="Run only this node's operators; DIR is then what all nodes share. See `streamshed cluster`.",
        ),
    ] = None,
    shed: Annotated[
        Shed, typer.Option("--shed", help="Of a node: shed by the tables of the nodes below, or for itself alone.")
    ] = Shed.tables,
    exchange: Annotated[
        Exchange,
        typer.Option(
            "--exchange", help="How tables travel: files in DIR, or HTTP on this machine (secret: STREAMSHED_TOKEN)."
        ),
    ] = Exchange.directory,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the summary as JSON at the end.")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting, such as spark.log.level=WARN. Repeatable."),
    ] = None,
    stop_at_eof: Annotated[
        bool, typer.Option("--stop-at-eof", hidden=True, help="Stop when the standard input ends.")
    ] = False,
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

    from streamshed.control import BATCH_CONTROLLERS, controller_named
    from streamshed.distributed.arc_files import file_name
    from streamshed.engines.spark.directory_lock import CONTROL, check_free
    from streamshed.network import load_spec, node_spec
    from streamshed.planning import planner_named

    check_positive("--target", target)
    if seconds is not None:
        check_positive("--seconds", seconds)
    settings = _settings(conf or ())
    chosen = planner_named(planner)
    _check_scheduler(scheduler)
    if scheduler is not None and node is not None:
        raise InvalidValueError(
            "the stages of a node cannot be scheduled yet",
            where="--scheduler",
            got=f"{scheduler}, and --node {node}",
            expected="one of the two",
        )
    cut = stages or (Stages.fused if scheduler is None else Stages.per_output)
    loaded = load_spec(spec)
    place = place_of(loaded.network, directory)
    check_writable(place, f"--directory {place}", make=True)
    part = None if node is None else node_spec(loaded, node)
    check_free((place if node is None else place / "nodes" / file_name(node)) / CONTROL)
    own_target_s = target if part is None else part.own_target_s(target)
    decides = controller_named(controller, own_target_s, among=BATCH_CONTROLLERS)
    if insist:
        _insist(decides)
    token = None if part is None or shed is Shed.local else token_for(exchange.value)
    if json is not None:
        check_writable(json.absolute().parent, f"--json {json}")

    from streamshed.cli.totals import Totals

    totals = Totals(target if part is None else part.due_s(target))
    outcome = Outcome()
    console = Console(highlight=False)
    with ExitStack() as stack:
        from streamshed.cli.live import LiveView
        from streamshed.engines.spark.failures import explained
        from streamshed.engines.spark.network_batch import NetworkBatch
        from streamshed.engines.spark.node import NodeRunner
        from streamshed.engines.spark.runner import NetworkRunner
        from streamshed.engines.spark.session import temporary_session

        console.print(f"Starting Spark on {master} …", style="dim", markup=False)
        with explained("Spark does not start", where=f"--master {master}", hint="see --master and --conf"):
            spark = stack.enter_context(temporary_session(master, f"streamshed {loaded.network.name}", settings))
        stopped = stack.enter_context(stop_signals())
        view = stack.enter_context(LiveView(console, target, loaded.network.name))

        def on_batch(batch: NetworkBatch) -> None:
            totals.add(batch)
            totals.sic = runner.sic.overall()
            for each in told:
                each(batch)
            view.show(batch)
            for table in runner.sinks.tables.values():
                del table[:-ROWS_SHOWN]  # it may run for days

        told: list[Callable[[NetworkBatch], None]] = []
        application: NetworkRunner | NodeRunner
        if node is None:
            application = runner = NetworkRunner(
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
            outcome.scheduler = runner.scheduler
        else:
            application = NodeRunner(
                spark,
                _shown_at_the_end(loaded),
                node,
                place,
                target_s=target,
                planner=chosen,
                controller=decides,
                shed=not no_shed,
                by_tables=shed is Shed.tables,
                token=token,
                per_output=cut is Stages.per_output,
                on_batch=on_batch,
                stopped=stopped,
            )
            runner, place = application.runner, application.directory
            stack.enter_context(logged_to(place / "node.log"))
            status = StatusFile(application, totals)
            told.append(status.show)
        for note in runner.notes:
            console.print(note, style="yellow", soft_wrap=True, markup=False)
        if stop_at_eof:
            stop_with_parent(stopped)
        outcome.rows = runner.sinks.tables
        with application:
            with explained("the network does not start", where=f"network {loaded.network.name!r}"):
                application.start()
            with nullcontext() if node is None else status:
                _wait(runner, stopped, seconds)
                runner.finish(_LAST_BATCH_S)
            outcome.error = runner.failure
    report(console, outcome, totals, loaded if part is None else part.spec, place)
    if json is not None:
        from streamshed.cli.export import write_json

        about = {
            "network": loaded.network.name,
            "planner": planner,
            "controller": controller,
            "stages": cut.value,
            "shed": not no_shed,
            "directory": str(place),
            **({} if node is None else {"node": node, "by": shed.value}),
            "scheduler": outcome.scheduler.as_document() if outcome.scheduler is not None else None,
        }
        write_json(json, {**about, **totals.to_json(), "error": str(outcome.error) if outcome.error else None})
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if outcome.error is not None:
        raise outcome.error


def _wait(runner: NetworkRunner, stopped: threading.Event, seconds: float | None) -> None:
    """Until the time is over, a signal comes or a query ends."""
    end_s = math.inf if seconds is None else time.monotonic() + seconds
    while runner.is_active and not stopped.is_set() and time.monotonic() < end_s:
        stopped.wait(min(_POLL_S, max(end_s - time.monotonic(), 0.0)))


def place_of(network: Network, directory: Path | None) -> Path:
    """Where a run keeps its things: the given directory, or one that is called after the network."""
    from streamshed.distributed.arc_files import file_name

    return (directory or Path("streamshed-run") / file_name(network.name)).absolute()


# --- options ---------------------------------------------------------------------------------------------------------


def check_positive(option: str, value: float) -> None:
    """Raise unless an option is a number of seconds that makes sense."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidValueError("an option is out of range", where=option, got=value, expected="seconds, > 0")


def _check_scheduler(name: str | None) -> None:
    from streamshed.scheduling import OPTIMIZER, STRATEGIES

    known = (OPTIMIZER, *STRATEGIES)
    if name is not None and name not in known:
        raise UnknownNameError(
            f"there is no scheduler {name!r}", where="--scheduler", got=name, hint=did_you_mean(name, known)
        )


def _insist(controller: Controller) -> None:
    """Have a controller drop for a target that is out of reach."""
    from streamshed.control import PlantController

    if not isinstance(controller, PlantController):
        raise InvalidValueError(
            "this controller always aims at the target", where="--insist", got=controller.name, expected="deadline"
        )
    controller.insist = True


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
