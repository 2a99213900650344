"""The command line: `streamshed plan`, `streamshed demo`, and how every command fails."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamshed import __version__
from streamshed.cli import app, failures
from streamshed.cli import plan as plan_module
from streamshed.cli.examples import example_path
from streamshed.cli.export import replacing
from streamshed.cli.outlook import outlook
from streamshed.cli.render import percent
from streamshed.errors import StreamshedError, UnknownNameError
from streamshed.load import Admission, load_coefficients, total_load
from streamshed.network import dump_spec, load_spec, parse_spec
from streamshed.planning import PLANNERS, Drop, planner_named
from tests.unit.test_malformed_specs import CASES, SOUND

EXAMPLES = ("expressway", "shared-cluster", "shared-sensors")
COMMANDS = ("demo", "plan")

UNFIT = """\
name: unfit
streams:
  readings: {columns: {value: double}}
operators:
  high: {type: filter, input: readings, where: value > 1}
outputs:
  alarms: {input: high}
statistics: {costs: {high: 1.0e-6}, drop_cost: 5.0e-7}
rates: {readings: 1000000}
capacity: 1
"""


class Answer:
    """What a call of the command line gave; the text without line breaks, which depend on the width."""

    def __init__(self, *arguments: object, columns: int = 200) -> None:
        runner = CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"})
        result = runner.invoke(app, [str(argument) for argument in arguments])
        self.code = result.exit_code
        self.out = result.stdout
        self.err = result.stderr
        self.exception = result.exception
        self.text = " ".join(result.stdout.split())


def example(name: str) -> Path:
    return example_path(name)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    file = tmp_path / "sound.yaml"
    file.write_text(SOUND, encoding="utf-8")
    return file


# --- what it prints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("planner", PLANNERS)
def test_every_planner_on_every_example(name: str, planner: str) -> None:
    answer = Answer("plan", example(name), "--planner", planner, "--factor", 3)
    assert answer.code == 0, answer.err
    assert PLANNERS[planner].title in answer.text
    spec = load_spec(example(name))
    for node in spec.network.nodes:
        assert node in answer.text
    rates = {stream: 3 * rate for stream, rate in spec.rates.items()}
    assert spec.capacity is not None
    plan = planner_named(planner).plan(spec.network, spec.statistics, rates, Admission(spec.capacity))
    assert plan.drops
    for drop in plan.drops:
        assert drop.arc in answer.text
        assert percent(drop.fraction) in answer.text
    assert f"costs {percent(plan.tuple_utility_loss)} of tuple utility" in answer.text
    assert "At 3.0× the load the plan drops" in answer.text
    assert ("Optimal random drops would cost" in answer.text) == (planner != "optimal")


def test_semantic_drop_shows_its_predicate_with_the_column_on_the_arc() -> None:
    answer = Answer("plan", example("expressway"), "--factor", 3)
    assert re.search(r"reports->slow\s+by value .* speed <= 20", answer.out)


def test_a_renamed_column_is_named_as_on_its_arc(tmp_path: Path) -> None:
    text = """\
name: renamed
streams:
  readings: {columns: {value: double, other: int}}
operators:
  named: {type: map, input: readings, select: {celsius: value}}
  hot: {type: filter, input: named, where: celsius > 80}
  mild: {type: filter, input: named, where: celsius <= 80}
outputs:
  fires: {input: hot, qos: {value: {column: celsius, points: [[0, 0.1], [100, 1]]}}}
  days: {input: mild}
statistics:
  costs: {named: 1.0e-7, hot: 1.0e-5, mild: 1.0e-6}
  selectivities: {hot: 0.2, mild: 0.8}
  histograms: {readings: {value: [[0, 100, 1]]}}
rates: {readings: 100000}
capacity: 0.5
"""
    file = tmp_path / "renamed.yaml"
    file.write_text(text, encoding="utf-8")
    answer = Answer("plan", file)
    assert answer.code == 0, answer.err
    assert "costs no utility" in answer.text  # what is not hot, the filter would reject anyway
    assert re.search(r"named->hot\s+by value .* celsius >= 61", answer.out)


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_to_drop(name: str) -> None:
    answer = Answer("plan", example(name), "--compare")
    assert answer.code == 0
    assert "Nothing needs to be dropped" in answer.text
    assert "Drops:" not in answer.text


@pytest.mark.parametrize("name", EXAMPLES)
def test_compare_puts_all_planners_side_by_side(name: str) -> None:
    answer = Answer("plan", example(name), "--compare", "--factor", 3)
    assert answer.code == 0
    table = answer.out[answer.out.index("All planners") :]
    for planner in PLANNERS:
        assert re.search(rf"^{planner}\s", table, re.MULTILINE)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", EXAMPLES)
def test_fits_the_terminal(name: str, columns: int) -> None:
    answer = Answer("plan", example(name), "--compare", "--factor", 3, columns=columns)
    assert max(len(line) for line in answer.out.splitlines()) <= columns
    for heading in ("tuples/s", "selectivity", "load", "dropped", "delivered"):
        assert heading in answer.text


def test_rate_and_factor_multiply(spec_file: Path) -> None:
    answer = Answer("plan", spec_file, "--rate", "reports=5_000", "--rate", "tolls=1e2", "--factor", 2)
    assert answer.code == 0, answer.err
    assert re.search(r"reports\s+10,000 ", answer.out)
    assert re.search(r"tolls\s+200 ", answer.out)
    assert "at 2.0× the given rates" in answer.text


def test_capacity_and_headroom() -> None:
    answer = Answer("plan", example("expressway"), "--capacity", 0.5, "--headroom", 0.8)
    assert answer.code == 0
    assert "(capacity 0.500 × headroom 0.8)" in answer.text
    assert "Load 0.666 of 0.400" in answer.text
    assert "66 % excess" in answer.text


def test_a_plan_that_cannot_fit(tmp_path: Path) -> None:
    file = tmp_path / "unfit.yaml"
    file.write_text(UNFIT, encoding="utf-8")
    answer = Answer("plan", file, "--factor", 3, "--compare", "--json", tmp_path / "unfit.json")
    assert answer.code == failures.DOES_NOT_FIT
    assert "The plan does not fit" in answer.text
    assert "Traceback" not in answer.out + answer.err
    document = json.loads((tmp_path / "unfit.json").read_text(encoding="utf-8"))
    assert document["plans"]["semantic"]["fits"] is False


def test_a_large_network_is_not_drawn(tmp_path: Path) -> None:
    operators = {f"f{i}": {"type": "filter", "input": "s", "where": "v > 1"} for i in range(100)}
    document = {
        "name": "large",
        "streams": {"s": {"columns": {"v": "double"}}},
        "operators": operators,
        "outputs": {f"o{i}": {"input": f"f{i}"} for i in range(100)},
        "statistics": {"costs": dict.fromkeys(operators, 1e-5)},
        "rates": {"s": 2000},
        "capacity": 1,
    }
    file = tmp_path / "large.yaml"
    file.write_text(json.dumps(document), encoding="utf-8")
    answer = Answer("plan", file, "--planner", "roadmap", "--compare", columns=80)
    assert answer.code == 0, answer.err
    assert "201 nodes: too many to draw" in answer.text
    assert "… and 60 more" in answer.text
    assert max(len(line) for line in answer.out.splitlines()) <= 80


# --- what it writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_json_says_what_the_planners_say(name: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    answer = Answer("plan", example(name), "--compare", "--factor", 3, "--headroom", 0.9, "--json", file)
    assert answer.code == 0, answer.err
    document = json.loads(file.read_text(encoding="utf-8"))
    spec = load_spec(example(name))
    rates = {stream: 3 * rate for stream, rate in spec.rates.items()}
    assert spec.capacity is not None
    usable = 0.9 * spec.capacity
    load = total_load(load_coefficients(spec.network, spec.statistics), rates)
    assert document["spec"]["name"] == name
    assert document["rates"] == rates
    assert document["capacity"] == spec.capacity
    assert document["load"]["total"] == pytest.approx(load)
    assert document["load"]["excess"] == pytest.approx(load - usable)
    assert sum(document["load"]["streams"].values()) == pytest.approx(load)
    assert sum(document["load"]["operators"].values()) == pytest.approx(load)
    assert list(document["plans"]) == list(PLANNERS)
    for planner, told in document["plans"].items():
        plan = planner_named(planner).plan(spec.network, spec.statistics, rates, Admission(usable))
        assert told["load_after"] == plan.load_after
        assert told["tuple_utility_loss"] == plan.tuple_utility_loss
        assert told["value_utility_loss"] == plan.value_utility_loss
        assert told["fits"] is plan.fits
        assert [(drop["arc"], drop["fraction"], drop["relative"]) for drop in told["drops"]] == [
            (drop.arc, drop.fraction, drop.relative) for drop in plan.drops
        ]
        assert [drop.get("keeps") for drop in told["drops"]] == [_predicate(drop) for drop in plan.drops]
        for effect in plan.outputs:
            output = told["outputs"][effect.output]
            assert output["delivered"] == effect.delivered
            assert output["tuple_utility"] == effect.tuple_utility
            assert output["value_utility"] == effect.value_utility
            assert output["weight"] == effect.weight


def _predicate(drop: Drop) -> str | None:
    return drop.predicate(drop.column) if drop.column is not None else None


def test_json_holds_only_the_chosen_planner_unless_compared(tmp_path: Path) -> None:
    Answer("plan", example("expressway"), "-f", 3, "-p", "roadmap", "--json", tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert list(document["plans"]) == ["roadmap"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("old", encoding="utf-8")

    def fail() -> None:
        with replacing(file, "--json") as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert file.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("name", EXAMPLES)
def test_figure_is_a_picture(name: str, tmp_path: Path) -> None:
    file = tmp_path / "figure.png"
    answer = Answer("plan", example(name), "--factor", 2, "--figure", file, "--max-excess", 100)
    assert answer.code == 0, answer.err
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert 1200 <= width <= 2400
    assert 600 <= height <= 1400
    assert len(content) > 20_000
    assert list(tmp_path.iterdir()) == [file]


def test_figure_of_a_long_name_that_looks_like_mathematics(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(UNFIT.replace("name: unfit", f"name: {'a_1__2 ' * 40}"), encoding="utf-8")
    answer = Answer("plan", file, "--figure", tmp_path / "odd.svg")
    assert answer.code == 0, answer.err
    assert (tmp_path / "odd.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_the_curves_reach_the_load_they_stand_for() -> None:
    spec = load_spec(example("shared-sensors"))
    view = outlook(spec, "spec", factor=3)
    curves = view.curves([0.0, 1.0])
    assert list(curves) == list(PLANNERS)
    for without, double in curves.values():
        assert without.tuple_utility_loss == pytest.approx(0, abs=1e-6)
        assert double.load_before == pytest.approx(2 * view.usable)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--seconds", 1), "--seconds"),
        (("--factor", 0.5), "--factor"),
        (("--target", 0), "--target"),
        (("--planner", "semantik"), "did you mean 'semantic'?"),
        (("--controller", "deadline,ctl"), "did you mean 'ctrl'?"),
        (("--figure", "demo.doc"), "a figure of this format cannot be drawn"),
    ],
)
def test_demo_refuses_what_makes_no_sense_before_it_starts_spark(options: tuple[object, ...], message: str) -> None:
    answer = Answer("demo", *options)
    assert answer.code == failures.BAD_INPUT
    assert message in answer.err
    assert "Starting Spark" not in answer.out


# --- how it fails ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_malformed_spec(case: object, tmp_path: Path) -> None:
    file = tmp_path / "traffic.yaml"
    file.write_text(case.text, encoding="utf-8")  # type: ignore[attr-defined]
    answer = Answer("plan", file)
    assert answer.code == failures.BAD_INPUT
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert "where: " in answer.err
    assert "Traceback" not in answer.err
    with pytest.raises(StreamshedError) as caught:
        parse_spec(case.text, str(file))  # type: ignore[attr-defined]
    assert answer.err.removeprefix("error: ").strip() == str(caught.value)


REFUSED = {
    "no number": (("--rate", "reports"), ("a rate cannot be read", "'reports'", "STREAM=TPS")),
    "not a number": (("--rate", "reports=fast"), ("a rate cannot be read", "'reports=fast'")),
    "negative rate": (("--rate", "reports=-1"), ("a rate cannot be read",)),
    "no stream": (("--rate", "=5"), ("a rate cannot be read",)),
    "endless rate": (("--rate", "reports=inf"), ("a rate cannot be read",)),
    "unknown stream": (("--rate", "repots=5"), ("stream that does not exist", "did you mean 'reports'?")),
    "unknown planner": (("--planner", "semantik"), ("no planner 'semantik'", "did you mean 'semantic'?")),
    "factor zero": (("--factor", "0"), ("an option is out of range", "--factor")),
    "factor nan": (("--factor", "nan"), ("an option is out of range", "--factor")),
    "capacity zero": (("--capacity", "0"), ("an option is out of range", "--capacity")),
    "headroom above one": (("--headroom", "1.5"), ("an option is out of range", "--headroom")),
    "figure format": (("--figure", "plan.txt"), ("a figure of this format cannot be drawn", ".png")),
    "figure range": (("--figure", "x.png", "--max-excess", "0"), ("an option is out of range", "--max-excess")),
    "json nowhere": (("--json", "no/such/folder/x.json"), ("the file cannot be written", "No such file")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_options(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options, fragments = REFUSED[name]
    answer = Answer("plan", example("expressway"), *options)
    assert answer.code == failures.BAD_INPUT
    assert answer.err.startswith("error: ")
    for fragment in fragments:
        assert fragment in answer.err
    assert "Traceback" not in answer.out + answer.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [("--factor", "three"), ("--nonsense",), ()])
def test_wrong_usage(options: tuple[str, ...]) -> None:
    answer = Answer("plan", *options)
    assert answer.code == 2
    assert "Traceback" not in answer.err


def test_missing_file(tmp_path: Path) -> None:
    (tmp_path / "traffic.yaml").write_text(SOUND, encoding="utf-8")
    answer = Answer("plan", tmp_path / "trafic.yaml")
    assert answer.code == failures.BAD_INPUT
    assert "the spec file does not exist" in answer.err
    assert "did you mean 'traffic.yaml'?" in answer.err


def test_capacity_and_rates_have_to_come_from_somewhere(tmp_path: Path) -> None:
    spec = parse_spec(SOUND)
    file = tmp_path / "bare.yaml"
    file.write_text(re.sub(r"(?m)^(rates|capacity):.*\n", "", SOUND), encoding="utf-8")
    answer = Answer("plan", file)
    assert answer.code == failures.BAD_INPUT
    assert "say --rate reports=1000" in answer.err
    answer = Answer("plan", file, "--rate", "reports=1000", "--rate", "tolls=10")
    assert answer.code == failures.BAD_INPUT
    assert "say --capacity" in answer.err
    answer = Answer("plan", file, "--rate", "reports=1000", "--rate", "tolls=10", "--capacity", 1)
    assert answer.code == 0, answer.err
    assert spec.network.name in answer.text


def test_no_load_no_figure(spec_file: Path, tmp_path: Path) -> None:
    answer = Answer("plan", spec_file, "--rate", "reports=0", "--rate", "tolls=0", "--figure", tmp_path / "x.png")
    assert answer.code == failures.BAD_INPUT
    assert "there is no load to multiply" in answer.err


def test_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan_module, "report", interrupted)
    answer = Answer("plan", example("expressway"))
    assert answer.code == failures.INTERRUPTED
    assert "Traceback" not in answer.err


def test_a_reader_that_goes_away() -> None:
    code = "import sys; from streamshed.cli import app; sys.argv[0] = 'streamshed'; app()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "plan", str(example("expressway")), "--factor", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


# --- the command line as such ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [(), *((command,) for command in COMMANDS)])
def test_help(command: tuple[str, ...]) -> None:
    answer = Answer(*command, "--help")
    assert answer.code == 0
    assert "Usage: " in answer.out
    for name in COMMANDS if not command else ():
        assert name in answer.out


def test_help_lists_the_planners() -> None:
    text = Answer("plan", "--help").text
    for planner in PLANNERS:
        assert planner in text


def test_version() -> None:
    answer = Answer("--version")
    assert answer.code == 0
    assert answer.out == f"streamshed {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, streamshed.cli; print(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in result.stdout.split()}
    assert "typer" in imported
    assert not imported & {"matplotlib", "networkx", "numpy", "pandas", "pydantic", "pyspark", "scipy", "sqlglot"}


def test_examples_are_found_and_sound() -> None:
    for name in EXAMPLES:
        spec = load_spec(example_path(name))
        assert parse_spec(dump_spec(spec)) == spec
    with pytest.raises(UnknownNameError, match="expressways"):
        example_path("expressways")
