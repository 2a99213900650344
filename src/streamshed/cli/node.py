"""What `streamshed run --node` adds: a file that says how the node is, and an end when its parent process ends."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamshed.cli.processes import cpu_s
from streamshed.errors import InvalidValueError

if TYPE_CHECKING:
    from streamshed.cli.totals import Totals
    from streamshed.engines.spark.network_batch import NetworkBatch
    from streamshed.engines.spark.node import NodeRunner

TOKEN = "STREAMSHED_TOKEN"
"""The environment variable with the token for tables over HTTP: a command line can be read by others."""

STATUS = "status.json"
_EVERY_S = 1.0


def token_for(exchange: str) -> str | None:
    """The token, where tables go over HTTP."""
    if exchange == "directory":
        return None
    token = os.environ.get(TOKEN)
    if not token:
        raise InvalidValueError(
            "tables over HTTP need a token", where=f"environment variable {TOKEN}", got="nothing",
            expected="the same secret for all nodes", hint="or leave them in the directory: --exchange directory",
        )  # fmt: skip
    return token


def stop_with_parent(stopped: threading.Event, descriptor: int = 0) -> None:
    """Set an event when the standard input ends: whoever started this process holds its other end, and has died."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(descriptor, 1024):
                pass
        stopped.set()

    threading.Thread(target=watch, name="streamshed-parent", daemon=True).start()


@contextmanager
def logged_to(file: Path) -> Iterator[None]:
    """Keep what Streamshed logs, such as messages that were refused, in a file."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("streamshed")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


class StatusFile:
    """Says once a second how a node is, in a file that is always whole."""

    def __init__(self, node: NodeRunner, totals: Totals) -> None:
        self._node, self._totals = node, totals
        self._batch: NetworkBatch | None = None
        self._delay_s: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="streamshed-status", daemon=True)

    def __enter__(self) -> StatusFile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.write()

    def show(self, batch: NetworkBatch) -> None:
        """Take notice of a batch."""
        self._batch = batch
        if batch.sample.delay_p95_s is not None:
            self._delay_s = batch.sample.delay_p95_s

    def document(self) -> dict[str, Any]:
        """How the node is."""
        node, now_s = self._node, time.time()
        entries = [sums for arc, sums in list(self._totals.arcs.items()) if arc in node.runner.spec.rates]
        return {
            "node": node.node.name,
            "pid": os.getpid(),
            "time_s": now_s,
            "due_s": self._totals.target_s,
            "delay_s": self._delay_s,
            "batches": self._totals.batches,
            "arrived": sum(sums.arrived for sums in entries),
            "delivered": sum(sums.delivered for sums in entries),
            "dropped": sum(sums.dropped for sums in entries),
            "timed": self._totals.timed[0],
            "on_time": self._totals.timed[1],
            "keep": node.runner.manager.keep,
            "batch_s": None if self._batch is None else self._batch.sample.duration_s,
            "batch_end_s": self._totals.last_s,
            "arriving_tps": node.rates.tps,
            "waiting": {box.files.name: box.waiting_rows() for box in node.inboxes.values()},
            "takes_tps": node.takes_tps,
            "cost": None if node.cost is None else vars(node.cost),
            "table_ages_s": node.mailbox.ages_s(now_s),
            "fresh_tables": sorted(node.mailbox.tables(now_s)),
            "refused": node.mailbox.refused,
            "cpu_s": cpu_s(),
        }

    def write(self) -> None:
        """Write it now."""
        from streamshed.distributed.arc_files import write_atomically

        with suppress(OSError):
            write_atomically(self._node.directory / STATUS, json.dumps(self.document(), allow_nan=False))

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self.write()
