"""`streamshed cluster`: all nodes of a network on this machine, each an application of its own."""

from __future__ import annotations

import math
import os
import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from streamshed.cli.node import TOKEN
from streamshed.cli.plan import DEFAULT_PLANNER
from streamshed.cli.run import (
    DEFAULT_CONTROLLER,
    Exchange,
    Shed,
    check_positive,
    check_writable,
    place_of,
)
from streamshed.cli.stopping import stop_signals
from streamshed.errors import StreamshedError

DEFAULT_TARGET_S = 8.0
_POLL_S = 0.25


def cluster(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The network, with nodes.")],
    target: Annotated[
        float,
        typer.Option("--target", "-t", metavar="SECONDS", help="How late an answer may be at the end of all nodes."),
    ] = DEFAULT_TARGET_S,
    planner: Annotated[
        str, typer.Option("--planner", "-p", metavar="NAME", help="Which planner decides where tables do not.")
    ] = DEFAULT_PLANNER,
    controller: Annotated[
        str, typer.Option("--controller", metavar="NAME", help="Which controller decides how much to drop.")
    ] = DEFAULT_CONTROLLER,
    master: Annotated[
        str, typer.Option("--master", "-m", metavar="URL", help="Where the Spark of each node runs.")
    ] = "local[1]",
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            "-d",
            metavar="DIR",
            help="What all nodes share; the same again to go on. Default: streamshed-run/<network>.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            "-s",
            metavar="SECONDS",
            help="Stop so long after all nodes have started. Default: at Ctrl-C.",
        ),
    ] = None,
    shed: Annotated[
        Shed, typer.Option("--shed", help="By the tables of the nodes below, or each for itself alone.")
    ] = Shed.tables,
    exchange: Annotated[
        Exchange,
        typer.Option(
            "--exchange",
            help="How tables travel: files in DIR, or HTTP on this machine (secret: STREAMSHED_TOKEN, or a new one).",
        ),
    ] = Exchange.directory,
    restart: Annotated[bool, typer.Option("--restart", help="Start a node again that has died.")] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the summary as JSON at the end.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting of all nodes. Repeatable.")
    ] = None,
) -> None:
    """Run all nodes of a network on this machine, each as a process of its own with its own Spark session.

    For two minutes: [bold]streamshed cluster examples/chain.yaml --seconds 120[/bold]

    It shows how the nodes are, and sums up at the end what became of every tuple. Ctrl-C stops in good order, upstream
    first. If this process dies, so do the nodes; what they have not done is done when they go on in the same directory.

    Each node writes to DIR/nodes/NAME: run.log is what it prints, node.log says which messages it has refused.

    Exits with 2 if the spec or an option is wrong, or a node died.
    """
    from rich.console import Console

    from streamshed.cli.children import Child, ended_with
    from streamshed.cli.cluster_report import report, summary
    from streamshed.cli.cluster_view import ClusterView
    from streamshed.control import BATCH_CONTROLLERS, controller_named
    from streamshed.network import load_spec, node_specs
    from streamshed.planning import planner_named

    check_positive("--target", target)
    if seconds is not None:
        check_positive("--seconds", seconds)
    planner_named(planner)
    controller_named(controller, target, among=BATCH_CONTROLLERS)
    loaded = load_spec(spec)
    nodes = node_specs(loaded)
    place = place_of(loaded.network, directory)
    check_writable(place, f"--directory {place}", make=True)
    if json is not None:
        check_writable(json.absolute().parent, f"--json {json}")
    options = ["--target", str(target), "--planner", planner, "--controller", controller, "--master", master]
    options += ["--shed", shed.value, "--exchange", exchange.value, "--directory", str(place), "--stop-at-eof"]
    for setting in conf or ():
        options += ["--conf", setting]
    token = (os.environ.get(TOKEN) or secrets.token_urlsafe()) if exchange is Exchange.http else None

    console = Console(highlight=False)
    children = [Child(spec.absolute(), node, place, options, token) for node in nodes.values()]
    deaths: list[str] = []
    dead: list[Child] = []
    with ExitStack() as stack:
        stopped = stack.enter_context(stop_signals())
        for child in children:
            stack.callback(child.kill)
        view = stack.enter_context(ClusterView(console, loaded.network.name, target, children))
        view.tell(f"starting {', '.join(nodes)} in {place}", "dim")
        began_s = time.monotonic()
        end_s = math.inf
        for child in children:
            child.start()
        while not stopped.is_set() and time.monotonic() < end_s:
            view.show()
            for child in children:
                code = child.died()
                if code is not None:
                    deaths.append(f"{child.node.name} ended with {ended_with(code)}")
                    view.tell(deaths[-1], "yellow")
                    dead.append(child)
                    if restart:
                        child.start()
            if not restart and not any(child.is_alive for child in children):
                break
            if seconds is not None and end_s == math.inf and all(child.state != "starting" for child in children):
                end_s = time.monotonic() + seconds
                view.tell(f"all nodes have started; stopping in {seconds:g} s", "dim")
            stopped.wait(min(_POLL_S, max(end_s - time.monotonic(), 0.0)))
        for child in children:  # upstream first: what is on the arcs by then is still read
            if child.is_alive:
                view.tell(f"stopping {child.node.name}", "dim")
                child.stop()
    found = summary(children, time.monotonic() - began_s, deaths)
    report(console, found, target)
    if json is not None:
        from streamshed.cli.export import write_json

        about = {"network": loaded.network.name, "target_s": target, "shed": shed.value, "directory": str(place)}
        write_json(json, {**about, **found})
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if dead and not restart:
        raise StreamshedError(
            "a node died", where=deaths[0], got=dead[0].last_words() or None, hint=f"see {dead[0].log_file}"
        )
