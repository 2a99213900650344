"""The query of MavStream's experiments and the load on it: what the thesis says, and what is set where it does not.

The thesis gives the shape (eight operators, two hash joins, three streams), the windows and the rates, and that rates
are doubled "at different points in time". It gives no costs, so the capacity is set for each experiment: its mean rates
are a load of 0.6, and doubled they are 1.2, for 20 s out of every 100 s, the first time at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from streamshed.engines.sim import JoinWindow, Scheduling, SimResult, Windows, simulate
from streamshed.load import load_coefficients, total_load
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.qos import Goals, Qos
from streamshed.scheduling import Monitoring, OptimizerSettings
from streamshed.workload import ArrivalPattern, Phases

OUTPUT = "out"
BASE_LOAD = 0.6
BURST, BURST_S, CYCLE_S = 2.0, 20.0, 100.0
QUANTUM_S = 0.05
KEYS = 1000
MONITORING = Monitoring(times=1, min_s=3.0, max_s=3.0, lookahead_s=1.0)
"""The thesis looks every three seconds."""

_COSTS = {"fa": 1.0, "fb": 1.0, "fc": 1.0, "ab": 4.0, "g": 1.0, "abc": 4.0, "h": 1.0, "m": 1.0}
"""Only their proportions count: a join takes four times as long as a filter."""

_SELECTIVITIES = {"fa": 0.6, "fb": 0.6, "fc": 0.6, "g": 0.8, "h": 0.8}


@dataclass(frozen=True)
class Setting:
    """One of the thesis's set-ups.

    Attributes:
        rates: mean tuples per second of the three streams.
        window: tuples in a window of the joins.
        goals: of the query.
    """

    rates: Mapping[str, float]
    window: int
    goals: Goals

    @cached_property
    def network(self) -> Network:
        """Three streams, a filter on each, two joins with a filter behind each, and a projection."""
        new = NetworkBuilder("mavstream")
        flows = {}
        for name in "abc":
            columns = {"ts": "timestamp", "k": "bigint", f"x{name}": "double", f"y{name}": "string"}
            flows[name] = new.stream(name, columns, time="ts").filter(f"f{name}", f"x{name} > 0.4")
        joined = flows["a"].join("ab", flows["b"], on=["k"], within_s=1.0).filter("g", "xa + xb > 0.5")
        joined = joined.join("abc", flows["c"], on=["k"], within_s=1.0).filter("h", "xa + xc > 0.5")
        joined.map("m", {"ts": "ts", "k": "k", "x": "xa + xb + xc"}).output(OUTPUT, Qos(goals=self.goals))
        return new.build()

    @cached_property
    def statistics(self) -> Statistics:
        """Costs for which the mean rates are the base load."""
        matches = self.window / KEYS
        shares = {**_SELECTIVITIES, "ab": matches, "abc": matches}
        relative = Statistics(_COSTS, shares)
        load = total_load(load_coefficients(self.network, relative), self.rates)
        return replace(relative, costs={name: cost * BASE_LOAD / load for name, cost in _COSTS.items()})

    def arrivals(self) -> dict[str, ArrivalPattern]:
        """Bursts, then calm, again and again."""
        return {
            name: Phases(((BURST * rate, BURST_S), (rate, CYCLE_S - BURST_S)), repeat=True)
            for name, rate in self.rates.items()
        }

    def run(self, strategy: str, seconds: float, seed: int, *, optimize: bool, may_shed: bool = False) -> SimResult:
        """Simulate it, under one strategy or from one on."""
        optimizer = OptimizerSettings(MONITORING, may_shed=may_shed) if optimize else None
        return simulate(
            self.network,
            self.statistics,
            self.arrivals(),
            seconds,
            rates=self.rates,
            scheduling=Scheduling(strategy, optimizer=optimizer, quantum_s=QUANTUM_S),
            windows=Windows({name: JoinWindow(KEYS, tuples=self.window) for name in ("ab", "abc")}),
            spacing="poisson",
            tick_s=QUANTUM_S,
            train_s=QUANTUM_S,
            seed=seed,
        )
