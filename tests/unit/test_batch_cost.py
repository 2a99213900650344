"""What a batch costs: the model by hand, and what is learnt of it against weighted least squares over all batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import nnls

from streamshed.control import BatchCost, CostEstimator
from streamshed.errors import InvalidValueError

TRUE = BatchCost(fixed_s=0.2, read_s=1e-5, process_s=1e-4)
SIZES = ((1000, 1000), (3000, 3000), (9000, 2000), (5000, 4000), (8000, 1000), (2000, 500), (6000, 3000))


# --- the model -------------------------------------------------------------------------------------------------------

COST = BatchCost(fixed_s=0.1, read_s=1e-5, process_s=9e-5, usual=1000, doubt_s=3e-4)


def test_a_batch_costs_its_start_reading_and_processing() -> None:
    assert COST.duration_s(0, 0) == 0.1
    assert COST.duration_s(10_000, 0) == pytest.approx(0.2)
    assert COST.duration_s(10_000, 4000) == pytest.approx(0.56)


def test_beyond_the_usual_a_tuple_may_cost_more() -> None:
    assert COST.at_most_s(1000, 1000) == pytest.approx(0.2)
    assert COST.at_most_s(1500, 1500) == pytest.approx(0.25 + 500 * 3e-4)
    assert COST.at_most_s(9000, 1000) == pytest.approx(0.28), "kept tuples are what is in doubt"
    assert COST.at_most_s(2000, 2000, known=2.0) == pytest.approx(0.3)
    assert COST.at_most_s(2500, 2500, known=2.0) == pytest.approx(0.35 + 500 * 3e-4)


def test_affordable_is_how_many_surely_fit() -> None:
    assert COST.affordable(10_000, 0.2 + 900 * 9e-5) == pytest.approx(900), "without doubt up to the usual"
    assert COST.affordable(10_000, 0.29) == pytest.approx(1000)
    # Then 0.39 ms for each: 0.78 s are 2,000 more.
    assert COST.affordable(10_000, 0.29 + 0.78) == pytest.approx(3000)
    assert COST.affordable(2500, 99.0) == 2500, "no more than there are"
    assert COST.affordable(10_000, 0.2) == 0.0
    assert COST.affordable(10_000, 0.1) == 0.0, "reading them takes too long already"


@pytest.mark.parametrize("kept", [1, 500, 1000, 1001, 4000, 9999])
def test_what_is_affordable_takes_at_most_so_long(kept: int) -> None:
    assert COST.affordable(10_000, COST.at_most_s(10_000, kept)) == pytest.approx(kept)


def test_where_tuples_cost_nothing_all_fit_if_the_batch_does() -> None:
    free = BatchCost(0.125, 2**-16, 0.0)
    assert free.affordable(8192, 0.25) == 8192, "it just fits"
    assert free.affordable(8192, 0.249) == 0.0
    doubtful = BatchCost(0.1, 1e-5, 0.0, usual=1000, doubt_s=1e-4)
    assert doubtful.affordable(5000, 0.25) == pytest.approx(2000)


def test_nothing_but_the_model_is_known_if_nothing_is_said() -> None:
    assert (TRUE.error_s, TRUE.usual, TRUE.doubt_s, TRUE.fixed_doubt_s) == (0.0, 0.0, 0.0, 0.0)


# --- what is learnt --------------------------------------------------------------------------------------------------

Batch = tuple[float, float, float]


def learnt(batches: Sequence[Batch], **settings: float) -> CostEstimator:
    estimator = CostEstimator(**{"warmup": 0, **settings})  # type: ignore[arg-type]
    for one in batches:
        estimator.observe(*one)
    return estimator


def exact(sizes: Sequence[tuple[float, float]], cost: BatchCost = TRUE) -> list[Batch]:
    return [(arrived, kept, cost.duration_s(arrived, kept)) for arrived, kept in sizes]


def cost_of(estimator: CostEstimator) -> BatchCost:
    assert estimator.cost is not None
    return estimator.cost


def by_least_squares(
    batches: Sequence[Batch], weights: Sequence[float], error_s: float, forgetting: float = 0.9
) -> BatchCost:
    """The same from all batches at once: the last counts in full, the one before it 0.9 of that, and so on.

    Two rows more are what is believed: c_r = 0.1·c_p, as much as a fiftieth of a batch, and a small fixed cost.
    """
    arrived, kept, took = (np.array(column, float) for column in zip(*batches, strict=True))
    w = np.array(weights) * forgetting ** np.arange(len(batches))[::-1]
    count, unit = w.sum(), math.sqrt((w * arrived**2).sum() / w.sum())
    data = np.column_stack([np.ones(len(w)), arrived / unit, kept / unit]) * np.sqrt(w)[:, None]
    believed = [[0, math.sqrt(0.02), -0.1 * math.sqrt(0.02)], [math.sqrt(1e-4 * count), 0, 0]]
    rows = np.vstack([data, believed])
    fixed_s, read_s, process_s = nnls(rows, np.concatenate([took * np.sqrt(w), [0, 0]]))[0]
    deviation_s = max(error_s, 0.05 * (w * took).sum() / count, 1e-3)
    mean = (w * kept).sum() / count
    off_mean = math.sqrt((w * (kept - mean) ** 2).sum())
    most_s = max((w * took).sum() / (w * kept).sum() - process_s / unit, 0.0) if kept.any() else 0.0
    return BatchCost(
        fixed_s,
        read_s / unit,
        process_s / unit,
        error_s,
        usual=mean,
        doubt_s=min(2 * deviation_s / off_mean, most_s) if off_mean > 1e-6 else most_s,
        fixed_doubt_s=2 * deviation_s * math.sqrt(np.linalg.inv(rows.T @ rows)[0, 0]),
    )


def assert_same(found: BatchCost, expected: BatchCost) -> None:
    for name, value in vars(expected).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-5, abs=1e-12), name


@pytest.mark.parametrize("forgetting", [0.9, 0.5, 1.0])
@pytest.mark.parametrize("number", [2, 3, 7])
def test_costs_are_weighted_least_squares_over_all_batches(forgetting: float, number: int) -> None:
    batches = exact(SIZES[:number])
    found = cost_of(learnt(batches, forgetting=forgetting))
    assert_same(found, by_least_squares(batches, [1] * number, found.error_s, forgetting))


def test_noise_of_a_few_per_cent_counts_in_full() -> None:
    noise = np.random.default_rng(2).normal(0, 0.03, len(SIZES))
    batches = [(n, k, took * (1 + off)) for (n, k, took), off in zip(exact(SIZES), noise, strict=True)]
    found = cost_of(learnt(batches))
    assert found.error_s > 0
    assert_same(found, by_least_squares(batches, [1] * len(batches), found.error_s))


def test_without_drops_reading_is_believed_to_be_a_tenth_of_processing() -> None:
    batches = exact([(n, n) for n in (1000, 4000, 2000, 8000)])
    found = cost_of(learnt(batches))
    assert_same(found, by_least_squares(batches, [1] * 4, found.error_s))
    assert found.read_s == pytest.approx(0.1 * found.process_s, rel=1e-3)
    assert found.read_s + found.process_s == pytest.approx(1.1e-4, rel=1e-2)


def test_no_cost_is_negative() -> None:
    """Smaller batches that took longer: more tuples would cost less than nothing."""
    batches = [(1000.0, 1000.0, 0.40), (2000.0, 2000.0, 0.39), (3000.0, 3000.0, 0.38)]
    found = cost_of(learnt(batches))
    assert (found.read_s, found.process_s) == (0.0, 0.0)
    assert_same(found, by_least_squares(batches, [1] * 3, found.error_s))
    small = [(1000.0, 1000.0, 0.08), (2000.0, 2000.0, 0.18), (3000.0, 3000.0, 0.28)]
    found = cost_of(learnt(small))
    assert found.fixed_s == 0.0
    assert_same(found, by_least_squares(small, [1] * 3, found.error_s))


def test_batches_of_one_size_leave_all_in_doubt_that_is_not_per_tuple() -> None:
    """0.5 s for 2,000 tuples each: so much may a tuple cost if nothing is fixed, and no more."""
    batches = [(2000.0, 2000.0, 0.5)] * 6
    found = cost_of(learnt(batches))
    assert_same(found, by_least_squares(batches, [1] * 6, 0.0))
    assert found.process_s + found.doubt_s == pytest.approx(0.5 / 2000)
    assert found.duration_s(2000, 2000) == pytest.approx(0.5, rel=1e-3)
    assert found.usual == pytest.approx(2000)


def test_where_nothing_was_kept_nothing_is_known_of_processing() -> None:
    found = cost_of(learnt([(1000.0, 0.0, 0.2), (3000.0, 0.0, 0.3)]))
    assert (found.usual, found.doubt_s) == (0.0, 0.0)
    assert found.read_s > 0


# --- warming up ------------------------------------------------------------------------------------------------------


def test_the_first_batches_are_left_out_and_two_are_needed() -> None:
    estimator = CostEstimator()
    batches = exact(SIZES)
    for i, one in enumerate(batches):
        estimator.observe(*(one if i >= 2 else (500, 500, 9.0)))
        assert (estimator.cost is not None) == (i >= 3)
        assert estimator.batches == max(i - 1, 0)
    assert_same(cost_of(estimator), by_least_squares(batches[2:], [1] * 5, cost_of(estimator).error_s))


@pytest.mark.parametrize(
    ("arrived", "duration_s"), [(0, 1.0), (-1, 1.0), (10, 0.0), (10, -1.0), (10, math.nan), (10, math.inf)]
)
def test_what_is_no_batch_teaches_nothing_and_warms_nothing_up(arrived: float, duration_s: float) -> None:
    estimator = CostEstimator(warmup=1)
    estimator.observe(arrived, arrived, duration_s)
    estimator.observe(500, 500, 9.0)
    assert estimator.batches == 0
    estimator.observe(arrived, arrived, duration_s)
    assert estimator.batches == 0
    estimator.observe(0.5, 0.5, 0.5)
    assert estimator.batches == 1


@pytest.mark.parametrize("forgetting", [0.0, -0.5, 1.01, math.nan])
def test_forgetting_is_a_share(forgetting: float) -> None:
    with pytest.raises(InvalidValueError, match="forgetting"):
        CostEstimator(forgetting=forgetting)


# --- the error of the model, and outliers ----------------------------------------------------------------------------


class Steady:
    """An estimator that knows its plant, which a test can surprise."""

    def __init__(self, cost: BatchCost = TRUE) -> None:
        self.batches = exact(SIZES, cost)
        self.weights = [1.0] * len(self.batches)
        self.estimator = learnt(self.batches)
        self.error_s = cost_of(self.estimator).error_s

    def foreseen_s(self, arrived: float, kept: float) -> float:
        return cost_of(self.estimator).duration_s(arrived, kept)

    def spread_s(self, arrived: float, kept: float) -> float:
        return max(self.error_s, 0.05 * self.foreseen_s(arrived, kept), 1e-3)

    def surprise(self, times: float, counts_as: float | None = None, size: tuple[float, float] = (4000, 2000)) -> None:
        """A batch that is off by so many spreads; checks what becomes of the model's error and of the costs.

        Args:
            times: how many.
            counts_as: as how many it counts: three where an outlier is suspected.
            size: of the batch.
        """
        counted = times if counts_as is None else counts_as
        spread_s = self.spread_s(*size)
        took_s = self.foreseen_s(*size) + times * spread_s
        assert took_s > 0
        self.batches.append((*size, took_s))
        self.weights.append(1.0 if counted == times else (counted / times) ** 2)
        self.error_s = math.sqrt(0.8 * self.error_s**2 + 0.2 * (counted * spread_s) ** 2)
        self.estimator.observe(*size, took_s)
        assert cost_of(self.estimator).error_s == pytest.approx(self.error_s)
        assert_same(cost_of(self.estimator), by_least_squares(self.batches, self.weights, self.error_s))


def test_the_error_is_the_root_of_the_smoothed_square() -> None:
    """Half of the old one is forgotten in three batches: twice as fast as costs are."""
    steady = Steady()
    assert steady.error_s < 1e-3 * TRUE.fixed_s
    steady.surprise(2.0)
    assert steady.error_s == pytest.approx(math.sqrt(0.2) * 2.0 * 0.05 * TRUE.duration_s(4000, 2000), rel=1e-2)
    steady.surprise(-1.0)
    steady.surprise(0.0)
    steady.surprise(0.5)


def test_an_outlier_counts_as_three_deviations_and_that_much_less() -> None:
    for times in (10.0, -4.0, 3.01):
        steady = Steady()
        steady.surprise(times, counts_as=math.copysign(3.0, times))
    steady = Steady()
    steady.surprise(2.99)
    steady = Steady()
    steady.surprise(-2.99)


def test_three_surprises_in_a_row_on_one_side_are_a_change() -> None:
    steady = Steady()
    for counts_as in (3.0, 3.0, None, None):
        steady.surprise(5.0, counts_as)
    steady = Steady()
    for counts_as in (-3.0, -3.0, None):
        steady.surprise(-3.5, counts_as)


def test_surprises_on_both_sides_or_with_calm_between_are_outliers() -> None:
    steady = Steady()
    for times in (3.5, 3.5, -3.5, -3.5, 3.5, 3.5):
        steady.surprise(times, counts_as=math.copysign(3.0, times))
    steady = Steady()
    for times in (-3.5, -3.5, 0.5, -3.5, 0.5, 3.5, 3.5, -0.5, 3.5):
        steady.surprise(times, counts_as=math.copysign(3.0, times) if abs(times) > 1 else None)


def test_the_spread_is_a_twentieth_of_the_duration_at_least_and_a_millisecond() -> None:
    fast = Steady(BatchCost(1e-3, 1e-7, 1e-6))  # a batch takes 3 ms
    fast.surprise(2.9)
    fast = Steady(BatchCost(1e-3, 1e-7, 1e-6))
    fast.surprise(3.1, counts_as=3.0)
    restless = Steady()
    for times in (2.9, -2.9, 2.9, -2.9, 2.9):
        restless.surprise(times)
    assert restless.error_s > 0.1 * restless.foreseen_s(4000, 2000), "the model's own error is larger by now"
    restless.surprise(2.9)
    restless.surprise(3.1, counts_as=3.0)


def test_what_two_batches_say_is_not_held_against_the_third() -> None:
    """A first model is made of two; only from then on there is something to be off from."""
    estimator = learnt([(1000, 1000, 0.2), (2000, 2000, 5.0)])
    assert cost_of(estimator).error_s == 0.0


# --- from memory -----------------------------------------------------------------------------------------------------


def test_what_another_run_found_is_known_at_once() -> None:
    estimator = CostEstimator()
    estimator.believe(TRUE, 4000)
    found = cost_of(estimator)
    assert estimator.batches == 6
    # As six batches tell it, of half, one and one and a half of 4,000 tuples, all kept and half of them.
    told = exact([(size * 4000, keep * size * 4000) for size in (0.5, 1.0, 1.5) for keep in (1.0, 0.5)])
    assert_same(found, by_least_squares(told, [1] * 6, found.error_s))
    assert (found.fixed_s, found.read_s, found.process_s) == pytest.approx((0.2, 1e-5, 1e-4), rel=0.01)
    assert found.usual == pytest.approx(3000, rel=0.1)


def test_warming_up_comes_after_what_is_believed() -> None:
    estimator = CostEstimator(warmup=2)
    estimator.believe(TRUE, 4000)
    before = cost_of(estimator)
    for _ in range(2):
        estimator.observe(4000, 4000, 30.0)
        assert cost_of(estimator) == before
    estimator.observe(4000, 4000, 0.7)
    assert estimator.batches == 7
    assert cost_of(estimator) != before


def test_the_error_of_the_other_run_goes_on() -> None:
    """It is 0.1 s, as long as nothing else has been seen; a batch that is as foreseen takes a fifth of its square."""
    estimator = CostEstimator(warmup=0)
    estimator.believe(BatchCost(0.2, 1e-5, 1e-4, error_s=0.1), 4000)
    estimator.observe(4000, 4000, cost_of(estimator).duration_s(4000, 4000))
    assert cost_of(estimator).error_s == pytest.approx(0.1 * math.sqrt(0.8), rel=1e-3)


def test_what_is_believed_gives_way_to_what_is_seen() -> None:
    estimator = CostEstimator(warmup=0)
    estimator.believe(TRUE, 4000)
    slow = BatchCost(0.4, 2e-5, 2e-4)
    for one in exact(SIZES * 8, slow):
        estimator.observe(*one)
    found = cost_of(estimator)
    assert (found.fixed_s, found.read_s, found.process_s) == pytest.approx((0.4, 2e-5, 2e-4), rel=0.05)
