"""Shedders in the buffers: where one belongs, how much it may drop, and in which order (MavStream, 4.4).

The place weight W = α/ε of a place says how much processing a shedder there saves (α) for the error that it causes (ε).
With v the rate at the place, E the most tolerable relative error, C the capacity of the rest of the path and C₀ that of
the shedder itself, the most it may drop is E·v, so α = E·v/C − v/C₀ and ε = E (equation 4.5).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamshed.errors import UnknownNameError, did_you_mean
from streamshed.load import chain_cost_s, out_selectivity
from streamshed.network import Arc, Network, Statistics
from streamshed.network.paths import Path
from streamshed.qos import DropOrder, SheddingBy

Floats = NDArray[np.float64]
_BELOW_ONE = 1 - 2.0**-53


@dataclass(frozen=True)
class Place:
    """A candidate place: the queue in front of an operator on a path.

    Attributes:
        arc: the arc whose queue it is.
        rate_tps: tuples per second that come to it along this path.
        rest_s: seconds of processing per tuple from there to the output (1/C of the rest of the path).
        weight: the place weight, in seconds of processing per second and unit of relative error.
    """

    arc: str
    rate_tps: float
    rest_s: float
    weight: float


@dataclass(frozen=True)
class Shedder:
    """A shedder in a queue, not necessarily at work.

    Attributes:
        arc: where.
        weight: its place weight; the largest of the paths that it serves.
        most: the share that it may drop at most.
        by: which values it drops first; None for a random choice.
    """

    arc: str
    weight: float
    most: float
    by: SheddingBy | None = None


def place_weight(rate_tps: float, rest_s: float, mtre: float, shedder_s: float = 0.0) -> float:
    """The place weight of equation 4.5; `shedder_s` is what the shedder takes per tuple that comes to it.

    >>> place_weight(100.0, 0.004, 0.1, 0.0001)
    0.3
    """
    if mtre <= 0:
        return 0.0
    most_tps = mtre * rate_tps
    saved = most_tps * rest_s - rate_tps * shedder_s
    error = most_tps / rate_tps if rate_tps > 0 else mtre
    return saved / error


def places(statistics: Statistics, rate_tps: float, path: Path, mtre: float) -> tuple[Place, ...]:
    """The candidate places of a path with their weights, from the stream on.

    Args:
        statistics: costs, selectivities, and the cost of a drop itself.
        rate_tps: tuples per second of the path's stream.
        path: the path.
        mtre: E, the most tolerable relative error of its output.
    """
    costs_s = [statistics.cost(arc.target) for arc in path.arcs]
    shares = [out_selectivity(statistics, arc) for arc in (*path.arcs[1:], path.last)]
    found: list[Place] = []
    for i, arc in enumerate(path.arcs):
        rest_s = chain_cost_s(costs_s[i:], shares[i:])
        found.append(Place(arc.id, rate_tps, rest_s, place_weight(rate_tps, rest_s, mtre, statistics.drop_cost)))
        rate_tps *= shares[i]
    return tuple(found)


def shedders(
    network: Network,
    statistics: Statistics,
    rates: Mapping[str, float],
    paths: Sequence[Path],
    mtre: Mapping[str, float],
    by: SheddingBy | None = None,
    among: Collection[str] | None = None,
) -> tuple[Shedder, ...]:
    """At most one shedder a path, at the place with the greatest weight, in falling order of weight.

    Where the best places of two paths would put two shedders on one path, both paths take the place in front of their
    first operator. With a column to shed by, only places count where it is present; if a path still had two, the one
    with the smaller weight is left out.

    Args:
        network: the network.
        statistics: costs and selectivities.
        rates: tuples per second by stream.
        paths: the paths to serve.
        mtre: the most tolerable relative error by output. A shedder that several share drops what the strictest allows.
        by: which values go first; None for random shedders.
        among: the arcs that shedders may be on; None for all.
    """
    served = [path for path in paths if mtre.get(path.output, 0.0) > 0]
    chosen: dict[int, Place] = {}
    first: dict[int, Place] = {}
    for number, path in enumerate(served):
        found = places(statistics, rates[path.stream], path, mtre[path.output])
        allowed = [
            place
            for place, arc in zip(found, path.arcs, strict=True)
            if (by is None or _has(network, arc, by)) and (among is None or arc.id in among)
        ]
        if allowed:
            chosen[number] = max(allowed, key=lambda place: place.weight)  # the first of equals
            first[number] = allowed[0]
    if by is not None and served and not chosen:
        known = {column for path in served for arc in path.arcs for column in network.schemas[arc.source].columns}
        raise UnknownNameError(
            "no tuple on the way to the output has the column to shed by",
            where=f"output {served[0].output!r}",
            got=repr(by.column),
            hint=did_you_mean(by.column, known),
        )
    _part(served, chosen, first)
    result: dict[str, Shedder] = {}
    for place in chosen.values():
        best = max(other.weight for other in chosen.values() if other.arc == place.arc)
        strictest = min(mtre.get(path.output, 0.0) for path in paths if any(arc.id == place.arc for arc in path.arcs))
        if strictest > 0:
            result[place.arc] = Shedder(place.arc, best, strictest, by)
    return tuple(sorted(result.values(), key=lambda shedder: -shedder.weight))


class ObservedRange:
    """The order in which a semantic shedder gives values up, from the range of those that it has seen.

    It assumes that values are spread evenly: a tuple's rank is its place within the range, so that a shedder drops the
    lowest (or highest) tenth of the *range* where it is to drop a tenth, or the tenth around the mean. How many tuples
    that are depends on how they are spread. The range is taken when the shedder goes on, and stays until it goes off.

    >>> values = ObservedRange(DropOrder.LOWEST)
    >>> values.observe(np.array([0.0, 40.0, 100.0]))
    >>> values.take_range()
    >>> values.ranks(np.array([5.0, 50.0, 120.0])).tolist()
    [0.05, 0.5, 0.99...]
    """

    def __init__(self, first: DropOrder) -> None:
        self._first = first
        self._low, self._high = math.inf, -math.inf
        self._count, self._sum = 0, 0.0
        self._range: tuple[float, float, float] | None = None

    def observe(self, values: Floats) -> None:
        """Take note of values that come by, dropped or not."""
        known = values[~np.isnan(values)]
        if len(known):
            self._low, self._high = min(self._low, float(known.min())), max(self._high, float(known.max()))
            self._count += len(known)
            self._sum += float(known.sum())

    def take_range(self) -> None:
        """The shedder goes on: from now on the values seen so far count."""
        if self._count:
            self._range = self._low, self._high, self._sum / self._count

    def ranks(self, values: Floats) -> Floats:
        """The places of values in the order, from 0 to 1; nothing is given up before anything was seen."""
        if self._range is None:
            return np.full(len(values), _BELOW_ONE)
        low, high, mean = self._range
        width = high - low or 1.0
        match self._first:
            case DropOrder.LOWEST:
                found = (values - low) / width
            case DropOrder.HIGHEST:
                found = (high - values) / width
            case DropOrder.CENTRE:
                found = 2 * np.abs(values - mean) / width
        return np.where(np.isnan(values), 0.0, np.clip(found, 0.0, _BELOW_ONE))


def _part(served: Sequence[Path], chosen: dict[int, Place], first: Mapping[int, Place]) -> None:
    """Move shedders to the start of their paths, or take them out, until no path has two."""
    while True:
        arcs = {place.arc for place in chosen.values()}
        crowded = next((path for path in served if sum(arc.id in arcs for arc in path.arcs) > 1), None)
        if crowded is None:
            return
        on_path = {arc.id for arc in crowded.arcs}
        there = [number for number, place in chosen.items() if place.arc in on_path]
        moving = [number for number in there if chosen[number] != first[number]]
        for number in moving:
            chosen[number] = first[number]
        if not moving:
            least = min((chosen[number] for number in there), key=lambda place: place.weight)
            for number in [number for number in there if chosen[number].arc == least.arc]:
                del chosen[number]


def _has(network: Network, arc: Arc, by: SheddingBy) -> bool:
    return by.column in network.schemas[arc.source].columns
