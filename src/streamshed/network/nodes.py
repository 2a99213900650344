"""What a query network is made of: streams, operators and outputs, as frozen values with ids their user chose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streamshed.qos import Qos

AGGREGATE_FUNCTIONS = ("count", "sum", "avg", "min", "max")
WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True)
class Connector:
    """Where a stream comes from or an output goes to: a Spark format with its options."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Stream:
    """An input stream.

    Attributes:
        id: its name.
        columns: column name to Spark SQL type.
        time: the event-time column; needed by windows and joins downstream.
        key: the columns whose hash decides what a random drop drops; all columns where not given.
        lateness_s: how late a tuple may come before windows close without it.
        source: where it is read from; None for planning only.
    """

    id: str
    columns: Mapping[str, str]
    time: str | None = None
    key: tuple[str, ...] = ()
    lateness_s: float = 0.0
    source: Connector | None = None

    inputs: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True)
class Filter:
    """Keeps the tuples that satisfy a Spark SQL predicate."""

    id: str
    input: str
    where: str
    stage: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The references this operator reads."""
        return (self.input,)


@dataclass(frozen=True)
class Map:
    """Computes columns with Spark SQL expressions: exactly these, or these beside the existing ones (`keep`)."""

    id: str
    input: str
    select: Mapping[str, str]
    keep: bool = False
    stage: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The references this operator reads."""
        return (self.input,)


@dataclass(frozen=True)
class Union:
    """Merges streams that have the same columns."""

    id: str
    inputs: tuple[str, ...]
    stage: bool = False


@dataclass(frozen=True)
class Join:
    """Pairs tuples with equal keys whose event times lie at most `within_s` apart.

    The output has the columns of the left side, then those of the right side that are not keys; its time is the left
    one's, and a right time column of the same name is left out.
    """

    id: str
    left: str
    right: str
    on: tuple[str, ...]
    within_s: float
    stage: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The references this operator reads, left first."""
        return (self.left, self.right)


@dataclass(frozen=True)
class Aggregation:
    """One aggregate function over a column; `count` needs none."""

    function: str
    column: str | None = None

    def __str__(self) -> str:
        column = self.column or ""
        if not re.fullmatch(r"\w*", column):
            column = "`" + column.replace("`", "``") + "`"
        return f"{self.function}({column})"


@dataclass(frozen=True)
class Aggregate:
    """Aggregates over time windows and groups: tumbling, or sliding where `slide_s` is given.

    The output has `window_start`, `window_end`, the group columns and the aggregates; its time is `window_end`.
    """

    id: str
    input: str
    aggregates: Mapping[str, Aggregation]
    window_s: float
    slide_s: float | None = None
    group_by: tuple[str, ...] = ()
    stage: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The references this operator reads."""
        return (self.input,)


@dataclass(frozen=True)
class Split:
    """Routes tuples to named branches by predicate; a tuple goes to every branch whose predicate holds.

    Downstream operators read a branch as `split_id.branch`. Plain fan-out needs no split: any node may be read by
    several others.
    """

    id: str
    input: str
    branches: Mapping[str, str]
    stage: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The references this operator reads."""
        return (self.input,)


@dataclass(frozen=True)
class Output:
    """Where answers leave the network, and how good they have to be."""

    id: str
    input: str
    qos: Qos = field(default_factory=Qos)
    sink: Connector | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The references this output reads."""
        return (self.input,)


Operator = Filter | Map | Union | Join | Aggregate | Split
Node = Stream | Operator | Output


@dataclass(frozen=True)
class Arc:
    """A connection along which tuples flow, and a place where a drop can go.

    The id is `source->target` (`split.branch->target`; `source->join.left` and `.right` at a join). The entry of a
    stream is an arc too, named as the stream: a drop there affects every reader.
    """

    id: str
    source: str
    target: str
    branch: str | None = None
    port: int = 0

    @property
    def is_entry(self) -> bool:
        """Whether tuples come in from outside here."""
        return not self.source
