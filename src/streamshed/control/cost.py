"""What a micro-batch costs: D = a + c_r·N + c_p·n, identified while it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from streamshed.errors import InvalidValueError

_READ_SHARE = 0.1  # believed of c_r / c_p until drops tell the two apart
_PRIOR_WEIGHT = 0.02  # of that belief, against the weight of one batch
_OUTLIER = 3.0  # standard deviations
_SAME_SIDE = 3  # so many surprises in a row are a change, not outliers
_DOUBT = 2.0  # standard errors


@dataclass(frozen=True)
class BatchCost:
    """The cost model of a micro-batch.

    Attributes:
        fixed_s: a, of any batch, however small.
        read_s: c_r, of a tuple that is read and perhaps dropped.
        process_s: c_p, of a tuple that is kept, on top of reading it.
        error_s: the standard deviation of a batch's duration from what the model says.
        usual: n of the batches that the model comes from, on average.
        doubt_s: so much more a tuple may cost beyond those; large where all batches were of one size.
        fixed_doubt_s: so much longer an empty batch may take; large where all batches were of one size.

    >>> cost = BatchCost(0.1, 1e-6, 1e-5, usual=1_000, doubt_s=3e-5)
    >>> cost.duration_s(10_000, 5_000), cost.at_most_s(10_000, 5_000)
    (0.16, 0.28)
    >>> round(cost.affordable(10_000, 0.28)), round(cost.affordable(10_000, 0.115))
    (5000, 500)
    """

    fixed_s: float
    read_s: float
    process_s: float
    error_s: float = 0.0
    usual: float = 0.0
    doubt_s: float = 0.0
    fixed_doubt_s: float = 0.0

    def duration_s(self, arrived: float, kept: float) -> float:
        """How long a batch takes that reads some tuples and keeps some of them."""
        return self.fixed_s + self.read_s * arrived + self.process_s * kept

    def at_most_s(self, arrived: float, kept: float, known: float = 1.0) -> float:
        """How long it surely takes no longer than; up to `known` times the usual number of tuples there is no doubt."""
        return self.duration_s(arrived, kept) + self.doubt_s * max(kept - known * self.usual, 0.0)

    def affordable(self, arrived: float, duration_s: float) -> float:
        """How many of the tuples can be kept so that the batch surely takes no longer."""
        left_s = duration_s - self.fixed_s - self.read_s * arrived
        tuple_s = self.process_s
        if left_s > tuple_s * self.usual:  # beyond the usual
            left_s += self.doubt_s * self.usual
            tuple_s += self.doubt_s
        if tuple_s <= 0:
            return arrived if left_s >= 0 else 0.0
        return min(max(left_s / tuple_s, 0.0), arrived)


class CostEstimator:
    """Recursive least squares with forgetting, in information form, over the observed batches.

    With φ = (1, N, n) each batch adds λ-discounted φφᵀ to the information matrix and φD to the information vector; the
    coefficients are the non-negative least-squares solution. Four things keep it sound:

    - As long as nothing is dropped, N = n and the data cannot tell reading from processing. A weak belief
      (c_r = 0.1·c_p) decides, until drops bring variation. It loses against two or three batches that do.
    - The first batches (compilation, cold caches) are left out.
    - A batch more than three standard deviations off counts as much less as it is further off; three in a row on the
      same side count fully, because then the plant has changed.
    - Batches at a steady rate are all of one size, so that their durations hardly tell a fixed cost from one per tuple:
      then the coefficients are right together, for such batches, but not one by one. What this leaves open is given
      as a doubt, so that nobody takes a batch many times larger for as cheap as those.

    Args:
        forgetting: λ; 0.9 looks back over about 10 batches.
        warmup: how many batches are left out at the start.

    >>> estimator = CostEstimator(warmup=0)
    >>> for arrived, kept in [(1000, 1000), (3000, 3000), (9000, 2000), (5000, 4000), (8000, 1000)]:
    ...     estimator.observe(arrived, kept, 0.2 + 1e-5 * arrived + 1e-4 * kept)
    >>> cost = estimator.cost
    >>> round(cost.fixed_s, 2), round(cost.read_s * 1e5, 1), round(cost.process_s * 1e4, 1)
    (0.2, 1.0, 1.0)
    """

    def __init__(self, forgetting: float = 0.9, warmup: int = 2) -> None:
        if not 0 < forgetting <= 1:
            raise InvalidValueError(
                "not a forgetting factor", where="cost estimator", got=forgetting, expected="0 < λ <= 1"
            )
        self._forgetting = forgetting
        self._skip = warmup
        self._information: NDArray[np.float64] = np.zeros((4, 4))  # of (1, N, n, D) with itself
        self._variance = 0.0
        self._surprises = 0
        self._cost: BatchCost | None = None
        self.batches = 0

    @property
    def cost(self) -> BatchCost | None:
        """What the batches say so far; None before there are two to learn from."""
        return self._cost if self.batches >= 2 else None

    def observe(self, arrived: float, kept: float, duration_s: float) -> None:
        """Learn from a finished batch. Batches without tuples say nothing about the cost of work and are left out."""
        if arrived <= 0 or not (math.isfinite(duration_s) and duration_s > 0):
            return
        if self._skip > 0:
            self._skip -= 1
            return
        weight = self._weigh(arrived, kept, duration_s)
        row = np.array([1.0, arrived, kept, duration_s])
        self._information = self._forgetting * self._information + weight * np.outer(row, row)
        self.batches += 1
        self._cost = self._solve()

    def believe(self, cost: BatchCost, arrived: float) -> None:
        """Begin with what another run has found out, as a few batches would tell it; warming up comes after that.

        Args:
            cost: what it found.
            arrived: tuples of a typical batch.
        """
        skip, self._skip = self._skip, 0
        for size in (0.5, 1.0, 1.5):
            for keep in (1.0, 0.5):
                tuples = size * arrived
                self.observe(tuples, keep * tuples, cost.duration_s(tuples, keep * tuples))
        self._variance = cost.error_s**2
        self._skip = skip

    def _weigh(self, arrived: float, kept: float, duration_s: float) -> float:
        if self._cost is None or self.batches < 2:
            return 1.0
        foreseen_s = self._cost.duration_s(arrived, kept)
        error_s = duration_s - foreseen_s
        off = abs(error_s) / self._spread_s(foreseen_s)
        surprising = off > _OUTLIER
        side = int(math.copysign(1, error_s))
        self._surprises = (self._surprises if self._surprises * side > 0 else 0) + side if surprising else 0
        weight = 1.0
        if surprising and abs(self._surprises) < _SAME_SIDE:
            weight = (_OUTLIER / off) ** 2
            error_s *= _OUTLIER / off
        self._variance += (1 - self._forgetting) * 2 * (error_s**2 - self._variance)
        return weight

    def _solve(self) -> BatchCost:
        # Tuples are counted in units of a typical batch, so that all coefficients are of one size (seconds).
        count, squares = self._information[0, 0], self._information[1, 1]
        unit = math.sqrt(squares / count)
        scale = np.diag([1.0, 1 / unit, 1 / unit, 1.0])
        scaled = scale @ self._information @ scale
        gram, moment = scaled[:3, :3].copy(), scaled[:3, 3]
        belief = np.array([0.0, 1.0, -_READ_SHARE])
        gram += _PRIOR_WEIGHT * np.outer(belief, belief)
        # A fixed cost that the data leave open (all batches of one size) is taken to be small.
        gram[0, 0] += 1e-4 * count
        values, vectors = np.linalg.eigh(gram)
        root = np.sqrt(np.maximum(values, 1e-12))
        design = (vectors * root).T
        target = (vectors / root).T @ moment
        fixed_s, read_s, process_s = nnls(design, target)[0]
        cost = BatchCost(float(fixed_s), float(read_s / unit), float(process_s / unit), math.sqrt(self._variance))
        deviation_s = self._spread_s(float(self._information[0, 3] / count))
        return replace(
            cost,
            usual=float(self._information[0, 2] / count),
            doubt_s=self._doubt_s(cost.process_s),
            fixed_doubt_s=_DOUBT * deviation_s * math.sqrt(float(np.linalg.inv(gram)[0, 0])),
        )

    def _doubt_s(self, process_s: float) -> float:
        """Two standard errors of the cost per kept tuple; at most what is missing if no cost were fixed."""
        count, kept, squares, took_s = (float(self._information[i, j]) for i, j in ((0, 0), (0, 2), (2, 2), (0, 3)))
        if kept <= 0:
            return 0.0
        spread = math.sqrt(max(squares - kept**2 / count, 0.0))
        error_s = self._spread_s(took_s / count)
        most_s = max(took_s / kept - process_s, 0.0)
        return min(_DOUBT * error_s / spread, most_s) if spread > 0 else most_s

    def _spread_s(self, foreseen_s: float) -> float:
        """The deviation to reckon with: a model that has fitted its few points perfectly is not perfect for others."""
        return max(math.sqrt(self._variance), 0.05 * foreseen_s, 1e-3)
