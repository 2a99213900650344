"""What processes use: Java and its Python workers are children of the one that was started."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_s(root: int | None = None, *, itself: bool = True) -> float | None:
    """Processor time of a process and all that it has started, ended ones included; None where nobody can tell.

    Args:
        root: the process; by default this one.
        itself: whether its own time counts.
    """
    if not Path("/proc/self/stat").exists():
        return None
    root = os.getpid() if root is None else root
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        process = int(entry.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(int(field) for field in fields[11:15])

    def is_below(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == root:
                return True
        return False

    counted = [process for process in ticks if is_below(process) or (itself and process == root)]
    return sum(ticks[process] for process in counted) / os.sysconf("SC_CLK_TCK")
