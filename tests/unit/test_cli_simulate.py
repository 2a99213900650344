"""`streamshed simulate SPEC.yaml` through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamshed.cli import app

EXPRESSWAY = str(Path(__file__).parents[2] / "examples" / "expressway.yaml")


def run(*arguments: object) -> tuple[int, str, str]:
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["simulate", *(str(argument) for argument in arguments)])
    return result.exit_code, " ".join(result.stdout.split()), result.stderr


def document(file: Path, *arguments: object) -> dict[str, Any]:
    code, _, problem = run(*arguments, "--json", file)
    assert code == 0, problem
    written: dict[str, Any] = json.loads(file.read_text())
    return written


def test_a_spec_is_simulated_for_every_controller_and_planner(tmp_path: Path) -> None:
    figure = tmp_path / "delays.png"
    code, text, _ = run(
        EXPRESSWAY, "--seconds", 4, "--rate", "reports=10000", "--capacity", 0.1, "--figure", figure,
        "--json", tmp_path / "numbers.json",
    )  # fmt: skip
    assert code == 0
    assert "What the outputs got" in text
    assert figure.read_bytes().startswith(b"\x89PNG")
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert [(one["controller"], one["planner"]) for one in numbers["runs"]] == [
        ("deadline", "semantic"), ("deadline", None), ("ctrl", "semantic"), ("ctrl", None),
    ]  # fmt: skip
    for one in numbers["runs"]:
        assert one["arrived"] == one["delivered"] + one["dropped"] + one["filtered"] + one["under_way"]
        assert set(one["outputs"]) == {"accidents", "tolls"}
        assert 0 < one["loss"] < 1


def test_the_name_of_the_command_may_be_left_out(tmp_path: Path) -> None:
    options = ("--seconds", 2, "--rate-factor", 0.1, "--controllers", "ctrl", "--planners", "none")
    short = document(tmp_path / "short.json", EXPRESSWAY, *options)
    options_first = document(tmp_path / "first.json", *options, EXPRESSWAY)
    long = document(tmp_path / "long.json", "network", EXPRESSWAY, *options)
    assert short == long == options_first
    assert short["runs"][0]["loss"] == 0
    code, text, _ = run("--help")
    assert code == 0
    assert "network" in text
    assert "control" in text


@pytest.mark.parametrize("pattern", ["constant", "burst", "step", "sinusoid", "pareto"])
def test_rates_move_as_the_pattern_says(tmp_path: Path, pattern: str) -> None:
    numbers = document(
        tmp_path / "numbers.json", EXPRESSWAY, "--seconds", 12, "--rate", "reports=100", "--rate-factor", 3,
        "--pattern", pattern, "--controllers", "ctrl", "--planners", "none", "--bias", 1.5,
    )  # fmt: skip
    means = {"burst": (100 + 300 + 100) / 3, "step": (100 + 3 * 300) / 4}
    assert numbers["runs"][0]["arrived"] / 12 == pytest.approx(means.get(pattern, 300), rel=0.5)
    if pattern != "pareto":
        assert numbers["runs"][0]["arrived"] / 12 == pytest.approx(means.get(pattern, 300), rel=0.01)


def test_rates_move_as_recorded(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("# ten times a second\ncount\n" + "\n".join(["1", "3"] * 50) + "\n")
    numbers = document(
        tmp_path / "numbers.json", EXPRESSWAY, "--seconds", 5, "--rate-factor", 0.05, "--trace", trace, "--start", 2,
        "--controllers", "ctrl", "--planners", "none",
    )  # fmt: skip
    assert numbers["runs"][0]["arrived"] == pytest.approx(5 * 1000, abs=3), "scaled to the rate of the spec"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--planners", "semantik"), "there is no planner 'semantik'"),
        (("--controllers", "control"), "there is no controller 'control'"),
        (("--seconds", "0"), "--seconds is out of range"),
        (("--period", "100", "--seconds", "10"), "--period is out of range"),
        (("--headroom", "2"), "an option is out of range"),
        (("--trace", "nowhere.csv"), "the trace cannot be read"),
        (("--figure", "delays.txt"), "a figure of this format cannot be drawn"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_work_begins(arguments: tuple[str, ...], said: str) -> None:
    code, _, problem = run(EXPRESSWAY, *arguments)
    assert code == 2
    assert said in problem
    assert "Traceback" not in problem
