"""What a run has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamshed.engines.sim.tuples import Times

if TYPE_CHECKING:
    from streamshed.engines.sim.tracks import SchedulingResult


@dataclass(frozen=True)
class Series:
    """One row per control period.

    Attributes:
        time_s: when the period ended.
        arrived: tuples that arrived in it.
        admitted: those among them that were let into the network.
        finished: tuples that left the virtual queue in it: in full tuples where a planner decides, as the next too.
        outstanding: the length of the virtual queue at its end.
        busy_s: processing time spent on tuples.
        cost_s: processing time per finished tuple; NaN where none was finished.
        delay_mean_s: mean delay of the tuples that *arrived* in it and got through; NaN where none did.
        delay_max_s: the longest of these delays.
        target_s: the delay to hold.
    """

    time_s: Times
    arrived: Times
    admitted: Times
    finished: Times
    outstanding: Times
    busy_s: Times
    cost_s: Times
    delay_mean_s: Times
    delay_max_s: Times
    target_s: Times


@dataclass(frozen=True)
class Delays:
    """The delays of the tuples that got through: how many were how late, in steps of one per cent.

    Attributes:
        counts: by step.
        mean_s: exact.
        max_s: exact.
    """

    counts: Times
    mean_s: float
    max_s: float

    def quantile_s(self, share: float) -> float:
        """This share of the tuples was at most so late, to one per cent; 0 without tuples."""
        total = self.counts.sum()
        if total == 0:
            return 0.0
        step = int(np.searchsorted(np.cumsum(self.counts), share * total))
        return min(step_end_s(step), self.max_s)


SMALLEST_S, GROWTH, STEPS = 1e-6, 1.01, 2600


def step_end_s(step: int) -> float:
    """The longest delay that is counted in a step."""
    return float(SMALLEST_S * GROWTH**step)


@dataclass(frozen=True)
class OutputResult:
    """What one output got.

    Tuples are counted where they reach the output; if it shows an aggregate, where they go into that. What it would
    have got without drops is known: dropped tuples are followed to where they would have ended.

    Attributes:
        output: its id.
        weight: how much it counts.
        delivered: tuples that reached it.
        lost: tuples that would have, had they not been dropped.
        tuple_utility: mean utility per tuple by the loss tolerance, each control period an epoch.
        value_utility: the share of the value that was delivered; of the tuples, where there is no value graph.
        delays: of what was delivered.
    """

    output: str
    weight: float
    delivered: int
    lost: int
    tuple_utility: float
    value_utility: float
    delays: Delays

    @property
    def share(self) -> float:
        """The share of its tuples that it got; 1 where there were none."""
        return self.delivered / (self.delivered + self.lost) if self.delivered + self.lost else 1.0


@dataclass(frozen=True)
class SimResult:
    """A run in numbers.

    Every tuple that arrives is one of four in the end: delivered (a copy of it reached an output), dropped (a drop
    took the last chance of that), filtered (the operators rejected it), or still under way.

    Attributes:
        seconds: for how long tuples arrived.
        arrived: tuples that came.
        admitted: those that were let into the network.
        delivered: see above.
        dropped: see above.
        filtered: see above.
        under_way: see above.
        violations_s: accumulated delay violations: the sum of delay beyond the target.
        delayed: tuples later than the target.
        overshoot_s: the longest delay beyond the target.
        delays: of tuples that got through the network, delivered or filtered.
        utilization: the share of the time in which the processors worked on tuples or were taken up beside them.
        executions: operator executions, one per tuple and operator.
        dropped_on: tuples dropped on each arc that had a drop.
        faced: tuples that came to these drops while they had a threshold.
        entered: tuples that came to each arc's drop.
        outputs: what each output got.
        work_s: processing time spent on tuples.
        series: by control period.
        arrivals_s: when each tuple that got through arrived, in the order of leaving; empty unless asked for.
        departures_s: when it left.
        scheduling: what strategies and the runtime optimizer did, where there were any.
    """

    seconds: float
    arrived: int
    admitted: int
    delivered: int
    dropped: int
    filtered: int
    under_way: int
    violations_s: float
    delayed: int
    overshoot_s: float
    delays: Delays
    utilization: float
    executions: int
    dropped_on: Mapping[str, int]
    faced: Mapping[str, int]
    entered: Mapping[str, int]
    outputs: Mapping[str, OutputResult]
    work_s: float
    series: Series
    arrivals_s: Times
    departures_s: Times
    scheduling: SchedulingResult | None = None

    @property
    def loss(self) -> float:
        """The share of the tuples that was dropped."""
        return self.dropped / self.arrived if self.arrived else 0.0

    @property
    def tuple_utility_loss(self) -> float:
        """The weighted mean of what the outputs lost in tuple utility, from 0 to 1."""
        return self._mean_loss({name: output.tuple_utility for name, output in self.outputs.items()})

    @property
    def value_utility_loss(self) -> float:
        """The weighted mean of what the outputs lost in value utility, from 0 to 1."""
        return self._mean_loss({name: output.value_utility for name, output in self.outputs.items()})

    def _mean_loss(self, utilities: Mapping[str, float]) -> float:
        weights = {name: output.weight for name, output in self.outputs.items()}
        return sum(weights[name] * (1 - utility) for name, utility in utilities.items()) / sum(weights.values())
