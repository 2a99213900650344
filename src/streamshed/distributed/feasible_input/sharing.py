"""Several parents of one node: each gets a share of its table, so that together they cannot ask for too much.

V is concave and V(0) ≥ 0, so α·V(r/α) + (1−α)·V(s/(1−α)) ≤ V(r + s): parents that keep within their shares are feasible
together, without talking to each other. Their child alone has to know them all, and agrees the shares with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from scipy.sparse import csc_array

from streamshed.distributed.feasible_input.exact import exact
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.linear import LinearProgram
from streamshed.errors import InvalidValueError


def table_share(table: FeasibleInputTable, inputs: Collection[str], share: float) -> FeasibleInputTable:
    """What one parent may count on: its inputs' columns, where the others send nothing, times its share."""
    if not 0 < share <= 1:
        raise InvalidValueError(
            "a share is out of range", where=f"table of {table.node!r}", got=share, expected="0 < share <= 1"
        )
    mine = [i for i, name in enumerate(table.inputs) if name in inputs]
    others = [i for i, name in enumerate(table.inputs) if name not in inputs]
    part = table.take(np.flatnonzero((table.counts[:, others] == 0).all(axis=1)))
    return replace(
        part,
        inputs=tuple(table.inputs[i] for i in mine),
        units=tuple(table.units[i] * exact(share) for i in mine),
        counts=part.counts[:, mine],
        scores=part.scores * share,
        flows=None,
        planless=None,
        max_error=table.max_error * share,
    )


def agreed_shares(
    table: FeasibleInputTable, demands_tps: Mapping[str, Mapping[str, float]], least: float = 0.01
) -> dict[str, float]:
    """The shares with which the parents' demands score most together; what is left over is divided evenly.

    α·V(d/α) is a mixture of the table's rows with weights that add up to α, so the best shares are a linear program.

    Args:
        table: the child's table, with the columns of all parents.
        demands_tps: for each parent the rates that it would send.
        least: what every parent gets at least, so that one that was silent can begin.
    """
    parents = list(demands_tps)
    rows, columns = len(table), len(table.inputs)
    matrix = np.zeros((len(parents) * columns + 1, len(parents) * rows))
    bounds = np.zeros(len(matrix))
    for p, parent in enumerate(parents):
        for i, name in enumerate(table.inputs):
            scale = max(float(table.rates[:, i].max()), 1e-300)
            matrix[p * columns + i, p * rows : (p + 1) * rows] = table.rates[:, i] / scale
            bounds[p * columns + i] = demands_tps[parent].get(name, 0.0) / scale
    matrix[-1] = 1.0
    bounds[-1] = 1.0
    worth = np.tile(table.scores, len(parents)) / max(float(np.abs(table.scores).max()), 1e-300)
    # A trifle against rows that bring nothing: their weight would be a share that others could use.
    found = LinearProgram(worth - 1e-9, csc_array(matrix)).solve(bounds)
    assert found is not None  # nothing at all is always possible
    weights = found.values.reshape(len(parents), rows).sum(axis=1)
    weights += max(1.0 - float(weights.sum()), 0.0) / len(parents)
    weights = np.maximum(weights, least)
    return dict(zip(parents, (float(weight) for weight in weights / weights.sum()), strict=True))
