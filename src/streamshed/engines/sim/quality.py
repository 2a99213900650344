"""What the queries of a federation got: SIC by window, as a coordinator and a report see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.fragments import Floats, Rows
from streamshed.planning.fair import Fairness


class Accounts:
    """SIC that was sent to each query and that came to its result, by the window in which its tuples were sent.

    Going by the time at which tuples came into being, not by the time of the result, compares like with like: how
    long an answer takes does not matter.

    Args:
        queries: how many there are.
        windows: how many windows the run has.
        span: how many of them make a source time window.
    """

    def __init__(self, queries: int, windows: int, span: int) -> None:
        self.span = span
        self.sent: Floats = np.zeros((windows + 1, queries))
        self.arrived: Floats = np.zeros((windows + 1, queries))

    def result_sic(self, last: int) -> Floats:
        """The share of what was sent that came to the result, by query, over a source time window; 1 if nothing was."""
        first = max(0, last - self.span + 1)
        sent = self.sent[first : last + 1].sum(axis=0)
        arrived = self.arrived[first : last + 1].sum(axis=0)
        share: Floats = np.divide(arrived, sent, out=np.ones_like(sent), where=sent > 0)
        return share

    def active(self, last: int) -> NDArray[np.bool_]:
        """Which queries were sent anything in that source time window."""
        sends: NDArray[np.bool_] = self.sent[max(0, last - self.span + 1) : last + 1].sum(axis=0) > 0
        return sends


@dataclass(frozen=True)
class FederationRun:
    """What came out of a run.

    Attributes:
        window_s: the length of a window; row k of everything by window is (k − 1, k] windows from the start.
        span: how many windows make a source time window.
        sent: SIC sent to each query, by window and query.
        arrived: SIC that came to its result, by window and query.
        closed: the last window of which all results are there.
        dropped_sic: SIC that shedders have dropped.
        lost_sic: SIC that was lost with nodes that failed.
        tuples: how many tuples sources have sent, shedders have dropped, failures have cost.
        decisions: how often a shedder had to choose.
        waits_s: how long the oldest batch had waited whenever a detector looked, by node.
        busy: the share of the time that each node was at work.
        messages: reports of coordinators that were sent, and those of them that were lost.
        results: by query, its results as (window, SIC, rows), if they were kept.
    """

    window_s: float
    span: int
    sent: Floats
    arrived: Floats
    closed: int
    dropped_sic: float
    lost_sic: float
    tuples: Mapping[str, int]
    decisions: int
    waits_s: Mapping[str, Floats]
    busy: Mapping[str, float]
    messages: tuple[int, int]
    results: Sequence[Sequence[tuple[int, float, Rows]]] = field(default_factory=tuple)

    def sic(self, last: int) -> Floats:
        """The result SIC of the queries that were sent anything in the source time window that ends with a window."""
        accounts = self._accounts()
        return accounts.result_sic(last)[accounts.active(last)]

    def fairness(self, first_s: float = 0.0) -> tuple[Fairness, ...]:
        """For every source time window that begins at a time or later, how even it was."""
        first = round(first_s / self.window_s) + self.span
        return tuple(Fairness.of(self.sic(last)) for last in range(first, self.closed + 1))

    def mean_sic(self, first_s: float = 0.0) -> Floats:
        """The result SIC of each query over the run from a time on; queries that were sent nothing are left out."""
        first = round(first_s / self.window_s) + 1
        sent = self.sent[first : self.closed + 1].sum(axis=0)
        share: Floats = self.arrived[first : self.closed + 1].sum(axis=0)[sent > 0] / sent[sent > 0]
        return share

    def _accounts(self) -> Accounts:
        accounts = Accounts(self.sent.shape[1], 0, self.span)
        accounts.sent, accounts.arrived = self.sent, self.arrived
        return accounts
