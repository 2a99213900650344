"""`python -m benchmarks [NAME …]`: run all measurements, or those named."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from benchmarks import (
    control,
    fair,
    fit,
    guard,
    ledger,
    nodes,
    parsing,
    planning,
    scheduled_stages,
    scheduling,
    shared_cluster,
    simulation,
    stages,
)

BENCHMARKS: dict[str, Callable[[Console], None]] = {
    "planning": planning.run,
    "control": control.run,
    "fair": fair.run,
    "scheduling": scheduling.run,
    "simulation": simulation.run,
    "fit": fit.run,
    "guard": guard.run,
    "ledger": ledger.run,
    "parsing": parsing.run,
    "stages": stages.run,
    "shared-cluster": shared_cluster.run,
    "nodes": nodes.run,
    "scheduled-stages": scheduled_stages.run,
}


def main(names: list[str]) -> int:
    console = Console(width=max(Console().width, 110))
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        console.print(f"unknown: {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name](console)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
