"""The network as the planners see it: fractions that flow, what they cost, what they earn.

Every node of this graph carries a fraction between 0 and 1: the share of its undropped tuples that still flows. A
node stands for a *segment* of the network (the arcs along which nothing can change that share: a chain of one-input
operators) and, where values matter, for one cell of values on it. Fractions follow from those upstream:

- copy: the share of the one parent (after a filter, a map, a fan-out);
- mean: the parents' shares, weighted by their rates (a union);
- least: the smallest of the parents' shares (a join: drops on both sides hash the join key with one salt, so what
  one side keeps is part of what the other keeps).

A drop puts a *limit* on a node: fraction = min(limit, what comes from upstream). So drops are absolute: a drop of k
above a drop of l leaves l dropped in total if l > k, and makes it redundant otherwise, as the paper wants.

Load is Σ weight·fraction. The utility of an output is a concave graph of the share that reaches it. Candidate
locations for drops are the entries of streams and the arcs behind a fan-out; elsewhere a drop can move upstream to
one of these at no loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from streamshed.qos import Cell, LossGraph

EPSILON = 1e-9
"""Fractions closer than this count as equal."""


class Rule(Enum):
    """How a node's fraction follows from its parents'."""

    ENTRY = "entry"
    COPY = "copy"
    MEAN = "mean"
    LEAST = "least"


@dataclass(frozen=True)
class Location:
    """A place for a drop: an arc, the nodes on it (one a cell), and whether (and by which column) values may be told
    apart there.
    """

    arc: str
    nodes: tuple[int, ...]
    by_value: bool
    column: str | None = None


@dataclass(frozen=True)
class Leaf:
    """An output: what its utility depends on.

    Attributes:
        output: its id.
        weight: how much it counts.
        loss: its loss tolerance (given, derived or linear).
        by_value: whether the planner should maximise its value utility instead.
        nodes: the nodes that reach it, one a cell.
        frequencies: the share of its tuples in each.
        values: the share of its value in each.
    """

    output: str
    weight: float
    loss: LossGraph
    by_value: bool
    nodes: tuple[int, ...]
    frequencies: tuple[float, ...]
    values: tuple[float, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """What counts for the planner: value where it is told apart, else tuples."""
        return self.values if self.by_value else self.frequencies

    @property
    def graph(self) -> LossGraph:
        """Utility against the sum of the shares delivered."""
        return _LINEAR if self.by_value else self.loss

    def tuples_delivered(self, fractions: Sequence[float]) -> float:
        """The share of its tuples that reaches the output."""
        return sum(share * fractions[node] for node, share in zip(self.nodes, self.frequencies, strict=True))

    def value_delivered(self, fractions: Sequence[float]) -> float:
        """The share of its value that reaches the output."""
        return sum(share * fractions[node] for node, share in zip(self.nodes, self.values, strict=True))

    def utility(self, fractions: Sequence[float]) -> float:
        """What the planner maximises, before the weight."""
        if self.by_value:
            return self.value_delivered(fractions)
        return self.loss(self.tuples_delivered(fractions))


_LINEAR = LossGraph.linear()


@dataclass
class FlowGraph:
    """Nodes in an order in which parents come first; parallel lists, because planners walk them often."""

    rates: Mapping[str, float]
    drop_cost: float
    rule: list[Rule] = field(default_factory=list)
    parents: list[tuple[int, ...]] = field(default_factory=list)
    shares: list[tuple[float, ...]] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    weight_by_stream: list[dict[str, float]] = field(default_factory=list)
    head_rate: list[float] = field(default_factory=list)
    head_by_stream: list[dict[str, float]] = field(default_factory=list)
    head_arc: list[str] = field(default_factory=list)
    is_on_arc: list[bool] = field(default_factory=list)
    cell: list[Cell] = field(default_factory=list)
    locations: list[Location] = field(default_factory=list)
    joints: list[tuple[int, ...]] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rule)

    @cached_property
    def children(self) -> list[list[int]]:
        """The nodes fed by each node."""
        below: list[list[int]] = [[] for _ in self.rule]
        for node, parents in enumerate(self.parents):
            for parent in parents:
                below[parent].append(node)
        return below

    @property
    def full_load(self) -> float:
        """Seconds of processing per second when nothing is dropped."""
        return sum(self.weight)

    def at_rates(self, rates: Mapping[str, float]) -> FlowGraph:
        """The same graph under other rates. Exact if only the scale differs: where streams meet, shares stay."""

        def at(by_stream: Mapping[str, float]) -> float:
            return sum(share * rates[stream] for stream, share in by_stream.items())

        return replace(
            self,
            rates=dict(rates),
            weight=[at(parts) for parts in self.weight_by_stream],
            head_rate=[at(parts) for parts in self.head_by_stream],
        )

    def carried(self, node: int, fractions: Sequence[float]) -> float:
        """The fraction that comes to a node from upstream."""
        parents = self.parents[node]
        match self.rule[node]:
            case Rule.ENTRY:
                return 1.0
            case Rule.COPY:
                return fractions[parents[0]]
            case Rule.MEAN:
                return sum(share * fractions[p] for share, p in zip(self.shares[node], parents, strict=True))
            case Rule.LEAST:
                return min(fractions[p] for p in parents)

    def fractions(self, limits: Mapping[int, float]) -> list[float]:
        """All fractions, given limits on some nodes."""
        result = [0.0] * len(self)
        for node in range(len(self)):
            result[node] = min(limits.get(node, 1.0), self.carried(node, result))
        return result

    def drops(self, fractions: Sequence[float]) -> dict[int, float]:
        """Where less leaves than comes in: the nodes with a drop, and the fraction behind it."""
        return {
            node: fractions[node]
            for node in range(len(self))
            if fractions[node] < self.carried(node, fractions) - EPSILON
        }

    def load(self, fractions: Sequence[float]) -> float:
        """Seconds of processing per second, the cost of the drops themselves included."""
        load = sum(weight * fraction for weight, fraction in zip(self.weight, fractions, strict=True))
        if self.drop_cost > 0:
            arcs_with_drop = {self.head_arc[node] for node in self.drops(fractions)}
            load += self.drop_cost * sum(
                self.head_rate[node] * self.carried(node, fractions)
                for node in range(len(self))
                if self.is_on_arc[node] and self.head_arc[node] in arcs_with_drop
            )
        return load

    def utility(self, fractions: Sequence[float]) -> float:
        """The weighted sum of the outputs' utilities."""
        return sum(leaf.weight * leaf.utility(fractions) for leaf in self.leaves)
