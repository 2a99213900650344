"""What is known about a network at run time, apart from its structure: costs, selectivities, value histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean
from streamshed.network.network import Network
from streamshed.network.nodes import Aggregate, Join, Split
from streamshed.qos import Histogram


@dataclass(frozen=True)
class Statistics:
    """Costs and selectivities of the operators, and how values are spread.

    Attributes:
        costs: seconds of processing per input tuple, by operator id.
        selectivities: output tuples per input tuple, by operator id, and by `split.branch` for splits. Above 1 is
            possible: a join, an aggregate over sliding windows.
        histograms: by stream id and column: how the values of arriving tuples are spread.
        drop_cost: seconds that a drop itself takes per tuple that reaches it.
    """

    costs: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    drop_cost: float = 0.0

    def cost(self, operator_id: str) -> float:
        """Seconds per input tuple; an operator without statistics costs nothing."""
        return self.costs.get(operator_id, 0.0)

    def selectivity(self, end: str) -> float:
        """Output tuples per input tuple at an operator or branch; 1 without statistics."""
        return self.selectivities.get(end, 1.0)

    def check(self, network: Network) -> None:
        """Raise on numbers that make no sense and on ids that the network does not have."""
        ends = set(selectivity_ends(network))
        operators = {operator.id for operator in network.operators}
        for operator_id, cost in self.costs.items():
            where = f"cost of {operator_id!r}"
            if operator_id not in operators:
                raise UnknownNameError(
                    "a cost for an operator that does not exist",
                    where=where,
                    got=repr(operator_id),
                    expected="the id of an operator",
                    hint=did_you_mean(operator_id, operators),
                    at=("statistics", "costs", operator_id),
                )
            if not (math.isfinite(cost) and cost >= 0):
                raise InvalidValueError(
                    "a cost is negative" if cost < 0 else "a cost is not finite",
                    where=where,
                    got=cost,
                    expected="seconds per tuple, >= 0",
                    at=("statistics", "costs", operator_id),
                )
        many = {operator.id for operator in network.operators if isinstance(operator, Aggregate | Join)}
        for end, selectivity in self.selectivities.items():
            where = f"selectivity of {end!r}"
            if end not in ends:
                raise UnknownNameError(
                    "a selectivity for an operator or branch that does not exist",
                    where=where,
                    got=repr(end),
                    expected="the id of an operator, or split.branch",
                    hint=did_you_mean(end, ends),
                    at=("statistics", "selectivities", end),
                )
            most = math.inf if end in many else 1.0
            if not (math.isfinite(selectivity) and 0 <= selectivity <= most):
                raise InvalidValueError(
                    "a selectivity is out of range",
                    where=where,
                    got=selectivity,
                    expected=f"0 <= selectivity{'' if most == math.inf else ' <= 1'}",
                    at=("statistics", "selectivities", end),
                )
        if not (math.isfinite(self.drop_cost) and self.drop_cost >= 0):
            raise InvalidValueError(
                "the cost of a drop is negative",
                where="drop_cost",
                got=self.drop_cost,
                expected="seconds per tuple, >= 0",
                at=("statistics", "drop_cost"),
            )
        streams = {stream.id: stream for stream in network.streams}
        for stream_id, columns in self.histograms.items():
            if stream_id not in streams:
                raise UnknownNameError(
                    "a histogram for a stream that does not exist",
                    where=f"histogram of {stream_id!r}",
                    got=repr(stream_id),
                    expected="the id of a stream",
                    hint=did_you_mean(stream_id, streams),
                    at=("statistics", "histograms", stream_id),
                )
            for column in columns:
                if column not in streams[stream_id].columns:
                    raise UnknownNameError(
                        "a histogram for a column that does not exist",
                        where=f"histogram of {stream_id!r}",
                        got=repr(column),
                        expected="a column of the stream",
                        hint=did_you_mean(column, streams[stream_id].columns),
                        at=("statistics", "histograms", stream_id, column),
                    )


def selectivity_ends(network: Network) -> tuple[str, ...]:
    """Everything that has a selectivity: operators, and the branches of splits instead of the splits."""
    ends: list[str] = []
    for node in network.operators:
        ends.extend(f"{node.id}.{name}" for name in node.branches) if isinstance(node, Split) else ends.append(node.id)
    return tuple(ends)


def check_rates(network: Network, rates: Mapping[str, float]) -> None:
    """Raise unless every stream has a rate, in tuples per second, and nothing else has."""
    streams = {stream.id for stream in network.streams}
    for stream_id in rates:
        if stream_id not in streams:
            raise UnknownNameError(
                "a rate for a stream that does not exist",
                where=f"rate of {stream_id!r}",
                got=repr(stream_id),
                expected="the id of a stream",
                hint=did_you_mean(stream_id, streams),
                at=("rates", stream_id),
            )
    for stream_id in sorted(streams):
        rate = rates.get(stream_id)
        if rate is None or not (math.isfinite(rate) and rate >= 0):
            raise InvalidValueError(
                "a stream needs a rate" if rate is None else "a rate is out of range",
                where=f"stream {stream_id!r}",
                got=rate if rate is not None else "none",
                expected="tuples per second, >= 0",
                at=("rates", stream_id),
            )
