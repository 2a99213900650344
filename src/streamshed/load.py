"""Load: how many seconds of processing a tuple costs on its way, and what the whole network needs (Aurora, 4.2).

A load coefficient L is the processing that one tuple entering an arc causes from there on. On a chain of operators
with costs c and selectivities s it is equation (1) of the paper, L = Σ_i (Π_{j<i} s_j)·c_i; where an operator's
output fans out, the paths add; a union or join takes the tuples of all its inputs, so each input's tuple costs the
operator once and causes s tuples downstream. The load is Σ L_i·r_i over the input rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamshed.errors import InvalidValueError
from streamshed.network import Arc, Network, Output, Statistics, Stream


@dataclass(frozen=True)
class Admission:
    """How much load may run: a controller's decision, and what a planner has to meet.

    Attributes:
        capacity: seconds of processing per second that the network may use, headroom already taken off.
        keep: the share of the waiting work that this leaves, where a controller has looked at what waits.
    """

    capacity: float
    keep: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.capacity) and self.capacity >= 0):
            raise InvalidValueError(
                "the capacity is not valid", where="admission", got=self.capacity, expected="seconds per second, >= 0"
            )


def out_selectivity(statistics: Statistics, arc: Arc) -> float:
    """Tuples on an arc for each tuple that entered its source node."""
    return statistics.selectivity(f"{arc.source}.{arc.branch}" if arc.branch else arc.source)


def load_coefficients(network: Network, statistics: Statistics) -> dict[str, float]:
    """Seconds of processing caused by a tuple entering each arc, by arc id; a stream's own is under its id.

    >>> from streamshed.network import NetworkBuilder
    >>> new = NetworkBuilder("chain")
    >>> s = new.stream("s", {"v": "int"})
    >>> s.filter("a", "v > 1").filter("b", "v > 2").output("out")
    >>> load_coefficients(new.build(), Statistics({"a": 10.0, "b": 4.0}, {"a": 0.5}))["s"]
    12.0
    """
    coefficients: dict[str, float] = {}
    for arc in reversed(network.arcs):
        node = network.nodes[arc.target]
        if isinstance(node, Output):
            coefficients[arc.id] = 0.0
            continue
        below = 0.0
        for out in network.arcs_out_of[node.id]:
            below += coefficients[out.id] * (1.0 if isinstance(node, Stream) else out_selectivity(statistics, out))
        coefficients[arc.id] = statistics.cost(node.id) + below
    return coefficients


def arc_rates(network: Network, statistics: Statistics, rates: Mapping[str, float]) -> dict[str, float]:
    """Tuples per second on each arc when nothing is dropped, by arc id."""
    result: dict[str, float] = {}
    inflow: dict[str, float] = dict.fromkeys(network.nodes, 0.0)
    for arc in network.arcs:
        if arc.is_entry:
            result[arc.id] = rates[arc.target]
        else:
            through_stream = isinstance(network.nodes[arc.source], Stream)
            result[arc.id] = inflow[arc.source] * (1.0 if through_stream else out_selectivity(statistics, arc))
        inflow[arc.target] += result[arc.id]
    return result


def total_load(coefficients: Mapping[str, float], rates: Mapping[str, float]) -> float:
    """Seconds of processing per second: Σ L_i·r_i."""
    return sum(coefficients[stream_id] * rate for stream_id, rate in rates.items())


def chain_cost_s(costs_s: Sequence[float], selectivities: Sequence[float]) -> float:
    """Seconds of processing that a tuple entering a chain of operators causes on it."""
    share, total_s = 1.0, 0.0
    for cost_s, selectivity in zip(costs_s, selectivities, strict=True):
        total_s += share * cost_s
        share *= selectivity
    return total_s


def chain_capacity_tps(costs_s: Sequence[float], selectivities: Sequence[float]) -> float:
    """The processing capacity of a path or segment (MavStream, equation 4.4): tuples per second, if it ran alone.

    It is 1 / (1/C₁ + σ₁/C₂ + σ₁σ₂/C₃ + …), C being the operators' own capacities: the inverse of the load coefficient
    of the chain. Infinite for a chain that costs nothing.

    >>> chain_capacity_tps([1 / 100, 1 / 50, 1 / 25], [0.5, 0.2, 1.0])
    41.66...
    """
    total_s = chain_cost_s(costs_s, selectivities)
    return 1.0 / total_s if total_s > 0 else math.inf
