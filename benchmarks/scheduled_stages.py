"""Scheduling on Spark: three paths cut into stages, and a burst, under each strategy and the optimizer.

Latency is the mean delay of the tuples that the last stages worked on, with the 99th percentile of all. Bytes are
what waits at the sources and on the arcs or is being worked on, while tuples arrive. `held` is the share of the time in
which the watched output met its goal. `cost` is the time for decisions, as a share of the run. The day is played once
before all that, because Java has to warm up.

In the last run the goal is out of the reach of any strategy for a while, so that it comes to shedding; `held` still is
about the goal of the other runs.
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

EXAMPLE = Path(__file__).parents[1] / "examples" / "three-paths.yaml"
WATCHED, SHED = "alarms", "readings"
SHEDDING = "shedding"
TIGHT = ((0.0, 2.0), (15.0, 2.0), (15.0, 10.0))
"""A goal over time that no strategy can meet, up to about the end of the burst, and then one that any can."""

HEADING = ("scheduler", "all s", "p99 s", "held", "MB", "max MB", "dropped", "switches", "cost", "took s")


def run(console: Console, names: tuple[str, ...] = (SIDE_BY_SIDE, *STRATEGIES, OPTIMIZER, SHEDDING)) -> None:
    """Print a table."""
    spec = load_spec(EXAMPLE)
    outputs = [output.id for output in spec.network.outputs]
    table = Table(HEADING[0], *(f"{output} s" for output in outputs), *HEADING[1:], box=None)
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as place, temporary_session("local[2]") as spark:
        console.print("warming up …", style="dim")
        play(spark, spec, "round-robin", Burst(), Path(place) / "warm-up")
        for name in names:
            console.print(f"{name} …", style="dim", markup=False)
            of_run, scheduler = (with_goal(spec, WATCHED, *TIGHT), OPTIMIZER) if name == SHEDDING else (spec, name)
            found = play(spark, of_run, scheduler, Burst(), Path(place) / name, console.log)
            table.add_row(name, *_cells(found, outputs, goal_s(spec)))
            notes += _of_shedding(found, name)
    console.print(table)
    for note in notes:
        console.print(note, markup=False)


def goal_s(spec: Spec) -> float:
    """The latency that the watched output must have, at the start."""
    goals = next(output.qos.goals for output in spec.network.outputs if output.id == WATCHED)
    assert goals is not None
    return goals.measures[Measure.LATENCY].graph(0.0)


def _cells(found: Scheduled, outputs: list[str], limit_s: float) -> list[str]:
    latencies = [found.latency_s(output) for output in outputs]
    lost, arrived = found.dropped(SHED)
    return [
        *(f"{latency_s:.1f}" for latency_s in (*latencies, found.latency_s(), found.quantile_s(0.99))),
        f"{found.time_within(WATCHED, limit_s):.0%}",
        f"{found.mean_bytes / 1e6:.1f}",
        f"{found.peak_bytes / 1e6:.1f}",
        f"{lost / arrived:.1%}",
        str(sum(found.document.get("switches", {}).values())),
        f"{found.cost_share:.2%}",
        "not done" if found.done_s is None else f"{found.done_s - found.epoch_s:.0f}",
    ]


def _of_shedding(found: Scheduled, name: str) -> list[str]:
    """What the optimizer did, one thing after the other, and how much of a stream that was."""
    lines = []
    for at_s, decision in found.changes:
        shed = "sheds on " + ", ".join(decision.shedding) if decision.shedding else "sheds nothing"
        lines.append(
            f"{name}, {at_s - found.epoch_s:.1f} s, {decision.query}: {decision.after}, {shed}; {decision.reason}"
        )
    lost, arrived = found.dropped(SHED)
    if lost:
        share = found.dropped_while_shedding(SHED)
        lines.append(f"{name}: {lost} of {arrived} tuples of {SHED} dropped, {share:.2%} while it was shed")
    return lines
