"""Borealis's example through the command line's form, and the verdicts that must come out."""

from __future__ import annotations

from dataclasses import replace

from streamshed.experiments.borealis_example import work_out_example
from streamshed.experiments.borealis_spikes import MODES, SCENARIOS, Outcome, verdicts
from streamshed.experiments.borealis_trees import (
    TreeOutcome,
    measured_tree,
    of_bounds,
    of_spreads,
    of_trees,
    tree_sizes,
)
from streamshed.experiments.claims import Claim, Settings
from streamshed.experiments.random_trees import random_tree


def test_the_example_holds_but_for_what_the_paper_miscounts() -> None:
    result = work_out_example(Settings())
    failing = {claim.claim for claim in result.claims if not claim.holds}
    assert failing == {"Figure 2: the size of node B's table", "Section 3.4: the entry for (0.5, 0.5)"}
    by_name = {claim.claim: claim for claim in result.claims}
    assert "48 feasible points" in by_name["Figure 2: the size of node B's table"].measured
    assert (
        "(0.1, 0.5) with score 0.55; with half the error (0.15, 0.5) with 0.575"
        in by_name["Section 3.4: the entry for (0.5, 0.5)"].measured
    )
    assert len(result.tables[0].rows) == 48
    result.figures["figure-2"]()


def test_a_tree_is_measured() -> None:
    outcome = measured_tree(random_tree(3, 1, most_inputs=2))
    assert outcome.nodes == 3
    assert -1e-6 <= outcome.shortfall <= 0.1
    assert outcome.overload <= 1 + 1e-4
    sizes = tree_sizes(200, 50, 0)
    assert (min(sizes), len(sizes)) == (2, 200)
    assert 40 <= max(sizes) <= 50


def outcomes_as_expected() -> list[Outcome]:
    """What the paper hopes for: tables near the optimum and quick, a coordinator better and slow, local ones bad."""
    of_mode = {"tables": (0.96, 2.0), "coordinator": (0.99, 4.0), "local": (0.8, 1.0)}
    return [
        Outcome(scenario, mode, tree, score, score + tree / 1000, 0.5, periods, 3.0, 200.0, 0.1)
        for scenario in SCENARIOS
        for tree in range(4)
        for mode, (score, periods) in of_mode.items()
    ]


def refuted(claims: tuple[Claim, ...]) -> list[str]:
    return [claim.claim for claim in claims if not claim.holds]


def test_verdicts_under_spikes_are_computed() -> None:
    found = outcomes_as_expected()
    assert len(verdicts(found)) == 6
    assert refuted(verdicts(found)) == []
    plain = [one for one in found if one.scenario == SCENARIOS[0]]
    assert len(verdicts(plain)) == 4

    def changed(scenario: str, mode: str, **values: float) -> list[str]:
        return refuted(
            verdicts([replace(one, **values) if (one.scenario, one.mode) == (scenario, mode) else one for one in found])  # type: ignore[arg-type]
        )

    spikes, lossy, restart = SCENARIOS
    assert MODES == ("tables", "coordinator", "local")
    assert any("do not coordinate" in claim for claim in changed(spikes, "local", before=0.96))
    assert any("control over quality" in claim for claim in changed(spikes, "tables", during=0.9))
    assert any("more slowly" in claim for claim in changed(spikes, "tables", reaction_periods=float("inf")))
    assert any("higher quality" in claim for claim in changed(spikes, "coordinator", during=0.95))
    assert changed(lossy, "tables", during=0.9) == ["Beyond the paper: 20 % of the messages get lost"]
    assert changed(restart, "tables", during=0.9) == [
        "Beyond the paper: a node is down for 5 s and comes back knowing nothing"
    ]


def test_verdicts_on_trees_are_computed() -> None:
    found = [TreeOutcome(nodes, 4, 0.01, 1.0, 10 * nodes, 0.1 * nodes) for nodes in (2, 4, 8, 16, 32)]
    assert refuted(of_trees(found)) == []
    assert "time ~ nodes^1.00" in of_trees(found)[2].measured
    assert len(refuted(of_trees([*found, TreeOutcome(8, 4, 0.11, 1.01, 80, 0.8)]))) == 2
    assert refuted(of_trees([replace(one, seconds=0.01 * one.nodes**2.5) for one in found])) == [
        "Section 1.2: the effort scales with the number of nodes"
    ]
    leaf = [(inputs, share, "grid", round((1 / share) ** inputs), 0.0) for inputs in (1, 2) for share in (0.2, 0.1)]
    leaf += [(2, 0.2, "corners", 5, 0.0)]
    assert of_spreads(leaf).holds
    assert not of_spreads([*leaf[:3], (2, 0.1, "grid", 5, 0.0)]).holds
    assert of_bounds({4: [0.0, 0.02], 2: [0.1, 0.1]}).holds
    assert not of_bounds({4: [0.0, 0.02], 2: [0.2, 0.1]}).holds
    assert not of_bounds({4: [0.05, 0.02], 2: [0.1, 0.1]}).holds
