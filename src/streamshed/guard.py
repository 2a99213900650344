"""For a streaming job that exists: three lines that keep it on time.

    guard = Guard(spark, target_s=2.0, directory="guard")
    events = guard.protect(events, key=["car"])
    query = guard.watch(events.groupBy(...).writeStream....start())

Sources, windows, watermarks, joins, state and sinks stay what they are. When batches get too long for the target, the
guard drops tuples as they come in, as few as possible, and `streamshed.engines.spark.ledger` says which and how many.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import NumericType

from streamshed.control import BatchCost, LoadSample, OutOfReach, PlantController
from streamshed.engines.spark.closing import Closing
from streamshed.engines.spark.cost_memory import CostMemory
from streamshed.engines.spark.drops import Cells, check_column, random_rank, well_formed
from streamshed.engines.spark.gate import Gate
from streamshed.engines.spark.loop import BatchLoop, Waiting, tell_reach
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.engines.spark.ranks import cell_number, location_rank
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.planning.ranks import RankedLocation, value_order
from streamshed.planning.values import LearntHistogram, even_histogram
from streamshed.qos import Histogram, ValueGraph

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class GuardStatus:
    """How things stand.

    Attributes:
        fractions: what is dropped of each protected stream, by its name.
        samples: the latest batch of each query, by its name (or id).
        costs: what batches cost in each query; None where that is not known yet.
        errors: why queries have died.
        out_of_reach: the queries whose target no drop can hold, with the reason; only the excess is dropped there.
    """

    fractions: Mapping[str, float]
    samples: Mapping[str, LoadSample]
    costs: Mapping[str, BatchCost | None]
    errors: Mapping[str, str]
    out_of_reach: Mapping[str, OutOfReach]


class Guard(Closing):
    """Holds the delay of streaming queries by dropping from the streams they read.

    Args:
        spark: the session in which the queries run.
        target_s: how late a tuple's result may be, from arrival to the end of its batch.
        directory: for the control line, the ledger and what batches cost. Give the same one again after a restart. On a
            cluster all machines must see it under the same path.
        controller: makes the controller of a query, given the target.
        size: how many streams may be protected.
        on_sample: is told of every batch: the name of the query (or its id) and the sample.
        tick_s: how often the decision is renewed.
        shed_backfills: whether to drop from queries with the trigger `availableNow` or `once`, too. Without it they are
            only counted: they read what is there and stop, so that they are not late, and what is dropped from a
            backfill is missing for good. What they share with other queries is not dropped as long as they run.

    Raises:
        DirectoryInUseError: if another guard or run uses the directory.
    """

    def __init__(
        self,
        spark: SparkSession,
        target_s: float,
        directory: str | Path,
        *,
        controller: Callable[[float], PlantController] = PlantController,
        size: int = 8,
        on_sample: Callable[[str, LoadSample], None] | None = None,
        tick_s: float = 0.05,
        shed_backfills: bool = False,
    ) -> None:
        if not target_s > 0:
            raise InvalidValueError("a target must be positive", where="guard", got=target_s, expected="> 0 s")
        self.target_s = target_s
        self._new_controller = controller
        self._on_sample = on_sample
        self._waiting: dict[str, Waiting] = {}
        self._loops: dict[str, BatchLoop] = {}
        self._orders: dict[str, RankedLocation] = {}
        self._values: dict[str, LearntHistogram] = {}
        self._lock = threading.Lock()
        self.gate = Gate(
            spark,
            directory,
            size=size,
            decide=self._decide,
            on_batch=self._on_batch,
            tick_s=tick_s,
            shed_backfills=shed_backfills,
        )

    def protect(
        self,
        frame: DataFrame,
        *,
        key: Sequence[str] | None = None,
        value: ValueGraph | None = None,
        histogram: Histogram | None = None,
        arrival: str | None = None,
        name: str | None = None,
        salt: int = 0,
        required: Sequence[str] = (),
        valid: str | None = None,
        waiting: Waiting | None = None,
        weighted: bool = False,
    ) -> DataFrame:
        """Let the guard drop from a streaming DataFrame; do this right after reading it.

        Args:
            frame: what is read.
            key: columns to hash; tuples with equal keys live and die together. By default all columns. Protect both
                sides of a join with the join key (and the same salt), and partners survive together.
            value: the utility of the values of a column; the least useful tuples go first. Values that are missing, no
                numbers, or not in the histogram are kept until all others are given up.
            histogram: how these values are spread at first. From the first batch on that is learnt from the stream.
                Without one, values within a piece of the graph are given up at random.
            arrival: a timestamp column, or one of seconds since 1970, with the time of arrival; for measured delays.
            name: of the stream, in status and ledger.
            salt: another salt drops other tuples.
            required: columns in which nulls make a tuple malformed: counted, and kept out.
            valid: an SQL predicate that well-formed tuples fulfil. Casts in it must not fail: use `try_cast`.
            waiting: how many tuples wait at the source, if that can be told.
            weighted: add the weight for `streamshed.estimates`; only for random drops (without `value`).

        Raises:
            UnknownNameError: if a column does not exist.
        """
        name = name or f"stream{len(self.gate.drops)}"
        if not frame.isStreaming:
            raise InvalidValueError("only streams can be protected", where=name, got="a batch DataFrame")
        rank = random_rank([check_column(frame, part) for part in (key or frame.columns)], salt)
        cells = None
        if value is not None:
            order = self._order(frame, name, value, histogram, weighted)
            rank, cells = (
                location_rank(order, rank),
                Cells(cell_number(F.col(value.column), order.order), len(order.order)),
            )
            self._orders[name] = order
            self._values[name] = LearntHistogram([one.cell for one in order.order])
        guarded = self.gate.drop(
            frame,
            name,
            rank,
            salt=salt,
            valid=well_formed(frame, required, valid),
            arrival=None if arrival is None else _seconds(frame, check_column(frame, arrival)),
            cells=cells,
            weighted=weighted,
        )
        if waiting is not None:
            self._waiting[name] = waiting
        return guarded

    def watch(self, query: StreamingQuery) -> StreamingQuery:
        """Hand over a query that was started; batches that a crash left uncounted are counted in the background.

        Raises:
            StreamshedError: if no protected DataFrame is in it.
        """
        gated = self.gate.watch(query)
        if gated is None:
            raise StreamshedError(
                "the query reads nothing that this guard protects",
                where=query.name or str(query.id),
                expected="a query built on what `protect` returned",
            )
        self.gate.settle_soon()
        return query

    def status(self) -> GuardStatus:
        """How things stand now."""
        with self._lock:
            loops = list(self._loops.values())
        return GuardStatus(
            fractions={
                name: self._orders[name].share_below(threshold) if name in self._orders else threshold
                for name, threshold in self.gate.fractions.items()
            },
            samples={loop.gated.output: loop.sample for loop in loops if loop.sample is not None},
            costs={loop.gated.output: loop.controller.cost for loop in loops},
            errors=dict(self.gate.errors),
            out_of_reach={
                loop.gated.output: reason for loop in loops if (reason := loop.controller.out_of_reach) is not None
            },
        )

    @property
    def error(self) -> str | None:
        """Why a query has died, or None."""
        return next(iter(self.gate.errors.values()), None)

    def settle(self) -> list[tuple[str, int]]:
        """Count all batches that are over and not in the ledger yet; give those that cannot be (query, batch)."""
        return self.gate.settle()

    def close(self) -> None:
        """Let go: everything is kept from now on."""
        self.gate.close()

    def _order(
        self, frame: DataFrame, name: str, value: ValueGraph, histogram: Histogram | None, weighted: bool
    ) -> RankedLocation:
        """The order in which the values of a stream are given up."""
        column = check_column(frame, value.column)
        kind = frame.schema[column].dataType
        if weighted or not isinstance(kind, NumericType):
            raise InvalidValueError(
                "a value graph gives no weights" if weighted else "a value graph is about numbers",
                where=name,
                got="weighted=True" if weighted else f"{column}, {kind.simpleString()}",
                expected="weighted=False" if weighted else "a column of numbers",
            )
        known = even_histogram([value]) if histogram is None else histogram
        return RankedLocation(name, column, value_order(value, known, inner_order=histogram is not None))

    # --- the loop --------------------------------------------------------------------------------------------------

    def _decide(self, time_s: float) -> dict[str, float]:
        """For each drop the largest fraction that a query behind it needs."""
        fractions = dict.fromkeys(self.gate.drops, 0.0)
        with self._lock:
            loops = list(self._loops.values())
        for loop in loops:
            fraction = loop.admission(time_s, self._waiting).fraction
            for name in loop.gated.drops:
                fractions[name] = max(fractions[name], fraction)
        for name, order in self._orders.items():
            fractions[name] = order.threshold_of(fractions[name])
        return fractions

    def _on_batch(self, report: BatchReport, counts: Mapping[str, DropCounts]) -> None:
        gated = self.gate.accounts.queries[report.query_id]
        with self._lock:
            loop = self._loops.get(report.query_id)
            if loop is None or loop.gated is not gated:
                memory = CostMemory(self.gate.line.directory / f"cost-{gated.query_id}.json")
                loop = self._loops[report.query_id] = BatchLoop(gated, self._new_controller(self.target_s), memory)
        for name, of_drop in counts.items():
            if of_drop.cells:
                learnt = self._values[name]
                learnt.observe(of_drop.cells, of_drop.arrived - of_drop.malformed - sum(of_drop.cells))
                if learnt.shares:
                    self._orders[name] = self._orders[name].with_shares(learnt.shares)
        known = loop.controller.out_of_reach
        sample = loop.learn(report, counts)
        tell_reach(_LOG, gated.output, known, loop.controller.out_of_reach)
        if self._on_sample is not None:
            self._on_sample(gated.output, sample)


def _seconds(frame: DataFrame, column: str) -> Column:
    if frame.schema[column].dataType.typeName().startswith("timestamp"):
        return F.unix_micros(F.col(column).cast("timestamp")) / 1e6
    return F.col(column).cast("double")
