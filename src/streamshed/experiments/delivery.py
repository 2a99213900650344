"""What a plan really delivers: a sample of tuples goes through the network, and what reaches the outputs is counted.

This is the measurement that planned utilities are held against, so it shares nothing with the planners' flow graph: no
selectivities, no histograms, no fractions. A random drop is a coin for each tuple, weighted by what the drop takes of
the tuples that reach it; a semantic drop is a predicate on the value (Aurora, section 3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.values import value_utility_of
from streamshed.errors import NetworkError
from streamshed.network import Filter, Map, Network, Node, Output, Spec, Stream, Union
from streamshed.planning import Drop, DropPlan
from streamshed.qos import ValueGraph

Values = NDArray[np.float64]

COLUMN = "value"
"""The one column whose values the sample has; everything that a network computes must come from it."""
_ABOVE = re.compile(rf"{COLUMN} > (\S+)")


@dataclass(frozen=True)
class Delivered:
    """What was measured under a plan.

    Attributes:
        delivered: by output: the share of its tuples that it got.
        tuple_utility: by output: its loss-tolerance utility at the share of tuples that it got.
        value_utility: by output: the share of the value that it got.
        load: seconds of processing per second that the operators took.
    """

    delivered: Mapping[str, float]
    tuple_utility: Mapping[str, float]
    value_utility: Mapping[str, float]
    load: float

    @property
    def tuple_utility_loss(self) -> float:
        """The mean of what the outputs lost in tuple utility, from 0 to 1."""
        return 1.0 - float(np.mean(list(self.tuple_utility.values())))

    @property
    def value_utility_loss(self) -> float:
        """The mean of what the outputs lost in value utility, from 0 to 1."""
        return 1.0 - float(np.mean(list(self.value_utility.values())))


class Sample:
    """Tuples for a network, spread over its streams as the rates are.

    Args:
        spec: a network of filters `value > number`, maps that keep the value, and unions.
        tuples: how many there are in all.
        seed: decides the values and the coins. Every plan sees the same tuples.
        low: the least value.
        high: the largest value; values are spread evenly.
    """

    def __init__(self, spec: Spec, tuples: int, seed: int, *, low: float = 0.0, high: float = 100.0) -> None:
        self.spec = spec
        self.seed = seed
        rng = np.random.default_rng(seed)
        total = sum(spec.rates.values())
        self._values = {
            stream: rng.uniform(low, high, round(tuples * rate / total)) for stream, rate in spec.rates.items()
        }
        self._seconds = sum(len(values) for values in self._values.values()) / total

    @cached_property
    def _offered(self) -> dict[str, _Curve]:
        """For each output, what it gets when nothing is dropped, as its utility against the share delivered."""
        arrived, _ = self._run({})
        return {output.id: _Curve(arrived[output.id], output.qos.value) for output in self.spec.network.outputs}

    def under(self, plan: DropPlan) -> Delivered:
        """Push the sample through the network with the drops of a plan."""
        arrived, load = self._run({drop.arc: drop for drop in plan.drops})
        shares: dict[str, float] = {}
        tuples: dict[str, float] = {}
        worth: dict[str, float] = {}
        for output, curve in self._offered.items():
            shares[output] = len(arrived[output]) / max(1, len(curve))
            tuples[output] = curve.at(len(arrived[output]))
            worth[output] = curve.share_of_value(arrived[output])
        return Delivered(shares, tuples, worth, load)

    def _run(self, drops: Mapping[str, Drop]) -> tuple[dict[str, Values], float]:
        """The values that reach every output, and the load."""
        network: Network = self.spec.network
        out: dict[str, Values] = {}
        work = 0.0
        for node in network.nodes.values():
            sides = []
            for arc in network.arcs_into[node.id]:
                values = self._values[node.id] if arc.is_entry else out[arc.source]
                drop = drops.get(arc.id)
                sides.append(values if drop is None else self._passing(drop, values))
            entering = sides[0] if len(sides) == 1 else np.concatenate(sides)
            work += self.spec.statistics.cost(node.id) * len(entering)
            out[node.id] = _through(node, entering)
        return {output.id: out[output.id] for output in network.outputs}, work / self._seconds

    def _passing(self, drop: Drop, values: Values) -> Values:
        if not drop.ranges:
            coins = np.random.default_rng((self.seed, crc32(drop.arc.encode()))).random(len(values))
            return values[coins >= drop.relative]
        highs = np.array([item.cell.high for item in drop.ranges])
        cuts = np.array([item.cell.low + (item.cell.high - item.cell.low) * item.dropped for item in drop.ranges])
        kept: Values = values[values >= cuts[np.searchsorted(highs, values).clip(max=len(highs) - 1)]]
        return kept


def _through(node: Node, values: Values) -> Values:
    match node:
        case Filter() if (match := _ABOVE.fullmatch(node.where)) is not None:
            return values[values > float(match[1])]
        case Stream() | Union() | Output():
            return values
        case Map() if node.select.get(COLUMN, COLUMN if node.keep else None) == COLUMN:
            return values
        case _:
            raise NetworkError(
                "the sample cannot go through this operator",
                where=f"operator {node.id!r}",
                got=type(node).__name__.lower(),
                expected=f"a filter `{COLUMN} > number`, a union, or a map that keeps {COLUMN!r}",
            )


class _Curve:
    """Utility against tuples delivered, if the least valuable go first (section 4.3.4), from the tuples themselves."""

    def __init__(self, offered: Values, graph: ValueGraph | None) -> None:
        self._utilities = value_utility_of(graph) if graph is not None else np.ones_like
        utilities = np.sort(self._utilities(offered))[::-1]
        self._sums = np.concatenate(([0.0], np.cumsum(utilities)))

    def __len__(self) -> int:
        return len(self._sums) - 1

    def at(self, delivered: int) -> float:
        """The utility when so many tuples are delivered."""
        return float(self._sums[delivered] / self._sums[-1]) if self._sums[-1] > 0 else 1.0

    def share_of_value(self, delivered: Values) -> float:
        """The share of the offered value in what was delivered."""
        return float(self._utilities(delivered).sum() / self._sums[-1]) if self._sums[-1] > 0 else 1.0
