"""Random query networks of any size, for measurements."""

from __future__ import annotations

import random

from streamshed.network import Flow, Network, NetworkBuilder, Statistics
from streamshed.qos import Histogram, LossGraph, Qos


def random_network(
    queries: int,
    operators_per_query: int,
    streams: int,
    seed: int,
    *,
    sharing: float = 0.3,
    union_share: float = 0.1,
    join_share: float = 0.05,
) -> tuple[Network, Statistics, dict[str, float]]:
    """Queries of filters, unions and joins over common streams.

    `sharing` is the chance that a query starts from an operator of an earlier query instead of from a stream, so that
    part of its work is shared. Queries stay near one stream, as those of one application do, and reach for another
    one only in unions and joins.
    """
    rng = random.Random(seed)
    new = NetworkBuilder(f"random-{seed}")
    columns = {"ts": "timestamp", "k": "bigint", "value": "double"}
    entries: dict[int, Flow] = {}
    shareable: dict[int, list[Flow]] = {}
    costs: dict[str, float] = {}
    selectivities: dict[str, float] = {}

    def entry(index: int) -> Flow:
        if index not in entries:
            entries[index] = new.stream(f"s{index}", columns, time="ts")
            shareable[index] = [entries[index]]
        return entries[index]

    def another(index: int) -> Flow:
        return entry((index + rng.randrange(1, streams)) % streams)

    def measured(flow: Flow, cost: float, selectivity: float) -> Flow:
        costs[flow.reference], selectivities[flow.reference] = cost, selectivity
        return flow

    for query in range(queries):
        home = rng.randrange(streams)
        flow = entry(home)
        if rng.random() < sharing:
            flow = rng.choice(shareable[home])
        position = 0
        while position < operators_per_query:
            name = f"q{query}_{position}"
            kind = rng.random()
            room = operators_per_query - position
            if kind < union_share and streams > 1:
                other = another(home).filter(f"{name}_in", "value > 10")
                flow = measured(flow.union(name, measured(other, rng.uniform(0.5, 2), 0.9)), rng.uniform(0.2, 0.5), 1.0)
            elif kind < union_share + join_share and streams > 1 and room >= 3:
                right = another(home).map(f"{name}_right", {"ts": "ts", "k": "k", f"other_{position}": "value"})
                joined = flow.join(f"{name}_join", measured(right, 0.2, 1.0), on=["k"], within_s=10)
                measured(joined, rng.uniform(1, 3), rng.uniform(0.2, 1.0))
                flow = joined.map(name, {"ts": "ts", "k": "k", "value": "value"})
                measured(flow, 0.2, 1.0)
                position += 2
            else:
                limit = rng.uniform(0, 40)
                flow = measured(flow.filter(name, f"value > {limit:.2f}"), rng.uniform(0.5, 2), 1 - limit / 100)
                if position < operators_per_query // 2:
                    shareable[home].append(flow)
            position += 1
        knee = rng.uniform(0.2, 0.8)
        height = rng.uniform(knee, 1.0)
        flow.output(f"o{query}", Qos(loss=LossGraph.of([(0, 0), (knee, height), (1, 1)]), weight=rng.uniform(0.5, 2)))
    network = new.build()
    rates = {stream.id: rng.uniform(50, 150) for stream in network.streams}
    histograms = {stream.id: {"value": Histogram.uniform(0, 100)} for stream in network.streams}
    return network, Statistics(costs, selectivities, histograms), rates
