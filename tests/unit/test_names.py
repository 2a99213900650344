"""Names that lead somewhere else are refused, and no path follows a name."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.cli.run import place_of
from streamshed.distributed.arc_files import ArcFiles, file_name
from streamshed.engines.spark.arcs import ParquetArc
from streamshed.engines.spark.fused import Sinks
from streamshed.errors import NetworkError
from streamshed.network import NetworkBuilder, Spec, node_specs, parse_spec
from streamshed.network.node_specs import arc_name
from streamshed.network.placement import Placement

EVIL = {
    "upwards": "../../evil",
    "up": "..",
    "here": ".",
    "absolute": "/tmp/evil",
    "empty": "",
    "blank": " ",
    "slash": "a/b",
    "backslash": "a\\b",
    "nul": "a\0b",
    "newline": "a\n",
    "hidden": ".evil",
    "option": "-rf",
    "home": "~",
    "glob": "a*",
    "other letters": "verkéhr",
}
LONG = "a" * 1000

SPEC = """\
name: tiny
streams:
  readings: {columns: {value: double}, source: {format: feeder, options: {rate_tps: 1000}}}
operators:
  high: {type: filter, input: readings, where: value > 0.5}
  low: {type: filter, input: high, where: value < 0.9}
outputs:
  alarms: {input: low}
statistics: {costs: {high: 1.0e-6, low: 1.0e-6}}
rates: {readings: 1000}
nodes:
  edge: {operators: [high]}
  core: {operators: [low]}
"""


def quoted(name: str) -> str:
    """As YAML writes it."""
    return '"' + name.replace("\\", "\\\\").replace("\0", "\\0").replace("\n", "\\n") + '"'


def refusal(text: str) -> NetworkError:
    with pytest.raises(NetworkError) as raised:
        parse_spec(text, "tiny.yaml")
    return raised.value


@pytest.mark.parametrize("name", EVIL.values(), ids=EVIL)
def test_a_networks_name_is_checked_like_an_id(name: str) -> None:
    error = refusal(SPEC.replace("name: tiny", f"name: {quoted(name)}"))
    assert error.what == "not a valid name"
    assert error.where == "tiny.yaml line 1, name"
    assert error.got == (repr(name) if name else "nothing")
    assert error.expected == "a letter or _, then letters, digits, _ or -; a space between words"
    new = NetworkBuilder(name)
    new.stream("s", {"v": "int"}).output("o")
    with pytest.raises(NetworkError) as raised:
        new.build()
    assert raised.value.where == "network"


def test_the_hint_is_a_name_that_would_do() -> None:
    assert refusal(SPEC.replace("tiny", '"../../evil"')).hint == "for example 'evil'"
    assert refusal(SPEC.replace("tiny", "7 hills.of Rome")).hint == "for example 'hills-of-Rome'"
    assert refusal(SPEC.replace("tiny", '"..."')).hint is None


@pytest.mark.parametrize("name", ["a", "_", "shared-cluster", "two streams", "figure 6", "A_1-b", "random--1"])
def test_names_that_are_fine(name: str) -> None:
    assert parse_spec(SPEC.replace("tiny", name)).network.name == name


def test_a_network_cannot_be_renamed_to_something_evil() -> None:
    with pytest.raises(NetworkError, match="not a valid name"):
        replace(parse_spec(SPEC).network, name="../../evil")


@pytest.mark.parametrize("name", EVIL.values(), ids=EVIL)
def test_the_name_of_a_node_is_checked_like_an_id(name: str) -> None:
    error = refusal(SPEC.replace("  edge:", f"  {quoted(name)}:"))
    assert error.what == "not a valid name"
    assert error.where.startswith("tiny.yaml line 12, nodes")  # type: ignore[union-attr]
    assert error.expected == "a letter or _, then letters, digits, _ or -"
    spec = parse_spec(SPEC)
    with pytest.raises(NetworkError) as raised:
        Spec(spec.network, nodes=(Placement(name, ("high",)), Placement("core", ("low",))))
    assert raised.value.where == f"node {name!r}"


@pytest.mark.parametrize("name", EVIL.values(), ids=EVIL)
@pytest.mark.parametrize("place", ["  readings:", "  high:", "  alarms:"])
def test_so_are_ids(name: str, place: str) -> None:
    error = refusal(SPEC.replace(place, f"  {quoted(name)}:"))
    assert error.what == "not a valid id"
    assert error.got == repr(name)


@pytest.mark.parametrize("command", ["run", "cluster"])
@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil-streamshed", "a/b"])
def test_nothing_is_made_for_a_name_that_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    here = tmp_path / "a" / "b" / "c"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    Path("tiny.yaml").write_text(SPEC.replace("tiny", quoted(name)))
    result = CliRunner().invoke(app, [command, "tiny.yaml", "--seconds", "1"])
    assert result.exit_code == 2
    assert "not a valid name" in result.stderr
    assert "tiny.yaml line 1, name" in result.stderr
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [here / "tiny.yaml"]
    assert not Path("/tmp/evil-streamshed").exists()


def test_a_run_is_called_after_its_network() -> None:
    network = parse_spec(SPEC).network
    assert place_of(network, None) == Path.cwd() / "streamshed-run" / "tiny"
    assert place_of(network, Path("/elsewhere")) == Path("/elsewhere")
    long = place_of(replace(network, name=LONG), None)
    assert long.parent == Path.cwd() / "streamshed-run"
    assert len(long.name) == 120


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*EVIL.values(), LONG, "b" * 1000, "/" * 300, "\udc80"])
def test_a_file_name_never_leads_elsewhere(tmp_path: Path, name: str) -> None:
    place = tmp_path / file_name(name)
    place.mkdir()
    assert place.resolve().parent == tmp_path.resolve()
    assert list(tmp_path.iterdir()) == [place]
    assert not place.name.startswith(".")
    assert len(place.name) <= 120


@given(st.text(max_size=400))
def test_a_file_name_is_one_short_part_of_a_path(name: str) -> None:
    made = file_name(name)
    assert PurePosixPath("root", made).parts == ("root", made)
    assert made not in (".", "..")
    assert 1 <= len(made) <= 120
    assert made.isascii()


def test_long_names_that_begin_alike_have_files_of_their_own() -> None:
    assert file_name("a" * 120) == "a" * 120
    assert file_name("a" * 121) != file_name("a" * 122)
    assert file_name("a" * 121)[:103] == "a" * 103


def test_arcs_of_names_with_hyphens_have_files_of_their_own(tmp_path: Path) -> None:
    text = SPEC.replace("high", "high-hot").replace("edge:", "edge-a:")
    split = """\
  low: {type: filter, input: high-hot, where: value < 0.9}
  high: {type: filter, input: readings, where: value > 0.1}
  some: {type: filter, input: high, where: value < 0.9}
"""
    text = text.replace("  low: {type: filter, input: high-hot, where: value < 0.9}\n", split)
    text = text.replace("  alarms: {input: low}", "  alarms: {input: low}\n  rest: {input: some}")
    text = text.replace("[high-hot]", "[high-hot, high]") + "  hot-core: {operators: [some]}\n"
    parts = node_specs(parse_spec(text))
    assert arc_name("high-hot", "core") != arc_name("high", "hot-core")
    written = set(parts["edge-a"].writes.values())
    assert written == {"high--hot-core", "high-hot--core"}
    assert {ArcFiles(tmp_path, name).directory.name for name in written} == written
    assert set(parts["core"].reads.values()) | set(parts["hot-core"].reads.values()) == written
    assert parts["hot-core"].spec.network.name == "tiny at hot-core"


def test_outputs_with_very_long_ids_are_written_where_they_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[str] = []
    monkeypatch.setattr(ParquetArc, "__init__", lambda _, place: places.append(place))
    monkeypatch.setattr(ParquetArc, "write", lambda *_: None)
    (output,) = parse_spec(SPEC.replace("alarms", LONG)).network.outputs
    Sinks([output], tmp_path)._write_one(output, cast("Any", None), 0)
    assert places == [(tmp_path / file_name(LONG)).as_uri()]
    from streamshed.cli.run_report import Outcome, report
    from streamshed.cli.totals import Totals

    place = tmp_path / "run"
    (place / "outputs" / file_name(LONG)).mkdir(parents=True)
    console = Console(file=io.StringIO(), width=100)
    report(console, Outcome(), Totals(2.0), parse_spec(SPEC.replace("alarms", LONG)), place)
    assert f"Outputs: {place / 'outputs'}" in cast("io.StringIO", console.file).getvalue()
