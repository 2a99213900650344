"""`streamshed demo`: a day on the expressway, with a burst that is too much for this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from streamshed.cli.tables import Sheet
    from streamshed.experiments.capacity import Capacity
    from streamshed.experiments.overload import Run

_WITHOUT, _WITH = "without", "with"
_ROOM_BYTES = 4 * 2**30


def demo(
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="How long each of the two days is.")] = 44.0,
    factor: Annotated[float, typer.Option("--factor", "-f", metavar="F", help="The burst, in capacities.")] = 3.0,
    target: Annotated[
        float | None,
        typer.Option("--target", "-t", metavar="S", help="The delay to hold; 2 s, or what this machine can hold."),
    ] = None,
    planner: Annotated[
        str, typer.Option("--planner", "-p", metavar="NAME", help="Decides where to drop.")
    ] = "semantic",
    controllers: Annotated[
        str,
        typer.Option("--controller", metavar="NAMES", help="Decides how much; several (a,b,c) play the day once each."),
    ] = "deadline",
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Play the day without shedding first, to compare.")
    ] = True,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers as JSON.")] = None,
    figure: Annotated[Path, typer.Option("--figure", metavar="FILE.png", help="Where to draw both runs.")] = Path(
        "demo.png"
    ),
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
) -> None:
    """Play a day on the expressway, calm, then a burst of several times this machine's capacity, then calm, on Spark.

    First without shedding, then with: the same reports, the same queries. Takes about four minutes, of which the first
    two go into warming Java up and finding the capacity.
    """
    from rich.console import Console

    from streamshed.cli.day_figure import called, write_day_figure
    from streamshed.cli.examples import example_path
    from streamshed.cli.export import write_json
    from streamshed.cli.figure import check_figure
    from streamshed.cli.live import LiveView
    from streamshed.cli.quiet import quiet_start
    from streamshed.cli.tables import show
    from streamshed.control import BATCH_CONTROLLERS, controller_named
    from streamshed.engines.spark.session import session
    from streamshed.experiments.capacity import TARGET_S
    from streamshed.experiments.overload import CALIBRATION, CALM_LOAD, Day, find_capacity, play
    from streamshed.network import load_spec
    from streamshed.planning import planner_named
    from streamshed.workload.options import check_range

    check_range("demo", "--seconds", seconds, 10, 3600)
    check_range("demo", "--factor", factor, 1, 100)
    if target is not None:
        check_range("demo", "--target", target, 0.5, 600)
    check_figure(figure, 1.0)
    planner_named(planner)
    names = [name.strip() for name in controllers.split(",")]
    for name in names:
        controller_named(name, TARGET_S, among=BATCH_CONTROLLERS)
    console = Console()
    spec = load_spec(example_path("expressway"))
    # The JSON has `without` and `with`; further controllers are `with-NAME`.
    shedding = {_WITH if name == names[0] else f"{_WITH}-{name}": name for name in names}
    kinds = {**({_WITHOUT: None} if compare else {}), **shedding}
    directory = _scratch()
    try:
        console.print("Starting Spark")
        with quiet_start(directory / "spark.log"):
            settings = {"spark.sql.shuffle.partitions": "1", "spark.local.dir": str(directory)}
            spark = session(master, "streamshed-demo", settings)
        spark.sparkContext.setLogLevel("OFF")
        try:
            parts = 1 + len(CALIBRATION) + len(kinds)
            steps = _Steps(console, parts)
            capacity = find_capacity(spark, spec, target, directory, steps.begin)
            target_s = capacity.target_s
            steps.say(_describe(capacity))
            day = Day(CALM_LOAD * capacity.on_time_tps, factor * capacity.rate_tps, seconds)
            runs: dict[str, Run] = {}
            for kind, controller in kinds.items():
                steps.begin(f"playing the day {called(kind)}", seconds + 4)
                with LiveView(console, target_s, f"the expressway {called(kind)}") as view:
                    runs[kind] = play(
                        spark, spec, day, target_s, directory / kind, shed=controller is not None, planner=planner,
                        controller=controller or names[0], on_batch=view.show,
                    )  # fmt: skip
        finally:
            spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    show(console, _summary(runs))
    write_day_figure(runs, figure)
    console.print(f"Figure: {figure}", soft_wrap=True)
    if json_file is not None:
        document = {
            "capacity_tps": capacity.rate_tps,
            "fixed_s": capacity.fixed_s,
            "tuple_s": capacity.tuple_s,
            "factor": factor,
            "seconds": seconds,
            "planner": planner,
            "controllers": names,
            **{kind: run.summary().to_json() for kind, run in runs.items()},
        }
        write_json(json_file, document)


def _scratch() -> Path:
    """A directory for what nobody needs afterwards: in memory if possible, so that a slow disk does not matter."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM_BYTES
    return Path(tempfile.mkdtemp(prefix="streamshed-demo-", dir=memory if roomy else None))


class _Steps:
    """Says how far along it is."""

    def __init__(self, console: Console, parts: int) -> None:
        self._console = console
        self._parts = parts
        self._part = 0

    def begin(self, text: str, seconds: float) -> None:
        """The next part begins, and is going to take so long."""
        self._part += 1
        self.say(f"[{self._part}/{self._parts}] {text} (about {seconds:.0f} s)")

    def say(self, text: str) -> None:
        """A line of text."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _describe(capacity: Capacity) -> str:
    return (
        f"      a micro-batch takes {capacity.fixed_s:.2f} s and {1e6 * capacity.tuple_s:.1f} µs a report: this "
        f"machine's capacity is {capacity.rate_tps:,.0f} reports/s, and on time, within {capacity.target_s:g} s, "
        f"{capacity.on_time_tps:,.0f}/s"
    )


def _summary(runs: dict[str, Run]) -> Sheet:
    from streamshed.cli.day_figure import called
    from streamshed.cli.tables import Sheet

    of_runs = {kind: run.summary() for kind, run in runs.items()}
    table = Sheet().names("").numbers(*(called(kind) for kind in of_runs))
    rows: list[tuple[str, Callable[..., str]]] = [
        ("within the target", lambda s: f"{s.within_target:.1%}"),
        ("delay p50", lambda s: f"{s.p50_s:.2f} s"),
        ("delay p95", lambda s: f"{s.p95_s:.2f} s"),
        ("delay p99", lambda s: f"{s.p99_s:.2f} s"),
        ("arrived at readers", lambda s: f"{s.arrived:,}"),
        ("delivered", lambda s: f"{s.delivered:,}"),
        ("dropped", lambda s: f"{s.dropped:,}"),
        ("  before the burst", lambda s: f"{s.dropped_in_first_calm:,}"),
        ("last drop after the burst", lambda s: f"{s.drops_end_after_burst_s:.1f} s"),
        ("busy in the burst", lambda s: f"{s.busy_fraction:.0%}"),
    ]
    outputs = next(iter(of_runs.values())).utility
    rows += [(f"utility of {name}", lambda s, name=name: _utility(s.utility[name])) for name in outputs]
    for label, show in rows:
        table.add_row(label, *(show(summary) for summary in of_runs.values()))
    return table


def _utility(utility: float | None) -> str:
    return "unknown" if utility is None else f"{utility:.1%}"
