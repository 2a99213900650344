"""The loop in one place: samples go to the controller, its admission to the planner, its plan becomes thresholds.

Engines call `observe` when something has been done and `decide` when something is to be done next. There is no clock
here, and nothing that depends on an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.load import Admission
from streamshed.network import Network, Statistics
from streamshed.planning import DropPlan, Planner
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.ranks import ranked_locations, respread, thresholds


@dataclass(frozen=True)
class Decision:
    """What to drop next.

    Attributes:
        plan: the plan behind it.
        thresholds: of every location, by arc.
        load_share: the load that is left, as a share of the load without drops.
    """

    plan: DropPlan
    thresholds: Mapping[str, float]
    load_share: float


class Manager:
    """Decides for a network.

    The controller knows how long batches take, not which arc they spend it on; the planner knows how the arcs' costs
    compare, not how long a batch takes. So a sample counts a batch as so many *full* tuples: as many as would cost
    the same if none were dropped on the way. The controller says which share of the waiting work fits, and the planner
    finds the drops that leave this share.

    Args:
        network: the network.
        statistics: costs (of which only the proportions matter here), selectivities, histograms.
        rates: tuples per second of each stream; the proportions decide which road map is used.
        controller: decides how much.
        planner: decides where.
        unordered: the streams of which it is not known how values are spread within a cell.
    """

    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        rates: Mapping[str, float],
        controller: Controller,
        planner: Planner,
        unordered: frozenset[str] = frozenset(),
    ) -> None:
        self.network = network
        self.statistics = statistics
        self.rates = dict(rates)
        self.controller = controller
        self.planner = planner
        graph = flow_graph(network, statistics, rates, by_value=planner.by_value)
        self.locations = ranked_locations(graph, unordered=unordered)
        self._full_load = graph.full_load
        self._keep: float | None = None
        self._decision: Decision | None = None

    def observe(self, sample: LoadSample) -> None:
        """Learn from a batch; `kept` counts full tuples."""
        self.controller.observe(sample)

    @property
    def keep(self) -> float:
        """The share of the waiting work that the controller let through last; 1 before it was asked."""
        return 1.0 if self._keep is None else self._keep

    def replan(self) -> None:
        """Something that the planner goes by has changed: ask it again."""
        self._decision = None

    def renew(self, statistics: Statistics) -> None:
        """Plan with what is known now. Ranks stay as they are; thresholds are those that fit."""
        graph = flow_graph(self.network, statistics, self.rates, by_value=self.planner.by_value)
        self.statistics, self._full_load = statistics, graph.full_load
        self.locations = respread(self.locations, graph)
        self.replan()

    def decide(self, outlook: Outlook) -> Decision:
        """The drops for the batch that would start now; planned anew only if the share to keep has changed."""
        keep = self.controller.admit(outlook).keep
        decided = self._decision  # another thread may ask for a new plan
        if decided is not None and keep == self._keep:
            return decided
        statistics = self.statistics
        plan = self.planner.plan(self.network, statistics, self.rates, Admission(self._full_load * keep))
        decided = self.decision(plan)
        if statistics is self.statistics:
            self._keep, self._decision = keep, decided
        return decided

    def decision(self, plan: DropPlan) -> Decision:
        """The drops that carry a plan out."""
        share = plan.load_after / plan.load_before if plan.load_before > 0 else 1.0
        return Decision(plan, thresholds(plan, self.locations), share)
