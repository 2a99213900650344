"""Random trees of nodes, with splits, for whatever is to be shown of feasible input tables."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamshed.distributed.model import NodeModel, Segment, Topology


@dataclass(frozen=True)
class RandomTree:
    """A tree and the rates at its root that overload some of its nodes."""

    topology: Topology
    rates_tps: Mapping[str, float]


def random_tree(nodes: int, seed: int, *, most_inputs: int = 4, most_children: int = 3) -> RandomTree:
    """A tree of so many nodes.

    Every node has one to `most_inputs` inputs, some of which split; half of the inner nodes have outputs of their own.
    Capacities are such that, without drops, the load of a node is between 0.7 and 3 times what it can carry.
    """
    rng = random.Random(seed)
    parent: dict[int, int] = {}
    children: dict[int, list[int]] = {0: []}
    for number in range(1, nodes):
        free = [other for other in children if len(children[other]) < most_children]
        parent[number] = rng.choice(free)
        children[parent[number]].append(number)
        children[number] = []
    inputs = {number: rng.randint(1, most_inputs) for number in range(nodes)}
    models = [_node(rng, number, inputs, children[number]) for number in range(nodes)]
    rates = {input_id: rng.uniform(50.0, 150.0) for input_id in models[0].inputs}
    return RandomTree(_with_capacities(rng, models, rates), rates)


def _node(rng: random.Random, number: int, inputs: Mapping[int, int], children: list[int]) -> NodeModel:
    names = [f"n{number}.i{i}" for i in range(inputs[number])]
    ends: dict[str, list[str]] = {name: [] for name in names}
    for child in children:
        for i in range(inputs[child]):
            ends[rng.choice(names)].append(f"n{child}.i{i}")
    for name in names:
        if not ends[name] or rng.random() < 0.5 / len(names):
            ends[name].append(f"{name}.out")
        if not children and rng.random() < 0.4:
            ends[name].append(f"{name}.too")
    segments: list[Segment] = []
    for name in names:
        source = name
        if len(ends[name]) > 1:
            source = f"{name}.trunk"
            segments.append(Segment(source, name, _cost(rng), _selectivity(rng)))
        for i, end in enumerate(ends[name]):
            segments.append(Segment(f"{name}.b{i}", source, _cost(rng), _selectivity(rng), end))
    return NodeModel(f"n{number}", tuple(names), tuple(segments))


def _cost(rng: random.Random) -> float:
    return round(rng.uniform(0.0005, 0.005), 5)


def _selectivity(rng: random.Random) -> float:
    return round(rng.uniform(0.3, 1.0), 2)


def _with_capacities(rng: random.Random, models: list[NodeModel], rates_tps: Mapping[str, float]) -> Topology:
    topology = Topology(tuple(models))
    arriving = dict(rates_tps)
    for name in topology.upstream_first:
        node = topology.node[name]
        load = 0.0
        for segment in node.segments:
            share = 1.0
            for one in node.path[segment.id][:-1]:
                share *= float(one.selectivity)
            flow = arriving[node.input_of[segment.id]] * share
            load += float(segment.cost) * flow
            if segment.end in topology.owner:
                arriving[str(segment.end)] = flow * float(segment.selectivity)
        topology = topology.replaced(replace(node, capacity=float(f"{load / rng.uniform(0.7, 3.0):.4g}")))
    return topology
