"""Scheduling on Spark: three paths cut into stages, and a burst, under each strategy and the optimizer.

Latency is the mean delay of the tuples that the last stages worked on. Bytes are what waits at the sources and on the
arcs or is being worked on, on average while tuples arrive. `on time` is the share of the first output's tuples within
its goal. A run before the first one does not count, because Java has to warm up.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from streamshed.engines.spark.session import temporary_session
from streamshed.experiments.scheduled_stages import SIDE_BY_SIDE, Burst, Scheduled, play, with_goal
from streamshed.network import Spec, load_spec
from streamshed.qos import Measure
from streamshed.scheduling import OPTIMIZER, STRATEGIES

EXAMPLE = Path(__file__).parents[1] / "examples" / "three_paths.yaml"
WARM_UP = Burst(8.0, 50.0, 1.0, 4.0)
WATCHED = "alarms"
OUT_OF_REACH = 0.6
"""Of the goal of the example: too little for any strategy, so that it comes to shedding."""


def run(console: Console, names: tuple[str, ...] = (SIDE_BY_SIDE, *STRATEGIES, OPTIMIZER, "shedding")) -> None:
    """Print a table."""
    spec = load_spec(EXAMPLE)
    outputs = [output.id for output in spec.network.outputs]
    heading = ("scheduler", *(f"{output} s" for output in outputs), "all s", "MB", "peak MB", "on time", "dropped")
    table = Table(*heading, "switches", "took s", box=None)
    with tempfile.TemporaryDirectory() as place, temporary_session("local[2]") as spark:
        console.print("warming up …", style="dim")
        play(spark, spec, "round-robin", WARM_UP, Path(place) / "warm-up")
        for name in names:
            console.print(f"{name} …", style="dim", markup=False)
            of_run, scheduler = (with_goal(spec, WATCHED, OUT_OF_REACH * goal_s(spec)), OPTIMIZER)
            if name != "shedding":
                of_run, scheduler = spec, name
            found = play(spark, of_run, scheduler, Burst(), Path(place) / name, console.log)
            table.add_row(name, *_cells(found, outputs, goal_s(of_run)))
    console.print(table)


def goal_s(spec: Spec) -> float:
    """The latency that the watched output must have, at the start."""
    goals = next(output.qos.goals for output in spec.network.outputs if output.id == WATCHED)
    assert goals is not None
    return goals.measures[Measure.LATENCY].graph(0.0)


def _cells(found: Scheduled, outputs: list[str], limit_s: float) -> list[str]:
    latencies = [found.latency_s(output) for output in outputs]
    done = "not done" if found.done_s is None else f"{found.done_s - found.epoch_s:.0f}"
    return [
        *(f"{latency_s:.2f}" for latency_s in (*latencies, found.latency_s())),
        f"{found.mean_bytes / 1e6:.1f}",
        f"{found.peak_bytes / 1e6:.1f}",
        f"{found.within(WATCHED, limit_s):.1%}",
        f"{found.dropped:.1%}",
        str(sum(found.document.get("switches", {}).values())),
        done,
    ]
