"""SIC, source information content: how much of what its sources sent is in a query's result.

A query over |S| sources that sent N_s tuples each within the source time window gives each of those tuples the SIC
1 / (|S|·N_s), so that all of them together are worth 1. Operators hand SIC on and lose none of it: what goes into one
step of an operator is divided among what comes out of it. A step without output (a filter that rejects a tuple, a join
without a partner, a window that nothing passes) has *used* its input. So a query's result has the SIC 1 unless tuples
were dropped, whatever its operators do, and 1 less the share of the dropped ones otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamshed.errors import InvalidValueError


def source_sic(sources: ArrayLike, tuples_per_window: ArrayLike) -> NDArray[np.float64]:
    """The SIC of a source tuple: 1 / (|S|·N_s); 0 where nothing is sent.

    Args:
        sources: |S|, the number of sources of the query that send anything.
        tuples_per_window: N_s, how many tuples the source sends in a window.

    >>> source_sic(2, [100, 5, 0]).tolist()
    [0.005, 0.1, 0.0]
    """
    product = np.asarray(sources, dtype=np.float64) * np.asarray(tuples_per_window, dtype=np.float64)
    return np.divide(1.0, product, out=np.zeros_like(product), where=product > 0)


@dataclass(frozen=True)
class Derived:
    """What an operator made of its input.

    Attributes:
        sic: the SIC of every output tuple, in the order of the steps.
        used: the SIC of input that led to no output.
    """

    sic: NDArray[np.float64]
    used: float

    @property
    def total(self) -> float:
        """All of it: as much as went in."""
        return float(self.sic.sum()) + self.used


def derive(sic: ArrayLike, members: ArrayLike, steps: ArrayLike, outputs: ArrayLike) -> Derived:
    """Divide the SIC of an operator's input tuples among its output tuples.

    A *step* is what an operator does at once: a filter or map looks at one tuple, a tumbling aggregate at a window, a
    join at a pair. Which tuples take part in which steps is given as pairs. A tuple in several steps (sliding windows,
    a join with several partners) is divided equally among them; one in no step is used.

    Args:
        sic: of each input tuple.
        members: the input tuple of each pair, as an index.
        steps: the step of each pair, as an index.
        outputs: how many tuples each step puts out.

    Four tuples in two windows with one and two results, and a fifth that a filter rejects:

    >>> result = derive([0.2] * 5, members=[0, 1, 2, 3], steps=[0, 0, 1, 1], outputs=[1, 2])
    >>> result.sic.round(3).tolist(), round(result.used, 3), round(result.total, 3)
    ([0.4, 0.2, 0.2], 0.2, 1.0)
    """
    value = np.asarray(sic, dtype=np.float64)
    member = np.asarray(members, dtype=np.int64)
    step = np.asarray(steps, dtype=np.int64)
    count = np.asarray(outputs, dtype=np.int64)
    if member.shape != step.shape:
        raise InvalidValueError(
            "members and steps are no pairs", where="derived SIC", got=f"{member.size} and {step.size}"
        )
    parts = np.bincount(member, minlength=value.size)
    into = np.bincount(step, weights=value[member] / parts[member], minlength=count.size)
    each = np.divide(into, count, out=np.zeros_like(into), where=count > 0)
    used = float(into[count == 0].sum() + value[parts == 0].sum())
    return Derived(np.repeat(each, count), used)
