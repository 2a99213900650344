"""`streamshed cluster`: all nodes of a network on this machine, each an application of its own."""

from __future__ import annotations

import math
import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamshed.cli.plan import DEFAULT_PLANNER
from streamshed.cli.run import DEFAULT_CONTROLLER, Exchange, Shed, check_positive, check_writable, stop_signals
from streamshed.errors import StreamshedError

if TYPE_CHECKING:
    from rich.console import Console

    from streamshed.cli.children import Child

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
        typer.Option("--seconds", "-s", metavar="SECONDS", help="Stop after so long. Default: at Ctrl-C."),
    ] = None,
    shed: Annotated[
        Shed, typer.Option("--shed", help="By the tables of the nodes below, or each for itself alone.")
    ] = Shed.tables,
    exchange: Annotated[
        Exchange, typer.Option("--exchange", help="How tables travel: files in DIR, or HTTP on this machine.")
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

    Each node writes to DIR/nodes/NAME: run.log is what it prints.

    Exits with 2 if the spec or an option is wrong, or a node died.
    """
    from rich.console import Console

    from streamshed.cli.children import Child, ClusterView
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
    place = (directory or Path("streamshed-run") / loaded.network.name).absolute()
    check_writable(place, f"--directory {place}", make=True)
    if json is not None:
        check_writable(json.absolute().parent, f"--json {json}")
    options = ["--target", str(target), "--planner", planner, "--controller", controller, "--master", master]
    options += ["--shed", shed.value, "--exchange", exchange.value, "--directory", str(place), "--stop-at-eof"]
    for setting in conf or ():
        options += ["--conf", setting]
    token = secrets.token_urlsafe() if exchange is Exchange.http else None

    console = Console(highlight=False)
    children = [Child(spec.absolute(), node, place, options, token) for node in nodes.values()]
    deaths: list[str] = []
    with ExitStack() as stack:
        stopped = stack.enter_context(stop_signals())
        for child in children:
            stack.callback(child.kill)
        view = stack.enter_context(ClusterView(console, loaded.network.name, target, children))
        began_s = time.monotonic()
        end_s = math.inf if seconds is None else began_s + seconds
        for child in children:
            child.start()
        while not stopped.is_set() and time.monotonic() < end_s:
            view.show()
            for child in children:
                code = child.died()
                if code is not None:
                    deaths.append(f"{child.node.name} ended with {_told(code)}")
                    if restart:
                        child.start()
            if not restart and not any(child.is_alive for child in children):
                break
            stopped.wait(min(_POLL_S, max(end_s - time.monotonic(), 0.0)))
        for child in children:  # upstream first: what is on the arcs by then is still read
            child.stop()
        view.show()
    summary = _summary(children, time.monotonic() - began_s, deaths)
    _report(console, summary, target)
    if json is not None:
        from streamshed.cli.export import write_json

        about = {"network": loaded.network.name, "target_s": target, "shed": shed.value, "directory": str(place)}
        write_json(json, {**about, **summary})
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if deaths and not restart:
        raise StreamshedError("a node died", where=deaths[0], hint=f"see {place / 'nodes'}/*/run.log")


def _told(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _summary(children: Sequence[Child], seconds: float, deaths: Sequence[str]) -> dict[str, Any]:
    nodes = {child.node.name: child.summary() for child in children}
    arcs: dict[str, dict[str, Any]] = {}
    for child in children:
        for name, found in child.arcs().items():
            arcs.setdefault(name, {}).update(found)
    for found in arcs.values():
        found["balanced"] = found.get("written") == found.get("read", 0) + found.get("waiting", 0)
    cpu = [node["cpu_s"] for node in nodes.values()]
    return {
        "seconds": seconds,
        "nodes": nodes,
        "arcs": arcs,
        "cpu_s": None if None in cpu else sum(cpu),
        "balanced": all(found["balanced"] for found in (*nodes.values(), *arcs.values())),
        "deaths": list(deaths),
    }


def _report(console: Console, summary: dict[str, Any], target_s: float) -> None:
    from rich.table import Table
    from rich.text import Text

    from streamshed.cli.render import percent

    nodes = Table("node", *_right("arrived", "delivered", "dropped", "on time", "delay 95 %", "due", "CPU"), box=None)
    for name, node in summary["nodes"].items():
        nodes.add_row(
            Text(name),
            *(f"{node[key]:,}" for key in ("arrived", "delivered", "dropped")),
            "" if node["within_target"] is None else percent(node["within_target"]),
            "" if node["p95_s"] is None else f"{node['p95_s']:.2f} s",
            "" if node["due_s"] is None else f"{node['due_s']:g} s",
            "" if node["cpu_s"] is None else f"{node['cpu_s']:.0f} s",
        )
    arcs = Table("arc", *_right("written", "read", "waiting", "balanced"), box=None)
    for name, arc in summary["arcs"].items():
        counts = (f"{arc.get(key, 0):,}" for key in ("written", "read", "waiting"))
        arcs.add_row(Text(name), *counts, "yes" if arc["balanced"] else Text("no", style="red"))
    console.print()
    console.print(nodes, arcs, sep="\n\n")
    total = "" if summary["cpu_s"] is None else f" Processor time of all nodes: {summary['cpu_s']:.0f} s."
    every = "Every tuple is accounted for." if summary["balanced"] else "The accounts do not balance."
    console.print(f"\n{every}{total} Target {target_s:g} s.")
    for death in summary["deaths"]:
        console.print(death, style="yellow", markup=False)


def _right(*names: str) -> list[Any]:
    from rich.table import Column

    return [Column(name, justify="right", no_wrap=True) for name in names]
