"""The loop closed around the simulator: small runs of what `simulate control` and `reproduce control` do at length."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.control import PolePlacementController
from streamshed.engines.sim import SimResult
from streamshed.experiments import Settings, reproduce
from streamshed.experiments.control_goals import stand
from streamshed.experiments.control_loads import other_loads
from streamshed.experiments.control_plant import (
    USABLE_TPS,
    Score,
    least_loss,
    load_named,
    mean_load,
    run_controller,
    web_like,
)
from streamshed.experiments.disturbances import disturbed
from streamshed.workload import ArrivalPattern, Constant, Pareto, Phases, Step
from streamshed.workload.costs import ConstantCost, CostJump, CostTrace

SECONDS = 60.0
TARGET_S = 2.0
JUMP = CostJump(at_s=25, height=3, fall_s=10)
FALL = CostJump(at_s=25, height=0.3, fall_s=20)
LOADS: dict[str, ArrivalPattern] = {
    "web": web_like(1.4 * USABLE_TPS, SECONDS, seed=3),
    "pareto": Pareto(1.7 * USABLE_TPS, 1.0, seed=4),
    "bursts": Phases(((120.0, 8.0), (600.0, 1.5)), repeat=True),
    "step": Step(50.0, 2 * USABLE_TPS, 10.0),
}


def run(name: str, pattern: ArrivalPattern, cost: CostTrace | None = None, **options: float) -> SimResult:
    return run_controller(name, pattern, cost=cost, seconds=SECONDS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", [ConstantCost(), JUMP, FALL], ids=["constant", "jump", "fall"])
@pytest.mark.parametrize("load", LOADS)
def test_deadline_has_a_fiftieth_of_ctrls_violations_and_next_to_the_least_loss(load: str, cost: CostTrace) -> None:
    pattern = LOADS[load]
    ctrl, ours = Score.of(run("ctrl", pattern, cost)), Score.of(run("deadline", pattern, cost))
    assert ours.violations_s <= max(ctrl.violations_s / 50, 1.0)
    assert ours.loss <= least_loss(pattern, cost, seconds=SECONDS) + 0.005


def test_ctrl_holds_a_standing_queue_at_the_target() -> None:
    series = run("ctrl", Constant(1.5 * USABLE_TPS)).series
    assert np.nanmean(series.delay_mean_s[25:55]) == pytest.approx(TARGET_S, rel=0.05)


def test_ctrl_follows_a_new_target() -> None:
    controller = PolePlacementController(1.0)
    result = run_controller(
        controller, Constant(1.8 * USABLE_TPS), seconds=SECONDS, target_s=1.0, target_changes={30.0: 3.0}
    )
    delay_s = result.series.delay_mean_s
    assert np.nanmean(delay_s[20:28]) == pytest.approx(1.0, rel=0.1)
    assert np.nanmean(delay_s[45:55]) == pytest.approx(3.0, rel=0.1)


def test_aurora_never_gets_rid_of_a_backlog() -> None:
    """Example 2 of the paper: a step leaves AURORA above the target for good, and CTRL comes back."""
    step = Step(1.02 * USABLE_TPS, 4.5 * USABLE_TPS, 10.0)
    aurora, ctrl = run("aurora", step), run("ctrl", step)
    assert np.nanmean(aurora.series.delay_mean_s[40:50]) > 3.0
    assert np.nanmean(ctrl.series.delay_mean_s[40:50]) == pytest.approx(TARGET_S, rel=0.1)


def test_deadline_follows_a_shorter_target_at_once() -> None:
    result = run_controller(
        "deadline", Constant(2 * USABLE_TPS), seconds=SECONDS, target_s=3.0, target_changes={30.0: 1.0}
    )
    arrived_after = result.series.time_s > 31
    assert np.nanmax(result.series.delay_max_s[arrived_after]) <= 1.02
    assert 2.5 < np.nanmean(result.series.delay_max_s[15:25]) <= 3.02


@pytest.mark.parametrize("name", ["deadline", "deadline-on-arrival"])
def test_wrong_and_late_costs_hardly_matter(name: str) -> None:
    """The cost is told five periods late and 30 % wrong, and jumps to three times meanwhile."""
    from streamshed.control import controller_named

    def score(of: str) -> Score:
        controller = disturbed(controller_named(of, TARGET_S), lag=5, noise=0.3, seed=1)
        return Score.of(run_controller(controller, LOADS["web"], cost=JUMP, seconds=SECONDS))

    assert score(name).violations_s < score("ctrl").violations_s / (20 if name == "deadline" else 2)


def test_the_least_loss_by_hand() -> None:
    """Six tuples at once, each takes a second, and three and a half to do it: three are lost."""
    burst = Phases(((6e6, 1e-6), (0.0, 10.0)))
    assert least_loss(burst, ConstantCost(USABLE_TPS), target_s=3.5, seconds=8.0) == pytest.approx(0.5)


def test_synthetic_web_traffic_is_bursty_on_all_scales() -> None:
    pattern = web_like(200.0, 400.0)
    counts = np.diff(pattern.cumulative(np.arange(0, 400.1, 0.1)))
    assert counts.sum() / 400 == pytest.approx(200, rel=0.01)
    ten_seconds = counts[:4000].reshape(40, 100).sum(axis=1)
    poisson = np.sqrt(ten_seconds.mean())
    assert ten_seconds.std() > 2 * poisson, "averages over ten seconds do not get smooth"
    assert web_like(200.0, 400.0) == pattern


def test_mean_load_counts_the_cost() -> None:
    assert mean_load(Constant(USABLE_TPS), ConstantCost(2.0), 50.0) == pytest.approx(2.0, rel=0.01)


# --- the command ----------------------------------------------------------------------------------------------------


def test_simulate_control_writes_what_it_shows(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("# a comment\ncount\n" + "15\n" * 100 + "60\n" * 100)
    numbers, picture = tmp_path / "scores.json", tmp_path / "figure.png"
    arguments = ["simulate", "control", "--trace", str(trace), "--scale", "2", "--start", "1", "--seconds", "15"]
    arguments += ["--cost", "varying", "--controllers", "ctrl,deadline", "--target", "1"]
    result = CliRunner().invoke(app, [*arguments, "--json", str(numbers), "--figure", str(picture)])
    assert result.exit_code == 0, result.output
    assert "CTRL" in result.output
    scores = json.loads(numbers.read_text())
    assert list(scores) == ["ctrl", "deadline"]
    for score in scores.values():
        assert set(score) == {"violations_s", "delayed", "overshoot_s", "loss"}
    assert scores["deadline"]["violations_s"] < scores["ctrl"]["violations_s"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_simulate_loads_judges_ours_on_every_load(tmp_path: Path) -> None:
    numbers = tmp_path / "loads.json"
    arguments = ["simulate", "loads", "--no-others", "--seconds", "5", "--controllers", "", "--json", str(numbers)]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(numbers.read_text())
    assert {(one["load"], one["cost"]) for one in found} == {
        (load, cost)
        for load in ("web (synthetic)", "pareto 0.5", "pareto 1", "step", "sinusoid")
        for cost in ("constant", "varying")
    }
    for one in found:
        assert set(one["scores"]) == {"ctrl", "deadline"}
    assert "Ours: at most 1/20 of CTRL's violations" in result.output


def test_goals_are_judged_by_load() -> None:
    ctrl, ours = Score(100.0, 50, 1.0, 0.200), Score(3.0, 5, 0.1, 0.203)
    below = stand({"ctrl": ctrl, "deadline": ours}, demand=1.2, least=0.202)
    above = stand({"ctrl": ctrl, "deadline": ours}, demand=1.3, least=0.202)
    assert (below.met_violations, below.met_loss) == (True, True), "0.03 of the violations, 1.015 of the loss"
    assert (above.met_violations, above.met_loss) == (False, False), "1/50 and 1.01 where it is overloaded"
    assert below.least == pytest.approx(1.01)
    none = Score(0.0, 0, 0.0, 0.0)
    assert stand({"ctrl": none, "deadline": none}, 0.5, 0.0).met_violations


def test_other_loads_need_no_trace() -> None:
    cases = other_loads(None, 20.0, seed=0)
    assert mean_load(cases["on and off"].arrivals, ConstantCost(), 100.0) == pytest.approx(1.6, rel=0.01)
    assert {case.target_s for case in cases.values()} == {1.0, 2.0, 5.0}
    assert mean_load(cases["pareto 1, load 2.5"].arrivals, ConstantCost(), 4000.0) == pytest.approx(2.5, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--controllers", "ctlr"], "did you mean 'ctrl'"),
        (["--seconds", "0"], "--seconds"),
        (["--load", "0"], "--load"),
        (["--planner", "none"], "planner"),
        (["--figure", "x.doc"], "format"),
        (["--trace", "/nowhere.csv"], "cannot be read"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["simulate", "control", "--seconds", "2", *arguments])
    assert result.exit_code == 2
    assert message in result.output


def test_a_quick_reproduction_judges_every_figure() -> None:
    result = reproduce("control", Settings(quick=True))
    text = " ".join(claim.claim for claim in result.claims)
    for figure in ("fig. 5", "fig. 6", "fig. 7", "fig. 12", "fig. 15", "fig. 16", "fig. 17", "fig. 18", "fig. 19"):
        assert figure in text
    assert {table.name for table in result.tables} >= {
        "model",
        "controllers",
        "disturbances",
        "ctrl-variants",
        "periods",
    }


def test_synthetic_loads_have_the_load_they_are_asked_for() -> None:
    for name in ("web", "pareto", "sinusoid"):
        pattern = load_named(name, load=1.5, seconds=4000.0)
        assert mean_load(pattern, ConstantCost(), 4000.0) == pytest.approx(1.5, rel=0.05)
