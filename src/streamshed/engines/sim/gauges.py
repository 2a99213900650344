"""What reaches each output, what would have reached it without drops, and what that is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.places import Gauge, Out, Place, Places
from streamshed.engines.sim.result import GROWTH, SMALLEST_S, STEPS, Delays, OutputResult
from streamshed.engines.sim.tuples import Ids, Times, Tuples
from streamshed.engines.sim.values import value_utility_of
from streamshed.network import Aggregate, Arc, Network, Output
from streamshed.qos import LossGraph, tuple_utility

_LOG_GROWTH = math.log(GROWTH)
_WORK = 1 << 15


class DelayCounts:
    """A histogram of delays in steps of one per cent, with exact mean and maximum."""

    def __init__(self) -> None:
        self._steps = np.zeros(STEPS)
        self._count = 0
        self._sum_s = self._max_s = 0.0

    def add(self, delay_s: Times) -> None:
        """Count delays, at least one."""
        self._count += len(delay_s)
        self._sum_s += float(delay_s.sum())
        self._max_s = max(self._max_s, float(delay_s.max()))
        step = np.ceil(np.log(np.maximum(delay_s, SMALLEST_S) / SMALLEST_S) / _LOG_GROWTH).astype(np.int64)
        self._steps += np.bincount(np.minimum(step, STEPS - 1), minlength=STEPS)

    @property
    def delays(self) -> Delays:
        """What has been counted."""
        return Delays(self._steps, self._sum_s / self._count if self._count else 0.0, self._max_s)


@dataclass
class _Noted:
    arrived_s: list[Times]
    delay_s: list[Times]
    values: list[Times]
    count: int = 0


class OutputGauge(Gauge):
    """Counts the tuples of one output, by the period in which they arrived.

    Args:
        output: the output.
        slot: where the values are that its value graph looks at; None if there are none.
        period_s: the length of a period.
        periods: how many there are.
    """

    def __init__(self, output: Output, slot: int | None, period_s: float, periods: int) -> None:
        self._output = output
        self._slot = slot
        self._period_s = period_s
        self._delivered = np.zeros(periods + 1)
        self._lost = np.zeros(periods + 1)
        self._worth_delivered = self._worth_lost = 0.0
        self._utility = value_utility_of(output.qos.value) if output.qos.value is not None else None
        self._delays = DelayCounts()
        self._noted = _Noted([], [], [])

    def deliver(self, tuples: Tuples, at: Ids, times_s: Times) -> None:
        arrived_s = tuples.arrived_s[at]
        noted = self._noted
        noted.arrived_s.append(arrived_s)
        noted.delay_s.append(times_s - arrived_s)
        if self._slot is not None:
            noted.values.append(tuples.values[self._slot][at])
        noted.count += len(at)
        if noted.count > _WORK:
            self._settle()

    def lose(self, tuples: Tuples, at: Ids) -> None:
        self._add(self._lost, tuples.arrived_s[at])
        if self._slot is not None:
            self._worth_lost += self._worth(tuples.values[self._slot][at])

    def _settle(self) -> None:
        noted, self._noted = self._noted, _Noted([], [], [])
        if not noted.count:
            return
        self._add(self._delivered, np.concatenate(noted.arrived_s))
        self._delays.add(np.concatenate(noted.delay_s))
        if noted.values:
            self._worth_delivered += self._worth(np.concatenate(noted.values))

    def _add(self, counts: Times, arrived_s: Times) -> None:
        period = (arrived_s / self._period_s).astype(np.int64)
        found = np.bincount(np.minimum(period, len(counts) - 1))
        counts[: len(found)] += found

    def _worth(self, values: Times) -> float:
        known = values[~np.isnan(values)]
        return float(self._utility(known).sum()) if self._utility is not None and len(known) else 0.0

    def result(self, loss: LossGraph) -> OutputResult:
        """What was counted.

        Args:
            loss: the loss tolerance by which tuple utility is reckoned.
        """
        self._settle()
        offered = self._delivered + self._lost
        shares: Times = self._delivered / np.maximum(offered, 1)
        epochs = zip(offered.tolist(), shares.tolist(), strict=True)
        worth = self._worth_delivered + self._worth_lost
        delivered, everything = float(self._delivered.sum()), float(offered.sum())
        share = delivered / everything if everything else 1.0
        return OutputResult(
            output=self._output.id,
            weight=self._output.qos.weight,
            delivered=int(delivered),
            lost=int(everything - delivered),
            tuple_utility=tuple_utility(loss, epochs),
            value_utility=self._worth_delivered / worth if worth > 0 else share,
            delays=self._delays.delays,
        )


def attach_gauges(places: Places, period_s: float, periods: int) -> dict[str, OutputGauge]:
    """Put a gauge before every output; behind an aggregate nothing can be told apart, so there it goes before it."""
    network = places.network
    gauges: dict[str, OutputGauge] = {}
    for output in network.outputs:
        arc = network.arcs_into[output.id][0]
        value = output.qos.value
        slot = places.slots.slot(arc, value.column) if value is not None else None
        gauge = gauges[output.id] = OutputGauge(output, slot, period_s, periods)
        aggregate = _first_aggregate(network, arc)
        if aggregate is None:
            places.outs[arc.id].gauge = gauge
        else:
            places.places[aggregate].gauges.append(gauge)
    return gauges


def _first_aggregate(network: Network, arc: Arc) -> str | None:
    """The aggregate nearest to the streams on the way to an arc, as far as there is only one way."""
    found = None
    while not arc.is_entry:
        node = network.nodes[arc.source]
        into = network.arcs_into[node.id]
        if len(into) != 1:
            break
        found = node.id if isinstance(node, Aggregate) else found
        arc = into[0]
    return found


class Ghosts:
    """What would have become of dropped tuples: they go through the rest of the network at no cost, for the count.

    They are collected and sent in bulk, before their room is taken by new tuples.
    """

    def __init__(self, places: Places, tuples: Tuples) -> None:
        self._tuples = tuples
        self._places = places
        self._gone: dict[Out, list[Ids]] = {}
        self._alone: dict[Place, list[Ids]] = {}

    def add(self, out: Out, ids: Ids) -> None:
        """Tuples were dropped on an arc."""
        self._gone.setdefault(out, []).append(ids)

    def add_alone(self, place: Place, ids: Ids) -> None:
        """Tuples found no partner in a join, because that was dropped."""
        self._alone.setdefault(place, []).append(ids)

    def settle(self) -> None:
        """Count them where they would have got to."""
        for out, trains in self._gone.items():
            self._follow(out, np.concatenate(trains))
        for place, trains in self._alone.items():
            self._through(place, np.concatenate(trains))
        self._gone.clear()
        self._alone.clear()

    def _follow(self, out: Out, ids: Ids) -> None:
        if not len(ids):
            return
        tuples = self._tuples
        if out.arc.is_entry:
            for further in self._places.entries[out.arc.target]:
                self._follow(further, ids)
            return
        place = out.place
        if place is None:
            if out.gauge is not None:
                out.gauge.lose(tuples, tuples.at(ids))
            return
        if place.sides is not None:
            place.sides.meet(tuples, ids, tuples.at(ids), out.arc.port)
        self._through(place, ids)

    def _through(self, place: Place, ids: Ids) -> None:
        at = self._tuples.at(ids)
        for gauge in place.gauges:
            gauge.lose(self._tuples, at)
        for further in place.outs:
            choice = None if further.choice is None else further.choice(self._tuples, ids, at)
            self._follow(further, ids if choice is None else _chosen(ids, choice))


def _chosen(ids: Ids, choice: NDArray[np.bool_] | NDArray[np.int64]) -> Ids:
    return ids[choice] if choice.dtype == np.bool_ else np.repeat(ids, choice.astype(np.int64))
