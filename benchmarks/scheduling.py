"""What scheduling costs: a decision on the next turn, and the runtime optimizer's share of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import track
from rich.table import Table

from streamshed.engines.spark.turn_order import TurnOrder
from streamshed.qos import Goal, Goals, Measure, OverTime, Priority
from streamshed.scheduling import (
    STRATEGIES,
    Job,
    MasterScheduler,
    Monitoring,
    OptimizerSettings,
    RuntimeOptimizer,
    Step,
)

STAGES = (10, 100, 1000, 10_000)
PATH = 10
"""Stages in a row; a query is one such path."""

TRIES, REPEAT = 5, 200
BATCH_S = 0.3
GOAL_MS, GOAL_SHARE = 1.0, 0.01
QUERIES = 100


def run(console: Console) -> None:
    """Print both tables."""
    _decisions(console)
    _optimizer(console)


def _fastest_s(work: Callable[[], object], repeat: int) -> float:
    """Of some tries, per call: the machine is noisy, and noise only adds."""
    best = float("inf")
    for _ in range(TRIES):
        start = time.perf_counter()
        for _ in range(repeat):
            work()
        best = min(best, (time.perf_counter() - start) / repeat)
    return best


def paths_of(stages: int, length: int = PATH) -> list[Job]:
    """Queries of so many stages in a row."""
    return [
        Job(
            f"q{first}",
            (
                tuple(
                    Step(f"s{i}", f"s{i}", (1 + i % 7) / 1000, 0.5 + i % 5 / 10, 100, 100)
                    for i in range(first, min(first + length, stages))
                ),
            ),
        )
        for first in range(0, stages, length)
    ]


def _decisions(console: Console) -> None:
    table = Table(title=f"Whose turn it is, when every stage has something to do (goal: < {GOAL_MS:g} ms at 1,000)")
    table.add_column("strategy")
    for stages in STAGES:
        table.add_column(f"{stages:,} stages, ms", justify="right")
    for name, kind in track(STRATEGIES.items(), "scheduling", console=console, transient=True):
        table.add_row(kind.title, *(f"{_milliseconds(_by_strategy(name, stages), stages):.4f}" for stages in STAGES))
    on_spark = (f"{_milliseconds(_on_spark(stages), stages):.4f}" for stages in STAGES)
    table.add_row("Path capacity on Spark", *on_spark)
    console.print(table)


def _milliseconds(decide: Callable[[], object], stages: int) -> float:
    return 1e3 * _fastest_s(decide, max(1, REPEAT * 100 // stages))


def _master(name: str, stages: int, length: int = PATH) -> MasterScheduler:
    master = MasterScheduler()
    for job in paths_of(stages, length):
        master.start(job, name)
    return master


def _by_strategy(name: str, stages: int) -> Callable[[], None]:
    master = _master(name, stages)
    # The steps are met in the least favourable order: the most urgent one last.
    waiting = dict.fromkeys((f"s{i}" for i in range(stages - 1, -1, -1)), 5.0)

    def decide() -> None:
        master.next(waiting)
        master.spent(0.01)

    return decide


def _on_spark(stages: int) -> Callable[[], None]:
    """With who stands back after a turn; each stage is a query, because the turn of a path goes on by itself."""
    names = [f"s{i}" for i in range(stages - 1, -1, -1)]
    most_rest_s = dict.fromkeys(names[::2], 0.5)  # half of them must be on time
    order = TurnOrder(_master("path-capacity", stages, 1), {name: [name] for name in names}, most_rest_s)
    ready = dict.fromkeys(names, math.inf)  # nobody has waited for long
    now_s = 0.0

    def decide() -> None:
        nonlocal now_s
        order.ended(order.next(ready, now_s), BATCH_S)
        now_s += BATCH_S

    return decide


def _met(share: float) -> str:
    return "met" if share < GOAL_SHARE else "missed"


def _optimizer(console: Console) -> None:
    monitoring = Monitoring(times=1, min_s=3.0, max_s=3.0)
    master = MasterScheduler()
    optimizer = RuntimeOptimizer(master, OptimizerSettings(monitoring))
    goals = Goals(
        {
            Measure.LATENCY: Goal(OverTime.of([(0, 1.0)]), Priority.MUST_SATISFY),
            Measure.MEMORY: Goal(OverTime.of([(0, 1e6)]), Priority.MUST_SATISFY),
            Measure.THROUGHPUT: Goal(OverTime.of([(0, 100.0)])),
        },
        mtre=0.1,
    )
    for number in range(QUERIES):
        optimizer.watch(f"q{number}", goals, "segment")
    now_s, taken_s, rounds = 0.0, 0.0, 0
    while rounds < 50:
        now_s = optimizer.next_s
        # Goals are missed in turn, so that something has to be decided every time.
        measured = {Measure.LATENCY: 2.0, Measure.MEMORY: 2e6 * (rounds % 2), Measure.THROUGHPUT: 50.0}
        start = time.perf_counter()
        optimizer.review(now_s, lambda _, measured=measured: measured)  # type: ignore[misc]
        taken_s += time.perf_counter() - start
        rounds += 1
    table = Table(title=f"The runtime optimizer, {QUERIES} queries, three goals each, looked at every 3 s")
    for heading in ("a decision", "share of the run", f"goal: < {GOAL_SHARE:.0%}"):
        table.add_column(heading, justify="right")
    share = taken_s / now_s
    table.add_row(f"{1e6 * taken_s / rounds / QUERIES:.0f} µs", f"{share:.4%}", _met(share))
    console.print(table)
