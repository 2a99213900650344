"""The virtual queue where drops are inside the network: waiting work, counted in tuples that nothing is dropped of."""

from __future__ import annotations

from collections.abc import Mapping

from streamshed.engines.sim.places import Places
from streamshed.load import arc_rates, load_coefficients, out_selectivity
from streamshed.network import Join, Network, Output, Statistics, Stream, Union


class Backlog:
    """How much work waits, in full tuples.

    Tuples that wait on inner arcs have part of their way behind them, and drops spare them part of what is ahead. So
    they are counted by the work ahead of them, and the unit is what a tuple takes that nothing is dropped of.

    Args:
        places: the network at work.
        statistics: nominal costs and selectivities.
        rates: tuples per second; their proportions say what a tuple is on average.

    Attributes:
        full_s: the nominal cost of a full tuple.
    """

    def __init__(self, places: Places, statistics: Statistics, rates: Mapping[str, float]) -> None:
        self._places = places
        self._network: Network = places.network
        self._statistics = statistics
        self._rates = arc_rates(places.network, statistics, rates)
        coefficients = load_coefficients(places.network, statistics)
        total = sum(rates.values())
        self.full_s = sum(coefficients[stream] * rate for stream, rate in rates.items()) / total if total > 0 else 0.0
        self._ahead_s: dict[str, float] = coefficients
        self._set: dict[str, float] = {}

    def set(self, thresholds: Mapping[str, float]) -> None:
        """Put thresholds on the arcs' drops, and reckon with them."""
        if thresholds == self._set:
            return
        self._set = dict(thresholds)
        for arc, threshold in thresholds.items():
            self._places.outs[arc].threshold = threshold
        shares = self._shares()
        for node in self._network.operators:
            sides = self._places.places[node.id].sides
            if isinstance(node, Join) and sides is not None:
                sides.shares = [shares[arc.id] for arc in self._network.arcs_into[node.id]]
        self._ahead_s = self._work_ahead(shares)

    @property
    def waiting(self) -> float:
        """Full tuples that wait in queues."""
        if self.full_s <= 0:
            return 0.0
        outs = self._places.outs.items()
        return sum(out.queue.length * self._ahead_s[arc] for arc, out in outs if out.queue.length) / self.full_s

    def _shares(self) -> dict[str, float]:
        """The share of each arc's undropped tuples that gets past its drop, by the rules of the flow graph."""
        network = self._network
        shares: dict[str, float] = {}
        for arc in network.arcs:
            coming = 1.0 if arc.is_entry else self._share_of(arc.source, shares)
            out = self._places.outs[arc.id]
            kept = 1.0 - out.threshold
            shares[arc.id] = coming * kept if out.is_by_value else min(coming, kept)
        return shares

    def _share_of(self, node_id: str, shares: Mapping[str, float]) -> float:
        into = [arc.id for arc in self._network.arcs_into[node_id]]
        match self._network.nodes[node_id]:
            case Union():
                total = sum(self._rates[arc] for arc in into)
                return sum(shares[arc] * self._rates[arc] for arc in into) / total if total > 0 else 1.0
            case Join():
                return min(shares[arc] for arc in into)
            case _:
                return shares[into[0]]

    def _work_ahead(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Load coefficients under the present drops, of tuples that are past the drop of an arc."""
        network = self._network
        ahead_s: dict[str, float] = {}
        for arc in reversed(network.arcs):
            node = network.nodes[arc.target]
            if isinstance(node, Output):
                ahead_s[arc.id] = 0.0
                continue
            below_s = 0.0
            for out in network.arcs_out_of[node.id]:
                many = 1.0 if isinstance(node, Stream) else out_selectivity(self._statistics, out)
                passing = shares[out.id] / shares[arc.id] if shares[arc.id] > 0 else 0.0
                below_s += ahead_s[out.id] * many * min(1.0, passing)
            ahead_s[arc.id] = self._statistics.cost(node.id) + below_s
        return ahead_s
