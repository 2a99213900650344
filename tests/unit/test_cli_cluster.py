"""`streamshed cluster` with processes that only pretend to be nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.cli.children import Child
from streamshed.cli.cluster_view import ClusterView
from streamshed.cli.node import TOKEN
from streamshed.network import load_spec, node_specs
from tests.polling import wait_for

CHAIN = Path(__file__).parents[2] / "examples" / "chain.yaml"
NODE = """\
import json, os, signal, sys, time
from pathlib import Path

options = dict(zip(sys.argv, sys.argv[1:]))
place = Path(options["--directory"]) / "nodes" / options["--node"]
(place / "started").open("a").write("once\\n")
if (place / "die").exists():
    (place / "die").unlink()
    print("error: it is broken", flush=True)
    os._exit(7)
status = {"arrived": 10, "delivered": 7, "dropped": 3, "delay_s": 1.5, "due_s": 5.0, "cpu_s": 2.0, "pid": os.getpid(),
          "table_ages_s": {"core": 1.0} if options["--node"] == "edge" else {}, "takes_tps": {"core/parsed": 500.0},
          "waiting": {"parsed-core": 4}, "token": os.environ.get("STREAMSHED_TOKEN")}

def stop(*_):
    (place / "stopped").write_text(str(time.time()))
    summary = {"within_target": 0.99, "p50_s": 1, "p95_s": 2, "p99_s": 3, "target_s": 5, "error": None}
    Path(options["--json"]).write_text(json.dumps(summary))
    os._exit(0)

signal.signal(signal.SIGTERM, stop)
(place / "status.json").write_text(json.dumps(status))  # from here on it may be stopped
(place / "ready").touch()
while os.read(0, 1):
    pass
(place / "orphan").touch()
"""


@pytest.fixture
def pretending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "node.py"
    script.write_text(NODE)
    monkeypatch.setattr(Child, "program", (sys.executable, str(script)))
    return tmp_path / "run"


def child_of(place: Path, name: str, token: str | None = None) -> Child:
    return Child(CHAIN, node_specs(load_spec(CHAIN))[name], place, ["--directory", str(place)], token)


def test_all_nodes_run_and_stop_upstream_first(pretending: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    options = ["--directory", str(pretending), "--seconds", "0.5", "--json", str(summary), "--exchange", "http"]
    result = CliRunner().invoke(app, ["cluster", str(CHAIN), *options])
    assert result.exit_code == 0, result.output
    assert "No tuple came in." in result.output, "there is no ledger: nothing can be said of any tuple"
    edge, core = pretending / "nodes" / "edge", pretending / "nodes" / "core"
    assert float((edge / "stopped").read_text()) <= float((core / "stopped").read_text())
    assert not (edge / "orphan").exists()
    found = json.loads(summary.read_text())
    assert found["cpu_s"] == 4.0
    assert found["nodes"]["core"]["p95_s"] == 2
    assert found["arcs"]["parsed-core"] == {"written": 0, "read": 0, "waiting": 0, "balanced": True}
    tokens = {json.loads((place / "status.json").read_text())["token"] for place in (edge, core)}
    assert len(tokens) == 1
    assert len(tokens.pop()) > 16
    assert TOKEN not in os.environ


@pytest.mark.parametrize("restart", [False, True])
def test_a_node_that_dies(pretending: Path, restart: bool) -> None:
    core = pretending / "nodes" / "core"
    core.mkdir(parents=True)
    (core / "die").touch()
    options = ["--directory", str(pretending), "--seconds", "3", *(["--restart"] if restart else [])]
    result = CliRunner().invoke(app, ["cluster", str(CHAIN), *options])
    assert "core ended with exit code 7" in result.output
    assert ("it is broken" in result.stderr) is not restart, "the end of what it has printed"
    assert result.exit_code == (0 if restart else 2)
    assert len((core / "started").read_text().splitlines()) == (2 if restart else 1)
    assert (pretending / "nodes" / "edge" / "stopped").exists(), "the others go on"


def test_nodes_end_with_whoever_started_them(pretending: Path, tmp_path: Path) -> None:
    starter = (
        "import signal, sys; from pathlib import Path; from streamshed.cli.children import Child;"
        "from streamshed.network import load_spec, node_specs; place = Path(sys.argv[1]);"
        f"Child.program = {tuple(Child.program)!r};"
        f"node = node_specs(load_spec({str(CHAIN)!r}))['core'];"
        "Child(Path('spec'), node, place, ['--directory', str(place)], None).start(); signal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", starter, str(pretending)])
    core = pretending / "nodes" / "core"
    try:
        wait_for((core / "ready").exists)
    finally:
        process.kill()
        process.wait()
    wait_for((core / "orphan").exists)


def test_what_is_shown(pretending: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamshed.cli.cluster_view.LINE_EVERY_S", 1e6)
    children = [child_of(pretending, name) for name in ("edge", "core")]
    console = Console(width=200, record=True, force_terminal=False)
    view = ClusterView(console, "chain", 10.0, children)
    try:
        children[0].start()
        wait_for((pretending / "nodes" / "edge" / "ready").exists)
        with view:
            view.show()
            view.show()  # not again so soon
            console.print(view.picture())
        shown = console.export_text()
        assert shown.count("delay 1.5 of 5 s") == 1
        assert "core 1 s old" in shown
        assert "core | state not started" in shown
        assert "500/s" in shown
        children[0]._process.send_signal(signal.SIGKILL)  # type: ignore[union-attr]
        wait_for(lambda: not children[0].is_alive)
        assert children[0].died() == -9
        assert children[0].died() is None
        assert children[0].state == "died (signal SIGKILL)"
    finally:
        for child in children:
            child.kill()


def test_wrong_options(tmp_path: Path) -> None:
    invoke = CliRunner().invoke
    assert invoke(app, ["cluster", str(CHAIN), "--target", "-1"]).exit_code == 2
    assert invoke(app, ["cluster", str(CHAIN.parent / "expressway.yaml"), "-d", str(tmp_path)]).exit_code == 2
    assert invoke(app, ["run", str(CHAIN), "--node", "nobody", "-d", str(tmp_path)]).exit_code == 2
