"""Six queries on one overloaded Spark application: the same share for all, or what chance leaves them.

The rates of `examples/shared-cluster.yaml` are multiplied so that three times as much comes in as this machine can
process, however long its batches are. Both planners run on one warm Spark session, fair, random, fair, random.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from streamshed.engines.spark.session import temporary_session
from streamshed.experiments.shared import find_capacity, play
from streamshed.network import load_spec

EXAMPLE = Path(__file__).parents[1] / "examples" / "shared-cluster.yaml"
OVERLOAD = 3.0
SECONDS = 25.0
PLANNERS = ("fair", "input-random", "fair", "input-random")


def run(console: Console) -> None:
    """Print a table."""
    spec = load_spec(EXAMPLE)
    outputs = [output.id for output in spec.network.outputs]
    columns = (f"{output} SIC / on time" for output in outputs)
    table = Table("planner", "Jain", "mean SIC", "p95 s", "kept", *columns, box=None)
    with tempfile.TemporaryDirectory() as place, temporary_session("local[2]") as spark:
        found = find_capacity(
            spark,
            spec,
            None,
            Path(place),
            lambda what, seconds: console.print(f"{what} (about {seconds:.0f} s) …", style="dim"),
        )
        console.print(
            f"A micro-batch takes {found.fixed_s:.2f} s and {found.tuple_s:.2f} s for a second of the spec's load: "
            f"{found.rate_tps:.2f} times its rates can be processed, {found.on_time_tps:.2f} times within "
            f"{found.target_s:g} s. {OVERLOAD * found.rate_tps:.2f} times as much comes in."
        )
        for turn, planner in enumerate(PLANNERS):
            console.print(f"{planner} …", style="dim")
            got = play(spark, spec, found, OVERLOAD, SECONDS, Path(place) / str(turn), planner=planner)
            mean = sum(got.sic.values()) / len(got.sic)
            cells = (f"{got.sic[output]:.3f} / {got.within[output]:.1%}" for output in outputs)
            row = (f"{got.fairness:.4f}", f"{mean:.3f}", f"{got.p95_s:.2f}", f"{got.kept / got.arrived:.1%}")
            table.add_row(planner, *row, *cells)
            least = min(got.within.values())
            console.print(f"Jain {got.fairness:.4f}, 95 % within {got.p95_s:.2f} s, {least:.1%} on time", style="dim")
    console.print(table)
