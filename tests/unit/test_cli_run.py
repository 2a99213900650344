"""`streamshed run` as far as it goes without Spark: options, errors, the live view, the sums."""

from __future__ import annotations

import io
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from streamshed.cli import app, run
from streamshed.cli.live import LiveView
from streamshed.cli.run_report import Outcome, report
from streamshed.cli.stopping import stop_signals
from streamshed.cli.totals import Totals
from streamshed.control import LoadSample, OutOfReach
from streamshed.engines.spark.failures import first_lines
from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.network import parse_spec

SPEC = """\
name: tiny
streams:
  readings:
    columns: {value: double}
    source: {format: feeder, options: {rate_tps: 1000}}
operators:
  high: {type: filter, input: readings, where: value > 0.5}
outputs:
  alarms: {input: high, sink: {format: memory}}
statistics: {costs: {high: 1.0e-6}}
rates: {readings: 1000}
"""


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(SPEC)
    return file


def invoke(*arguments: object) -> Result:
    runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["run", *map(str, arguments)])


# --- options ---------------------------------------------------------------------------------------------------------


def test_help_names_options_and_planners() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for expected in ("--target", "--directory", "--no-shed", "--conf", "semantic", "input-random", "Ctrl-C"):
        assert expected in result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--planner", "semantik"], "did you mean 'semantic'?"),
        (["--target", "0"], "--target"),
        (["--target", "nan"], "--target"),
        (["--seconds", "-1"], "--seconds"),
        (["--conf", "spark.ui.enabled"], "KEY=VALUE"),
        (["--conf", "=1"], "KEY=VALUE"),
    ],
)
def test_options_out_of_range(spec_file: Path, tmp_path: Path, options: list[str], told: str) -> None:
    result = invoke(spec_file, "--directory", tmp_path / "run", *options)
    assert result.exit_code == 2
    assert told in result.stderr
    assert not (tmp_path / "run").exists(), "nothing is made before all options are right"


def test_a_directory_that_is_a_file(spec_file: Path) -> None:
    result = invoke(spec_file, "--directory", spec_file)
    assert result.exit_code == 2
    assert "the directory cannot be written" in result.stderr
    assert "--directory" in result.stderr


def test_a_summary_that_has_no_place(spec_file: Path, tmp_path: Path) -> None:
    result = invoke(spec_file, "--directory", tmp_path / "run", "--json", tmp_path / "nowhere" / "run.json")
    assert result.exit_code == 2
    assert "--json" in result.stderr


def test_no_java(spec_file: Path, tmp_path: Path) -> None:
    """In a process of its own: a session that runs here would be used."""
    environment = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    result = subprocess.run(
        [sys.executable, "-c", "from streamshed.cli import app; app()", "run", str(spec_file), "-d", tmp_path / "run"],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "Spark needs Java" in result.stderr
    assert "JAVA_HOME" in result.stderr
    assert "Traceback" not in result.stderr


class Running:
    """Stands in for a runner."""

    is_active = True


class Waiting(threading.Event):
    """An event that never comes; whoever waits for it makes time go by."""

    now_s = 50.0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert 0 < timeout <= run._POLL_S
        self.now_s += timeout
        return False


def test_it_waits_as_long_as_told_or_until_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Waiting()
    with monkeypatch.context() as patched:
        patched.setattr(run, "time", SimpleNamespace(monotonic=lambda: never.now_s))
        run._wait(cast("Any", Running()), never, 2.25)
    assert never.now_s == pytest.approx(52.25)
    with stop_signals() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        run._wait(cast("Any", Running()), stopped, None)


# --- what is shown ---------------------------------------------------------------------------------------------------


def batch(number: int, *, delay_s: float = 0.5, dropped: int = 0, share: float = 1.0) -> NetworkBatch:
    """Of 1,000 tuples that arrived at one moment; one a second."""
    end_s = 1000.0 + number
    arrivals_s = (end_s - delay_s,) * 8
    counts = DropCounts(1000, 10, 990 - dropped, arrivals_s)
    sample = LoadSample(end_s, 0.25, 990, 990 - dropped, delay_p50_s=delay_s, delay_p95_s=delay_s)
    return NetworkBatch(
        sample=sample,
        batch_id=number,
        start_s=end_s - 0.25,
        counts={"readings": counts},
        thresholds={"readings": dropped / 990},
        load_share=share,
        utilities={"alarms": 1 - dropped / 990},
        observed={},
        stage="all outputs",
        arrived=990,
    )


def test_a_line_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamshed.cli.live.LINE_EVERY_S", 1e6)
    text = io.StringIO()
    with LiveView(Console(file=text, width=60), 2.0, "tiny") as view:
        assert "waiting for the first batch" in view.line()
        view.show(batch(0))
        view.show(batch(1, delay_s=0.75, dropped=495, share=0.5))
        line = view.line()
    assert text.getvalue().count("\n") == 1, "one line, the next one is not due yet"
    assert "nothing dropped" in text.getvalue()
    for expected in (
        "batch 1",
        "0.75 s of 2 s",
        "990 tuples/s",
        "work kept 50.0 %",
        "readings 49.5 %",
        "alarms 50.0 %",
    ):
        assert expected in line


def test_a_picture_in_a_terminal() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120, height=40)
    with LiveView(console, 2.0, "tiny") as view:
        view.show(batch(0))
        view.show(batch(1, delay_s=3.0, dropped=99, share=math.nan))
    told = text.getvalue()
    for expected in (
        "tiny",
        "target 2 s",
        "3.00 s",
        "990 tuples/s",
        "unknown",
        "readings",
        "9.9 %",
        "alarms",
        "90.0 %",
    ):
        assert expected in told


def test_a_target_out_of_reach_is_said_wherever_delays_are_shown(tmp_path: Path) -> None:
    reach = OutOfReach(2.0, 3.4, 8.395)
    late = NetworkBatch(**{**vars(batch(0, delay_s=7.0)), "out_of_reach": reach})
    console = Console(file=io.StringIO(), width=120)
    view = LiveView(console, 2.0, "tiny")
    view.show(late)
    totals = Totals(2.0)
    totals.add(late)
    told = "an empty batch takes 3.4 s: a target of 2 s cannot be held, one of 8.4 s can"
    assert told in view.line()
    console.print(view.picture())
    report(console, Outcome(), totals, parse_spec(SPEC), tmp_path)
    assert console.file.getvalue().count(told) == 3  # type: ignore[attr-defined]
    assert totals.to_json()["out_of_reach"] == told
    totals.add(batch(1))
    assert totals.to_json()["out_of_reach"] is None


def test_delays_may_be_unknown() -> None:
    unknown = batch(0)
    unknown = NetworkBatch(**{**vars(unknown), "sample": LoadSample(1000.0, 0.25, 990, 990)})
    view = LiveView(Console(file=io.StringIO()), 2.0, "tiny")
    view.show(unknown)
    assert "delay unknown of 2 s" in view.line()
    console = Console(file=io.StringIO(), width=100)
    console.print(view.picture())
    assert "no arrival times" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_sic_of_several_outputs_is_shown() -> None:
    several = NetworkBatch(**{**vars(batch(0)), "utilities": {"a": 1.0, "b": 0.5}, "sic": {"a": 0.75, "b": 0.25}})
    view = LiveView(Console(file=io.StringIO()), 2.0, "tiny")
    view.show(several)
    assert "SIC 25.0 % to 75.0 %, fairness 0.800" in view.line()
    console = Console(file=io.StringIO(), width=100)
    console.print(view.picture())
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "fairness 0.800" in told
    assert "75.0 %" in told
    totals = Totals(2.0, sic=several.sic)
    assert totals.to_json()["sic"] == {"a": 0.75, "b": 0.25}
    assert totals.to_json()["jain"] == pytest.approx(0.8)
    assert Totals(2.0, sic={"a": 0.5}).jain is None


def test_sums() -> None:
    totals = Totals(2.0)
    assert totals.to_json()["p99_s"] is None
    for number in range(8):
        totals.add(batch(number))
    totals.add(batch(8, delay_s=1.0, dropped=495, share=0.5))
    totals.add(batch(9, delay_s=4.0, share=math.nan))
    document = totals.to_json()
    kept = 8 * 990 + 495 + 990
    assert document["batches"] == 10
    assert document["arrived"] == 9900
    assert document["seconds"] == pytest.approx(9.25)
    assert document["arcs"] == {"readings": {"arrived": 10_000, "malformed": 100, "delivered": kept, "dropped": 495}}
    assert document["utility"] == {"alarms": pytest.approx(0.95)}
    assert document["work_kept"] == pytest.approx(8.5 / 9)
    assert document["within_target"] == pytest.approx((kept - 990) / kept)
    assert document["p50_s"] == pytest.approx(0.5, rel=0.011)
    assert document["p99_s"] == pytest.approx(4.0, rel=0.011)


def test_what_a_worker_died_of_comes_first() -> None:
    message = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
Task 0 in stage 1.0 failed 1 times: org.apache.spark.SparkException: Error in worker: Traceback (most recent call last):
  File "/somewhere/worker.py", line 12, in main
    process()
    ~~~~~~~^^
  File "/somewhere/feeder.py", line 3, in read
    raise FeederError("the source died")
streamshed.FeederError: the source died
  where:    feeder, tuples 1 to 2

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:602)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\t... 1 more
"""
    assert first_lines(message).splitlines() == [
        "streamshed.FeederError: the source died",
        "  where:    feeder, tuples 1 to 2",
    ]


# --- scheduling ------------------------------------------------------------------------------------------------------


def test_an_unknown_scheduler_is_refused(spec_file: Path) -> None:
    result = invoke(spec_file, "--scheduler", "path-capacty")
    assert result.exit_code == 2
    assert "path-capacity" in result.output


def test_the_strategies_in_force_are_shown() -> None:
    strategies = {"alarms": "path-capacity", "audit": "round-robin"}
    scheduled = NetworkBatch(**{**vars(batch(0)), "strategies": strategies, "switches": 1})
    view = LiveView(Console(file=io.StringIO()), 2.0, "tiny")
    view.show(scheduled)
    assert "strategy: alarms path-capacity, audit round-robin" in view.line()
    console = Console(file=io.StringIO(), width=120)
    console.print(view.picture())
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "alarms path-capacity, audit round-robin" in told
    assert "1 switch" in told
