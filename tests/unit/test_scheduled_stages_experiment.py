"""What is made of the record of a scheduled run; no Spark."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from streamshed.experiments.scheduled_stages import Burst, Scheduled, fed, scaled
from streamshed.network import load_spec

RUN = Scheduled(
    "segment",
    epoch_s=100.0,
    length_s=10.0,
    delays={
        "alarms": [(102.0, 1.0, 30.0), (102.0, 2.0, 30.0), (110.0, 6.0, 20.0), (112.0, 2.0, 20.0)],
        "audit": [(105.0, 9.0, 100.0)],
    },
    held=[(100.0, 1e6), (109.0, 3e6), (111.0, 9e6)],
    drops={"readings": [(102.0, 100, 0), (104.0, 200, 60), (106.0, 100, 30), (108.0, 50, 0)]},
    document={"deciding_s": 0.02, "optimizing_s": 0.1},
    done_s=112.0,
)


def test_latencies_are_weighted_by_tuples() -> None:
    assert RUN.latency_s("alarms") == pytest.approx((30 * 1 + 30 * 2 + 20 * 6 + 20 * 2) / 100)
    assert RUN.latency_s() == pytest.approx((250 + 900) / 200)
    assert RUN.quantile_s(0.8, "alarms") == 2.0
    assert RUN.quantile_s(0.99) == 9.0
    assert RUN.within("alarms", 2.0) == pytest.approx(0.8)
    assert math.isnan(RUN.latency_s("other"))
    assert math.isnan(RUN.quantile_s(0.5, "other"))


def test_a_goal_is_missed_for_as_long_as_a_late_batch_takes_to_come() -> None:
    assert RUN.time_within("alarms", 5.0) == pytest.approx((2 + 2) / 12)
    assert RUN.time_within("alarms", 6.0) == 1.0
    assert math.isnan(RUN.time_within("other", 1.0))


def test_bytes_drops_and_the_cost_of_decisions() -> None:
    assert RUN.mean_bytes == 2e6, "while tuples arrive"
    assert RUN.peak_bytes == 9e6
    assert RUN.dropped("readings") == (90, 450)
    assert RUN.dropped_while_shedding("readings") == pytest.approx(0.3)
    assert RUN.dropped_while_shedding("tickets") == 0.0
    assert RUN.cost_share == pytest.approx(0.12 / 12)
    assert RUN.to_json()["done_s"] == 12.0


def test_a_burst_of_one_stream_leaves_the_others_as_they_are() -> None:
    spec = load_spec(Path(__file__).parents[2] / "examples" / "three-paths.yaml")
    network = fed(spec, Burst(5, 10, 4, 6, only="readings"), 100.0).network
    phases = {stream.id: stream.source.options["phases"] for stream in network.streams if stream.source is not None}
    assert phases == {
        "readings": "8000:5, 32000:10, 8000:6",
        "tickets": "3500:5, 3500:10, 3500:6",
        "reports": "3000:5, 3000:10, 3000:6",
    }


def test_a_faster_machine_gets_more_and_takes_more_at_a_time() -> None:
    spec = load_spec(Path(__file__).parents[2] / "examples" / "three-paths.yaml")
    twice = scaled(spec, 2.0)
    assert twice.rates == {"readings": 16000, "tickets": 7000, "reports": 6000}
    most = [stream.source.options["maxRowsPerBatch"] for stream in twice.network.streams if stream.source is not None]
    assert most == ["90000", "48000", "30000"]
