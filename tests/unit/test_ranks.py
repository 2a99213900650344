"""Orders of values and the thresholds that carry plans out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.engines.sim.values import order_rank
from streamshed.planning.base import Drop, DropPlan, ValueRange
from streamshed.planning.ranks import KNOWN, LEVELS, RankedLocation, ranked_order, thresholds, value_order
from streamshed.qos import Cell, Histogram, ValueGraph

LOW, MIDDLE, HIGH = Cell(0, 10), Cell(10, 20), Cell(20, 30)


def written(threshold: float) -> float:
    """As the control line holds it."""
    return math.floor(threshold * LEVELS + 0.5) / LEVELS


def place(*shares: float, unknown: float = 0.0, inner_order: bool = True) -> RankedLocation:
    order = ranked_order(list(zip((LOW, MIDDLE, HIGH), shares, strict=True)), inner_order=inner_order)
    return RankedLocation("s", "v", order, unknown)


def test_cells_have_whole_steps_in_proportion_to_their_shares() -> None:
    order = place(0.5, 0.25, 0.25).order
    assert [LEVELS * one.start for one in order] == [0, 120, 180]
    assert [LEVELS * one.width for one in order] == [120, 60, 60]


def test_a_cell_with_hardly_any_tuples_has_a_step_of_its_own() -> None:
    order = place(1e-9, 1 - 2e-9, 1e-9).order
    assert [LEVELS * one.width for one in order] == [1, 238, 1]


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=60))
def test_steps_are_whole_and_add_up(weights: list[float]) -> None:
    cells = [(Cell(i, i + 1), weight / sum(weights)) for i, weight in enumerate(weights)]
    order = ranked_order(cells)
    steps = [LEVELS * one.width for one in order]
    assert all(step == int(step) >= 1 for step in steps)
    assert sum(steps) == LEVELS * KNOWN
    assert [one.start for one in order] == pytest.approx(np.cumsum([0.0, *steps[:-1]]) / LEVELS, abs=0)
    shares = [share for _, share in cells]
    assert all(abs(step - 240 * share) <= len(cells) for step, share in zip(steps, shares, strict=True))


def test_more_cells_than_steps_share_steps() -> None:
    order = ranked_order([(Cell(i, i + 1), 1 / 300) for i in range(300)])
    assert sum(one.width for one in order) == pytest.approx(KNOWN)
    assert order[-1].start + order[-1].width == pytest.approx(KNOWN)


@given(st.floats(0.001, 0.999), st.integers(0, 2**32 - 1))
def test_giving_up_a_cell_takes_nothing_of_the_next_one(share: float, seed: int) -> None:
    """Thresholds are rounded; what is worth more must not pay for it (0.3 % of the valuable tuples did)."""
    location = RankedLocation("s", "v", ranked_order([(LOW, share), (HIGH, 1 - share)]))
    plan = DropPlan("p", (Drop("s", share, share, (ValueRange(LOW, 1.0), ValueRange(HIGH, 0.0)), "v"),), (), 1, 1, 1)
    threshold = written(thresholds(plan, (location,))["s"])
    values = np.random.default_rng(seed).uniform(20, 30, 2000)
    ranks = order_rank(location.order)(values, np.zeros(2000))
    assert (ranks >= threshold).all()
    assert (order_rank(location.order)(np.linspace(0, 10, 50), np.zeros(50)) < threshold).all()


def test_unknown_values_are_kept_until_everything_else_is_gone() -> None:
    location = place(0.2, 0.3, 0.5)
    values = np.array([np.nan, -5.0, 35.0, 30.0, 0.0])
    ranks = order_rank(location.order)(values, np.full(5, 0.5))
    assert ranks[:3].tolist() == [KNOWN + (1 - KNOWN) / 2] * 3
    assert ranks[3] < KNOWN
    assert ranks[4] == 0.0
    everything_known = {LOW: 1.0, MIDDLE: 1.0, HIGH: 0.999999}
    assert written(location.threshold(everything_known)) == KNOWN
    assert location.threshold(dict.fromkeys(everything_known, 1.0)) == 1.0


def test_a_gap_between_cells_is_unknown_too() -> None:
    order = ranked_order([(LOW, 0.5), (HIGH, 0.5)])
    assert order_rank(order)(np.array([15.0]), np.array([0.25])).tolist() == [KNOWN + (1 - KNOWN) / 4]


@pytest.mark.parametrize(("first", "second"), [(LOW, MIDDLE), (MIDDLE, LOW)])
def test_the_value_between_two_cells_goes_with_the_one_that_is_kept_longer(first: Cell, second: Cell) -> None:
    order = ranked_order([(first, 0.5), (second, 0.5)])
    rank = float(order_rank(order)(np.array([10.0]), np.array([0.0]))[0])
    assert order[1].start <= rank < order[1].start + order[1].width
    assert [one.holds(10.0) for one in order] == [False, True]


def test_a_single_value_with_a_cell_of_its_own_is_in_no_other() -> None:
    order = ranked_order([(LOW, 0.25), (Cell(10, 10), 0.5), (MIDDLE, 0.25)])
    ranks = order_rank(order)(np.array([10.0, 10.0]), np.array([0.0, 0.5]))
    assert (LEVELS * ranks).tolist() == [60.0, 120.0]
    assert [one.holds(10.0) for one in order] == [False, True, False]


def test_the_top_of_a_cell_is_not_the_bottom_of_the_next_one() -> None:
    order = ranked_order([(MIDDLE, 0.5), (LOW, 0.5)])
    assert float(order_rank(order)(np.array([20.0]), np.array([0.0]))[0]) < order[1].start


def test_inside_a_cell_lower_values_go_first_or_chance_decides() -> None:
    values, ties = np.array([2.5, 7.5]), np.array([0.8, 0.2])
    ordered = order_rank(place(0.5, 0.25, 0.25).order)(values, ties)
    assert (LEVELS * ordered).tolist() == [30.0, 90.0]
    at_random = order_rank(place(0.5, 0.25, 0.25, inner_order=False).order)(values, ties)
    assert (LEVELS * at_random).tolist() == [64.0, 16.0], "and all cells have as many ranks"


def test_thresholds_follow_the_spread_and_ranks_do_not() -> None:
    believed = place(0.5, 0.25, 0.25)
    learnt = believed.with_shares({LOW: 0.1, MIDDLE: 0.2, HIGH: 0.6})
    assert [(one.start, one.width) for one in learnt.order] == [(one.start, one.width) for one in believed.order]
    assert learnt.unknown == pytest.approx(0.1)
    assert LEVELS * learnt.threshold_of(0.1) == pytest.approx(120)
    assert LEVELS * learnt.threshold_of(0.2) == pytest.approx(150)
    assert LEVELS * learnt.threshold_of(0.9) == pytest.approx(240)
    assert LEVELS * learnt.threshold_of(0.95) == pytest.approx(248)
    assert learnt.threshold_of(1.0) == 1.0
    assert learnt.threshold_of(0.0) == 0.0


@given(
    st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).filter(lambda shares: sum(shares) > 0.01),
    st.floats(0, 0.5),
    st.floats(0, 1),
)
def test_a_share_and_its_threshold_are_each_others_inverse(parts: list[float], unknown: float, share: float) -> None:
    known = 1 - unknown
    shares = dict(zip((LOW, MIDDLE, HIGH), (known * part / sum(parts) for part in parts), strict=True))
    location = place(0.4, 0.3, 0.3).with_shares(shares)
    assert location.share_below(location.threshold_of(share)) == pytest.approx(share, abs=1e-6)


def test_a_drop_that_takes_of_all_values_alike_goes_down_the_order() -> None:
    location = place(0.5, 0.25, 0.25).with_shares({LOW: 0.2, MIDDLE: 0.4, HIGH: 0.4})
    plan = DropPlan("p", (Drop("s", 0.5, 0.4),), (), 1, 1, 1)
    assert LEVELS * thresholds(plan, (location,))["s"] == pytest.approx(120 + 60 * 0.5)


def test_a_value_graph_orders_values_by_utility() -> None:
    graph = ValueGraph.of("v", [(0, 1.0), (10, 1.0), (10, 0.1), (30, 0.1)])
    order = value_order(graph, Histogram.of([(0, 10, 1), (10, 30, 3)]))
    assert [(one.cell, LEVELS * one.start) for one in order] == [(Cell(10, 30), 0), (Cell(0, 10), 180)]
    assert [one.holds(10.0) for one in order] == [False, True], "at a jump the better side counts"
