"""The linear program that is kept between questions, against scipy's, which begins anew with each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import csc_array

from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.linear import Floats, LinearProgram, Mixtures
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Throughput
from streamshed.distributed.tables import build_tables
from streamshed.errors import StreamshedError
from streamshed.experiments.random_trees import random_tree

CLOSE = 1e-7


def by_scipy(worth: Floats, matrix: Floats, bounds: Floats, widths: Floats | None = None) -> Any:
    solve: Any = linprog
    sides = np.column_stack([np.zeros(len(worth)), np.full(len(worth), np.inf) if widths is None else widths])
    return solve(-worth, A_ub=matrix, b_ub=bounds, bounds=sides, method="highs-ds")


@settings(max_examples=16, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 8), columns=st.integers(1, 12))
def test_the_same_optimum_as_scipy_question_after_question(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-0.3, 1.0, (rows, columns)) * (rng.random((rows, columns)) < 0.6)
    worth, widths = rng.uniform(-0.2, 1.0, columns), rng.uniform(0.1, 3.0, columns)
    program = LinearProgram(worth, csc_array(matrix), widths)
    for _ in range(6):
        bounds = rng.uniform(-0.2, 2.0, rows)
        found, wanted = program.solve(bounds), by_scipy(worth, matrix, bounds, widths)
        assert (found is None) == (wanted.status == 2)
        if found is None:
            continue
        assert worth @ found.values == pytest.approx(-wanted.fun, abs=CLOSE)
        assert (matrix @ found.values <= bounds + CLOSE).all()
        assert (found.values <= widths + CLOSE).all()
        # Prices and what columns are worth beyond them add up to the optimum: a proof of it, whichever solver it is.
        beyond = np.maximum(worth - found.prices @ matrix, 0.0)
        assert found.prices @ bounds + beyond @ widths == pytest.approx(-wanted.fun, abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 4))
def test_mixtures_that_get_more_rows_are_those_of_all_rows(seed: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 5, (7, columns)) * rng.uniform(1.0, 100.0, columns)
    worth = np.sort(rng.uniform(0.1, 1.0, 7))[::-1].copy()
    mixtures = Mixtures(rows[:1], worth[:1], rows.max(axis=0))
    for known in range(1, 8):
        limits = rng.uniform(0.0, 1.0, columns) * rows.max(axis=0)
        weights = mixtures.best(limits)
        assert weights is not None
        matrix = np.vstack([rows[:known].T, np.ones(known)])
        wanted = by_scipy(worth[:known], matrix, np.append(limits, 1.0))
        assert weights @ worth[:known] == pytest.approx(-wanted.fun, abs=CLOSE)
        if known < 7:
            mixtures.add(rows[known], float(worth[known]))


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_has_the_score_that_scipy_finds(seed: int) -> None:
    """The whole program of a tree, rate after rate, and that of its root with its children's tables."""
    tree = random_tree(2 + seed, seed, most_inputs=3)
    topology, score = tree.topology, Throughput()
    tables = build_tables(topology, score, MaxError(0.5))
    root = topology.node[topology.upstream_first[0]]
    for program in (
        FlowProgram(topology.nodes, score, scale_tps=100.0),
        FlowProgram((root,), score, [tables[child] for child in topology.children[root.name]], 100.0),
    ):
        matrix = csc_array(
            (program._entries, (program._rows, program._places)), shape=(len(program._bounds), len(program._worth))
        ).toarray()
        worth = np.array(program._worth)
        worth[: len(program._columns)] = -1e-6 * program._unit
        for share in (1.0, 0.3, 2.0, 0.0, 0.7):
            rates = {name: share * rate for name, rate in tree.rates_tps.items()}
            bounds = np.array(program._bounds)
            for name, places in program._entry_rows.items():
                bounds[places] = rates[name] / 100.0
            wanted = by_scipy(worth / program._unit, matrix, bounds, np.array(program._width))
            found = program.solve(rates)
            scored = worth.copy()
            scored[: len(program._columns)] = 0.0
            assert found.score == pytest.approx(float(scored @ wanted.x), rel=1e-6, abs=1e-6)


def test_what_has_no_bound_is_an_error() -> None:
    with pytest.raises(StreamshedError, match="no solution"):
        LinearProgram(np.array([1.0]), csc_array(np.array([[-1.0]]))).solve(np.array([1.0]))
