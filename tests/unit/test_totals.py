"""The sums over a run, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from streamshed.cli.totals import Totals
from streamshed.control import LoadSample
from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.network_batch import NetworkBatch


def batch(end_s: float, delays_s: tuple[float, float], *, kept: int = 80, arrived: int = 100) -> NetworkBatch:
    """Of tuples that were kept, a half has the one delay and a half the other; ten are malformed."""
    first, second = (end_s - delay_s for delay_s in delays_s)
    counts = DropCounts(arrived + 10, 10, kept, (first,) * 5 + (second,) * 3)
    return NetworkBatch(
        LoadSample(end_s, 0.5, arrived, kept), 0, end_s - 0.5, {"s": counts}, {}, kept / arrived, {}, {}, "all", arrived
    )


def totals(*batches: NetworkBatch, target_s: float = 2.0) -> Totals:
    found = Totals(target_s)
    for one in batches:
        found.add(one)
    return found


def test_nothing_is_known_before_the_first_batch() -> None:
    document = totals().to_json()
    assert (document["batches"], document["arrived"], document["seconds"]) == (0, 0, 0.0)
    for unknown in ("work_kept", "within_target", "p50_s", "p95_s", "p99_s", "jain", "out_of_reach"):
        assert document[unknown] is None
    assert document["arcs"] == document["utility"] == document["utility_of_loss"] == document["sic"] == {}


def test_a_batch_without_tuples_does_not_count() -> None:
    idle = replace(batch(10.0, (1.0, 1.0)), counts={"s": DropCounts(0, 0, 0)}, arrived=0)
    assert totals(idle).to_json() == totals().to_json()
    assert totals(idle).seconds == 0.0


def test_counts_are_added_up_by_arc() -> None:
    found = totals(batch(10.0, (1.0, 1.0)), batch(12.0, (1.0, 1.0), kept=30), batch(14.5, (1.0, 1.0), arrived=200))
    assert found.to_json()["arcs"] == {"s": {"arrived": 430, "malformed": 30, "delivered": 190, "dropped": 210}}
    assert (found.batches, found.arrived, found.seconds) == (3, 400, 5.0)


def test_work_is_weighted_by_tuples_and_unknown_shares_are_left_out() -> None:
    known = batch(10.0, (1.0, 1.0), kept=60), batch(11.0, (1.0, 1.0), kept=300, arrived=300)
    unknown = replace(batch(12.0, (1.0, 1.0), arrived=1000), load_share=math.nan)
    assert totals(*known).work_kept == pytest.approx(0.9)
    assert totals(*known, unknown).work_kept == pytest.approx(0.9)
    assert totals(unknown).work_kept is None


def test_delays_are_weighted_by_the_tuples_delivered() -> None:
    """A half of 80 tuples took 3 s, a quarter from 3 to 1 s, a quarter 1 s: three eighths were on time.

    By 50 points that is 19 of them, as the 19th is the last one within 2 s.
    """
    found = totals(batch(10.0, (3.0, 1.0), kept=80), batch(20.0, (1.5, 1.5), kept=20))
    assert found.timed == pytest.approx((100, 20 + 80 * 19 / 50))
    assert found.within_target == pytest.approx(0.504)
    assert found.delay_s(0.01) == pytest.approx(1.0, rel=0.011)
    assert found.delay_s(0.3) == pytest.approx(1.5, rel=0.011)
    assert found.delay_s(0.99) == pytest.approx(3.0, rel=0.011)


def test_the_summary_has_the_delays_of_50_95_and_99_per_cent() -> None:
    arrivals_s = tuple(100.0 - delay_s for delay_s in (8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0))
    spread = replace(batch(100.0, (1.0, 1.0)), counts={"s": DropCounts(100, 0, 100, arrivals_s)})
    document = totals(spread).to_json()
    # of those that came first 1, 5 and 50 % have delays of 6, 5 and 3 s and more; by 50 points, the last one at 1 %
    assert document["p50_s"] == pytest.approx(3.0, rel=0.02)
    assert document["p95_s"] == pytest.approx(5.0, rel=0.05)
    assert document["p99_s"] == pytest.approx(6.0, rel=0.011)
    assert document["p99_s"] == totals(spread).delay_s(1.0)


def test_a_delay_of_just_the_target_is_on_time() -> None:
    for target_s, share in ((1.4, 0.0), (1.5, 1.0), (2.0, 1.0)):
        assert totals(batch(20.0, (1.5, 1.5)), target_s=target_s).within_target == pytest.approx(share)


def test_tuples_whose_arrival_nobody_knows_have_no_delay() -> None:
    unknown = replace(batch(10.0, (9.0, 9.0)), counts={"s": DropCounts(1000, 0, 1000)})
    assert totals(unknown).within_target is None
    assert totals(unknown, batch(20.0, (1.5, 1.5))).timed == pytest.approx((80, 80))


def test_delays_beyond_a_hundred_thousand_seconds_are_told_as_that() -> None:
    assert totals(batch(2e6, (1e6, 1e6))).delay_s(0.5) == pytest.approx(1e5)


def test_fairness_is_that_of_several_outputs() -> None:
    assert Totals(2.0, sic={"a": 0.5, "b": 0.5}).jain == pytest.approx(1.0)
    assert Totals(2.0, sic={"a": 1.0, "b": 0.0}).jain == pytest.approx(0.5)
    assert Totals(2.0, sic={"a": 0.5}).jain is None
