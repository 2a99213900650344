"""Keeps what Spark's processes write to the error stream out of the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def quiet_start(log: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their errors to a file: Java, and the Python workers below it.

    They go on doing so afterwards, while this process has its error stream back.
    """
    ours = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(file)
