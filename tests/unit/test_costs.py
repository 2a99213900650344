"""Cost traces: their shapes, and that they are pure functions of their fields."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.errors import InvalidValueError
from streamshed.workload.costs import (
    ConstantCost,
    CostJump,
    CostNoise,
    CostPeak,
    CostTerrace,
    CostTrace,
    VaryingCost,
)

TIMES = np.arange(0.0, 400.0, 0.25)


@pytest.mark.parametrize(
    "trace",
    [
        ConstantCost(2.0),
        CostNoise(seed=3),
        CostPeak(50, 2),
        CostJump(125, 3),
        CostTerrace(250, 350, 2),
        VaryingCost(1),
        CostPeak(50, 2) * CostNoise(),
    ],
)
def test_factors_are_positive_and_the_same_one_by_one(trace: CostTrace) -> None:
    factors = trace.factor(TIMES)
    assert (factors > 0).all()
    assert [trace.factor(float(t)) for t in TIMES[::100]] == pytest.approx(factors[::100].tolist())
    assert np.array_equal(factors, trace.factor(TIMES))


def test_noise_keeps_the_mean_and_follows_its_seed() -> None:
    noise = CostNoise(beta=1.0, most=1.5, seed=1).factor(np.arange(4096.0))
    assert noise.mean() == pytest.approx(1.0, abs=0.02)
    assert 1.0 < noise.max() <= 1.5
    assert not np.array_equal(noise, CostNoise(beta=1.0, most=1.5, seed=2).factor(np.arange(4096.0)))


def test_the_events_of_the_paper_are_where_it_has_them() -> None:
    quiet = VaryingCost().factor(TIMES) / CostNoise(beta=1.0, most=1.5).factor(TIMES)
    at = dict(zip(TIMES.tolist(), quiet.tolist(), strict=True))
    assert at[40.0] == pytest.approx(1)
    assert at[50.0] == pytest.approx(2)
    assert (at[124.75], at[125.0]) == pytest.approx((1, 3)), "a jump"
    assert at[140.0] == pytest.approx(2), "half-way down"
    assert (at[240.0], at[250.0], at[349.75], at[350.0]) == pytest.approx((1.5, 2, 2, 1)), "climbed, left at once"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConstantCost(0),
        lambda: CostNoise(most=0.5),
        lambda: CostPeak(-1, 2),
        lambda: CostJump(1, 0),
        lambda: CostTerrace(10, 5, 2),
    ],
)
def test_shapes_that_make_no_sense_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidValueError):
        make()
