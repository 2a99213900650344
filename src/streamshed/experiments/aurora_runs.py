"""Aurora's experiments (seed paper "Load Shedding in a Data Stream Manager", section 6): figures 9 to 12.

Figures 9 to 11 take networks of five queries, 47 operators (34 filters, 13 unions) and 18 streams without sharing, and
inter-arrival times from 10 down to 2, where 10 is an excess of 22 % of the capacity, as the paper has it. (It gives
+307 % for the other end. With a load in proportion to the rates that is an inter-arrival time of 3; at 2 it is +510 %.)
Figure 12 takes 20 identical queries behind one common operator.

What the paper leaves open is set here: filters cost 1 and unions 0.5, constants of filters lie between 0 and 50, values
are real numbers, the two value intervals meet at 75 everywhere. Every network is drawn anew for every seed.

All verdicts are about what a sample of tuples that went through the networks delivered, not about what planners expect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamshed.experiments.claims import DataTable, Settings, Value
from streamshed.experiments.delivery import Sample
from streamshed.experiments.fixed_plan import simulate_plan
from streamshed.experiments.random_networks import Recipe, random_network, shared_network, two_intervals
from streamshed.experiments.samples import estimate
from streamshed.load import Admission, load_coefficients, total_load
from streamshed.network import Spec
from streamshed.planning import DropPlan, InputRandom, Planner, planner_named

INTER_ARRIVALS = (10, 9, 8, 7, 6, 5, 4, 3, 2)
"""Time units between two tuples of a stream, from the lowest rate to the highest (section 5.2)."""
LOWEST_EXCESS = 0.22
"""The excess load at the lowest rate (section 5.2)."""
PLANNERS = ("semantic", "roadmap", "optimal", "input-uniform", "input-cost-uniform", "input-cost-top", "input-random")
INPUT_RANDOM_RUNS = 4
"""Input-Random is the mean of so many runs (section 5.2)."""
SKEWS = (0.0, 0.25, 0.5, 0.75, 1.0)
SKEW_RATES = (7, 5, 4, 3, 2)
"""Inter-arrival times of figure 11. At lower rates Semantic-LS sheds what filters reject and loses next to nothing:
a ratio to that says little."""
SHARED_SKEWS = (0.0, 0.5, 1.0)
SHARED_EXCESSES = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Excess load of figure 12, as a share of the capacity; the paper says no more than "extremely high levels"."""

SEEDS, QUICK_SEEDS = 20, 3
TUPLES, QUICK_TUPLES = 100_000, 10_000
"""Networks for every point, and tuples that go through each."""

SIMULATED, QUICK_SIMULATED = 3, 1
"""Networks that go through the simulator as well."""
SIMULATED_PLANNERS = ("semantic", "roadmap", "input-uniform")
SIMULATED_RATES = (8, 5, 3)
SIMULATED_TPS = 80_000.0
SIMULATED_S, QUICK_SIMULATED_S = 5.0, 2.5
HEADROOM = 0.9
"""H of section 3, for the plans in the simulator: at all of the capacity a queue that has formed would stay."""

TITLES = {
    "semantic": "Semantic-LS",
    "roadmap": "Random-LS",
    "optimal": "optimum (LP)",
    "input-uniform": "Input-Uniform",
    "input-cost-uniform": "Input-Cost-Uniform",
    "input-cost-top": "Input-Cost-Top",
    "input-random": "Input-Random",
}


@dataclass(frozen=True)
class Outcome:
    """What one plan did to one network.

    Attributes:
        tuple_loss: measured loss of tuple utility, from 0 to 1.
        value_loss: measured loss of value utility, from 0 to 1.
        load: measured load, as a share of the capacity.
        planned_tuple_loss: what the planner expected.
        planned_value_loss: what the planner expected.
        at_inputs: the share of the dropping that happens at the inputs: dropped there, over dropped in all.
    """

    tuple_loss: float
    value_loss: float
    load: float
    planned_tuple_loss: float
    planned_value_loss: float
    at_inputs: float


@dataclass(frozen=True)
class Measurements:
    """Outcomes of an experiment, by planner and point; one for each seed, in the same order everywhere."""

    outcomes: Mapping[tuple[str, tuple[float, ...]], tuple[Outcome, ...]]

    def of(self, planner: str, point: tuple[float, ...], what: str) -> NDArray[np.float64]:
        """One attribute of the outcomes, by seed."""
        return np.array([getattr(outcome, what) for outcome in self.outcomes[planner, point]])

    @property
    def points(self) -> tuple[tuple[float, ...], ...]:
        """All points, in the order in which they were measured."""
        return tuple(dict.fromkeys(point for _, point in self.outcomes))

    @property
    def planners(self) -> tuple[str, ...]:
        """All planners."""
        return tuple(dict.fromkeys(planner for planner, _ in self.outcomes))

    def table(self, name: str, title: str, coordinates: Sequence[str]) -> DataTable:
        """Means with their 95 % confidence margins, for every planner and point."""
        measures = ("tuple_loss", "value_loss", "planned_tuple_loss", "planned_value_loss", "load", "at_inputs")
        columns = ["planner", *coordinates, "seeds"]
        for measure in measures:
            columns += [measure, f"{measure}_margin"]
        rows: list[tuple[Value, ...]] = []
        for (planner, point), outcomes in self.outcomes.items():
            row: list[Value] = [planner, *point, len(outcomes)]
            for measure in measures:
                mean = estimate(self.of(planner, point, measure))
                row += [round(mean.mean, 6), round(mean.margin, 6)]
            rows.append(tuple(row))
        return DataTable(name, title, tuple(columns), tuple(rows))


def excess(inter_arrival: float) -> float:
    """The excess load at an inter-arrival time, as a share of the capacity.

    >>> round(excess(10), 2), round(excess(3), 2)
    (0.22, 3.07)
    """
    return (1 + LOWEST_EXCESS) * INTER_ARRIVALS[0] / inter_arrival - 1


class _Bench:
    """One network with its sample: plans for any excess, and what they deliver."""

    def __init__(self, spec: Spec, tuples: int, seed: int) -> None:
        self.spec = spec
        self.full_load = total_load(load_coefficients(spec.network, spec.statistics), spec.rates)
        self.sample = Sample(spec, tuples, seed)

    def outcome(self, planners: Sequence[Planner], excess: float) -> Outcome:
        """The mean outcome of planners that are one for the paper, at an excess load."""
        outcomes = [self._outcome(planner, excess) for planner in planners]
        names = outcomes[0].__dataclass_fields__
        return Outcome(**{name: float(np.mean([getattr(one, name) for one in outcomes])) for name in names})

    def plan(self, planner: Planner, capacity: float) -> DropPlan:
        """A plan for this network."""
        return planner.plan(self.spec.network, self.spec.statistics, self.spec.rates, Admission(capacity))

    def _outcome(self, planner: Planner, excess: float) -> Outcome:
        # Only the proportion of load to capacity matters: the rates stay, the capacity shrinks.
        capacity = self.full_load / (1 + excess)
        plan = self.plan(planner, capacity)
        delivered = self.sample.under(plan)
        return Outcome(
            delivered.tuple_utility_loss,
            delivered.value_utility_loss,
            delivered.load / capacity,
            plan.tuple_utility_loss,
            plan.value_utility_loss,
            self._at_inputs(plan),
        )

    def _at_inputs(self, plan: DropPlan) -> float:
        streams = {stream.id for stream in self.spec.network.streams}
        dropped = sum(1 - effect.delivered for effect in plan.outputs) / len(plan.outputs)
        at_inputs = sum(drop.fraction for drop in plan.drops if drop.arc in streams) / len(streams)
        return min(1.0, at_inputs / dropped) if dropped > 0 else 0.0


Outcomes = dict[tuple[str, tuple[float, ...]], list[Outcome]]


def measure_rates(settings: Settings) -> Measurements:
    """Figures 9 and 10: all planners at all rates; points are (inter-arrival time,)."""
    outcomes: Outcomes = {}
    for _, bench in _benches(settings, "figures 9 and 10", (0.0,), _unshared):
        for name in PLANNERS:
            planners = _planners(name)
            for time in _some(settings, INTER_ARRIVALS):
                outcomes.setdefault((name, (time,)), []).append(bench.outcome(planners, excess(time)))
    return _frozen(outcomes)


def measure_skews(settings: Settings) -> Measurements:
    """Figure 11: Random-LS and Semantic-LS over skew and rate; points are (skew, inter-arrival time)."""
    outcomes: Outcomes = {}
    for skew, bench in _benches(settings, "figure 11", _some(settings, SKEWS), _unshared):
        for name in ("semantic", "roadmap"):
            planners = _planners(name)
            for time in _some(settings, SKEW_RATES):
                outcomes.setdefault((name, (skew, time)), []).append(bench.outcome(planners, excess(time)))
    return _frozen(outcomes)


def measure_sharing(settings: Settings) -> Measurements:
    """Figure 12: Input-Uniform, Random-LS and the optimum on the shared network; points are (skew, excess)."""
    outcomes: Outcomes = {}
    for skew, bench in _benches(settings, "figure 12", _some(settings, SHARED_SKEWS), _shared):
        for name in ("input-uniform", "roadmap", "optimal"):
            planners = _planners(name)
            for share in _some(settings, SHARED_EXCESSES):
                outcomes.setdefault((name, (skew, share)), []).append(bench.outcome(planners, share))
    return _frozen(outcomes)


@dataclass(frozen=True)
class Check:
    """A plan in the simulator, beside the same plan in the sample.

    Attributes:
        planner: who made the plan; "none" where nothing is dropped.
        inter_arrival: at which inter-arrival time.
        delay_s: mean delay of the tuples that got through.
        under_way: the share of the tuples that were still in queues at the end.
        tuple_loss: loss of tuple utility in the simulator.
        value_loss: loss of value utility in the simulator.
        sampled_tuple_loss: loss of tuple utility in the sample.
        sampled_value_loss: loss of value utility in the sample.
    """

    planner: str
    inter_arrival: float
    delay_s: float
    under_way: float
    tuple_loss: float
    value_loss: float
    sampled_tuple_loss: float
    sampled_value_loss: float


def measure_simulated(settings: Settings) -> tuple[Check, ...]:
    """Some of the plans of figure 9 in the simulator, in virtual time, with queues and a round-robin scheduler."""
    seeds, seconds = (QUICK_SIMULATED, QUICK_SIMULATED_S) if settings.quick else (SIMULATED, SIMULATED_S)
    settings.progress.begin("simulator", seeds)
    checks: list[Check] = []
    for seed in _seeds(settings, seeds):
        bench = _Bench(_unshared(seed, 0.0), TUPLES, seed)
        for time in SIMULATED_RATES[-1:] if settings.quick else SIMULATED_RATES:
            for name in ("none", *SIMULATED_PLANNERS):
                checks.append(_check(bench, name, time, seconds, seed))
        settings.progress.advance()
    return tuple(checks)


def _check(bench: _Bench, name: str, inter_arrival: float, seconds: float, seed: int) -> Check:
    capacity = bench.full_load / (1 + excess(inter_arrival))
    planner = planner_named(name) if name != "none" else None
    keep = HEADROOM * capacity / bench.full_load
    run = simulate_plan(
        bench.spec,
        planner,
        keep=keep,
        capacity=capacity,
        rate_tps=SIMULATED_TPS,
        seconds=seconds,
        seed=seed,
    )
    sampled = bench.sample.under(bench.plan(planner, keep * bench.full_load)) if planner is not None else None
    return Check(
        name,
        inter_arrival,
        run.delays.mean_s,
        run.under_way / max(1, run.arrived),
        run.tuple_utility_loss,
        run.value_utility_loss,
        sampled.tuple_utility_loss if sampled is not None else 0.0,
        sampled.value_utility_loss if sampled is not None else 0.0,
    )


def _some(settings: Settings, points: tuple[float, ...]) -> tuple[float, ...]:
    """All points, or both ends and the middle for a quick run."""
    return (points[0], points[len(points) // 2], points[-1]) if settings.quick else points


def _seeds(settings: Settings, count: int) -> range:
    first = settings.seed * 1_000_003  # runs with different seeds have no network in common
    return range(first, first + count)


def _benches(
    settings: Settings, what: str, skews: Sequence[float], network: Callable[[int, float], Spec]
) -> Iterator[tuple[float, _Bench]]:
    """For every seed the same network at every skew, with a sample to go through it."""
    seeds, tuples = (QUICK_SEEDS, QUICK_TUPLES) if settings.quick else (SEEDS, TUPLES)
    settings.progress.begin(what, seeds * len(skews))
    for seed in _seeds(settings, seeds):
        for skew in skews:
            yield skew, _Bench(network(seed, skew), tuples, seed)
            settings.progress.advance()


def _unshared(seed: int, skew: float) -> Spec:
    return random_network(Recipe(), seed, two_intervals(skew))


def _shared(seed: int, skew: float) -> Spec:
    return shared_network(seed, two_intervals(skew))


def _planners(name: str) -> list[Planner]:
    if name == InputRandom.name:
        return [InputRandom(run) for run in range(INPUT_RANDOM_RUNS)]
    return [planner_named(name)]


def _frozen(outcomes: Outcomes) -> Measurements:
    return Measurements({key: tuple(row) for key, row in outcomes.items()})
