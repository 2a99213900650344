"""The nodes of a cluster as child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, ClassVar

from streamshed.cli.node import STATUS, TOKEN
from streamshed.distributed.arc_files import ArcFiles, Inbox, file_name, read_document
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.errors import StreamshedError
from streamshed.network import NodeSpec

_SUMMARY = "summary.json"
_STOP_S = 60.0
_LAST_WORDS = 6  # lines
_LOG_END_BYTES = 20_000


class Child:
    """One node: a process `streamshed run --node`, its log and what it leaves in its directory.

    It holds the other end of the process's standard input: when this process dies, that ends, and so does the node.

    Args:
        spec: the file.
        node: its part.
        place: the directory that all nodes share.
        options: of `streamshed run`.
        token: for tables over HTTP, or None.
    """

    program: ClassVar[Sequence[str]] = (sys.executable, "-m", "streamshed")

    def __init__(self, spec: Path, node: NodeSpec, place: Path, options: Sequence[str], token: str | None) -> None:
        self.node = node
        self.directory = place / "nodes" / file_name(node.name)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._arcs = place / "arcs"
        summary = ["--json", str(self.directory / _SUMMARY)]
        self._command = [*self.program, "run", str(spec), "--node", node.name, *options, *summary]
        self._environment = {**os.environ, **({} if token is None else {TOKEN: token})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._log_from = 0
        self._stopping = False
        self._code: int | None = None
        self._used_s = 0.0
        self._run_cpu_s = 0.0

    def start(self) -> None:
        """Start the process, for the first time or again."""
        self._used_s += self._run_cpu_s
        self._run_cpu_s = 0.0
        for name in (STATUS, _SUMMARY):
            (self.directory / name).unlink(missing_ok=True)
        self._close_log()
        self._code = None
        self._log = self.log_file.open("ab")
        self._log_from = self._log.tell()
        # A session of its own: Ctrl-C is for us, who stop the nodes in their order.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )

    @property
    def log_file(self) -> Path:
        """Has what the process prints."""
        return self.directory / "run.log"

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return None if self._process is None else self._process.pid

    @property
    def has_started(self) -> bool:
        """Whether the process runs, and its queries with it."""
        return self.is_alive and (self.directory / STATUS).exists()

    @property
    def state(self) -> str:
        """How the process is, in a few words."""
        if self.is_alive:
            return "stopping" if self._stopping else f"pid {self.pid}" if self.has_started else "starting"
        if self._stopping and self._code in (None, 0):
            return "ended"
        return "not started" if self._code is None else f"died ({ended_with(self._code)})"

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def died(self) -> int | None:
        """How the process has ended without being told to; None if it runs, or that has been said before."""
        if self._process is None or self._stopping:
            return None
        code = self._process.poll()
        if code is not None:
            self._close_input()
            self._process, self._code = None, code
        return code

    def stop(self) -> None:
        """Stop it in good order, and wait until it has ended."""
        self._stopping = True
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._stopping = True
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._close_input()
        self._close_log()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    # --- what it says ----------------------------------------------------------------------------------------------

    def last_words(self) -> str:
        """The end of what its last run has printed: its error, if it died of one that it knew."""
        try:
            with self.log_file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(self._log_from, size - _LOG_END_BYTES))
                lines = [line for line in stream.read().decode(errors="replace").splitlines() if line.strip()]
        except OSError:
            return ""
        errors = [at for at, line in enumerate(lines) if line.startswith("error: ")]
        return "\n".join(lines[errors[-1] :] if errors else lines[-_LAST_WORDS:])

    def status(self) -> dict[str, Any]:
        """What it has last said about itself; empty before that."""
        try:
            found = read_document(self.directory / STATUS)
        except StreamshedError:
            return {}
        self._run_cpu_s = max(self._run_cpu_s, float(found.get("cpu_s") or 0.0))
        return found

    def summary(self) -> dict[str, Any]:
        """What became of all tuples that ever came to it, by its ledger, and how it was in its last run."""
        status, last = self.status(), read_document(self.directory / _SUMMARY)
        try:
            totals = summarise(self.directory / "control")
        except StreamshedError:
            totals = []
        return {
            "arrived": sum(total.arrived for total in totals),
            "delivered": sum(total.delivered for total in totals),
            "dropped": sum(total.dropped for total in totals),
            "malformed": sum(total.malformed for total in totals),
            "balanced": all(total.balanced for total in totals),
            "streams": {total.key: total.arrived for total in totals},
            "within_target": last.get("within_target"),
            "p50_s": last.get("p50_s"),
            "p95_s": last.get("p95_s"),
            "p99_s": last.get("p99_s"),
            "due_s": last.get("target_s"),
            "cpu_s": self._used_s + self._run_cpu_s or None,
            "refused": int(status.get("refused") or 0),
            "error": last.get("error"),
        }

    def arcs(self) -> dict[str, dict[str, int]]:
        """What was written on its arcs, what was read from those of others, and what waits there."""
        found = {arc: {"written": ArcFiles(self._arcs, arc).written_rows()} for arc in self.node.writes.values()}
        streams = self.summary()["streams"]
        for stream, arc in self.node.reads.items():
            files = ArcFiles(self._arcs, arc)
            read = streams.get(stream, 0)
            found[arc] = {"read": read, "waiting": Inbox(files).waiting_rows()}
        return found


def ended_with(code: int) -> str:
    """How a process ended, by the code that `subprocess` gives.

    >>> ended_with(-9), ended_with(2)
    ('signal SIGKILL', 'exit code 2')
    """
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
