"""DISSP's experiments: verdicts on measurements made up for the test, the workload, and what a shedder expects."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.experiments import dissp, dissp_studies
from streamshed.experiments.claims import Claim, Settings
from streamshed.experiments.dissp_claims import Findings, verdicts
from streamshed.experiments.dissp_runs import (
    ONE_NODE,
    OVERLOADS,
    TEN_NODES,
    VARIANTS,
    EqualPolicy,
    Measured,
    Outcome,
    simulate,
)
from streamshed.experiments.dissp_runs import outcome as summed_up
from streamshed.experiments.dissp_studies import Churn, Errors, Peak, Undisturbed
from streamshed.experiments.dissp_workload import KINDS, Workload, build
from streamshed.planning.fair import Batch, Batches, OverloadDetector, Shedder

EVEN = Outcome(0.999, 0.02, 0.005, 0.5, 0.49, 0.999, 0.3, 0.99)
UNEVEN = Outcome(0.95, 0.3, 0.1, 0.5, 0.35, 0.96, 0.3, 0.99)
WORSE = replace(UNEVEN, jain=0.9)


def measured(points: tuple[float, ...], outcomes: dict[str, Outcome]) -> Measured:
    luck = np.random.default_rng(0).normal(0, 1e-5, 10)
    return Measured(
        {
            (variant, point): tuple(replace(one, jain=one.jain + own) for own in luck)
            for point in points
            for variant, one in outcomes.items()
        }
    )


def as_promised() -> Findings:
    """What would be measured if everything were as the chapter has it."""
    good = {name: EVEN if name.startswith("fair") else UNEVEN for name in VARIANTS} | {"fair-alone": UNEVEN}
    two = {"fair": EVEN, "random": UNEVEN}
    spared = {"fair-sparing": EVEN, "random": UNEVEN}
    interval = {
        ("fair", point): (replace(EVEN, wait_s=2 * point, mean=0.5 if point > 0.1 else 0.45),) * 3
        for point in (0.025, 0.25, 2.0)
    }
    times_s = np.arange(10.0, 81.0)
    return Findings(
        undisturbed=Undisturbed(1e-15, 120, np.arange(80) * 0.1),
        errors=Errors((0.9, 0.5, 0.2), {"AVG": (0.01, 0.02, 0.05)}, {"AVG": -0.5}),
        one=measured(OVERLOADS, {name: good[name] for name in ONE_NODE}),
        ten=measured(OVERLOADS, {name: good[name] for name in TEN_NODES}),
        unequal=measured((2.0,), spared | {"proportional": UNEVEN}),
        bursty=measured((2.0,), two | {"proportional": UNEVEN}),
        queries=measured((15.0, 60.0), two),
        nodes=measured((2.0, 10.0), spared),
        parts=measured((1.0, 3.0), spared),
        lag=measured((0.05, 3.0), {"fair-sparing": EVEN}),
        interval=Measured(interval),
        churn=Churn(times_s, np.full((2, len(times_s)), 0.99), np.full((2, len(times_s)), 0.6)),
        peak=Peak(3000, 4.0, 0),
        decisions_ms={1: 5.0, 50: 0.2},
    )


def judged(findings: Findings) -> dict[str, Claim]:
    return {claim.claim: claim for claim in verdicts(findings)}


def refuted(findings: Findings) -> set[str]:
    """What does not hold, by the first words."""
    return {name for name, claim in judged(findings).items() if not claim.holds}


def test_everything_holds_if_it_is_as_promised() -> None:
    found = judged(as_promised())
    assert len(found) == 29
    assert [name for name, claim in found.items() if not claim.holds] == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"undisturbed": Undisturbed(1e-3, 120, np.arange(80) * 0.1)}, "a query that loses nothing"),
        ({"undisturbed": Undisturbed(0.0, 120, np.full(80, 0.3))}, "queues of an overloaded node grow"),
        ({"errors": Errors((0.9, 0.5, 0.2), {"MAX": (0.02, 0.01, 0.02)}, {"MAX": -0.1})}, "how much information"),
        ({"peak": Peak(3000, 4.0, 1)}, "isolated large batch"),
        ({"decisions_ms": {1: 0.3, 50: 0.2}}, "batches instead of tuples"),
        ({"lag": measured((0.05, 3.0), {"fair-sparing": UNEVEN})}, "may take their time"),
        ({"unequal": measured((2.0,), {"fair-sparing": UNEVEN, "random": WORSE})}, "even where nodes are not"),
        ({"bursty": measured((2.0,), {"fair": UNEVEN, "random": EVEN})}, "bursty queries"),
        ({"parts": measured((1.0, 3.0), {"fair-sparing": UNEVEN, "random": WORSE})}, "number of parts"),
    ],
)
def test_each_verdict_depends_on_what_was_measured(change: dict[str, object], words: str) -> None:
    found = refuted(replace(as_promised(), **change))  # type: ignore[arg-type]
    assert len(found) == 1
    assert words in found.pop()


def test_a_lower_mean_is_a_price() -> None:
    poor = measured(OVERLOADS, {n: replace(EVEN, mean=0.4) if n == "fair" else UNEVEN for n in TEN_NODES})
    found = refuted(replace(as_promised(), ten=poor))
    assert (
        "Fairness costs nothing: the mean SIC is no worse than random's, on ten nodes, Algorithm 1 as printed" in found
    )


def test_the_workload_has_the_load_it_is_asked_for() -> None:
    for nodes, overload in ((1, 3.0), (10, 1.5)):
        federation = build(Workload(nodes=nodes, overload=overload), seed=1)
        loads = federation.load(60.0)
        assert sum(loads.values()) / sum(federation.speeds.values()) == pytest.approx(overload, rel=0.01)
        assert federation.queries == 60
        assert max(loads.values()) < 1.25 * min(loads.values()), "balanced"
    uneven = build(Workload(nodes=10, placement="random"), seed=1).load(60.0)
    assert max(uneven.values()) > 1.5 * min(uneven.values())
    assert {fragment.query % len(KINDS) for fragment in federation.fragments} == {0, 1, 2}


def test_equal_resources_are_equal() -> None:
    waiting = Batches.of(query=[0, 0, 1, 2, 2], sic=[0.1] * 5, tuples=[40, 60, 10, 50, 50])
    kept = EqualPolicy().keep(waiting, np.zeros(3), capacity=90)
    assert kept.tolist() == [40, 0, 10, 40, 0]


def test_a_node_expects_the_others_to_do_as_it_does() -> None:
    shedder = Shedder(queries=2, detector=OverloadDetector(1.0), window_s=10.0)
    for time_s in range(1, 11):
        for query in (0, 1):
            shedder.put(Batch(query, 0.02, 1))
            shedder.take(float(time_s))
    assert shedder.projected(10.0) == pytest.approx([0.2, 0.2])
    shedder.report(10.0, 0, 0.4)  # half of it came from elsewhere
    assert shedder.projected(10.0) == pytest.approx([0.4, 0.2])
    shedder.put(Batch(0, 0.05, 1))
    shedder.take(11.0)  # and 0.02 of the first second has left the window
    assert shedder.projected(11.0) == pytest.approx([0.4 + 2 * 0.03, 0.18])
    assert shedder.projected(25.0)[0] == pytest.approx(0.0), "what is long past counts no more"
    shedder.report(25.0, 0, 0.4)
    assert shedder.projected(40.0)[0] == pytest.approx(0.2), "a report fades in the second window"
    assert shedder.projected(45.0)[0] == pytest.approx(0.0)


def test_derived_tuples_are_spared_if_wanted() -> None:
    def kept(spares: bool) -> list[int]:
        shedder = Shedder(queries=2, spares_derived=spares)
        shedder.report(0.0, 0, 0.9)
        for batch in (Batch(0, 0.05, 2, is_derived=True), Batch(1, 0.01, 3000), Batch(1, 0.01, 3000)):
            shedder.put(batch)
        outcome = shedder.check(0.3, elapsed_s=0.3, processed=5000)
        assert outcome is not None
        return [int(count) for count in outcome.kept]

    assert kept(spares=False) == [0, 4166]
    assert kept(spares=True) == [2, 4164]


def test_a_run_is_summed_up() -> None:
    run = simulate(build(Workload(queries=6, overload=2.0), 1), VARIANTS["fair"], 1)
    found = summed_up(run)
    assert found.jain > 0.99
    assert found.mean == pytest.approx(0.5, abs=0.03)
    assert found.least <= found.mean <= found.least + found.spread


def test_a_large_batch_is_dropped_although_it_could_be_processed() -> None:
    peak = dissp_studies.send_peak(Settings())
    assert peak.intervals == pytest.approx(4, abs=0.1)
    assert peak.dropped > 0


def test_the_command_writes_claims_figures_and_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    findings = as_promised()
    for part, names in (
        (dissp.studies, {"leave_undisturbed": findings.undisturbed, "measure_errors": findings.errors,
                         "vary_interval": findings.interval, "come_and_go": findings.churn,
                         "send_peak": findings.peak, "time_decisions": findings.decisions_ms}),
        (dissp.runs, {"share_one_node": findings.one, "share_ten_nodes": findings.ten,
                      "place_unequally": findings.unequal, "burst": findings.bursty,
                      "vary_queries": findings.queries, "vary_nodes": findings.nodes,
                      "vary_parts": findings.parts, "vary_lag": findings.lag}),
    ):  # fmt: skip
        for name, value in names.items():
            monkeypatch.setattr(part, name, lambda _, value=value: value)
    result = CliRunner().invoke(app, ["reproduce", "dissp", "--json", str(tmp_path / "c.json"), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len(json.loads((tmp_path / "c.json").read_text())) == 29
    assert len(list(tmp_path.glob("dissp-*.png"))) == 6
    assert len(list(tmp_path.glob("dissp-*.csv"))) == 11
