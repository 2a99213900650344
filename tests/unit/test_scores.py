"""What rates of results are worth, to the digit."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.distributed.scores import Fairness, Score, Throughput, jain
from streamshed.errors import InvalidValueError


class Steps(Score):
    """Two tuples a second are worth 5 each, three more 2 each, the rest nothing."""

    def pieces(self, output: str) -> tuple[tuple[float, float], ...]:
        return (2.0, 5.0), (3.0, 2.0), (math.inf, 0.0)


@pytest.mark.parametrize(("rate_tps", "worth"), [(0, 0), (1, 5), (2, 10), (3.5, 13), (5, 16), (50, 16)])
def test_a_worth_is_the_sum_of_its_pieces_as_far_as_the_rate_fills_them(rate_tps: float, worth: float) -> None:
    assert Steps().worth("o", rate_tps) == worth
    assert Steps().total({"o": rate_tps, "p": 1.0, "q": 0.0}) == worth + 5
    assert Steps().total({}) == 0


def test_throughput_is_the_rate_times_the_weight() -> None:
    score = Throughput({"gold": 3.0, "none": 0.0})
    assert score.pieces("gold") == ((math.inf, 3.0),)
    assert score.pieces("free") == ((math.inf, 1.0),)
    assert score.total({"gold": 2.0, "free": 5.0, "none": 7.0}) == 11
    assert score.is_linear
    assert score.counts_results
    assert not Throughput(counts_results=False).counts_results


def test_with_every_halving_of_its_share_a_tuple_is_worth_twice_as_much() -> None:
    """With widths 1, 1, 2, 4 ... 128 of 256 and slopes 256, 128 ... 1, each but the first piece is worth half of it."""
    score = Fairness({"o": 256.0}, {"o": 5.0})
    pieces = score.pieces("o")
    assert [width for width, _ in pieces] == [1, 1, 2, 4, 8, 16, 32, 64, 128, math.inf]
    assert [slope for _, slope in pieces] == pytest.approx([256 / 256, *(2.0**i / 256 for i in range(7, -1, -1)), 0])
    assert score.worth("o", 1.0) == pytest.approx(1.0)
    assert [score.worth("o", 2.0**i) for i in range(9)] == pytest.approx([1 + i / 2 for i in range(9)])
    assert score.worth("o", 1000.0) == pytest.approx(5.0), "without shedding an output scores its weight"
    assert not score.is_linear


def test_the_bias_is_how_much_more_a_tuple_is_worth() -> None:
    assert Fairness({"o": 10.0}, bias=1.0).worth("o", 2.5) == pytest.approx(0.25), "the share alone"
    assert Fairness({"o": 10.0}).bias == 2
    steep = Fairness({"o": 256.0}, bias=4.0)
    slopes = [slope for _, slope in steep.pieces("o")[:-1]]
    assert [one / other for one, other in pairwise(slopes)] == pytest.approx([4.0] * 8)
    assert steep.worth("o", 256.0) == pytest.approx(1.0)
    assert steep.worth("o", 1.0) > Fairness({"o": 256.0}).worth("o", 1.0)


def test_who_asks_for_nothing_counts_nothing() -> None:
    for score in (Fairness({"o": 0.0}), Fairness({})):
        assert score.pieces("o") == ((math.inf, 0.0),)
        assert score.worth("o", 5.0) == 0.0


@pytest.mark.parametrize("weight", [-1.0, -1e-9, math.inf, math.nan])
def test_weights_that_are_none_are_refused(weight: float) -> None:
    for make in (lambda: Throughput({"o": weight}), lambda: Fairness({"o": 1.0}, {"o": weight})):
        with pytest.raises(InvalidValueError, match="weight is out of range"):
            make()


@pytest.mark.parametrize("bias", [0.99, 0.0, math.inf, math.nan])
def test_a_bias_below_one_is_refused(bias: float) -> None:
    with pytest.raises(InvalidValueError, match="bias"):
        Fairness({}, bias=bias)


def test_jains_index() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert jain([1.0, 2.0, 3.0]) == pytest.approx(36 / (3 * 14))
    assert jain([]) == jain([0.0, 0.0]) == 1.0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6), st.floats(0.1, 10))
def test_jains_index_does_not_depend_on_the_unit(shares: list[float], unit: float) -> None:
    assert 1 / len(shares) - 1e-9 <= jain(shares) <= 1 + 1e-9
    if min(shares) > 1e-6:
        assert jain([share * unit for share in shares]) == pytest.approx(jain(shares))
