"""Batches along a chain of stages, counted as one."""

from __future__ import annotations

import math

import pytest

from streamshed.engines.spark.passes import Pass, SlowestWay, follow


def test_a_first_stage_begins_a_pass() -> None:
    done = follow({"s": 100, "t": 20}, [], duration_s=0.5, tuple_s=0.002, share=0.25)
    assert done.arrived == {"s": 100, "t": 20}
    assert done.tuples == 120
    assert (done.duration_s, done.full_s, done.worked_s) == pytest.approx((0.5, 0.24, 0.06))
    assert done.share == pytest.approx(0.25)


def test_batches_on_one_arc_add_up_and_the_longest_way_counts() -> None:
    one = Pass({"s": 100}, 1.0, 4.0, 2.0)
    two = Pass({"s": 50, "t": 10}, 2.0, 6.0, 3.0)
    other = Pass({"t": 40, "u": 5}, 2.5, 1.0, 1.0)
    done = follow({"u": 7}, [[one, two], [other]], duration_s=0.5, tuple_s=0.01, share=0.5)
    # `t` came on both arcs: 10 and 40 of the same tuples; `u` here and on an arc.
    assert done.arrived == {"s": 150, "t": 40, "u": 7}
    assert done.duration_s == pytest.approx(0.5 + 3.0)
    assert done.full_s == pytest.approx(0.01 * 197 + 11.0)
    assert done.worked_s == pytest.approx(0.01 * 197 * 0.5 + 6.0)
    assert done.share == pytest.approx((0.985 + 6) / (1.97 + 11))


def test_an_arc_without_passes_adds_nothing() -> None:
    done = follow({"s": 10}, [[]], duration_s=0.5, tuple_s=0.1, share=1.0)
    assert (done.duration_s, done.tuples, done.share) == (0.5, 10, 1.0)


def test_a_share_that_is_not_known_is_known_nowhere_after() -> None:
    first = follow({"s": 10}, [], duration_s=1.0, tuple_s=0.1, share=math.nan)
    last = follow({}, [[first]], duration_s=1.0, tuple_s=0.1, share=1.0)
    assert math.isnan(first.share)
    assert math.isnan(last.share)
    assert math.isnan(Pass(worked_s=math.nan).share)


def test_without_work_nothing_was_dropped() -> None:
    assert Pass().share == 1.0
    assert Pass().tuples == 0
    assert follow({}, [], duration_s=1.0, tuple_s=0.1, share=0.5).share == 1.0


def test_a_pass_whose_costs_are_not_known_has_all_its_work() -> None:
    assert follow({"s": 10}, [], duration_s=1.0, tuple_s=0.0, share=0.5).share == 1.0


def test_durations_are_smoothed_by_seven_to_three() -> None:
    slowest = SlowestWay()
    assert slowest.leads_to("a", 1.0)
    assert slowest.leads_to("b", 1.25)
    # a: 1.6 after 0.7 * 1 + 0.3 * 3.
    assert slowest.leads_to("a", 3.0)
    assert not slowest.leads_to("b", 2.0)  # 0.7 * 1.25 + 0.3 * 2 = 1.475
    assert slowest.leads_to("b", 2.0)  # 0.7 * 1.475 + 0.3 * 2 = 1.6325


def test_a_tie_leads() -> None:
    slowest = SlowestWay()
    assert slowest.leads_to("a", 1.0)
    assert slowest.leads_to("b", 1.0)


def test_a_duration_that_does_not_change_is_what_it_is() -> None:
    slowest = SlowestWay()
    assert all(slowest.leads_to("a", 1.0) for _ in range(20))
    assert slowest.leads_to("b", 1.01)
    assert not slowest.leads_to("c", 1.005)
