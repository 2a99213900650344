"""Queries of three kinds that share a node or ten, overloaded.

The chapter that is reproduced here describes the shedder, not an evaluation, so the workload is our own, in the spirit
of monitoring a data centre: the mean of a measure over all machines (AVG, a union of four sources), the five busiest
machines with enough memory (TOP-5, a filter and a join of two sources), the covariance of two measures (COV, a join of
two sources), each over windows of a second. Queries differ in rate by up to four times and in cost per tuple by two.

Spread over nodes, a query has one to three parts with sources of their own, on different nodes; the node of the first
part also puts the results of the others together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from streamshed.engines.sim.federation import Federation, Source
from streamshed.engines.sim.fragments import Finish, Fragment, average, covariance, top_five
from streamshed.workload import ArrivalPattern, Constant

Placement = Literal["balanced", "random"]
"""Each part goes to the node with the least load so far, or to any node."""

MACHINES = 20
"""How many machines a TOP-5 query looks at."""


@dataclass(frozen=True)
class Kind:
    """A kind of query.

    Attributes:
        title: what it is called.
        finish: what its parts do with a window.
        merge: what is done with the results of its parts.
        sides: on which side each source of a part comes in.
        at_least: the filters of the sides.
        cost: processing time of a tuple, in units.
        keys: of its sources.
        kinship: of its sources.
    """

    title: str
    finish: Finish
    merge: Finish
    sides: tuple[int, ...]
    at_least: tuple[float | None, ...]
    cost: float
    keys: int = 0
    kinship: float = 0.0


KINDS = (
    Kind("AVG", average, average, (0, 0, 0, 0), (None,), 1.0),
    Kind("TOP-5", top_five, top_five, (0, 1), (None, 20.0), 2.0, keys=MACHINES, kinship=0.8),
    Kind("COV", covariance, average, (0, 1), (None, None), 1.5, kinship=0.5),
)

COST_UNIT_S = 1e-4
LOWEST_TPS, HIGHEST_TPS = 40.0, 160.0
MERGE_COST = 1.0


@dataclass(frozen=True)
class Workload:
    """What to build a federation from.

    Attributes:
        queries: how many, of all kinds in turn.
        nodes: how many.
        overload: the load over the capacity of all nodes together.
        parts: the largest number of parts of a query; each has one at least.
        placement: how parts get to their nodes.
        pattern: when a source of a mean rate sends, given a seed for what is random about it.
    """

    queries: int = 60
    nodes: int = 1
    overload: float = 2.0
    parts: int = 3
    placement: Placement = "balanced"
    pattern: Callable[[float, int], ArrivalPattern] = lambda rate_tps, _: Constant(rate_tps)


def build(workload: Workload, seed: int) -> Federation:
    """Draw a federation."""
    random = np.random.default_rng([seed, 3])
    names = [f"node-{number}" for number in range(workload.nodes)]
    loads = dict.fromkeys(names, 0.0)
    fragments: list[Fragment] = []
    sources: list[Source] = []
    for query in range(workload.queries):
        kind = KINDS[query % len(KINDS)]
        rate_tps = float(LOWEST_TPS * (HIGHEST_TPS / LOWEST_TPS) ** random.random())
        parts = int(random.integers(1, min(workload.parts, workload.nodes) + 1))
        shuffled = [names[i] for i in random.permutation(workload.nodes)]
        if workload.placement == "balanced":
            shuffled.sort(key=lambda name: loads[name])
        cost_s = kind.cost * COST_UNIT_S
        merge = len(fragments) + parts if parts > 1 else None
        for name in shuffled[:parts]:
            fragment = Fragment(query, name, cost_s, kind.finish, kind.at_least, merge)
            for side in kind.sides:
                pattern = workload.pattern(rate_tps, int(random.integers(1 << 30)))
                sources.append(Source(len(fragments), pattern, side, kind.keys, kind.kinship))
                loads[name] += cost_s * rate_tps
            fragments.append(fragment)
        if merge is not None:
            fragments.append(Fragment(query, shuffled[0], MERGE_COST * COST_UNIT_S, kind.merge))
    speed = sum(loads.values()) / workload.nodes / workload.overload
    return Federation(fragments, sources, dict.fromkeys(names, speed))


def with_overload(federation: Federation, overload: float) -> Federation:
    """The same federation with another capacity, the same on every node."""
    total = sum(federation.load(60.0).values())
    return replace(federation, speeds=dict.fromkeys(federation.speeds, total / len(federation.speeds) / overload))
