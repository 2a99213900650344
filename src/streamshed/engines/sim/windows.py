"""Windows with contents: joins that look their partners up, and aggregates that give an answer when a window closes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from streamshed.engines.sim.places import Counts, Places, Window
from streamshed.engines.sim.tuples import Ids, Times, Tuples
from streamshed.errors import InvalidValueError
from streamshed.network import Aggregate, Arc, Join, Network
from streamshed.workload.hashing import hash64, unit

_KEY_SALT = 1 << 50


@dataclass(frozen=True)
class JoinWindow:
    """How a join is simulated by its contents.

    Each side keeps its last tuples, and a tuple that comes to one side is paired with those of the other that have its
    key. Keys are spread evenly.

    Attributes:
        keys: how many different ones there are.
        tuples: how many tuples a side keeps; None to keep them by time.
        seconds: how long it keeps them, by their arrival.
    """

    keys: int
    tuples: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.keys < 1 or (self.tuples is None) == (self.seconds is None):
            raise InvalidValueError(
                "a join window is kept by tuples or by time",
                where="join window",
                got=f"keys {self.keys}, tuples {self.tuples}, seconds {self.seconds}",
                expected="keys >= 1, and one of tuples and seconds",
            )


@dataclass(frozen=True)
class Windows:
    """What is simulated by contents: these joins, and all aggregates; the rest goes by statistics."""

    joins: Mapping[str, JoinWindow] = field(default_factory=dict)


@dataclass(frozen=True)
class WindowSums:
    """What an aggregate has seen, by window.

    Attributes:
        window_s: the length of a window; windows lie by arrival time.
        number: the windows, ascending; the first begins at 0.
        count: tuples in each.
        sums: by column, the sum of its values in each.
    """

    window_s: float
    number: Counts
    count: Times
    sums: Mapping[str, Times]


class _Side:
    """What one side of a join keeps."""

    def __init__(self, window: JoinWindow) -> None:
        self.counts: Counts = np.zeros(window.keys, dtype=np.int64)
        self._window = window
        self._kept: deque[tuple[Times, Counts]] = deque()
        self._size = 0

    def push(self, arrived_s: Times, keys: Counts) -> None:
        self._kept.append((arrived_s, keys))
        self._size += len(keys)
        np.add.at(self.counts, keys, 1)
        window = self._window
        until_s = float(arrived_s[-1]) - window.seconds if window.seconds is not None else -np.inf
        while self._kept:
            times_s, oldest = self._kept[0]
            excess = self._size - window.tuples if window.tuples is not None else 0
            gone = min(len(oldest), max(excess, int(np.searchsorted(times_s, until_s))))
            if gone <= 0:
                return
            np.subtract.at(self.counts, oldest[:gone], 1)
            self._size -= gone
            if gone < len(oldest):
                self._kept[0] = times_s[gone:], oldest[gone:]
                return
            self._kept.popleft()


class JoinContents(Window):
    """A join at work; symmetric: a tuple goes into its own side's window and is looked up in the other."""

    def __init__(self, window: JoinWindow, seed: int, salt: int) -> None:
        self._keys = window.keys
        self._sides = (_Side(window), _Side(window))
        self._seed, self._salt = seed, _KEY_SALT + salt

    def pass_on(self, tuples: Tuples, ids: Ids, at: Ids, side: int) -> Counts:
        keys = (unit(hash64(self._seed, self._salt, ids)) * self._keys).astype(np.int64)
        found: Counts = self._sides[1 - side].counts[keys]
        self._sides[side].push(tuples.arrived_s[at], keys)
        return found


class AggregateContents(Window):
    """An aggregate at work: sums up by window, and hands a tuple on when one closes.

    The answer of a window leaves with the first tuple of a later one, so its delay is that of this tuple.
    """

    def __init__(self, window_s: float, slots: Mapping[str, int]) -> None:
        self.window_s = window_s
        self._slots = slots
        self._open: int | None = None
        self._sums: dict[int, Times] = {}

    def pass_on(self, tuples: Tuples, ids: Ids, at: Ids, side: int) -> Counts:  # noqa: ARG002 - one side only
        number = (tuples.arrived_s[at] / self.window_s).astype(np.int64)
        columns = [np.ones(len(ids)), *(np.nan_to_num(tuples.values[slot][at]) for slot in self._slots.values())]
        first = int(number.min())
        if int(number.max()) == first:
            self._add(first, [float(column.sum()) for column in columns])
        else:
            sums = [np.bincount(number - first, weights=column) for column in columns]
            for i in np.unique(number - first).tolist():
                self._add(first + i, [float(column[i]) for column in sums])
        opened = np.maximum.accumulate(number)
        before = np.concatenate([[number[0] if self._open is None else self._open], opened[:-1]])
        self._open = int(max(opened[-1], before[0]))
        closing: Counts = (number > np.maximum(before, before[0])).astype(np.int64)
        return closing

    def _add(self, number: int, sums: list[float]) -> None:
        if number in self._sums:
            self._sums[number] += sums
        else:
            self._sums[number] = np.array(sums)

    @property
    def result(self) -> WindowSums:
        """What it has seen so far."""
        numbers = sorted(self._sums)
        table = np.array([self._sums[number] for number in numbers]).reshape(len(numbers), 1 + len(self._slots))
        sums = {column: table[:, 1 + i] for i, column in enumerate(self._slots)}
        return WindowSums(self.window_s, np.array(numbers, dtype=np.int64), table[:, 0], sums)


def watched_columns(network: Network) -> list[tuple[Arc, str]]:
    """The columns that aggregates look at, and on which arcs."""
    return [
        (network.arcs_into[node.id][0], aggregation.column)
        for node in network.operators
        if isinstance(node, Aggregate)
        for aggregation in node.aggregates.values()
        if aggregation.column is not None
    ]


def attach_windows(places: Places, windows: Windows, seed: int) -> dict[str, AggregateContents]:
    """Give operators their windows; returns those of the aggregates."""
    network = places.network
    unknown = [name for name in windows.joins if not isinstance(network.nodes.get(name), Join)]
    if unknown:
        raise InvalidValueError("a window for what is no join", where="windows", got=unknown[0], expected="a join's id")
    aggregates: dict[str, AggregateContents] = {}
    for node in network.operators:
        place = places.places[node.id]
        if isinstance(node, Join) and node.id in windows.joins:
            place.window = JoinContents(windows.joins[node.id], seed, place.salt)
        elif isinstance(node, Aggregate):
            arc = network.arcs_into[node.id][0]
            columns = {aggregation.column for aggregation in node.aggregates.values() if aggregation.column is not None}
            slots = {column: slot for column in sorted(columns) if (slot := places.slots.slot(arc, column)) is not None}
            place.window = aggregates[node.id] = AggregateContents(node.window_s, slots)
    places.may_repeat = True
    return aggregates
