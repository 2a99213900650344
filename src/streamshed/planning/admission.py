"""Admission control: the four baselines that shed at the inputs only and know nothing of quality (Aurora, 5.3).

Each is a path from admitting everything to admitting nothing, along which it goes as far as the capacity demands.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from streamshed.load import Admission, load_coefficients
from streamshed.network import Network, Statistics
from streamshed.planning.base import DropPlan, Planner
from streamshed.planning.flow_builder import flow_graph

_HALVINGS = 50


class InputPlanner(Planner):
    """Sheds at the entries of the streams."""

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        graph = flow_graph(network, statistics, rates)
        coefficients = load_coefficients(network, statistics)
        loads = {stream.id: coefficients[stream.id] * rates[stream.id] for stream in network.streams}
        entry = {location.arc: location.nodes[0] for location in graph.locations if location.arc in loads}
        order = self._order(loads)

        def fractions(shed: float) -> list[float]:
            dropped = self._dropped(loads, order, shed * sum(loads.values()))
            return graph.fractions({entry[stream]: 1.0 - share for stream, share in dropped.items()})

        low, high = 0.0, 1.0
        if graph.load(fractions(low)) <= admission.capacity * (1 + 1e-9):  # rounding is no overload
            high = low
        for _ in range(_HALVINGS if high > low else 0):
            middle = (low + high) / 2
            low, high = (low, middle) if graph.load(fractions(middle)) <= admission.capacity else (middle, high)
        return self._described(graph, fractions(high), admission.capacity)

    def _order(self, loads: Mapping[str, float]) -> list[str]:
        """In which order streams are asked, where that matters."""
        return list(loads)

    @abstractmethod
    def _dropped(self, loads: Mapping[str, float], order: list[str], shed: float) -> dict[str, float]:
        """The share to drop of each stream so that this much load goes (all of it where shed is all)."""


def _one_after_another(loads: Mapping[str, float], order: list[str], shed: float) -> dict[str, float]:
    dropped: dict[str, float] = {}
    for stream in order:
        share = min(1.0, shed / loads[stream]) if loads[stream] > 0 else float(shed > 0)
        dropped[stream] = share
        shed = max(0.0, shed - loads[stream])
    return dropped


class InputRandom(InputPlanner):
    """Picks a stream at random and sheds there; when it is gone, picks another."""

    name: ClassVar[str] = "input-random"
    title: ClassVar[str] = "Input-Random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def _order(self, loads: Mapping[str, float]) -> list[str]:
        order = sorted(loads)
        random.Random(self.seed).shuffle(order)
        return order

    def _dropped(self, loads: Mapping[str, float], order: list[str], shed: float) -> dict[str, float]:
        return _one_after_another(loads, order, shed)


class InputCostTop(InputPlanner):
    """Sheds at the stream with the largest load first, then at the next."""

    name: ClassVar[str] = "input-cost-top"
    title: ClassVar[str] = "Input-Cost-Top"

    def _order(self, loads: Mapping[str, float]) -> list[str]:
        return sorted(loads, key=lambda stream: (-loads[stream], stream))

    def _dropped(self, loads: Mapping[str, float], order: list[str], shed: float) -> dict[str, float]:
        return _one_after_another(loads, order, shed)


class InputUniform(InputPlanner):
    """Sheds the same amount of load at every stream; what one cannot give, the others share."""

    name: ClassVar[str] = "input-uniform"
    title: ClassVar[str] = "Input-Uniform"

    def _order(self, loads: Mapping[str, float]) -> list[str]:
        return sorted(loads, key=lambda stream: loads[stream])

    def _dropped(self, loads: Mapping[str, float], order: list[str], shed: float) -> dict[str, float]:
        dropped: dict[str, float] = {}
        for asked, stream in enumerate(order):
            mine = min(loads[stream], shed / (len(order) - asked))
            dropped[stream] = mine / loads[stream] if loads[stream] > 0 else float(shed > 0)
            shed -= mine
        return dropped


class InputCostUniform(InputPlanner):
    """Sheds at every stream in proportion to its load: the same share of each."""

    name: ClassVar[str] = "input-cost-uniform"
    title: ClassVar[str] = "Input-Cost-Uniform"

    def _dropped(self, loads: Mapping[str, float], order: list[str], shed: float) -> dict[str, float]:
        total = sum(loads.values())
        return dict.fromkeys(order, shed / total if total > 0 else 0.0)
