"""Tables on a grid row by row: a leaf's by hand, local plans at splits, and what children's tables are merged to."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from streamshed.distributed.feasible_input import grid
from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.merging import Requirement, merged
from streamshed.distributed.feasible_input.spread import MaxError, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.scores import Fairness, Throughput
from streamshed.errors import InvalidValueError, NetworkError

F = Fraction
TOTAL = Throughput()

# 0.5·i + 0.25·j <= 2; a tuple of i is a result, two of j are one.
LEAF = NodeModel("leaf", ("i", "j"), (Segment("x", "i", F(1, 2), 1, "p"), Segment("y", "j", F(1, 4), F(1, 2), "q")), 2)

# A trunk that costs 1 and hands on all; above 2 for a result, below 5.
SPLIT = NodeModel(
    "S", ("r",), (Segment("trunk", "r", 1), Segment("top", "trunk", 2, 1, "o1"), Segment("low", "trunk", 5, 1, "o2"))
)

X = FeasibleInputTable("X", ("x in",), (F(1),), np.array([[2], [1], [0]]), np.array([2.0, 1.0, 0.0]), max_error=0.25)
Y = FeasibleInputTable("Y", ("y in",), (F(2),), np.array([[2], [1], [0]]), np.array([4.0, 2.0, 0.0]), max_error=0.5)
PARENT = NodeModel(
    "P", ("p", "q"), (Segment("x", "p", F(1, 4), F(1, 2), "x in"), Segment("y", "q", F(1, 8), 2, "y in"))
)


def entries(table: FeasibleInputTable) -> list[tuple[Any, Any]]:
    """The exact rates and the score of every entry."""
    return [(table.exact_rates(row), float(table.scores[row])) for row in range(len(table))]


def flows(table: FeasibleInputTable) -> Any:
    assert table.flows is not None
    return table.flows.tolist()


# --- leaves ----------------------------------------------------------------------------------------------------------


def test_a_leafs_table_has_every_feasible_combination() -> None:
    """The spreads are 1/(2·1) and 1/(2·½), the highest rates 4 and 8: a quarter of the capacity a step each."""
    table = grid_table(LEAF, TOTAL, MaxError(1))
    by_hand = {((F(i, 2), F(j)), i / 2 + j / 2) for i, j in itertools.product(range(9), repeat=2) if i + j <= 8}
    assert len(table) == 45
    assert set(entries(table)) == by_hand
    assert table.units == (F(1, 2), F(1))
    assert table.max_error == 1
    assert entries(table)[0] == ((0, 8), 4), "of the nine with 4 results the one that lets most in"
    assert (table.node, table.inputs, table.segments, table.mixing) == ("leaf", ("i", "j"), ("x", "y"), False)
    assert flows(table) == table.rates.tolist()
    assert table.planless is not None
    assert table.planless.all()


def test_weights_and_what_counts_change_the_spread_and_the_scores() -> None:
    weighted = grid_table(LEAF, Throughput({"p": 2.0, "q": 4.0}), MaxError(4))
    assert weighted.units == (F(1), F(1))
    assert dict(entries(weighted))[F(1), F(6)] == 2 * 1 + 4 * 3
    entering = grid_table(LEAF, Throughput(counts_results=False), MaxError(1))
    assert entering.units == (F(1, 2), F(1, 2))
    assert dict(entries(entering))[F(1), F(6)] == 7
    none = grid_table(LEAF, Throughput({"p": 0.0}), MaxError(1))
    # What brings nothing has 0 and the highest rate; the spread of the other one is 1/(2·½).
    assert none.units == (F(4), F(1))
    assert set(entries(none)) == {((F(0), F(j)), j / 2) for j in range(9)} | {((F(4), F(0)), 0.0)}


def test_limits_bound_the_rates_worth_an_entry() -> None:
    table = grid_table(LEAF, TOTAL, MaxError(1), limits_tps={"i": 1, "j": 99})
    assert table.highest == {"i": 1.0, "j": 8.0}
    assert dict(entries(table))[F(1), F(6)] == 4


def test_a_size_bounds_the_grid_ahead_of_the_elimination() -> None:
    table = grid_table(LEAF, TOTAL, TableSize(9))
    # With three points along either dimension: a little more than a third of the way from one to the next.
    assert [float(unit) for unit in table.units] == pytest.approx([4 / 3, 8 / 3])
    assert len(table) == 6, (
        "of nine combinations those with i + j <= 3, but 3 is out of either's reach: 2 + 2 is too much"
    )
    assert table.max_error == pytest.approx(8 / 3)


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MOST_ROWS", 45)
    assert len(grid_table(LEAF, TOTAL, MaxError(1))) == 45
    monkeypatch.setattr(grid, "MOST_ROWS", 44)
    with pytest.raises(InvalidValueError, match="too large"):
        grid_table(LEAF, TOTAL, MaxError(1))


def test_a_border_that_floats_miss_is_in_the_table() -> None:
    # 3·0.1 is more than 0.3 in floats; a tenth of the capacity a step for all three.
    node = NodeModel("n", tuple("abc"), tuple(Segment(f"s{name}", name, 0.1, 1, name.upper()) for name in "abc"), 0.3)
    table = grid_table(node, TOTAL, MaxError(3))
    assert table.units == (F(1), F(1), F(1))
    assert len(table) == 20, "all (a, b, c) with a + b + c <= 3"
    assert sum(score == 3 for _, score in entries(table)) == 10


def test_only_linear_scores_have_grids() -> None:
    with pytest.raises(InvalidValueError, match="linear"):
        grid_table(LEAF, Fairness({"p": 1.0, "q": 1.0}), MaxError(1))


# --- local plans -----------------------------------------------------------------------------------------------------


def test_a_split_drops_where_a_result_costs_most() -> None:
    """Figure 3 of the paper: below 1/8 nothing is dropped, up to 1/3 the lower branch is, and no more comes in."""
    table = grid_table(SPLIT, TOTAL, MaxError(0.05))
    assert table.units == (F(1, 40),)
    # 13 steps of 1/40 up to 1/3; a score is what is left of the capacity: r and (1 − 3r)/5 results.
    expected = {}
    for step in range(14):
        rate = F(step, 40)
        low = min(rate, (1 - 3 * rate) / 5)
        expected[rate] = (float(rate + low), [float(rate), float(rate), float(low)], 8 * rate <= 1)
    assert table.planless is not None
    for row, ((rate,), score) in enumerate(entries(table)):
        wanted, plan, planless = expected.pop(rate)
        assert score == pytest.approx(wanted)
        assert flows(table)[row] == pytest.approx(plan)
        assert table.planless[row] == planless
    assert not expected
    assert table.max_error == pytest.approx(0.05)


def test_the_last_branch_is_never_dropped_at_the_split_but_ahead_of_it() -> None:
    # Both cost and bring the same, and the trunk nothing: to drop one of them is as good as to drop ahead of both.
    even = NodeModel("n", ("r",), (Segment("t", "r"), Segment("a", "t", 1, 1, "o"), Segment("b", "t", 1, 1, "p")))
    table = grid_table(even, TOTAL, MaxError(F(1, 2)))
    assert table.units == (F(1, 4),)
    assert entries(table) == [((F(1, 2),), 1.0), ((F(1, 4),), 0.5), ((F(0),), 0.0)]
    # A dear trunk makes it worth to let more in than the branches can take? No: less, for all that is let in costs it.
    dear = NodeModel("n", ("r",), (Segment("t", "r", 6), Segment("a", "t", 1, 1, "o"), Segment("b", "t", 1, 1, "p")))
    assert entries(grid_table(dear, TOTAL, MaxError(F(1, 4))))[0] == ((F(1, 8),), 0.25)
    # Free branches are never dropped, worthless ones first.
    branches = (Segment("a", "t", 0, 1, "o"), Segment("b", "t", 3, 1, "p"), Segment("c", "t", 4, 0, "q"))
    free = NodeModel("n", ("r",), (Segment("t", "r", 1), *branches))
    table = grid_table(free, TOTAL, MaxError(F(1, 4)))
    assert table.units == (F(1, 8),)
    by_rate = {rate: (score, plan) for ((rate,), score), plan in zip(entries(table), flows(table), strict=True)}
    assert by_rate[F(1, 8)] == (0.25, [0.125, 0.125, 0.125, 0.125]), "8·⅛ is all that there is"
    assert by_rate[F(1, 4)] == (0.5, [0.25, 0.25, 0.25, 0.0])
    assert by_rate[F(1, 2)] == (pytest.approx(0.5 + 0.5 / 3), [0.5, 0.5, pytest.approx(0.5 / 3), 0.0])
    assert by_rate[F(1)] == (1.0, [1.0, 1.0, 0.0, 0.0])


def test_branches_are_dropped_in_the_order_of_what_they_bring_for_their_cost_across_inputs() -> None:
    """For 1 of its input a brings ½, c 1, for 4 b brings 1; d ½ for ¾, and e nothing for ½."""
    node = NodeModel(
        "n",
        ("r", "s"),
        (
            Segment("t", "r", F(1, 2), 1),
            Segment("a", "t", 1, F(1, 2), "oa"),
            Segment("b", "t", 4, 1, "ob"),
            Segment("c", "t", 1, 1, "oc"),
            Segment("u", "s", F(1, 4), F(1, 2)),
            Segment("d", "u", F(3, 2), 1, "od"),
            Segment("e", "u", 1, 0, "oe"),
        ),
        8,
    )
    table = grid_table(node, TOTAL, MaxError(5))
    assert table.units == (F(1), F(5))
    by_rate = {rates: (score, plan) for (rates, score), plan in zip(entries(table), flows(table), strict=True)}
    assert by_rate[1, 0] == (2.5, [1, 1, 1, 1, 0, 0, 0]), "6.5 are not too much"
    # 2 of r cost 1 + 2 + 8 + 2: 5 too much, and b, which brings least for its cost, gives them up.
    assert by_rate[2, 0] == (1 + 0.75 + 2, [2, 2, 0.75, 2, 0, 0, 0])
    # 5 cost 32.5: all 20 of b, and 4.5 of a.
    assert by_rate[5, 0] == (0.25 + 5, [5, 0.5, 0, 5, 0, 0, 0])
    # With 5 of s, which cost 7.5, it is 6 too much: e gives up all of its 2.5, b 3.5 of 4.
    assert by_rate[1, 5] == (0.5 + 0.125 + 1 + 2.5, [1, 1, 0.125, 1, 5, 2.5, 0])
    assert table.planless is not None
    assert {rates for (rates, _), free in zip(entries(table), table.planless, strict=True) if free} == {
        (1, 0), (0, 0), (0, 5),
    }  # fmt: skip


def test_what_lies_between_two_splits_is_paid_for_by_all() -> None:
    node = NodeModel(
        "n",
        ("r",),
        (
            Segment("t", "r", F(1, 4), F(1, 2)),
            Segment("a", "t", F(1, 2), 1, "oa"),
            Segment("m", "t", F(1, 2), F(1, 2)),
            Segment("b", "m", 1, 1, "ob"),
            Segment("c", "m", 3, 1, "oc"),
        ),
    )
    # A tuple of r: ¼ for t, ¼ for a, ¼ for m, ¼ for b and ¾ for c; ½ a result at a, ¼ at b and at c.
    table = grid_table(node, TOTAL, MaxError(F(1, 4)))
    assert table.units == (F(1, 4),)
    by_rate = {rate: (score, plan) for ((rate,), score), plan in zip(entries(table), flows(table), strict=True)}
    assert by_rate[F(1, 2)] == (0.5, [0.5, 0.25, 0.25, 0.125, 0.125])
    # At 1 it is ¾ too much, which is all of c.
    assert by_rate[F(1)] == (0.75, [1, 0.5, 0.5, 0.25, 0])
    assert max(by_rate) == 1, "the rest has no room for more"


# --- merging ---------------------------------------------------------------------------------------------------------


def test_rows_of_children_are_mapped_back_combined_and_eliminated() -> None:
    """2 at x means 4 at p, for all of the capacity; 4 at y means 2 at q, for a quarter."""
    table = grid_table(PARENT, TOTAL, MaxError(9), [X, Y])
    assert entries(table) == [
        ((2, 2), 5.0), ((0, 2), 4.0), ((2, 1), 3.0), ((4, 0), 2.0), ((0, 1), 2.0), ((2, 0), 1.0), ((0, 0), 0.0),
    ]  # fmt: skip
    assert table.units == (F(2), F(1))
    assert flows(table) == table.rates.tolist()
    assert table.max_error == 0.75, "the errors of children add up"
    assert table.planless is not None
    assert table.planless.all()
    assert (table.node, table.inputs, table.segments) == ("P", ("p", "q"), ("x", "y"))


def test_with_twice_the_capacity_all_combinations_stay() -> None:
    wide = NodeModel("P", PARENT.inputs, PARENT.segments, F(5, 4))
    table = grid_table(wide, TOTAL, MaxError(9), [X, Y])
    assert len(table) == 9
    assert entries(table)[0] == ((4, 2), 6.0)


def test_an_output_in_the_middle_has_a_grid_of_its_own() -> None:
    # 2 tuples a second of r fill the node, half of which are results: with an error of ¼ steps of ½.
    node = NodeModel("P", ("p", "r"), (PARENT.segments[0], Segment("o", "r", F(1, 2), F(1, 2), "own")))
    table = grid_table(node, TOTAL, MaxError(F(1, 4)), [X])
    assert set(entries(table)) == {
        ((F(2 * x), F(r, 2)), x + r / 4) for x in range(3) for r in range(5) if x / 2 + r / 4 <= 1
    }
    assert table.max_error == 0.5
    # Two of them share the error.
    two = NodeModel("P", ("p", "r", "s"), (*node.segments, Segment("o2", "s", F(1, 2), 1, "own 2")))
    table = grid_table(two, TOTAL, MaxError(F(1, 2)), [X])
    assert table.units == (F(2), F(1, 2), F(1, 4))
    assert table.max_error == 0.75
    assert dict(entries(table))[F(2), F(1, 2), F(1, 4)] == 1.5
    assert dict(entries(table))[F(0), F(1), F(1)] == 1.5
    limited = grid_table(node, TOTAL, MaxError(F(1, 4)), [X], {"r": 1})
    assert limited.highest == {"p": 4.0, "r": 1.0}


def test_an_output_behind_a_split_counts_what_enters_its_segment() -> None:
    # Half of p goes on at the trunk; x asks for that, and 4 of what goes on fill the node at the output.
    node = NodeModel(
        "P",
        ("p",),
        (
            Segment("t", "p", 0, F(1, 2)), Segment("x", "t", 0, 1, "x in"), Segment("o", "t", F(1, 4), F(1, 2), "own"),
        ),
    )  # fmt: skip
    table = grid_table(node, TOTAL, MaxError(F(1, 2)), [X])
    assert table.units == (F(2),)
    by_plan = {tuple(plan): entry for plan, entry in zip(flows(table), entries(table), strict=True)}
    # As much at p as the greater of both wants: 4 at the output are 8 at p, of which x takes 2 of 4.
    assert by_plan[8, 2, 4] == ((8,), 4.0)
    assert by_plan[4, 2, 2] == ((4,), 3.0)
    assert table.planless is not None
    kept = {tuple(plan) for plan, planless in zip(flows(table), table.planless, strict=True) if planless}
    assert kept == {(4, 2, 2), (2, 1, 1), (0, 0, 0)}


def test_what_never_arrives_is_not_asked_for() -> None:
    lost = NodeModel("P", ("p", "q"), (Segment("x", "p", F(1, 4), 0, "x in"), PARENT.segments[1]))
    table = grid_table(lost, TOTAL, MaxError(9), [X, Y])
    assert entries(table) == [((0, 2), 4.0), ((0, 1), 2.0), ((0, 0), 0.0)]
    # An output that nothing reaches has one entry, and nothing to drop for.
    silent = NodeModel("P", ("p", "r"), (PARENT.segments[0], Segment("o", "r", F(1, 2), 0, "own")))
    assert entries(grid_table(silent, TOTAL, MaxError(1), [X])) == [((4, 0), 2.0), ((2, 0), 1.0), ((0, 0), 0.0)]


def test_branches_with_different_units_meet_at_the_highest_rate() -> None:
    # x wants 1 or 2 of a third of p, y 2 or 4 of a half: 3, 6 and 4, 8 at p.
    branches = (Segment("x", "t", 0, F(1, 3), "x in"), Segment("y", "t", 0, F(1, 2), "y in"))
    node = NodeModel("P", ("p",), (Segment("t", "p", F(1, 9)), *branches))
    table = grid_table(node, TOTAL, MaxError(9), [X, Y])
    found = {score: (rate, plan) for ((rate,), score), plan in zip(entries(table), flows(table), strict=True)}
    assert found[6.0] == (8, [8, 6, 8])
    assert found[4.0] == (6, [6, 6, 4])
    assert found[3.0] == (4, [4, 3, 4])
    assert found[1.0] == (3, [3, 3, 0])
    assert table.units == (F(1),)
    # 2 alone is 4 at p, no less than 3 with it, and of no use; so is 5, which takes 8.
    assert set(found) == {6.0, 4.0, 3.0, 1.0, 0.0}
    full = NodeModel("P", ("p",), (Segment("t", "p", F(1, 8)), *branches))
    assert entries(grid_table(full, TOTAL, MaxError(9), [X, Y]))[0] == ((8,), 6.0), "just what it can carry"
    over = NodeModel("P", ("p",), (Segment("t", "p", F(1, 7)), *branches))
    assert entries(grid_table(over, TOTAL, MaxError(9), [X, Y]))[0] == ((6,), 4.0)


def test_what_is_just_too_much_is_out_however_close() -> None:
    branches = (Segment("x", "t", 0, F(1, 3), "x in"), Segment("y", "t", 0, F(1, 2), "y in"))
    above = NodeModel("P", ("p",), (Segment("t", "p", F(1, 8) + F(1, 10**12)), *branches))
    assert entries(grid_table(above, TOTAL, MaxError(9), [X, Y]))[0] == ((6,), 4.0)
    # 0.1 + 0.2 in floats is more than 0.3: here it is just what there is.
    node = NodeModel("P", ("p", "q"), (Segment("x", "p", 0.1, 1, "x in"), Segment("y", "q", 0.05, 1, "y in")), 0.3)
    full = FeasibleInputTable("Y", ("y in",), (F(2),), np.array([[2], [0]]), np.array([4.0, 0.0]))
    one = FeasibleInputTable("X", ("x in",), (F(1),), np.array([[1], [0]]), np.array([1.0, 0.0]))
    assert entries(grid_table(node, TOTAL, MaxError(9), [one, full]))[0] == ((1, 4), 5.0)


@pytest.mark.parametrize("selectivity", [0.1, 0.3, 0.6, 0.7, 0.9, 1.1])
def test_what_rounding_takes_off_is_no_drop(selectivity: float) -> None:
    many = FeasibleInputTable("X", ("x in",), (F(1),), np.arange(40)[::-1, None], np.arange(40.0)[::-1])
    node = NodeModel("P", ("p",), (Segment("t", "p", 0, selectivity), Segment("x", "t", 0.001, 0.7, "x in")))
    table = grid_table(node, TOTAL, MaxError(1), [many])
    assert len(table) == 40
    assert table.planless is not None
    assert table.planless.all()


def test_a_bound_on_the_entries_is_kept_at_every_step() -> None:
    table = grid_table(PARENT, TOTAL, TableSize(3), [X, Y])
    assert len(table) <= 3
    assert entries(table)[0] == ((2, 2), 5.0)
    assert table.max_error >= 0.75 + 0.99, "what was left out makes a difference"


def test_of_three_children_the_best_combinations_of_the_first_two_go_on() -> None:
    third = FeasibleInputTable("Z", ("z in",), (F(1),), np.array([[4], [0]]), np.array([0.5, 0.0]))
    node = NodeModel("P", ("p", "q", "r"), (*PARENT.segments, Segment("z", "r", 0, 1, "z in")), 9)
    table = grid_table(node, TOTAL, TableSize(4), [X, Y, third])
    # Of X and Y all or nothing of either. Of those with Z there are eight neighbourhoods; the best four stay.
    assert entries(table) == [((4, 2, 4), 6.5), ((4, 2, 0), 6.0), ((0, 2, 4), 4.5), ((0, 2, 0), 4.0)]
    assert len(grid_table(node, TOTAL, MaxError(1), [X, Y, third])) == 18


def test_merged_tables_that_would_be_too_large_are_refused() -> None:
    needs = [Requirement(X, PARENT.segments[:1]), Requirement(Y, PARENT.segments[1:])]
    assert len(merged(PARENT, needs, None, 9)) == 7
    with pytest.raises(InvalidValueError, match="too large"):
        merged(PARENT, needs, None, 8)


def test_a_column_is_fed_by_one_path() -> None:
    union = NodeModel("P", ("p", "q"), (Segment("x", "p", 1, 1, "x in"), Segment("y", "q", 1, 1, "x in")))
    with pytest.raises(NetworkError, match="fed by one path"):
        grid_table(union, TOTAL, MaxError(1), [X])
    with pytest.raises(NetworkError, match="fed by one path"):
        grid_table(
            PARENT, TOTAL, MaxError(1), [X, FeasibleInputTable("Z", ("z",), (F(1),), np.array([[1]]), np.ones(1))]
        )
