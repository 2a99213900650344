"""The plant and the loads on which controllers are compared: those of the control-based shedder's paper, section 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamshed.control import HEADROOM, Controller, RateController, controller_named
from streamshed.engines.sim import SimResult, simulate
from streamshed.errors import InvalidValueError
from streamshed.load import load_coefficients
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import Planner
from streamshed.qos import Histogram
from streamshed.workload import ArrivalPattern, Pareto, Phases, Sinusoid, Step, Trace
from streamshed.workload.costs import ConstantCost, CostTrace, VaryingCost
from streamshed.workload.profile import Floats

CAPACITY_TPS = 190.0
"""Tuples a second that the paper's network can process with all of the processor: 5.26 ms each."""
USABLE_TPS = HEADROOM * CAPACITY_TPS
TARGET_S = 2.0
PERIOD_S = 1.0
SECONDS = 400.0
COSTS: Mapping[str, CostTrace] = {"constant": ConstantCost(), "varying": VaryingCost()}
"""Per-tuple costs over time: always the same, or with the shapes of figure 14."""
STEP_S, COIN_STEP_S = 0.02, 0.05
"""How often the simulator asks a controller that decides on every tuple, and one that decides once a period."""
TRACE_SCALE = 2.0
"""With this factor the paper's trace is an overload: 1.4 times the capacity."""


@dataclass(frozen=True)
class Plant:
    """A network whose average tuple costs 1 / `CAPACITY_TPS`.

    Attributes:
        network: the network.
        statistics: its costs, selectivities and histograms.
    """

    network: Network
    statistics: Statistics

    @property
    def stream(self) -> str:
        """The id of its one stream."""
        return self.network.streams[0].id

    @property
    def is_queue(self) -> bool:
        """Whether it is a single queue."""
        return len(self.network.operators) == 1


def virtual_queue() -> Plant:
    """One operator with one queue: the paper's model of a stream engine, with nothing unknown about it."""
    new = NetworkBuilder("virtual queue")
    new.stream("arrivals", {"value": "double"}, key=["value"]).map("work", {"value": "value"}).output("answers")
    return Plant(new.build(), Statistics({"work": 1 / CAPACITY_TPS}))


def operator_network() -> Plant:
    """Fourteen operators of fixed cost on three paths behind a common one, with filters on uniform values.

    The paper says that it has 14 operators, and no more about them. A tuple's path depends on its value here, so tuples
    differ in cost and delay, as they do there.

    >>> plant = operator_network()
    >>> coefficient = load_coefficients(plant.network, plant.statistics)["arrivals"]
    >>> len(plant.network.operators), round(1 / coefficient, 6)
    (14, 190.0)
    """
    new = NetworkBuilder("fourteen operators")
    stream = new.stream("arrivals", {"value": "double"}, key=["value"])
    common = stream.map("parse", {"value": "value"})
    for number, bounds in enumerate(((20, 50), (40, 60), (60, 80)), start=1):
        path = common
        for step, bound in enumerate(bounds, start=1):
            path = path.filter(f"keep{number}{step}", f"value > {bound}").map(f"work{number}{step}", {"value": "value"})
        path.output(f"answers{number}")
    common.filter("rare", "value > 90").output("alarms")
    network = new.build()
    histograms = {"arrivals": {"value": Histogram.uniform(0, 100)}}
    shares = {"rare": 0.1}
    for number, (low, high) in enumerate(((20, 50), (40, 60), (60, 80)), start=1):
        shares[f"keep{number}1"] = (100 - low) / 100
        shares[f"keep{number}2"] = (100 - high) / (100 - low)
    costs = {operator.id: 1.0 if operator.id.startswith("work") else 0.5 for operator in network.operators}
    unscaled = load_coefficients(network, Statistics(costs, shares, histograms))["arrivals"]
    scaled = {name: cost / unscaled / CAPACITY_TPS for name, cost in costs.items()}
    return Plant(network, Statistics(scaled, shares, histograms))


# --- loads ----------------------------------------------------------------------------------------------------------


_WARM_UP_BINS = 1000  # before the beginning, so that sources are not all on at once


def web_like(mean_tps: float, seconds: float, seed: int = 0) -> ArrivalPattern:
    """Self-similar traffic for those who have no trace: many sources, each on and off for Pareto-distributed times.

    Sixty sources with mean on and off times of one and two seconds and a tail index of 1.4 give bursts on all scales
    from tenths of a second to minutes, in bins of 100 ms like a recorded trace.
    """
    generator = np.random.default_rng([seed, 60])
    bins = round(seconds * 10)
    spells = bins + _WARM_UP_BINS
    active = np.zeros(bins + 1)
    for _ in range(60):
        lengths = np.ceil(10 * (generator.pareto(1.4, 2 * spells) + 1) * np.tile([0.3, 0.6], spells)).astype(np.int64)
        ends = np.clip(np.cumsum(lengths) - _WARM_UP_BINS, 0, bins)
        np.add.at(active, np.concatenate([[0], ends[1:-1:2]]), 1.0)
        np.add.at(active, ends[0::2], -1.0)
    rates = np.cumsum(active)[:-1]
    rates *= mean_tps / rates.mean()
    return Phases(tuple((float(rate), 0.1) for rate in rates))


def load_named(
    name: str, *, load: float | None = None, bias: float = 1.0, seconds: float = SECONDS, seed: int = 0
) -> ArrivalPattern:
    """A synthetic load.

    Args:
        name: `web`, `pareto`, `step` or `sinusoid`.
        load: mean rate as a multiple of the usable capacity (of a step: the rate after it); 1.5 if not given, and for a
            sinusoid what makes it swing between 0 and 400 tuples a second, as in the paper.
        bias: of the Pareto distribution; the smaller, the more bursty.
        seconds: how long.
        seed: of random loads.
    """
    mean_tps = (1.5 if load is None else load) * USABLE_TPS
    match name:
        case "web":
            return web_like(mean_tps, seconds, seed)
        case "pareto":
            return Pareto(mean_tps, bias, seed=seed)
        case "step":
            return Step(before_tps=USABLE_TPS / 4, after_tps=mean_tps, at_s=10.0)
        case "sinusoid":
            swing_tps = 200.0 if load is None else mean_tps
            return Sinusoid(swing_tps, swing_tps, period_s=100.0)
    raise InvalidValueError(
        "there is no such load", where="pattern", got=name, expected="web, pareto, step or sinusoid"
    )


def recorded(file: Path, *, scale: float = TRACE_SCALE, start_s: float = 0.0) -> ArrivalPattern:
    """Arrivals from a trace file; it begins again when it ends."""
    return Trace(str(file), scale, start_s, repeat=True)


def arrival_times_s(pattern: ArrivalPattern, seconds: float) -> Floats:
    """When each tuple arrives."""
    return pattern.arrival_time(np.arange(pattern.cumulative(seconds)))


def mean_load(pattern: ArrivalPattern, cost: CostTrace, seconds: float) -> float:
    """What arrives, in seconds of usable processor time a second."""
    factors = cost.factor(np.minimum(arrival_times_s(pattern, seconds), seconds))
    return float(factors.sum()) / seconds / USABLE_TPS


# --- runs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """The paper's four measures (section 3).

    Attributes:
        violations_s: accumulated delay violations, Σ (y − y_d) over the tuples with y > y_d.
        delayed: how many these are.
        overshoot_s: the largest y − y_d.
        loss: the share of the tuples that was dropped.
    """

    violations_s: float
    delayed: int
    overshoot_s: float
    loss: float

    @classmethod
    def of(cls, run: SimResult) -> Score:
        """Of a run."""
        return cls(run.violations_s, run.delayed, run.overshoot_s, run.loss)


def run_controller(
    controller: Controller | str,
    pattern: ArrivalPattern,
    *,
    cost: CostTrace | None = None,
    plant: Plant | None = None,
    planner: Planner | None = None,
    target_s: float = TARGET_S,
    target_changes: Mapping[float, float] | None = None,
    period_s: float = PERIOD_S,
    seconds: float = SECONDS,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> SimResult:
    """One controller on one load, until every tuple that arrives in `seconds` is delivered or dropped."""
    plant = plant or virtual_queue()
    if isinstance(controller, str):
        controller = controller_named(controller, target_s)
    # A coin that is the same for a whole period needs no finer steps; on one queue delays are exact all the same.
    step_s = COIN_STEP_S if isinstance(controller, RateController) and plant.is_queue else STEP_S
    return simulate(
        plant.network,
        plant.statistics,
        {plant.stream: pattern},
        seconds,
        controller=controller,
        planner=planner,
        target_s=target_s,
        target_changes=target_changes,
        period_s=period_s,
        headroom=HEADROOM,
        cost=cost,
        tick_s=min(step_s, period_s / 4),
        train_s=min(step_s, period_s / 4),
        seed=seed,
        drain=True,
        progress=progress,
    )


def least_loss(pattern: ArrivalPattern, cost: CostTrace, *, target_s: float = TARGET_S, seconds: float) -> float:
    """The least loss that is possible if no tuple may be late, on the virtual queue.

    Earliest deadline first, dropping what would be late, finishes as many tuples of equal cost in time as can be
    finished in time, and with one target for all it is first come, first served. The cost counts when a tuple begins.
    """
    arrivals_s = arrival_times_s(pattern, seconds).tolist()
    if not arrivals_s:
        return 0.0
    step_s = 0.01
    costs_s = (cost.factor(np.arange(0, seconds + target_s + 1, step_s)) / USABLE_TPS).tolist()
    free_s, dropped = 0.0, 0
    for arrived_s in arrivals_s:
        start_s = max(arrived_s, free_s)
        end_s = start_s + costs_s[int(start_s / step_s)]
        if end_s - arrived_s > target_s:
            dropped += 1
        else:
            free_s = end_s
    return dropped / len(arrivals_s)
