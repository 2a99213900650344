"""Plans of the linear program, of fair shares, of admission control and of place weights, against solutions by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamshed.load import Admission
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.network.paths import paths_to
from streamshed.planning import DropPlan, FairPlanner, PlaceWeightPlanner, drop_places, planner_named
from streamshed.planning.admission import InputRandom
from streamshed.planning.fair.planner import fair_fractions
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.optimal import fitted, optimal_fractions
from streamshed.qos import Goal, Goals, LossGraph, Measure, OverTime, Qos

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
OTHER = {"ts": "timestamp", "k": "bigint", "w": "double"}
KNEE = LossGraph.of([(0, 0), (0.4, 0.95), (1, 1)])
COSTS = {"one": 1.0, "two": 4.0, "four": 2.0}


def forked(first: Qos | None = None, second: Qos | None = None) -> Network:
    """A stream through a shared operator (1 s), then to outputs behind operators of 4 s and 2 s."""
    new = NetworkBuilder("forked")
    one = new.stream("A", COLUMNS).filter("one", "value > 0")
    one.filter("two", "value > 0").output("O1", first)
    one.filter("four", "value > 0").output("O2", second)
    return new.build()


def unioned(loss: LossGraph | None = None) -> tuple[Network, Statistics]:
    """a costs 1 + 2 s a tuple, b 4 + 2 s; behind the union they are worth the same."""
    new = NetworkBuilder("union")
    first, second = new.stream("a", COLUMNS).filter("f", "value > 0"), new.stream("b", COLUMNS).filter("g", "value > 0")
    first.union("u", second).filter("h", "value > 1").output("o", Qos(loss=loss))
    return new.build(), Statistics({"f": 1.0, "g": 4.0, "h": 2.0})


def joined() -> tuple[Network, Statistics]:
    """a costs 2 s a tuple, half of it goes on; the join takes 3 s a tuple, what comes out 6 s."""
    new = NetworkBuilder("join")
    left, right = new.stream("a", COLUMNS, time="ts"), new.stream("b", OTHER, time="ts")
    left.filter("f", "value > 0").join("j", right, on=["k"], within_s=1).filter("h", "value > 1").output("o")
    return new.build(), Statistics({"f": 2.0, "j": 3.0, "h": 6.0}, {"f": 0.5})


def planned(name: str, network: Network, known: Statistics, rates: dict[str, float], capacity: float) -> DropPlan:
    return planner_named(name).plan(network, known, rates, Admission(capacity))


def dropped(plan: DropPlan) -> dict[str, float]:
    return {drop.arc: drop.fraction for drop in plan.drops}


# --- the linear program -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "capacity", "drops", "loss"),
    [
        # 20 of 70 s have to go. Before `two`: 1 per 40 s; at A: 2 per 70 s; before `four`: 1 per 20 s.
        (None, None, 50.0, {"one->two": 0.5}, 0.25),
        # All before `two`, and 15 s at A, 30 s without `two`.
        (None, None, 15.0, {"A": 0.5, "one->two": 1.0}, 0.75),
        (Qos(weight=3.0), None, 55.0, {"one->four": 0.75}, 0.75 / 4),
        # The knee of the first output is at 0.4: 24 s for 0.05. The rest of 30 s comes from A, 1 per 30 s there.
        (Qos(loss=KNEE), None, 40.0, {"A": 0.2, "one->two": 0.6}, (0.05 + 0.2) / 2),
        # Below the knee both go at A, (2.375 + 1)/70 s; 14 s are left.
        (Qos(loss=KNEE), None, 14.0, {"A": 0.8}, (1 - 0.475 + 0.8) / 2),
    ],
)
def test_the_optimum_of_a_shared_tree(
    first: Qos | None, second: Qos | None, capacity: float, drops: dict[str, float], loss: float
) -> None:
    plan = planned("optimal", forked(first, second), Statistics(COSTS), {"A": 10.0}, capacity)
    assert dropped(plan) == pytest.approx(drops)
    assert plan.tuple_utility_loss == pytest.approx(loss)
    assert plan.load_after == pytest.approx(capacity)


def test_the_optimum_at_a_union_drops_the_dear_stream_first() -> None:
    """30 tuples/s at 3 s and 10 at 6 s: 40 s of 150 s are 20/3 tuples/s of b, one sixth of what comes out."""
    network, known = unioned()
    plan = planned("optimal", network, known, {"a": 30.0, "b": 10.0}, 110.0)
    assert dropped(plan) == pytest.approx({"b": 2 / 3})
    assert plan.outputs[0].delivered == pytest.approx(1 - 1 / 6)
    plan = planned("optimal", network, known, {"a": 30.0, "b": 10.0}, 45.0)
    assert dropped(plan) == pytest.approx({"a": 0.5, "b": 1.0})
    assert plan.outputs[0].delivered == pytest.approx(15 / 40)


def test_the_optimum_at_a_join_drops_both_sides_alike() -> None:
    network, known = joined()
    full = 10 * 2 + 5 * 3 + 5 * 3 + 10 * 6
    plan = planned("optimal", network, known, {"a": 10.0, "b": 5.0}, 0.3 * full)
    assert dropped(plan) == pytest.approx({"a": 0.7, "b": 0.7})
    assert plan.outputs[0].delivered == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["optimal", "fair"])
def test_what_a_drop_costs_is_taken_off_the_capacity(name: str) -> None:
    """10 tuples/s at 1 s, 0.1 s at the drop for each: 1 of 6 s goes into the drop, 5 s are left for half of them."""
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("f", "value > 0").output("o")
    network, known = new.build(), Statistics({"f": 1.0}, drop_cost=0.1)
    plan = planned(name, network, known, {"s": 10.0}, 6.0)
    assert dropped(plan) == pytest.approx({"s": 0.5})
    assert plan.load_after == pytest.approx(6.0)
    assert dropped(planned(name, network, known, {"s": 10.0}, 9.5)) == pytest.approx({"s": 0.15})
    nothing = planned(name, network, known, {"s": 10.0}, 0.5)
    assert dropped(nothing) == pytest.approx({"s": 1.0})
    assert (nothing.fits, nothing.load_after) == (False, pytest.approx(1.0))
    assert planned(name, network, known, {"s": 10.0}, 10.0).drops == ()


def test_a_solver_is_asked_again_until_its_drops_fit() -> None:
    graph = flow_graph(forked(), Statistics(COSTS, drop_cost=0.3), {"A": 10.0})
    asked: list[float] = []

    def solve(room: float) -> list[float]:
        asked.append(room)
        return graph.fractions({0: room / 70})

    assert fitted(graph, 70.0, solve) == fitted(graph, 70.0 * (1 - 1e-10), solve) == [1.0] * 3
    assert asked == []
    assert graph.load(fitted(graph, 40.0, solve)) == pytest.approx(40.0)
    assert asked == [40.0, pytest.approx(37.0)], "3 s for a drop that all 10 tuples/s come to"
    asked.clear()
    assert fitted(graph, 1.0, solve) == [0.0] * 3
    assert asked == [1.0, 0.0], "not even everything dropped fits"
    asked.clear()
    # A solver that does not care is asked 30 times, with a millionth of the capacity less each time.
    fitted(graph, 40.0, lambda room: asked.append(room) or [0.999] * 3)  # type: ignore[func-returns-value]
    assert len(asked) == 30
    assert asked[1] == pytest.approx(37.0)
    assert asked[2] - asked[1] == pytest.approx(-40e-6, rel=1e-3)


def test_a_drop_that_all_branches_make_moves_ahead_of_the_fork() -> None:
    graph = flow_graph(forked(), Statistics({"two": 4.0, "four": 4.0}), {"A": 10.0})
    # The shared operator costs nothing, so the program itself has no reason to drop ahead of it.
    flowing = optimal_fractions(graph, 40.0)
    entry = graph.locations[0].nodes[0]
    assert graph.utility(flowing) == pytest.approx(1.0)
    assert flowing[entry] == pytest.approx(max(flowing[node] for node in graph.children[entry]))


# --- fair shares ------------------------------------------------------------------------------------------------------


def test_fair_shares_at_a_union_are_the_same_of_each_stream() -> None:
    network, known = unioned()
    plan = planned("fair", network, known, {"a": 30.0, "b": 10.0}, 60.0)
    assert dropped(plan) == pytest.approx({"a": 0.6, "b": 0.6})
    assert plan.load_after == pytest.approx(60.0)


def test_fair_shares_by_weight_and_least_share_at_a_fork() -> None:
    """Loads 10, 40 and 20 s. The shared operator carries what the better-off output wants."""
    rates = {"A": 10.0}
    plan = planned("fair", forked(Qos(weight=2.0)), Statistics(COSTS), rates, 60.0)
    # Level t: 10·1 + 40·min(1, 2t) + 20·t = 60 at t = 0.5: one has all, the other half.
    assert dropped(plan) == pytest.approx({"one->four": 0.5})
    plan = planned("fair", forked(Qos(weight=2.0)), Statistics(COSTS), rates, 30.0)
    # 10·2t + 40·2t + 20·t = 30 at t = 0.25.
    assert dropped(plan) == pytest.approx({"A": 0.5, "one->four": 0.75})
    plan = planned("fair", forked(Qos(least_share=0.5)), Statistics(COSTS), rates, 31.0)
    # 10·0.5 + 40·0.5 = 25 s for the least share of the first; 6 s are 0.3 for the second.
    assert dropped(plan) == pytest.approx({"A": 0.5, "one->four": 0.7})
    plan = planned("fair", forked(Qos(least_share=0.5)), Statistics(COSTS), rates, 20.0)
    # Not even that fits: 20 of 25 s are four fifths of it.
    assert dropped(plan) == pytest.approx({"A": 0.6, "one->four": 1.0})
    both = {"O1": 0.5, "O2": 0.8}
    assert dropped(
        FairPlanner(minimum=both).plan(forked(), Statistics(COSTS), rates, Admission(44.0))
    ) == pytest.approx(
        # 10·0.8 + 40·0.5 + 20·0.8 = 44 s.
        {"A": 0.2, "one->two": 0.5}
    )


def test_fair_shares_count_the_largest_claim_on_each_arc() -> None:
    """Two outputs at the same place: the larger weight and the larger minimum count."""
    new = NetworkBuilder("same place")
    s = new.stream("s", COLUMNS).filter("f", "value > 0")
    s.output("o")
    s.output("p")
    t = new.stream("t", COLUMNS).filter("g", "value > 0")
    t.output("q")
    graph = flow_graph(new.build(), Statistics({"f": 1.0, "g": 1.0}), {"s": 10.0, "t": 10.0})
    flowing = fair_fractions(graph, 8.0, {"o": 1.0, "p": 3.0, "q": 1.0})
    assert [leaf.tuples_delivered(flowing) for leaf in graph.leaves] == pytest.approx([0.6, 0.6, 0.2])
    flowing = fair_fractions(graph, 8.0, {"o": 3.0, "p": 1.0}, {"q": 0.5})
    assert [leaf.tuples_delivered(flowing) for leaf in graph.leaves] == pytest.approx([0.3, 0.3, 0.5])
    flowing = fair_fractions(graph, 0.0)
    assert [leaf.tuples_delivered(flowing) for leaf in graph.leaves] == [0.0, 0.0, 0.0]


def test_what_costs_nothing_is_kept_by_fair_shares() -> None:
    new = NetworkBuilder("free")
    new.stream("s", COLUMNS).filter("f", "value > 0").output("o")
    new.stream("t", COLUMNS).output("p")
    plan = planned("fair", new.build(), Statistics({"f": 1.0}), {"s": 10.0, "t": 10.0}, 2.0)
    assert dropped(plan) == pytest.approx({"s": 0.8})


def test_fair_shares_at_a_join_are_the_same_of_both_sides() -> None:
    network, known = joined()
    plan = planned("fair", network, known, {"a": 10.0, "b": 5.0}, 33.0)
    assert dropped(plan) == pytest.approx({"a": 0.7, "b": 0.7})


# --- admission control ------------------------------------------------------------------------------------------------


def three_streams() -> tuple[Network, Statistics, dict[str, float]]:
    """Loads of 10, 30 and 60 s per second: by 1, 3 and 3 s a tuple at 10, 10 and 20 tuples/s."""
    new = NetworkBuilder("three")
    for name in "abc":
        new.stream(name, COLUMNS).filter(f"f{name}", "value > 0").output(f"o{name}")
    return new.build(), Statistics({"fa": 1.0, "fb": 3.0, "fc": 3.0}), {"a": 10.0, "b": 10.0, "c": 20.0}


@pytest.mark.parametrize(
    ("name", "capacity", "drops"),
    [
        # 40 s have to go: 13.3 s each, but a has only 10 s; then 15 s each.
        ("input-uniform", 60.0, {"a": 1.0, "b": 0.5, "c": 0.25}),
        ("input-uniform", 79.0, {"a": 0.7, "b": 7 / 30, "c": 7 / 60}),
        ("input-uniform", 20.0, {"a": 1.0, "b": 1.0, "c": 40 / 60}),
        ("input-uniform", 0.0, {"a": 1.0, "b": 1.0, "c": 1.0}),
        ("input-cost-uniform", 60.0, {"a": 0.4, "b": 0.4, "c": 0.4}),
        ("input-cost-uniform", 1.0, {"a": 0.99, "b": 0.99, "c": 0.99}),
        ("input-cost-top", 60.0, {"c": 2 / 3}),
        ("input-cost-top", 20.0, {"c": 1.0, "b": 2 / 3}),
        ("input-cost-top", 5.0, {"c": 1.0, "b": 1.0, "a": 0.5}),
        # Shuffled with seed 0 the order is a, c, b.
        ("input-random", 96.0, {"a": 0.4}),
        ("input-random", 60.0, {"a": 1.0, "c": 0.5}),
        ("input-random", 20.0, {"a": 1.0, "c": 1.0, "b": 1 / 3}),
    ],
)
def test_admission_control_on_three_unlike_streams(name: str, capacity: float, drops: dict[str, float]) -> None:
    network, known, rates = three_streams()
    plan = planned(name, network, known, rates, capacity)
    assert dropped(plan) == pytest.approx(drops)
    assert plan.load_after == pytest.approx(capacity, abs=1e-9)
    assert planned(name, network, known, rates, 100.0).drops == ()
    assert planned(name, network, known, rates, 100.0 * (1 - 1e-10)).drops == (), "rounding is no overload"


@pytest.mark.parametrize("seed", range(6))
def test_random_admission_goes_by_its_seed(seed: int) -> None:
    network, known, rates = three_streams()
    order = ["a", "b", "c"]
    random.Random(seed).shuffle(order)
    plan = InputRandom(seed).plan(network, known, rates, Admission(5.0))
    loads = {"a": 10.0, "b": 30.0, "c": 60.0}
    *gone, last = order
    assert dropped(plan) == pytest.approx({**dict.fromkeys(gone, 1.0), last: 1 - 5 / loads[last]})


@pytest.mark.parametrize("name", ["input-uniform", "input-cost-uniform", "input-cost-top", "input-random"])
def test_admission_control_without_load_or_overload_drops_nothing(name: str) -> None:
    network, _, rates = three_streams()
    assert planned(name, network, Statistics(), rates, 0.0).drops == ()
    known = Statistics({"fa": 1.0, "fb": 3.0})
    assert planned(name, network, known, rates, 40.0).drops == ()
    everything = planned(name, network, known, rates, 0.0)
    assert everything.load_after == pytest.approx(0.0, abs=1e-9)


def test_admission_control_goes_on_where_a_drop_saves_more_than_its_stream_alone() -> None:
    """At a join what one side loses the other loses too, behind it: 10 s + 100 s of 120 s go with a."""
    new = NetworkBuilder("join")
    left, right = new.stream("a", COLUMNS, time="ts"), new.stream("b", OTHER, time="ts")
    left.join("j", right, on=["k"], within_s=1).filter("h", "value > 1").output("o")
    network, known, rates = new.build(), Statistics({"j": 1.0, "h": 5.0}), {"a": 10.0, "b": 10.0}
    assert dropped(planned("input-cost-top", network, known, rates, 65.0)) == pytest.approx({"a": 0.5})
    assert dropped(planned("input-cost-top", network, known, rates, 5.0)) == pytest.approx({"a": 1.0, "b": 0.5})
    assert dropped(planned("input-cost-uniform", network, known, rates, 60.0)) == pytest.approx({"a": 0.5, "b": 0.5})


def test_what_a_drop_costs_counts_for_admission_control() -> None:
    """10 tuples/s at 1 s, 0.1 s at the drop for each."""
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("f", "value > 0").output("o")
    plan = planned("input-cost-uniform", new.build(), Statistics({"f": 1.0}, drop_cost=0.1), {"s": 10.0}, 6.0)
    assert dropped(plan) == pytest.approx({"s": 0.5})


# --- place weights ----------------------------------------------------------------------------------------------------


def tolerant(mtre: float) -> Qos:
    return Qos(goals=Goals({Measure.LATENCY: Goal(OverTime.of([(0, 1.0)]))}, mtre))


def two_chains(first: float = 0.4, second: float = 0.2) -> tuple[Network, Statistics, dict[str, float]]:
    """Place weights: 100 tuples/s of s at 0.05 s, 5; 200 tuples/s of t at 0.01 s, 2."""
    new = NetworkBuilder("chains")
    new.stream("s", COLUMNS).filter("a", "value > 0").map("b", {"value": "value"}).output("o", tolerant(first))
    new.stream("t", COLUMNS).filter("c", "value > 0").output("p", tolerant(second))
    return new.build(), Statistics({"a": 0.02, "b": 0.03, "c": 0.01}), {"s": 100.0, "t": 200.0}


@pytest.mark.parametrize(
    ("capacity", "drops"),
    [
        (7.0, {}),
        (6.0, {"s": 0.2}),
        (5.0, {"s": 0.4}),
        (4.8, {"s": 0.4, "t": 0.1}),
        (4.6, {"s": 0.4, "t": 0.2}),
        (1.0, {"s": 0.4, "t": 0.2}),
    ],
)
def test_shedders_go_to_work_by_place_weight_each_at_its_most(capacity: float, drops: dict[str, float]) -> None:
    network, known, rates = two_chains()
    plan = planned("place-weight", network, known, rates, capacity)
    assert dropped(plan) == pytest.approx(drops)
    assert plan.load_after == pytest.approx(max(capacity, 4.6))
    assert plan.fits is (capacity >= 4.6)
    assert plan.capacity == capacity


def test_rounding_puts_no_shedder_to_work() -> None:
    network, known, rates = two_chains()
    assert planned("place-weight", network, known, rates, 7.0 * (1 - 1e-10)).drops == ()


def test_an_output_without_goals_tolerates_anything() -> None:
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("a", "value > 0").output("o")
    plan = planned("place-weight", new.build(), Statistics({"a": 1.0}), {"s": 10.0}, 0.0)
    assert dropped(plan) == pytest.approx({"s": 1.0})
    new.stream("t", COLUMNS).filter("b", "value > 0").output("p")
    plan = planned("place-weight", new.build(), Statistics({"a": 1.0, "b": 2.0}), {"s": 10.0, "t": 10.0}, 4.0)
    assert dropped(plan) == pytest.approx({"t": 1.0, "s": 0.6})


def test_many_shedders_are_found_by_halving() -> None:
    """Seven streams of 1 s per second each, dearer ones first; 2.5 s have to go by halves."""
    new = NetworkBuilder("seven")
    for i in range(7):
        new.stream(f"s{i}", COLUMNS).filter(f"f{i}", "value > 0").output(f"o{i}", tolerant(0.5))
    known = Statistics({f"f{i}": 1.0 + 0.01 * i for i in range(7)})
    rates = {f"s{i}": 1.0 for i in range(7)}
    full = sum(known.costs.values())
    for at_work in range(8):
        gone = sum(0.5 * known.costs[f"f{6 - i}"] for i in range(at_work))
        plan = planned("place-weight", new.build(), known, rates, full - gone)
        assert dropped(plan) == pytest.approx({f"s{6 - i}": 0.5 for i in range(at_work)}, abs=1e-6)


def test_places_are_where_a_plan_can_drop_at_no_loss() -> None:
    """The best place of the chain is before its second operator; a plan drops it at the entry of the stream.

    Behind a fork it is the arc behind that; behind a union or join there is none.
    """
    new = NetworkBuilder("places")
    new.stream("s", COLUMNS).filter("a", "value > 0").map("b", {"value": "value"}).output("o")
    fork = new.stream("t", COLUMNS).filter("c", "value > 0")
    fork.filter("d", "value > 1").map("e", {"value": "value"}).output("p")
    fork.output("q")
    met = new.stream("u", COLUMNS).filter("g", "value > 0").union("v", new.stream("w", COLUMNS))
    met.filter("h", "value > 1").output("r")
    network = new.build()
    costs = {"a": 0.001, "b": 0.02, "c": 0.001, "d": 0.001, "e": 0.02, "g": 0.001, "v": 0.001, "h": 0.5}
    selectivities = {"a": 0.1, "c": 0.5, "d": 0.1, "g": 0.1}
    known = Statistics(costs, selectivities, drop_cost=0.0002)
    rates = dict.fromkeys("stuw", 100.0)
    mtre = {"o": 0.1, "p": 0.1, "r": 0.1}
    paths = [path for output in "opr" for path in paths_to(network, output)]
    found = drop_places(network, known, rates, paths, mtre)
    assert {shedder.arc for shedder in found} == {"s", "c->d", "u", "w"}
    assert all(shedder.most == 0.1 for shedder in found)
    # W = (E·v/C − v/C₀)/E for s before b: 10 tuples/s, 0.02 s each, 0.0002 s to look at each.
    weights = {shedder.arc: shedder.weight for shedder in found}
    assert weights["s"] == pytest.approx((0.1 * 10 * 0.02 - 10 * 0.0002) / 0.1)


def test_a_shedder_that_saves_nothing_is_left_out() -> None:
    new = NetworkBuilder("cheap")
    new.stream("s", COLUMNS).filter("a", "value > 0").output("o")
    network = new.build()
    paths = paths_to(network, "o")
    for drop_cost, places in ((0.0, ["s"]), (0.05, ["s"]), (0.1, []), (0.2, [])):
        known = Statistics({"a": 1.0}, drop_cost=drop_cost)
        found = drop_places(network, known, {"s": 10.0}, paths, {"o": 0.1})
        assert [shedder.arc for shedder in found] == places


def test_a_plan_with_given_shedders() -> None:
    network, known, rates = two_chains()
    plan = PlaceWeightPlanner().plan_with(network, known, rates, {"s": 0.3, "t": 0.1})
    assert dropped(plan) == pytest.approx({"s": 0.3, "t": 0.1})
    assert plan.load_after == plan.capacity == pytest.approx(5 * 0.7 + 2 * 0.9)
    assert PlaceWeightPlanner().plan_with(network, known, rates, {}).drops == ()
    assert np.isclose(plan.load_before, 7.0)
