"""What must hold for fair shedding whatever waits, and for fair plans on every network."""

from __future__ import annotations

import heapq
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from streamshed.load import Admission
from streamshed.planning import FairPlanner
from streamshed.planning.fair import (
    POLICIES,
    Batch,
    Batches,
    FairPolicy,
    OverloadDetector,
    Shedder,
    derive,
    policy_named,
    source_sic,
    water_fill,
)
from streamshed.planning.fair.planner import fair_fractions
from streamshed.planning.flow import FlowGraph, Rule
from streamshed.planning.flow_builder import flow_graph
from tests.strategies import fractions, networks, rates, statistics

common = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
QUERIES = 5


@st.composite
def waiting(draw: st.DrawFn) -> tuple[Batches, np.ndarray, int]:
    """Batches of some queries, what these have already, and a capacity. SIC values are sixty-fourths, for many ties."""
    rows = draw(st.lists(st.tuples(st.integers(0, QUERIES - 1), st.integers(0, 8), st.integers(0, 20)), max_size=30))
    query, sic, tuples = zip(*rows, strict=True) if rows else ((), (), ())
    projected = draw(st.lists(st.integers(0, 32), min_size=QUERIES, max_size=QUERIES))
    capacity = draw(st.integers(0, max(1, sum(tuples))))
    return Batches.of(query, np.array(sic) / 64, tuples), np.array(projected) / 64, capacity


def algorithm_1(batches: Batches, projected: np.ndarray, capacity: int) -> list[int]:
    """The paper's algorithm with its priority queues, in exact arithmetic; lines as there.

    Three choices of ours: a batch that does not fit gives way to what is worth most in the room, ties go by number,
    batches without SIC come last.
    """
    own: dict[int, list[tuple[Fraction, int]]] = {}
    for index, query in enumerate(batches.query.tolist()):  # lines 4 to 8
        if batches.sic[index] > 0:
            heapq.heappush(own.setdefault(query, []), (-Fraction(float(batches.sic[index])), index))
    queries = [(Fraction(float(projected[query])), query) for query in own]
    heapq.heapify(queries)
    kept = [0] * len(batches)
    room = capacity
    while room > 0 and queries:  # lines 10 to 15
        sic, query = heapq.heappop(queries)
        best = own[query][0]
        if batches.tuples[best[1]] > room:
            best = min(own[query], key=lambda batch: (batch[0] * part(batches, batch[1], room), *batch))
        own[query].remove(best)
        heapq.heapify(own[query])
        kept[best[1]] = min(room, int(batches.tuples[best[1]]))
        room -= kept[best[1]]
        if own[query]:
            heapq.heappush(queries, (sic - best[0], query))
    worthless = np.flatnonzero(batches.sic == 0).tolist()
    for index in sorted(worthless, key=lambda other: (int(batches.query[other]), other)):
        kept[index] = min(room, int(batches.tuples[index]))
        room -= kept[index]
    return kept


def part(batches: Batches, index: int, room: int) -> Fraction:
    """The share of a batch that the room holds."""
    tuples = int(batches.tuples[index])
    return Fraction(1) if tuples <= room else Fraction(room, tuples)


@settings(deadline=None, max_examples=400)
@given(case=waiting())
def test_two_sorts_are_algorithm_1(case: tuple[Batches, np.ndarray, int]) -> None:
    assert FairPolicy().keep(*case).tolist() == algorithm_1(*case)


def test_two_sorts_are_algorithm_1_on_many_batches() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        batches = Batches.of(rng.integers(0, 50, 600), rng.random(600) / 12, rng.integers(1, 200, 600))
        case = (batches, rng.random(60) / 2, int(batches.tuples.sum() * rng.random()))
        assert FairPolicy().keep(*case).tolist() == algorithm_1(*case)


@pytest.mark.parametrize("name", POLICIES)
@common
@given(case=waiting())
def test_the_capacity_is_used_and_never_exceeded(name: str, case: tuple[Batches, np.ndarray, int]) -> None:
    batches, _, capacity = case
    kept = policy_named(name, seed=3).keep(*case)
    assert (kept >= 0).all()
    assert (kept <= batches.tuples).all()
    assert kept.sum() == min(capacity, batches.tuples.sum())


@common
@given(case=waiting())
def test_no_swap_raises_the_least_sic(case: tuple[Batches, np.ndarray, int]) -> None:
    """Put as much as fits of a dropped batch, or of the rest of a cut one, in place of a kept one: no gain."""
    batches, projected, capacity = case
    kept = FairPolicy().keep(*case)
    kept_sic = batches.kept_sic(kept)
    result = projected + np.bincount(batches.query, weights=kept_sic, minlength=QUERIES)
    concerned = np.unique(batches.query)
    for out in np.flatnonzero(kept > 0):
        for into in np.flatnonzero(kept < batches.tuples):
            if into == out:
                continue
            room = capacity - int(kept.sum() - kept[out])
            put = min(room, int(batches.tuples[into] - kept[into]))
            swapped = result.copy()
            swapped[batches.query[out]] -= kept_sic[out]
            swapped[batches.query[into]] += batches.sic[into] * put / batches.tuples[into]
            assert swapped[concerned].min() <= result[concerned].min() + 1e-12


def test_ties_starve_nobody() -> None:
    """Room for one batch an interval, more queries than intervals in a window: whoever is forgotten ties at zero."""
    queries, rounds = 100, 1000
    shedder = Shedder(queries, FairPolicy(), OverloadDetector(0.25))
    served = np.zeros(queries, dtype=int)
    for step in range(1, rounds + 1):
        for query in range(queries):
            shedder.put(Batch(query, 0.025, 10))
        shedder.check(step * 0.25, 0.25, 10)
        while (batch := shedder.take(step * 0.25 + 0.1)) is not None:
            served[batch.query] += 1
    assert served.sum() == rounds
    assert served.min() == served.max() == rounds // queries


# --- SIC is conserved -------------------------------------------------------------------------------------------------


@common
@given(counts=st.lists(st.integers(0, 40), min_size=1, max_size=3), steps=st.integers(0, 5), seed=st.integers(0, 10**6))
def test_sic_sums_to_one_through_any_operators(counts: list[int], steps: int, seed: int) -> None:
    """Sources meet in a union and go through filters, windows and joins with themselves in random order."""
    rng = np.random.default_rng(seed)
    sending = sum(count > 0 for count in counts)
    sic = np.repeat(source_sic(sending, counts), counts)
    used = 0.0
    for _ in range(steps):
        size = sic.size
        kind = rng.integers(4)
        if kind == 0:  # a filter
            result = derive(sic, np.arange(size), np.arange(size), rng.integers(0, 2, size))
        elif kind == 1:  # tumbling windows with groups: none to three results each
            windows = size // 4 + 1
            result = derive(sic, np.arange(size), rng.integers(0, windows, size), rng.integers(0, 4, windows))
        elif kind == 2:  # sliding windows: each tuple is in two
            member = np.repeat(np.arange(size), 2)
            result = derive(sic, member, member // 6 + np.tile([0, 1], size), np.ones(size // 3 + 2, dtype=int))
        else:  # a join: some pairs, some tuples without a partner
            left, right = np.nonzero(rng.random((size, min(size, 5))) < 0.3)
            pairs = np.arange(left.size)
            result = derive(sic, np.r_[left, right], np.r_[pairs, pairs], np.ones(left.size, dtype=int))
        sic, used = result.sic, used + result.used
    assert sic.sum() + used == pytest.approx(1.0 if sending else 0.0)


# --- water filling ----------------------------------------------------------------------------------------------------


@common
@given(data=st.data())
def test_water_filling_leaves_no_better_share(data: st.DataObject) -> None:
    """Capacity is kept; who could still rise is held by the capacity, and nobody is above the water who need not be."""
    count = data.draw(st.integers(1, 6))
    column = lambda low, high: np.array(data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))  # noqa: E731
    costs, weights, minimum = column(0, 5), column(1, 4), column(0, 4) / 8
    settled, pending = column(0, 8) / 16, column(0, 8) / 16
    capacity = data.draw(fractions) * float(costs.sum())
    shares = water_fill(costs, capacity, weights=weights, minimum=minimum, settled=settled, pending=pending)
    waits = pending > 0
    used = float((costs * shares)[waits].sum())
    assert used <= capacity + 1e-9
    assert (shares[~waits | (costs == 0)] == 1).all()
    if (costs * minimum)[waits].sum() > capacity:
        return
    assert (shares >= minimum - 1e-12).all()
    levels = (settled + pending * shares) / weights
    bound = waits & (costs > 0) & (shares < 1 - 1e-12)
    if bound.any():
        assert used == pytest.approx(capacity)
        lifted = waits & (costs > 0) & (shares > minimum + 1e-12)
        assert levels[lifted].max(initial=0.0) <= levels[bound].min() + 1e-9


def lexicographic_shares(graph: FlowGraph, capacity: float) -> np.ndarray:
    """The largest least share / weight of an output, then the next, by a linear program per level and output."""
    leaves = [(leaf.nodes[0], leaf.weight) for leaf in graph.leaves]
    size = len(graph) + 1
    rows: list[np.ndarray] = []

    def row(entries: dict[int, float]) -> np.ndarray:
        line = np.zeros(size)
        for column, value in entries.items():
            line[column] += value
        return line

    for node, parents in enumerate(graph.parents):
        rows.extend(row({node: 1.0, parent: -1.0}) for parent in parents)
        assert graph.rule[node] is not Rule.MEAN
    scale = max(graph.full_load, 1e-300)
    rows.append(np.append(np.array(graph.weight) / scale, 0.0))
    limits = [0.0] * (len(rows) - 1) + [capacity / scale]
    fixed: dict[int, float] = {}

    def best(objective: np.ndarray, level: float | None) -> float:
        demands, least = [], []
        for place, (node, weight) in enumerate(leaves):
            if place in fixed:
                demands.append(row({node: -1.0}))
                least.append(-fixed[place] + 1e-9)
            elif level is None:
                demands.append(row({node: -1.0, size - 1: weight}))
                least.append(0.0)
            else:
                demands.append(row({node: -1.0}))
                least.append(-weight * level + 1e-9)
        solve: Any = linprog
        bounds = [(0, 1)] * len(graph) + [(0, None)]
        answer = solve(-objective, np.array(rows + demands), np.array(limits + least), bounds=bounds)
        assert answer.success
        return float(-answer.fun)

    while len(fixed) < len(leaves):
        level = best(row({size - 1: 1.0}), None)
        blocked = {
            place: min(1.0, weight * level)
            for place, (node, weight) in enumerate(leaves)
            if place not in fixed and best(row({node: 1.0}), level) <= weight * level + 1e-6
        }
        assert blocked
        fixed.update(blocked)
    return np.array([fixed[place] for place in range(len(leaves))])


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_fair_plan_is_the_lexicographic_optimum_without_unions(data: st.DataObject) -> None:
    network = data.draw(networks(operators=("filter", "map", "split", "join")))
    known = data.draw(statistics(network))
    at = data.draw(rates(network))
    graph = flow_graph(network, type(known)(known.costs, known.selectivities, known.histograms), at)
    capacity = graph.full_load * data.draw(fractions)
    flowing = fair_fractions(graph, capacity)
    shares = np.array([leaf.tuples_delivered(flowing) for leaf in graph.leaves])
    assert shares == pytest.approx(lexicographic_shares(graph, capacity), abs=1e-5)


@common
@given(data=st.data())
def test_fair_plans_drop_at_locations_only_and_keep_an_outputs_sources_alike(data: st.DataObject) -> None:
    network = data.draw(networks())
    known = data.draw(statistics(network))
    at = data.draw(rates(network))
    graph = flow_graph(network, known, at)
    minimum = {leaf.output: data.draw(fractions) for leaf in graph.leaves}
    plan = FairPlanner(minimum=minimum).plan(network, known, at, Admission(graph.full_load * data.draw(fractions)))
    assert {drop.arc for drop in plan.drops} <= {location.arc for location in graph.locations}
    flowing = fair_fractions(graph, plan.capacity, minimum=minimum)
    for node, rule in enumerate(graph.rule):
        if rule is Rule.MEAN and graph.weight[node] > 0:
            assert [flowing[parent] for parent in graph.parents[node]] == pytest.approx(
                [flowing[node]] * len(graph.parents[node]), abs=1e-9
            )
