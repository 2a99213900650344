"""MavStream's experiments: a very short run through the command line, and what the verdicts look at."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.experiments.claims import Claim, Settings
from streamshed.experiments.mavstream_runs import MTRES, Errors, Lengths
from streamshed.experiments.mavstream_shedding_claims import of_errors


def test_a_short_run_gives_claims_tables_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lengths, "of", classmethod(lambda cls, _: cls(6, 6, 3, 6, 40)))
    out = tmp_path / "out"
    answer = CliRunner().invoke(
        app, ["reproduce", "mavstream", "--quick", "--json", str(tmp_path / "c.json"), "--out", str(out)]
    )
    assert answer.exit_code == 0, answer.output
    claims = json.loads((tmp_path / "c.json").read_text())
    assert len(claims) == 31
    assert all(set(claim) == {"claim", "paper", "measured", "holds", "reason"} for claim in claims)
    by_name = {claim["claim"].partition(":")[0]: claim for claim in claims[:3]}
    assert [by_name[f"Table 4.{n}"]["holds"] for n in (2, 3, 5)] == [False, True, True]
    assert "0.75" in by_name["Table 4.2"]["reason"]
    assert len(list(out.glob("*.png"))) == 6
    with (out / "mavstream-strategies.csv").open() as file:
        rows = list(csv.reader(file))
    assert len(rows) == 2 + 3 * 4 + 2
    with (out / "mavstream-errors.csv").open() as file:
        assert len(list(csv.reader(file))) == 2 + 4 * 3


def test_lengths() -> None:
    assert Lengths.of(Settings()).tighten_s == 500
    assert Lengths.of(Settings(quick=True)).multiple_s < 60


def errors_as_in_the_thesis() -> dict[tuple[str, float], Errors]:
    outer = {"lowest first": (0.02, 0.01), "highest first": (0.03, 0.01)}
    sizes = {"random": (1.0, 0.02), "centre first": (0.5, 0.015), **outer}
    return {
        (kind, mtre): Errors(np.full(5, of_sum * mtre), np.full(5, of_mean * mtre), of_sum * mtre)
        for kind, (of_sum, of_mean) in sizes.items()
        for mtre in MTRES[1:]
    }


def verdict(claims: list[Claim], part: str) -> bool:
    (found,) = [claim for claim in claims if part in claim.claim]
    return found.holds


def test_verdicts_on_errors_are_computed() -> None:
    found = errors_as_in_the_thesis()
    assert all(claim.holds for claim in of_errors(found))
    found["random", 0.1] = replace(found["random", 0.1], sums=np.full(5, 0.05))
    found["lowest first", 0.3] = replace(found["lowest first", 0.3], means=np.full(5, 0.2))
    claims = of_errors(found)
    assert not verdict(claims, "the error of sums is near")
    assert not verdict(claims, "greatest error in averages")
    assert not verdict(claims, "very small errors")
    assert verdict(claims, "greatest error in sums")
    assert verdict(claims, "stay within the tolerance")
    found["centre first", 0.1] = replace(found["centre first", 0.1], sums=np.full(5, 0.12))
    assert not verdict(of_errors(found), "stay within the tolerance")
