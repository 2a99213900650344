"""The fluent way to write a network in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamshed.errors import NetworkError
from streamshed.network.network import Network
from streamshed.network.nodes import (
    AGGREGATE_FUNCTIONS,
    Aggregate,
    Aggregation,
    Connector,
    Filter,
    Join,
    Map,
    Operator,
    Output,
    Split,
    Stream,
    Union,
)
from streamshed.qos import Qos

_AGGREGATION = re.compile(r"\s*(\w+)\s*\(\s*(?:(\w+)|\*|`((?:[^`]|``)+)`)?\s*\)\s*")


def parse_aggregation(text: str, where: str, at: Iterable[str] = ()) -> Aggregation:
    """Read `avg(speed)` or `count()`; a column with other characters than letters and digits stands in backticks.

    >>> parse_aggregation("avg(speed)", "here")
    Aggregation(function='avg', column='speed')
    """
    match = _AGGREGATION.fullmatch(text)
    if match is None:
        raise NetworkError(
            "not an aggregate",
            where=where,
            got=repr(text),
            expected=f"function(column), function one of {', '.join(AGGREGATE_FUNCTIONS)}",
            hint="compute an expression with a map first",
            at=at,
        )
    quoted = match[3]
    return Aggregation(match[1].lower(), quoted.replace("``", "`") if quoted else match[2])


class NetworkBuilder:
    """Collects nodes; `build()` checks them and freezes the network.

    >>> new = NetworkBuilder("example")
    >>> readings = new.stream("readings", {"at": "timestamp", "value": "double"}, time="at")
    >>> hot = readings.filter("hot", "value > 30")
    >>> hot.output("alarms")
    >>> readings.aggregate("means", {"mean": "avg(value)"}, window_s=60).output("report")
    >>> [arc.id for arc in new.build().arcs]
    ['readings', 'readings->hot', 'readings->means', 'hot->alarms', 'means->report']
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._streams: list[Stream] = []
        self._operators: list[Operator] = []
        self._outputs: list[Output] = []

    def stream(
        self,
        id: str,
        columns: Mapping[str, str],
        *,
        time: str | None = None,
        key: Iterable[str] = (),
        lateness_s: float = 0.0,
        source: Connector | None = None,
    ) -> Flow:
        """Add an input stream."""
        self._streams.append(Stream(id, dict(columns), time, tuple(key), lateness_s, source))
        return Flow(self, id)

    def build(self) -> Network:
        """The finished network; raises `NetworkError` if it is not sound."""
        return Network(self._name, tuple(self._streams), tuple(self._operators), tuple(self._outputs))

    def _add(self, operator: Operator) -> Flow:
        self._operators.append(operator)
        return Flow(self, operator.id)

    def _add_output(self, output: Output) -> None:
        self._outputs.append(output)


@dataclass(frozen=True)
class Flow:
    """The tuples that leave a stream, an operator or a branch. Reading it twice is fan-out."""

    builder: NetworkBuilder
    reference: str

    def filter(self, id: str, where: str, *, stage: bool = False) -> Flow:
        """Keep what satisfies a predicate."""
        return self.builder._add(Filter(id, self.reference, where, stage))

    def map(self, id: str, select: Mapping[str, str], *, keep: bool = False, stage: bool = False) -> Flow:
        """Compute columns."""
        return self.builder._add(Map(id, self.reference, dict(select), keep, stage))

    def union(self, id: str, *others: Flow, stage: bool = False) -> Flow:
        """Merge with other flows that have the same columns."""
        return self.builder._add(Union(id, (self.reference, *(other.reference for other in others)), stage))

    def join(self, id: str, right: Flow, *, on: Iterable[str], within_s: float, stage: bool = False) -> Flow:
        """Pair with another flow on equal keys within a time."""
        return self.builder._add(Join(id, self.reference, right.reference, tuple(on), within_s, stage))

    def aggregate(
        self,
        id: str,
        aggregates: Mapping[str, str],
        *,
        window_s: float,
        slide_s: float | None = None,
        group_by: Iterable[str] = (),
        stage: bool = False,
    ) -> Flow:
        """Aggregate over windows and groups, with functions written as `avg(column)`."""
        functions = {name: parse_aggregation(text, f"operator {id!r}") for name, text in aggregates.items()}
        return self.builder._add(Aggregate(id, self.reference, functions, window_s, slide_s, tuple(group_by), stage))

    def split(self, id: str, branches: Mapping[str, str], *, stage: bool = False) -> Mapping[str, Flow]:
        """Route to branches by predicate."""
        self.builder._add(Split(id, self.reference, dict(branches), stage))
        return {name: Flow(self.builder, f"{id}.{name}") for name in branches}

    def output(self, id: str, qos: Qos | None = None, *, sink: Connector | None = None) -> None:
        """End here."""
        self.builder._add_output(Output(id, self.reference, qos or Qos(), sink))
