"""Scheduling on Spark: three paths cut into stages, and a burst, under each strategy and the optimizer.

Latency is the mean delay of the tuples that the last stages worked on, with the 99th percentile of all. Bytes are
what waits at the sources and on the arcs or is being worked on, while tuples arrive. `held` is the share of the time in
which the watched output met its goal. `cost` is the time for decisions, as a share of the run. Every run is told of
when it is over.

Rates go by what this machine can do: it is flooded some times, because Java has to warm up. All is run twice, the
second time in reverse, so that who comes later has no advantage.

In the last run only the stream of the watched output has a burst, which is more than the machine can do: no strategy
can meet the goal while that lasts, so that it comes to shedding, and when it is over it can be met again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from streamshed.engines.spark.session import SparkSession, temporary_session
from streamshed.experiments.scheduled_stages import SIDE_BY_SIDE, Burst, Scheduled, capacity, play, scaled
from streamshed.network import Spec, load_spec
from streamshed.qos import Measure
from streamshed.scheduling import OPTIMIZER, STRATEGIES

EXAMPLE = Path(__file__).parents[1] / "examples" / "three-paths.yaml"
WATCHED, SHED = "alarms", "readings"
SHEDDING = "shedding"
CALM, BURST = 0.4, 1.8
"""How much comes, as a share of what the machine can do."""
DAY = Burst(factor=BURST / CALM)
OUT_OF_REACH = Burst(burst_s=8.0, factor=15.0, after_s=35.0, only=SHED)
"""Readings take a fifth of the work at the rates of the spec: so many, and the rest, are 1.5 times what the machine can
do."""
_FLOODS = 6

HEADING = ("all s", "p99 s", "held", "MB", "max MB", "dropped", "switches", "cost", "took s")


def run(console: Console, names: Sequence[str] = (SIDE_BY_SIDE, *STRATEGIES, OPTIMIZER)) -> None:
    """Print a table, row by row."""
    spec = load_spec(EXAMPLE)
    outputs = [output.id for output in spec.network.outputs]
    heading = ("scheduler", *(f"{output} s" for output in outputs), *HEADING)
    with tempfile.TemporaryDirectory() as directory, temporary_session("local[2]") as spark:
        place = Path(directory)
        console.print("warming up …", style="dim")
        spec = scaled(spec, CALM * _capacity(console, spark, spec, place))
        console.print(", ".join(f"{rate:.0f} {stream}/s" for stream, rate in spec.rates.items()))
        console.print(_line(heading, heading), markup=False, soft_wrap=True)
        for number, name in enumerate((*names, *reversed(names), SHEDDING)):
            scheduler, burst = (OPTIMIZER, OUT_OF_REACH) if name == SHEDDING else (name, DAY)
            found = play(spark, spec, scheduler, burst, place / f"{number}")
            row = _line((name, *_cells(found, outputs, goal_s(spec))), heading)
            console.print(row, markup=False, soft_wrap=True)
            for note in _of_optimizer(found):
                console.print(f"  {note}", markup=False, soft_wrap=True)


def _capacity(console: Console, spark: SparkSession, spec: Spec, place: Path) -> float:
    """How many times the rates of the spec this machine can process, once Java is warm, which takes minutes."""
    found = 0.0
    for number in range(_FLOODS):
        found = capacity(spark, spec, place / f"flood-{number}")
        console.print(f"{found:.2f} times the rates of the spec can be processed", style="dim")
    return found


def goal_s(spec: Spec) -> float:
    """The latency that the watched output must have, at the start."""
    goals = next(output.qos.goals for output in spec.network.outputs if output.id == WATCHED)
    assert goals is not None
    return goals.measures[Measure.LATENCY].graph(0.0)


def _line(cells: Sequence[str], heading: Sequence[str]) -> str:
    """A row of the table that is printed before the others are known."""
    first, *others = cells
    return f"{first:<20}" + "".join(
        f"  {cell:>{max(6, len(title))}}" for cell, title in zip(others, heading[1:], strict=True)
    )


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


def _of_optimizer(found: Scheduled) -> list[str]:
    """What the optimizer did, one thing after the other, and how much of a stream was shed."""
    lines = []
    for at_s, decision in found.changes:
        shed = "sheds on " + ", ".join(decision.shedding) if decision.shedding else "sheds nothing"
        lines.append(f"{at_s - found.epoch_s:.1f} s, {decision.query}: {decision.after}, {shed}; {decision.reason}")
    lost, arrived = found.dropped(SHED)
    if lost:
        share = found.dropped_while_shedding(SHED)
        lines.append(f"{lost} of {arrived} tuples of {SHED} dropped, {share:.2%} while it was shed")
    return lines
