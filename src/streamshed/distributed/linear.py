"""A linear program that is built once and solved for many bounds.

Making tables is solving thousands of small programs that differ in a few bounds only. HiGHS is asked directly, and the
program is handed over once. Through scipy, question by question, most of the time goes into getting there.

Every question is answered from scratch, so that an answer does not depend on those before. To go on from the last basis
would be faster still, but where there are several optima the answer may then be another one, and an earlier search for
corners has been seen not to end.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from streamshed.errors import StreamshedError

Floats = NDArray[np.float64]

_LEAST = 1e-300


@dataclass(frozen=True)
class Optimum:
    """The best there is.

    Attributes:
        values: of the columns.
        prices: what one more unit of each bound would add; not negative.
    """

    values: Floats
    prices: Floats


class LinearProgram:
    """Maximise worth·x, where matrix·x ≤ bounds and 0 ≤ x ≤ widths. Safe to use from several threads.

    Args:
        worth: of a unit of each column.
        matrix: a row for each bound.
        widths: the most of each column; any amount where not given.

    >>> program = LinearProgram(np.array([2.0, 1.0]), csc_array(np.array([[1.0, 1.0]])), np.array([1.0, np.inf]))
    >>> found = program.solve(np.array([3.0]))
    >>> found.values.tolist(), found.prices.tolist()
    ([1.0, 2.0], [1.0])
    """

    def __init__(self, worth: Floats, matrix: csc_array, widths: Floats | None = None) -> None:
        rows, columns = matrix.shape
        matrix.sum_duplicates()
        model: Any = highspy.HighsLp()
        model.num_row_, model.num_col_ = rows, columns
        model.col_cost_ = -worth
        model.col_lower_ = np.zeros(columns)
        model.col_upper_ = np.full(columns, np.inf) if widths is None else widths
        model.row_lower_ = self._lowest = np.full(rows, -np.inf)
        model.row_upper_ = np.zeros(rows)
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.num_row_, model.a_matrix_.num_col_ = rows, columns
        model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
        model.a_matrix_.value_ = matrix.data
        self._rows = np.arange(rows, dtype=np.int32)
        self._columns = np.arange(columns, dtype=np.int32)
        self._lock = threading.Lock()
        make: Any = highspy.Highs  # its stubs leave out some of its methods, and types
        self._solver = make()
        for option, value in (("output_flag", False), ("threads", 1), ("solver", "simplex")):
            self._solver.setOptionValue(option, value)
        if self._solver.passModel(model) == highspy.HighsStatus.kError:
            raise StreamshedError("the solver refuses the program", where="linear program", got=matrix.shape)

    def add_column(self, worth: float, entries: Floats) -> None:
        """One more column, with an entry for each bound."""
        with self._lock:
            self._solver.addCol(-worth, 0.0, np.inf, len(entries), self._rows, entries)

    def solve(self, bounds: Floats, worth: Floats | None = None) -> Optimum | None:
        """The best within these bounds; None if nothing is. Another worth than before counts from now on."""
        with self._lock:
            solver = self._solver
            if worth is not None:
                solver.changeColsCost(len(worth), self._columns[: len(worth)], -worth)
            solver.changeRowsBounds(len(bounds), self._rows, self._lowest, bounds)
            solver.clearSolver()
            solver.run()
            status = solver.getModelStatus()
            if status == highspy.HighsModelStatus.kInfeasible:
                return None
            if status != highspy.HighsModelStatus.kOptimal:
                raise StreamshedError(
                    "the linear program has no solution", where="linear program", got=solver.modelStatusToString(status)
                )
            found = solver.getSolution()
            values, duals = np.array(found.col_value), np.array(found.row_dual)
        return Optimum(np.maximum(values, 0.0), np.maximum(-duals, 0.0))


class Mixtures:
    """Mixtures of rows: with weights that are at most 1 together.

    Args:
        rows: what is mixed.
        worth: of each row.
        scale: the order of magnitude of each column; that of these rows where not given.
    """

    def __init__(self, rows: Floats, worth: Floats, scale: Floats | None = None) -> None:
        self._scale = np.maximum(np.abs(rows if scale is None else scale[None]).max(axis=0, initial=0.0), _LEAST)
        self._unit = max(float(np.abs(worth).max(initial=0.0)), _LEAST)
        matrix = np.vstack([(rows / self._scale).T, np.ones(len(rows))])
        self._program = LinearProgram(worth / self._unit, csc_array(matrix))

    def add(self, row: Floats, worth: float) -> None:
        """One more row."""
        self._program.add_column(worth / self._unit, np.append(row / self._scale, 1.0))

    def best(self, limits: Floats) -> Floats | None:
        """The weights of the mixture within these limits that is worth most; None if there is none."""
        found = self._program.solve(np.append(limits / self._scale, 1.0))
        return None if found is None else found.values
