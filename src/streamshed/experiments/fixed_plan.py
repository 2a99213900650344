"""A network in the simulator under drops that stay as they are: what a plan does to delays, and what it delivers."""

from __future__ import annotations

from dataclasses import replace

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.engines.sim import SimResult, simulate
from streamshed.load import Admission
from streamshed.network import Spec
from streamshed.planning import Planner
from streamshed.workload import Constant

_PERIOD_S = 0.05
"""The control period: before the first one ends nothing is dropped, so it is short."""


class _Always(Controller):
    """Admits the same share of the load all the time, so that the planner makes one plan."""

    def __init__(self, keep: float) -> None:
        self.target_s = 0.0
        self._admission = Admission(keep, keep)

    def observe(self, sample: LoadSample) -> None:
        """Learn nothing: the plan stays."""

    def admit(self, outlook: Outlook) -> Admission:  # noqa: ARG002
        return self._admission


def simulate_plan(
    spec: Spec, planner: Planner | None, *, keep: float, capacity: float, rate_tps: float, seconds: float, seed: int
) -> SimResult:
    """Run a network under the plan that keeps a share of its load.

    Rates are scaled to a common total, and costs so that the capacity is one processor: proportions, and so the plan,
    stay what they are.

    Args:
        spec: the network with its rates.
        planner: decides what to drop; None for nothing.
        keep: the share of the load that may stay.
        capacity: seconds of processing per second, in the units of the spec.
        rate_tps: how many tuples arrive each second, on all streams together.
        seconds: for how long.
        seed: of the simulator.
    """
    faster = rate_tps / sum(spec.rates.values())
    costs = {operator: cost / faster / capacity for operator, cost in spec.statistics.costs.items()}
    return simulate(
        spec.network,
        replace(spec.statistics, costs=costs),
        {stream: Constant(rate * faster) for stream, rate in spec.rates.items()},
        seconds,
        controller=_Always(keep) if planner is not None else None,
        planner=planner,
        period_s=_PERIOD_S,
        seed=seed,
    )
