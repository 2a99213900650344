"""Value graphs, histograms, and the loss tolerance that follows from the two (Aurora, 4.3.4 and 5.4)."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError
from streamshed.qos import (
    Cell,
    Histogram,
    LatencyGraph,
    LossGraph,
    ValueGraph,
    ValueShare,
    cells_between,
    derive_loss_graph,
    interval_table,
    latency_utility,
    loss_graph_from_shares,
    tuple_utility,
    value_shares,
    value_utility,
)
from tests.strategies import loss_graphs, value_graphs

LOW_HIGH = ValueGraph.of("v", [(0, 0.25), (10, 0.25), (10, 1), (20, 1)])

# --- cells -----------------------------------------------------------------------------------------------------------


def test_a_cell_is_one_value_or_what_lies_between_two() -> None:
    assert (Cell(4, 4).is_point, Cell(4, 4).middle) == (True, 4)
    assert (Cell(4, 10).is_point, Cell(4, 10).middle) == (False, 7)
    assert sorted([Cell(4, 10), Cell(4, 4), Cell(0, 4)]) == [Cell(0, 4), Cell(4, 4), Cell(4, 10)]


def test_cuts_part_a_domain_into_points_and_what_lies_between() -> None:
    assert cells_between([5, 0, 5, 2]) == (Cell(0, 0), Cell(0, 2), Cell(2, 2), Cell(2, 5), Cell(5, 5))
    assert cells_between([3]) == (Cell(3, 3),)
    assert cells_between([]) == ()


# --- histograms ------------------------------------------------------------------------------------------------------

# A quarter stands still at 0, a quarter lies between 0 and 10, half of it between 20 and 40.
SPEEDS = Histogram.of([(0, 0, 1), (0, 10, 1), (20, 40, 2)])


@pytest.mark.parametrize(
    ("cell", "mass"),
    [
        (Cell(0, 0), 0.25),
        (Cell(-5, 0), 0.0),
        (Cell(0, 10), 0.25),  # open: without those at 0
        (Cell(-5, 10), 0.5),
        (Cell(0, 4), 0.1),
        (Cell(4, 10), 0.15),
        (Cell(5, 25), 0.25 / 2 + 0.5 / 4),
        (Cell(10, 20), 0.0),
        (Cell(25, 30), 0.125),
        (Cell(30, 99), 0.25),
        (Cell(-1, 41), 1.0),
        (Cell(5, 5), 0.0),  # one value of a range weighs nothing
        (Cell(20, 20), 0.0),
        (Cell(50, 60), 0.0),
    ],
)
def test_the_mass_of_a_cell(cell: Cell, mass: float) -> None:
    assert SPEEDS.mass(cell) == pytest.approx(mass)


def test_weights_are_made_to_sum_to_one() -> None:
    assert SPEEDS.bins == ((0, 0, 0.25), (0, 10, 0.25), (20, 40, 0.5))
    assert SPEEDS.edges == (0, 10, 20, 40)
    assert Histogram.uniform(2, 6).bins == ((2.0, 6.0, 1.0),)
    assert Histogram.of([(0, 1, 0), (1, 2, 5)]).bins == ((0, 1, 0), (1, 2, 1)), "an empty range is fine"
    assert Histogram.of([(0, 1, 1), (1, 2, 0.5)]).bins[0][2] == pytest.approx(2 / 3)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=8))
def test_a_histogram_made_of_its_own_bins_is_the_same_to_the_last_digit(weights: list[float]) -> None:
    histogram = Histogram.of([(i, i + 1, weight) for i, weight in enumerate(weights)])
    assert Histogram.of(histogram.bins) == histogram
    assert math.fsum(share for _, _, share in histogram.bins) == pytest.approx(1.0)


@given(st.sets(st.integers(-5, 45), max_size=6))
def test_cells_that_part_the_domain_hold_everything_once(cuts: set[int]) -> None:
    cells = cells_between([-6, 46, *cuts, *SPEEDS.edges])
    assert sum(SPEEDS.mass(cell) for cell in cells) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("bins", "what"),
    [
        ([], "at least one range"),
        ([(0, 1)], "not a point"),
        ([(0, 1, math.nan)], "not a point"),
        ([(1, 0, 1)], "range is not valid"),
        ([(0, 1, -1), (1, 2, 5)], "range is not valid"),
        ([(0, 2, 1), (1, 3, 1)], "overlap"),
        ([(5, 6, 1), (0, 1, 1)], "overlap"),
        ([(0, 1, 0)], "holds no tuples"),
    ],
)
def test_bad_histograms_are_refused(bins: list[tuple[float, ...]], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        Histogram.of(bins)


# --- value graphs ----------------------------------------------------------------------------------------------------


def test_a_value_graph_jumps_to_the_larger_utility_and_is_level_beyond_its_ends() -> None:
    graph = ValueGraph.of("v", [(0, 0.2), (10, 0.6), (10, 0.1), (20, 0.1), (20, 0.9)])
    asked = {-5: 0.2, 0: 0.2, 5: 0.4, 10: 0.6, 10.1: 0.1, 15: 0.1, 20: 0.9, 99: 0.9}
    assert {value: graph.utility(value) for value in asked} == pytest.approx(asked)
    falling = ValueGraph.of("v", [(0, 0.9), (0, 0.3), (4, 0.1)])
    assert [falling.utility(value) for value in (-1, 0, 2, 4, 5)] == pytest.approx([0.9, 0.9, 0.2, 0.1, 0.1])
    ends = ValueGraph.of("v", [(3, 0.1), (3, 0.4), (7, 0.8), (7, 0.2)])
    assert [ends.utility(value) for value in (2.9, 3, 4, 6, 7, 7.1)] == pytest.approx([0.1, 0.4, 0.5, 0.7, 0.8, 0.2])


def test_slopes_are_cut_into_chunks_and_levels_and_jumps_are_not() -> None:
    graph = ValueGraph.of("v", [(0, 0), (10, 0), (10, 0.5), (20, 1), (30, 1)], chunks=4)
    assert graph.cuts == (0, 10, 12.5, 15, 17.5, 20, 30)
    assert ValueGraph.of("v", [(0, 0), (10, 1)]).cuts == tuple(range(11)), "ten by default, as in the paper"
    assert ValueGraph.of("v", [(0, 0), (10, 1)], chunks=1).cuts == (0, 10)


@pytest.mark.parametrize(
    ("points", "what"),
    [
        ([(0, 1)], "at least two"),
        ([(0, 1), (1, math.nan)], "not a point"),
        ([(0, 1), (2, 1), (1, 1)], "left to right"),
        ([(0, 1), (1, 1.1)], "out of range"),
        ([(0, -0.1), (1, 1)], "out of range"),
    ],
)
def test_bad_value_graphs_are_refused(points: list[tuple[float, float]], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        ValueGraph.of("v", points)


def test_at_least_one_chunk_is_needed() -> None:
    with pytest.raises(InvalidValueError, match="chunks"):
        ValueGraph.of("v", [(0, 0), (1, 1)], chunks=0)
    assert ValueGraph.of("v", [(0, 0), (1, 1)]).points == ((0, 0), (1, 1)), "both ends of the range will do"


# --- table 1 and figure 8 --------------------------------------------------------------------------------------------


def test_cells_are_given_up_from_the_least_utility_with_frequency_and_share_of_the_value() -> None:
    """Of 8 tuples 6 are worth 0.25 and 2 are worth 1: 1.5 and 2 of 3.5."""
    rows = value_shares(LOW_HIGH, [(Cell(10, 20), 2.0), (Cell(0, 10), 6.0), (Cell(20, 20), 0.0)])
    assert [row.cell for row in rows] == [Cell(0, 10), Cell(10, 20)]
    assert [row.utility for row in rows] == [0.25, 1.0]
    assert [row.frequency for row in rows] == [0.75, 0.25]
    assert [row.normalised for row in rows] == pytest.approx([1.5 / 3.5, 2 / 3.5])


def test_equal_utilities_go_from_left_to_right() -> None:
    rows = value_shares(LOW_HIGH, [(Cell(4, 10), 1.0), (Cell(12, 20), 1.0), (Cell(0, 4), 1.0), (Cell(10, 12), 1.0)])
    assert [row.cell.low for row in rows] == [0, 4, 10, 12]


def test_where_nothing_is_worth_anything_each_tuple_counts_the_same() -> None:
    worthless = ValueGraph.of("v", [(0, 0), (20, 0)])
    rows = value_shares(worthless, [(Cell(0, 10), 3.0), (Cell(10, 20), 1.0)])
    assert [(row.frequency, row.normalised) for row in rows] == [(0.75, 0.75), (0.25, 0.25)]
    assert value_shares(worthless, []) == ()


def test_the_table_cuts_at_knees_and_at_the_edges_of_the_histogram() -> None:
    rows = interval_table(LOW_HIGH, Histogram.of([(0, 5, 1), (5, 20, 3)]))
    found = {row.cell: row.frequency for row in rows}
    assert found == pytest.approx({Cell(0, 5): 0.25, Cell(5, 10): 0.25, Cell(10, 20): 0.5})


def share(low: float, utility: float, frequency: float, normalised: float) -> ValueShare:
    return ValueShare(Cell(low, low + 1), utility, frequency, normalised)


def test_giving_up_a_cell_costs_its_frequency_of_delivery_and_its_share_of_the_utility() -> None:
    table = [share(0, 0.1, 0.5, 0.125), share(1, 0.4, 0.25, 0.25), share(2, 1.0, 0.25, 0.625)]
    graph = loss_graph_from_shares(table).graph
    assert graph.points == ((0.0, 0.0), (0.25, 0.625), (0.5, 0.875), (1.0, 1.0))


def test_cells_of_one_utility_are_one_piece() -> None:
    table = [share(0, 0.5, 0.25, 0.2), share(1, 0.5, 0.25, 0.2), share(2, 1.0, 0.25, 0.3), share(3, 1.0, 0.25, 0.3)]
    graph = loss_graph_from_shares(table).graph
    assert (graph.xs, graph.ys) == ((0.0, 0.5, 1.0), (0.0, 0.6, 1.0))


def test_without_cells_or_with_one_every_tuple_counts_the_same() -> None:
    assert loss_graph_from_shares([]) == LossGraph.linear()
    assert loss_graph_from_shares([share(0, 0.5, 1.0, 1.0)]).graph.points == ((0.0, 0.0), (1.0, 1.0))


def test_cells_too_narrow_to_be_seen_make_no_knee() -> None:
    """A sum of frequencies that rounding has taken to 1, or left where it was, is no point of its own."""
    table = [share(0, 0.1, 1e-20, 1e-20), share(1, 0.4, 0.5, 0.5), share(2, 1.0, 0.5, 0.5)]
    assert loss_graph_from_shares(table).graph.points == ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0))
    table = [share(0, 0.1, 0.5, 0.25), share(1, 0.4, 1e-20, 1e-20), share(2, 1.0, 0.5, 0.75)]
    assert loss_graph_from_shares(table).graph.points == ((0.0, 0.0), (0.5, 0.75), (1.0, 1.0))


def test_a_utility_does_not_exceed_one_by_rounding() -> None:
    table = [share(0, 0.0, 0.5, 0.0), share(1, 1.0, 0.5, 1 + 1e-15)]
    assert loss_graph_from_shares(table).graph.points == ((0.0, 0.0), (0.5, 1.0), (1.0, 1.0))


def test_table_1_gives_figure_8() -> None:
    """40 % of the tuples worth 0.2 and 60 % worth 1: delivering 60 % keeps 0.6 of 0.68."""
    value = ValueGraph.of("v", [(0, 0.2), (50, 0.2), (51, 1.0), (100, 1.0)])
    graph = derive_loss_graph(value, Histogram.of([(0, 50, 0.4), (51, 100, 0.6)])).graph
    assert graph.points[1] == pytest.approx((0.6, 0.6 / 0.68))
    assert len(graph.points) == 3


@given(value_graphs(), st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), st.floats(0, 1))
def test_the_derived_graph_is_the_best_that_can_be_made_of_so_much(
    value: ValueGraph, weights: list[int], delivered: float
) -> None:
    """Keeping the best tuples first is worth that much: taken one cell after the other, from the best down."""
    histogram = Histogram.of([(25 * i, 25 * (i + 1), weight) for i, weight in enumerate(weights)])
    shares = sorted(interval_table(value, histogram), key=lambda row: -row.utility)
    left, earned = delivered, 0.0
    for row in shares:
        taken = min(left, row.frequency)
        left, earned = left - taken, earned + row.normalised * taken / row.frequency
    assert derive_loss_graph(value, histogram)(delivered) == pytest.approx(earned, abs=1e-6)


def test_cells_of_the_derived_order_cost_no_more_from_piece_to_piece() -> None:
    """Rising utility per tuple is what makes the derived graph concave."""
    slope = ValueGraph.of("v", [(0, 0), (100, 1)], chunks=5)
    rows = interval_table(slope, Histogram.uniform(0, 100))
    assert [row.utility for row in rows] == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
    assert [row.frequency for row in rows] == pytest.approx([0.2] * 5)
    assert all(left.normalised / left.frequency <= right.normalised / right.frequency for left, right in pairwise(rows))
    graph = loss_graph_from_shares(rows).graph
    assert graph.ys == pytest.approx([0, 0.36, 0.64, 0.84, 0.96, 1.0]), "9, 7, 5, 3 and 1 of 25"


# --- utility over a run ----------------------------------------------------------------------------------------------


def test_tuple_utility_is_the_mean_by_tuples_not_by_epochs() -> None:
    loss = LossGraph.of([(0, 0), (0.5, 0.8), (1, 1)])
    assert tuple_utility(loss, [(100, 1.0), (300, 0.5), (0, 0.0)]) == pytest.approx((100 + 300 * 0.8) / 400)
    assert tuple_utility(loss, [(0.5, 0.25)]) == pytest.approx(0.4)
    assert tuple_utility(loss, []) == 1.0
    assert tuple_utility(loss, [(0, 0.0)]) == 1.0, "without tuples nothing was lost"


@given(loss_graphs(), st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), max_size=5))
def test_tuple_utility_lies_between_that_of_the_worst_and_the_best_epoch(
    loss: LossGraph, epochs: list[tuple[float, float]]
) -> None:
    utilities = [loss(delivered) for tuples, delivered in epochs if tuples > 0] or [1.0]
    assert min(utilities) - 1e-9 <= tuple_utility(loss, epochs) <= max(utilities) + 1e-9


def test_value_utility_weighs_tuples_by_their_value() -> None:
    low, high = Cell(0, 10), Cell(10, 20)
    offered = {low: 40.0, high: 20.0}  # worth 10 and 20
    assert value_utility(LOW_HIGH, offered, {low: 20, high: 20}) == pytest.approx(25 / 30)
    assert value_utility(LOW_HIGH, offered, {high: 5}) == pytest.approx(5 / 30)
    assert value_utility(LOW_HIGH, offered, {}) == 0.0
    assert value_utility(LOW_HIGH, {}, {}) == 1.0
    assert value_utility(LOW_HIGH, {low: 0.5}, {low: 0.25}) == 0.5, "however little is offered"


def test_latency_utility_is_the_mean_over_delays_that_are_spread_evenly() -> None:
    """Level for two seconds, then down to a half at four: between 1 and 3 half of the tuples lose a quarter at most."""
    graph = LatencyGraph.of([(0, 1), (2, 1), (4, 0.5)])
    assert latency_utility(graph, 0.1, [(1, 1.0, 3.0)]) == pytest.approx((1 + 0.875) / 2), "the target does not count"
    assert latency_utility(graph, 0.1, [(30, 0.0, 2.0), (10, 3.0, 3.0)]) == pytest.approx((30 + 7.5) / 40)
    assert latency_utility(graph, 2.0, [(0.5, 9.0, 99.0)]) == pytest.approx(0.5)


def test_without_a_graph_those_within_the_target_count() -> None:
    def on_time(least_s: float, most_s: float) -> float:
        return latency_utility(None, 2.0, [(0.5, least_s, most_s)])

    assert [on_time(0.0, 2.0), on_time(2.0, 2.0), on_time(1.0, 1.5)] == [1.0, 1.0, 1.0]
    assert [on_time(2.0, 3.0), on_time(2.5, 3.0), on_time(2.5, 2.5)] == [0.0, 0.0, 0.0]
    assert [on_time(0.0, 4.0), on_time(1.75, 2.75)] == [0.5, 0.25]
    assert latency_utility(None, 2.0, [(10, 1.0, 3.0), (30, 5.0, 6.0)]) == pytest.approx(5 / 40)


@pytest.mark.parametrize("graph", [None, LatencyGraph.of([(0, 0.5), (1, 0.25)])])
def test_without_tuples_nothing_was_late(graph: LatencyGraph | None) -> None:
    assert latency_utility(graph, 2.0, []) == 1.0
    assert latency_utility(graph, 2.0, [(0, 5.0, 9.0)]) == 1.0
