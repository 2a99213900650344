"""The gate: all drops of an application on one control line, with their monitor and their ledger.

It knows how to drop, count and account, and leaves the decision to whoever made it: `decide(time_s)` is asked every
tick for the fractions to drop, because a batch takes the thresholds that hold when it *starts*, and nobody is told
before it does. So there must be a good answer at all times to the question "if a batch started now, what then?".
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from streamshed.engines.spark.accounts import Accounts, Drop, GatedQuery
from streamshed.engines.spark.control_line import THRESHOLDS, ControlLine, usable
from streamshed.engines.spark.directory_lock import DirectoryLock
from streamshed.engines.spark.drops import Cells, Parse, drop, mark
from streamshed.engines.spark.monitor import BatchReport, DropCounts, Monitor
from streamshed.engines.spark.places import Places
from streamshed.engines.spark.recount import Recount, is_recount, recount
from streamshed.engines.spark.triggers import stops_by_itself
from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean

_LOG = logging.getLogger(__name__)

_LAST_REPORTS_S = 5.0

Fractions = Mapping[str, float]


class Gate:
    """Drops that obey a decision, and account for what they did.

    Args:
        spark: the session in which the queries run.
        directory: holds the control line and the ledger; the same again after a restart.
        size: how many drops there may be.
        decide: gives the fractions to drop at a time, by name; those not named stay. None: only `apply` decides.
        on_batch: is told of every batch with the counts of its drops. Called from a listener thread, must return soon.
        on_failure: is called when a query has died, from such a thread, too.
        tick_s: how often to ask; 0 for never (then call `tick` yourself, every few seconds at least).
        clock: the time in seconds since 1970.
        recount: counts the tuples of a past batch again.
        shed_backfills: whether to drop from queries that read what is there and stop (triggers `availableNow` and
            `once`), too. They are not late, and what they lose is missing for good. Without it, what such a query
            reads is not dropped for others either, as long as it runs.

    Raises:
        DirectoryInUseError: if another gate uses the directory, in this process or another one.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: str | Path,
        *,
        size: int = 8,
        decide: Callable[[float], Fractions] | None = None,
        on_batch: Callable[[BatchReport, Mapping[str, DropCounts]], None] | None = None,
        on_failure: Callable[[], None] | None = None,
        tick_s: float = 0.05,
        clock: Callable[[], float] = time.time,
        recount: Recount = recount,
        shed_backfills: bool = False,
    ) -> None:
        self.spark = spark
        self.directory = usable(Path(directory))
        self._held = DirectoryLock(self.directory)  # before anything in there is touched
        try:
            self.line = ControlLine(self.directory, size, clock)
            self.drops: dict[str, Drop] = {}
            self._lock = threading.RLock()
            self.accounts = Accounts(spark, self.line, self.drops, self._lock, recount)
        except Exception:
            self._held.release()
            raise
        self.errors: dict[str, str] = {}
        self._places = Places(self.directory / "places.json", size)
        self._token = f"streamshed/{uuid.uuid4().hex[:8]}"  # tells our observations from those of others
        self._decide, self._on_batch, self._on_failure = decide, on_batch, on_failure
        self._fractions = [0.0] * size
        self._shed_backfills = shed_backfills
        self._backfills: dict[str, list[str]] = {}
        self._clock = clock
        self._monitor = Monitor.of(spark)
        self._monitor.subscribe(self)
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._run, args=(tick_s,), name="streamshed-gate", daemon=True)
        if tick_s > 0:
            self._ticker.start()

    # --- building plans --------------------------------------------------------------------------------------------

    def drop(
        self,
        frame: DataFrame,
        name: str,
        rank: Column,
        *,
        stream: str | None = None,
        entry: bool = True,
        salt: int = 0,
        readers: Mapping[str, Column] | None = None,
        valid: Column | None = None,
        parse: Parse | None = None,
        arrival: Column | None = None,
        cells: Cells | None = None,
        weighted: bool = False,
        nested: bool = False,
    ) -> DataFrame:
        """Put a drop into a plan; see `drops.drop`.

        Args:
            frame: the tuples ahead of it.
            name: of the drop, unique in this gate.
            rank: of a tuple, in [0, 1).
            stream: whose tuples these are; by default the name of the drop.
            entry: whether all tuples of the stream pass here.
            salt: of the rank, for the ledger.
            readers: the drops that follow, one on every way from here, with their ranks: what none of them is going to
                keep is dropped here, which is cheaper.
            valid: whether a tuple is well-formed.
            parse: gives tuples their columns, once it is known which are dropped.
            arrival: seconds since 1970.
            cells: in which cell of values a tuple is, to have them counted by cell.
            weighted: whether to add the weight for estimates.
            nested: whether the drops upstream go by the same rank.
        """
        self._check_new(name)
        index = self._place(name)
        after = [(self._place(reader), of_reader) for reader, of_reader in (readers or {}).items()]
        observed = f"{self._token}/{name}"

        def at(threshold: Callable[[int], Column], control: DataFrame | None = None) -> DataFrame:
            wanted = [of_reader >= threshold(place) for place, of_reader in after]
            return drop(
                frame,
                observed,
                rank,
                threshold(index),
                control=control,
                needed=reduce(Column.__or__, wanted) if wanted else None,
                valid=valid,
                parse=parse,
                arrival=arrival,
                cells=cells,
                weighted=weighted,
                nested=nested,
            )

        self.drops[name] = Drop(name, index, stream or name, entry, salt, entry, observed, at)
        return at(lambda place: F.col(THRESHOLDS)[place], self.line.thresholds(self.spark))

    def mark(
        self, frame: DataFrame, name: str, rank: Column, *, stream: str, salt: int, on: Column
    ) -> tuple[DataFrame, Column]:
        """Put a drop into a plan for some of the tuples only; see `drops.mark`."""
        self._check_new(name)
        index, observed = self._place(name), f"{self._token}/{name}"
        marked = mark(frame, observed, rank, F.col(THRESHOLDS)[index], control=self.line.thresholds(self.spark), on=on)
        self.drops[name] = Drop(name, index, stream, False, salt, False, observed, lambda _: marked[0])
        return marked

    def count(self, frame: DataFrame, name: str, *, stream: str, arrival: Column | None = None) -> DataFrame:
        """Have the tuples counted that a query reads from a durable arc, and enter them in the ledger; drop nothing.

        Args:
            frame: the tuples.
            name: of the place, unique in this gate.
            stream: the arc.
            arrival: seconds since 1970.
        """
        self._check_new(name)
        observed = f"{self._token}/{name}"
        counted = drop(frame, observed, F.lit(0.0), F.lit(0.0), arrival=arrival)  # keeps all
        self.drops[name] = Drop(name, None, stream, False, 0, True, observed, lambda _: counted)
        return counted

    # --- deciding --------------------------------------------------------------------------------------------------

    def apply(self, fractions: Fractions) -> None:
        """Set the fractions to drop, by name, for batches that start from now on; those not named stay."""
        self.accounts.keep(self._clock())
        with self._lock:
            for name, fraction in fractions.items():
                self._fractions[self._index(name)] = min(max(fraction, 0.0), 1.0)
            for names in self._backfills.values():
                for name in names:
                    if self.drops[name].index is not None:
                        self._fractions[self._index(name)] = 0.0
            if ControlLine.quantised(self._fractions) != self.line.read():
                self.line.write(self._fractions)

    @property
    def fractions(self) -> dict[str, float]:
        """The fractions to drop, by name, that hold for the next batch."""
        with self._lock:
            now = self.line.read()
            return {name: now[drop.index] for name, drop in self.drops.items() if drop.index is not None}

    def tick(self, time_s: float) -> None:
        """Ask for a decision, and keep the control line alive."""
        self.accounts.keep(time_s)
        try:
            if self._decide is not None:
                self.apply(self._decide(time_s))
        finally:  # without a decision, the last one holds
            with self._lock:
                self.line.refresh()

    # --- accounting ------------------------------------------------------------------------------------------------

    def watch(self, query: StreamingQuery) -> GatedQuery | None:
        """Take notice of a query; None if no drop of this gate is in it. Done by itself when a query starts."""
        return self.accounts.add(query)

    def settle(self) -> list[tuple[str, int]]:
        """Count again what is over and not in the ledger; give the batches (query, number) for which that fails."""
        return self.accounts.settle()

    def settle_soon(self) -> None:
        """The same in the background; what is left then is seen in the ledger."""
        threading.Thread(target=self.accounts.settle, name="streamshed-settle", daemon=True).start()

    def on_start(self, query_id: str, run_id: str, query_name: str | None) -> None:  # noqa: ARG002
        """A query starts; it waits until this returns."""
        query = None if is_recount(query_name) else self.spark.streams.get(query_id)
        gated = self.watch(query) if query is not None else None
        if query is not None and gated is not None and not self._shed_backfills and stops_by_itself(query):
            self._spare(gated)

    def on_batch(self, report: BatchReport) -> None:
        """A batch has ended: enter it, and tell."""
        counts = self.accounts.enter(report)
        if counts is not None and self._on_batch is not None:
            self._on_batch(report, counts)
        is_ours = report.query_id in self.accounts.queries
        if is_ours and (counts is None or self.accounts.lacks(report.query_id, report.batch_id - 1)):
            self.settle_soon()  # Spark forgets what a batch has read after a while

    def on_end(self, query_id: str, run_id: str, error: str | None) -> None:  # noqa: ARG002
        """A query has ended, in good order or with an error."""
        with self._lock:
            self._backfills.pop(query_id, None)
        gated = self.accounts.queries.get(query_id)
        if gated is not None and error is not None:
            self.errors[gated.output] = error
            if self._on_failure is not None:
                self._on_failure()

    def close(self) -> None:
        """Stop deciding and accounting; queries that still run keep everything from now on."""
        self._stop.set()
        if self._ticker.is_alive():
            self._ticker.join()
        try:
            self.accounts.wait(_LAST_REPORTS_S)
            self.accounts.settle()
            self._monitor.unsubscribe(self)
            with self._lock:
                self.line.close(self.accounts.running())
        finally:
            self._held.release()

    # --- within ----------------------------------------------------------------------------------------------------

    def _spare(self, gated: GatedQuery) -> None:
        """Drop nothing that a query reads, from its first batch on: it waits until that holds."""
        _LOG.info("%s reads what is there and stops: nothing is dropped from it", gated.output)
        with self._lock:
            self._backfills[gated.query_id] = gated.drops
            self.apply({})
            from_ms = self.line.holds_from_ms
        self._stop.wait(max(from_ms / 1000 - self._clock(), 0.0))

    def _check_new(self, name: str) -> None:
        if name in self.drops:
            raise InvalidValueError("a drop has this name already", where="gate", got=repr(name), expected="a new name")

    def _place(self, name: str) -> int:
        """Where a drop has its threshold on the line; it may be mentioned before it is made."""
        return self._places.of(name)

    def _index(self, name: str) -> int:
        found = self.drops.get(name)
        if found is None or found.index is None:
            raise UnknownNameError(
                "there is no such drop", where="gate", got=repr(name), hint=did_you_mean(name, self.fractions)
            )
        return found.index

    def _run(self, tick_s: float) -> None:
        failing = False
        while not self._stop.wait(tick_s):
            try:
                self.tick(self._clock())
                failing = False
            except Exception:
                if not failing:
                    _LOG.exception("the gate cannot decide; the last fractions stay")
                failing = True
