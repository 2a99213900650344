"""The measurements behind the reasons that `reproduce control` gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamshed.engines.sim import SimResult
from streamshed.experiments.control_causes import (
    DEADBEAT,
    FORGETFUL,
    PARTS,
    PRINTED,
    VARIANTS,
    Variants,
    idle_share,
    peak_s,
    unused_allowance,
)
from streamshed.experiments.control_plant import COSTS, USABLE_TPS, Score, load_named, run_controller
from streamshed.workload import Constant, Phases

SECONDS = 20.0


def _run(name: str, rate_tps: float) -> SimResult:
    return run_controller(name, Constant(rate_tps), seconds=SECONDS)


def test_the_parts_of_the_varying_cost_make_it_up() -> None:
    for time_s in (3.3, 50.0, 126.0, 300.0, 399.0):
        assert PARTS["noise"].factor(time_s) * PARTS["events"].factor(time_s) == COSTS["varying"].factor(time_s)


def test_ctrl_with_all_poles_at_zero_does_what_baseline_does() -> None:
    pattern = load_named("pareto", seed=3)
    ours = Score.of(run_controller(VARIANTS[DEADBEAT](), pattern, cost=COSTS["varying"], seconds=60.0))
    baseline = Score.of(run_controller("baseline", pattern, cost=COSTS["varying"], seconds=60.0))
    printed = Score.of(run_controller("ctrl", pattern, cost=COSTS["varying"], seconds=60.0))
    assert ours.violations_s == pytest.approx(baseline.violations_s, rel=0.05)
    assert printed.violations_s > 1.2 * baseline.violations_s


def test_an_allowance_is_unused_as_far_as_fewer_tuples_come() -> None:
    assert unused_allowance(_run("aurora", 2 * USABLE_TPS)) == 0
    # Half the capacity comes in each period but the first, of which nothing is known ahead.
    assert unused_allowance(_run("aurora", USABLE_TPS / 2)) == pytest.approx((SECONDS - 1) * USABLE_TPS / 2, rel=0.02)


def test_idle_time_is_what_is_left_of_the_usable_capacity() -> None:
    assert idle_share(_run("ctrl", 2 * USABLE_TPS)) == pytest.approx(0.0, abs=0.01)
    assert idle_share(_run("ctrl", USABLE_TPS / 4)) == pytest.approx(0.75, abs=0.01)


def test_a_peak_is_a_mean_delay_of_a_period_and_0_without_tuples() -> None:
    run = run_controller("aurora", Phases(((3 * USABLE_TPS, 2.0), (USABLE_TPS / 10, 18.0))), seconds=SECONDS)
    # The first second leaves two seconds of work behind, and in the next AURORA lets in what is worked off.
    assert peak_s(run) == pytest.approx(2.0, rel=0.01)
    assert peak_s(run_controller("aurora", Phases(((0.0, SECONDS),)), seconds=SECONDS)) == 0


def test_parameters_are_alike_if_violations_are_within_a_factor_on_every_load() -> None:
    one = Score(100.0, 10, 1.0, 0.3)

    def variants(*others: float) -> Variants:
        scores = {("web", cost): {PRINTED: one} for cost in COSTS}
        for (_, of), violations_s in zip(scores.items(), others, strict=True):
            of |= {name: replace(one, violations_s=violations_s) for name in VARIANTS}
        return Variants(scores, {point: dict.fromkeys(of, 2.5) for point, of in scores.items()})

    assert variants(70.0, 140.0).claim.holds
    assert not variants(70.0, 160.0).claim.holds
    assert not variants(60.0, 140.0).claim.holds
    found = variants(50.0, 100.0)
    assert found.relative("web", "constant", FORGETFUL) == 0.5
    assert "0.50× (web, constant cost)" in found.claim.measured
    assert len(found.table.rows) == 2 * (1 + len(VARIANTS))
    assert found.draw().axes
