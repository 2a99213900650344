"""Turns the progress of streaming queries into reports on their micro-batches."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import count, pairwise, takewhile
from typing import Any, Protocol

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from streamshed.engines.spark.drops import ARRIVAL_QUANTILES, cell_count, observation

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class DropCounts:
    """What one drop did in one micro-batch.

    Attributes:
        arrived: tuples that came in.
        malformed: of these, not well-formed and kept out.
        kept: of these, let through.
        arrivals_s: when the kept tuples arrived: the first, quantiles as in `drops.ARRIVAL_QUANTILES`, the last; empty
            without arrival times, or if nothing was kept.
        cells: how many of the well-formed tuples that came in lie in each cell of values; empty if they are not told
            apart. What is missing from their number are values that no cell holds.
    """

    arrived: int
    malformed: int
    kept: int
    arrivals_s: tuple[float, ...] = ()
    cells: tuple[int, ...] = ()

    @property
    def dropped(self) -> int:
        """Tuples that were shed."""
        return self.arrived - self.malformed - self.kept

    def delay_s(self, quantile: float, end_s: float) -> float | None:
        """The delay within which this share of the kept tuples was done, if they were done at a time.

        >>> DropCounts(9, 0, 9, (1.0, 1.1, 1.2, 2.0, 3.0, 4.0, 4.8, 5.0)).delay_s(0.95, 6.0)
        4.8
        """
        if not self.arrivals_s:
            return None
        shares = (0.0, *ARRIVAL_QUANTILES, 1.0)
        wanted = 1.0 - quantile
        for low, high, first, last in zip(shares, shares[1:], self.arrivals_s, self.arrivals_s[1:], strict=False):
            if wanted <= high + 1e-12:
                return end_s - (first + (last - first) * (wanted - low) / (high - low))
        return end_s - self.arrivals_s[-1]

    def mean_delay_s(self, end_s: float) -> float | None:
        """The mean delay of the kept tuples, if they were done at a time, and arrived evenly between the quantiles.

        >>> DropCounts(9, 0, 9, (1.0, 1.1, 1.2, 2.0, 3.0, 4.0, 4.8, 5.0)).mean_delay_s(6.0)
        2.99...
        """
        if not self.arrivals_s:
            return None
        shares = (0.0, *ARRIVAL_QUANTILES, 1.0)
        parts = zip(pairwise(shares), pairwise(self.arrivals_s), strict=True)
        return end_s - sum((high - low) * (first + last) / 2 for (low, high), (first, last) in parts)


@dataclass(frozen=True)
class BatchReport:
    """A micro-batch that has ended.

    Attributes:
        query_id: of the query, the same after a restart from its checkpoint.
        run_id: of this run of it.
        query_name: the name its user gave, or None.
        batch_id: counted from 0.
        start_s: when the batch started, seconds since 1970.
        duration_s: how long it took.
        observed: all observations in it, by name.
        sources: Spark's report on each source: description, startOffset, endOffset, numInputRows.
        state_bytes: what its stateful operators keep in memory.
    """

    query_id: str
    run_id: str
    query_name: str | None
    batch_id: int
    start_s: float
    duration_s: float
    observed: Mapping[str, Mapping[str, Any]]
    sources: tuple[Mapping[str, Any], ...]
    state_bytes: int = 0

    @property
    def end_s(self) -> float:
        """When the batch ended."""
        return self.start_s + self.duration_s

    def counts(self, name: str) -> DropCounts | None:
        """What the drop with this observation name did; None if it was not run."""
        found = self.observed.get(observation(name))
        if found is None:
            return None
        return DropCounts(
            int(found["arrived"]), int(found.get("malformed", 0)), int(found["kept"]), _arrivals(found), _cells(found)
        )

    @classmethod
    def from_json(cls, text: str) -> BatchReport:
        """Read Spark's progress."""
        progress = json.loads(text)
        start = datetime.strptime(progress["timestamp"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        return cls(
            query_id=progress["id"],
            run_id=progress["runId"],
            query_name=progress.get("name"),
            batch_id=int(progress["batchId"]),
            start_s=start.timestamp(),
            duration_s=progress["durationMs"].get("triggerExecution", 0) / 1000,
            observed=progress.get("observedMetrics") or {},
            sources=tuple(progress.get("sources") or ()),
            state_bytes=sum(int(of.get("memoryUsedBytes", 0)) for of in progress.get("stateOperators") or ()),
        )


def _cells(found: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(found[name]) for name in takewhile(lambda name: name in found, map(cell_count, count())))


def _arrivals(found: Mapping[str, Any]) -> tuple[float, ...]:
    first, last = found.get("first"), found.get("last")
    if first is None or last is None:
        return ()
    # In a small batch no arrival may have been looked at.
    quantiles = found.get("quantiles") or [first + (last - first) * share for share in ARRIVAL_QUANTILES]
    return (first, *quantiles, last)


class Subscriber(Protocol):
    """Somebody who wants to know what queries do. The calls come from other threads and must return soon."""

    def on_start(self, query_id: str, run_id: str, query_name: str | None) -> None:
        """A query starts; it waits until this returns."""

    def on_batch(self, report: BatchReport) -> None:
        """A micro-batch with work in it has ended; the next one may be running already."""

    def on_end(self, query_id: str, run_id: str, error: str | None) -> None:
        """A query has ended, in good order or with an error."""


class _Callbacks(JStreamingQueryListener):
    """What Java calls.

    PySpark's own asks Java for every field of a progress report, one by one: hundreds of calls between two languages,
    and 0.2 s of processor time, for each micro-batch.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        """Fetch the report as one text."""
        self.pylistener.on_progress(jevent.progress().json())  # type: ignore[attr-defined]

    def onQueryIdle(self, jevent: Any) -> None:
        """Nobody wants to know."""


class Monitor(StreamingQueryListener):
    """The one listener of a session; passes on what it hears to all subscribers.

    An error in a subscriber is logged and does not reach the others, nor Spark.
    """

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()

    @staticmethod
    def of(spark: SparkSession) -> Monitor:
        """The monitor of a session, made and registered when it is first asked for."""
        monitor = getattr(spark, "_streamshed_monitor", None)
        if not isinstance(monitor, Monitor):
            monitor = Monitor()
            spark.streams.addListener(monitor)
            spark._streamshed_monitor = monitor  # type: ignore[attr-defined]
        return monitor

    def subscribe(self, subscriber: Subscriber) -> None:
        """Pass on events from now on."""
        with self._lock:
            self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop passing on events."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Spark calls this."""
        self._each(lambda to: to.on_start(str(event.id), str(event.runId), event.name))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark calls this, unless it calls `on_progress`."""
        self.on_progress(event.progress.json)

    def on_progress(self, text: str) -> None:
        """A batch has ended, of which this is Spark's report."""
        report = BatchReport.from_json(text)
        self._each(lambda to: to.on_batch(report))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Spark calls this."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Spark calls this."""
        self._each(lambda to: to.on_end(str(event.id), str(event.runId), event.exception))

    @cached_property
    def _jlistener(self) -> Any:
        """What Spark registers."""
        jvm: Any = SparkContext._jvm
        return jvm.PythonStreamingQueryListenerWrapper(_Callbacks(self))

    def _each(self, call: Callable[[Subscriber], None]) -> None:
        with self._lock:
            subscribers = list(self._subscribers)
        for subscriber in subscribers:
            try:
                call(subscriber)
            except Exception:
                _LOG.exception("a subscriber to streaming events failed")
