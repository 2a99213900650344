"""A network in the simulator under drops that stay as they are: what a plan does to delays, and what it delivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.engines.sim import SimResult, simulate
from streamshed.load import Admission
from streamshed.network import Network, Spec, Statistics
from streamshed.planning import DropPlan, Planner
from streamshed.workload import Constant


class _Always(Controller):
    """Admits what it was made for."""

    def __init__(self, admission: Admission) -> None:
        self.target_s = 0.0
        self._admission = admission

    def observe(self, sample: LoadSample) -> None:
        """Learn nothing: the plan stays."""

    def admit(self, outlook: Outlook) -> Admission:  # noqa: ARG002
        return self._admission


class _Given(Planner):
    """Gives the plan that it was given."""

    name: ClassVar[str] = "given"
    title: ClassVar[str] = "A given plan"

    def __init__(self, plan: DropPlan) -> None:
        self._given = plan

    def _plan(
        self,
        network: Network,  # noqa: ARG002
        statistics: Statistics,  # noqa: ARG002
        rates: Mapping[str, float],  # noqa: ARG002
        admission: Admission,  # noqa: ARG002
    ) -> DropPlan:
        return self._given


class _GivenByValue(_Given):
    by_value: ClassVar[bool] = True


def simulate_plan(
    spec: Spec, plan: DropPlan | None, *, by_value: bool, capacity: float, rate_tps: float, seconds: float, seed: int
) -> SimResult:
    """Run a network under a plan.

    Rates are scaled to a common total, and costs so that the capacity is one processor: proportions, and so the plan,
    stay what they are.

    Args:
        spec: the network with its rates.
        plan: what to drop; None for nothing.
        by_value: whether the planner that made the plan tells values apart.
        capacity: seconds of processing per second, in the units of the spec.
        rate_tps: how many tuples arrive each second, on all streams together.
        seconds: for how long.
        seed: of the simulator.
    """
    faster = rate_tps / sum(spec.rates.values())
    rates = {stream: rate * faster for stream, rate in spec.rates.items()}
    costs = {operator: cost / faster / capacity for operator, cost in spec.statistics.costs.items()}
    return simulate(
        spec.network,
        replace(spec.statistics, costs=costs),
        {stream: Constant(rate) for stream, rate in rates.items()},
        seconds,
        controller=_Always(Admission(1.0)),
        planner=None if plan is None else _GivenByValue(plan) if by_value else _Given(plan),
        tick_s=0.1,
        seed=seed,
    )
