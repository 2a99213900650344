"""What stages cost: the expressway as one query, as a query for each output, and with a durable arc in between.

All three get the same reports at the same steady rate, one after the other on one Spark session, and drop nothing. The
first one runs once more before that, and the first batches of each do not count, because Java has to warm up. What is
shown: how long a pass takes (a batch, or the sum along a chain of stages; of several outputs the slowest), how late
tuples are at the end, and the processor time of Java and its Python workers, which is where the work is.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from streamshed.cli.processes import cpu_s
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.session import temporary_session
from streamshed.experiments.overload import fed
from streamshed.network import Filter, Network, Spec, load_spec

RATE_TPS = 20_000
SECONDS = 45.0
WARM_UP_S = 20.0
EXAMPLE = Path(__file__).parents[1] / "examples" / "expressway.yaml"


@dataclass(frozen=True)
class Measured:
    """A way to run the network; medians over the passes that count."""

    pass_s: float
    delay_p50_s: float
    delay_p95_s: float
    batches: int
    cpu_share: float | None
    cpu_per_tuple_s: float | None


def run(console: Console) -> None:
    """Print a table."""
    spec = load_spec(EXAMPLE)
    marked = replace(spec, network=_marked(spec.network, "travelling"))
    ways = {
        "warm-up": (spec, False),
        "one query": (spec, False),
        "a query for each output": (spec, True),
        "`travelling` on a durable arc": (marked, False),
    }
    table = Table("stages", "pass s", "delay p50 s", "p95 s", "batches", "cores used", "µs per tuple", box=None)
    with tempfile.TemporaryDirectory() as place, temporary_session("local[2]") as spark:
        for number, (name, (of_way, per_output)) in enumerate(ways.items()):
            console.print(f"{name} …", style="dim", markup=False)
            found = _measure(spark, of_way, Path(place) / str(number), per_output=per_output)
            if number:
                cores = "" if found.cpu_share is None else f"{found.cpu_share:.2f}"
                each = "" if found.cpu_per_tuple_s is None else f"{found.cpu_per_tuple_s * 1e6:.1f}"
                times = (f"{value:.2f}" for value in (found.pass_s, found.delay_p50_s, found.delay_p95_s))
                table.add_row(name, *times, str(found.batches), cores, each)
    console.print(table)


def _marked(network: Network, operator: str) -> Network:
    """The network with an operator as a stage of its own, which both outputs read."""
    operators = [replace(op, stage=op.id == operator) for op in network.operators]
    moved = [replace(op, input=operator) if isinstance(op, Filter) and op.id == "slow" else op for op in operators]
    return replace(network, operators=tuple(moved))


def _measure(spark: SparkSession, spec: Spec, place: Path, *, per_output: bool) -> Measured:
    batches: list[NetworkBatch] = []
    options = {"pattern": "constant", "rate_tps": str(RATE_TPS), "epoch": f"{time.time() + 5:.3f}"}
    of_feed = fed(spec, options)
    with NetworkRunner(
        spark, of_feed, place, target_s=60.0, shed=False, per_output=per_output, on_batch=batches.append
    ) as runner:
        runner.start()
        time.sleep(WARM_UP_S)
        warm, before_s, begin_s = len(batches), cpu_s(itself=False), time.monotonic()
        time.sleep(SECONDS)
        took_s, used_s = time.monotonic() - begin_s, cpu_s(itself=False)
        counted = batches[warm:]
        if runner.failure is not None:
            raise runner.failure
    ends = [stage.id for stage in runner.stages if not stage.plan.is_durable]
    passes = {end: [batch.sample for batch in counted if batch.stage == end and batch.sample.arrived] for end in ends}
    slowest = max(passes.values(), key=lambda samples: statistics.median(sample.duration_s for sample in samples))
    share = None if used_s is None or before_s is None else (used_s - before_s) / took_s
    return Measured(
        statistics.median(sample.duration_s for sample in slowest),
        statistics.median(sample.delay_p50_s or 0.0 for sample in slowest),
        statistics.median(sample.delay_p95_s or 0.0 for sample in slowest),
        len(counted),
        share,
        None if share is None else share / RATE_TPS,
    )
