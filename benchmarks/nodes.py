"""Two applications in a chain, the second one the bottleneck: feasible input tables against shedding for oneself.

Both nodes of `examples/chain.yaml` are started as processes of their own, with about three times the load that the
second one can take. When they have got going, the tables are withheld from the first node for some time, given back,
withheld again: without a table that counts it sheds for itself alone, as with `--shed local`. So both ways are compared
in the same processes, minutes apart, in turns (A B B A ...): Java goes on getting faster for minutes, and a machine is
not the same from one minute to the next. Looked at is what came and what was delivered, how much of it on time, and the
processor time of both with their Java and Python workers. Then the second node is killed (SIGKILL) some times, and
started again.

    python -m benchmarks nodes
    python -m benchmarks.nodes pairs 1 --json pairs.json     # some of it
    python -m benchmarks.nodes kills 2 --json kills.json
    python -m benchmarks.nodes show pairs.json kills.json
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.table import Table

from streamshed.cli.children import Child
from streamshed.network import load_spec, node_specs

EXAMPLE = Path(__file__).parents[1] / "examples" / "chain.yaml"
FIRST, SECOND, ARC = "edge", "core", "parsed-core"
TARGET_S = 15.0
START_S, WARM_S, SETTLE_S, MEASURE_S = 120.0, 5.0, 15.0, 20.0
GOING = 2
"""So many batches of each node, and it has got going."""

AWAY_S, BACK_S, STEADY_S = 12.0, 100.0, 6.0
END_S = 8.0
PAIRS, KILLS = 3, 3
MODES = ("tables", "local")

_POLL_S = 0.25
_COUNTS = ("arrived", "delivered", "dropped", "timed", "on_time")
_SHOWN = (
    "pid", "delay_s", "batch_s", "batch_end_s", "batches", "keep", "waiting", "takes_tps", "fresh_tables",
    "arriving_tps", "cost", "cpu_s", *_COUNTS,
)  # fmt: skip

Moment = dict[str, Any]


def run(console: Console) -> None:
    """Print tables."""
    show(console, [*pairs(console, PAIRS), *kills(console, KILLS)])


def pairs(
    console: Console, count: int, seconds: float = math.inf, modes: tuple[str, ...] = MODES
) -> list[dict[str, Any]]:
    """What both ways of shedding give, in turns, in one run; as many turns as end in so many seconds."""
    found: list[dict[str, Any]] = []
    with Chain() as chain:
        console.print("starting …", style="dim")
        chain.get_going()
        for mode in [mode for number in range(count) for mode in (modes if number % 2 == 0 else modes[::-1])]:
            if chain.lasts_s() + SETTLE_S + MEASURE_S + END_S > seconds:
                break
            console.print(f"{mode} …", style="dim")
            chain.withhold(mode == "local")
            chain.watch(time.time() + SETTLE_S)
            before = chain.history[-1]
            chain.watch(time.time() + MEASURE_S)
            found.append({"mode": mode, **_between(before, chain.history[-1])})
        ended = chain.ended()
    return [{**one, **ended, "history": chain.history if one is found[0] else []} for one in found]


def kills(console: Console, count: int, seconds: float = math.inf) -> list[dict[str, Any]]:
    """What happens when the second node is killed under load, and started again; as often as fits into the time."""
    found: list[dict[str, Any]] = []
    with Chain() as chain:
        console.print("starting …", style="dim")
        chain.get_going()
        for _ in range(count):
            if chain.lasts_s() + AWAY_S + BACK_S + END_S > seconds:
                break
            console.print("kill …", style="dim")
            found.append(_killed(chain))
        ended = chain.ended()
    return [{"mode": "kill", **one, **ended, "history": chain.history if one is found[0] else []} for one in found]


def _killed(chain: Chain) -> dict[str, Any]:
    second = chain.children[SECOND]
    before = chain.history[-1]
    pid = second.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    chain.watch(time.time() + AWAY_S)
    second.died()
    away = chain.history[-1]
    second.start()
    began_s = time.time()

    def steady() -> bool:
        after_s = recovered_s(chain.history, second.pid, began_s - chain.began_s)
        return after_s is not None and time.time() - began_s - after_s >= STEADY_S

    chain.watch(began_s + BACK_S, steady)
    since = [moment for moment in chain.history if moment["at_s"] > began_s - chain.began_s]
    first = chain.history.index(before)
    return {
        "killed_at_s": before["at_s"],
        "restarted_at_s": began_s - chain.began_s,
        "away": _between(before, away)[FIRST],
        "back": _between(before, chain.history[-1])[FIRST],
        "waiting_most": max(sum((one[SECOND].get("waiting") or {}).values()) for one in since),
        "up_s": _first_s(since, began_s - chain.began_s, lambda one: one[SECOND].get("pid") == second.pid),
        "table_s": _first_s(
            [one for one in chain.history[first:] if one["at_s"] > began_s - chain.began_s],
            began_s - chain.began_s,
            lambda one: SECOND in one[FIRST].get("fresh_tables", ()),
        ),
        "recovered_s": recovered_s(chain.history, second.pid, began_s - chain.began_s),
    }


def recovered_s(history: Sequence[Moment], pid: int | None, began_s: float) -> float | None:
    """How long after a restart the second node was on time, and has been so ever since; None if it is not.

    >>> late, fine = ({"pid": 7, "delay_s": delay_s, "due_s": 10.0, "batches": 1} for delay_s in (12.0, 9.0))
    >>> history = [{"at_s": at_s, "core": now} for at_s, now in ((3.0, fine), (4.0, late), (5.0, fine), (6.0, fine))]
    >>> recovered_s(history, 7, 2.0)
    3.0
    """
    found = None
    for moment in reversed(history):
        status = moment[SECOND]
        known = status.get("pid") == pid and status.get("delay_s") is not None and moment["at_s"] > began_s
        if not known or status["delay_s"] > status["due_s"]:
            break
        found = moment["at_s"] - began_s
    return found


def _first_s(history: Sequence[Moment], began_s: float, condition: Callable[[Moment], bool]) -> float | None:
    return next((moment["at_s"] - began_s for moment in history if condition(moment)), None)


class Chain:
    """Both nodes as processes, with what they said about themselves over time.

    Attributes:
        children: by name.
        began_s: when they were started, seconds since 1970.
        history: what the nodes said, moment by moment, in seconds since then.
    """

    def __init__(self) -> None:
        self.began_s = time.time()
        self.history: list[Moment] = []
        self._stack = ExitStack()
        self._place = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="streamshed-nodes-")))
        spec = load_spec(EXAMPLE)
        given = ["--target", str(TARGET_S), "--master", "local[1]", "--conf", "spark.driver.memory=700m"]
        given += ["--directory", str(self._place / "run"), "--stop-at-eof"]
        self.children = {
            name: Child(EXAMPLE, node, self._place / "run", given, None) for name, node in node_specs(spec).items()
        }

    def __enter__(self) -> Self:
        for child in self.children.values():
            self._stack.callback(child.kill)
            child.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def watch(self, until_s: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Look at the nodes until a time, or until something holds."""
        while time.time() < until_s and not enough():
            time.sleep(_POLL_S)
            statuses = {name: child.status() for name, child in self.children.items()}
            shown = {
                name: {key: status.get(key) for key in (*_SHOWN, "due_s", "time_s")} if status else {}
                for name, status in statuses.items()
            }
            self.history.append({"at_s": time.time() - self.began_s, **shown})

    def get_going(self) -> None:
        """Wait until both nodes have got going, and some time more."""

        def going() -> bool:
            return all((self.history[-1][name].get("batches") or 0) >= GOING for name in self.children)

        self.watch(self.began_s + START_S, lambda: bool(self.history) and going())
        self.watch(time.time() + WARM_S)

    def lasts_s(self) -> float:
        """How long it has been running."""
        return time.time() - self.began_s

    def withhold(self, withheld: bool) -> None:
        """Keep tables from the first node, or no longer: by a directory that is not where it should be."""
        given, kept = self._place / "run" / "tables" / FIRST, self._place / "run" / "withheld"
        if withheld and given.exists():
            given.rename(kept)
        elif not withheld and kept.exists():
            kept.rename(given)

    def ended(self) -> dict[str, Any]:
        """Stop the nodes, and see whether every tuple is accounted for."""
        for child in self.children.values():
            child.stop()
        arc = {**self.children[SECOND].arcs()[ARC], **self.children[FIRST].arcs()[ARC]}
        ledgers = {name: child.summary() for name, child in self.children.items()}
        books = all(one["balanced"] for one in ledgers.values())
        return {
            "balanced": books and arc["written"] == arc["read"] + arc["waiting"],
            "arc": arc,
            "ledgers": {
                name: {key: one[key] for key in ("arrived", "delivered", "dropped", "malformed")}
                for name, one in ledgers.items()
            },
        }


def _between(before: Moment, after: Moment) -> dict[str, Any]:
    """What both nodes did between two moments, a second; tuples are counted when their batch ends."""
    found: dict[str, Any] = {}
    for name in (FIRST, SECOND):
        old, new = before[name], after[name]
        if not old.get("batch_end_s") or not new.get("batch_end_s") or old["pid"] != new["pid"]:
            found[name] = None
            continue
        span_s = max(new["batch_end_s"] - old["batch_end_s"], 1e-9)
        counts = {key: new[key] - old[key] for key in _COUNTS}
        found[name] = {f"{key}_tps": counts[key] / span_s for key in ("arrived", "delivered", "dropped")}
        found[name]["on_time"] = counts["on_time"] / counts["timed"] if counts["timed"] else None
        found[name]["cores"] = (new["cpu_s"] - old["cpu_s"]) / max(new["time_s"] - old["time_s"], 1e-9)
    return found


def show(console: Console, results: Sequence[dict[str, Any]]) -> None:
    """Print what was found."""
    columns = (
        "run",
        "delivered/s",
        "cores",
        "CPU ms a tuple",
        "first drops/s",
        "second drops/s",
        "on time",
        "balanced",
    )
    table = Table(*columns, box=None)
    sums: dict[str, list[tuple[float, float, float]]] = {mode: [] for mode in MODES}
    for found in results:
        if found["mode"] not in MODES:
            continue
        first, second = found[FIRST], found[SECOND]
        if first is None or second is None or not second["delivered_tps"]:
            table.add_row(found["mode"], "nothing", *[""] * (len(columns) - 3), str(found["balanced"]))
            continue
        delivered_tps, cores = second["delivered_tps"], first["cores"] + second["cores"]
        sums[found["mode"]].append((delivered_tps, cores, 1000 * cores / delivered_tps))
        table.add_row(
            found["mode"],
            f"{delivered_tps:.0f}",
            f"{cores:.2f} ({first['cores']:.2f} + {second['cores']:.2f})",
            f"{1000 * cores / delivered_tps:.2f}",
            f"{first['dropped_tps']:.0f}",
            f"{second['dropped_tps']:.0f}",
            f"{first['on_time']:.1%} / {second['on_time']:.1%}",
            str(found["balanced"]),
        )
    means: dict[str, list[float]] = {}
    for mode, rows in sums.items():
        if rows:
            means[mode] = [statistics.fmean(column) for column in zip(*rows, strict=True)]
            cells = [
                f"{mean:{form}} ({min(column):{form}} to {max(column):{form}})"
                for mean, column, form in zip(means[mode], zip(*rows, strict=True), (".0f", ".2f", ".2f"), strict=True)
            ]
            table.add_row(f"{mode}, mean of {len(rows)}", *cells, style="bold")
    if means:
        console.print(table)
    if len(means) == len(MODES):
        ratios = [ours / theirs for ours, theirs in zip(means["tables"], means["local"], strict=True)]
        console.print("tables against local: {:.2f} × the output, {:.2f} × the CPU, {:.2f} × a tuple".format(*ratios))
    _show_kills(console, [found for found in results if found["mode"] == "kill"])


def _show_kills(console: Console, results: Sequence[dict[str, Any]]) -> None:
    if not results:
        return
    table = Table(
        "kill", "first on time meanwhile", "most waiting", "up s", "table s", "on time again s", "balanced", box=None
    )
    for number, found in enumerate(results, 1):
        back = found["back"] or {}
        times = ("–" if found[key] is None else f"{found[key]:.0f}" for key in ("up_s", "table_s", "recovered_s"))
        on_time = back.get("on_time")
        shown = "–" if on_time is None else f"{on_time:.1%}"
        table.add_row(str(number), shown, f"{found['waiting_most']:,}", *times, str(found["balanced"]))
    console.print(table)
    console.print("all times in seconds after the second node was started again", style="dim")


app = typer.Typer(add_completion=False)
_Count = Annotated[int, typer.Argument()]
_Seconds = Annotated[float, typer.Option("--seconds", help="Begin nothing that would not be over by then.")]
_Json = Annotated[Path | None, typer.Option("--json", help="Write everything here.")]


@app.command("pairs")
def _pairs(
    count: _Count = PAIRS, seconds: _Seconds = math.inf, local_first: bool = False, json_file: _Json = None
) -> None:
    _kept(pairs(Console(), count, seconds, MODES[::-1] if local_first else MODES), json_file)


@app.command("kills")
def _kills(count: _Count = KILLS, seconds: _Seconds = math.inf, json_file: _Json = None) -> None:
    _kept(kills(Console(), count, seconds), json_file)


@app.command("show")
def _show(files: list[Path]) -> None:
    show(Console(width=140), [found for file in files for found in json.loads(file.read_text())])


def _kept(results: list[dict[str, Any]], file: Path | None) -> None:
    if file is not None:
        file.write_text(json.dumps(results))
    show(Console(width=140), results)


if __name__ == "__main__":
    app()
