"""How fast plans are made, how that grows with the network, and how far the road map is from the optimum."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.networks import random_network
from streamshed.planning import RoadMap
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.optimal import optimal_fractions

SIZES = ((1, 1), (10, 2), (100, 10), (1000, 100))
"""Queries and streams; a query has ten operators."""

LOOKUPS = 300
NETWORKS = 500


def run(console: Console) -> None:
    """Print both tables."""
    _speed(console)
    _distance(console)


def _timed(work: Callable[[], object], repeat: int = 3) -> float:
    """Processor seconds of the fastest of some tries: the machine is noisy, and noise only adds."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def _speed(console: Console) -> None:
    table = Table(title="Planning, by size of the network (ten operators a query, shared parts, unions, joins)")
    for heading in (
        "queries",
        "streams",
        "operators",
        "flow graph",
        "road map",
        "rows",
        "look-up",
        "linear program",
        "µs per operator: graph + map",
        "LP",
    ):
        table.add_column(heading, justify="right")
    for queries, streams in track(SIZES, "planning speed", console=console, transient=True):
        table.add_row(*_speed_of(queries, streams))
    console.print(table)


def _speed_of(queries: int, streams: int) -> tuple[str, ...]:
    network, statistics, rates = random_network(queries, 10, streams, seed=1)
    graph = flow_graph(network, statistics, rates)
    road_map = RoadMap(graph)
    vector = np.array([rates[stream] for stream in road_map.streams])
    capacities = graph.full_load * np.random.default_rng(0).uniform(0.1, 0.95, LOOKUPS)
    graph_s = _timed(lambda: flow_graph(network, statistics, rates))
    map_s = _timed(lambda: RoadMap(graph))
    lookup_s = _timed(lambda: [road_map.limits(road_map.lookup(vector, capacity)) for capacity in capacities])
    lp_s = _timed(lambda: optimal_fractions(graph, graph.full_load / 2))
    operators = len(network.operators)
    return (
        f"{queries:,}",
        f"{len(network.streams):,}",
        f"{operators:,}",
        f"{graph_s:.3f} s",
        f"{map_s:.3f} s",
        f"{len(road_map):,}",
        f"{lookup_s / LOOKUPS * 1e6:.0f} µs",
        f"{lp_s:.3f} s",
        f"{(graph_s + map_s) / operators * 1e6:.0f}",
        f"{lp_s / operators * 1e6:.0f}",
    )


def loss_ratios(count: int = NETWORKS) -> list[float]:
    """Road map's utility loss divided by the optimal one, over random networks and loads."""
    rng = random.Random(2003)
    ratios: list[float] = []
    for seed in range(count):
        network, statistics, rates = random_network(
            rng.randint(1, 12),
            rng.randint(2, 10),
            rng.randint(1, 6),
            seed,
            sharing=rng.uniform(0, 0.8),
            union_share=rng.uniform(0, 0.3),
            join_share=rng.uniform(0, 0.2),
        )
        graph = flow_graph(network, statistics, rates)
        capacity = graph.full_load / rng.uniform(1.05, 5)
        road_map = RoadMap(graph)
        vector = np.array([rates[stream] for stream in road_map.streams])
        everything = sum(leaf.weight for leaf in graph.leaves)
        greedy = everything - graph.utility(road_map.fractions(road_map.lookup(vector, capacity)))
        best = everything - graph.utility(optimal_fractions(graph, capacity))
        ratios.append(greedy / best if best > 1e-9 else 1.0)
    return ratios


def _distance(console: Console) -> None:
    with console.status(f"road map against optimum on {NETWORKS} random networks"):
        ratios = np.array(loss_ratios())
    table = Table(title=f"Utility loss of the road map / optimal loss, {len(ratios)} random networks, 1.05× to 5× load")
    for heading in ("mean", "median", "90 %", "99 %", "largest", "within 0.1 %", "within 1 %"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{ratios.mean():.4f}",
        *(f"{np.quantile(ratios, q):.4f}" for q in (0.5, 0.9, 0.99, 1.0)),
        f"{np.mean(ratios < 1.001):.1%}",
        f"{np.mean(ratios < 1.01):.1%}",
    )
    console.print(table)
