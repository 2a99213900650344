"""Two applications in a chain, the second one the bottleneck: feasible input tables against shedding for oneself.

Each run starts both nodes of `examples/chain.yaml` as processes of their own, lets them warm up at a low rate, then
sends more than the second one can take, and looks at them between two moments: what came and what was delivered, how
much of it on time, and the processor time of both with their Java and Python workers. In the last run the second node
is killed (SIGKILL) and started again. One after the other:

    python -m benchmarks nodes
    python -m benchmarks.nodes local 1500      # one of the runs, at a rate: local, tables or kill
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from streamshed.cli.children import Child
from streamshed.network import Connector, dump_spec, load_spec, node_specs

EXAMPLE = Path(__file__).parents[1] / "examples" / "chain.yaml"
TARGET_S = 10.0
CALM_TPS = 300.0
CALIBRATION_TPS = 1500.0
FACTOR = 3.0
START_S, WARM_S, SETTLE_S, MEASURE_S = 40.0, 80.0, 60.0, 60.0
KILL_SETTLE_S = 35.0
AWAY_S, BACK_S = 25.0, 90.0


def run(console: Console) -> None:
    """Print a table."""
    console.print("calibrating …", style="dim")
    found = play("local", CALIBRATION_TPS)
    capacity_tps = found["core"]["delivered"] / found["seconds"]
    rate_tps = FACTOR * capacity_tps
    console.print(f"the second node delivers {capacity_tps:.0f} tuples/s; {rate_tps:.0f} tuples/s from now on")
    results = {}
    for mode in ("local", "tables", "kill"):
        console.print(f"{mode} …", style="dim")
        results[mode] = play(mode, rate_tps)
    show(console, results)


def show(console: Console, results: dict[str, Any]) -> None:
    """Print what was found."""
    columns = ("run", "node", "arrived/s", "delivered/s", "dropped/s", "on time", "CPU s", "balanced")
    table = Table(*columns, box=None)
    for mode, found in results.items():
        for node in ("edge", "core"):
            one, seconds = found[node], found["seconds"]
            rates = (f"{one[key] / seconds:.0f}" for key in ("arrived", "delivered", "dropped"))
            table.add_row(mode, node, *rates, f"{one['share']:.1%}", f"{one['cpu_s']:.1f}", str(found["balanced"]))
    console.print(table)


def play(mode: str, rate_tps: float) -> dict[str, Any]:
    """One run; differences between two moments."""
    with tempfile.TemporaryDirectory(prefix="streamshed-nodes-") as place:
        return _play(mode, rate_tps, Path(place))


def _play(mode: str, rate_tps: float, place: Path) -> dict[str, Any]:
    spec = load_spec(EXAMPLE)
    epoch_s = time.time() + START_S
    options = {
        **(spec.network.streams[0].source or Connector("feeder")).options,
        "pattern": "step",
        "before_tps": str(CALM_TPS),
        "after_tps": str(rate_tps),
        "at_s": str(WARM_S),
        "epoch": f"{epoch_s:.3f}",
    }
    options.pop("rate_tps", None)
    stream = replace(spec.network.streams[0], source=Connector("feeder", options))
    spec = replace(spec, network=replace(spec.network, streams=(stream,)), rates={"reports": rate_tps})
    file = place / "chain.yaml"
    file.write_text(dump_spec(spec))
    given = ["--target", str(TARGET_S), "--master", "local[1]", "--conf", "spark.driver.memory=700m", "--stop-at-eof"]
    given += ["--directory", str(place / "run"), "--shed", "local" if mode == "local" else "tables"]
    children = {name: Child(file, node, place / "run", given, None) for name, node in node_specs(spec).items()}
    history: list[dict[str, Any]] = []

    def watch(until_s: float) -> None:
        while time.time() < until_s:
            time.sleep(0.5)
            history.append(
                {"at_s": time.time() - epoch_s, **{name: child.status() for name, child in children.items()}}
            )

    try:
        for child in children.values():
            child.start()
        watch(epoch_s + WARM_S + (KILL_SETTLE_S if mode == "kill" else SETTLE_S))
        before = history[-1]
        kill_s = None
        if mode == "kill":
            pid = children["core"].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            kill_s = history[-1]["at_s"]
            watch(time.time() + AWAY_S)
            children["core"].died()
            away = history[-1]
            children["core"].start()
            watch(time.time() + BACK_S)
            after = history[-1]
            watch_from = {"away": away}
        else:
            watch(time.time() + MEASURE_S)
            after, watch_from = history[-1], {}
        for child in children.values():
            child.stop()
        arcs = {**children["core"].arcs()["parsed-core"], **children["edge"].arcs()["parsed-core"]}
        summaries = {name: child.summary() for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
    balanced = arcs["written"] == arcs["read"] + arcs["waiting"] and all(one["balanced"] for one in summaries.values())
    return {
        "mode": mode,
        "rate_tps": rate_tps,
        "seconds": after["at_s"] - before["at_s"],
        **{name: _difference(before.get(name, {}), after.get(name, {})) for name in children},
        "balanced": balanced,
        "arcs": arcs,
        "ledgers": summaries,
        "killed_at_s": kill_s,
        "away": watch_from.get("away"),
        "history": [_short(one) for one in history],
    }


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    again = before.get("pid") != after.get("pid")  # a process that began again counts from nothing
    found = {
        key: float(after.get(key) or 0) - (0.0 if again else float(before.get(key) or 0))
        for key in ("arrived", "delivered", "dropped", "timed", "on_time", "cpu_s")
    }
    found["share"] = found["on_time"] / found["timed"] if found["timed"] else 0.0
    return found


def _short(moment: dict[str, Any]) -> dict[str, Any]:
    counts = ("arrived", "delivered", "dropped", "timed", "on_time", "cpu_s", "factor", "cost")
    keys = (
        "pid",
        "delay_s",
        "batch_s",
        "keep",
        "waiting",
        "takes_tps",
        "fresh_tables",
        "arriving_tps",
        "factor",
        "cost",
        *counts,
    )
    return {
        "at_s": round(moment["at_s"], 1),
        **{name: {key: moment[name].get(key) for key in keys} for name in ("edge", "core") if moment.get(name)},
    }


if __name__ == "__main__":
    mode, rate = sys.argv[1], float(sys.argv[2])
    result = play(mode, rate)
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(json.dumps(result))
    show(Console(), {mode: result})
