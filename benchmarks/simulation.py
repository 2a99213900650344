"""How fast the simulator is on one core, how that grows, and what memory a run takes."""

from __future__ import annotations

import time
import tracemalloc

from rich.console import Console
from rich.progress import track
from rich.table import Table

from streamshed.control import controller_named
from streamshed.engines.sim import SimResult, simulate
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import planner_named
from streamshed.qos import Histogram
from streamshed.workload import Constant

OPERATORS = (1, 10, 100, 1000)
TRAINS = (1, 10, 100, 1000, 10_000)
LENGTHS_S = (10, 40, 160)
LOAD = 0.9


def run(console: Console) -> None:
    """Print the three tables."""
    _by_operators(console)
    _by_trains(console)
    _by_length(console)


def filters(count: int) -> tuple[Network, Statistics]:
    """Paths of up to ten filters behind one stream, each of which lets nearly everything through."""
    new = NetworkBuilder(f"{count} filters")
    stream = new.stream("s", {"value": "double"})
    for path in range(0, count, 10):
        flow = stream
        for number in range(path, min(path + 10, count)):
            flow = flow.filter(f"f{number}", f"value > {number % 10 / 10}")
        flow.output(f"o{path}")
    shares = {f"f{number}": 1 - number % 10 / 1000 for number in range(count)}
    return new.build(), Statistics({}, shares, {"s": {"value": Histogram.uniform(0, 100)}})


def _timed(count: int, rate_tps: float, seconds: float, train_s: float) -> tuple[SimResult, float]:
    network, statistics = filters(count)
    costs = {operator.id: LOAD / rate_tps / count for operator in network.operators}
    known = Statistics(costs, statistics.selectivities, statistics.histograms)
    start = time.process_time()
    result = simulate(network, known, {"s": Constant(rate_tps)}, seconds, train_s=train_s)
    return result, time.process_time() - start


def _by_operators(console: Console) -> None:
    table = Table(title="Simulation, by operators (filters by value; about 2 million executions; load 0.9)")
    headings = ("operators", "tuples/s", "virtual time", "executions", "real time", "executions/s", "real/virtual")
    for heading in headings:
        table.add_column(heading, justify="right")
    for count in track(OPERATORS, "simulation by operators", console=console, transient=True):
        rate_tps = 200_000.0 / min(count, 20)
        result, taken_s = _timed(count, rate_tps, max(1.0, 2e6 / (rate_tps * count)), 0.01)
        table.add_row(
            f"{count:,}",
            f"{rate_tps:,.0f}",
            f"{result.seconds:g} s",
            f"{result.executions:,}",
            f"{taken_s:.2f} s",
            f"{result.executions / taken_s:,.0f}",
            f"{taken_s / result.seconds:.2f}",
        )
    console.print(table)


def _by_trains(console: Console) -> None:
    table = Table(
        title="Simulation, by train: ten filters, 100,000 tuples/s, twice the capacity, so that trains are full"
    )
    for heading in ("tuples a train", "longest train", "executions", "real time", "executions/s", "a train takes"):
        table.add_column(heading, justify="right")
    for size in track(TRAINS, "simulation by trains", console=console, transient=True):
        train_s = size * 2 / 100_000 / 10
        result, taken_s = _timed_for(0.05 if size < 100 else 1.0, train_s)
        table.add_row(
            f"{size:,}",
            f"{1e3 * train_s:g} ms",
            f"{result.executions:,}",
            f"{taken_s:.2f} s",
            f"{result.executions / taken_s:,.0f}",
            f"{taken_s / result.executions * size * 1e6:.0f} µs",
        )
    console.print(table)


def _timed_for(seconds: float, train_s: float) -> tuple[SimResult, float]:
    network, statistics = filters(10)
    costs = {operator.id: 2 / 100_000 / 10 for operator in network.operators}
    known = Statistics(costs, statistics.selectivities, statistics.histograms)
    start = time.process_time()
    result = simulate(network, known, {"s": Constant(100_000)}, seconds, train_s=train_s * 1.0001, period_s=seconds)
    return result, time.process_time() - start


def _by_length(console: Console) -> None:
    table = Table(title="Memory, by length of the run: ten filters, 20,000 tuples/s, three times the capacity, CTRL")
    for heading in ("virtual time", "tuples", "executions", "largest queue", "peak memory", "bytes per tuple seen"):
        table.add_column(heading, justify="right")
    network, statistics = filters(10)
    costs = {operator.id: 3 / 20_000 / 10 for operator in network.operators}
    known = Statistics(costs, statistics.selectivities, statistics.histograms)
    for seconds in track(LENGTHS_S, "memory", console=console, transient=True):
        tracemalloc.start()
        result = simulate(
            network,
            known,
            {"s": Constant(20_000)},
            seconds,
            controller=controller_named("ctrl", 2.0, headroom=1.0),
            planner=planner_named("roadmap"),
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        table.add_row(
            f"{seconds} s",
            f"{result.arrived:,}",
            f"{result.executions:,}",
            f"{result.series.outstanding.max():,.0f}",
            f"{peak / 1e6:.1f} MB",
            f"{peak / result.arrived:.1f}",
        )
    console.print(table)
