"""The greedy walk that builds a road map: from no drops to nothing left, always where loss over gain is least.

A *move* lowers the limit of one candidate (a location, one cell of it, or the locations that feed both sides of a
join together) by a step. Its loss and gain are taken in the present state: what is already dropped below it costs
nothing more, and what is dropped above it gains nothing. The step ends where a ratio changes: at a knee of a
loss-tolerance graph, or where the limit meets one further down (which then is redundant). Inside a step everything is
linear.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from streamshed.planning.flow import EPSILON, FlowGraph, Rule

_LEAST_STEP = 1e-7
"""Steps shorter than this would be rounding noise."""

_PATIENCE = 20
"""Moves per candidate after which steps get coarser: both sides of a join may take turns in ever smaller steps."""

_COARSER = 4.0

_WIDE = 300
"""Candidates with more nodes below are looked at again only when it is their turn by their last known ratio."""

_WORTHWHILE = 1.05
"""By how much the first step of a new drop saves more than the drop costs."""


@dataclass(frozen=True)
class Move:
    """One step of the walk.

    Attributes:
        nodes: the nodes whose limit changes.
        limit: their new limit.
        top: the largest fraction among them before.
        savings: what it saves, by stream, in seconds per tuple of the stream (increments of the cycle savings
            coefficients); what drops themselves cost is taken off.
        linear: whether a part of the step saves the same part.
    """

    nodes: tuple[int, ...]
    limit: float
    top: float
    savings: dict[str, float]
    linear: bool


@dataclass(frozen=True)
class _Probe:
    """Rates of change if a candidate's limit goes down, and how far they hold."""

    ratio: float
    reach: float
    top: float
    slopes: dict[int, float]
    gain: float


def candidates(graph: FlowGraph) -> list[tuple[int, ...]]:
    """What can be lowered on its own: locations (each cell of those that tell values apart), and pairs at joins."""
    found: list[tuple[int, ...]] = []
    for location in graph.locations:
        found.extend((node,) for node in location.nodes) if location.by_value else found.append(location.nodes)
    for joint in graph.joints:
        found.append(tuple(node for place in joint for node in graph.locations[place].nodes))
    return found


class Walk:
    """The state of the walk: present fractions, and every candidate's ratio of loss to gain."""

    def __init__(self, graph: FlowGraph, step_size: float) -> None:
        self.graph = graph
        self.step_size = step_size
        self._least_step = _LEAST_STEP
        self.fractions = graph.fractions({})
        self.candidates = candidates(graph)
        self._location_of = {node: place for place, location in enumerate(graph.locations) for node in location.nodes}
        self._overhead: list[dict[str, float]] = [{} for _ in graph.locations]
        self._copied_from = [
            parents[0] if rule is Rule.COPY else -1 for rule, parents in zip(graph.rule, graph.parents, strict=True)
        ]
        self._xs = [leaf.graph.graph.xs for leaf in graph.leaves]
        self._slopes = [leaf.graph.graph.slopes for leaf in graph.leaves]
        self._weights = [leaf.weight for leaf in graph.leaves]
        self._delivered = [1.0] * len(graph.leaves)
        self._leaves_of: list[list[tuple[int, float]]] = [[] for _ in range(len(graph))]
        for i, leaf in enumerate(graph.leaves):
            for node, share in zip(leaf.nodes, leaf.shares, strict=True):
                self._leaves_of[node].append((i, share))
        self._cones = [self._cone(nodes) for nodes in self.candidates]
        self._watchers = self._watch()

    def _cone(self, nodes: tuple[int, ...]) -> list[int]:
        """The nodes strictly downstream, parents first."""
        children = self.graph.children
        seen: set[int] = set()
        pending = list(nodes)
        while pending:
            for child in children[pending.pop()]:
                if child not in seen:
                    seen.add(child)
                    pending.append(child)
        return sorted(seen - set(nodes))

    def _watch(self) -> list[list[int]]:
        """For each node, the candidates whose ratio depends on its fraction.

        Those are the candidates above it, the candidates that lead to another parent of a node below it, and (as
        utilities are not linear) those that lead to the same output through another node.
        """
        watchers: list[list[int]] = [[] for _ in range(len(self.graph))]
        leaf_nodes = [leaf.nodes for leaf in self.graph.leaves]
        for candidate, nodes in enumerate(self.candidates):
            seen: set[int] = set()
            for node in (*nodes, *self._cones[candidate]):
                seen.add(node)
                seen.update(self.graph.parents[node])
                for leaf, _ in self._leaves_of[node]:
                    if len(self._slopes[leaf]) > 1:
                        seen.update(leaf_nodes[leaf])
            for node in seen:
                watchers[node].append(candidate)
        return watchers

    def moves(self) -> Iterator[Move]:
        """All moves, in order of their ratio, until nothing can be saved any more."""
        version = [0] * len(self.candidates)
        probes: list[_Probe | None] = [None] * len(self.candidates)
        heap: list[tuple[float, int, int]] = []

        def renew(candidate: int) -> None:
            version[candidate] += 1
            probe = self._probe(candidate)
            probes[candidate] = probe
            if probe is not None:
                heapq.heappush(heap, (probe.ratio, candidate, version[candidate]))

        for candidate in range(len(self.candidates)):
            renew(candidate)
        stale: set[int] = set()
        patience = left = _PATIENCE * (len(self.candidates) + 10)
        while heap:
            _, candidate, stamp = heapq.heappop(heap)
            if stamp != version[candidate]:
                continue
            if candidate in stale:
                stale.discard(candidate)
                renew(candidate)
                continue
            probe = probes[candidate]
            step = self._move(candidate, probe) if probe is not None else None
            if step is None:
                continue
            move, changes = step
            yield move
            left -= 1
            if left == 0:
                left = patience
                self._least_step *= _COARSER
            touched: set[int] = {candidate}
            for node in changes:
                touched.update(self._watchers[node])
            for other in touched:
                if len(self._cones[other]) > _WIDE and other != candidate:
                    stale.add(other)
                else:
                    renew(other)

    def _probe(self, candidate: int) -> _Probe | None:
        """How loss and gain change when the limit of a candidate goes down, and how far that holds."""
        graph, fractions = self.graph, self.fractions
        nodes = self.candidates[candidate]
        top = max(fractions[node] for node in nodes)
        if top <= EPSILON:
            return None
        reach = top
        slopes: dict[int, float] = {}
        for node in nodes:
            behind = top - fractions[node]
            if behind <= EPSILON:
                slopes[node] = 1.0
            elif behind < reach:
                reach = behind
        copied_from = self._copied_from
        for node in self._cones[candidate]:
            parent = copied_from[node]
            if parent >= 0:  # the common case, kept short
                slope = slopes.get(parent, 0.0)
                if slope == 0.0:
                    continue
                slack = fractions[parent] - fractions[node]
            else:
                slope, slack, reach = self._slope_where_flows_meet(node, slopes, reach)
                if slope <= 0.0:
                    continue
            if slack <= EPSILON:
                slopes[node] = slope
            elif slack < reach * slope:
                reach = slack / slope
        weight = graph.weight
        gain = 0.0
        outputs: dict[int, float] = {}
        for node, slope in slopes.items():
            gain += weight[node] * slope
            for leaf, share in self._leaves_of[node]:
                outputs[leaf] = outputs.get(leaf, 0.0) + share * slope
        if gain <= 0.0:
            return None
        loss = 0.0
        for leaf, fall in outputs.items():
            pieces = self._slopes[leaf]
            if len(pieces) == 1:
                loss += self._weights[leaf] * pieces[0] * fall
            elif fall > 0.0:
                slope, room = self._left_slope(leaf)
                loss += self._weights[leaf] * slope * fall
                if room / fall < reach:
                    reach = room / fall
        return _Probe(loss / gain, max(reach, _LEAST_STEP), top, slopes, gain)

    def _slope_where_flows_meet(self, node: int, slopes: dict[int, float], reach: float) -> tuple[float, float, float]:
        """How fast what comes to a node falls, how far above its own fraction it is, and how far that holds."""
        graph, fractions = self.graph, self.fractions
        parents = graph.parents[node]
        if not any(parent in slopes for parent in parents):
            return 0.0, 0.0, reach
        if graph.rule[node] is Rule.MEAN:
            slope = carried = 0.0
            for share, parent in zip(graph.shares[node], parents, strict=True):
                carried += share * fractions[parent]
                slope += share * slopes.get(parent, 0.0)
            return slope, carried - fractions[node], reach
        least = min(fractions[parent] for parent in parents)
        slope = max(slopes.get(parent, 0.0) for parent in parents if fractions[parent] <= least + EPSILON)
        for parent in parents:
            faster = slopes.get(parent, 0.0) - slope
            if faster > EPSILON and fractions[parent] > least + EPSILON:
                reach = min(reach, (fractions[parent] - least) / faster)
        return slope, least - fractions[node], reach

    def _left_slope(self, leaf: int) -> tuple[float, float]:
        """The slope of an output's utility just below what it gets, and how far that piece goes."""
        delivered = self._delivered[leaf]
        xs = self._xs[leaf]
        piece = len(xs) - 2
        while piece > 0 and xs[piece] >= delivered - EPSILON:
            piece -= 1
        return self._slopes[leaf][piece], max(delivered - xs[piece], 0.0)

    def _move(self, candidate: int, probe: _Probe) -> tuple[Move, dict[int, float]] | None:
        """Take a step; the move and how much each node's fraction falls, or None if it would save nothing."""
        nodes = self.candidates[candidate]
        step, linear = min(probe.reach, self.step_size), True
        if step < self._least_step < probe.top:
            step, linear = self._least_step, False
        opening = self._opening_cost(nodes)
        if opening > 0:
            # A new drop must save more than it costs (x > D/L), even if that takes it past the next change of slope.
            step, linear = min(max(step, _WORTHWHILE * opening / probe.gain), probe.top), False
            if probe.gain * step <= opening:
                return None
        limit = probe.top - step if step < probe.top - EPSILON else 0.0
        if linear:
            changes = {node: slope * step for node, slope in probe.slopes.items()}
        else:
            changes = self._changes_at(candidate, limit)
        savings: dict[str, float] = {}
        for node, change in changes.items():
            for stream, weight in self.graph.weight_by_stream[node].items():
                savings[stream] = savings.get(stream, 0.0) + weight * change
        self._apply(changes)
        if self.graph.drop_cost > 0:
            self._charge_drops(candidate, savings)
        return Move(nodes, limit, probe.top, savings, linear), changes

    def _opening_cost(self, nodes: tuple[int, ...]) -> float:
        """What drops cost that these nodes do not have yet."""
        if self.graph.drop_cost <= 0:
            return 0.0
        places = {self._location_of[node] for node in nodes}
        return sum(self._passing(place) for place in places if not self._overhead[place]) * self.graph.drop_cost

    def _passing(self, place: int) -> float:
        """Tuples per second that reach a location."""
        graph = self.graph
        return sum(graph.head_rate[node] * graph.carried(node, self.fractions) for node in graph.locations[place].nodes)

    def _charge_drops(self, candidate: int, savings: dict[str, float]) -> None:
        """Take what the drops at and below a candidate now cost more (or less) off the savings."""
        graph = self.graph
        nodes = (*self.candidates[candidate], *self._cones[candidate])
        for place in {self._location_of[node] for node in nodes if node in self._location_of}:
            on_arc = graph.locations[place].nodes
            active = any(self.fractions[node] < graph.carried(node, self.fractions) - EPSILON for node in on_arc)
            now: dict[str, float] = {}
            if active:
                for node in on_arc:
                    carried = graph.carried(node, self.fractions)
                    for stream, share in graph.head_by_stream[node].items():
                        now[stream] = now.get(stream, 0.0) + graph.drop_cost * share * carried
            for stream in {*now, *self._overhead[place]}:
                more = now.get(stream, 0.0) - self._overhead[place].get(stream, 0.0)
                savings[stream] = savings.get(stream, 0.0) - more
            self._overhead[place] = now

    def _changes_at(self, candidate: int, limit: float) -> dict[int, float]:
        """How much every fraction falls when a candidate's limit goes to a value far away."""
        graph, before = self.graph, self.fractions
        after = before.copy()
        affected = (*self.candidates[candidate], *self._cones[candidate])
        for node in self.candidates[candidate]:
            after[node] = min(before[node], limit)
        for node in self._cones[candidate]:
            after[node] = min(before[node], graph.carried(node, after))
        return {node: before[node] - after[node] for node in affected if before[node] - after[node] > EPSILON}

    def _apply(self, changes: dict[int, float]) -> None:
        fractions = self.fractions
        for node, change in changes.items():
            now = fractions[node] - change
            fractions[node] = now if now > EPSILON else 0.0
            for leaf, share in self._leaves_of[node]:
                self._delivered[leaf] -= share * change
