"""A stage that runs: one streaming query, what it reads and writes, how much waits for it, what its batches took."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from streamshed.distributed.arc_files import Inbox, batch_number
from streamshed.engines.spark.accounts import GatedQuery
from streamshed.engines.spark.arc_queue import ArcQueue
from streamshed.engines.spark.arcs import ArcBatch
from streamshed.engines.spark.checkpoint import CheckpointLog
from streamshed.engines.spark.failures import SparkFailure, query_failure
from streamshed.engines.spark.fused import Sinks
from streamshed.engines.spark.passes import Pass, follow
from streamshed.engines.spark.turns import TurnGivenUp
from streamshed.network.stages import Stage

_OPENING = ("Initializing sources", "Initializing StreamExecution")
_OPENING_POLL_S = 0.02

Turn = Callable[["RunningStage"], AbstractContextManager[object]]
"""What a stage's batch runs in: entered before the batch is computed, left when its rows are where they belong. Whoever
schedules stages waits in there until it is the stage's turn."""


def at_once(_: RunningStage) -> AbstractContextManager[object]:
    """The turn of stages that nobody schedules."""
    return nullcontext()


@dataclass(frozen=True)
class StageBatch:
    """What a batch of a stage was like.

    Attributes:
        batch_id: counted from 0.
        rows: tuples that came in, from streams and arcs.
        duration_s: how long it took, the wait for its turn included.
        end_s: when it ended, seconds since 1970.
        worked_s: how long it was computed and written, without the wait; nan if that is not known.
        passed_on: rows that it left on its durable arc.
        passed_bytes: how large they are on disk.
        state_bytes: what its operators keep in memory after it.
    """

    batch_id: int
    rows: int
    duration_s: float
    end_s: float
    worked_s: float = math.nan
    passed_on: int = 0
    passed_bytes: int = 0
    state_bytes: int = 0


class RunningStage:
    """A stage as a unit that can be started, watched, scheduled and stopped.

    Attributes:
        plan: what it computes.
        name: of its query.
        log: of its checkpoint.
        plan_order: the streams and durable arcs that its query reads, from left to right, some perhaps repeatedly.
        sources: the same, each once.
        reads: the durable arcs among them.
        inboxes: the arcs among them that another application writes.
        writes: the durable arc that it writes; None if it ends in outputs.
        sinks: where its outputs go.
        query: the query, once it has been started.
        gated: the same, as accounts know it.
        last: its latest batch, once there was one.
        carries_arrival: whether its durable arc says when the tuples behind each row arrived.
    """

    def __init__(
        self,
        plan: Stage,
        *,
        name: str,
        log: CheckpointLog,
        plan_order: Sequence[str],
        queues: Mapping[str, ArcQueue],
        sinks: Sinks,
        turn: Turn = at_once,
        inboxes: Mapping[str, Inbox] | None = None,
        every_s: float = 0.0,
    ) -> None:
        self.plan = plan
        self.name = name
        self.log = log
        self.plan_order = tuple(plan_order)
        self.sources = tuple(dict.fromkeys(plan_order))
        self.reads = {arc: queues[arc] for arc in self.sources if arc in queues}
        self.inboxes = {arc: inbox for arc, inbox in (inboxes or {}).items() if arc in self.sources}
        self.writes = queues.get(plan.id)
        self.sinks = sinks
        self.query: StreamingQuery | None = None
        self.gated: GatedQuery | None = None
        self.last: StageBatch | None = None
        self.carries_arrival = False
        self._turn = turn
        self._every_s = every_s
        self._taken: dict[int, dict[str, list[int]]] = {}
        self._wrote: dict[int, ArcBatch] = {}
        self._worked_s: dict[int, float] = {}

    @property
    def id(self) -> str:
        """The id of what it computes."""
        return self.plan.id

    @property
    def waiting_rows(self) -> int:
        """How many rows lie on its arcs, none of which a batch of it has begun to process."""
        own = sum(batch.rows for queue in self.reads.values() for batch in queue.waiting(self.id))
        return own + sum(inbox.waiting_rows() for inbox in self.inboxes.values())

    @property
    def unfinished(self) -> list[ArcBatch]:
        """What lies on its arcs and no batch of it has ended with, begun or not."""
        return [batch for queue in self.reads.values() for batch in queue.unfinished(self.id)]

    @property
    def waiting_bytes(self) -> int:
        """How large they are on disk."""
        return sum(batch.bytes for queue in self.reads.values() for batch in queue.waiting(self.id))

    @property
    def is_active(self) -> bool:
        """Whether its query runs."""
        return self.query is not None and self.query.isActive

    @property
    def is_busy(self) -> bool:
        """Whether its query is running a batch, or has one to run on its arcs."""
        query = self.query
        return query is not None and query.isActive and (bool(query.status["isTriggerActive"]) or self.waiting_rows > 0)

    @property
    def failure(self) -> SparkFailure | None:
        """Why its query has died; None if it runs, or was stopped, be it while it waited for its turn."""
        failure = query_failure(self.query, f"stage {self.id!r}") if self.query is not None else None
        return None if failure is not None and TurnGivenUp.__name__ in str(failure) else failure

    def start(self, frame: DataFrame, *, lone: bool) -> StreamingQuery:
        """Start its query.

        Args:
            frame: what it computes.
            lone: whether there is no other stage: then nobody has to take turns.
        """
        writer = frame.writeStream.queryName(self.name).option("checkpointLocation", self.log.root)
        if self._every_s > 0:
            writer = writer.trigger(processingTime=f"{round(self._every_s * 1000)} milliseconds")
        if lone and self.writes is None and self.sinks.keep_nothing and not self.inboxes:
            self.query = writer.format("noop").start()
        else:
            self.query = writer.foreachBatch(self._run).start()
        return self.query

    def wait_for_sources(self, seconds: float) -> None:
        """Wait until its query has opened its sources, so long at most.

        Sources in Python start a process each, and Spark gives it ten seconds: several at once can take longer.
        """
        end_s = time.monotonic() + seconds
        while self.query is not None and self.query.isActive and time.monotonic() < end_s:
            if self.query.status["message"] not in _OPENING:
                return
            time.sleep(_OPENING_POLL_S)

    def stop(self) -> None:
        """Stop its query; a batch that is broken off is done again after a restart."""
        if self.query is not None:
            self.query.stop()

    # --- batches ---------------------------------------------------------------------------------------------------

    def resume(self, accounted: int) -> None:
        """Find out how far it came before, on each of its arcs.

        Args:
            accounted: the last batch up to which all are in the ledger; -1 if there is none.
        """
        latest, committed = self.log.latest(), self.log.committed()
        settled = self.log.batch(min(accounted, committed[-1])) if accounted >= 0 and committed else None
        for arc, queue in self.reads.items():
            if latest is not None:
                queue.take(self.id, self._numbers(arc, latest.offsets, None))
            if settled is not None:
                queue.finish(self.id, self._numbers(arc, settled.offsets, None))
        for arc, inbox in self.inboxes.items():
            if latest is not None:
                inbox.take(self._numbers(arc, latest.offsets, None))
            if settled is not None:
                inbox.finish(self._numbers(arc, settled.offsets, None))

    def finish(
        self, last: StageBatch, arrived: Mapping[str, int], *, tuple_s: float, share: float
    ) -> tuple[Pass, bool]:
        """A batch is over and in the ledger; give the pass that it ends or carries on, and whether rows go on from it.

        Args:
            last: the batch.
            arrived: well-formed tuples that it read itself, by stream.
            tuple_s: what one of the tuples that come in costs in this stage, by the statistics.
            share: the work that drops left, as a share of the work without them.
        """
        wrote = self._wrote.pop(last.batch_id, ArcBatch(last.batch_id, 0, 0))
        worked_s = self._worked_s.pop(last.batch_id, math.nan)
        self.last = replace(last, worked_s=worked_s, passed_on=wrote.rows, passed_bytes=wrote.bytes)
        before: list[list[Pass]] = []
        for arc, numbers in self._taken.pop(last.batch_id, {}).items():
            if arc in self.inboxes:
                self.inboxes[arc].finish(numbers)
                continue
            found = [self.reads[arc].passes.get(number) for number in numbers]
            before.append([one for one in found if one is not None])
            if None in found:  # of what was left on an arc before a restart it is not known what led to it
                share = math.nan
            self.reads[arc].finish(self.id, numbers)
        done = follow(arrived, before, duration_s=last.duration_s, tuple_s=tuple_s, share=share)
        goes_on = wrote.rows > 0
        if self.writes is not None and goes_on:
            self.writes.passes[last.batch_id] = done
        return done, goes_on

    def _run(self, batch: DataFrame, batch_id: int) -> None:
        """Spark calls this with every micro-batch, before it is computed."""
        self._take(batch_id)
        with ExitStack() as reading:
            for queue in self.reads.values():
                reading.enter_context(queue.processing(self.id))
            for arc, numbers in self._taken.get(batch_id, {}).items():
                if arc in self.inboxes:
                    self.inboxes[arc].sweep(numbers)
            with self._turn(self):
                begin_s = time.monotonic()
                if self.writes is None:
                    self.sinks.write(batch, batch_id)
                else:
                    self._wrote[batch_id] = self.writes.put(batch, batch_id)
                self._worked_s[batch_id] = time.monotonic() - begin_s

    def _take(self, batch_id: int) -> None:
        started, previous = self.log.batch(batch_id), self.log.batch(batch_id - 1)
        if started is None:
            return
        taken = {
            arc: self._numbers(arc, started.offsets, previous.offsets if previous is not None else None)
            for arc in (*self.reads, *self.inboxes)
        }
        for arc, numbers in taken.items():
            if arc in self.inboxes:
                self.inboxes[arc].take(numbers)
            else:
                self.reads[arc].take(self.id, numbers)
        self._taken[batch_id] = taken

    def _numbers(self, arc: str, offsets: Sequence[str | None], after: Sequence[str | None] | None) -> list[int]:
        """Which batches of an arc lie between offsets."""
        if len(offsets) != len(self.plan_order) or self.log.has_source(len(self.sources)):
            return []  # a join of an arc with itself has sources of its own; then nothing is deleted
        source, line = self.sources.index(arc), self.plan_order.index(arc)
        paths = self.log.files_read(source, offsets[line], after[line] if after is not None else None)
        found = {batch_number(PurePosixPath(unquote(urlparse(path).path)).parent.name) for path in paths}
        return sorted(number for number in found if number is not None)
