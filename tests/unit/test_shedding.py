"""Places for shedders: the place weight on a worked path, at most one a path, and what a semantic one drops."""

from __future__ import annotations

import numpy as np
import pytest

from streamshed.errors import UnknownNameError
from streamshed.load import Admission, load_coefficients
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.network.paths import Path, paths_to, queries
from streamshed.planning import planner_named
from streamshed.qos import DropOrder, Goal, Goals, Measure, OverTime, Qos, SheddingBy
from streamshed.shedding import ObservedRange, place_weight, places, shedders

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}


def chain() -> tuple[Network, Statistics, Path]:
    """Three operators with 1,000, 200 and 100 tuples/s and selectivities 0.2, 0.5 and 1, at 100 tuples/s."""
    new = NetworkBuilder("chain")
    new.stream("s", COLUMNS).filter("a", "v > 8").filter("b", "v > 9").map("c", {"v": "v"}).output("o")
    network = new.build()
    statistics = Statistics({"a": 0.001, "b": 0.005, "c": 0.01}, {"a": 0.2, "b": 0.5}, drop_cost=0.0001)
    return network, statistics, paths_to(network, "o")[0]


def test_place_weight_on_a_worked_path() -> None:
    """W = (E·v/C − v/C₀)/E with C from equation 4.4, by hand.

    Before a: v = 100, 1/C = 0.001 + 0.2·0.005 + 0.1·0.01 = 0.003; before b: v = 20, 1/C = 0.005 + 0.5·0.01 = 0.01;
    before c: v = 10, 1/C = 0.01. The shedder takes 0.0001 s a tuple. With E = 0.1:
    W(a) = (0.03 − 0.01)/0.1 = 0.2, W(b) = (0.02 − 0.002)/0.1 = 0.18, W(c) = (0.01 − 0.001)/0.1 = 0.09.
    """
    _, statistics, path = chain()
    found = places(statistics, 100.0, path, 0.1)
    assert [place.arc for place in found] == ["s->a", "a->b", "b->c"]
    assert [place.rate_tps for place in found] == pytest.approx([100, 20, 10])
    assert [1 / place.rest_s for place in found] == pytest.approx([1000 / 3, 100, 100])
    assert [place.weight for place in found] == pytest.approx([0.2, 0.18, 0.09])


def test_the_overhead_of_the_shedder_moves_it_behind_a_selective_operator() -> None:
    network, statistics, path = chain()
    # With E = 0.05 half of what is saved at the front goes into looking at tuples: W = 0.1, 0.16, 0.08.
    assert [place.weight for place in places(statistics, 100.0, path, 0.05)] == pytest.approx([0.1, 0.16, 0.08])
    (shedder,) = shedders(network, statistics, {"s": 100.0}, [path], {"o": 0.05})
    assert (shedder.arc, shedder.most) == ("a->b", 0.05)


def test_without_tolerance_there_is_no_shedder() -> None:
    network, statistics, path = chain()
    assert shedders(network, statistics, {"s": 100.0}, [path], {"o": 0.0}) == ()
    assert place_weight(0.0, 1.0, 0.1) == 0.0


def joined() -> Network:
    new = NetworkBuilder("joined")
    left = new.stream("s", COLUMNS, time="ts").filter("f", "v > 0")
    right = new.stream("t", {"ts": "timestamp", "k": "bigint", "w": "double"}, time="ts").filter("g", "w > 0")
    left.join("j", right, on=["k"], within_s=1).map("m", {"v": "v"}).output("o")
    return new.build()


def test_at_most_one_shedder_a_path_in_falling_order_of_weight() -> None:
    network = joined()
    costs = {"f": 0.0001, "g": 0.0001, "j": 0.001, "m": 0.02}
    statistics = Statistics(costs, {"f": 0.1, "g": 0.5, "j": 0.5}, {}, 0.0001)
    paths = queries(network)[0].paths
    found = shedders(network, statistics, {"s": 1000.0, "t": 100.0}, paths, {"o": 0.01})
    weights = [shedder.weight for shedder in found]
    assert weights == sorted(weights, reverse=True)
    for path in paths:
        assert sum(arc.id == shedder.arc for arc in path.arcs for shedder in found) == 1


def test_two_best_places_on_one_path_give_way_to_the_first_operators() -> None:
    new = NetworkBuilder("fork")
    shared = new.stream("s", COLUMNS).filter("f", "v > 0")
    shared.map("cheap", {"v": "v"}).output("one")
    shared.map("dear", {"v": "v"}).output("two")
    network = new.build()
    # Looking at all tuples costs more than they cost on the way to `one`; on the way to `two` they are dear at once.
    statistics = Statistics({"f": 0.001, "cheap": 0.0, "dear": 0.05}, {"f": 0.5}, {}, 0.0005)
    paths = queries(network)[0].paths
    alone = [shedders(network, statistics, {"s": 100.0}, [path], {"one": 0.1, "two": 0.5})[0].arc for path in paths]
    assert alone == ["f->cheap", "s->f"]
    (both,) = shedders(network, statistics, {"s": 100.0}, paths, {"one": 0.1, "two": 0.5})
    assert (both.arc, both.most) == ("s->f", 0.1)  # what the stricter output allows


def test_semantic_shedders_are_only_where_their_column_is() -> None:
    network = joined()
    statistics = Statistics({"f": 0.001, "g": 0.001, "j": 0.001, "m": 0.001})
    paths = queries(network)[0].paths
    by = SheddingBy("v", DropOrder.LOWEST)
    found = shedders(network, statistics, {"s": 100.0, "t": 100.0}, paths, {"o": 0.1}, by)
    assert [shedder.arc for shedder in found] == ["s->f"]
    with pytest.raises(UnknownNameError, match="column to shed by"):
        shedders(network, statistics, {"s": 1.0, "t": 1.0}, paths, {"o": 0.1}, SheddingBy("x", DropOrder.LOWEST))


@pytest.mark.parametrize(
    ("first", "dropped"),
    [
        (DropOrder.LOWEST, [0, 5, 9]),
        (DropOrder.CENTRE, [46, 50, 54]),
        (DropOrder.HIGHEST, [91, 95, 100]),
    ],
)
def test_a_semantic_shedder_takes_its_share_of_the_observed_range(first: DropOrder, dropped: list[int]) -> None:
    values = ObservedRange(first)
    assert (values.ranks(np.array([1.0])) > 0.9).all()  # nothing seen, nothing given up
    values.observe(np.array([0.0, 50.0, 100.0, np.nan]))
    values.take_range()
    values.observe(np.array([-1000.0]))  # the range stays until the shedder goes off
    numbers = np.arange(101.0)
    gone = numbers[values.ranks(numbers) < 0.1]
    assert set(dropped) <= set(gone)
    assert len(gone) <= 11
    assert values.ranks(np.array([np.nan])).tolist() == [0.0]


def goal_network(mtre: float) -> Network:
    new = NetworkBuilder("two")
    goals = Goals({Measure.LATENCY: Goal(OverTime.of([(0, 1.0)]))}, mtre)
    s = new.stream("s", COLUMNS)
    s.filter("a", "v > 0").map("b", {"v": "v"}).output("o", Qos(goals=goals))
    s.filter("c", "v < 0").output("p", Qos(goals=goals))
    return new.build()


def test_planner_never_drops_beyond_the_tolerable_error() -> None:
    network = goal_network(0.3)
    statistics = Statistics({"a": 0.001, "b": 0.004, "c": 0.002})
    load = load_coefficients(network, statistics)["s"] * 100
    plan = planner_named("place-weight").plan(network, statistics, {"s": 100.0}, Admission(0.1 * load))
    assert {drop.arc: drop.fraction for drop in plan.drops} == pytest.approx({"s->a": 0.3, "s->c": 0.3})
    assert not plan.fits
    assert plan.load_after == pytest.approx(0.7 * load)


def test_planner_goes_by_place_weight_and_takes_no_more_than_needed() -> None:
    network = goal_network(0.3)
    statistics = Statistics({"a": 0.001, "b": 0.004, "c": 0.002})
    load = load_coefficients(network, statistics)["s"] * 100
    plan = planner_named("place-weight").plan(network, statistics, {"s": 100.0}, Admission(load - 0.1))
    assert {drop.arc: drop.fraction for drop in plan.drops} == pytest.approx({"s->a": 0.2})  # 0.005 s a tuple there
    assert plan.fits
    assert not planner_named("place-weight").plan(network, statistics, {"s": 100.0}, Admission(load)).drops


def test_planner_sheds_nothing_where_no_error_is_tolerated() -> None:
    plan = planner_named("place-weight").plan(goal_network(0.0), Statistics({"a": 0.01}), {"s": 100.0}, Admission(0.1))
    assert not plan.drops
