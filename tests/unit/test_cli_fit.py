"""`streamshed fit` over a spec with two nodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamshed.cli import app

# Figure 1 of Borealis's paper as a spec.
SPEC = """
name: figure 1
streams:
  one: {columns: {v: double}}
  two: {columns: {v: double}}
operators:
  a1: {type: filter, input: one, where: v > 0}
  a2: {type: filter, input: two, where: v > 0}
  b1: {type: filter, input: a1, where: v > 1}
  b2: {type: filter, input: a2, where: v > 1}
outputs:
  first: {input: b1}
  second: {input: b2}
statistics:
  costs: {a1: 1, a2: 2, b1: 3, b2: 1}
  selectivities: {b1: 0.5}
rates: {one: 1, two: 1}
nodes:
  A: {operators: [a1, a2]}
  B: {operators: [b1, b2]}
"""


def run(tmp_path: Path, *arguments: object) -> tuple[int, str, str]:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["fit", str(file), *(str(argument) for argument in arguments)])
    return result.exit_code, " ".join(result.stdout.split()), result.stderr


def test_the_papers_node_b(tmp_path: Path) -> None:
    file, figure = tmp_path / "b.json", tmp_path / "b.png"
    code, text, _ = run(tmp_path, "--node", "B", "--kind", "grid", "--error", 0.1, "--json", file, "--figure", figure)
    assert code == 0
    assert "Node B: 48 entries, one of them" in text
    table = json.loads(file.read_text())
    assert table["rates"][0] == [0, 1]
    assert len(table["scores"]) == 48
    assert figure.stat().st_size > 10_000


def test_the_first_node_by_default_and_fairness(tmp_path: Path) -> None:
    code, text, _ = run(tmp_path)
    assert code == 0
    assert "Node A" in text
    assert "optimum is 0.5 (" in text
    code, text, _ = run(tmp_path, "--score", "fairness", "--entries", 8)
    assert code == 0
    code, text, _ = run(tmp_path, "--factor", 0.1)
    assert "nothing has to be dropped" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node", "C"), "there is no node 'C'"),
        (("--kind", "list"), "no such kind"),
        (("--score", "luck"), "there is no score"),
        (("--error", "-1"), "must be positive"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    code, _, error = run(tmp_path, *arguments)
    assert code == 2
    assert words in error
