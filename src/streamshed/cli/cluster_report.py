"""What `streamshed cluster` says at the end: what became of every tuple, at every node and between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from streamshed.cli.render import percent
from streamshed.cli.tables import Sheet, show

if TYPE_CHECKING:
    from rich.console import Console

    from streamshed.cli.children import Child


def summary(children: Sequence[Child], seconds: float, deaths: Sequence[str]) -> dict[str, Any]:
    """What is left of all nodes, by their ledgers and the arcs between them.

    Args:
        children: the nodes, which have ended.
        seconds: how long it took.
        deaths: which of them ended without being told to.
    """
    nodes = {child.node.name: child.summary() for child in children}
    arcs: dict[str, dict[str, Any]] = {}
    for child in children:
        for name, found in child.arcs().items():
            arcs.setdefault(name, {}).update(found)
    for found in arcs.values():
        found["balanced"] = found.get("written") == found.get("read", 0) + found.get("waiting", 0)
    outside = sum(
        arrived
        for child in children
        for stream, arrived in nodes[child.node.name]["streams"].items()
        if stream not in child.node.reads
    )
    cpu = [node["cpu_s"] for node in nodes.values()]
    return {
        "seconds": seconds,
        "from_outside": outside,
        "nodes": nodes,
        "arcs": arcs,
        "cpu_s": None if None in cpu else sum(cpu),
        "balanced": all(found["balanced"] for found in (*nodes.values(), *arcs.values())),
        "deaths": list(deaths),
    }


def report(console: Console, found: dict[str, Any], target_s: float) -> None:
    """Print a summary."""
    console.print()
    outside = found["from_outside"]
    if not outside:
        show(console, "No tuple came in.", style="yellow")
        return
    nodes = Sheet().names("node")
    nodes.numbers("arrived", "delivered", "dropped", "on time", "delay 95 %", "due", "CPU")
    for name, node in found["nodes"].items():
        nodes.add_row(
            name,
            *(f"{node[key]:,}" for key in ("arrived", "delivered", "dropped")),
            "" if node["within_target"] is None else percent(node["within_target"]),
            "" if node["p95_s"] is None else f"{node['p95_s']:,.2f} s",
            "" if node["due_s"] is None else f"{node['due_s']:g} s",
            "" if node["cpu_s"] is None else f"{node['cpu_s']:,.0f} s",
        )
    arcs = Sheet().names("arc").numbers("written", "read", "waiting", "balanced")
    for name, arc in found["arcs"].items():
        counts = (f"{arc.get(key, 0):,}" for key in ("written", "read", "waiting"))
        arcs.add_row(name, *counts, "yes" if arc["balanced"] else Text("no", style="red"))
    show(console, nodes, "", arcs)
    dropped = [f"{node['dropped']:,} at {name}" for name, node in found["nodes"].items() if node["dropped"]]
    told = f"dropped: {', '.join(dropped)}" if dropped else "none was dropped"
    show(console, "", f"{outside:,} tuples came from outside; {told}.")
    if found["balanced"]:
        show(console, "Every tuple is accounted for, at every node and on every arc.")
    else:
        show(console, "The accounts do not balance.", style="red")
    total = "" if found["cpu_s"] is None else f" Processor time of all nodes: {found['cpu_s']:,.0f} s."
    show(console, f"Target {target_s:g} s.{total}")
    for name, node in found["nodes"].items():
        if node["refused"]:
            show(console, f"{name} refused {node['refused']:,} messages; its node.log says why.")
    for death in found["deaths"]:
        show(console, death, style="yellow")
