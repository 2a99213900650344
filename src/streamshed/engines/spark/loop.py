"""Ties a controller to a running query: finished batches in, and at any time the admission of the next one out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from streamshed.control import BatchAdmission, LoadSample, Outlook, OutOfReach, PlantController
from streamshed.engines.spark.accounts import GatedQuery
from streamshed.engines.spark.cost_memory import CostMemory
from streamshed.engines.spark.monitor import BatchReport, DropCounts

Waiting = Callable[[str | None, float], float]
"""How many tuples wait at a source: given up to where it has been read (an offset as JSON) and the time."""

_RATE_MEMORY = 0.5
_IDLE = "Waiting for data to arrive"  # Spark's status of a query with nothing to do


def batch_sample(report: BatchReport, entries: Sequence[DropCounts], kept: int) -> LoadSample:
    """A batch as a controller sees it.

    Args:
        report: the batch.
        entries: what the drops did through which its tuples came in.
        kept: how many tuples it processed.
    """

    def delay_s(quantile: float) -> float | None:
        delays = [entry.delay_s(quantile, report.end_s) for entry in entries]
        return max((delay for delay in delays if delay is not None), default=None)

    return LoadSample(
        time_s=report.end_s,
        duration_s=report.duration_s,
        arrived=sum(entry.arrived - entry.malformed for entry in entries),
        kept=kept,
        delay_p50_s=delay_s(0.5),
        delay_p95_s=delay_s(0.95),
        delay_p99_s=delay_s(0.99),
        delay_max_s=delay_s(1.0),
    )


def tell_reach(log: logging.Logger, name: str, before: OutOfReach | None, now: OutOfReach | None) -> None:
    """Say so when a target has gone out of reach, or has come back."""
    if now is not None and before is None:
        log.warning("%s: %s. Only what is too much for the machine is dropped.", name, now)
    elif now is None and before is not None:
        log.warning("%s: the target of %g s can be held again", name, before.target_s)


class BatchLoop:
    """The control loop around one query: learns from its batches, and says what the next one may keep.

    Attributes:
        gated: the query.
        controller: decides.
        sample: the latest batch, if there was one.
        memory: knows the costs of the last run.
    """

    def __init__(self, gated: GatedQuery, controller: PlantController, memory: CostMemory) -> None:
        self.gated = gated
        self.controller = controller
        self.memory = memory
        memory.recall(controller)
        self.sample: LoadSample | None = None
        self._rate_tps = 0.0
        self._previous_ms: int | None = None

    def learn(self, report: BatchReport, counts: Mapping[str, DropCounts]) -> LoadSample:
        """Take in a batch that has ended."""
        self.sample = batch_sample(report, list(counts.values()), sum(of_drop.kept for of_drop in counts.values()))
        self.controller.observe(self.sample)
        self.memory.keep(self.controller, self.sample)
        batch = self.gated.log.batch(report.batch_id)
        if batch is not None:
            if self._previous_ms is not None and batch.time_ms > self._previous_ms:
                rate_tps = self.sample.arrived / (batch.time_ms - self._previous_ms) * 1000
                self._rate_tps += _RATE_MEMORY * (rate_tps - self._rate_tps) if self._rate_tps else rate_tps
            self._previous_ms = batch.time_ms
        return self.sample

    def admission(self, time_s: float, waiting: Mapping[str, Waiting]) -> BatchAdmission:
        """What a batch may keep that starts now."""
        batch = self.gated.latest(time_s)
        if batch is None or not self.gated.handle.isActive:
            return BatchAdmission(1.0)
        since_s = max(time_s - batch.time_ms / 1000, 0.0)
        told = [self._told(name, waiting[name], batch.offsets, time_s) for name in self.gated.drops if name in waiting]
        if told:
            # Streams that cannot tell are taken to have as much waiting as those that can.
            number = sum(told) / len(told) * len(self.gated.drops)
        elif self.gated.log.is_committed(batch.batch_id) and self.gated.handle.status["message"] == _IDLE:
            number = 0.0
        else:
            number = self._rate_tps * since_s
        return self.controller.admit(Outlook(time_s, number, since_s, max(since_s, 1e-3)))

    def _told(self, name: str, waiting: Waiting, offsets: Sequence[str | None], time_s: float) -> float:
        source = self.gated.plan_order.index(name)
        return float(waiting(offsets[source] if source < len(offsets) else None, time_s))
