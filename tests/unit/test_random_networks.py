"""The generator of random networks, and the sample of tuples that goes through them."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from streamshed.errors import InvalidValueError, NetworkError
from streamshed.experiments.delivery import Sample
from streamshed.experiments.random_networks import (
    Recipe,
    random_network,
    shared_network,
    two_intervals,
    zipf_utility,
)
from streamshed.load import Admission, arc_rates, load_coefficients, total_load
from streamshed.network import Join, Network, NetworkBuilder, Spec, Statistics, dump_spec, parse_spec
from streamshed.planning import Drop, DropPlan, planner_named
from streamshed.qos import Histogram, Qos, ValueGraph


def plain(_: random.Random) -> Qos:
    return Qos()


def splits(network: Network) -> int:
    return sum(len(network.arcs_out_of[node]) > 1 for node in network.nodes)


def full_load(spec: Spec) -> float:
    return total_load(load_coefficients(spec.network, spec.statistics), spec.rates)


# --- networks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_default_is_the_papers_network(seed: int) -> None:
    network = random_network(Recipe(), seed, two_intervals(0.0)).network
    kinds = Counter(type(operator).__name__ for operator in network.operators)
    assert kinds == {"Filter": 34, "Union": 13}
    assert (len(network.outputs), len(network.streams), splits(network)) == (5, 18, 0)


def test_a_seed_decides_everything_and_skew_only_the_utilities() -> None:
    first, again = (random_network(Recipe(), 3, two_intervals(0.5)) for _ in range(2))
    assert first == again
    other = random_network(Recipe(), 4, two_intervals(0.5))
    assert first.network != other.network
    skewed = random_network(Recipe(), 3, two_intervals(1.0))
    assert (skewed.network.operators, skewed.statistics) == (first.network.operators, first.statistics)
    for mild, strong in zip(first.network.outputs, skewed.network.outputs, strict=True):
        assert mild.qos.value is not None
        assert strong.qos.value is not None
        assert strong.qos.value.utility(10) <= mild.qos.value.utility(10)
        assert strong.qos.value.utility(90) == 1


def test_networks_survive_a_spec_file() -> None:
    spec = random_network(Recipe(mix={"filter": 3, "map": 1, "union": 1, "join": 1}), 1, two_intervals(0.0))
    assert parse_spec(dump_spec(spec)) == spec
    assert any(isinstance(operator, Join) for operator in spec.network.operators)


def test_sharing_makes_splits_and_saves_streams() -> None:
    counts = {}
    for sharing in (0.0, 0.3, 0.9):
        networks = [random_network(Recipe(sharing=sharing), seed, plain).network for seed in range(10)]
        counts[sharing] = (sum(map(splits, networks)), sum(len(network.streams) for network in networks))
    assert counts[0.0] == (0, 180)
    assert 0 < counts[0.3][0] < counts[0.9][0]
    assert 180 > counts[0.3][1] > counts[0.9][1]


def test_common_streams_are_not_exceeded() -> None:
    network = random_network(Recipe(queries=40, operators=400, streams=3, sharing=0.5), 0, plain).network
    assert {stream.id for stream in network.streams} <= {"s0", "s1", "s2"}
    assert len(network.outputs) == 40


def test_the_shared_network_is_identical_queries_behind_one_operator() -> None:
    spec = shared_network(2, two_intervals(1.0), queries=20, operators=3)
    network = spec.network
    assert (len(network.streams), len(network.operators), len(network.outputs)) == (1, 61, 20)
    assert len(network.arcs_out_of["common"]) == 20
    predicates = {tuple(network.nodes[f"q{q}_{i}"].where for i in range(3)) for q in range(20)}  # type: ignore[union-attr]
    assert len(predicates) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"mix": {"sort": 1}},
        {"mix": {"filter": 0}},
        {"mix": {"filter": -1, "union": 2}},
        {"queries": 0},
        {"operators": 4},
        {"streams": 0},
        {"sharing": 1.5},
    ],
)
def test_impossible_recipes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        Recipe(**wrong)  # type: ignore[arg-type]


def test_zipf_is_even_without_skew_and_mostly_low_with_it() -> None:
    rng = random.Random(0)
    means = {skew: np.mean([zipf_utility(rng, skew) for _ in range(20_000)]) for skew in (0.0, 1.0, 2.0)}
    # Mean of k/100 with weights k^-s over k = 1…100: 0.505; 100/(100·5.18738); 5.18738/(100·1.63498).
    assert means[0.0] == pytest.approx(0.505, abs=0.01)
    assert means[1.0] == pytest.approx(0.1928, abs=0.01)
    assert means[2.0] == pytest.approx(0.0317, abs=0.003)


# --- tuples that go through them --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_selectivities_are_what_tuples_show(seed: int) -> None:
    spec = random_network(Recipe(sharing=0.4), seed, plain)
    sample = Sample(spec, 200_000, seed)
    arrived, load = sample._run({})
    expected = arc_rates(spec.network, spec.statistics, spec.rates)
    assert load == pytest.approx(full_load(spec), rel=0.01)
    for output in spec.network.outputs:
        rate = len(arrived[output.id]) / sample._seconds
        assert rate == pytest.approx(expected[spec.network.arcs_into[output.id][0].id], rel=0.05)


def chain() -> Spec:
    """Values above 20, two thirds of which (20 to 73.33) are worth a half."""
    new = NetworkBuilder("chain")
    flow = new.stream("s", {"value": "double"})
    value = ValueGraph.of("value", [(0, 0.5), (220 / 3, 0.5), (220 / 3, 1), (100, 1)])
    flow.filter("f", "value > 20").output("o", Qos(value=value))
    histograms = {"s": {"value": Histogram.uniform(0, 100)}}
    return Spec(new.build(), Statistics({"f": 1.0}, {"f": 0.8}, histograms), {"s": 10.0})


def test_a_coin_takes_its_share_and_its_utility() -> None:
    spec = chain()
    half = DropPlan("p", (Drop("s", 0.5, 0.5),), (), 10, 5, 5)
    found = Sample(spec, 100_000, 1).under(half)
    assert found.load == pytest.approx(5, rel=0.02)
    assert found.delivered["o"] == pytest.approx(0.5, abs=0.01)
    # The better half by value: a third at 1 and a sixth at 1/2, of 2/3 in all.
    assert found.tuple_utility["o"] == pytest.approx((1 / 3 + 1 / 12) / (2 / 3), abs=0.01)
    assert found.value_utility["o"] == pytest.approx(0.5, abs=0.01)


def test_a_drop_by_value_takes_the_low_values_only() -> None:
    spec = chain()
    plan = planner_named("semantic").plan(spec.network, spec.statistics, spec.rates, Admission(8.0))
    found = Sample(spec, 100_000, 1).under(plan)
    # A fifth of the load is what the filter rejects: it goes at no loss, tuple by tuple.
    assert found.load == pytest.approx(8, rel=0.01)
    assert (found.delivered["o"], found.value_utility_loss, found.tuple_utility_loss) == (1, 0, 0)


def test_every_plan_sees_the_same_tuples() -> None:
    sample = Sample(chain(), 1000, 1)
    plan = DropPlan("p", (Drop("s", 0.3, 0.3),), (), 10, 7, 7)
    assert sample.under(plan) == sample.under(plan)
    assert sample.under(plan) != Sample(chain(), 1000, 2).under(plan)


def test_operators_that_change_values_are_refused() -> None:
    new = NetworkBuilder("computed")
    new.stream("s", {"value": "double"}).map("m", {"value": "value * 2"}).output("o")
    with pytest.raises(NetworkError, match="cannot go through"):
        Sample(Spec(new.build(), rates={"s": 1.0}), 10, 0)._run({})
