"""Tables against the linear optimum on random trees; how large they get, and how long they take to make."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.feasible_input.spread import MaxError, TableSize
from streamshed.distributed.scores import Throughput
from streamshed.distributed.tables import build_tables, play
from streamshed.errors import InvalidValueError
from streamshed.experiments.claims import Claim, DataTable, Reproduction, Settings, judged
from streamshed.experiments.drawing import INK, new_figure, quiet
from streamshed.experiments.random_trees import RandomTree, random_tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ERROR = 0.1
"""e_max as a share of the optimum."""
TREES, QUICK_TREES = 200, 8
LARGEST, QUICK_LARGEST = 50, 6
SIZES = (64, 32, 16, 8, 4, 2)
SMALL = 8
"""Nodes of the trees that are tried with bounded tables, at most."""
SHARES = (0.2, 0.1, 0.05)
ROUNDING = 1e-4
SCALES = 2.0
FULL, HALVING = 0.02, 0.1
_SCORE = Throughput()

LeafTable = tuple[int, float, str, int, float]
"""Inputs, error as a share of the optimum, kind, rows, seconds."""


@dataclass(frozen=True)
class TreeOutcome:
    """One tree.

    Attributes:
        nodes: how many nodes it has.
        inputs: the most inputs that a node has.
        shortfall: by how much the score of nodes that go by their tables is below the optimum, as a share of it.
        overload: the highest load of a node, as a share of its capacity.
        rows: entries of the largest table.
        seconds: processor time to make all tables.
    """

    nodes: int
    inputs: int
    shortfall: float
    overload: float
    rows: int
    seconds: float


def tree_sizes(count: int, largest: int, seed: int) -> list[int]:
    """Numbers of nodes between 2 and the largest: evenly on a logarithmic scale, so that there are more small trees."""
    rng = random.Random(seed)
    return [round(2 * (largest / 2) ** rng.random()) for _ in range(count)]


def measured_tree(tree: RandomTree, spread_share: float = ERROR) -> TreeOutcome:
    """Make all tables of a tree, and see what comes of them."""
    best = Coordinator(tree.topology, _SCORE, 100.0).plan(tree.rates_tps).score
    start = time.process_time()
    tables = build_tables(tree.topology, _SCORE, MaxError(spread_share * best))
    seconds = time.process_time() - start
    played = play(tree.topology, tables, tree.rates_tps, _SCORE)
    return TreeOutcome(
        len(tree.topology.nodes),
        max(len(node.inputs) for node in tree.topology.nodes),
        1 - played.score / best,
        max(played.loads[node.name] / float(node.capacity) for node in tree.topology.nodes),
        max(map(len, tables.values())),
        seconds,
    )


def bounded_shortfalls(trees: list[RandomTree]) -> dict[int, list[float]]:
    """By the size that tables are bounded to: how far from the optimum nodes stay that go by them."""
    found: dict[int, list[float]] = {}
    for entries in SIZES:
        for tree in trees:
            best = Coordinator(tree.topology, _SCORE, 100.0).plan(tree.rates_tps).score
            tables = build_tables(tree.topology, _SCORE, TableSize(entries))
            score = play(tree.topology, tables, tree.rates_tps, _SCORE).score
            found.setdefault(entries, []).append(1 - score / best)
    return found


def grid_sizes(most_inputs: int, shares: tuple[float, ...]) -> list[LeafTable]:
    """Rows and seconds of a leaf's table, by inputs, error, and kind."""
    rows: list[LeafTable] = []
    for inputs in range(1, most_inputs + 1):
        tree = next(
            tree for seed in range(1000) if len((tree := random_tree(1, seed)).topology.nodes[0].inputs) == inputs
        )
        best = Coordinator(tree.topology, _SCORE, 100.0).plan(tree.rates_tps).score
        for share in shares:
            for kind in ("grid", "corners"):
                start = time.process_time()
                try:
                    tables = build_tables(tree.topology, _SCORE, MaxError(share * best), kind=kind)
                except InvalidValueError:  # too large to be made
                    continue
                seconds = time.process_time() - start
                rows.append((inputs, share, kind, len(tables["n0"]), seconds))
    return rows


def try_trees(settings: Settings) -> Reproduction:
    """Measure section 3.2: spreads, and what the road to the root adds."""
    count, largest = (QUICK_TREES, QUICK_LARGEST) if settings.quick else (TREES, LARGEST)
    settings.progress.begin("random trees", count)
    outcomes: list[TreeOutcome] = []
    trees: list[RandomTree] = []
    for number, nodes in enumerate(tree_sizes(count, largest, settings.seed)):
        tree = random_tree(nodes, settings.seed * 100_000 + number, most_inputs=2 if settings.quick else 4)
        outcomes.append(measured_tree(tree))
        if nodes <= SMALL:
            trees.append(tree)
        settings.progress.advance()
    bounded = bounded_shortfalls(trees[: 2 if settings.quick else 10])
    sizes = grid_sizes(2 if settings.quick else 4, SHARES)
    return Reproduction(
        (*of_trees(outcomes), of_spreads(sizes), of_bounds(bounded)),
        (
            DataTable(
                "trees", f"Random trees, e_max = {ERROR:.0%} of the optimum",
                tuple(one.name for one in fields(TreeOutcome)), tuple(astuple(one) for one in outcomes),
            ),
            DataTable("sizes", "Tables of a leaf", ("inputs", "e_max_share", "kind", "rows", "seconds"), tuple(sizes)),
            DataTable(
                "bounded", "Tables bounded by size", ("entries", "mean_shortfall", "largest_shortfall"),
                tuple((entries, float(np.mean(found)), max(found)) for entries, found in bounded.items()),
            ),
        ),
        {"trees": lambda: _draw(outcomes)},
    )  # fmt: skip


def of_trees(outcomes: Sequence[TreeOutcome]) -> tuple[Claim, ...]:
    """Verdicts on quality, safety, and how the effort grows."""
    worst = max(one.shortfall for one in outcomes)
    load = max(one.overload for one in outcomes)
    nodes, seconds, rows = np.array([(one.nodes, max(one.seconds, 1e-6), one.rows) for one in outcomes]).T
    time_power, row_power = (float(np.polyfit(np.log(nodes), np.log(of), 1)[0]) for of in (seconds, rows))
    large = nodes >= np.median(nodes)
    return (
        judged(
            "Section 3.2: the score is within e_max of the optimum, always",
            "with spread s_i = e_max/(m·sel_i) the error of the total score is at most e_max",
            f"e_max {ERROR:.0%} of the optimum, {len(outcomes)} trees of {nodes.min():g} to {nodes.max():g} nodes:"
            f" largest shortfall {worst:.2%}, mean {np.mean([one.shortfall for one in outcomes]):.2%}",
            worst <= ERROR,
            otherwise="errors of nodes add up to more than their shares",
        ),
        judged(
            "Section 3.1: rates in a table overload neither the node nor anyone below",
            "the table represents the input space that keeps the node and all its descendants below their capacities",
            f"highest load of any node over all trees: {load:.6f} of its capacity (up to {1 + ROUNDING:g} counts as"
            " rounding)",
            load <= 1 + ROUNDING,
            otherwise="rounding of rates adds up downstream",
        ),
        judged(
            "Section 1.2: the effort scales with the number of nodes",
            f"the algorithm should scale well. (Counted as well: time to make all tables below nodes^{SCALES:g}.)",
            f"time ~ nodes^{time_power:.2f}, entries of the largest table ~ nodes^{row_power:.2f}; trees of"
            f" {nodes[large].min():g} nodes and more: median {np.median(seconds[large]):.2f} s and"
            f" {np.median(rows[large]):.0f} entries, at most {seconds.max():.1f} s and {rows.max():,.0f} entries",
            time_power < SCALES,
            otherwise="e_max is shared out, so that a node of a large tree has less of it, and needs a finer table",
        ),
    )


def of_spreads(sizes: Sequence[LeafTable]) -> Claim:
    """The verdict on how tables grow as the error shrinks."""
    grids = {(inputs, share): rows for inputs, share, kind, rows, _ in sizes if kind == "grid"}
    corners = {(inputs, share): rows for inputs, share, kind, rows, _ in sizes if kind == "corners"}
    most = max(inputs for inputs, _ in grids)

    def listed(of: Mapping[tuple[int, float], int]) -> str:
        return ", ".join(f"{share:.0%}: {of[most, share]:,}" for share in SHARES if (most, share) in of)

    made = [[grids[m, share] for share in SHARES if (m, share) in grids] for m in range(1, most + 1)]
    return judged(
        "Section 3.2: a smaller spread needs a larger table",
        "smaller spread requires a larger number of feasible points",
        f"entries of a leaf with {most} inputs by e_max as a share of the optimum: {listed(grids)}; as corners"
        f" {listed(corners)}",
        all(smaller < larger for of in made for smaller, larger in pairwise(of)),
        otherwise="entries that others beat are left out, which hides the growth",
    )


def of_bounds(bounded: Mapping[int, Sequence[float]]) -> Claim:
    """The verdict on tables with a bound on their size."""
    means = {entries: float(np.mean(found)) for entries, found in bounded.items()}
    falling = [means[entries] for entries in sorted(means, reverse=True)]
    count = len(next(iter(bounded.values())))
    return judged(
        "Section 3.2: tables bounded by size degrade gracefully",
        "the spread can be determined from a bound B on the number of points. (Counted as graceful: nearly the optimum"
        f" with {max(means)} entries, {FULL:.0%}, and no halving costs more than {100 * HALVING:g} points.)",
        f"{count} trees of up to {SMALL} nodes, mean shortfall: "
        + ", ".join(f"{entries} entries {mean:.1%}" for entries, mean in means.items()),
        falling[0] <= FULL and all(fewer - more <= HALVING for more, fewer in pairwise(falling)),
        otherwise="which entries a small table keeps is a matter of luck",
    )


def _draw(outcomes: Sequence[TreeOutcome]) -> Figure:
    figure = new_figure(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    quiet(left, "Shortfall from the optimum (%)")
    left.scatter([one.nodes for one in outcomes], [100 * one.shortfall for one in outcomes], s=12, color="#0072B2")
    left.axhline(100 * ERROR, color="#D55E00", linewidth=1.2, linestyle="--")
    left.annotate("e_max", (1, 100 * ERROR), (0, -12), xycoords=("axes fraction", "data"),
                  textcoords="offset points", ha="right", color="#D55E00", fontsize=9)  # fmt: skip
    quiet(right, "Entries of the largest table")
    right.scatter([one.nodes for one in outcomes], [one.rows for one in outcomes], s=12, color="#009E73")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("nodes of the tree", color=INK)
    return figure
