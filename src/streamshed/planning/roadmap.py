"""The Load Shedding Road Map (Aurora, section 4.3): load shedding plans made ahead, each saving more than the last.

Row k holds the *drop insertion plan* (a limit for each location), the *cycle savings coefficients* (what it saves per
tuple of each stream, so that the row can be judged under any rates) and the *percent-delivery cursors* (what each
output then gets). At run time shedding is a look-up: the first row that saves enough, found from the row in use, down
the table when load grows and up when it falls. The last step of the row found is taken only as far as it is needed.

Rows are kept as differences with a full copy every so often, so that memory grows with the number of rows and not
with rows × locations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidValueError
from streamshed.load import Admission
from streamshed.network import Network, Statistics
from streamshed.planning.base import DropPlan, OutputEffect, Planner, describe
from streamshed.planning.flow import FlowGraph
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.greedy import Walk

STEP_SIZE_WITH_DROP_COST = 0.05
"""The default step where drops cost something; without that, a row ends only where a ratio of loss to gain changes."""

_SLACK = 1e-9


@dataclass(frozen=True)
class Row:
    """One row in full, for people and tests."""

    savings: Mapping[str, float]
    limits: Mapping[str, float]
    outputs: tuple[OutputEffect, ...]


@dataclass(frozen=True)
class Position:
    """A place in the table: this many rows in full, and this part of the next one's step."""

    row: int
    part: float


def least_step_size(graph: FlowGraph) -> float:
    """D / min L: what STEP_SIZE must exceed so that every drop saves more than it costs.

    L is the load that a tuple passing a candidate location causes below it.
    """
    if graph.drop_cost <= 0:
        return 0.0
    below = list(graph.weight)
    for node in range(len(graph) - 1, -1, -1):
        for parent, share in zip(graph.parents[node], graph.shares[node], strict=True):
            below[parent] += below[node] * share
    coefficients = [
        below[node] / graph.head_rate[node]
        for location in graph.locations
        for node in location.nodes
        if graph.head_rate[node] > 0 and below[node] > 0
    ]
    return graph.drop_cost / min(coefficients) if coefficients else 0.0


class RoadMap:
    """The table. Building it costs the work; a look-up costs microseconds.

    Args:
        graph: the network as a flow graph at the rates it is built for.
        step_size: the largest step of a row, as a fraction of tuples delivered (STEP_SIZE). It must exceed D / min L.
            By default a row ends where a ratio of loss to gain changes (smaller steps would give the same plans in
            more rows), or after 0.05 where drops cost something. A drop's first step is always large enough to save
            more than it costs.
    """

    def __init__(self, graph: FlowGraph, step_size: float | None = None) -> None:
        least = least_step_size(graph)
        if step_size is None:
            step_size = STEP_SIZE_WITH_DROP_COST if graph.drop_cost > 0 else 1.0
        elif not least < step_size <= 1:
            raise InvalidValueError(
                "STEP_SIZE does not fit",
                where="road map",
                got=step_size,
                expected=f"more than D / min L = {least:.3g}, and at most 1",
                hint="a smaller step would cost more in the drop operator than it saves",
            )
        self.graph = graph
        self.step_size = step_size
        self.streams = tuple(graph.rates)
        self._column = {stream: i for i, stream in enumerate(self.streams)}
        self._nodes = sorted({node for location in graph.locations for node in location.nodes})
        self._slot = {node: i for i, node in enumerate(self._nodes)}
        self._coefficients = self._load_coefficients()
        self._build()
        self._cursor = 0

    def __len__(self) -> int:
        """The number of rows, that without drops included."""
        return len(self._linear) + 1

    def _load_coefficients(self) -> NDArray[np.float64]:
        total = np.zeros(len(self.streams))
        for parts in self.graph.weight_by_stream:
            for stream, seconds in parts.items():
                total[self._column[stream]] += seconds
        return total

    def _build(self) -> None:
        slots: list[int] = []
        limits: list[float] = []
        tops: list[float] = []
        slot_starts = [0]
        columns: list[int] = []
        savings: list[float] = []
        saving_starts = [0]
        linear: list[bool] = []
        for move in Walk(self.graph, self.step_size).moves():
            for node in move.nodes:
                slots.append(self._slot[node])
                limits.append(move.limit)
                tops.append(move.top)
            slot_starts.append(len(slots))
            for stream, seconds in move.savings.items():
                columns.append(self._column[stream])
                savings.append(seconds)
            saving_starts.append(len(columns))
            linear.append(move.linear)
        self._slots = np.array(slots, dtype=np.intp)
        self._limits = np.array(limits)
        self._tops = np.array(tops)
        self._slot_starts = np.array(slot_starts, dtype=np.intp)
        self._columns = np.array(columns, dtype=np.intp)
        self._savings = np.array(savings)
        self._saving_starts = np.array(saving_starts, dtype=np.intp)
        self._linear = linear
        self._copy_blocks()

    def _copy_blocks(self) -> None:
        """Full copies of limits and savings every `block` rows, so many that they take no more room than the rows."""
        rows = len(self._linear)
        self._block = max(64, 2 * math.isqrt(len(self._nodes) + len(self.streams)))
        blocks = rows // self._block + 1
        self._block_limits = np.ones((blocks, len(self._nodes)))
        self._block_savings = np.zeros((blocks, len(self.streams)))
        limits, savings = np.ones(len(self._nodes)), np.zeros(len(self.streams))
        for block in range(1, blocks):
            first, last = (block - 1) * self._block, block * self._block
            low, high = self._slot_starts[first], self._slot_starts[last]
            np.minimum.at(limits, self._slots[low:high], self._limits[low:high])
            low, high = self._saving_starts[first], self._saving_starts[last]
            np.add.at(savings, self._columns[low:high], self._savings[low:high])
            self._block_limits[block], self._block_savings[block] = limits, savings

    def load(self, rates: NDArray[np.float64]) -> float:
        """Seconds of processing per second at these rates (in the order of `streams`), nothing dropped."""
        return float(self._coefficients @ rates)

    def lookup(self, rates: NDArray[np.float64], capacity: float) -> Position:
        """The first place in the table that saves enough at these rates (in the order of `streams`).

        The search starts from where the last one ended. Where even the last row does not save enough, it is the one.
        """
        needed = self.load(rates) - capacity
        if needed <= _SLACK * max(capacity, needed):
            self._cursor = 0
            return Position(0, 0.0)
        block = self._find_block(rates, needed)
        before = float(self._block_savings[block] @ rates)
        first, last = block * self._block, min((block + 1) * self._block, len(self._linear))
        low, high = self._saving_starts[first], self._saving_starts[last]
        steps = self._savings[low:high] * rates[self._columns[low:high]]
        running = np.concatenate(([0.0], np.cumsum(steps)))
        after = before + running[self._saving_starts[first + 1 : last + 1] - low]
        row = int(np.searchsorted(after, needed * (1 - _SLACK)))
        if row == len(after):
            self._cursor = len(self._linear)
            return Position(len(self._linear), 0.0)
        self._cursor = first + row
        if not self._linear[first + row]:
            return Position(first + row + 1, 0.0)
        start = float(after[row - 1]) if row else before
        part = (needed - start) / (float(after[row]) - start)
        return Position(first + row, min(1.0, max(0.0, part)))

    def _find_block(self, rates: NDArray[np.float64], needed: float) -> int:
        """The last block whose start saves less than needed: gallop from the cursor, then bisect."""
        last = len(self._block_savings) - 1
        at = min(self._cursor // self._block, last)
        stride = 1
        if self._block_savings[at] @ rates < needed:
            low, high = at, at + 1
            while high <= last and self._block_savings[high] @ rates < needed:
                low, stride = high, stride * 2
                high += stride
            high = min(high, last + 1)
        else:
            low, high = at - 1, at
            while low > 0 and self._block_savings[low] @ rates >= needed:
                high, stride = low, stride * 2
                low -= stride
            low = max(low, 0)
        while high - low > 1:
            middle = (low + high) // 2
            if self._block_savings[middle] @ rates < needed:
                low = middle
            else:
                high = middle
        return low

    def limits(self, position: Position) -> NDArray[np.float64]:
        """The drop insertion plan as numbers: the fraction that may pass each node of each location."""
        block = position.row // self._block
        result: NDArray[np.float64] = self._block_limits[block].copy()
        low, high = self._slot_starts[block * self._block], self._slot_starts[position.row]
        np.minimum.at(result, self._slots[low:high], self._limits[low:high])
        if position.part > 0:
            low, high = self._slot_starts[position.row], self._slot_starts[position.row + 1]
            part_way = self._tops[low:high] + position.part * (self._limits[low:high] - self._tops[low:high])
            np.minimum.at(result, self._slots[low:high], part_way)
        return result

    def fractions(self, position: Position) -> list[float]:
        """What flows through every node of the graph at this place in the table."""
        limits = self.limits(position)
        return self.graph.fractions({node: float(limits[slot]) for node, slot in self._slot.items()})

    def row(self, index: int) -> Row:
        """One row in full: (cycle savings coefficients, drop insertion plan, percent-delivery cursors)."""
        block = index // self._block
        savings = self._block_savings[block].copy()
        low, high = self._saving_starts[block * self._block], self._saving_starts[index]
        np.add.at(savings, self._columns[low:high], self._savings[low:high])
        plan = describe("roadmap", self.graph, self.fractions(Position(index, 0.0)), 0.0)
        return Row(
            {stream: float(savings[i]) for stream, i in self._column.items()},
            {drop.arc: 1.0 - drop.fraction for drop in plan.drops},
            plan.outputs,
        )


class RoadMapPlanner(Planner):
    """Aurora's random load shedder: looks plans up in a road map, and builds it anew when statistics drift.

    Args:
        step_size: see `RoadMap`.
        drift: by how much, relatively, a cost, a selectivity or the share of a stream in the arrivals may change
            before the map is built again.
    """

    name: ClassVar[str] = "roadmap"
    title: ClassVar[str] = "Road map, random (Random-LS)"

    def __init__(self, step_size: float | None = None, drift: float = 0.05) -> None:
        self.step_size = step_size
        self.drift = drift
        self.rebuilds = 0
        self._built_for: tuple[Network, Statistics, Mapping[str, float]] | None = None
        self._map: RoadMap | None = None

    def road_map(self, network: Network, statistics: Statistics, rates: Mapping[str, float]) -> RoadMap:
        """The road map for these statistics: the one at hand, or a new one."""
        if self._map is None or self._has_drifted(network, statistics, rates):
            self._map = RoadMap(flow_graph(network, statistics, rates, by_value=self.by_value), self.step_size)
            self._built_for = (network, statistics, dict(rates))
            self.rebuilds += 1
        return self._map

    def _has_drifted(self, network: Network, statistics: Statistics, rates: Mapping[str, float]) -> bool:
        assert self._built_for is not None
        old_network, old_statistics, old_rates = self._built_for
        if network is not old_network and network != old_network:
            return True
        if statistics.histograms != old_statistics.histograms or statistics.drop_cost != old_statistics.drop_cost:
            return True
        shares, old_shares = _shares(rates), _shares(old_rates)
        return any(
            _moved(old, new, self.drift)
            for old, new in (
                (old_statistics.costs, statistics.costs),
                (old_statistics.selectivities, statistics.selectivities),
                (old_shares, shares),
            )
        )

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        graph, fractions = self._best(network, statistics, rates, admission.capacity)
        return self._described(graph, fractions, admission.capacity)

    def _best(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], capacity: float
    ) -> tuple[FlowGraph, list[float]]:
        """The graph at these rates, and what flows in it under the plan of the first row that saves enough."""
        table = self.road_map(network, statistics, rates)
        vector = np.array([rates[stream] for stream in table.streams], dtype=np.float64)
        graph = table.graph.at_rates(rates)
        room = capacity
        for _ in range(4):
            fractions = table.fractions(table.lookup(vector, room))
            excess = graph.load(fractions) - capacity
            if excess <= _SLACK * max(1.0, capacity):
                break
            # Where streams in new proportions meet, the savings of a row are only nearly right: ask for more.
            room = max(0.0, room - 1.5 * excess)
        return graph, fractions


class SemanticRoadMapPlanner(RoadMapPlanner):
    """Aurora's semantic load shedder: the road map over cells of values.

    Drops first what no output would see (values that filters downstream reject: saves cycles at no loss), then the
    least valuable cells. At locations that feed an output without a value graph it drops at random, because a drop by
    value would bias that output.

    Where streams meet in joins and unions, the walk over cells can end up below the walk over whole arcs. So both are
    taken, judged on the cells, and the better one is the plan.
    """

    name: ClassVar[str] = "semantic"
    title: ClassVar[str] = "Road map, semantic (Semantic-LS)"
    by_value: ClassVar[bool] = True

    def __init__(self, step_size: float | None = None, drift: float = 0.05) -> None:
        super().__init__(step_size, drift)
        self._random = RoadMapPlanner(step_size, drift)

    def _best(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], capacity: float
    ) -> tuple[FlowGraph, list[float]]:
        graph, by_value = super()._best(network, statistics, rates, capacity)
        arcs, at_random = self._random._best(network, statistics, rates, capacity)
        limits = {arcs.head_arc[node]: fraction for node, fraction in arcs.drops(at_random).items()}
        spread = graph.fractions(
            {node: limits[arc] for node, arc in enumerate(graph.head_arc) if arc in limits and graph.is_on_arc[node]}
        )
        fits = graph.load(spread) <= capacity + _SLACK * max(1.0, capacity)
        return graph, spread if fits and graph.utility(spread) > graph.utility(by_value) + _SLACK else by_value


def _shares(rates: Mapping[str, float]) -> dict[str, float]:
    total = sum(rates.values())
    return {stream: rate / total if total > 0 else 0.0 for stream, rate in rates.items()}


def _moved(old: Mapping[str, float], new: Mapping[str, float], tolerance: float) -> bool:
    return any(
        abs(old.get(key, 0.0) - new.get(key, 0.0)) > tolerance * max(abs(old.get(key, 0.0)), 1e-12)
        for key in {*old, *new}
    )
