"""Where shedders go on networks whose numbers can be added up by hand, and how much they may drop."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import UnknownNameError
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.network.paths import Path, paths_to, queries
from streamshed.qos import DropOrder, SheddingBy
from streamshed.shedding import ObservedRange, Shedder, place_weight, places, shedders
from tests.strategies import networks, rates, statistics

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
OTHER = {"ts": "timestamp", "k": "bigint", "w": "double"}


def fork() -> tuple[Network, tuple[Path, ...]]:
    """`f`, and behind it `g` to `one` and `h` to `two`."""
    new = NetworkBuilder("fork")
    shared = new.stream("s", COLUMNS).filter("f", "v > 0")
    shared.filter("g", "v > 1").output("one")
    shared.filter("h", "v > 2").output("two")
    network = new.build()
    return network, queries(network)[0].paths


def joined() -> tuple[Network, tuple[Path, ...]]:
    """`f` and `g` ahead of the join, `m` behind it; only the left side, and what is joined, has the column v."""
    new = NetworkBuilder("joined")
    left = new.stream("s", COLUMNS, time="ts").filter("f", "v > 0")
    right = new.stream("t", OTHER, time="ts").filter("g", "w > 0")
    left.join("j", right, on=["k"], within_s=1).map("m", {"v": "v"}).output("o")
    network = new.build()
    return network, queries(network)[0].paths


def placed(found: tuple[Shedder, ...]) -> list[tuple[str, float, float]]:
    return [(shedder.arc, round(shedder.weight, 12), shedder.most) for shedder in found]


def test_a_place_weight_is_what_is_saved_over_the_error() -> None:
    # 20 of 200 tuples a second need not be processed for 0.01 s, all 200 are looked at for 0.0002 s: (0.2 − 0.04)/0.1.
    assert place_weight(200.0, 0.01, 0.1, 0.0002) == pytest.approx(1.6)
    assert place_weight(200.0, 0.01, 0.5, 0.0002) == pytest.approx((1.0 - 0.04) / 0.5)
    assert place_weight(200.0, 0.01, 0.1) == pytest.approx(2.0)
    assert place_weight(200.0, 0.0001, 0.1, 0.0002) == pytest.approx(-0.38), "looking costs more than it saves"
    assert place_weight(200.0, 0.01, 0.0) == place_weight(200.0, 0.01, -1.0) == place_weight(0.0, 0.01, 0.1) == 0.0


def test_the_rates_along_a_path_follow_its_own_branches() -> None:
    new = NetworkBuilder("n")
    ways = new.stream("s", COLUMNS).filter("f", "v > 0").split("ways", {"high": "v > 5", "low": "v <= 5"})
    ways["high"].map("m", {"v": "v"}).output("o")
    ways["low"].output("p")
    network = new.build()
    known = Statistics(
        {"f": 0.001, "ways": 0.002, "m": 0.004}, {"f": 0.5, "ways.high": 0.25, "ways.low": 0.75}, drop_cost=0.0001
    )
    found = places(known, 80.0, paths_to(network, "o")[0], 0.2)
    assert [(one.arc, one.rate_tps) for one in found] == [("s->f", 80), ("f->ways", 40), ("ways.high->m", 10)]
    rest_s = (0.001 + 0.5 * 0.002 + 0.125 * 0.004, 0.002 + 0.25 * 0.004, 0.004)
    assert [one.rest_s for one in found] == pytest.approx(rest_s)
    weights = [(0.2 * rate * rest - rate * 0.0001) / 0.2 for rate, rest in zip((80, 40, 10), rest_s, strict=True)]
    assert [one.weight for one in found] == pytest.approx(weights)


def test_a_shedder_that_two_paths_share_has_the_greater_weight_and_the_stricter_error() -> None:
    network, paths = fork()
    known = Statistics({"f": 0.01, "g": 0.001, "h": 0.02}, {"f": 0.5})
    # Ahead of f a tuple saves 0.01 + 0.0005 or 0.01 + 0.01 s, 100 times a second.
    for mtre in ({"one": 0.2, "two": 0.1}, {"one": 0.1, "two": 0.2}):
        assert placed(shedders(network, known, {"s": 100.0}, paths, mtre)) == [("s->f", 2.0, 0.1)]
    # Where the other one tolerates nothing, what both share is not touched.
    assert shedders(network, known, {"s": 100.0}, paths, {"one": 0.0, "two": 0.2}) == ()
    assert shedders(network, known, {"s": 100.0}, paths, {"two": 0.2}) == ()
    assert placed(shedders(network, known, {"s": 100.0}, paths[1:], {"two": 0.2})) == [("s->f", 2.0, 0.2)]


def test_the_first_of_equal_places_is_taken() -> None:
    network, paths = fork()
    known = Statistics({"g": 0.01}, {"f": 1.0})  # f costs nothing: ahead of it or behind it is the same
    (shedder,) = shedders(network, known, {"s": 100.0}, paths[:1], {"one": 0.1})
    assert (shedder.arc, round(shedder.weight, 12)) == ("s->f", 1.0)


def test_shedders_come_in_falling_order_of_weight_whatever_the_order_of_paths() -> None:
    new = NetworkBuilder("n")
    for name in "abc":
        new.stream(f"s{name}", COLUMNS).filter(f"f{name}", "v > 0").output(name)
    network = new.build()
    paths = tuple(path for query in queries(network) for path in query.paths)
    known = Statistics({"fa": 0.002, "fb": 0.03, "fc": 0.01})
    rates_tps = {"sa": 100.0, "sb": 10.0, "sc": 50.0}
    mtre = {"a": 0.1, "b": 0.2, "c": 0.3}
    expected = [("sc->fc", 0.5, 0.3), ("sb->fb", 0.3, 0.2), ("sa->fa", 0.2, 0.1)]
    assert placed(shedders(network, known, rates_tps, paths, mtre)) == expected
    assert placed(shedders(network, known, rates_tps, paths[::-1], mtre)) == expected
    assert placed(shedders(network, known, rates_tps, paths, mtre, among={"sb->fb", "sa->fa"})) == expected[1:]
    assert shedders(network, known, rates_tps, paths, mtre, among=()) == ()


def test_shedders_are_only_on_the_arcs_that_they_may_be_on() -> None:
    network, paths = fork()
    known = Statistics({"f": 0.01, "g": 0.001, "h": 0.02}, {"f": 0.5})
    both = {"one": 0.2, "two": 0.1}
    found = shedders(network, known, {"s": 100.0}, paths, both, among={"f->g", "f->h"})
    assert placed(found) == [("f->h", 1.0, 0.1), ("f->g", 0.05, 0.2)]
    # One path keeps the best place, two on one path give way to the first that may be taken.
    dear = Statistics({"f": 0.001, "g": 0.0, "h": 0.05}, {"f": 0.5}, {}, 0.0005)
    assert placed(shedders(network, dear, {"s": 100.0}, paths, {"one": 0.1, "two": 0.5})) == [("s->f", 2.5, 0.1)]


def test_of_two_shedders_on_one_path_that_cannot_move_the_heavier_stays() -> None:
    network, paths = joined()
    known = Statistics(dict.fromkeys("fgjm", 0.001))
    by = SheddingBy("v", DropOrder.LOWEST)
    # The left path may have one ahead of f, for 100 · 0.003; the right one only behind the join, for its rate · 0.001.
    for right_tps, expected in ((100.0, [("s->f", 0.3, 0.1)]), (1000.0, [("j->m", 1.0, 0.1)])):
        found = shedders(network, known, {"s": 100.0, "t": right_tps}, paths, {"o": 0.1}, by)
        assert placed(found) == expected
        assert {shedder.by for shedder in found} == {by}


def test_a_column_that_is_nowhere_on_the_way_is_refused_by_name() -> None:
    network, paths = joined()
    with pytest.raises(UnknownNameError, match="column to shed by") as error:
        shedders(network, Statistics(), {"s": 1.0, "t": 1.0}, paths, {"o": 0.1}, SheddingBy("vv", DropOrder.LOWEST))
    assert "output 'o'" in str(error.value)
    # Where nothing may be shed anyway, nobody asks for the column.
    by = SheddingBy("vv", DropOrder.LOWEST)
    assert shedders(network, Statistics(), {"s": 1.0, "t": 1.0}, paths, {"o": 0.0}, by) == ()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_path_has_two_shedders_and_none_drops_more_than_a_path_through_it_allows(data: st.DataObject) -> None:
    network = data.draw(networks(max_streams=3, max_operators=5))
    known, rates_tps = data.draw(statistics(network)), data.draw(rates(network))
    paths = tuple(path for query in queries(network) for path in query.paths)
    mtre = {output.id: data.draw(st.sampled_from([0.0, 0.1, 0.3])) for output in network.outputs}
    found = shedders(network, known, rates_tps, paths, mtre)
    arcs = [shedder.arc for shedder in found]
    assert len(set(arcs)) == len(arcs)
    assert [one.weight for one in found] == sorted((one.weight for one in found), reverse=True)
    for path in paths:
        here = [one for one in found if one.arc in {arc.id for arc in path.arcs}]
        assert len(here) <= 1
        assert all(0 < one.most <= mtre[path.output] for one in here)
    for one in found:
        weights = [
            place.weight
            for path in paths
            if mtre[path.output] > 0
            for place in places(known, rates_tps[path.stream], path, mtre[path.output])
            if place.arc == one.arc
        ]
        assert one.weight in weights
        assert one.most == min(mtre[path.output] for path in paths if one.arc in {arc.id for arc in path.arcs})


# --- values ----------------------------------------------------------------------------------------------------------


def ranks(first: DropOrder, *values: float, seen: tuple[float, ...] = (10.0, 20.0, 20.0, 50.0)) -> list[float]:
    found = ObservedRange(first)
    found.observe(np.array(seen))
    found.take_range()
    return [round(rank, 6) for rank in found.ranks(np.array(values)).tolist()]


def test_ranks_are_places_within_the_observed_range() -> None:
    # From 10 to 50, with a mean of 25.
    assert ranks(DropOrder.LOWEST, 10, 20, 30, 50, 5, 60) == [0, 0.25, 0.5, 1, 0, 1]
    assert ranks(DropOrder.HIGHEST, 10, 20, 30, 50, 5, 60) == [1, 0.75, 0.5, 0, 1, 0]
    assert ranks(DropOrder.CENTRE, 25, 20, 30, 35, 45, 0, 60) == [0, 0.25, 0.25, 0.5, 1, 1, 1]


def test_the_highest_rank_is_below_one_so_that_a_share_of_one_drops_it() -> None:
    for first in DropOrder:
        found = ObservedRange(first)
        found.observe(np.array([0.0, 1.0]))
        found.take_range()
        highest = found.ranks(np.array([-5.0, 5.0])).max()
        assert 0.999 < highest < 1.0
    assert ObservedRange(DropOrder.LOWEST).ranks(np.array([1.0, math.nan])).tolist() == [1 - 2.0**-53] * 2


def test_what_is_not_a_number_goes_first_and_is_not_seen() -> None:
    assert ranks(DropOrder.HIGHEST, math.nan, 50.0, seen=(10.0, math.nan, 50.0)) == [0, 0]
    found = ObservedRange(DropOrder.LOWEST)
    found.observe(np.array([math.nan]))
    found.take_range()
    assert found.ranks(np.array([3.0])).tolist() == [1 - 2.0**-53], "nothing was seen yet"


def test_where_all_values_are_the_same_they_are_all_first() -> None:
    assert ranks(DropOrder.LOWEST, 7.0, 7.5, seen=(7.0, 7.0)) == [0, 0.5]
    assert ranks(DropOrder.CENTRE, 7.0, 7.25, seen=(7.0,)) == [0, 0.5]


def test_the_range_grows_with_what_comes_by_and_counts_from_when_it_is_taken() -> None:
    found = ObservedRange(DropOrder.CENTRE)
    found.observe(np.array([0.0, 10.0]))
    found.observe(np.array([]))
    found.observe(np.array([-10.0, 40.0]))  # from −10 to 40, mean 10
    found.take_range()
    found.observe(np.array([90.0]))
    assert found.ranks(np.array([10.0, 22.5, -15.0])).tolist() == [0.0, 0.5, 1 - 2.0**-53]
    found.take_range()  # from −10 to 90, mean 26
    assert found.ranks(np.array([26.0, 51.0, -24.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])
