"""Keeps the ledger of the queries behind a gate: enters every batch, and finds and counts again what was lost."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from streamshed.engines.spark.checkpoint import BatchStart, CheckpointLog
from streamshed.engines.spark.control_line import ControlLine
from streamshed.engines.spark.drops import observation
from streamshed.engines.spark.ledger import Ledger, LedgerQuery, LedgerRow
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.engines.spark.recount import At, Recount, RecountError, recount

_LOG = logging.getLogger(__name__)

_REMOTE_POLL_S = 1.0  # how often to look into a checkpoint that is not on a local disk
_LONG_S = 6.0  # a batch that runs for longer is pinned: it may not have read the line yet


@dataclass(frozen=True)
class Drop:
    """A drop that has been put into a plan, or a place where tuples are only counted.

    Attributes:
        name: unique in the gate.
        index: its place on the control line; None where nothing is dropped.
        stream: whose tuples it drops.
        entry: whether all tuples of the stream pass here.
        salt: of its rank.
        source: whether all tuples of a source of the query pass here: a stream, or a durable arc.
        observed: the name of its observations.
        at: makes the same drop again with thresholds of its own; for counting again.
    """

    name: str
    index: int | None
    stream: str
    entry: bool
    salt: int
    source: bool
    observed: str
    at: At


class GatedQuery:
    """A query behind the gate.

    Attributes:
        query_id: the same after a restart.
        output: its name, or its id.
        drops: the names of its drops, in the order of its sources.
        plan_order: those of drops right behind sources, from left to right in its plan. A stream that is read in
            several places has its drop there as often, and as many lines in the offset log.
        log: of its checkpoint.
        handle: the query itself.
        replayed: the batch that an earlier run had begun and not committed, or None.
    """

    def __init__(self, query: StreamingQuery, drops: list[str], plan_order: list[str], log: CheckpointLog) -> None:
        self.query_id = str(query.id)
        self.run_id = str(query.runId)
        self.output = str(query.name or query.id)
        self.drops = drops
        self.plan_order = plan_order
        self.log = log
        self.handle = query
        started, committed = log.started(), log.committed()
        self.next_batch = committed[-1] + 1 if committed else 0
        self.replayed = started[-1] if started and started[-1] >= self.next_batch else None
        self._latest: BatchStart | None = None
        self._looked_s = 0.0

    def latest(self, time_s: float) -> BatchStart | None:
        """The batch that started last, over or not, as of a time."""
        if self.log.is_local or time_s - self._looked_s >= _REMOTE_POLL_S:
            self._looked_s = time_s
            self._latest = self.log.latest(self._latest.batch_id if self._latest else -1)
        return self._latest

    def has_tuples(self, batch: BatchStart) -> bool:
        """Whether a batch moves on in any source."""
        previous = self.log.batch(batch.batch_id - 1)
        return previous is None or previous.offsets != batch.offsets


class Accounts:
    """The accounts of all queries behind one control line.

    Args:
        spark: the session in which they run.
        line: knows the thresholds of every batch.
        drops: by name; may grow.
        lock: guards the line.
        recount: counts the tuples of a past batch again.
    """

    def __init__(
        self,
        spark: SparkSession,
        line: ControlLine,
        drops: Mapping[str, Drop],
        lock: threading.RLock,
        recount: Recount = recount,
    ) -> None:
        self.ledger = Ledger(line.directory / "ledger")
        self.queries: dict[str, GatedQuery] = {}
        self._spark, self._line, self._drops, self._lock = spark, line, drops, lock
        self._recount = recount
        self._settling = threading.Lock()
        self._known = self.ledger.queries()
        self._replayed: dict[str, int | None] = {}
        self._pinned: dict[str, BatchStart] = {}
        self._looked_s = -math.inf
        logs = {entry.query_id: CheckpointLog(spark, entry.checkpoint) for entry in self._known.values()}
        self._pin({query_id: (log, log.latest()) for query_id, log in logs.items()})

    def add(self, query: StreamingQuery) -> GatedQuery | None:
        """Take notice of a query; None if there is no drop of ours in its plan."""
        execution: Any = query._jsq.streamingQuery()
        plan = execution.analyzedPlan().toString()
        # A plan is printed from left to right, as its sources are numbered.
        places = sorted(
            (found.start(), name)
            for name, drop in self._drops.items()
            for found in re.finditer(re.escape(observation(drop.observed)), plan)
        )
        names = list(dict.fromkeys(name for _, name in places))
        if not names:
            return None
        plan_order = [name for _, name in places if self._drops[name].source]
        with self._lock:
            known = self.queries.get(str(query.id))
            if known is not None and known.run_id == str(query.runId):
                return known
            log = CheckpointLog(self._spark, str(execution.resolvedCheckpointRoot()))
            gated = GatedQuery(query, names, plan_order, log)
            if gated.query_id not in self._known:
                entry = LedgerQuery(gated.query_id, gated.output, gated.log.root, gated.next_batch, names)
                self.ledger.add_query(entry)
                self._known[gated.query_id] = entry
            self._pin({gated.query_id: (log, log.latest())})
            self._replayed[gated.run_id] = gated.replayed
            self.queries[gated.query_id] = gated
            return gated

    def enter(self, report: BatchReport) -> Mapping[str, DropCounts] | None:
        """Enter a batch that has ended; None if it is not ours, or has to be counted again."""
        gated = self.queries.get(report.query_id)
        batch = gated.log.batch(report.batch_id) if gated else None
        if gated is None or batch is None:
            return None
        with self._lock:
            pinned = self._pinned.get(gated.query_id)
            if pinned is not None and pinned.batch_id <= batch.batch_id:
                self._release(gated.query_id)
        found = {name: report.counts(self._drops[name].observed) for name in gated.drops}
        # A drop without counts: its source had nothing, and the optimiser took it out.
        counts = {name: of_drop or DropCounts(0, 0, 0) for name, of_drop in found.items()}
        # A report may come when the query has been restarted already, so the run that made it counts.
        is_replay = batch.batch_id == self._replayed.get(report.run_id)
        if is_replay and gated.has_tuples(batch) and not any(of_drop.arrived for of_drop in counts.values()):
            # The sink had this batch from the last run already, and did not run it again.
            self.ledger.open_batch(gated.query_id, batch.batch_id)
            return None
        sources = [
            {
                "description": source.get("description"),
                "start": source.get("startOffset"),
                "end": source.get("endOffset"),
            }
            for source in report.sources
        ]
        self.ledger.add(self._rows(gated, batch, counts, sources, run_id=report.run_id))
        return counts

    def keep(self, time_s: float) -> None:
        """Keep the thresholds of batches that run for long; to be called at least every few seconds."""
        if 0 <= time_s - self._looked_s < _LONG_S / 4:
            return
        self._looked_s = time_s
        with self._lock:
            found: dict[str, tuple[CheckpointLog, BatchStart | None]] = {}
            for gated in self.queries.values():
                batch = gated.latest(time_s) if gated.handle.isActive else None
                is_long = batch is not None and time_s - batch.time_ms / 1000 > _LONG_S
                if is_long or gated.query_id in self._pinned:
                    found[gated.query_id] = gated.log, batch
            self._pin(found)
            self._line.unread_since_ms = int((time_s - _LONG_S) * 1000)

    def running(self) -> list[int | None]:
        """For each query that runs, when the batch started that it is at work on; None if it is at work on none."""
        logs = [gated.log for gated in self.queries.values() if gated.handle.isActive]
        latest = [(log, log.latest()) for log in logs]
        return [None if batch is None or log.is_committed(batch.batch_id) else batch.time_ms for log, batch in latest]

    def settle(self) -> list[tuple[str, int]]:
        """Count again the batches that are over and of which there is no row; give those that are left.

        Takes a short Spark query for each, so it is nothing for a listener's thread.
        """
        with self._settling:
            left: list[tuple[str, int]] = []
            for gated in list(self.queries.values()):
                for batch_id in sorted(self.missing(gated)):
                    try:
                        self._settle(gated, batch_id)
                    except Exception as error:
                        _LOG.warning("batch %d of %s is still open: %s", batch_id, gated.output, error)
                        left.append((gated.query_id, batch_id))
                        with suppress(OSError):  # a disk that is full: the batch is missing as it was
                            self.ledger.open_batch(gated.query_id, batch_id)
            return left

    def wait(self, seconds: float) -> None:
        """Wait until all queries that have ended are in the ledger, or the time is over: reports come in late."""
        end = time.monotonic() + seconds
        ended = [gated for gated in self.queries.values() if not gated.handle.isActive]
        while any(self.missing(gated) for gated in ended) and time.monotonic() < end:
            time.sleep(0.02)

    def missing(self, gated: GatedQuery) -> set[int]:
        """The batches of a query that are over and have no row."""
        committed = gated.log.committed()
        # While the query runs, the report of the last batch may be on its way.
        over = committed[:-1] if gated.handle.isActive else committed
        return self.ledger.missing(gated.query_id, over[-1] + 1 if over else 0)

    def lacks(self, query_id: str, batch_id: int) -> bool:
        """Whether a batch ran under control and has no row."""
        return batch_id >= self._known[query_id].first_batch and not self.ledger.has(query_id, batch_id)

    def accounted(self, gated: GatedQuery) -> int:
        """The last batch of a query up to which all are in the ledger; -1 if the first one is not."""
        batch_id = self._known[gated.query_id].first_batch
        while self.ledger.has(gated.query_id, batch_id):
            batch_id += 1
        return batch_id - 1

    # --- within ----------------------------------------------------------------------------------------------------

    def _pin(self, latest: Mapping[str, tuple[CheckpointLog, BatchStart | None]]) -> None:
        """The latest batch of a query may read its thresholds later, or again, if it is not over: keep them."""
        new: dict[str, BatchStart] = {}
        for query_id, (log, batch) in latest.items():
            if batch is None or log.is_committed(batch.batch_id):
                self._release(query_id)
            elif self._pinned.get(query_id) != batch:
                self._release(query_id)
                new[query_id] = batch
        self._line.pin(*(batch.time_ms for batch in new.values()))
        self._pinned |= new

    def _release(self, query_id: str) -> None:
        known = self._pinned.pop(query_id, None)
        if known is not None:
            self._line.release(known.time_ms)

    def _settle(self, gated: GatedQuery, batch_id: int) -> None:
        batch = gated.log.batch(batch_id)
        if batch is None:
            raise RecountError("the batch is no longer in the checkpoint", where=gated.output, got=batch_id)
        with self._lock:
            fractions, certain = self._line.at(batch.time_ms), self._line.is_certain(batch.time_ms)
        if not certain:
            raise RecountError("a change came too late to know what the batch obeyed", where=gated.output, got=batch_id)
        # Drops further in may lie behind state, which is gone; what entered is what has to balance.
        drops = [self._drops[name] for name in gated.drops if self._drops[name].source]
        counts = {drop.name: DropCounts(0, 0, 0) for drop in drops}
        if gated.has_tuples(batch):
            found = self._recount(
                gated.log,
                batch_id,
                {drop.observed: drop.at for drop in drops},
                fractions,
                [self._drops[name].observed for name in gated.plan_order],
            )
            counts = {drop.name: found[drop.observed] for drop in drops}
        previous = gated.log.batch(batch_id - 1)
        starts = previous.offsets if previous else (None,) * len(batch.offsets)
        sources = [{"start": start, "end": end} for start, end in zip(starts, batch.offsets, strict=True)]
        self.ledger.add(self._rows(gated, batch, counts, sources, run_id=gated.run_id, recounted=True))

    def _rows(
        self,
        gated: GatedQuery,
        batch: BatchStart,
        counts: Mapping[str, DropCounts],
        sources: Sequence[Mapping[str, Any]],
        *,
        run_id: str,
        recounted: bool = False,
    ) -> list[LedgerRow]:
        with self._lock:
            fractions = self._line.at(batch.time_ms)
        return [
            LedgerRow(
                query_id=gated.query_id,
                run_id=run_id,
                output=gated.output,
                batch_id=batch.batch_id,
                drop=name,
                stream=self._drops[name].stream,
                entry=self._drops[name].entry,
                time_ms=batch.time_ms,
                arrived=of_drop.arrived,
                delivered=of_drop.kept,
                dropped=of_drop.dropped,
                malformed=of_drop.malformed,
                fraction=0.0 if (index := self._drops[name].index) is None else fractions[index],
                salt=self._drops[name].salt,
                source=self._drops[name].source,
                sources=list(sources),
                recounted=recounted,
            )
            for name, of_drop in counts.items()
        ]
