"""The SIC of a running network's outputs, from what its drops were seen to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamshed.network import Network
from streamshed.planning.fair.windows import INTERVAL_S, WINDOW_S, WindowedSum

ArcCounts = Mapping[str, tuple[float, float]]
"""By arc with a drop: the well-formed tuples that came to it, and those it let through."""


@dataclass(frozen=True)
class Way:
    """One way from a stream to an output.

    Attributes:
        output: where it ends.
        arcs: from the stream's entry on.
    """

    output: str
    arcs: tuple[str, ...]

    @property
    def entry(self) -> str:
        """The entry of the stream."""
        return self.arcs[0]


def ways(network: Network) -> tuple[Way, ...]:
    """All ways through a network, grouped by output."""
    above: dict[str, list[tuple[str, ...]]] = {}
    for node_id in network.nodes:
        above[node_id] = [
            (*way, arc.id)
            for arc in network.arcs_into[node_id]
            for way in ([()] if arc.is_entry else above[arc.source])
        ]
    return tuple(Way(output.id, arcs) for output in network.outputs for arcs in above[output.id])


class ObservedSic:
    """The result SIC of every output: the mean, over the streams that sent anything, of the share that reached it.

    What a drop lets through is counted, what an operator does is not: it loses no SIC. So the share of a stream that
    reaches an output is the product of the shares kept along its way. Behind a filter this is the share of what would
    have come to the result; what the filter rejected does not make up for it. A stream with several ways to an output
    counts equally on each, and both sides of a join count, as all inputs of a union do.

    Args:
        network: whose outputs.
        window_s: the source time window.

    >>> from streamshed.network import NetworkBuilder
    >>> new = NetworkBuilder("two")
    >>> stream = new.stream("s", {"v": "int"})
    >>> _ = stream.filter("a", "v > 0").output("some"), stream.output("all")
    >>> sic = ObservedSic(new.build())
    >>> sic.observe(1.0, {"s": (100, 80), "s->a": (80, 40)})
    >>> sic.at(1.0)
    {'some': 0.4, 'all': 0.8}
    """

    def __init__(self, network: Network, window_s: float = WINDOW_S) -> None:
        self._ways = ways(network)
        self._window = WindowedSum(2 * len(self._ways), window_s, min(INTERVAL_S, window_s))
        self._overall = np.zeros(2 * len(self._ways))
        self._streams: dict[str, dict[str, list[int]]] = {output.id: {} for output in network.outputs}
        for number, way in enumerate(self._ways):
            self._streams[way.output].setdefault(way.entry, []).append(number)

    def observe(self, time_s: float, counts: ArcCounts) -> None:
        """Take notice of what the drops did in a batch that ended at a time."""
        sent = [counts[way.entry][0] if way.entry in counts else 0.0 for way in self._ways]
        shares = [math.prod(_share(counts[arc]) for arc in way.arcs if arc in counts) for way in self._ways]
        amounts = np.concatenate([sent, np.multiply(sent, shares)])
        self._window.add(time_s, np.arange(len(amounts)), amounts)
        self._overall += amounts

    def at(self, time_s: float) -> dict[str, float]:
        """By output, over the window that ends at a time; without outputs that were sent nothing."""
        return self._of(self._window.at(time_s))

    def overall(self) -> dict[str, float]:
        """By output, over all batches; without outputs that were sent nothing."""
        return self._of(self._overall)

    def _of(self, amounts: NDArray[np.float64]) -> dict[str, float]:
        sent, reached = np.split(amounts, 2)
        found: dict[str, float] = {}
        for output, streams in self._streams.items():
            shares = [_share((sent[own].sum(), reached[own].sum())) for own in streams.values() if sent[own].sum() > 0]
            if shares:
                found[output] = sum(shares) / len(shares)
        return found


def _share(counts: tuple[float, float]) -> float:
    """The share that was kept; all of nothing."""
    came, kept = counts
    return float(kept / came) if came > 0 else 1.0
