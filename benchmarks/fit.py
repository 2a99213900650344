"""Feasible input tables: how large they get, how long they take, how fast they are read, how good they are."""

from __future__ import annotations

import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.feasible_input.wire import encode, whole
from streamshed.distributed.scores import Throughput
from streamshed.distributed.tables import build_tables
from streamshed.experiments.borealis_trees import (
    ERROR,
    TreeOutcome,
    bounded_shortfalls,
    grid_sizes,
    measured_tree,
    tree_sizes,
)
from streamshed.experiments.random_trees import random_tree

GROUPS = ((2, 5), (6, 10), (11, 20))
LOOKUPS = 200
TREES, LARGEST = 30, 20
"""The reproduction of Borealis has more and larger ones."""


def run(console: Console) -> None:
    """Print all tables."""
    _growth(console)
    _lookups(console)
    _trees(console, TREES, LARGEST)
    _bounded(console)


def _growth(console: Console) -> None:
    table = Table(title="A leaf's table by inputs, error and kind (— where it would exceed 5 million rows)")
    for heading in ("inputs", "e_max / optimum", "grid: rows", "seconds", "corners: rows", "seconds"):
        table.add_column(heading, justify="right")
    found = {(m, share, kind): (rows, s) for m, share, kind, rows, s in grid_sizes(4, (0.2, 0.1, 0.05, 0.02))}
    for inputs in range(1, 5):
        for share in (0.2, 0.1, 0.05, 0.02):
            cells = []
            for kind in ("grid", "corners"):
                rows = found.get((inputs, share, kind))
                cells += ["—", "—"] if rows is None else [f"{rows[0]:,}", f"{rows[1]:.3f}"]
            table.add_row(str(inputs), f"{share:.0%}", *cells)
    console.print(table)


def _lookups(console: Console) -> None:
    table = Table(title="Looking rates up, and sending the table (e_max = 2 % of the optimum)")
    for heading in ("kind", "inputs", "rows", "look-up", "first look-up", "message"):
        table.add_column(heading, justify="right")
    tree = next(tree for seed in range(1000) if len((tree := random_tree(1, seed)).topology.nodes[0].inputs) == 3)
    rng = np.random.default_rng(0)
    best = Coordinator(tree.topology, Throughput(), 100.0).plan(tree.rates_tps).score
    for kind in ("grid", "corners"):
        fit = build_tables(tree.topology, Throughput(), MaxError(0.02 * best), kind=kind)["n0"]
        places = rng.uniform(0, 1.5, (LOOKUPS, len(fit.inputs))) * fit.rates.max(axis=0)
        rates = [dict(zip(fit.inputs, place, strict=True)) for place in places.tolist()]
        start = time.process_time()
        fit.decide(rates[0])
        first_s = time.process_time() - start
        start = time.process_time()
        for one in rates:
            fit.decide(one)
        each_s = (time.process_time() - start) / LOOKUPS
        size = len(encode(whole(fit, 0, 0.0)))
        table.add_row(
            kind,
            str(len(fit.inputs)),
            f"{len(fit):,}",
            f"{each_s * 1e6:.0f} µs",
            f"{first_s * 1e3:.1f} ms",
            f"{size:,} B",
        )
    console.print(table)


def _trees(console: Console, count: int, largest: int) -> None:
    outcomes: list[TreeOutcome] = []
    sizes = tree_sizes(count, largest, 0)
    for number, nodes in enumerate(track(sizes, "random trees", console=console, transient=True)):
        outcomes.append(measured_tree(random_tree(nodes, number)))
    table = Table(title=f"Corner tables of {count} random trees against the optimum, e_max = {ERROR:.0%} of it")
    for heading in (
        "nodes",
        "trees",
        "shortfall: mean",
        "largest",
        "rows: median",
        "largest",
        "seconds: median",
        "largest",
    ):
        table.add_column(heading, justify="right")
    for low, high in GROUPS:
        group = [one for one in outcomes if low <= one.nodes <= high]
        if group:
            table.add_row(
                f"{low}–{high}", str(len(group)),
                f"{np.mean([one.shortfall for one in group]):.2%}", f"{max(one.shortfall for one in group):.2%}",
                f"{np.median([one.rows for one in group]):.0f}", f"{max(one.rows for one in group):,}",
                f"{np.median([one.seconds for one in group]):.2f}", f"{max(one.seconds for one in group):.1f}",
            )  # fmt: skip
    console.print(table)


def _bounded(console: Console) -> None:
    found = bounded_shortfalls([random_tree(nodes, nodes) for nodes in range(2, 9)])
    table = Table(title="Tables bounded by size: shortfall from the optimum, seven trees of 2 to 8 nodes")
    for heading in ("entries", "mean", "largest"):
        table.add_column(heading, justify="right")
    for entries, shortfalls in found.items():
        table.add_row(str(entries), f"{np.mean(shortfalls):.1%}", f"{max(shortfalls):.1%}")
    console.print(table)
