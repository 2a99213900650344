"""Stages as what is scheduled: one query's chains of stages, with what is known about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamshed.load import arc_rates
from streamshed.network import Join, Network, Statistics
from streamshed.network.paths import Query, queries
from streamshed.network.stages import Stage
from streamshed.scheduling.base import Job, Step
from streamshed.scheduling.capacity import JOIN_WEIGHT, LEAF_WEIGHT, tuple_bytes


@dataclass(frozen=True)
class StageCapacity:
    """What a stage does with rows, as foreseen or as measured.

    Attributes:
        cost_s: seconds of processing per row that comes in; its inverse is the processing capacity.
        selectivity: rows that it hands on per row that comes in.
        row_bytes: the size of a row that it hands on; 0 where it leaves for good.
    """

    cost_s: float
    selectivity: float = 1.0
    row_bytes: float = 0.0


def step_id(source: str, stage: str) -> str:
    """The queue in front of a stage that holds what a stream or another stage has left for it."""
    return f"{source}->{stage}"


def stage_queries(network: Network, stages: Sequence[Stage]) -> tuple[Query, ...]:
    """The queries of a network that is cut into stages: those that share a stage are one.

    >>> from streamshed.network import NetworkBuilder
    >>> from streamshed.network.stages import stages
    >>> new = NetworkBuilder("example")
    >>> readings = new.stream("readings", {"value": "double"})
    >>> readings.filter("hot", "value > 30").output("alarms")
    >>> readings.filter("cold", "value < 0").output("frost")
    >>> network = new.build()
    >>> [query.id for query in stage_queries(network, stages(network))]
    ['alarms', 'frost']
    >>> [query.outputs for query in stage_queries(network, stages(network, together=True))]
    [('alarms', 'frost')]
    """
    found: list[list[Query]] = []
    for query in queries(network):
        ends = {stage.id for stage in stages if set(stage.outputs) & set(query.outputs)}
        joined = [
            group
            for group in found
            if any(set(stage.outputs) & set(one.outputs) for one in group for stage in stages if stage.id in ends)
        ]
        found = [group for group in found if group not in joined]
        found.append([*(one for group in joined for one in group), query])
    return tuple(_merged(group) for group in found)


def foreseen(
    network: Network, statistics: Statistics, rates: Mapping[str, float], stages: Sequence[Stage]
) -> dict[str, StageCapacity]:
    """What the statistics say about stages, by id, for the time before anything was measured.

    A stage with an operator whose cost is only believed is taken to cost nothing: no belief passes for seconds, and it
    is soon measured.
    """
    on_arcs = arc_rates(network, statistics, rates)
    into = {node: sum(on_arcs[arc.id] for arc in network.arcs_into[node]) for node in network.nodes}
    result = {}
    for stage in stages:
        came = sum(_leaving(network, on_arcs, source) for source in stage.inputs)
        known = statistics.believed.isdisjoint(stage.operators)
        load = sum(statistics.cost(operator) * into[operator] for operator in stage.operators) if known else 0.0
        passed = _leaving(network, on_arcs, stage.id) if stage.is_durable else 0.0
        row_bytes = tuple_bytes(network.schemas[stage.id].columns) if stage.is_durable else 0.0
        per_row = 1.0 / came if came > 0 else 0.0
        result[stage.id] = StageCapacity(load * per_row, passed * per_row, row_bytes)
    return result


def stage_jobs(
    network: Network, stages: Sequence[Stage], found: Sequence[Query], capacities: Mapping[str, StageCapacity]
) -> tuple[Job, ...]:
    """The queries, ready to be scheduled stage by stage.

    A stage with several inputs is a step for each of them. What an output stage hands on leaves for good, and counts as
    nothing in memory.

    Args:
        network: the network.
        stages: what it is cut into, each after those it reads.
        found: its queries, as `stage_queries` gives them.
        capacities: of the stages, by id.
    """
    ways: dict[str, list[tuple[Step, ...]]] = {}
    for stage in stages:
        ways[stage.id] = [
            (*before, _step(network, stage, source, capacities, is_leaf=not before))
            for source in stage.inputs
            for before in ways.get(source, [()])
        ]
    return tuple(
        Job(
            query.id,
            tuple(way for stage in stages if set(stage.outputs) & set(query.outputs) for way in ways[stage.id]),
        )
        for query in found
    )


def _step(
    network: Network, stage: Stage, source: str, capacities: Mapping[str, StageCapacity], *, is_leaf: bool
) -> Step:
    joins = any(isinstance(network.nodes[operator], Join) for operator in stage.operators)
    capacity, before = capacities[stage.id], capacities.get(source)
    return Step(
        step_id(source, stage.id),
        stage.id,
        capacity.cost_s,
        capacity.selectivity,
        tuple_bytes(network.schemas[source].columns) if before is None else before.row_bytes,
        capacity.row_bytes,
        (LEAF_WEIGHT if is_leaf else 1.0) * (JOIN_WEIGHT if joins else 1.0),
    )


def _leaving(network: Network, on_arcs: Mapping[str, float], node: str) -> float:
    """Rows per second that a stream or a stage's last operator hands on; a split's branches together."""
    by_branch = {arc.branch: on_arcs[arc.id] for arc in network.arcs_out_of[node]}
    return sum(by_branch.values())


def _merged(group: Sequence[Query]) -> Query:
    return Query(
        group[0].id,
        tuple(output for one in group for output in one.outputs),
        tuple(operator for one in group for operator in one.operators),
        tuple(path for one in group for path in one.paths),
    )
