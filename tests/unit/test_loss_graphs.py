"""Graphs of utility: what they say between, at and beyond their knees, and which are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError
from streamshed.qos import LatencyGraph, LossGraph, PiecewiseLinear, Qos
from tests.strategies import latency_graphs, loss_graphs

# --- lines -----------------------------------------------------------------------------------------------------------


def test_a_graph_is_straight_between_its_knees_and_level_beyond_them() -> None:
    graph = PiecewiseLinear.of([(-1, 4), (1, 8), (5, 0), (6, 3)])
    asked = (-9, -1, -0.5, 0, 1, 2, 4, 5, 5.5, 6, 99)
    assert [graph(x) for x in asked] == [4, 4, 5, 6, 8, 6, 2, 0, 1.5, 3, 3]
    assert graph.slopes == (2, -2, 3)
    assert graph.points == ((-1, 4), (1, 8), (5, 0), (6, 3))


@given(loss_graphs(), st.floats(0, 1), st.floats(0, 1))
def test_a_graph_says_what_numpy_says(loss: LossGraph, x: float, y: float) -> None:
    assert loss(x) == pytest.approx(np.interp(x, loss.graph.xs, loss.graph.ys), abs=1e-12)
    # And concave: a loss half as large costs at most half as much as two of them.
    assert loss((x + y) / 2) >= (loss(x) + loss(y)) / 2 - 1e-9
    assert (loss(x) - loss(y)) * (x - y) >= -1e-9, "it never falls"


@pytest.mark.parametrize(
    ("points", "what"),
    [
        ([], "at least two"),
        ([(0, 0)], "at least two"),
        ([(0, 0), (1, 1, 1)], "not a point"),
        ([(0, 0), (1,)], "not a point"),
        ([(0, 0), (1, math.inf)], "not a point"),
        ([(math.nan, 0), (1, 1)], "not a point"),
        ([(0, 0), (0, 1)], "left to right"),
        ([(0, 0), (1, 1), (0.5, 0.5)], "left to right"),
    ],
)
def test_points_that_make_no_graph_are_refused(points: list[tuple[float, ...]], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        PiecewiseLinear.of(points)


@pytest.mark.parametrize(
    ("points", "concave"),
    [
        ([(0, 0), (1, 5)], True),
        ([(0, 0), (1, 2), (3, 4), (4, 4)], True),
        ([(0, 0), (1, 1), (3, 3)], True),
        ([(0, 4), (1, 3), (2, 0)], True),
        ([(0, 0), (1, 1), (2, 3)], False),
        ([(0, 0), (2, 2), (3, 4), (4, 4)], False),
        ([(0, 0), (1, 2), (2, 3), (4, 6)], False),  # only at the last knee
        ([(0, 3), (1, 0), (2, 0)], False),
    ],
)
def test_a_graph_is_concave_where_no_piece_is_steeper_than_the_one_before(
    points: list[tuple[float, float]], concave: bool
) -> None:
    assert PiecewiseLinear.of(points).is_concave is concave


@pytest.mark.parametrize(
    ("left", "knee", "right"), [(0, 0.1, 1), (0, 0.5, 1), (0, 0.9, 1), (0, 25, 100), (50, 50.25, 50.5)]
)
def test_a_knee_may_be_below_the_line_by_rounding(left: float, knee: float, right: float) -> None:
    """By 1e-9, wherever it is: the slopes of narrow pieces tell more of the rounding than of the graph."""
    for below, concave in ((0.9e-9, True), (1.1e-9, False)):
        assert PiecewiseLinear.of([(left, left), (knee, knee - below), (right, right)]).is_concave is concave


def test_the_mean_over_a_range_is_the_area_below_by_its_width() -> None:
    graph = PiecewiseLinear.of([(-1, 4), (1, 8), (5, 0), (6, 3)])
    assert graph.mean(-1, 1) == pytest.approx(6)
    assert graph.mean(-3, 1) == pytest.approx((2 * 4 + 2 * 6) / 4), "level before the first knee"
    assert graph.mean(0, 6) == pytest.approx((7 + 16 + 1.5) / 6)
    assert graph.mean(2, 2.5) == pytest.approx(5.5)
    assert graph.mean(5.5, 8.5) == pytest.approx((0.5 * 2.25 + 2.5 * 3) / 3)
    assert graph.mean(2, 2) == 6
    assert graph.mean(2, 1) == 6, "no range at all"


@given(loss_graphs(), st.floats(-1, 2), st.floats(0.01, 2), st.floats(0.01, 0.99))
def test_means_over_two_parts_make_the_mean_over_both(loss: LossGraph, low: float, width: float, part: float) -> None:
    middle, high = low + part * width, low + width
    parts = part * loss.graph.mean(low, middle) + (1 - part) * loss.graph.mean(middle, high)
    assert loss.graph.mean(low, high) == pytest.approx(parts, abs=1e-9)
    assert loss(low) - 1e-9 <= loss.graph.mean(low, high) <= loss(high) + 1e-9


# --- loss and latency ------------------------------------------------------------------------------------------------


def test_with_nothing_said_every_tuple_is_worth_the_same() -> None:
    assert LossGraph.linear().graph.points == ((0.0, 0.0), (1.0, 1.0))
    assert LossGraph.linear()(0.3) == 0.3


def test_a_loss_graph_may_be_level_and_need_not_begin_at_nothing() -> None:
    graph = LossGraph.of([(0, 0.5), (0.4, 1), (1, 1)])
    assert [graph(delivered) for delivered in (0, 0.2, 0.4, 0.7, 1)] == [0.5, 0.75, 1, 1, 1]
    assert LossGraph.of([(0, 0), (1, 0)])(0.5) == 0.0


@pytest.mark.parametrize(
    ("points", "what"),
    [
        ([(0, 0), (0.5, 1.1), (1, 1.2)], "utility is out of range"),
        ([(0, -0.1), (1, 1)], "utility is out of range"),
        ([(0.1, 0), (1, 1)], "all delivered fractions"),
        ([(-0.1, 0), (1, 1)], "all delivered fractions"),
        ([(0, 0), (0.9, 1)], "all delivered fractions"),
        ([(0, 0), (1.1, 1)], "all delivered fractions"),
        ([(0, 0), (0.5, 1), (1, 0.9)], "must not fall"),
        ([(0, 0), (0.5, 0.4), (1, 1)], "must be concave"),
    ],
)
def test_bad_loss_graphs_are_refused(points: list[tuple[float, float]], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        LossGraph.of(points)


def test_a_loss_graph_may_fall_by_rounding() -> None:
    assert LossGraph.of([(0, 0), (0.5, 1), (1, 1 - 0.9e-9)])(1) < 1
    with pytest.raises(InvalidValueError, match="must not fall"):
        LossGraph.of([(0, 0), (0.5, 1), (1, 1 - 1.1e-9)])


@pytest.mark.parametrize("kind", [LossGraph, LatencyGraph])
def test_per_cent_are_told_from_fractions(kind: type[LossGraph | LatencyGraph]) -> None:
    points = [(0, 0), (1, 100)] if kind is LossGraph else [(0, 100), (1, 0)]
    with pytest.raises(InvalidValueError, match="not per cent"):
        kind.of(points)
    with pytest.raises(InvalidValueError) as caught:
        kind.of([(0, -1), (1, -1)])
    assert "per cent" not in str(caught.value), "a negative utility is something else"


def test_delivery_in_per_cent_is_told() -> None:
    with pytest.raises(InvalidValueError, match="not per cent"):
        LossGraph.of([(0, 0), (100, 1)])
    with pytest.raises(InvalidValueError) as caught:
        LossGraph.of([(0, 0), (0.9, 1)])
    assert "per cent" not in str(caught.value)


def test_a_latency_graph_is_level_or_falls() -> None:
    graph = LatencyGraph.of([(0, 1), (2, 1), (4, 0.25)])
    assert [graph(delay_s) for delay_s in (0, 2, 3, 4, 60)] == [1, 1, 0.625, 0.25, 0.25]
    assert LatencyGraph.of([(0, 0.5), (1, 0.5 + 0.9e-9)])(1) > 0.5
    for points, what in (
        ([(0, 0.5), (1, 0.5 + 1.1e-9)], "must not rise"),
        ([(0, 1), (1, 0.2), (2, 0.3)], "must not rise"),
        ([(-1, 1), (1, 0)], "delay is negative"),
        ([(0, 1.1), (1, 0)], "utility is out of range"),
    ):
        with pytest.raises(InvalidValueError, match=what):
            LatencyGraph.of(points)
    assert LatencyGraph.of([(0.5, 1), (1, 0)])(0) == 1


@given(latency_graphs(), st.floats(0, 40), st.floats(0, 40))
def test_later_is_never_better(graph: LatencyGraph, one_s: float, other_s: float) -> None:
    assert graph(max(one_s, other_s)) <= graph(min(one_s, other_s)) + 1e-9


# --- an output's quality of service ----------------------------------------------------------------------------------


def test_with_nothing_said_an_output_counts_once_and_has_no_share_of_its_own() -> None:
    assert (Qos().weight, Qos().least_share) == (1.0, 0.0)
    assert (Qos().latency, Qos().loss, Qos().value, Qos().goals) == (None, None, None, None)


@pytest.mark.parametrize(
    ("given_as", "what"),
    [
        ({"weight": 0.0}, "weight"),
        ({"weight": -1.0}, "weight"),
        ({"weight": math.inf}, "weight"),
        ({"weight": math.nan}, "weight"),
        ({"least_share": -0.01}, "share"),
        ({"least_share": 1.01}, "share"),
        ({"least_share": math.nan}, "share"),
    ],
)
def test_a_bad_weight_or_share_is_refused(given_as: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        Qos(**given_as)


def test_any_positive_weight_and_any_share_will_do() -> None:
    assert Qos(weight=0.01, least_share=0.0).weight == 0.01
    assert Qos(least_share=1.0).least_share == 1.0
