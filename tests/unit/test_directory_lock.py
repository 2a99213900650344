"""One writer a directory: the second one is refused before it touches anything."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.engines.spark.control_line import ControlLine
from streamshed.engines.spark.directory_lock import DirectoryInUseError, DirectoryLock, check_free
from streamshed.engines.spark.gate import Gate

_HOLD = """
import sys
from pathlib import Path
from streamshed.engines.spark.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

NO_SPARK: Any = None


@pytest.fixture
def other(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_second_of_one_process_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryInUseError, match="another run or guard"):
        DirectoryLock(tmp_path)
    first.release()
    first.release()
    DirectoryLock(tmp_path).release()


def test_the_message_names_the_holder_and_a_killed_one_holds_nothing(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    with pytest.raises(DirectoryInUseError) as refused:
        DirectoryLock(tmp_path)
    assert f"process {other.pid} on " in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    other.kill()
    other.wait()
    DirectoryLock(tmp_path).release()


def test_a_check_takes_nothing(tmp_path: Path) -> None:
    check_free(tmp_path / "not there")
    check_free(tmp_path)
    assert list(tmp_path.iterdir()) == []
    lock = DirectoryLock(tmp_path)
    with pytest.raises(DirectoryInUseError):
        check_free(tmp_path)
    lock.release()
    check_free(tmp_path)
    DirectoryLock(tmp_path).release()


def test_a_second_gate_is_refused_and_leaves_everything_as_it_was(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    line = ControlLine(tmp_path, 2, clock=lambda: 1000.0)
    line.write([0.5, 0.25])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    with pytest.raises(DirectoryInUseError):
        Gate(NO_SPARK, tmp_path, size=2)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_a_gate_that_cannot_be_made_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="threshold"):
        Gate(NO_SPARK, tmp_path, size=0)
    DirectoryLock(tmp_path).release()


def test_run_refuses_a_directory_in_use_before_spark_starts(tmp_path: Path) -> None:
    control = tmp_path / "run" / "control"
    control.mkdir(parents=True)
    lock = DirectoryLock(control)
    try:
        result = CliRunner().invoke(app, ["run", "examples/expressway.yaml", "--directory", str(tmp_path / "run")])
    finally:
        lock.release()
    assert result.exit_code == 2
    assert "another run or guard uses this directory" in result.output
    assert "Starting Spark" not in result.output
