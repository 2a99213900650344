"""DISSP's shedder looked at from several sides, one question each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamshed.engines.sim.federated import simulate_federation
from streamshed.engines.sim.federation import Coordination, Federation, Happening, Source
from streamshed.engines.sim.fragments import Floats, Fragment, Rows, average, count, covariance, largest, top_five
from streamshed.engines.sim.quality import FederationRun
from streamshed.experiments.claims import Settings
from streamshed.experiments.dissp_runs import FEW_SEEDS, QUICK_SEEDS, Measured, Outcome, outcome
from streamshed.experiments.dissp_workload import MACHINES, Workload, build
from streamshed.planning.fair import INTERVAL_S, Batches, FairPolicy
from streamshed.workload import Burst, Constant

INTERVALS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
DECISION_S = 0.002
"""What a decision takes in the runs with different shedding intervals."""

CHURN_S = 80.0
LEAVES_S, JOINS_S, FAILS_S, RECOVERS_S = 20.0, 36.0, 52.0, 56.0

ERROR_OVERLOADS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0)
ERROR_COPIES = 4
ERROR_TPS = 150.0
ERROR_KINDS = ("AVG", "COUNT", "MAX", "TOP-5", "COV")

BURST_S, BURST_AT_S = 0.25, 15.0


def seeds_of(settings: Settings, full: int) -> range:
    """The seeds of a study."""
    first = settings.seed * 1000
    return range(first, first + (QUICK_SEEDS if settings.quick else full))


# --- without shedding ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undisturbed:
    """Runs without shedding.

    Attributes:
        deviation: the largest difference of any query's SIC from 1 in any source time window, with load to spare.
        queries: how many queries that were.
        waits_s: how long the oldest batch waits on an overloaded node, every so often.
    """

    deviation: float
    queries: int
    waits_s: Floats


def leave_undisturbed(settings: Settings) -> Undisturbed:
    """SIC without overload on one node and on ten, and the queue under overload without shedding."""
    settings.progress.begin("without shedding", 3)
    deviation, queries = 0.0, 0
    for nodes in (1, 10):
        federation = build(Workload(nodes=nodes, overload=0.75), settings.seed)
        run = simulate_federation(federation, 20.0, policy=None, seed=settings.seed)
        queries += federation.queries
        for last in range(run.span, run.closed + 1):
            deviation = max(deviation, float(np.abs(run.sic(last) - 1).max()))
        settings.progress.advance()
    run = simulate_federation(build(Workload(overload=2.0), settings.seed), 20.0, policy=None, seed=settings.seed)
    settings.progress.advance()
    return Undisturbed(deviation, queries, run.waits_s["node-0"])


# --- SIC and the error of results ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """How wrong results are, by kind of query and overload.

    Attributes:
        sic: the mean SIC of windows, one for each overload.
        error: by kind, the mean error of windows, one for each overload.
        correlation: by kind, the rank correlation of SIC and error over all windows of all overloads.
    """

    sic: tuple[float, ...]
    error: dict[str, tuple[float, ...]]
    correlation: dict[str, float]


def measure_errors(settings: Settings) -> Errors:
    """Compare results of overloaded runs with those of a run that drops nothing; tuples are the same in both."""
    overloads = ERROR_OVERLOADS[::3] if settings.quick else ERROR_OVERLOADS
    settings.progress.begin("SIC and error", len(overloads) + 1)
    perfect = _error_run(settings, 0.5, None)
    settings.progress.advance()
    points: dict[str, list[tuple[float, float]]] = {kind: [] for kind in ERROR_KINDS}
    means: dict[str, list[float]] = {kind: [] for kind in ERROR_KINDS}
    sic: list[float] = []
    for overload in overloads:
        run = _error_run(settings, overload, "random")
        seen: list[float] = []
        for number, kind in enumerate(ERROR_KINDS * ERROR_COPIES):
            found = _window_errors(kind, perfect, run, number)
            points[kind] += found
            seen += [one for one, _ in found]
        for kind in ERROR_KINDS:
            fresh = points[kind][-(len(seen) // len(ERROR_KINDS)) :]
            means[kind].append(float(np.mean([error for _, error in fresh])))
        sic.append(float(np.mean(seen)))
        settings.progress.advance()
    correlation = {
        kind: rank_correlation([sic for sic, _ in found], [error for _, error in found])
        for kind, found in points.items()
    }
    return Errors(tuple(sic), {kind: tuple(found) for kind, found in means.items()}, correlation)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's; 0 where one of them does not change."""
    from scipy.stats import spearmanr

    if len(set(left)) < 2 or len(set(right)) < 2:
        return 0.0
    return float(spearmanr(left, right).statistic)


def _error_run(settings: Settings, overload: float, policy: str | None) -> FederationRun:
    fragments: list[Fragment] = []
    sources: list[Source] = []
    for kind in ERROR_KINDS * ERROR_COPIES:
        number = len(fragments)
        finish = {"AVG": average, "COUNT": count, "MAX": largest, "TOP-5": top_five, "COV": covariance}[kind]
        two = kind in ("TOP-5", "COV")
        fragments.append(Fragment(number, "node", 1e-4, finish, (None, None) if two else (None,)))
        keys, kinship = {"TOP-5": (MACHINES, 0.5), "COV": (0, 0.5)}.get(kind, (0, 0.0))
        sources += [Source(number, Constant(ERROR_TPS), side if two else 0, keys, kinship) for side in (0, 1)]
    capacity = 2 * ERROR_TPS * 1e-4 * len(fragments) / overload
    federation = Federation(fragments, sources, {"node": capacity})
    seconds = 15.0 if settings.quick else 40.0
    return simulate_federation(federation, seconds, policy=policy, seed=settings.seed, keep_results=True)


def _window_errors(kind: str, perfect: FederationRun, run: FederationRun, query: int) -> list[tuple[float, float]]:
    """For every window the share of its SIC that came to the result, and the error of that."""
    right = {window: rows for window, _, rows in perfect.results[query]}
    seen = {window: (sic, rows) for window, sic, rows in run.results[query]}
    found = []
    for window, rows in right.items():
        if 3 <= window <= run.closed:
            sic, degraded = seen.get(window, (0.0, Rows.joined([])))
            found.append((min(sic / float(run.sent[window, query]), 1.0), _error(kind, rows, degraded)))
    return found


def _error(kind: str, right: Rows, found: Rows) -> float:
    """Relative to the right value; for TOP-5 the share of the keys that are missing. No result is an error of 1."""
    if kind == "TOP-5":
        return 1 - len(np.intersect1d(right.keys, found.keys)) / len(right)
    if not len(found):
        return 1.0
    return float(abs(found.values[0] - right.values[0]) / abs(right.values[0]))


# --- the shedding interval -------------------------------------------------------------------------------------------


def vary_interval(settings: Settings) -> Measured:
    """20 queries on one node, twice the capacity, several shedding intervals; a decision takes the node 2 ms."""
    intervals_s = INTERVALS_S[::2] if settings.quick else INTERVALS_S
    seeds = seeds_of(settings, FEW_SEEDS)
    settings.progress.begin("shedding interval", len(intervals_s) * len(seeds))
    outcomes: dict[tuple[str, float], tuple[Outcome, ...]] = {}
    for interval_s in intervals_s:
        found = []
        for seed in seeds:
            run = simulate_federation(
                build(Workload(queries=20, overload=2.0), seed),
                30.0,
                interval_s=interval_s,
                decision_s=DECISION_S,
                seed=seed,
            )
            found.append(outcome(run))
            settings.progress.advance()
        outcomes["fair", interval_s] = tuple(found)
    return Measured(outcomes)


# --- nodes that come and go ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Churn:
    """Ten nodes of which one leaves, a new one joins, and another fails for some seconds.

    Attributes:
        time_s: ends of the source time windows.
        jain: Jain's index, by seed and window.
        mean: the mean SIC, by seed and window.
    """

    time_s: Floats
    jain: Floats
    mean: Floats

    def at(self, time_s: float) -> tuple[float, float]:
        """Jain's index and the mean SIC of the source time window that ends at a time, mean over seeds."""
        number = int(np.argmin(np.abs(self.time_s - time_s)))
        return float(self.jain[:, number].mean()), float(self.mean[:, number].mean())


def come_and_go(settings: Settings) -> Churn:
    """Run it."""
    seeds = seeds_of(settings, FEW_SEEDS)
    settings.progress.begin("nodes that come and go", len(seeds))
    jain, mean = [], []
    times_s: Floats = np.zeros(0)
    for seed in seeds:
        federation = build(Workload(queries=20 if settings.quick else 60, nodes=10, overload=1.5), seed)
        speed = federation.speeds["node-0"]
        run = simulate_federation(
            federation, CHURN_S, spares_derived=True, coordination=Coordination(), seed=seed,
            happenings=(
                Happening(LEAVES_S, "node-3", "leave"), Happening(JOINS_S, "node-new", "join", speed),
                Happening(FAILS_S, "node-5", "fail"), Happening(RECOVERS_S, "node-5", "recover"),
            ),
        )  # fmt: skip
        found = run.fairness(0.0)
        jain.append([one.jain for one in found])
        mean.append([one.mean for one in found])
        times_s = (np.arange(len(found), dtype=np.float64) + run.span) * run.window_s
        settings.progress.advance()
    return Churn(times_s, np.array(jain), np.array(mean))


# --- isolated bursts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peak:
    """A single large batch on a node with load to spare.

    Attributes:
        tuples: how many tuples it has beyond the usual.
        intervals: how many shedding intervals of the whole node it takes to process them.
        dropped: how many tuples were dropped.
    """

    tuples: int
    intervals: float
    dropped: int


def send_peak(settings: Settings) -> Peak:
    """One node at 70 % of its capacity gets within 250 ms as much as it can process in a second, once."""
    settings.progress.begin("isolated burst", 1)
    federation = build(Workload(queries=12, overload=0.7), settings.seed)
    speed = federation.speeds["node-0"]
    first = federation.sources[0]
    cost_s = federation.fragments[first.fragment].cost_s
    extra = int(speed / cost_s)
    calm_tps = first.pattern.rate(1.0)
    pattern = Burst(calm_tps, calm_tps + extra / BURST_S, BURST_AT_S, BURST_S)
    federation = replace(federation, sources=(replace(first, pattern=pattern), *federation.sources[1:]))
    run = simulate_federation(federation, 25.0, seed=settings.seed)
    settings.progress.advance()
    return Peak(extra, extra * cost_s / speed / INTERVAL_S, run.tuples["dropped"])


# --- what a decision costs -------------------------------------------------------------------------------------------


def time_decisions(settings: Settings, tuples: int = 20_000, sizes: Sequence[int] = (1, 50)) -> dict[int, float]:
    """Milliseconds of processor time for a decision about so many tuples of 60 queries, by the size of batches."""
    random = np.random.default_rng(settings.seed)
    found: dict[int, float] = {}
    for size in sizes:
        batches = tuples // size
        waiting = Batches.of(random.integers(0, 60, batches), random.random(batches), np.full(batches, size))
        policy, projected = FairPolicy(), random.random(60)
        policy.keep(waiting, projected, tuples // 2)
        times_s = []
        for _ in range(9):
            began_s = time.process_time()
            policy.keep(waiting, projected, tuples // 2)
            times_s.append(time.process_time() - began_s)
        found[size] = 1e3 * float(np.median(times_s))
    return found
