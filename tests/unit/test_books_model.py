"""Random histories of batches, changes, crashes and restarts: the ledger says what has happened, to the tuple.

See `tests/books_world.py` for what is real in it and what is made up. A history that fails is cut down to the steps
that matter, and printed as what `play` takes. To look for new ones: set STREAMSHED_HISTORIES to 20000.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.books_world import QUERIES, DiskFullError, World, memory, world

HISTORIES = int(os.environ.get("STREAMSHED_HISTORIES", "600"))
BLOCKS = 6

Step = tuple[str, int, int]
Settings = dict[str, Any]

# Each kind of step with its weight, and the values of its two numbers. Times are in hundredths of a second.
KINDS: dict[str, tuple[int, range | list[int], range | list[int]]] = {
    "arrive": (8, range(3), [1, 7, 20]),
    "batch": (14, range(3), [0, 20, 50]),
    "go": (16, range(3), range(1, 6)),
    "deliver": (10, [0], range(1, 4)),
    "apply": (8, range(3), [0, 1, 64, 100, 128, 200, 256]),
    "obey": (14, range(3), [0, 64, 100, 128, 200, 256]),
    "elapse": (10, [0], [0, 1, 3, 6, 20, 100, 500, 1300, 3000]),
    "again": (2, [0], [0]),
    "lose": (3, [0], [0]),
    "settle": (2, [0], [0]),
    "stop": (3, range(3), [0]),
    "die": (3, [0], [0, 3, 100, 1500, 360_000]),
    "close": (1, [0], [0, 3, 100, 1500, 360_000]),
    "let go": (1, [0], [0, 100, 3000]),
    "second": (1, [0], [0]),
    "die at": (5, range(12), [0]),
    "go at": (3, range(12), range(3)),
}
# What makes some batches uncertain, so that they cannot be counted again: not in all histories.
TROUBLES: dict[str, tuple[int, range | list[int], range | list[int]]] = {
    "full at": (3, range(12), [0]),
    "stall": (2, [0], [10, 100, 800, 3000]),
    "back": (1, [0], [2, 100, 3000]),
    "held up at": (3, range(12), [2, 10, 30, 300]),
}


def history(seed: int) -> tuple[Settings, list[Step]]:
    """A random one; the same again for the same seed."""
    chosen = random.Random(seed)
    settings = {
        "slots": chosen.choice([512, 64]),
        "kept_rows": chosen.choice([1000, 4]),
        "kept_changes": chosen.choice([1000, 1000, 10]),
        "skips": chosen.random() < 0.5,
        "retained": chosen.choice([100, 100, 3]),
    }
    kinds = KINDS | (TROUBLES if chosen.random() < 0.4 else {})
    weights = [weight for weight, _, _ in kinds.values()]
    steps = [
        (kind, chosen.choice(kinds[kind][1]), chosen.choice(kinds[kind][2]))
        for kind in chosen.choices(list(kinds), weights, k=chosen.randint(5, 60))
    ]
    return settings, steps


def play(place: Path, settings: Settings, steps: list[Step]) -> World:
    """A history from its begin to its end."""
    with world(place, **settings) as now:
        for step in steps:
            take(now, step)
        now.finish()
    return now


def take(now: World, step: Step) -> None:
    """One step of a history."""
    kind, which, much = step
    query = list(now.queries.values())[which % len(QUERIES)]
    stream = list(now.written)[which % 3]
    name = ("a", "a->x", "b")[which % 3]

    def go(steps: int) -> None:
        if not query.isActive:
            now.start(query)
        for _ in range(steps):
            now.go(query)

    def apply() -> None:
        now.live.apply({name: much / 256})

    def obey() -> None:
        apply()
        now.arrive(stream, 20)
        now.elapse(0.15)

    def batch() -> None:
        for read in query.streams:
            now.arrive(read, much)
        go(1)
        while query.running is not None:
            now.go(query)
        now.deliver()

    def go_meanwhile() -> None:
        other = list(now.queries.values())[much]
        if other.isActive and other.running is None:
            now.go(other)
            now.go(other)

    def deliver() -> None:
        for _ in range(much):
            now.deliver()

    without_driver: dict[str, Callable[[], object]] = {
        "arrive": lambda: now.arrive(stream, much),
        "die": lambda: now.bury(much / 100),
        "lose": now.lose,
        "stop": lambda: now.stop(query),
        "die at": lambda: now.interrupt(which, now.die),
        "full at": lambda: now.interrupt(which, now.fill),
        "held up at": lambda: now.interrupt(which, lambda: now.hold_up(much / 100)),
        "go at": lambda: now.interrupt(which, go_meanwhile),
    }
    if kind in without_driver:
        without_driver[kind]()
        return
    if now.gate is None and not now.drive(now.open):
        return
    with_driver: dict[str, Callable[[], object]] = {
        "batch": batch,
        "go": lambda: go(much),
        "apply": apply,
        "obey": obey,
        "elapse": lambda: now.elapse(much / 100),
        "stall": lambda: now.hold_up(much / 100),
        "back": lambda: now.set_back(much / 100),
        "deliver": deliver,
        "again": lambda: now.deliver(again=True),
        "settle": lambda: now.live.settle(),
        "second": now.refused,
        "close": lambda: close(now, much / 100),
        "let go": lambda: let_go(now, much / 100),
    }
    now.drive(with_driver[kind])
    now.check()


def close(now: World, seconds: float) -> None:
    """The driver ends in good order."""
    for query in now.queries.values():
        now.stop(query)
    with suppress(DiskFullError):
        now.live.close()
    now.bury(seconds)


def let_go(now: World, seconds: float) -> None:
    """The gate is closed while queries run; they go on for a while, then everything ends."""
    now.doubtful = True
    with suppress(DiskFullError):
        now.live.close()
    now.now += seconds
    for query in now.queries.values():
        for _ in range(3):
            now.go(query)
    now.bury(seconds)


def shortest(fails: Callable[[list[Step]], bool], steps: list[Step]) -> list[Step]:
    """A history that fails, without the steps that do not matter."""
    size = len(steps) // 2
    while size:
        for first in range(0, len(steps), size):
            fewer = steps[:first] + steps[first + size :]
            if fails(fewer):
                return shortest(fails, fewer)
        size //= 2
    return steps


def check_history(place: Path, seed: int) -> World:
    settings, steps = history(seed)
    try:
        return play(place, settings, steps)
    except Exception as error:

        def fails(fewer: list[Step]) -> bool:
            try:
                play(place, settings, fewer)
            except Exception:
                return True
            return False

        pytest.fail(f"history {seed}: {settings}, {shortest(fails, steps)}: {error!r}")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with memory() as found:
        yield found


@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_ledger_is_the_truth_whatever_happens(place: Path, block: int) -> None:
    for seed in range(block * HISTORIES // BLOCKS, (block + 1) * HISTORIES // BLOCKS):
        check_history(place, seed)
