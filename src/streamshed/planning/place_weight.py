"""MavStream's shedders as a planner: at most one drop a path, where the place weight is greatest (4.4.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from streamshed.load import Admission
from streamshed.network import Arc, Join, Network, Statistics, Stream, Union
from streamshed.network.paths import Path, paths_to
from streamshed.planning.base import DropPlan, Planner
from streamshed.planning.flow_builder import flow_graph
from streamshed.shedding import Shedder, shedders

_HALVINGS = 50


class PlaceWeightPlanner(Planner):
    """Puts shedders to work in falling order of place weight, each at its most, until the load fits.

    The most that a shedder may drop is the tolerable error of the outputs below it (`mtre` of their goals; everything,
    where no goals are given). So a plan may not fit: then all shedders are at work, and no error is beyond tolerance.
    The last one drops no more than needed. Drops are random. A place where flows have met behind a union or join is
    none for this planner: its drops go by the rank of tuples of single streams.
    """

    name: ClassVar[str] = "place-weight"
    title: ClassVar[str] = "Place weight"

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        graph = flow_graph(network, statistics, rates)
        nodes = {location.arc: location.nodes[0] for location in graph.locations}
        mtre = {output.id: 1.0 if output.qos.goals is None else output.qos.goals.mtre for output in network.outputs}
        paths = [path for output in network.outputs for path in paths_to(network, output.id)]
        found = [(nodes[shedder.arc], shedder.most) for shedder in drop_places(network, statistics, rates, paths, mtre)]

        def fractions(count: int, last: float = 1.0) -> list[float]:
            limits = {node: 1.0 - most for node, most in found[:count]}
            if count:
                node, most = found[count - 1]
                limits[node] = 1.0 - last * most
            return graph.fractions(limits)

        def fits(count: int, last: float = 1.0) -> bool:
            return graph.load(fractions(count, last)) <= admission.capacity * (1 + 1e-9)  # rounding is no overload

        if fits(0):
            return self._described(graph, fractions(0), admission.capacity)
        low, high = 0, len(found)  # so many are not enough, so many may be
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        least, most = 0.0, 1.0
        for _ in range(_HALVINGS if high and fits(high) else 0):
            half = (least + most) / 2
            least, most = (least, half) if fits(high, half) else (half, most)
        return self._described(graph, fractions(high, most), admission.capacity)

    def plan_with(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], at_work: Mapping[str, float]
    ) -> DropPlan:
        """The plan in which just these shedders are at work.

        Args:
            network: the network.
            statistics: costs and selectivities.
            rates: tuples per second by stream.
            at_work: the share that each drops, by arc, as `drop_places` names them.
        """
        graph = flow_graph(network, statistics, rates)
        nodes = {location.arc: location.nodes[0] for location in graph.locations}
        fractions = graph.fractions({nodes[arc]: 1.0 - share for arc, share in at_work.items()})
        return self._described(graph, fractions, graph.load(fractions))


def drop_places(
    network: Network,
    statistics: Statistics,
    rates: Mapping[str, float],
    paths: Sequence[Path],
    mtre: Mapping[str, float],
) -> tuple[Shedder, ...]:
    """The random shedders of paths, each on the arc where a plan can drop what it is to drop, at no loss.

    Args:
        network: the network.
        statistics: costs and selectivities.
        rates: tuples per second by stream.
        paths: the paths to serve.
        mtre: the most tolerable relative error by output.
    """
    location = {arc.id: moved for arc in network.arcs if (moved := _location(network, arc)) is not None}
    return tuple(
        replace(shedder, arc=location[shedder.arc])
        for shedder in shedders(network, statistics, rates, paths, mtre, among=location)
        if shedder.weight > 0
    )


def _location(network: Network, arc: Arc) -> str | None:
    """Where a drop on an arc moves to at no loss: the entry of the stream, or the arc behind a fork."""
    while not arc.is_entry:
        source = network.nodes[arc.source]
        if len(network.arcs_out_of[source.id]) > 1:
            return arc.id
        if isinstance(source, Union | Join):
            return None
        arc = network.arcs_into[source.id][0]
        if isinstance(source, Stream):
            break
    return arc.id
