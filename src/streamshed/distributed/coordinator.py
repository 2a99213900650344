"""The centralised alternative: one node that knows all others and solves for all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.distributed.model import Topology
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Score
from streamshed.errors import InvalidValueError


@dataclass(frozen=True)
class GlobalPlan:
    """What every node is to do.

    Attributes:
        score: what comes of it.
        flows: for each node, the rate to let into each of its segments.
        outputs: the rate of every output.
    """

    score: float
    flows: Mapping[str, Mapping[str, float]]
    outputs: Mapping[str, float]


class Coordinator:
    """Plans for all nodes of a topology: no plan scores more, as long as what it knows is true.

    Args:
        topology: the nodes, with their costs and selectivities as last heard.
        score: what results are worth.
        scale_tps: the order of magnitude of rates.
    """

    def __init__(self, topology: Topology, score: Score, scale_tps: float = 1.0) -> None:
        self._topology = topology
        self._score = score
        self._program = FlowProgram(topology.nodes, score, scale_tps=scale_tps)

    def plan(self, rates_tps: Mapping[str, float]) -> GlobalPlan:
        """The best plan for these rates at the inputs that are fed from outside."""
        missing = [name for name in self._program.inputs if name not in rates_tps]
        if missing:
            raise InvalidValueError(
                "an input has no rate", where="coordinator", got=", ".join(missing), expected="all inputs from outside"
            )
        solution = self._program.solve(rates_tps)
        flows: dict[str, dict[str, float]] = {node.name: {} for node in self._topology.nodes}
        for (node, segment), flow in solution.flows.items():
            flows[node][segment] = flow
        outputs = dict.fromkeys(self._topology.outputs, 0.0)
        for node_model in self._topology.nodes:
            for end in node_model.ends:
                if end.end in outputs:
                    outputs[end.end] += flows[node_model.name][end.id] * float(end.selectivity)
        return GlobalPlan(solution.score, flows, outputs)
