"""Numbers at borders, spreads, and what a table says about rates: the look-up against plain search."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.distributed.feasible_input import table as table_module
from streamshed.distributed.feasible_input.exact import (
    at_most,
    common_unit,
    exact,
    on_common_grid,
    units_needed,
    whole_units,
)
from streamshed.distributed.feasible_input.sharing import agreed_shares, table_share
from streamshed.distributed.feasible_input.spread import MaxError, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.errors import InvalidValueError

F = Fraction


def table(*rows: tuple[int, int, float], mixing: bool = False) -> FeasibleInputTable:
    """Rows of counts of a half and of a quarter, and a score."""
    return FeasibleInputTable(
        "n", ("a", "b"), (F(1, 2), F(1, 4)), np.array([row[:2] for row in rows]), np.array([row[2] for row in rows]),
        mixing=mixing,
    )  # fmt: skip


def rows_of(found: FeasibleInputTable) -> list[tuple[int, int, float]]:
    return [(int(one), int(two), float(score)) for (one, two), score in zip(found.counts, found.scores, strict=True)]


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_numbers_are_taken_as_they_are_written() -> None:
    assert exact(0.1) == F(1, 10)
    assert exact(3) == F(3)
    assert exact(F(2, 7)) == F(2, 7)
    assert exact(1 / 3) == F(333333333, 10**9), "nine digits of a measured number count"
    assert exact(1234567.891) == F(Decimal("1234567.89"))
    assert exact(1e-12) == F(1, 10**12)


@pytest.mark.parametrize(
    ("value", "unit", "whole", "needed"),
    [(0.3, F(1, 10), 3, 3), (0.29, F(1, 10), 2, 3), (0.31, F(1, 10), 3, 4), (0.0, F(1, 10), 0, 0), (7, F(2), 3, 4),
     (1 / 3, F(1, 3), 1, 1), (2 / 3, F(1, 3), 2, 2), (0.6666, F(1, 3), 1, 2), (0.6667, F(1, 3), 2, 3)],
)  # fmt: skip
def test_units_that_go_into_a_value_and_units_that_reach_it(
    value: float, unit: Fraction, whole: int, needed: int
) -> None:
    assert (whole_units(value, unit), units_needed(value, unit)) == (whole, needed)


def test_what_rounding_took_off_is_made_up_for_and_no_more() -> None:
    for steps in range(1, 2000, 37):
        assert whole_units(steps * 0.1, F(1, 10)) == units_needed(steps * 0.1, F(1, 10)) == steps
        assert whole_units(steps * 0.1 * (1 - 1e-6), F(1, 10)) == steps - 1
        assert units_needed(steps * 0.1 * (1 + 1e-6), F(1, 10)) == steps + 1


def test_a_common_unit_goes_into_all_of_them() -> None:
    assert common_unit([F(1, 4), F(1, 6)]) == F(1, 12)
    assert common_unit([F(2, 3), F(4, 3)]) == F(2, 3)
    assert common_unit([F(3, 2), F(5, 4)]) == F(1, 4)
    assert common_unit([F(7)]) == F(7)


def test_close_to_a_bound_it_is_decided_exactly_and_only_there() -> None:
    asked: list[int] = []

    def exactly(row: int) -> bool:
        asked.append(row)
        return row % 2 == 0

    values = np.array([0.5, 1.0, 1.0, 1 + 1e-10, 1 - 1e-10, 1 + 1e-8, 1 - 1e-8, 3.0])
    assert at_most(values, 1.0, exactly).tolist() == [True, False, True, False, True, False, True, False]
    assert asked == [1, 2, 3, 4]
    # Close is meant as a part of the largest number: of sums of large ones less is right.
    asked.clear()
    assert at_most(np.array([1e6, 1.0005, 1.002]), 1.0, exactly).tolist() == [False, False, False]
    assert asked == [1]
    asked.clear()
    assert at_most(np.array([0.0, 1e-12]), 0.0, exactly).tolist() == [True, False]
    assert asked == [0]
    assert at_most(np.array([0.0]), -1.0, exactly).tolist() == [False]
    assert at_most(np.zeros(0), 1.0, exactly).tolist() == []


def test_columns_with_different_units_become_counts_of_one() -> None:
    (one, two), unit = on_common_grid([(np.array([1, 2]), F(1, 2)), (np.array([3, 0]), F(1, 3))])
    assert (one.tolist(), two.tolist(), unit) == ([3, 6], [6, 0], F(1, 6))
    # Where that is too fine for a machine's numbers, it is coarser, and nobody is promised too much.
    fine = F(1, 2**60 + 1)
    (one, two), unit = on_common_grid([(np.array([2**40, 1]), F(1)), (np.array([2**50, 1]), fine)])
    assert unit == 1, "the largest by 2 to the 40"
    assert one.tolist() == [2**40, 1]
    assert two.tolist() == [1, 1], "both are less than 1, rounded up"


# --- spreads ---------------------------------------------------------------------------------------------------------


def test_an_error_is_shared_by_the_dimensions() -> None:
    """s_i = e_max/(m·sel_i), as for node B of the paper's figure 1."""
    assert MaxError(0.1).of([F(1, 3), F(1)], [F(1, 2), F(1)]) == (F(1, 10), F(1, 20))
    assert MaxError(F(3)).of([F(9)], [F(2)]) == (F(3, 2),)
    assert MaxError(0.3).of([F(1)] * 3, [F(1), F(2), F(4)]) == (F(1, 10), F(1, 20), F(1, 40))
    # Where a tuple scores nothing, there is 0 and the highest rate; where that is 0, too, any unit will do.
    assert MaxError(0.1).of([F(7), F(0)], [F(0), F(0)]) == (F(7), F(1))
    for spread in (MaxError(0.1), TableSize(3)):
        with pytest.raises(ValueError, match="shorter"):
            spread.of([F(1), F(2)], [F(1)])
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(InvalidValueError, match="must be positive"):
            MaxError(wrong)


def points(spreads: tuple[Fraction, ...], highest: list[Fraction]) -> int:
    return math.prod(top // spread + 1 for top, spread in zip(highest, spreads, strict=True))


@pytest.mark.parametrize("entries", [1, 2, 3, 10, 50, 1000])
@pytest.mark.parametrize(
    ("highest", "slopes"),
    [([F(1, 3), F(1)], [F(1, 2), F(1)]), ([F(5)], [F(2)]), ([F(1), F(10), F(3)], [F(1), F(1), F(3)])],
)
def test_a_size_is_kept_with_the_least_and_the_same_error_along_all_dimensions(
    entries: int, highest: list[Fraction], slopes: list[Fraction]
) -> None:
    spreads = TableSize(entries).of(highest, slopes)
    errors = {spread * slope for spread, slope in zip(spreads, slopes, strict=True)}
    assert len(errors) == 1
    assert points(spreads, highest) <= entries
    finer = tuple(spread * (1 - F(1, 10**6)) for spread in spreads)
    if entries > 1:
        assert points(finer, highest) > entries, "with less of an error there would be too many"


def test_a_size_of_five_over_one_rate_is_five_points_that_just_do_not_reach_it() -> None:
    (spread,) = TableSize(5).of([F(8)], [F(1, 2)])
    assert float(spread) == pytest.approx(1.6)
    assert spread > F(8, 5)
    assert TableSize(4).of([F(7), F(0)], [F(0), F(0)]) == (F(7), F(1)), "what scores nothing has 0 and the highest rate"
    with pytest.raises(InvalidValueError, match="needs room"):
        TableSize(0)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_the_best_come_first_and_among_equals_those_that_let_more_in() -> None:
    found = table((0, 0, 0.0), (1, 0, 5.0), (0, 4, 5.0), (0, 1, 7.0), (0, 3, 5.0 + 1e-12), (2, 0, 7.0)).best_first()
    assert rows_of(found) == [
        (2, 0, 7.0), (0, 1, 7.0), (0, 4, 5.0), (0, 3, 5.0 + 1e-12), (1, 0, 5.0), (0, 0, 0.0),
    ]  # fmt: skip
    assert rows_of(table((2, 2, 1e-10), (1, 1, 2e-10)).best_first()) == [(1, 1, 2e-10), (2, 2, 1e-10)]
    assert rows_of(table((1, 1, 0.0), (2, 2, 0.0)).best_first()) == [(2, 2, 0.0), (1, 1, 0.0)]


def test_entries_go_together_with_their_plans() -> None:
    whole = FeasibleInputTable(
        "n", ("a",), (F(1),), np.array([[1], [2], [3]]), np.array([1.0, 3.0, 2.0]), ("s",),
        np.array([[10.0], [20.0], [30.0]]), np.array([True, False, True]), max_error=0.5,
    )  # fmt: skip
    best = whole.best_first()
    assert best.flows is not None
    assert best.planless is not None
    assert (best.flows[:, 0].tolist(), best.planless.tolist(), best.max_error) == (
        [20, 30, 10],
        [False, True, True],
        0.5,
    )
    assert whole.take(np.array([2]), 0.75).max_error == 0.75
    assert whole.take(np.array([2]), 0.0).max_error == 0.0
    assert whole.highest == {"a": 3.0}
    assert whole.exact_rates(1) == (F(2),)
    with pytest.raises(InvalidValueError, match="do not match"):
        FeasibleInputTable("n", ("a",), (F(1), F(1)), np.array([[1]]), np.array([1.0]))
    with pytest.raises(InvalidValueError, match="do not match"):
        FeasibleInputTable("n", ("a",), (F(1),), np.array([[1], [2]]), np.array([1.0]))
    with pytest.raises(InvalidValueError, match="do not match"):
        FeasibleInputTable("n", ("a",), (F(1),), np.zeros((0, 1), dtype=np.int64), np.zeros(0))


def test_elimination_takes_entries_that_another_one_beats_with_no_higher_rates() -> None:
    found = table((2, 0, 9.0), (1, 1, 8.0), (2, 1, 7.0), (1, 0, 5.0), (1, 4, 5.0), (0, 0, 0.0)).without_worse()
    # (2, 1) scores less than (2, 0); (1, 4) no more than (1, 0), which comes first.
    assert rows_of(found) == [(2, 0, 9.0), (1, 1, 8.0), (1, 0, 5.0), (0, 0, 0.0)]


def test_a_look_up_is_the_best_entry_that_asks_for_no_more() -> None:
    found = table((2, 3, 9.0), (4, 0, 8.0), (1, 2, 5.0), (0, 1, 1.0))
    # In units: a half and a quarter.
    for rates, score in (((1.0, 0.75), 9), ((0.9, 0.75), 5), ((9.0, 0.5), 8), ((1.9, 0.7), 5), ((0.4, 9.0), 1)):
        decision = found.decide({"a": rates[0], "b": rates[1]})
        assert decision.score == score
    decision = found.decide({"a": 1.25, "b": 0.75})
    assert decision.rates == {"a": 1.0, "b": 0.75}
    assert decision.keep == {"a": 0.8, "b": 1.0}
    nothing = found.decide({"a": 9.0, "b": 0.2, "c": 5.0})
    assert (nothing.score, nothing.rates) == (8, {"a": 2.0, "b": 0.0}), "4 of a, and nothing of b"
    nothing = found.decide({"a": 0.2, "b": 0.2})
    assert (nothing.score, nothing.rates, nothing.keep) == (0, {"a": 0, "b": 0}, {"a": 0.0, "b": 0.0})
    assert found.best_row({"a": 0.2, "b": 0.2}) is None
    assert found.best_row({"a": 1.0, "b": 0.75}) == 0
    assert found.best_rows(np.array([[2, 3], [0, 0], [-1, 5], [1, 9]])).tolist() == [0, -1, -1, 2]
    with pytest.raises(InvalidValueError, match="no rate"):
        found.decide({"a": 1.0})
    assert found.decide({"a": -1.0, "b": 0.25}).score == 1, "a rate below 0 is none"


def test_what_is_kept_is_all_unless_it_is_less() -> None:
    found = table((2, 4, 1.0))
    assert found.decide({"a": 1.0 + 1e-8, "b": 2.0}).keep == {"a": 1.0, "b": 0.5}
    assert found.decide({"a": 1.0 + 1e-5, "b": 1.0}).keep["a"] == pytest.approx(1 - 1e-5, abs=1e-9)
    assert found.decide({"a": 1.0 + 1e-5, "b": 1.0}).keep["a"] < 1
    assert table((0, 0, 0.0)).decide({"a": 0.0, "b": 3.0}).keep == {"a": 1.0, "b": 0.0}, "nothing comes, nothing goes"


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9).map(float)), min_size=1, max_size=12
    ),
    limits=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=6),
)
def test_a_look_up_finds_what_plain_search_finds(
    rows: list[tuple[int, int, float]], limits: list[tuple[int, int]]
) -> None:
    def best(found: FeasibleInputTable, a: int, b: int) -> float | None:
        return max((score for one, two, score in rows_of(found) if one <= a and two <= b), default=None)

    whole = table(*rows).best_first()
    fewer = whole.without_worse()
    assert len(fewer) <= len(whole)
    for a, b in limits:
        wanted = best(whole, a, b)
        assert best(fewer, a, b) == wanted, "nothing is lost by the elimination"
        for found in (whole, fewer):
            decision = found.decide({"a": a / 2, "b": b / 4})
            assert decision.score == (wanted or 0.0)
            assert decision.rates["a"] <= a / 2
            assert decision.rates["b"] <= b / 4
    for row, (a, b, score) in enumerate(rows_of(fewer)):
        others = [one for number, one in enumerate(rows_of(fewer)) if number != row]
        assert not any(x <= a and y <= b and z > score for x, y, z in others), "none beats another"


def test_without_an_index_the_same_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ((2, 3, 9.0), (4, 0, 8.0), (1, 2, 5.0), (1, 3, 4.0), (0, 1, 1.0))
    limits = np.array([[2, 3], [0, 0], [4, 2], [1, 9]])
    monkeypatch.setattr(table_module, "_MOST_CELLS", 15)  # 4 values of a, 4 of b
    assert table(*rows)._index is None
    assert table(*rows).best_rows(limits).tolist() == [0, -1, 1, 2]
    assert len(table(*rows).without_worse()) == 5, "it is left as it is"
    monkeypatch.setattr(table_module, "_MOST_CELLS", 16)
    assert table(*rows)._index is not None
    assert table(*rows).best_rows(limits).tolist() == [0, -1, 1, 2]
    assert len(table(*rows).without_worse()) == 4


def test_rates_that_need_no_drop_are_those_of_an_entry_without_a_plan() -> None:
    found = table((2, 3, 9.0), (4, 0, 8.0))
    assert found.carries({"a": 1.0, "b": 0.75})
    assert found.carries({"a": 0.3, "b": 0.3})
    assert found.carries({"a": 2.0, "b": 0.0})
    assert not found.carries({"a": 1.1, "b": 0.75})
    assert not found.carries({"a": 2.0, "b": 0.1})
    planned = FeasibleInputTable(
        "n", ("a",), (F(1),), np.array([[4], [2]]), np.array([2.0, 1.0]), planless=np.array([False, True])
    )
    assert planned.carries({"a": 2.0})
    assert not planned.carries({"a": 3.0})


def test_mixtures_of_entries_need_no_drop_either() -> None:
    found = table((4, 0, 2.0), (0, 4, 1.0), mixing=True)
    assert found.carries({"a": 1.0, "b": 0.5}), "half of each"
    assert not found.carries({"a": 1.0, "b": 0.6})
    decision = found.decide({"a": 1.0, "b": 2.0})
    assert decision.rates == pytest.approx({"a": 1.0, "b": 0.5})
    assert decision.score == pytest.approx(1.5)
    assert decision.keep == pytest.approx({"a": 1.0, "b": 0.25})
    plan = FeasibleInputTable(
        "n", ("a",), (F(1),), np.array([[4], [2]]), np.array([2.0, 1.5]), ("s", "t"),
        np.array([[4.0, 1.0], [2.0, 2.0]]), np.array([False, True]), mixing=True,
    )  # fmt: skip
    assert plan.carries({"a": 2.0})
    assert not plan.carries({"a": 3.0})
    assert plan.decide({"a": 3.0}).flows == pytest.approx({"s": 3.0, "t": 1.5})
    assert plan.decide({"a": 1.0}).score == pytest.approx(0.75), "half of an entry, and half of its score"
    none = FeasibleInputTable(
        "n", ("a",), (F(1),), np.array([[4]]), np.array([2.0]), planless=np.array([False]), mixing=True
    )
    assert none.carries({"a": 0.0})
    assert not none.carries({"a": 0.1})


def test_fewer_entries_are_the_best_of_each_neighbourhood() -> None:
    line = table(*((row, 0, float(row)) for row in range(8, -1, -1)))
    assert line.spaced_rows(9).tolist() == list(range(9))
    # Levels of a third: 8, 7 and 6 are one neighbourhood (above two thirds), 5 4 3 another, 2 1 a third, and 0.
    assert [rows_of(line)[row][0] for row in line.spaced_rows(4)] == [8, 5, 2, 0]
    assert [rows_of(line)[row][0] for row in line.spaced_rows(2)] == [8, 0]
    assert line.spaced_rows(1).tolist() == [0]
    thin = line.thinned(4)
    assert rows_of(thin) == [(8, 0, 8.0), (5, 0, 5.0), (2, 0, 2.0), (0, 0, 0.0)]
    assert thin.max_error == 2.0, "with 7, 4 there would be 7 and 5 are 2 apart"
    assert line.thinned(9) is line
    # Both columns are spread over their own range, and what is best comes first whatever the order of the rows.
    plane = table(*((a, b, float(a + b)) for a in range(3) for b in range(0, 9, 4)))
    assert sorted(rows_of(plane.take(plane.spaced_rows(4)))) == [(0, 0, 0), (0, 8, 8), (2, 0, 2), (2, 8, 10)]
    assert rows_of(plane.take(plane.spaced_rows(1))) == [(2, 8, 10.0)]
    low = table((4, 4, 5.0), (2, 2, 4.0))
    assert low.thinned(1).max_error == 4.0, "where the best one does not fit, nothing is left"


# --- shares ----------------------------------------------------------------------------------------------------------

# 3·b1 + b2 <= 1, in thirds and wholes, with half a result for a tuple of b1.
SHARED = FeasibleInputTable(
    "B", ("b1", "b2"), (F(1, 3), F(1)), np.array([[0, 1], [1, 0], [0, 0]]), np.array([1.0, 1 / 6, 0.0]),
    ("x",), np.ones((3, 1)), np.array([True, True, True]), mixing=True, max_error=0.4,
)  # fmt: skip


def test_a_share_of_a_table_is_a_part_of_its_rates_scores_and_error() -> None:
    part = table_share(SHARED, {"b2", "elsewhere"}, 0.25)
    assert (part.inputs, part.units, part.counts.tolist(), part.scores.tolist()) == (
        ("b2",), (F(1, 4),), [[1], [0]], [0.25, 0.0],
    )  # fmt: skip
    assert (part.flows, part.planless, part.max_error, part.mixing) == (None, None, 0.1, True)
    assert table_share(SHARED, SHARED.inputs, 1.0).units == SHARED.units
    for wrong in (0.0, -0.1, 1.1):
        with pytest.raises(InvalidValueError, match="share is out of range"):
            table_share(SHARED, {"b2"}, wrong)


@settings(max_examples=30, deadline=None)
@given(
    share=st.floats(0.05, 0.95), rates=st.tuples(st.floats(0, 2), st.floats(0, 2)), others=st.tuples(st.floats(0, 2))
)
def test_parents_that_keep_within_their_shares_do_not_ask_for_too_much(
    share: float, rates: tuple[float, float], others: tuple[float]
) -> None:
    both = SHARED.inputs
    one = table_share(SHARED, both, share).decide(dict(zip(both, rates, strict=True)))
    two = table_share(SHARED, {"b2"}, 1 - share).decide({"b2": others[0]})
    b1, b2 = one.rates["b1"], one.rates["b2"] + two.rates["b2"]
    assert 3 * b1 + b2 <= 1 + 1e-6
    assert SHARED.decide({"b1": b1, "b2": b2}).score >= one.score + two.score - 1e-6


def test_shares_are_what_the_demands_are_worth() -> None:
    # 0.4 of b2 is worth most; 0.3 of the rest would do for 0.1 of b1, which leaves 0.3 to be divided.
    shares = agreed_shares(SHARED, {"L": {"b1": 0.1}, "R": {"b2": 0.4}})
    assert shares == {"L": pytest.approx(0.45), "R": pytest.approx(0.55)}
    assert agreed_shares(SHARED, {"L": {"b1": 5.0}, "R": {"b2": 0.4}}) == pytest.approx({"L": 0.6, "R": 0.4})
    # Who is silent gets a little, the others the rest of it.
    silent = agreed_shares(SHARED, {"L": {}, "R": {"b2": 1.0}})
    assert silent == pytest.approx({"L": 0.01 / 1.01, "R": 1 / 1.01})
    more = agreed_shares(SHARED, {"L": {}, "R": {"b2": 1.0}}, least=0.25)
    assert more == pytest.approx({"L": 0.2, "R": 0.8})
    assert agreed_shares(SHARED, {"L": {}, "R": {}}) == pytest.approx({"L": 0.5, "R": 0.5})
    assert agreed_shares(SHARED, {"L": {"b2": 0.5}, "R": {"b2": 0.2}, "M": {}}) == pytest.approx(
        {"L": 0.6, "R": 0.3, "M": 0.1}
    )


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_shares_do_not_depend_on_the_unit_of_scores_or_rates(size: float) -> None:
    large = FeasibleInputTable(
        "B", ("b1", "b2"), (F(1, 3) * exact(size), exact(size)), SHARED.counts, SHARED.scores * size, mixing=True
    )
    shares = agreed_shares(large, {"L": {"b1": 5.0 * size}, "R": {"b2": 0.4 * size}})
    assert shares == pytest.approx({"L": 0.6, "R": 0.4}, rel=1e-4)
