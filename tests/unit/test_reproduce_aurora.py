"""Aurora's experiments: verdicts on measurements made up for the test, and a quick run through the command line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.experiments.aurora_claims import verdicts
from streamshed.experiments.aurora_runs import PLANNERS, Check, Measurements, Outcome, excess
from streamshed.experiments.claims import Claim
from streamshed.experiments.samples import difference, estimate, ratio, ratio_difference

SEEDS = 10
# Losses as the paper's figures have them, at the lowest, a middle and the highest rate.
AS_IN_THE_PAPER = {
    "semantic": (0.0, 0.30, 0.50),
    "roadmap": (0.08, 0.38, 0.58),
    "optimal": (0.08, 0.38, 0.58),
    "input-uniform": (0.10, 0.50, 0.80),
    "input-cost-uniform": (0.10, 0.49, 0.79),
    "input-cost-top": (0.20, 0.60, 0.90),
    "input-random": (0.20, 0.60, 0.90),
}


def outcomes(loss: float, *, at_inputs: float = 1.0, load: float = 1.0, noise: float = 0.0) -> tuple[Outcome, ...]:
    luck = np.random.default_rng(int(1e6 * loss)).normal(0, noise, SEEDS) if noise else np.zeros(SEEDS)
    shared = np.random.default_rng(0).normal(0, 0.001, SEEDS)  # what all planners have in common on a network
    return tuple(
        Outcome(loss + common + own, loss + common + own, load, loss + common, loss + common, at_inputs)
        for common, own in zip(shared, luck, strict=True)
    )


def measured(
    losses: dict[str, tuple[float, ...]] | None = None,
    *,
    skewed: Callable[[float, float], float] = lambda skew, time: 1 + (1 + skew) * time / 5,
    shared: Callable[[float, float], float] = lambda skew, share: 1 + (1 + skew) / (1 + 10 * share),
    noise: float = 0.0,
) -> dict[str, Claim]:
    """The claims for made-up losses, and ratios by skew and rate, and by skew and excess."""
    losses = losses or AS_IN_THE_PAPER
    rates = Measurements(
        {(p, (time,)): outcomes(losses[p][i], noise=noise) for p in PLANNERS for i, time in enumerate((10, 5, 3))}
    )
    skews = Measurements(
        {
            (planner, (skew, time)): outcomes(0.1 * (skewed(skew, time) if planner == "roadmap" else 1))
            for planner in ("semantic", "roadmap")
            for skew in (0.0, 1.0)
            for time in (7, 3)
        }
    )
    sharing = Measurements(
        {
            (planner, (skew, share)): outcomes(
                0.2 * (shared(skew, share) if planner == "input-uniform" else 1), at_inputs=0.0 if share < 1 else 0.97
            )
            for planner in ("input-uniform", "roadmap", "optimal")
            for skew in (0.0, 1.0)
            for share in (0.25, 100.0)
        }
    )
    checks = (Check("none", 3, 5.0, 0.8, 0, 0, 0, 0), Check("semantic", 3, 0.1, 0.001, 0.5, 0.5, 0.501, 0.499))
    return {claim.claim: claim for claim in verdicts(rates, skews, sharing, checks)}


def the(claims: dict[str, Claim], words: str) -> Claim:
    found = [claim for name, claim in claims.items() if words in name]
    assert len(found) == 1, (words, list(claims))
    return found[0]


def test_measurements_like_the_papers_bear_all_its_claims_out() -> None:
    claims = measured()
    assert [claim.claim for claim in claims.values() if not claim.holds] == []


@pytest.mark.parametrize(
    ("planner", "losses", "words"),
    [
        ("semantic", (0.0, 0.39, 0.50), "Semantic-LS loses less tuple utility than Random-LS"),
        ("semantic", (0.0, 0.10, 0.10), "the distance between the two is constant"),
        ("semantic", (0.05, 0.3, 0.5), "gains cycles for free"),
        ("roadmap", (0.08, 0.38, 0.81), "Random-LS loses less tuple utility than Input-Uniform"),
        ("roadmap", (0.0, 0.40, 0.70), "the road map loses no more utility than necessary"),
        ("input-random", (0.20, 0.49, 0.90), "Input-Random does worse"),
        ("input-cost-top", (0.05, 0.60, 0.90), "both QoS-driven algorithms do better"),
        ("input-cost-uniform", (0.14, 0.45, 0.70), "Input-Cost-Uniform is almost the same"),
        ("input-random", (0.20, 0.95, 0.90), "higher rates cost every algorithm"),
        ("optimal", (0.08, 0.25, 0.58), "Figure 10"),
    ],
)
def test_a_verdict_falls_with_what_it_is_about(planner: str, losses: tuple[float, ...], words: str) -> None:
    claim = the(measured({**AS_IN_THE_PAPER, planner: losses}), words)
    assert not claim.holds
    assert claim.reason


def test_ratios_that_go_the_other_way_are_seen() -> None:
    claims = measured(
        skewed=lambda skew, time: 3 - skew + 1 / time, shared=lambda skew, share: 2 - skew / 2 + share / 100
    )
    for words in (
        "grows with skew, at every rate",
        "shrinks as rates grow",
        "Input-Uniform / Random-LS grows with skew",
        "falls towards 1",
    ):
        assert not the(claims, words).holds


def test_an_order_within_the_spread_does_not_count() -> None:
    claim = the(measured(noise=0.3), "Semantic-LS loses less tuple utility than Random-LS")
    assert not claim.holds


def test_ratios_of_means_stand_runs_with_nothing_below_the_line() -> None:
    found = ratio([2.0, 4.0, 6.0], [0.0, 2.0, 4.0])
    assert found.mean == 2
    # Influences (a − 2b)/2 are 1, 0, −1: deviation 1, t(0.975, 2) = 4.30265, over √3.
    assert found.margin == pytest.approx(4.30265 / 3**0.5, abs=1e-4)
    assert ratio([1.0, 1.0], [0.0, 0.0]).mean == float("inf")
    apart = ratio_difference(([2.0, 4.0], [1.0, 2.0]), ([1.0, 2.0], [1.0, 2.0]))
    assert (apart.mean, apart.margin) == (1, 0)
    assert difference([3.0, 5.0], [1.0, 1.0]).mean == 3
    assert estimate([3.0, 5.0]).high > 4


def test_excess_follows_the_rates() -> None:
    assert excess(10) == pytest.approx(0.22)
    assert excess(5) == pytest.approx(1.44)


def test_a_quick_run_through_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "claims.json", tmp_path / "figures"
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["reproduce", "aurora", "--quick", "--json", str(file), "--out", str(out)])
    assert result.exit_code == 0, result.output
    claims = json.loads(file.read_text())
    assert len(claims) >= 20
    assert all(set(claim) == {"claim", "paper", "measured", "holds", "reason"} for claim in claims)
    assert all(bool(claim["reason"]) != claim["holds"] for claim in claims)
    by_name = {claim["claim"]: claim["holds"] for claim in claims}
    # Clear enough for three networks: value utility, the ratios, and what the simulator shows.
    for words in ("Figure 10", "grows with skew, at every rate", "drops at the input", "back into its useful range"):
        assert [holds for name, holds in by_name.items() if words in name] == [True]
    assert {path.name for path in out.glob("*.png")} == {f"aurora-figure-{n}.png" for n in (9, 10, 11, 12)}
    with (out / "aurora-figures-9-10.csv").open() as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    losses = {(row["planner"], float(row["inter_arrival_time"])): float(row["tuple_loss"]) for row in rows}
    assert {planner for planner, _ in losses} == set(PLANNERS)
    for time in (10.0, 6.0, 2.0):
        assert losses["semantic", time] < losses["roadmap", time] < losses["input-uniform", time]
