"""Borealis's example through the command line's form, and the verdicts that must come out."""

from __future__ import annotations

from streamshed.experiments.borealis_example import work_out_example
from streamshed.experiments.borealis_trees import measured_tree, tree_sizes
from streamshed.experiments.claims import Settings
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
