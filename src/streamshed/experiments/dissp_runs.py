"""The runs behind the verdicts on DISSP's shedder: what to simulate, and what is kept of it.

A run lasts 26 s. Its first 10 s, one source time window, are left out: the values are those of all source time windows
that begin after them. A value for a seed is the mean over these windows, so an index of 0.99 says that queries are even
at every moment, not merely in the long run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.federated import simulate_federation
from streamshed.engines.sim.federation import Coordination, Federation
from streamshed.engines.sim.quality import FederationRun
from streamshed.experiments.claims import DataTable, Settings, Value
from streamshed.experiments.dissp_workload import Workload, build
from streamshed.experiments.samples import Estimate, estimate
from streamshed.planning.fair import Batches, SheddingPolicy
from streamshed.workload import ArrivalPattern, Pareto

SEEDS, QUICK_SEEDS = 10, 2
FEW_SEEDS = 5
"""For what is measured at many points."""
SECONDS, SETTLED_S = 26.0, 10.0

OVERLOADS = (1.5, 2.0, 3.0, 4.0)
QUICK_OVERLOADS = (2.0,)
UNEQUAL_OVERLOAD = 2.0
LAGS_S = (0.05, 1.0, 3.0)
LOST = 0.25
"""The share of reports that is lost in the runs with losses."""


class EqualPolicy(SheddingPolicy):
    """The same number of tuples for each query, as far as it has them: what section 5.1 calls unfair."""

    name = "equal"
    title = "Same resources for each query"

    def _keep(self, batches: Batches, projected: NDArray[np.float64], capacity: int) -> NDArray[np.int64]:
        order = np.argsort(batches.query, kind="stable")
        ends = np.cumsum(batches.tuples[order])
        waiting = np.zeros(projected.size)
        np.add.at(waiting, batches.query, batches.tuples)
        before = (np.cumsum(waiting) - waiting)[batches.query[order]]
        level = _level(waiting, capacity)
        kept = np.empty_like(batches.tuples)
        kept[order] = np.clip(level - (ends - batches.tuples[order] - before), 0, batches.tuples[order])
        return kept


def _level(wanted: NDArray[np.float64], capacity: int) -> int:
    """The largest whole number such that all who want more get this much, and the others what they want."""
    least = np.sort(wanted)
    below = np.cumsum(least) - least
    needed = below + least * np.arange(least.size, 0, -1)
    place = int(np.searchsorted(needed, capacity))
    return int((capacity - below[place]) / (least.size - place))


_USUAL = Coordination()


@dataclass(frozen=True)
class Variant:
    """How nodes decide.

    Attributes:
        title: for people.
        policy: the shedding policy.
        spares_derived: whether derived tuples are spared.
        coordination: how coordinators report.
    """

    title: str
    policy: str | Callable[[int], SheddingPolicy] = "fair"
    spares_derived: bool = False
    coordination: Coordination | None = _USUAL


VARIANTS: Mapping[str, Variant] = {
    "fair": Variant("Fair (Algorithm 1)"),
    "fair-sparing": Variant("Fair, derived tuples spared", spares_derived=True),
    "random": Variant("Random", "random"),
    "proportional": Variant("Same share of each query", "proportional"),
    "random-sparing": Variant("Random, derived tuples spared", "random", spares_derived=True),
    "fair-lossy": Variant("Fair, 25 % of the reports lost", coordination=Coordination(loss=LOST)),
    "fair-sparing-lossy": Variant(
        "Fair, derived tuples spared, 25 % of the reports lost",
        spares_derived=True,
        coordination=Coordination(loss=LOST),
    ),
    "fair-alone": Variant("Fair, no coordinators", coordination=None),
    "equal": Variant("Same resources for each query", EqualPolicy),
}
ONE_NODE = ("fair", "random", "proportional", "equal")
TEN_NODES = (
    "fair", "fair-sparing", "random", "proportional", "random-sparing", "fair-lossy", "fair-sparing-lossy",
    "fair-alone",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one run gave; means over the source time windows.

    Attributes:
        jain: Jain's index over the queries.
        spread: the largest SIC less the smallest.
        deviation: the standard deviation of the SIC.
        mean: the mean SIC.
        least: the smallest SIC.
        long_run_jain: Jain's index over the SIC of the whole time.
        wait_s: how long the oldest batch had waited when a detector looked: the largest after settling.
        busy: the share of the time that nodes were at work.
    """

    jain: float
    spread: float
    deviation: float
    mean: float
    least: float
    long_run_jain: float
    wait_s: float
    busy: float


def outcome(run: FederationRun, settled_s: float = SETTLED_S) -> Outcome:
    """Sum up a run."""
    found = run.fairness(settled_s)
    means = run.mean_sic(settled_s)
    waits_s = [waits_s[len(waits_s) // 3 :] for waits_s in run.waits_s.values() if len(waits_s)]

    def mean(what: str) -> float:
        return float(np.mean([getattr(one, what) for one in found]))

    return Outcome(
        jain=mean("jain"),
        spread=mean("spread"),
        deviation=mean("deviation"),
        mean=mean("mean"),
        least=mean("least"),
        long_run_jain=float(means.sum() ** 2 / (len(means) * np.square(means).sum())),
        wait_s=max((float(one.max()) for one in waits_s if len(one)), default=0.0),
        busy=float(np.mean(list(run.busy.values()))),
    )


@dataclass(frozen=True)
class Measured:
    """Outcomes by variant and point, one for each seed in the same order."""

    outcomes: Mapping[tuple[str, float], tuple[Outcome, ...]]

    def of(self, variant: str, point: float, what: str) -> NDArray[np.float64]:
        """One attribute by seed."""
        return np.array([getattr(one, what) for one in self.outcomes[variant, point]])

    def mean(self, variant: str, point: float, what: str) -> Estimate:
        """Its mean with its interval."""
        return estimate(self.of(variant, point, what))

    @property
    def points(self) -> tuple[float, ...]:
        """All points, in the order of measurement."""
        return tuple(dict.fromkeys(point for _, point in self.outcomes))

    @property
    def variants(self) -> tuple[str, ...]:
        """All variants."""
        return tuple(dict.fromkeys(variant for variant, _ in self.outcomes))

    def table(self, name: str, title: str, coordinate: str) -> DataTable:
        """Means with their margins."""
        measures = [field.name for field in fields(Outcome)]
        rows: list[tuple[Value, ...]] = []
        for (variant, point), found in self.outcomes.items():
            row: list[Value] = [variant, point, len(found)]
            for measure in measures:
                one = self.mean(variant, point, measure)
                row += [round(one.mean, 6), round(one.margin, 6)]
            rows.append(tuple(row))
        columns = [heading for measure in measures for heading in (measure, f"{measure}_margin")]
        return DataTable(name, title, ("variant", coordinate, "seeds", *columns), tuple(rows))


def measure(
    settings: Settings,
    what: str,
    workloads: Mapping[float, Workload],
    variants: Sequence[str],
    seeds: int,
    **options: object,
) -> Measured:
    """Simulate every variant on every workload, the same federations for all variants."""
    if settings.quick:
        seeds = QUICK_SEEDS
        workloads = {point: replace(workload, queries=workload.queries // 3) for point, workload in workloads.items()}
    settings.progress.begin(what, len(workloads) * len(variants) * seeds)
    outcomes: dict[tuple[str, float], tuple[Outcome, ...]] = {}
    for point, workload in workloads.items():
        federations = [build(workload, settings.seed * 1000 + seed) for seed in range(seeds)]
        for name in variants:
            found = []
            for seed, federation in enumerate(federations):
                found.append(outcome(simulate(federation, VARIANTS[name], settings.seed * 1000 + seed, **options)))
                settings.progress.advance()
            outcomes[name, point] = tuple(found)
    return Measured(outcomes)


def simulate(federation: Federation, variant: Variant, seed: int, **options: object) -> FederationRun:
    """One run."""
    chosen: dict[str, object] = {
        "policy": variant.policy,
        "spares_derived": variant.spares_derived,
        "coordination": variant.coordination,
        **options,
    }
    return simulate_federation(federation, SECONDS, seed=seed, **chosen)  # type: ignore[arg-type]


def bursty(rate_tps: float, seed: int) -> ArrivalPattern:
    """Sources that burst: a rate drawn anew every second, up to eight times the mean."""
    return Pareto(rate_tps, beta=0.5, peak_tps=8 * rate_tps, seed=seed)


def share_one_node(settings: Settings) -> Measured:
    """60 queries on one node, several overloads."""
    return measure(settings, "one node", _overloads(settings, 1), ONE_NODE, SEEDS)


def share_ten_nodes(settings: Settings) -> Measured:
    """60 queries on ten nodes, several overloads."""
    return measure(settings, "ten nodes", _overloads(settings, 10), TEN_NODES, SEEDS)


def _overloads(settings: Settings, nodes: int) -> dict[float, Workload]:
    chosen = QUICK_OVERLOADS if settings.quick else OVERLOADS
    return {overload: Workload(nodes=nodes, overload=overload) for overload in chosen}


def place_unequally(settings: Settings) -> Measured:
    """Parts are put on any node, so nodes differ in load: some have too much to do, some too little."""
    workloads = {UNEQUAL_OVERLOAD: Workload(nodes=10, overload=UNEQUAL_OVERLOAD, placement="random")}
    return measure(settings, "unequal nodes", workloads, ("fair", "fair-sparing", "random", "proportional"), SEEDS)


def burst(settings: Settings) -> Measured:
    """Bursty sources on one node."""
    workloads = {2.0: Workload(overload=2.0, pattern=bursty)}
    return measure(settings, "bursty sources", workloads, ("fair", "random", "proportional"), SEEDS)


def vary_queries(settings: Settings) -> Measured:
    """More and fewer queries on one node."""
    chosen = (15, 60) if settings.quick else (15, 30, 60, 120)
    workloads = {float(queries): Workload(queries=queries) for queries in chosen}
    return measure(settings, "number of queries", workloads, ("fair", "random"), FEW_SEEDS)


def vary_nodes(settings: Settings) -> Measured:
    """More and fewer nodes, with six queries for each."""
    chosen = (2, 5) if settings.quick else (2, 5, 10, 15)
    workloads = {float(nodes): Workload(queries=6 * nodes, nodes=nodes) for nodes in chosen}
    return measure(settings, "number of nodes", workloads, ("fair-sparing", "random"), FEW_SEEDS)


def vary_parts(settings: Settings) -> Measured:
    """Queries in more and fewer parts, on ten nodes."""
    chosen = (1, 3) if settings.quick else (1, 2, 3, 5)
    workloads = {float(parts): Workload(nodes=10, parts=parts) for parts in chosen}
    return measure(settings, "parts of a query", workloads, ("fair-sparing", "random"), FEW_SEEDS)


def vary_lag(settings: Settings) -> Measured:
    """Reports that take longer, on ten nodes."""
    outcomes: dict[tuple[str, float], tuple[Outcome, ...]] = {}
    for lag_s in LAGS_S[::2] if settings.quick else LAGS_S:
        found = measure(
            settings, f"reports {lag_s:g} s late", {2.0: Workload(nodes=10)}, ("fair-sparing",), FEW_SEEDS,
            coordination=Coordination(lag_s=lag_s),
        )  # fmt: skip
        outcomes["fair-sparing", lag_s] = found.outcomes["fair-sparing", 2.0]
    return Measured(outcomes)
