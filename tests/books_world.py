"""A make-believe Spark around the real books: for histories of batches, crashes and restarts without a JVM.

Real are the gate with its control line, its ledger and its accounts, the logs of checkpoints, which the make-believe
engine writes as Spark does, and all files. Made up are the engine, what Spark reports, and the disk: whatever is
written can be cut off at any point, because the driver dies there.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark import accounts, control_line, gate, journal, recount
from streamshed.engines.spark.accounts import Drop
from streamshed.engines.spark.control_line import SLOT_MS
from streamshed.engines.spark.directory_lock import DirectoryInUseError, DirectoryLock
from streamshed.engines.spark.gate import Gate
from streamshed.engines.spark.ledger import Ledger, LedgerRow
from streamshed.engines.spark.ledger_totals import By, Total, summarise
from streamshed.engines.spark.monitor import BatchReport

SIZE = 3
START_S = 1_700_000_000.0

Fractions = tuple[float, ...]
Counts = tuple[int, int, int]
"""Of tuples: arrived, malformed, kept."""


class DiskFullError(OSError):
    """There is no room for what the driver writes."""


class DeathError(BaseException):
    """The driver is killed. Not an Exception: nobody catches it."""


@dataclass(frozen=True)
class Place:
    """A drop, or a place where tuples are only counted, as the gate of every run has it.

    Attributes:
        name: of the drop.
        index: on the control line.
        stream: what it reads; a durable arc is one, too.
        entry: whether all tuples of the stream pass here.
        source: whether it is right behind a source.
    """

    name: str
    index: int | None
    stream: str
    entry: bool
    source: bool


PLACES = {
    place.name: place
    for place in (
        Place("a", 0, "a", entry=True, source=True),
        Place("a->x", 1, "a", entry=False, source=False),
        Place("b", 2, "b", entry=True, source=True),
        Place("arc", None, "arc", entry=False, source=True),
    )
}

# What each query reads, from left to right, and drops further in.
QUERIES = {"deep": (("a",), ("a->x",)), "self": (("b", "a", "b"), ()), "stage": (("arc", "b"), ())}


def rank(stream: str, number: int) -> float:
    """Of a tuple; multiples of 1/241 are never thresholds but for 0."""
    return (number * 89 + len(stream)) % 241 / 241


def is_malformed(stream: str, number: int) -> bool:
    return stream != "arc" and number % 13 == 5


def counted(place: Place, start: int, end: int, fractions: Fractions) -> Counts:
    """What becomes of the tuples between two offsets of a place's stream."""
    numbers = range(start, end)
    if not place.source:  # behind the entry drop: it gets what that one keeps
        entry = PLACES[place.stream]
        assert entry.index is not None
        numbers_in = [n for n in numbers if not is_malformed(place.stream, n)]
        numbers_in = [n for n in numbers_in if rank(place.stream, n) >= fractions[entry.index]]
        malformed = 0
    else:
        malformed = sum(is_malformed(place.stream, n) for n in numbers)
        numbers_in = [n for n in numbers if not is_malformed(place.stream, n)]
    threshold = 0.0 if place.index is None else fractions[place.index]
    kept = sum(rank(place.stream, n) >= threshold for n in numbers_in)
    return len(numbers_in) + malformed, malformed, kept


@dataclass
class Batch:
    """What the world knows of a micro-batch.

    Attributes:
        number: counted from 0.
        time_ms: when it started.
        start: where each stream was, by its name.
        end: up to where it reads.
        read: the thresholds that each attempt has read, in turn.
        taken: those of the attempt of which the sink has kept the rows.
    """

    number: int
    time_ms: int
    start: dict[str, int]
    end: dict[str, int]
    read: list[Fractions] = field(default_factory=list)
    taken: Fractions | None = None
    committed: bool = False

    def counts(self, place: Place) -> Counts:
        assert self.taken is not None
        return counted(place, self.start[place.stream], self.end[place.stream], self.taken)


class Query:
    """A query with its checkpoint and sink, both of which outlive the driver; while it runs, also Spark's handle.

    Args:
        name: which of `QUERIES`.
        place: of its checkpoint.
        skips: whether its sink skips a batch that it has already.
        retained: of how many batches Spark keeps the logs.
    """

    def __init__(self, name: str, place: Path, *, skips: bool, retained: int) -> None:
        self.name, self.root = name, place
        self.id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        self.plan_order, self.inner = QUERIES[name]
        self.streams = tuple(dict.fromkeys(self.plan_order))
        self.places = [PLACES[found] for found in (*self.inner, *self.streams)]
        self.skips, self.retained = skips, retained
        self.batches: list[Batch] = []
        self.runs = 0
        self.isActive = False
        self.running: Batch | None = None
        self.step, self.in_step = 0, False
        self.observed: tuple[Fractions, bool] | None = None
        self.token = ""
        for folder in ("offsets", "commits"):
            (place / folder).mkdir(parents=True)

    # --- Spark's handle --------------------------------------------------------------------------------------------

    @property
    def runId(self) -> str:
        return f"{self.name}-{self.runs}"

    @property
    def _jsq(self) -> Any:
        # Spark prints a plan from its root on: what is further in comes before its source.
        names = [*self.inner, *self.plan_order]
        lines = [f":- CollectMetrics {self.token}/{name}/tuples, [count(1) AS arrived#7L]" for name in names]
        execution = SimpleNamespace(
            analyzedPlan=lambda: SimpleNamespace(toString=lambda: "\n".join(["~Union", *lines])),
            resolvedCheckpointRoot=self.root.as_uri,
        )
        return SimpleNamespace(streamingQuery=lambda: execution)

    # --- its checkpoint --------------------------------------------------------------------------------------------

    def write_offsets(self, batch: Batch) -> None:
        """As Spark writes them, whole or not at all."""
        texts = ["-" if batch.end[s] == 0 else json.dumps({"index": batch.end[s]}) for s in self.plan_order]
        head = ["v1", json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": batch.time_ms, "conf": {}})]
        (self.root / "offsets" / str(batch.number)).write_text("\n".join([*head, *texts]))

    def commit(self, batch: Batch) -> None:
        (self.root / "commits" / str(batch.number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        batch.committed = True
        old = batch.number - self.retained
        for folder in ("offsets", "commits"):
            for entry in (self.root / folder).iterdir():
                if int(entry.name) < old:
                    entry.unlink()

    def report(self, batch: Batch, executed: Fractions | None) -> str:
        """Spark's progress on a batch; without a plan that was executed there are no observations."""
        observed = {}
        if executed is not None:
            for place in self.places:
                arrived, malformed, kept = counted(place, batch.start[place.stream], batch.end[place.stream], executed)
                observed[f"{self.token}/{place.name}/tuples"] = {
                    "arrived": arrived,
                    "kept": kept,
                    **({"malformed": malformed} if place.entry else {}),
                }
        started = datetime.fromtimestamp(batch.time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        sources = [
            {"description": stream, "startOffset": {"index": batch.start[stream]}, "endOffset": None}
            for stream in self.plan_order
        ]
        return json.dumps(
            {
                "id": self.id,
                "runId": self.runId,
                "name": self.name,
                "timestamp": f"{started}Z",
                "batchId": batch.number,
                "durationMs": {"triggerExecution": 40, "addBatch": 30},
                "stateOperators": [],
                "sources": sources,
                "observedMetrics": observed,
            }
        )


class World:
    """All that there is: a clock, a disk, queries, and the driver, which may die.

    Args:
        place: an empty directory.
        patch: puts the make-believe disk in the place of the real one.
        slots: of the control line's ring; a small one comes round soon.
        kept_rows: of the ledger.
        kept_changes: of the control line.
        skips: whether sinks skip what they have already.
        retained: of how many batches Spark keeps the logs.
    """

    def __init__(
        self,
        place: Path,
        patch: pytest.MonkeyPatch,
        *,
        slots: int = 512,
        kept_rows: int = 1000,
        kept_changes: int = 1000,
        skips: bool = False,
        retained: int = 100,
    ) -> None:
        self.place, self.directory = place, place / "guard"
        self.now = START_S
        self.ahead = slots // 2
        self.kept_rows, self.kept_changes = kept_rows, kept_changes
        self.queries = {name: Query(name, place / name, skips=skips, retained=retained) for name in QUERIES}
        self.written = dict.fromkeys(("a", "b", "arc"), 0)
        self.gate: Gate | None = None
        self.reports: list[tuple[str, str]] = []
        self.delivered: list[str] = []
        self.doubtful = False  # whether anything has happened that makes batches uncertain
        self._due: list[tuple[int, Callable[[], None]]] = []
        self._busy = False
        self._durable: dict[int, int] = {}
        self._scratch = 0
        self._full = False
        self._runs = 0
        self._latest = self.now
        self._checked: list[int] = []
        self._locks: list[DirectoryLock] = []
        calls = SimpleNamespace(fsync=self._fsync, replace=self._replace, SEEK_END=2)
        patch.setattr(journal, "os", calls)
        patch.setattr(control_line, "os", calls)
        patch.setattr(control_line, "SLOTS", slots)
        patch.setattr(control_line, "_AHEAD", self.ahead)
        patch.setattr(gate, "_LAST_REPORTS_S", 0.0)
        patch.setattr(accounts, "_LONG_S", self.ahead * SLOT_MS / 1000 / 2)
        patch.setattr(gate, "DirectoryLock", self._lock)
        patch.setattr(recount, "F", SimpleNamespace(lit=lambda value: value))
        patch.setattr(recount, "_replay", self._count_again)
        self.streams = SimpleNamespace(
            addListener=lambda _: None,
            get=lambda query_id: next(query for query in self.queries.values() if query.id == query_id),
        )
        self.sparkContext = SimpleNamespace(_jvm=None, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))

    # --- the disk --------------------------------------------------------------------------------------------------

    def interrupt(self, after: int, what: Callable[[], None]) -> None:
        """Have something happen after so many points: places where the driver writes, or the engine goes on."""
        self._due.append((after, what))

    def calm(self) -> None:
        """Nothing more is going to happen by itself."""
        self._due.clear()
        self._full = False

    def point(self) -> None:
        """A place where something may happen."""
        if self._busy:
            return
        due, self._due = self._due, []
        now = [what for after, what in due if after <= 0]
        self._due = [(after - 1, what) for after, what in due if after > 0]
        self._busy = True
        try:
            for what in now:
                what()
        finally:
            self._busy = False

    def die(self) -> None:
        raise DeathError

    def fill(self) -> None:
        """The disk is full when the driver writes next."""
        self._full = True

    def _fail(self) -> None:
        if self._full:
            self._full = False
            raise DiskFullError(errno.ENOSPC, "No space left on device")

    def _fsync(self, handle: int) -> None:
        status = os.fstat(handle)
        before = min(self._durable.get(status.st_ino, 0), status.st_size)
        try:
            self.point()
        except DeathError:
            # What was not safe yet may have been written in part.
            self._scratch += 1
            part = (0, 1, 2, 3, 4)[self._scratch % 5] * (status.st_size - before) // 4
            os.ftruncate(handle, before + part)
            raise
        self._fail()
        self._durable[status.st_ino] = status.st_size

    def _lock(self, directory: Path) -> DirectoryLock:
        self._locks.append(DirectoryLock(directory))
        return self._locks[-1]

    def _replace(self, source: Path, target: Path) -> None:
        self.point()
        self._fail()
        Path(source).replace(target)
        self.point()

    # --- the driver ------------------------------------------------------------------------------------------------

    def drive(self, work: Callable[[], object]) -> bool:
        """Let the driver do something; False if it dies over it. If the disk fails, it says so and goes on."""
        try:
            work()
        except DeathError:
            self.bury()
        except DiskFullError:
            pass
        return self.gate is not None

    def arrive(self, stream: str, tuples: int) -> None:
        """Tuples come in."""
        self.written[stream] += tuples

    def lose(self) -> None:
        """A report is lost on its way."""
        if self.reports:
            self.reports.pop(0)

    def bury(self, seconds: float = 0.0) -> None:
        """The driver is dead, for so long at least: what it had in memory is gone."""
        self.now = max(self.now + seconds, self._latest)  # a clock set back has caught up until it comes again
        self.let_go()
        self.gate = None
        self.reports.clear()
        self.delivered.clear()
        for query in self.queries.values():
            query.isActive, query.running = False, None

    def let_go(self) -> None:
        """As the operating system does with the locks of a process that is dead."""
        for lock in self._locks:
            lock.release()
        self._locks.clear()

    @property
    def live(self) -> Gate:
        assert self.gate is not None
        return self.gate

    def open(self, **options: Any) -> None:
        """Start the driver; options are those of its gate."""
        self._runs += 1
        made = Gate(
            self,  # type: ignore[arg-type]
            self.directory,
            size=SIZE,
            tick_s=0,
            clock=lambda: self.now,
            **{"shed_backfills": True, **options},
        )
        made.line._history._kept = self.kept_changes
        made.accounts.ledger._kept_rows = self.kept_rows
        made.settle_soon = made.accounts.settle  # type: ignore[assignment,method-assign]
        # The program makes its drops in another order every now and then.
        known = (self.directory / "places.json").exists()
        for name in sorted(PLACES, reverse=known and self._runs % 2 == 0):
            place = PLACES[name]
            assert place.index is None or made._place(name) == place.index
            observed = f"{made._token}/{place.name}"
            made.drops[place.name] = Drop(
                place.name, place.index, place.stream, place.entry, 0, place.source, observed, self._frame(place)
            )
        self.gate = made
        self.now += 0.2  # plans are made

    def start(self, query: Query) -> None:
        """Start a query; it waits until the gate has taken notice, and runs an unfinished batch again."""
        query.runs += 1
        query.token = self.live._token
        query.isActive, query.in_step = True, True  # it waits
        try:
            with suppress(OSError):  # Spark's listeners fail for themselves; the user's own call tells
                self.live.on_start(query.id, query.runId, query.name)
            self.live.watch(query)  # type: ignore[arg-type]
        except OSError:
            query.isActive = False
            raise
        finally:
            query.in_step = False
        last = query.batches[-1] if query.batches else None
        query.running, query.step = (last, 1) if last is not None and not last.committed else (None, 0)

    def stop(self, query: Query) -> None:
        """Stop a query, or let it die: its batch is broken off."""
        query.isActive, query.running = False, None

    def elapse(self, seconds: float, *, ticking: bool = True) -> None:
        """Time passes; the gate ticks, unless it is held up."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + (self.ahead * SLOT_MS / 1000 / 8 if ticking else seconds))
            if ticking:
                self.live.tick(self.now)

    def set_back(self, seconds: float) -> None:
        """The clock is set back."""
        self.doubtful = True
        self.live.tick(self.now)
        self._latest = max(self.now, self._latest)
        self.now -= seconds
        with suppress(DiskFullError):
            self.live.tick(self.now)
        self.live.tick(self.now)

    def hold_up(self, seconds: float) -> None:
        """Time passes in the middle of something."""
        self.doubtful = True
        self.now += seconds

    # --- the engine ------------------------------------------------------------------------------------------------

    def go(self, query: Query) -> None:
        """The next step of a query's batch."""
        if not query.isActive or query.in_step:
            return
        query.in_step = True
        try:
            self._step(query)
        finally:
            query.in_step = False

    def _step(self, query: Query) -> None:
        if query.running is None:
            self._begin(query)
            return
        batch = query.running
        if query.step == 1:
            self.point()
            batch.read.append(self._read_line(batch.time_ms))
        elif query.step == 2:
            skipped = query.skips and batch.taken is not None
            if not skipped:
                batch.taken = batch.read[-1]
            query.observed = (batch.read[-1], not skipped)
            self.point()
        elif query.step == 3:
            query.commit(batch)
            self.point()
        else:
            assert query.observed is not None
            executed, ran = query.observed
            self.reports.append((query.name, query.report(batch, executed if ran else None)))
            query.running = None
            return
        query.step += 1

    def _begin(self, query: Query) -> None:
        last = query.batches[-1] if query.batches else None
        start = dict(last.end) if last is not None else dict.fromkeys(query.streams, 0)
        end = {stream: self.written[stream] for stream in query.streams}
        batch = Batch(len(query.batches), int(self.now * 1000), start, end)
        self.point()
        query.write_offsets(batch)
        query.batches.append(batch)
        query.running, query.step = batch, 1
        self.point()

    def _read_line(self, time_ms: int) -> Fractions:
        """What Spark reads from the control file for a batch that started then."""
        words = (self.directory / "control").read_text().split()
        slots = (len(words) - 1) // SIZE
        slot = time_ms // SLOT_MS % slots
        return tuple(int(word) / 256 for word in words[slot * SIZE : (slot + 1) * SIZE])

    def _frame(self, place: Place) -> Callable[[Callable[[int], Any]], Any]:
        return lambda threshold: (place, 0.0 if place.index is None else threshold(place.index))

    def _count_again(self, batch_id: int, frames: Sequence[Any], checkpoint: Path) -> BatchReport:
        """Run the batch of a checkpoint's copy again, as Spark does."""
        self.point()
        offsets = {int(entry.name): entry.read_text().split("\n") for entry in (checkpoint / "offsets").iterdir()}
        commits = {int(entry.name) for entry in (checkpoint / "commits").iterdir()}
        assert max(offsets) == batch_id
        assert batch_id not in commits
        if batch_id > 0 and batch_id - 1 not in offsets:
            raise RuntimeError("Spark: the offsets of the batch before are gone")
        ends, starts = offsets[batch_id][2:], offsets.get(batch_id - 1, [])[2:] or ["-"] * len(frames)
        observed = {}
        for (place, threshold), start, end in zip(frames, starts, ends, strict=True):
            between = [0 if text == "-" else int(json.loads(text)["index"]) for text in (start, end)]
            fractions = tuple(threshold if index == place.index else 0.0 for index in range(SIZE))
            arrived, malformed, kept = counted(place, between[0], between[1], fractions)
            observed[f"{self.live._token}/{place.name}/tuples"] = {
                "arrived": arrived,
                "malformed": malformed,
                "kept": kept,
            }
        return BatchReport("again", "again", "streamshed-recount/x", batch_id, self.now, 0.1, observed, ())

    # --- what must hold --------------------------------------------------------------------------------------------

    def batches(self) -> Iterator[tuple[Query, Batch]]:
        for query in self.queries.values():
            for batch in query.batches:
                yield query, batch

    def check(self) -> None:
        """What holds at all times."""
        if self.gate is None:
            return
        for query, batch in self.batches():
            if batch.read and self.gate.line.is_certain(batch.time_ms):
                told = self.gate.line.at(batch.time_ms)
                assert all(read == told for read in batch.read), (query.name, batch, told)
        sizes = [file.stat().st_size for file in (self.directory / "ledger").iterdir()]
        if sizes != self._checked:
            self._checked = sizes
            self.check_ledger()

    def check_ledger(self) -> None:
        """What the ledger says is what has happened, as far as it goes."""
        ledger = Ledger(self.directory / "ledger")
        of_query = {query.id: query for query in self.queries.values()}
        for row in ledger.rows():
            query = of_query[row.query_id]
            batch = query.batches[row.batch_id]
            assert batch.committed, row
            arrived, malformed, kept = batch.counts(PLACES[row.drop])
            assert (row.arrived, row.malformed, row.delivered) == (arrived, malformed, kept), (row, batch)
            assert row.dropped == arrived - malformed - kept
            assert row.time_ms == batch.time_ms
            index = PLACES[row.drop].index
            assert batch.taken is not None
            if self.gate is not None and self.gate.line.is_certain(batch.time_ms):
                assert row.fraction == (0.0 if index is None else batch.taken[index]), (row, batch)
        pages = {page.query_id: page for page in ledger.pages()}
        claimed = {
            (query.name, batch.number)
            for query, batch in self.batches()
            if query.id in pages and ledger.has(query.id, batch.number)
        }
        for by in ("stream", "drop", "output", "time"):
            self._check_sums(by, claimed)
        for query in self.queries.values():
            mine = [number for name, number in claimed if name == query.name]
            holes = set(range(max(mine, default=0))) - set(mine)
            if holes:
                assert holes <= pages[query.id].open, (query.name, holes, pages[query.id].open)

    def _check_sums(self, by: By, claimed: set[tuple[str, int]]) -> None:
        keys: dict[By, Callable[[Query, Batch, Place], str]] = {
            "stream": lambda _, __, place: place.stream,
            "drop": lambda _, __, place: place.name,
            "output": lambda query, _, __: query.name,
            "time": lambda _, batch, __: datetime.fromtimestamp(batch.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
        }
        wanted: dict[str, list[int]] = {}
        batches: dict[str, set[tuple[str, int]]] = {}
        for query, batch in self.batches():
            if (query.name, batch.number) not in claimed:
                continue
            for place in query.places:
                if place.entry or by == "drop" or (by == "output" and place.source):
                    key = keys[by](query, batch, place)
                    so_far = wanted.setdefault(key, [0, 0, 0])
                    for i, count in enumerate(batch.counts(place)):
                        so_far[i] += count
                    batches.setdefault(key, set()).add((query.name, batch.number))
        wanted.pop("a->x", None)  # what is counted again has no row there
        found = {
            total.key: total
            for total in (summarise(self.directory, by) if list((self.directory / "ledger").glob("*.jsonl")) else [])
            if total.batches and total.key != "a->x"
        }
        assert set(found) == set(wanted), by
        for key, (arrived, malformed, kept) in wanted.items():
            total = found[key]
            assert (total.arrived, total.malformed, total.delivered) == (arrived, malformed, kept), (by, total)
            assert total.dropped == arrived - malformed - kept
            assert total.batches == len(batches[key]), (by, total)
            assert total.balanced == (total.open == 0)

    def refused(self) -> None:
        """Another writer in the same directory is refused, and leaves everything as it was."""
        before = {file: file.read_bytes() for file in sorted(self.directory.rglob("*")) if file.is_file()}
        with pytest.raises(DirectoryInUseError):
            Gate(self, self.directory, size=SIZE, tick_s=0, clock=lambda: self.now)  # type: ignore[arg-type]
        assert {file: file.read_bytes() for file in sorted(self.directory.rglob("*")) if file.is_file()} == before

    def finish(self) -> None:
        """Everything comes to its end; then the ledger is complete, and says so if it is not."""
        self.calm()
        if self.gate is None:
            self.open()
        for query in self.queries.values():
            if not query.isActive:
                self.start(query)
            while query.running is not None:
                self.go(query)
        while self.reports:
            self.deliver()
        for query in self.queries.values():
            self.stop(query)
        left = set(self.live.settle())
        self.check()
        ledger = self.live.accounts.ledger
        for query, batch in self.batches():
            key = (query.id, batch.number)
            assert batch.committed
            if key in left:
                certain = self.live.line.is_certain(batch.time_ms)
                offsets = query.root / "offsets"
                gone = not all((offsets / str(n)).exists() for n in (batch.number, max(batch.number - 1, 0)))
                assert gone or not certain, "why is it open?"
                forgotten = batch.time_ms // SLOT_MS < self.live.line._history._since
                assert gone or forgotten or self.doubtful, "why is it not certain?"
            else:
                assert ledger.has(*key), key
        totals: list[Total] = summarise(self.directory, "output") if ledger.pages() else []
        for total in totals:
            query = next(query for query in self.queries.values() if total.key in (query.name, query.id))
            assert total.open == sum(query_id == query.id for query_id, _ in left)
            assert total.balanced == (total.open == 0)
        self.live.close()
        self.gate = None
        self.check_ledger()

    def deliver(self, *, again: bool = False) -> None:
        """A report comes in: the oldest, or one once more."""
        if again and self.delivered:
            self.live.on_batch(BatchReport.from_json(self.delivered[-1]))
        elif self.reports:
            _, text = self.reports.pop(0)
            self.delivered.append(text)
            self.live.on_batch(BatchReport.from_json(text))

    def rows(self) -> list[LedgerRow]:
        return Ledger(self.directory / "ledger").rows()


@contextmanager
def world(place: Path, **settings: Any) -> Iterator[World]:
    """A world in a new directory below a place."""
    with pytest.MonkeyPatch.context() as patch:
        made = World(Path(tempfile.mkdtemp(dir=place)), patch, **settings)
        try:
            yield made
        finally:
            made.let_go()


@contextmanager
def memory() -> Iterator[Path]:
    """A place for many worlds, in memory where there is such a thing: most of the time goes into small files."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else None) as place:
        yield Path(place)
