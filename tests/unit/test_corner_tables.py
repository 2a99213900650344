"""Tables of corners: the few entries that there have to be, their units, and how far off they may be."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

from streamshed.distributed.feasible_input import corners
from streamshed.distributed.feasible_input.corners import corner_table, is_planless
from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.spread import MaxError, Spread, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Fairness, Throughput
from streamshed.errors import InvalidValueError

F = Fraction
TOTAL = Throughput()

B = NodeModel("B", ("b1", "b2"), (Segment("b-top", "b1", 3, 0.5, "q1"), Segment("b-low", "b2", 1, 1.0, "q2")))
SPLIT = NodeModel(
    "S", ("r",), (Segment("trunk", "r", 1), Segment("top", "trunk", 2, 1, "o1"), Segment("low", "trunk", 5, 1, "o2"))
)
X = FeasibleInputTable("X", ("x in",), (F(1),), np.array([[4], [0]]), np.array([4.0, 0.0]), mixing=True, max_error=0.25)


def shown(table: FeasibleInputTable) -> list[tuple[list[float], float]]:
    """Rates and scores of all entries, to four digits."""
    return [
        ([round(float(rate), 4) for rate in rates], round(float(score), 4))
        for rates, score in zip(table.rates, table.scores, strict=True)
    ]


def test_the_corners_of_two_queries_are_two() -> None:
    table = corner_table(B, TOTAL, MaxError(0.01))
    assert shown(table) == [([0.0, 1.0], 1.0), ([0.3333, 0.0], 0.1667)]
    assert table.max_error == pytest.approx(0, abs=1e-6)
    assert table.mixing
    # The highest rates are whole numbers of units, powers of 2, of which 2 to the 19 at least make them up.
    assert table.units == (F(1, 2**21), F(1, 2**20))
    assert table.counts.tolist() == [[0, 2**20], [math.ceil(2**21 / 3), 0]]
    assert table.flows is not None
    assert table.flows == pytest.approx(np.array([[0, 1], [1 / 3, 0]]), abs=1e-6)
    assert table.planless is not None
    assert table.planless.tolist() == [True, True]


def test_the_corners_of_a_split_are_where_a_branch_begins_to_be_dropped() -> None:
    """Up to 1/8 all goes on, 2 results a tuple; up to 1/3 the lower branch is dropped; more is of no use."""
    table = corner_table(SPLIT, TOTAL, MaxError(0.01))
    assert shown(table) == [([0.3333], 0.3333), ([0.125], 0.25)]
    assert table.planless is not None
    assert table.planless.tolist() == [False, True]
    assert table.flows is not None
    assert table.flows == pytest.approx(np.array([[1 / 3, 1 / 3, 0], [1 / 8, 1 / 8, 1 / 8]]), abs=1e-6)
    assert table.units == (F(1, 2**21),), "the top branch alone could have 1/3"


def test_the_highest_rate_is_that_which_is_of_use_to_any_path() -> None:
    def unit(node: NodeModel, *children: FeasibleInputTable, **limits: float) -> Fraction:
        return corner_table(node, TOTAL, MaxError(0.5), children, limits).units[0]

    def feeding(cost: float, share: float, capacity: float = 1.0) -> NodeModel:
        trunk = Segment("t", "i", 0, share)
        return NodeModel("P", ("i",), (trunk, Segment("x", "t", cost, 1, "x in")), capacity)

    # In units of 2 to the −20, rounded up to a power of 2: the child takes 4, which are 8 here.
    assert unit(feeding(0.0, 0.5), X) == F(8, 2**20)
    # The node itself carries 1/0.25 behind the trunk, which is 4 ahead of it, or more with more capacity.
    assert unit(feeding(0.5, 0.5), X) == F(4, 2**20)
    assert unit(feeding(0.5, 0.5, 1.5), X) == F(8, 2**20), "6"
    assert unit(feeding(0.5, 0.5), X, i=2.0) == F(2, 2**20)
    assert unit(feeding(0.5, 0.5), X, i=64.0) == F(4, 2**20)
    assert unit(feeding(0.5, 0.0), X) == 1, "nothing arrives, so nothing is of use"
    # The highest of all its paths counts.
    both = NodeModel(
        "P", ("i",), (Segment("t", "i"), Segment("x", "t", 1, 1, "x in"), Segment("o", "t", F(1, 16), 1, "o"))
    )
    assert unit(both, X) == F(16, 2**20)
    with pytest.raises(InvalidValueError, match="nothing limits"):
        unit(NodeModel("P", ("i",), (Segment("o", "i", 0, 1, "o"),)))


def test_rates_are_rounded_up_but_for_what_the_solver_leaves() -> None:
    node = NodeModel("n", ("i",), (Segment("s", "i", 0.3, 1, "o"),))
    table = corner_table(node, TOTAL, MaxError(0.01))
    (row,) = table.counts.tolist()
    unit = float(table.units[0])
    assert (row[0] - 1) * unit < 1 / 0.3 <= row[0] * unit + 1e-9
    exact = corner_table(NodeModel("n", ("i",), (Segment("s", "i", 0.25, 1, "o"),)), TOTAL, MaxError(0.01))
    assert exact.exact_rates(0) == (F(4),)


def test_rates_of_inputs_that_are_fixed_have_no_column_and_take_their_part() -> None:
    table = corner_table(B, TOTAL, MaxError(0.01), fixed_tps={"b2": 0.4})
    assert table.inputs == ("b1",)
    # 0.6 are left for b1; without any of it there are 0.4 results all the same.
    assert shown(table) == [([0.2], 0.5), ([0.0], 0.4)]
    assert table.planless is not None
    assert table.planless.tolist() == [True, True]
    full = corner_table(B, TOTAL, MaxError(0.01), fixed_tps={"b2": 4.0})
    assert shown(full) == [([0.0], 1.0)]
    assert full.planless is not None
    assert not full.planless.any(), "3 of 4 are dropped here, for nobody else can"
    alone = corner_table(B, TOTAL, MaxError(0.01), fixed_tps={"b1": 0.1, "b2": 0.2})
    assert (alone.inputs, alone.scores.tolist()) == ((), [pytest.approx(0.25)])


def test_what_is_dropped_within_the_node_is_a_plan() -> None:
    def planless(trunk: float, top: float, low: float, **fixed: float) -> bool:
        return is_planless(SPLIT, {"trunk": trunk, "top": top, "low": low}, fixed)

    assert planless(0.5, 0.5, 0.5)
    assert planless(0.5, 0.5, 0.5 - 1e-8)
    assert not planless(0.5, 0.5, 0.49)
    assert not planless(0.5, 0.49, 0.5)
    assert planless(0.5, 0.5, 0.5, r=0.5)
    assert not planless(0.5, 0.5, 0.5, r=0.6)
    half = NodeModel("n", ("i",), (Segment("t", "i", 1, F(1, 2)), Segment("o", "t", 1, 1, "o")))
    assert is_planless(half, {"t": 1.0, "o": 0.5}, {})
    assert not is_planless(half, {"t": 1.0, "o": 0.4}, {})
    # Two segments that read one input have the same of it, or the parent could not have dropped the rest.
    two = NodeModel("n", ("i",), (Segment("a", "i", 1, 1, "o"), Segment("b", "i", 1, 1, "p")))
    assert is_planless(two, {"a": 0.3, "b": 0.3}, {})
    assert not is_planless(two, {"a": 0.3, "b": 0.2}, {})
    assert not is_planless(two, {"a": 0.2, "b": 0.3}, {})


def test_the_errors_of_children_add_up() -> None:
    y = FeasibleInputTable(
        "Y", ("y in",), (F(2),), np.array([[2], [0]]), np.array([4.0, 0.0]), mixing=True, max_error=0.5
    )
    node = NodeModel("P", ("p", "q"), (Segment("x", "p", 0.01, 1, "x in"), Segment("y", "q", 0.01, 1, "y in")))
    assert corner_table(node, TOTAL, MaxError(0.1), [X, y]).max_error == pytest.approx(0.75, abs=1e-6)
    assert corner_table(node, TOTAL, TableSize(9), [X, y]).max_error == pytest.approx(0.75, abs=1e-6)


# A worth in pieces of halves makes many corners over two rates.
ROUND = NodeModel("n", ("i", "j"), (Segment("a", "i", 1, 1, "o"), Segment("b", "j", 1, 1, "p")), 1.5)
FAIR = Fairness({"o": 1.0, "p": 1.0}, bias=3.0)


def worst(table: FeasibleInputTable) -> float:
    """How far below the best its decisions are, over a raster of rates."""
    program = FlowProgram((ROUND,), FAIR)
    raster = np.linspace(0, 1.5, 7)
    missing = []
    for i in raster:
        for j in raster:
            rates = {"i": float(i), "j": float(j)}
            missing.append(program.solve(rates).score - table.decide(rates).score)
    assert min(missing) > -1e-4, "no more is promised than can be kept"
    return max(missing)


def test_the_error_is_kept_and_told() -> None:
    lengths = []
    for error in (0.5, 0.1, 0.02):
        table = corner_table(ROUND, FAIR, MaxError(error))
        assert worst(table) <= table.max_error + 1e-6
        assert table.max_error <= error
        lengths.append(len(table))
    assert lengths == sorted(lengths)
    for entries in (3, 6, 12):
        table = corner_table(ROUND, FAIR, TableSize(entries))
        assert len(table) <= entries
        assert worst(table) <= table.max_error + 1e-6


def test_who_gets_by_with_few_points_takes_a_small_part_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # A function of a few corners is found whole, whatever error is allowed.
    assert corner_table(B, TOTAL, MaxError(0.9)).max_error <= 0.9 / 64
    assert shown(corner_table(B, TOTAL, MaxError(0.9))) == shown(corner_table(B, TOTAL, MaxError(0.01)))
    # An entry that is worth a twentieth is left out only if that is less than a small part of the error.
    slight = NodeModel("n", B.inputs, (Segment("a", "b1", 3, 0.15, "o"), Segment("b", "b2", 1, 1, "p")))
    assert shown(corner_table(slight, TOTAL, MaxError(0.9))) == [([0.0, 1.0], 1.0), ([0.3333, 0.0], 0.05)]
    assert shown(corner_table(slight, TOTAL, MaxError(90))) == [([0.0, 1.0], 1.0)]
    # One of many is narrowed down no further than to so many points, unless the error asks for more.
    lengths, errors = [], []
    for few in (0, 30, 40):
        monkeypatch.setattr(corners, "_FEW", few)
        table = corner_table(ROUND, FAIR, MaxError(0.3))
        lengths.append(len(table))
        errors.append(table.max_error)
    assert 6 < lengths[0] < lengths[1] <= 30 < lengths[2] <= 40
    assert 0.3 >= errors[0] > errors[1] > errors[2] > 0.3 / 64


class Search:
    """Notes what it is asked for."""

    def __init__(self, top_score: float, gap: float) -> None:
        self.top_score, self.gap = top_score, gap
        self.asked: list[tuple[float, ...]] = []

    def narrow(self, widest: float, most: int | None = None) -> None:
        self.asked.append((round(widest, 12), most) if most is not None else (round(widest, 12),))

    def table(self, below: float, tolerance: float) -> None:
        self.asked.append((below, round(tolerance, 12)))


def test_how_an_error_is_shared_by_the_search_and_what_is_left_out() -> None:
    """Nine tenths are for the search, and of what it took a ninth more for entries that hardly matter."""

    def thrifty(tolerance: float, gap: float) -> list[tuple[float, ...]]:
        search = Search(64.0, gap)
        corners._thrifty(cast("Any", search), tolerance, 0.25)
        return search.asked

    assert thrifty(64.0, 9.0) == [(57.6,), (0.9, 40), (0.25, 1.0)], "of many points"
    assert thrifty(64.0, 0.0) == [(57.6,), (0.9, 40), (0.25, 0.1)], "of few: a 64th of it"
    least = 2e-5 * 64
    assert thrifty(1e-9, 0.0)[0] == (round(0.9 * least, 12),)
    search = Search(64.0, 9.0)
    corners._bounded(cast("Any", search), 7, 0.25)
    assert search.asked == [(round(least, 12), 7), (0.25, round(least, 12))]


def test_an_error_is_no_less_than_what_the_solver_can_tell_apart() -> None:
    table = corner_table(ROUND, FAIR, MaxError(1e-12))
    assert table.max_error <= 2e-5 * table.scores[0] * 1.01
    assert worst(table) <= 5e-5


def test_where_nothing_scores_there_is_one_entry() -> None:
    table = corner_table(B, Throughput({"q1": 0.0, "q2": 0.0}), MaxError(0.01))
    assert (len(table), table.scores.tolist(), table.max_error) == (1, [0.0], 0.0)
    assert table.decide({"b1": 1.0, "b2": 1.0}).score == 0


def test_spreads_of_another_kind_are_refused() -> None:
    class Even(Spread):
        def of(self, highest: object, slopes: object) -> tuple[Fraction, ...]:
            return ()

    with pytest.raises(InvalidValueError, match="for grids"):
        corner_table(B, TOTAL, Even())


def test_entries_that_hardly_matter_are_left_out_and_their_error_is_told() -> None:
    table = FeasibleInputTable(
        "n", ("i",), (F(1),), np.array([[4], [3], [2], [1]]), np.array([4.0, 3.1, 2.5, 1.0]), mixing=True, max_error=0.5
    )
    # Mixtures of the better ones: 3 of 4 instead of 3.1; then 2 instead of 2.5.
    kept = corners._without_redundant(table, 0.2)
    assert shown(kept) == [([4.0], 4.0), ([2.0], 2.5)]
    assert kept.max_error == pytest.approx(0.6)
    whole = corners._without_redundant(table, 0.05)
    # 1 of 2 is worth 1.25: the last one is not needed in any case.
    assert shown(whole) == [([4.0], 4.0), ([3.0], 3.1), ([2.0], 2.5)]
    assert whole.max_error == pytest.approx(0.5)
    none = corners._without_redundant(table, 9.0)
    assert shown(none) == [([4.0], 4.0)]
    assert none.max_error == pytest.approx(3.6), "up to 3.1 are lost where 4 do not come"


def test_grids_and_corners_agree_where_both_are_exact() -> None:
    coarse = grid_table(B, TOTAL, MaxError(0.01))
    fine = corner_table(B, TOTAL, MaxError(0.001))
    for b1, b2 in ((0.2, 0.4), (0.33, 0.0), (1.0, 1.0), (0.05, 0.5)):
        rates = {"b1": b1, "b2": b2}
        assert coarse.decide(rates).score == pytest.approx(fine.decide(rates).score, abs=0.011)
        assert coarse.carries(rates) == fine.carries(rates)
