"""The numbers of a played day, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamshed.cli.day_figure import write_day_figure
from streamshed.control import LoadSample
from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.experiments.overload import Day, Run
from streamshed.network import Output
from streamshed.qos import LatencyGraph, Qos

DAY = Day(calm_tps=10, burst_tps=100, length_s=20)  # the burst is from 5 to 11 s
LATENCY = LatencyGraph.of([(0, 1), (2, 1), (4, 0)])
OUTPUTS = (Output("a", "x", Qos(latency=LATENCY)), Output("b", "x", Qos()))


def batch(start_s: float, end_s: float, arrived: int, kept: int, reader: int, delay_s: float) -> NetworkBatch:
    """A batch whose tuples all have one delay; of those that enter, the second reader drops some."""
    arrivals = (end_s - delay_s,) * 8
    counts = {
        "s": DropCounts(arrived, 0, kept, arrivals),
        "s->x": DropCounts(kept, 0, kept),
        "s->y": DropCounts(kept, 0, reader),
    }
    sample = LoadSample(end_s, end_s - start_s, arrived, kept, delay_p50_s=delay_s, delay_p99_s=delay_s)
    thresholds, of_loss = {"s": 1 - kept / arrived}, {"a": 0.5, "b": 1.0}
    utilities = {"a": 0.5 * LATENCY(delay_s), "b": 1.0 if delay_s <= 2 else 0.0}
    return NetworkBatch(
        sample, 0, start_s, counts, thresholds, 1.0, utilities, {}, "all outputs", arrived, utilities_of_loss=of_loss
    )


@pytest.fixture
def run() -> Run:
    day = Run(True, DAY, 2.0, 1000.0, ["s"], ["s->x", "s->y"], OUTPUTS)
    day.batches += [
        batch(1001, 1002, 10, 10, 10, 1.0),  # 20 delivered, all in time
        batch(1006, 1009, 100, 50, 30, 3.0),  # 80 delivered a second late, 120 dropped
        batch(1012, 1014, 100, 100, 100, 2.0),  # 200 delivered, just in time
    ]
    return day


def test_summary(run: Run) -> None:
    summary = run.summary()
    assert (summary.arrived, summary.delivered, summary.dropped) == (420, 300, 120)
    assert summary.within_target == pytest.approx(220 / 300)
    assert (summary.p50_s, summary.p99_s) == pytest.approx((2.0, 3.0))
    assert summary.violations_s == pytest.approx(80)
    assert summary.busy_fraction == pytest.approx(3 / 6)
    assert summary.dropped_in_first_calm == 0
    assert summary.drops_end_after_burst_s == pytest.approx(1009 - 1011)
    assert summary.utility["a"] == pytest.approx(0.5 * (10 + 100 * 0.5 + 100) / 210)
    assert summary.utility["b"] == pytest.approx((10 + 100) / 210), "without a graph what is late is worth nothing"
    assert json.loads(json.dumps(summary.to_json()))["delivered"] == 300


def test_drops_before_the_burst_are_counted(run: Run) -> None:
    run.batches.append(batch(1003, 1004, 10, 5, 5, 1.0))
    assert run.summary().dropped_in_first_calm == 10


def test_day() -> None:
    assert DAY.phases == "10:5, 100:6, 10:9"
    assert DAY.tuples == pytest.approx(10 * 14 + 100 * 6)


def test_figure(run: Run, tmp_path: Path) -> None:
    write_day_figure({"without": run, "with": run, "with-ctrl": run}, tmp_path / "day.png")
    assert (tmp_path / "day.png").stat().st_size > 20_000
