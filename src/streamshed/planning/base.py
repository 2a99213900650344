"""What every planner gives: a drop plan, with what it saves and what it costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from streamshed.load import Admission
from streamshed.network import Network, Statistics, check_rates
from streamshed.planning.flow import EPSILON, FlowGraph
from streamshed.qos import Cell


@dataclass(frozen=True)
class ValueRange:
    """A range of values of which a fraction is dropped, from its low end on (of a single value, by hash)."""

    cell: Cell
    dropped: float


@dataclass(frozen=True)
class Drop:
    """A drop on an arc.

    Attributes:
        arc: the arc it sits on.
        fraction: the share of the arc's undropped tuples that does not get past it, drops upstream included. That is
            the threshold of a ranked drop: nested drops compose as the maximum.
        relative: the share of the tuples reaching it that it drops.
        ranges: for a semantic drop, what it drops by value; empty for a random one.
        column: the column on this arc that a semantic drop looks at; None for a random one.
    """

    arc: str
    fraction: float
    relative: float
    ranges: tuple[ValueRange, ...] = ()
    column: str | None = None

    @property
    def is_semantic(self) -> bool:
        """Whether the drop looks at values."""
        return bool(self.ranges)

    def _kept_runs(self) -> list[tuple[int, int, float]]:
        """Ranges that pass, neighbours joined: index of the first and of the last, and the lowest value kept."""
        runs: list[tuple[int, int, float]] = []
        for i, item in enumerate(self.ranges):
            if item.dropped >= 1 - EPSILON:
                continue
            low = item.cell.low + (item.cell.high - item.cell.low) * item.dropped
            joins = runs and runs[-1][1] == i - 1 and (item.dropped <= EPSILON or item.cell.is_point)
            if joins:
                runs[-1] = (runs[-1][0], i, runs[-1][2])
            else:
                runs.append((i, i, low))
        return runs

    def keeps(self) -> tuple[tuple[float, float], ...]:
        """The ranges of values that a semantic drop lets pass; neighbours with no tuples between are one."""
        return tuple((low, self.ranges[last].cell.high) for _, last, low in self._kept_runs())

    def predicate(self, column: str) -> str:
        """A semantic drop as the SQL predicate of what it keeps.

        >>> Drop("s", 0.2, 0.2, (ValueRange(Cell(0, 50), 0.5), ValueRange(Cell(50, 100), 0.0))).predicate("value")
        'value >= 25'
        """
        parts = []
        for first, last, low in self._kept_runs():
            start, end = self.ranges[first], self.ranges[last].cell
            bounds = []
            if first > 0 or start.dropped > EPSILON:
                before = self.ranges[first - 1].cell if first > 0 else start.cell
                excluded = before.is_point and before.high == low and not start.cell.is_point
                bounds.append(f"{column} {'>' if excluded else '>='} {low:g}")
            if last + 1 < len(self.ranges):
                after = self.ranges[last + 1].cell
                excluded = after.is_point and after.low == end.high and not end.is_point
                bounds.append(f"{column} {'<' if excluded else '<='} {end.high:g}")
            parts.append(f"{column} = {low:g}" if low == end.high else " AND ".join(bounds) or "TRUE")
        return " OR ".join(f"({part})" if len(parts) > 1 and " AND " in part else part for part in parts) or "FALSE"


def residual_drop(upstream: float, wanted: float) -> float:
    """What a drop has to drop of the tuples that reach it, so that `wanted` is dropped in total.

    With k = `upstream` already dropped, the drop is redundant if l = `wanted` ≤ k, else 1 − (1−l)/(1−k).

    >>> residual_drop(0.5, 0.3), residual_drop(0.5, 0.75)
    (0.0, 0.5)
    """
    if wanted <= upstream:
        return 0.0
    return 1.0 - (1.0 - wanted) / (1.0 - upstream)


@dataclass(frozen=True)
class OutputEffect:
    """What a plan does to one output.

    Attributes:
        output: its id.
        weight: how much it counts in the total.
        delivered: the share of its tuples that it still gets (the percent-delivery cursor).
        tuple_utility: the loss-tolerance utility of that share.
        value_utility: the share of its value that it still gets; equals `delivered` without a value graph.
    """

    output: str
    weight: float
    delivered: float
    tuple_utility: float
    value_utility: float


@dataclass(frozen=True)
class DropPlan:
    """Where to drop how much, and what that does.

    Attributes:
        planner: the name of the planner that made it.
        drops: the drops, upstream first.
        outputs: the effect on each output.
        load_before: seconds of processing per second without drops.
        load_after: the same with them.
        capacity: what it had to fit into.
    """

    planner: str
    drops: tuple[Drop, ...]
    outputs: tuple[OutputEffect, ...]
    load_before: float
    load_after: float
    capacity: float

    @property
    def fits(self) -> bool:
        """Whether the load is within the capacity."""
        return self.load_after <= self.capacity * (1 + 1e-6) + 1e-12

    @property
    def tuple_utility_loss(self) -> float:
        """The weighted mean of what the outputs lose in tuple utility, from 0 to 1."""
        return _mean_loss((effect.weight, effect.tuple_utility) for effect in self.outputs)

    @property
    def value_utility_loss(self) -> float:
        """The weighted mean of what the outputs lose in value utility, from 0 to 1."""
        return _mean_loss((effect.weight, effect.value_utility) for effect in self.outputs)


def _mean_loss(pairs: Iterable[tuple[float, float]]) -> float:
    rows = list(pairs)
    return sum(weight * (1.0 - utility) for weight, utility in rows) / sum(weight for weight, _ in rows)


class Planner(ABC):
    """Decides where to drop how much. A planner may remember what it built, so keep one for a network.

    Attributes:
        name: how it is called in the registry, on the command line and in figures.
        title: the same for people.
        by_value: whether it tells values apart.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    by_value: ClassVar[bool] = False

    def plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        """The drops that bring the load of these rates into the admitted capacity."""
        statistics.check(network)
        check_rates(network, rates)
        return self._plan(network, statistics, rates, admission)

    @abstractmethod
    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan: ...

    def _described(self, graph: FlowGraph, fractions: Sequence[float], capacity: float) -> DropPlan:
        return describe(self.name, graph, fractions, capacity)


def describe(planner: str, graph: FlowGraph, fractions: Sequence[float], capacity: float) -> DropPlan:
    """Turn fractions in a flow graph into a plan that says what it drops and what that costs."""
    by_value = {location.arc: location.column for location in graph.locations if location.by_value}
    carried = [graph.carried(node, fractions) for node in range(len(graph))]
    dropping = {graph.head_arc[node] for node in range(len(graph)) if fractions[node] < carried[node] - EPSILON}
    nodes_on: dict[str, list[int]] = {}
    for node in range(len(graph)):
        if graph.head_arc[node] in dropping and graph.is_on_arc[node]:
            nodes_on.setdefault(graph.head_arc[node], []).append(node)
    cuts = _range_cuts(graph, fractions, carried, by_value) if by_value else ()
    drops = tuple(_drop(graph, fractions, carried, arc, nodes, by_value, cuts) for arc, nodes in nodes_on.items())
    outputs = tuple(
        OutputEffect(
            leaf.output,
            leaf.weight,
            delivered := min(1.0, leaf.tuples_delivered(fractions)),
            leaf.loss(delivered),
            min(1.0, leaf.value_delivered(fractions)),
        )
        for leaf in graph.leaves
    )
    return DropPlan(planner, drops, outputs, graph.full_load, graph.load(fractions), capacity)


def _drop(
    graph: FlowGraph,
    fractions: Sequence[float],
    carried: Sequence[float],
    arc: str,
    nodes: Sequence[int],
    by_value: Mapping[str, str | None],
    cuts: Sequence[float],
) -> Drop:
    rates = [graph.head_rate[node] for node in nodes]
    if sum(rates) <= 0:
        rates = [1.0] * len(nodes)
    passed = sum(rate * fractions[node] for rate, node in zip(rates, nodes, strict=True)) / sum(rates)
    reaching = sum(rate * carried[node] for rate, node in zip(rates, nodes, strict=True)) / sum(rates)
    ranges: tuple[ValueRange, ...] = ()
    if arc in by_value and len({round(fractions[node], 9) for node in nodes}) > 1:
        ranges = tuple(ValueRange(graph.cell[node], cuts[node]) for node in nodes)
    return Drop(
        arc, 1.0 - passed, residual_drop(1.0 - reaching, 1.0 - passed), ranges, by_value[arc] if ranges else None
    )


def _range_cuts(
    graph: FlowGraph, fractions: Sequence[float], carried: Sequence[float], by_value: Container[str]
) -> list[float]:
    """How much of each cell's range has been cut off from its low end, up to and at each node.

    A drop by value cuts the range, a random one thins it out: what flows is (1 − cut)·thin. Only the drops by value
    on the way move the cut.
    """
    cuts = [0.0] * len(graph)
    for node in range(len(graph)):
        above = min((cuts[parent] for parent in graph.parents[node]), default=0.0)
        cuts[node] = above
        if graph.head_arc[node] in by_value and fractions[node] < carried[node] - EPSILON:
            thin = carried[node] / (1.0 - above) if above < 1 else 1.0
            cuts[node] = min(1.0, max(above, 1.0 - fractions[node] / thin))
    return cuts
