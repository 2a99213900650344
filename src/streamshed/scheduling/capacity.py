"""From a network and what is known about it to what strategies work on: steps with costs, shares and sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamshed.load import out_selectivity
from streamshed.network import Join, Network, Output, Statistics
from streamshed.network.paths import Path, queries
from streamshed.scheduling.base import Job, Step

LEAF_WEIGHT, JOIN_WEIGHT = 2.0, 2.0
"""In a weighted round: operators close to the sources and joins get more time (the thesis's two examples)."""

_BYTES = {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "integer": 4, "float": 4, "date": 4}
_TEXT_BYTES, _OTHER_BYTES = 20, 8


def tuple_bytes(columns: Mapping[str, str | None]) -> float:
    """The size of a tuple, from the types of its columns: what it takes in memory, without any overhead.

    >>> tuple_bytes({"at": "timestamp", "lane": "int", "car": "string", "unknown": None})
    40.0
    """
    return float(sum(_column_bytes(kind) for kind in columns.values()))


def _column_bytes(kind: str | None) -> int:
    name = re.match(r"\w*", (kind or "").strip().lower())
    base = name[0] if name else ""
    return _TEXT_BYTES if base in ("string", "varchar", "char", "binary") else _BYTES.get(base, _OTHER_BYTES)


def jobs(network: Network, statistics: Statistics, sizes: Mapping[str, float] | None = None) -> tuple[Job, ...]:
    """The queries of a network, ready to be scheduled operator by operator.

    Args:
        network: the network.
        statistics: costs and selectivities.
        sizes: bytes of a tuple that a stream or operator hands on, where measured; else from the types of its columns.
    """
    known = arc_bytes(network, sizes)
    return tuple(
        Job(query.id, tuple(_steps(network, statistics, path, known) for path in query.paths))
        for query in queries(network)
    )


def arc_bytes(network: Network, sizes: Mapping[str, float] | None = None) -> dict[str, float]:
    """The size of a tuple on each arc."""
    given = sizes or {}
    return {
        arc.id: given.get(origin) or tuple_bytes(network.schemas[origin].columns)
        for arc in network.arcs
        for origin in (arc.source or arc.target,)
    }


def _steps(network: Network, statistics: Statistics, path: Path, sizes: Mapping[str, float]) -> tuple[Step, ...]:
    found = []
    for i, (arc, onward) in enumerate(zip(path.arcs, (*path.arcs[1:], path.last), strict=True)):
        is_join = isinstance(network.nodes[arc.target], Join)
        leaves = isinstance(network.nodes[onward.target], Output)
        found.append(
            Step(
                arc.id,
                arc.target,
                statistics.cost(arc.target),
                out_selectivity(statistics, onward),
                sizes[arc.id],
                0.0 if leaves else sizes[onward.id],
                (LEAF_WEIGHT if i == 0 else 1.0) * (JOIN_WEIGHT if is_join else 1.0),
            )
        )
    return tuple(found)
