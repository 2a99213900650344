"""Fair plans: every output gets the same share of its information, as large as the capacity allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean
from streamshed.load import Admission
from streamshed.network import Network, Statistics
from streamshed.planning.base import DropPlan, Planner
from streamshed.planning.fair.water import water_level
from streamshed.planning.flow import FlowGraph
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.optimal import fitted


class FairPlanner(Planner):
    """Water filling over the flow graph: the least share / weight of an output is as large as can be, then the next.

    All sources of an output are kept at the same share x, so x is its SIC, whatever its operators do, and its answers
    stay unbiased. At the level t an output wants x = min(1, weight·t), or its minimum where that is more. An arc has to
    carry the most that any output below wants: min(1, max(t·W, M)) with the largest weight W and minimum M below it.
    So the load is a sum over arcs that never falls with t, and t is where it meets the capacity.

    A drop ahead of a split hits all outputs behind it alike; what one of them wants less of is dropped behind the
    split. Where nothing below costs anything, nothing is dropped: no output is held down for equality's sake.

    With equal weights, no minimum and a cost on every path the level is capacity / load: the same share of every
    stream, dropped at its entry.

    Args:
        weights: by output, how much of the common level it may claim; its QoS weight where not given.
        minimum: by output, the share that it is to have before others get more; the least share of its QoS where not
            given. If all minimums together do not fit, they shrink by the same factor.
    """

    name: ClassVar[str] = "fair"
    title: ClassVar[str] = "Fair shares (SIC)"

    def __init__(self, weights: Mapping[str, float] | None = None, minimum: Mapping[str, float] | None = None) -> None:
        self.weights = dict(weights or {})
        self.minimum = dict(minimum or {})
        for output, weight in self.weights.items():
            if not (math.isfinite(weight) and weight > 0):
                raise InvalidValueError("a weight must be positive", where=f"output {output!r}", got=weight)
        for output, share in self.minimum.items():
            if not 0 <= share <= 1:
                raise InvalidValueError(
                    "not a share", where=f"minimum of output {output!r}", got=share, expected="from 0 to 1"
                )

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        outputs = {output.id for output in network.outputs}
        for name in (*self.weights, *self.minimum):
            if name not in outputs:
                raise UnknownNameError(
                    "a share for an output that does not exist",
                    where="fair planner",
                    got=repr(name),
                    hint=did_you_mean(name, outputs),
                )
        graph = flow_graph(network, statistics, rates)
        asked = {output.id: output.qos.least_share for output in network.outputs}
        fractions = fair_fractions(graph, admission.capacity, self.weights, {**asked, **self.minimum})
        return self._described(graph, fractions, admission.capacity)


def fair_fractions(
    graph: FlowGraph,
    capacity: float,
    weights: Mapping[str, float] | None = None,
    minimum: Mapping[str, float] | None = None,
) -> list[float]:
    """The fractions of the fair plan within a capacity; weights and minimum shares by output."""
    claim = np.zeros(len(graph))
    least = np.zeros(len(graph))
    for leaf in graph.leaves:
        for node in leaf.nodes:
            claim[node] = max(claim[node], (weights or {}).get(leaf.output, leaf.weight))
            least[node] = max(least[node], (minimum or {}).get(leaf.output, 0.0))
    for node in range(len(graph) - 1, -1, -1):
        for parent in graph.parents[node]:
            claim[parent] = max(claim[parent], claim[node])
            least[parent] = max(least[parent], least[node])
    return fitted(graph, capacity, lambda room: _pushed_upstream(graph, _wanted(graph, claim, least, room)))


def _wanted(
    graph: FlowGraph, claim: NDArray[np.float64], least: NDArray[np.float64], capacity: float
) -> NDArray[np.float64]:
    """What each node is to carry at most; everything where it costs nothing."""
    load = np.array(graph.weight)
    ones, zeros = np.ones(len(graph)), np.zeros(len(graph))
    needed = float((load * least).sum())
    if needed > capacity:
        return np.where(load > 0, least * (capacity / needed), 1.0)
    level = water_level(load, claim, zeros, least, ones, capacity)
    # Nothing wants what no output is below of, however high the level.
    lifted = np.multiply(claim, level, out=zeros, where=claim > 0)
    return np.where(load > 0, np.clip(lifted, least, 1.0), 1.0)


def _pushed_upstream(graph: FlowGraph, wanted: NDArray[np.float64]) -> list[float]:
    """Drop at the entries and behind splits, and nothing later that could have been dropped there."""
    ends = {node for leaf in graph.leaves for node in leaf.nodes}
    needed = np.zeros(len(graph))
    for node in range(len(graph) - 1, -1, -1):
        if node not in ends:
            wanted[node] = min(wanted[node], needed[node])
        for parent in graph.parents[node]:
            needed[parent] = max(needed[parent], wanted[node])
    return graph.fractions({node: float(wanted[node]) for place in graph.locations for node in place.nodes})
