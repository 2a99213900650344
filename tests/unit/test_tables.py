"""Numbers in tables are whole, however narrow the terminal or the log."""

from __future__ import annotations

import io
import re
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich import box
from rich.console import Console, RenderableType
from rich.text import Text
from typer.testing import CliRunner

from streamshed.cli import app, cluster_report, demo, run_report, simulate_control, simulate_network
from streamshed.cli.children import Child
from streamshed.cli.cluster_view import ClusterView
from streamshed.cli.live import LiveView
from streamshed.cli.tables import Sheet, progress, show
from streamshed.cli.totals import Totals
from streamshed.control import LoadSample
from streamshed.engines.spark.ledger import Ledger
from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.experiments.control_plant import Score
from streamshed.experiments.overload import Summary
from streamshed.network import parse_spec
from tests.unit.test_cli_ledger import row

WIDTHS = (40, 60, 80)
LARGE, TEXT = 10_060_000_000, "10,060,000,000"
NAME = "calibrated_readings->travelling_in_the_right_lane"

SPEC = f"""\
name: large
streams:
  reports_of_all_cars_on_the_expressway: {{columns: {{v: double}}}}
operators:
  slow: {{type: filter, input: reports_of_all_cars_on_the_expressway, where: v > 1}}
outputs:
  accidents_on_the_expressway: {{input: slow, qos: {{weight: {LARGE}}}}}
statistics: {{costs: {{slow: 1}}}}
rates: {{reports_of_all_cars_on_the_expressway: {LARGE}}}
capacity: 1
nodes:
  edge: {{operators: [slow], capacity: {LARGE}}}
"""


def told(part: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    show(console, part)
    return cast("io.StringIO", console.file).getvalue()


def called(*arguments: object, width: int) -> str:
    runner = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code in (0, 3), result.stderr
    return result.stdout


def cut(text: str) -> list[str]:
    """Numbers that end in an ellipsis."""
    return re.findall(r"\S*\d…", text)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    return cast("int", request.param)


# --- the table itself ------------------------------------------------------------------------------------------------


def test_a_table_that_fits_is_as_wide_as_it_needs() -> None:
    sheet = Sheet("Title").names("arc").numbers("arrived")
    sheet.add_row("readings", TEXT)
    assert [line.rstrip() for line in told(sheet, 80).splitlines()] == [
        "Title",
        "arc              arrived",
        "readings  10,060,000,000",
    ]


def test_names_give_way_first_and_then_the_table_is_wider_than_the_console(width: int) -> None:
    sheet = Sheet().names("arc").numbers("arrived", "dropped")
    sheet.add_row(NAME, TEXT, TEXT)
    lines = told(sheet, width).splitlines()
    assert TEXT + "  " + TEXT in lines[1]
    assert "".join(line[:16].strip() for line in lines[1:]).startswith(NAME[:16])
    # 16 columns of the name, 14 of each number, and a gap of two before each
    assert max(map(len, lines)) == max(16 + 2 * (14 + 2), min(width, len(NAME) + 2 * (14 + 2)))


@pytest.mark.parametrize("look", [box.SIMPLE_HEAD, box.ASCII, None])
@pytest.mark.parametrize("options", [{}, {"pad_edge": True}, {"show_edge": False}, {"padding": (0, 3, 0, 2)}])
def test_the_least_width_is_that_of_the_narrowest_table(look: box.Box | None, options: dict[str, Any]) -> None:
    sheet = Sheet(box=look, **options).names("arc").words("kind\nof it").numbers("arrived\nso far", "dropped")
    sheet.add_row(NAME, "by value", TEXT, TEXT)
    sheet.add_row("a", "", "1", f"-{TEXT}")
    assert max(map(len, told(sheet, 1).splitlines())) == sheet.least_width


def test_headings_of_several_lines_are_whole() -> None:
    sheet = Sheet().numbers("a\nmuch longer one", "much longer one\na")
    sheet.add_row("1", "2")
    assert told(sheet, 1).count("much longer one") == 2


def test_a_number_in_a_column_of_texts_is_whole_too(width: int) -> None:
    sheet = Sheet().names("claim", "the paper says", "measured here")
    sheet.add_row(f"about {TEXT},000,000 tuples", f"{TEXT} of a hundred other things", f"{TEXT} here, and more {TEXT}")
    assert told(sheet, width).count(TEXT) == 4
    sheet = Sheet().names("text")
    sheet.add_row(f"a list of 1 and {TEXT},{TEXT} or 2 and more")
    assert f"{TEXT},{TEXT}" in told(sheet, 10)


def test_cells_are_no_markup() -> None:
    sheet = Sheet("[bold]a[/bold]").names("[red]b")
    sheet.add_row("[/]")
    for expected in ("[bold]a[/bold]", "[red]b", "[/]"):
        assert expected in told(sheet, 80)


def test_a_picture_gets_lines_where_a_table_does_not_fit() -> None:
    sheet = Sheet().names("arc").numbers("arrived", "dropped", "open")
    sheet.add_row(NAME, TEXT, TEXT, "")
    assert sheet.within(80) is sheet
    lines = told(sheet.within(40), 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join("".join(lines).split()).endswith(f"arrived {TEXT} dropped {TEXT}")


def test_sentences_wrap_between_words() -> None:
    assert told("as many as 10,060,000,000 tuples", 16).split("\n") == ["as many as ", "10,060,000,000 ", "tuples", ""]
    assert told(Text(f"only {TEXT}"), 10).split() == ["only", TEXT]


def test_progress_keeps_its_numbers(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    bar = progress(console, counts=True)
    bar.add_task("table 12: sharing among 1,000 nodes", total=1_000_000, completed=123_456)
    assert "123456/1000000" in told(bar.get_renderable(), width)
    assert not bar.disable
    assert progress(Console(file=io.StringIO(), width=width)).disable, "nothing goes into logs"


# --- where tables are ------------------------------------------------------------------------------------------------


def test_ledger(tmp_path: Path, width: int) -> None:
    ledger = Ledger(tmp_path / "ledger")
    rows = [row(0, arrived=LARGE, dropped=LARGE // 2, malformed=LARGE // 4), row(0, arrived=1, dropped=0, stream=NAME)]
    ledger.add(rows)
    for by in ("stream", "drop", "output", "time"):
        text = called("ledger", tmp_path, "--by", by, width=width)
        expected = (f"{LARGE + (by in ('output', 'time')):,}", f"{LARGE // 2:,}", f"{LARGE // 4:,}", "50.0%", "exact")
        for number in expected:
            assert number in text
        assert not cut(text)
    assert "2023-11-14 22:13" in text


def test_plan(tmp_path: Path, width: int) -> None:
    (tmp_path / "large.yaml").write_text(SPEC)
    for factor in ("1", "1e-11"):
        text = called("plan", tmp_path / "large.yaml", "--compare", "--factor", factor, width=width)
        assert not cut(text)
        assert f"weight {TEXT}" in text or re.search(rf"weight .*\n.*\n.*{TEXT}", text)
        if factor == "1":
            assert text.count(TEXT) >= 8  # rates on three arcs, loads of operator, stream and network
            assert "1,005,999,999,900 % excess" in text.replace("\n", "")


def test_fit(tmp_path: Path, width: int) -> None:
    (tmp_path / "large.yaml").write_text(SPEC)
    text = called("fit", tmp_path / "large.yaml", width=width)
    assert len(re.findall(r"10,060,0\d\d,\d\d\d(?!,)", text)) == 2, "the rate in the table, and the one that arrives"
    assert len(re.findall(r"101,203,\d\d\d(?:,\d\d\d){4}(?!,)", text)) == 3, "scores"
    assert not cut(text)


def test_simulate(width: int) -> None:
    delays = SimpleNamespace(quantile_s=lambda _: float(LARGE))
    output = SimpleNamespace(output=NAME, share=0.5, tuple_utility=0.25, value_utility=0.125, delays=delays)
    result = SimpleNamespace(
        delays=delays, violations_s=float(LARGE), loss=0.5, tuple_utility_loss=0.25, value_utility_loss=0.125,
        utilization=1.0, outputs={NAME: output},
    )  # fmt: skip
    runs = [simulate_network.Run("deadline", "input-cost-uniform", cast("Any", result))]
    text = told(simulate_network._summary(f"of {TEXT}", runs), width)
    assert text.count(TEXT) == 5, "title, three quantiles, and how late"
    text += told(simulate_network._outputs(runs), width)
    assert "input-cost-uniform" in text
    score = Score(float(LARGE), LARGE, float(LARGE), 0.25)
    of_control = told(simulate_control._table("load", {"ctrl": score, "deadline": score}, 0.25), width)
    assert of_control.count(TEXT) == 4
    assert not cut(text + of_control)


def test_demo(width: int) -> None:
    numbers = {"arrived": LARGE, "delivered": LARGE, "dropped": LARGE, "dropped_in_first_calm": LARGE}
    summary = Summary(2.0, 0.5, 1.0, 2.0, 3.0, **numbers, busy_fraction=1.0, violations_s=0.0, utility={NAME: 0.125},
                      drops_end_after_burst_s=0.5)  # fmt: skip
    run = SimpleNamespace(summary=lambda: summary)
    text = told(demo._summary(cast("Any", {"without": run, "with": run, "with-aurora": run})), width)
    assert text.count(TEXT) == 3 * len(numbers)
    assert not cut(text)
    assert asdict(summary)["arrived"] == LARGE


def of_batch() -> NetworkBatch:
    counts = DropCounts(LARGE, LARGE // 4, LARGE // 2, (999.0,) * 8)
    return NetworkBatch(
        sample=LoadSample(1000.0, 0.25, LARGE, LARGE // 2, delay_p50_s=1.0, delay_p95_s=1.0),
        batch_id=LARGE,
        start_s=999.75,
        counts={"readings": counts, NAME: counts},
        thresholds={},
        load_share=0.5,
        utilities={"alarms": 0.5, "accidents_on_the_expressway": 0.25},
        observed={},
        stage="all outputs",
        arrived=LARGE,
        sic={"alarms": 0.5, "accidents_on_the_expressway": 0.25},
        strategies={"alarms": "path-capacity", "accidents_on_the_expressway": "simplified-segment"},
    )


def test_run(tmp_path: Path, width: int) -> None:
    totals = Totals(2.0)
    totals.add(of_batch())
    totals.sic = of_batch().sic
    spec = parse_spec(SPEC)

    class Row(tuple[Any, ...]):
        def asDict(self) -> dict[str, Any]:
            return dict.fromkeys(("count", "segment", "window"))

    outcome = run_report.Outcome()
    outcome.rows = {"alarms": [Row((LARGE, NAME, LARGE))]}
    console = Console(file=io.StringIO(), width=width)
    run_report.report(console, outcome, totals, spec, tmp_path)
    text = cast("io.StringIO", console.file).getvalue()
    assert text.count(TEXT) == 1 + 2, "what arrived in all, and at both arcs"
    for number in (LARGE // 2, LARGE // 4):
        assert text.count(f"{number:,}") >= 2
    assert text.count(str(LARGE)) == 2, "in the rows"
    assert not cut(text)
    assert "\n\narc " in text
    assert "\n\noutput " in text


@pytest.mark.parametrize("terminal", [True, False])
def test_live(width: int, terminal: bool) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, height=60)
    with LiveView(console, 2.0, "large") as view:
        view.show(of_batch())
        view.show(replace(of_batch(), start_s=1000.75))
        if terminal:
            view._live.refresh()  # type: ignore[union-attr]
    shown = text.getvalue()
    if terminal:
        assert max(len(line) for line in re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", shown).splitlines()) <= width
        expected = {TEXT: 5, f"{LARGE:,} tuples/s": 1}  # the rate, the batch's number and its tuples, both arcs
        for number, times in expected.items():
            assert shown.count(number) >= times
    else:
        assert f"batch {LARGE}" in shown
    assert not cut(shown)


def test_cluster(width: int) -> None:
    node = {
        "arrived": LARGE, "delivered": LARGE, "dropped": LARGE, "within_target": 0.5, "p95_s": float(LARGE),
        "due_s": 5.0, "cpu_s": float(LARGE), "refused": LARGE,
    }  # fmt: skip
    found = {
        "from_outside": LARGE,
        "nodes": {NAME: node},
        "arcs": {NAME: {"written": LARGE, "read": LARGE, "waiting": LARGE, "balanced": False}},
        "cpu_s": float(LARGE),
        "balanced": False,
        "deaths": [],
    }
    console = Console(file=io.StringIO(), width=width)
    cluster_report.report(console, found, 5.0)
    text = cast("io.StringIO", console.file).getvalue()
    assert text.count(TEXT) == 5 + 3 + 4, "of the node, of the arc, in the sentences"
    assert not cut(text)


def test_cluster_as_it_runs(width: int) -> None:
    status = {
        "arrived": LARGE, "delivered": LARGE, "dropped": LARGE, "delay_s": 1.5, "due_s": 5.0, "refused": LARGE,
        "arriving_tps": {"s": float(LARGE)}, "takes_tps": {"a": float(LARGE), "b": float(LARGE)},
        "waiting": {"s": LARGE},
    }  # fmt: skip
    child = SimpleNamespace(status=lambda: status, node=SimpleNamespace(name="core"), state="pid 1234567")
    view = ClusterView(Console(file=io.StringIO(), width=width), "large", 5.0, [cast("Child", child)])
    text = told(view.picture(), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count(TEXT) == 5, "arriving, dropped, waiting, and twice what it takes"
    assert not cut(text)
