"""What is known about a network at run time, apart from its structure: costs, selectivities, value histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean
from streamshed.network.network import Network
from streamshed.network.nodes import Aggregate, Join, Split
from streamshed.qos import Histogram

_SOME_COST = 1.0
"""Of an operator, where none is known. Any number would do; beside this one a drop costs next to nothing."""
_SHOWN = 12


@dataclass(frozen=True)
class Statistics:
    """Costs and selectivities of the operators, and how values are spread.

    Attributes:
        costs: seconds of processing per input tuple, by operator id; 0 for what costs nothing. What is left out is not
            known.
        selectivities: output tuples per input tuple, by operator id, and by `split.branch` for splits. Above 1 is
            possible: a join, an aggregate over sliding windows.
        histograms: by stream id and column: how the values of arriving tuples are spread.
        drop_cost: seconds that a drop itself takes per tuple that reaches it.
        believed: the operators whose cost is only believed, see `with_believed_costs`: it says nothing of seconds.
    """

    costs: Mapping[str, float] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    drop_cost: float = 0.0
    believed: frozenset[str] = frozenset()

    def cost(self, operator_id: str) -> float:
        """Seconds per input tuple; 0 where that is not known: who decides by costs asks `unknown_costs` first."""
        return self.costs.get(operator_id, 0.0)

    def unknown_costs(self, network: Network) -> tuple[str, ...]:
        """The operators whose cost is not known, or only believed."""
        operators = (operator.id for operator in network.operators)
        return tuple(each for each in operators if each not in self.costs or each in self.believed)

    def with_believed_costs(self, network: Network) -> Statistics:
        """The statistics with a cost for every operator, to decide by where only proportions count.

        What is not known costs as much as the others do on average; where nothing is known, all cost the same. What is
        believed already stays as it is.

        >>> from streamshed.network import NetworkBuilder
        >>> new = NetworkBuilder("chain")
        >>> new.stream("s", {"v": "int"}).filter("a", "v > 1").filter("b", "v > 2").filter("c", "v > 3").output("out")
        >>> known = Statistics({"a": 0.001, "b": 0.003}).with_believed_costs(new.build())
        >>> known.cost("c"), sorted(known.believed)
        (0.002, ['c'])
        """
        unknown = [operator.id for operator in network.operators if operator.id not in self.costs]
        if not unknown:
            return self
        given = [cost for operator, cost in self.costs.items() if operator not in self.believed]
        alike = sum(given) / len(given) if any(given) else _SOME_COST
        costs = {**self.costs, **dict.fromkeys(unknown, alike)}
        return replace(self, costs=costs, believed=self.believed.union(unknown))

    @property
    def cost_note(self) -> str | None:
        """What a user should know of believed costs, in a line; None if there are none."""
        if not self.believed:
            return None
        unknown = [operator for operator in self.costs if operator in self.believed]
        alike = "as much as the others on average" if len(unknown) < len(self.costs) else "the same each"
        return f"No cost is known of: {listed(unknown)}; believed to cost {alike}. What a batch costs in all is learnt."

    def require_costs(self, network: Network, where: str) -> None:
        """Raise unless the cost of every operator is known: else nobody can tell a load in seconds."""
        unknown = self.unknown_costs(network)
        if unknown:
            raise InvalidValueError(
                f"the load cannot be told: no cost is known of: {listed(unknown)}",
                where=where,
                got=f"{len(network.operators) - len(unknown)} of {len(network.operators)} costs",
                expected="seconds of processing per tuple, for every operator; 0 for what costs nothing",
                hint="write them under 'statistics: costs:'; `streamshed run` needs none, it finds out by itself",
                at=("statistics", "costs"),
            )

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


def listed(names: Sequence[str]) -> str:
    """Names for a message.

    >>> listed(["a", "b"]), listed([str(i) for i in range(100)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 88 more')
    """
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


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
