import random

import pytest

from streamshed.control import BatchCost, CostEstimator
from streamshed.errors import InvalidValueError

TRUE = BatchCost(fixed_s=0.15, read_s=2e-6, process_s=2e-5)


def batch(number: int, kept: float, noise: float = 0.0, cost: BatchCost = TRUE) -> tuple[int, float, float]:
    return number, kept, cost.duration_s(number, kept) * (1 + noise)


def test_nothing_is_known_during_warm_up() -> None:
    estimator = CostEstimator(warmup=2)
    for _ in range(3):
        estimator.observe(1000, 1000, 10.0)
        assert estimator.cost is None
    estimator.observe(1000, 1000, 0.2)
    assert estimator.cost is not None


def test_costs_are_found_exactly_with_excitation() -> None:
    estimator = CostEstimator(warmup=0)
    for i in range(60):
        number = 10_000 + 7_000 * (i % 5)
        estimator.observe(*batch(number, number * (1.0, 0.4, 0.7)[i % 3]))
    cost = estimator.cost
    assert cost is not None
    assert cost.fixed_s == pytest.approx(TRUE.fixed_s, rel=0.02)
    assert cost.read_s == pytest.approx(TRUE.read_s, rel=0.1)
    assert cost.process_s == pytest.approx(TRUE.process_s, rel=0.02)
    assert cost.error_s < 0.01


def test_without_drops_the_sum_is_right_and_no_cost_is_negative() -> None:
    generator = random.Random(1)
    estimator = CostEstimator(warmup=0)
    for _ in range(40):
        number = generator.randrange(5_000, 50_000)
        estimator.observe(*batch(number, number, generator.gauss(0, 0.03)))
    cost = estimator.cost
    assert cost is not None
    assert cost.read_s + cost.process_s == pytest.approx(TRUE.read_s + TRUE.process_s, rel=0.1)
    assert min(cost.fixed_s, cost.read_s, cost.process_s) >= 0
    assert cost.read_s < 0.3 * cost.process_s


def test_equal_batches_still_predict_themselves() -> None:
    estimator = CostEstimator(warmup=0)
    for _ in range(30):
        estimator.observe(*batch(20_000, 20_000))
    cost = estimator.cost
    assert cost is not None
    assert cost.duration_s(20_000, 20_000) == pytest.approx(TRUE.duration_s(20_000, 20_000), rel=0.02)


def test_one_outlier_hardly_matters() -> None:
    estimator = CostEstimator(warmup=0)
    for i in range(30):
        number = 10_000 + 5_000 * (i % 4)
        estimator.observe(*batch(number, number * (1.0, 0.5)[i % 2]))
    estimator.observe(*batch(20_000, 20_000, noise=5.0))
    cost = estimator.cost
    assert cost is not None
    assert cost.duration_s(20_000, 20_000) == pytest.approx(TRUE.duration_s(20_000, 20_000), rel=0.2)


def test_a_lasting_change_is_followed() -> None:
    estimator = CostEstimator(warmup=0)
    slow = BatchCost(TRUE.fixed_s, TRUE.read_s, 2 * TRUE.process_s)
    for i in range(30):
        number = 10_000 + 5_000 * (i % 4)
        estimator.observe(*batch(number, number * (1.0, 0.5)[i % 2]))
    for i in range(25):
        number = 10_000 + 5_000 * (i % 4)
        estimator.observe(*batch(number, number * (1.0, 0.5)[i % 2], cost=slow))
    cost = estimator.cost
    assert cost is not None
    assert cost.duration_s(20_000, 20_000) == pytest.approx(slow.duration_s(20_000, 20_000), rel=0.1)


def test_batches_without_tuples_are_left_out() -> None:
    estimator = CostEstimator(warmup=0)
    estimator.observe(0, 0, 0.3)
    assert estimator.batches == 0


def test_bad_forgetting_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="forgetting"):
        CostEstimator(forgetting=0)
