"""What it saves to drop texts ahead of parsing them (late deserialisation).

Lines of JSON from files, six fields each, go through a filter. A fixed share of them is dropped at the entry: once as
they come, once after they have been parsed, in turn on one Spark session. The first batches of a turn do not count,
and medians are compared.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.engines.spark.connectors import read_stream
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.engines.spark.session import temporary_session
from streamshed.load import Admission
from streamshed.network import Spec, parse_spec
from streamshed.planning import InputRandom

ROWS = 200_000
"""In a batch, which is a file."""
FILES = 10
KEPT = (1.0, 2 / 3, 1 / 3, 0.1)
ROUNDS = 2

_FIRST = 3  # batches of a turn that do not count
_SPEC = """\
name: parsing
streams:
  reports:
    columns: {{ts: timestamp, car: bigint, speed: double, lane: int, segment: int, position: int}}
    source: {{format: text, options: {{path: "{path}", maxFilesPerTrigger: 1}}}}
operators: {{slow: {{type: filter, input: reports, where: speed < 20}}}}
outputs: {{accidents: {{input: slow, sink: {{format: noop}}}}}}
statistics: {{costs: {{slow: 5.0e-6}}, selectivities: {{slow: 0.2}}}}
rates: {{reports: 100000}}
"""


class _Keep(Controller):
    """Keeps the same share of the work in every batch."""

    target_s = 2.0

    def __init__(self, kept: float) -> None:
        self._kept = kept

    def observe(self, sample: LoadSample) -> None:
        """Whatever it took."""

    def admit(self, outlook: Outlook) -> Admission:  # noqa: ARG002
        return Admission(self._kept, keep=self._kept)


def run(console: Console) -> None:
    """Print a table."""
    table = Table("kept", "parsed first s", "dropped first s", "ratio", box=None)
    with tempfile.TemporaryDirectory() as place, temporary_session("local[2]") as spark:
        texts = Path(place) / "texts"
        _write(texts)
        spec = parse_spec(_SPEC.format(path=texts.as_uri()))
        console.print("warm-up …", style="dim")
        _turn(spark, spec, Path(place) / "warm-up", KEPT[0], late=True)
        for kept in KEPT:
            found: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(2 * ROUNDS):
                late = turn % 2 == 1
                console.print(f"keep {kept:.0%}, {'dropped' if late else 'parsed'} first …", style="dim")
                found[late] += _turn(spark, spec, Path(place) / f"{kept}-{turn}", kept, late=late)
            early_s, late_s = statistics.median(found[False]), statistics.median(found[True])
            table.add_row(f"{kept:.0%}", f"{early_s:.3f}", f"{late_s:.3f}", f"{late_s / early_s:.2f}")
    console.print(table)


def _turn(spark: SparkSession, spec: Spec, place: Path, kept: float, *, late: bool) -> list[float]:
    """The durations of batches that obeyed."""
    batches: list[NetworkBatch] = []
    with NetworkRunner(
        spark,
        spec,
        place,
        target_s=60.0,
        planner=InputRandom(),
        controller=_Keep(kept),
        read=None if late else lambda stream: read_stream(spark, stream),
        on_batch=batches.append,
    ) as runner:
        runner.start()
        runner.process_all_available()
        time.sleep(0.2)  # the last report comes a little later
    counted = [batch for batch in batches if batch.sample.arrived][_FIRST:]
    return [batch.sample.duration_s for batch in counted if (kept == 1) != any(batch.thresholds.values())]


def _write(directory: Path) -> None:
    directory.mkdir()
    generator = np.random.default_rng(1)
    for file in range(FILES):
        cars, speeds = generator.integers(0, 100_000, ROWS), generator.uniform(0, 100, ROWS)
        lanes, feet = generator.integers(0, 5, ROWS), generator.integers(0, 528_000, ROWS)
        lines = [
            f'{{"ts":"2024-01-01T00:{file:02d}:00","car":{car},"speed":{speed:.2f},"lane":{lane},'
            f'"segment":{at // 5280},"position":{at}}}'
            for car, speed, lane, at in zip(cars, speeds, lanes, feet, strict=True)
        ]
        (directory / f"{file:03d}.txt").write_text("\n".join(lines) + "\n")
