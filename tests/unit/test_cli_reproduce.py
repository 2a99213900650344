"""The shared form of the papers' experiments, and `streamshed reproduce` over a paper made up for the test."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.errors import InvalidValueError
from streamshed.experiments import PAPERS, Claim, DataTable, Paper, Reproduction, Settings, as_documents, judged
from streamshed.experiments.samples import difference, estimate

KEYS = {"claim", "paper", "measured", "holds", "reason"}


def run(*arguments: object) -> tuple[int, str, str]:
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["reproduce", *(str(argument) for argument in arguments)])
    return result.exit_code, " ".join(result.stdout.split()), result.stderr


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """A paper with one claim that holds and one that does not, and the settings that it was run with."""
    seen: list[Settings] = []

    def reproduce(settings: Settings) -> Reproduction:
        from matplotlib.figure import Figure

        seen.append(settings)
        settings.progress.begin("measuring", 2)
        settings.progress.advance()
        return Reproduction(
            (
                judged("one is less than two", "obvious", "1 < 2", 1 < 2, otherwise="arithmetic"),
                judged("two is less than one", "a misprint", "2 > 1", 2 < 1, otherwise="arithmetic"),
            ),
            (DataTable("numbers", "Two numbers", ("seed", "value"), ((settings.seed, 0.5),)),),
            {"picture": lambda: Figure(figsize=(1, 1))},
        )

    module = types.ModuleType("made_up_paper")
    module.reproduce = reproduce  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up_paper", module)
    for name in list(PAPERS):
        monkeypatch.delitem(PAPERS, name)
    monkeypatch.setitem(PAPERS, "made-up", Paper("A paper that nobody wrote", "made_up_paper"))
    return seen


def test_a_claim_has_a_reason_exactly_where_it_does_not_hold() -> None:
    with pytest.raises(InvalidValueError, match="needs a reason"):
        Claim("c", "p", "m", False)
    with pytest.raises(InvalidValueError, match="given for a claim that holds"):
        Claim("c", "p", "m", True, "because")
    assert judged("c", "p", "m", False, otherwise="because").reason == "because"


def test_verdicts_of_numpy_become_json() -> None:
    claim = judged("c", "p", "m", np.float64(1) < np.float64(2), otherwise="never")
    assert json.loads(json.dumps(as_documents((claim,)))) == [
        {"claim": "c", "paper": "p", "measured": "m", "holds": True, "reason": ""}
    ]


def test_interval_of_a_mean_is_students() -> None:
    # Four runs: t(0.975, 3) = 3.18245, standard deviation 1.29099, so 3.18245·1.29099/2.
    assert estimate([1, 2, 3, 4]).margin == pytest.approx(2.05426, abs=1e-5)
    assert estimate([1, 2, 3, 4]).mean == 2.5
    assert estimate([1]).margin == float("inf")
    assert difference([1, 5, 9], [0, 4, 8]).low == 1  # the same luck in both: no spread in the difference


def test_json_has_the_claims_and_nothing_else(made_up: list[Settings], tmp_path: Path) -> None:
    file = tmp_path / "new" / "claims.json"
    code, text, _ = run("made-up", "--json", file, "--seed", 7, "--quick")
    assert code == 0, "a claim that does not hold is a result"
    rows = json.loads(file.read_text())
    assert [set(row) for row in rows] == [KEYS, KEYS]
    assert [row["holds"] for row in rows] == [True, False]
    assert [row["reason"] for row in rows] == ["", "arithmetic"]
    assert (made_up[0].seed, made_up[0].quick) == (7, True)
    assert "1 of 2 claims hold" in text
    assert "Likely reason: arithmetic" in text


def test_figures_and_numbers_go_into_the_directory(made_up: list[Settings], tmp_path: Path) -> None:
    code, _, _ = run("--out", tmp_path / "results", "--seed", 3)
    assert code == 0
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "made-up-numbers.csv",
        "made-up-picture.png",
    ]
    assert (tmp_path / "results" / "made-up-numbers.csv").read_text() == "# Two numbers\nseed,value\n3,0.5\n"
    assert (tmp_path / "results" / "made-up-picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_log_file_gets_lines_now_and_then(made_up: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamshed.cli.reproduce._LINE_EVERY_S", 1e6)
    assert run()[2] == "", "not from a run that is over so soon"
    monkeypatch.setattr("streamshed.cli.reproduce._LINE_EVERY_S", 0.0)
    assert run()[2] == "measuring: 1 of 2\n"
    assert len(made_up) == 2


def test_without_a_name_every_paper_is_run_once(made_up: list[Settings]) -> None:
    assert run()[0] == 0
    assert run("made-up", "made-up")[0] == 0
    assert len(made_up) == 2


def test_an_unknown_paper_is_refused_before_any_work(made_up: list[Settings]) -> None:
    code, _, error = run("made-up", "made-down")
    assert code == 2
    assert "did you mean 'made-up'?" in error
    assert made_up == []


def test_files_that_cannot_be_written_are_refused_before_any_work(made_up: list[Settings], tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    assert run("--out", taken / "results")[0] == 2
    assert run("--json", tmp_path)[0] == 2
    assert made_up == []
