"""A network of whose operators no cost is known sheds like any other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.load import Admission
from streamshed.network import parse_spec
from streamshed.planning import RoadMapPlanner

SPEC = """\
name: costless
streams:
  readings:
    columns: {id: bigint, value: double}
    source:
      format: feeder
      options: {rate_tps: 1000, paced: false, rows: 12000, maxRowsPerBatch: 2000, epoch: 1700000000}
operators:
  high: {type: filter, input: readings, where: value > 50}
  low: {type: filter, input: readings, where: value < 50}
outputs:
  highs: {input: high, sink: {format: noop}}
  lows: {input: low, sink: {format: noop}}
rates: {readings: 1000}
"""


class Half(Controller):
    """Asks for half of the work."""

    name = "half"

    def observe(self, sample: LoadSample) -> None:
        pass

    def admit(self, outlook: Outlook) -> Admission:
        return Admission(0.5, keep=0.5)


def test_half_of_the_work_is_shed_where_no_cost_is_known(spark: SparkSession, tmp_path: Path) -> None:
    batches: list[NetworkBatch] = []
    runner = NetworkRunner(
        spark,
        parse_spec(SPEC),
        tmp_path,
        target_s=2.0,
        planner=RoadMapPlanner(),
        controller=Half(),
        on_batch=batches.append,
    )
    (note,) = runner.notes
    assert note.startswith("No cost is known of: high, low; believed to cost the same each.")
    with runner:
        runner.start()
        runner.process_all_available()
    shed = [batch for batch in batches if batch.load_share == pytest.approx(0.5)]
    assert shed, "before, nothing was ever dropped"
    for batch in shed:
        delivered = sum(batch.counts[f"readings->{name}"].kept for name in ("high", "low"))
        assert delivered == pytest.approx(0.5 * 2 * batch.counts["readings"].arrived, rel=0.1)
    assert replace(runner.spec.statistics, costs={}, believed=frozenset()) == parse_spec(SPEC).statistics
