"""Fair shares on Spark: several outputs over shared and separate streams, and what each of them gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import NetworkRunner
from streamshed.load import Admission
from streamshed.network import Spec, parse_spec
from streamshed.planning import FairPlanner
from streamshed.planning.fair import ObservedSic, jain_index

KEPT = 0.4
BATCHES = 4

SPEC = """\
name: several
streams:
  cars:
    columns: {{ts: timestamp, car: bigint, speed: double, segment: int}}
    time: ts
    source: {{format: feeder, options: {{generator: expressway, seed: 1, {fast}}}}}
  east: {{columns: {{id: bigint, value: double}}, source: {{format: feeder, options: {{seed: 2, {slow}}}}}}}
  west: {{columns: {{id: bigint, value: double}}, source: {{format: feeder, options: {{seed: 3, {slow}}}}}}}
operators:
  slow: {{type: filter, input: cars, where: speed < 20}}
  traffic: {{type: aggregate, input: cars, window_s: 30, group_by: [segment], aggregates: {{n: count()}}}}
  both: {{type: union, inputs: [east, west]}}
  high: {{type: filter, input: both, where: value > 90}}
  sealed: {{type: map, input: west, select: {{seal: "sha2(cast(id AS string), 256)"}}}}
outputs:
  accidents: {{input: slow, sink: {{format: noop}}}}
  tolls: {{input: traffic, sink: {{format: noop}}}}
  alarms: {{input: high, sink: {{format: noop}}}}
  audit: {{input: sealed, sink: {{format: noop}}}}
statistics:
  costs: {{slow: 1.0e-6, traffic: 5.0e-6, both: 0.5e-6, high: 1.0e-6, sealed: 10.0e-6}}
  selectivities: {{slow: 0.07, traffic: 1.0e-3, high: 0.1}}
rates: {{cars: 8000, east: 4000, west: 4000}}
"""


def several() -> Spec:
    """Fed with a fixed number of tuples in batches of fixed sizes, as fast as it goes."""

    def options(rows: int) -> str:
        return f"rate_tps: {rows}, paced: false, rows: {rows * BATCHES}, maxRowsPerBatch: {rows}, epoch: 1700000000"

    return parse_spec(SPEC.format(fast=options(8000), slow=options(4000)))


class Overloaded(Controller):
    """Sees an overload whatever happens."""

    target_s = 2.0

    def observe(self, sample: LoadSample) -> None:
        pass

    def admit(self, outlook: Outlook) -> Admission:
        return Admission(KEPT, keep=KEPT)


def run(spark: SparkSession, directory: Path, *, shed: bool) -> list[NetworkBatch]:
    batches: list[NetworkBatch] = []
    runner = NetworkRunner(
        spark,
        several(),
        directory,
        target_s=2.0,
        planner=FairPlanner(),
        controller=Overloaded(),
        shed=shed,
        on_batch=batches.append,
    )
    with runner:
        runner.start()
        runner.process_all_available()
    return [batch for batch in batches if batch.sample.arrived]


def sic_under_drops(batches: list[NetworkBatch]) -> dict[str, float]:
    """Of the batches that came after the first decision."""
    obeyed = [batch for batch in batches if any(batch.thresholds.values())]
    assert obeyed, "the thresholds came too late for every batch"
    sic = ObservedSic(several().network)
    for batch in obeyed:
        sic.observe(0.0, {arc: (count.arrived - count.malformed, count.kept) for arc, count in batch.counts.items()})
    return sic.overall()


def test_without_shedding_every_output_has_all_of_its_information(spark: SparkSession, tmp_path: Path) -> None:
    batches = run(spark, tmp_path, shed=False)
    assert sum(batch.sample.arrived for batch in batches) == 16_000 * BATCHES
    for batch in batches:
        assert batch.sic == {"accidents": 1.0, "tolls": 1.0, "alarms": 1.0, "audit": 1.0}


def test_a_fair_plan_takes_the_same_share_from_every_output(spark: SparkSession, tmp_path: Path) -> None:
    fair = sic_under_drops(run(spark, tmp_path, shed=True))
    assert fair == pytest.approx(dict.fromkeys(fair, KEPT), abs=0.03)
    assert len(fair) == 4
    assert jain_index(list(fair.values())) >= 0.98
