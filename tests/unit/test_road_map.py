"""The road map row by row, on shared trees, unions and joins small enough to work out by hand."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest

from streamshed.errors import InvalidValueError
from streamshed.load import Admission, load_coefficients
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import RoadMap, RoadMapPlanner, SemanticRoadMapPlanner
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.greedy import Move, Walk, candidates
from streamshed.planning.roadmap import Position, least_step_size
from streamshed.qos import Histogram, LossGraph, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
OTHER = {"ts": "timestamp", "k": "bigint", "w": "double"}
UNIFORM = {"value": Histogram.uniform(0, 100)}
KNEE = LossGraph.of([(0, 0), (0.4, 0.95), (1, 1)])


def forked(first: Qos | None = None, second: Qos | None = None) -> Network:
    """A stream through a shared operator (1 s), then to outputs behind operators of 4 s and 2 s."""
    new = NetworkBuilder("forked")
    one = new.stream("A", COLUMNS).filter("one", "value > 0")
    one.filter("two", "value > 0").output("O1", first)
    one.filter("four", "value > 0").output("O2", second)
    return new.build()


COSTS = {"one": 1.0, "two": 4.0, "four": 2.0}


def road_map(
    network: Network,
    costs: dict[str, float] | None = None,
    *,
    rate: float = 10.0,
    step_size: float | None = None,
    drop_cost: float = 0.0,
) -> RoadMap:
    return RoadMap(flow_graph(network, Statistics(costs or COSTS, drop_cost=drop_cost), {"A": rate}), step_size)


def rows(table: RoadMap) -> list[tuple[float, dict[str, float], list[float]]]:
    """(saved seconds per tuple, limits, delivered shares) of each row."""
    return [
        (
            round(row.savings["A"], 9),
            {arc: round(limit, 9) for arc, limit in row.limits.items()},
            [round(effect.delivered, 9) for effect in row.outputs],
        )
        for row in map(table.row, range(len(table)))
    ]


# --- the order of rows ------------------------------------------------------------------------------------------------


def test_rows_of_a_shared_tree() -> None:
    """Loss over gain, per tuple of A: 1/4 before `two`, 1/2 before `four`, 2/7 at A, and 1/3 there without `two`."""
    assert rows(road_map(forked())) == [
        (0.0, {}, [1.0, 1.0]),
        (4.0, {"one->two": 0.0}, [0.0, 1.0]),
        (7.0, {"A": 0.0}, [0.0, 0.0]),
    ]


def test_weights_decide_who_loses_first() -> None:
    """Weight 3 for the first output: 3/4 before `two`, 1/2 before `four`, 4/7 at A, 3/5 there without `four`."""
    assert rows(road_map(forked(Qos(weight=3.0)))) == [
        (0.0, {}, [1.0, 1.0]),
        (2.0, {"one->four": 0.0}, [1.0, 0.0]),
        (7.0, {"A": 0.0}, [0.0, 0.0]),
    ]


def test_rows_end_at_knees_of_loss_graphs() -> None:
    """Slopes of the first output: 0.05/0.6 down to 0.4, then 0.95/0.4.

    Before `two`: 0.0833/4. Then at A, which from 1 to 0.4 takes from the second output only: 1/3; it goes on below 0.4
    with both, (2.375 + 1)/7 = 0.48, and is ahead of `four` alone: 1/2.
    """
    assert rows(road_map(forked(Qos(loss=KNEE)))) == [
        (0.0, {}, [1.0, 1.0]),
        (2.4, {"one->two": 0.4}, [0.4, 1.0]),
        (4.2, {"A": 0.4}, [0.4, 0.4]),
        (7.0, {"A": 0.0}, [0.0, 0.0]),
    ]


def test_a_drop_behind_a_fork_goes_on_below_the_drop_ahead_of_it() -> None:
    """At 0.4 the first output has its knee: below, A costs (2.375 + 0.5)/7 and the second output alone only 0.5/2."""
    assert rows(road_map(forked(Qos(loss=KNEE), Qos(weight=0.5)))) == [
        (0.0, {}, [1.0, 1.0]),
        (2.4, {"one->two": 0.4}, [0.4, 1.0]),
        (4.2, {"A": 0.4}, [0.4, 0.4]),
        (5.0, {"A": 0.4, "one->four": 0.0}, [0.4, 0.0]),
        (7.0, {"A": 0.0}, [0.0, 0.0]),
    ]


def test_no_step_is_longer_than_step_size() -> None:
    assert rows(road_map(forked(), step_size=0.4)) == [
        (0.0, {}, [1.0, 1.0]),
        (1.6, {"one->two": 0.6}, [0.6, 1.0]),
        (3.2, {"one->two": 0.2}, [0.2, 1.0]),
        (4.0, {"one->two": 0.0}, [0.0, 1.0]),
        (5.2, {"A": 0.6, "one->two": 0.0}, [0.0, 0.6]),
        (6.4, {"A": 0.2, "one->two": 0.0}, [0.0, 0.2]),
        (7.0, {"A": 0.0}, [0.0, 0.0]),
    ]


def test_streams_save_their_own() -> None:
    """Two streams alone: a loses 1/2 per second saved, b 1/3 although it is slow; the rows hold for any rates."""
    new = NetworkBuilder("two")
    new.stream("a", COLUMNS).filter("f", "value > 0").output("o")
    new.stream("b", COLUMNS).filter("g", "value > 0").output("p")
    network, known = new.build(), Statistics({"f": 2.0, "g": 3.0})
    table = RoadMap(flow_graph(network, known, {"a": 1.0, "b": 1.0}))
    assert table.streams == ("a", "b")
    assert [table.row(i).savings for i in range(3)] == [{"a": 0, "b": 0}, {"a": 0, "b": 3}, {"a": 2, "b": 3}]
    assert table.load(np.array([4.0, 5.0])) == 4 * 2 + 5 * 3
    assert table.lookup(np.array([4.0, 5.0]), 23.0) == Position(0, 0.0)
    assert table.lookup(np.array([4.0, 5.0]), 17.0) == Position(0, pytest.approx(6 / 15))
    assert table.lookup(np.array([4.0, 5.0]), 6.0) == Position(1, pytest.approx(2 / 8))
    assert table.lookup(np.array([4.0, 5.0]), 0.0) == Position(1, pytest.approx(1.0))


def test_a_union_gives_up_the_dear_stream_first() -> None:
    """Tuples of a and b are worth the same behind the union; a costs 1 + 2 s, b 4 + 2 s a tuple, at 30 and 10 /s."""
    new = NetworkBuilder("union")
    first, second = new.stream("a", COLUMNS).filter("f", "value > 0"), new.stream("b", COLUMNS).filter("g", "value > 0")
    first.union("u", second).filter("h", "value > 1").output("o")
    known = Statistics({"f": 1.0, "g": 4.0, "h": 2.0})
    table = RoadMap(flow_graph(new.build(), known, {"a": 30.0, "b": 10.0}))
    table_rows = [table.row(i) for i in range(len(table))]
    assert [30 * row.savings["a"] + 10 * row.savings["b"] for row in table_rows] == pytest.approx([0, 60, 150])
    assert [row.limits for row in table_rows] == [{}, {"b": 0.0}, {"a": 0.0, "b": 0.0}]
    assert [row.outputs[0].delivered for row in table_rows] == pytest.approx([1.0, 0.75, 0.0])


def test_sides_of_a_join_are_dropped_together() -> None:
    """On its own a side of 2 s a tuple costs 1 per 20 + 3 s saved; together they cost 1 per 20 + 30 + 60 s."""
    new = NetworkBuilder("join")
    left, right = new.stream("a", COLUMNS, time="ts"), new.stream("b", OTHER, time="ts")
    left.filter("f", "value > 0").join("j", right, on=["k"], within_s=1).filter("h", "value > 1").output("o")
    known = Statistics({"f": 2.0, "j": 3.0, "h": 6.0}, {"f": 0.5, "j": 1.0})
    graph = flow_graph(new.build(), known, {"a": 10.0, "b": 5.0})
    assert candidates(graph) == [(0,), (1,), (0, 1)]
    table = RoadMap(graph)
    assert len(table) == 2
    row = table.row(1)
    assert row.limits == {"a": 0.0, "b": 0.0}
    assert row.savings == {"a": pytest.approx(2 + 0.5 * (3 + 6)), "b": pytest.approx(3 + 6)}
    half = table.fractions(Position(0, 0.5))
    assert half == pytest.approx([0.5, 0.5, 0.5])
    assert graph.load(half) == pytest.approx(graph.full_load / 2)


def test_a_side_of_a_join_with_another_reader_goes_down_first_where_it_pays() -> None:
    """What the join reads of b is dropped behind b's fork, with the same share of a; b's other reader keeps all."""
    new = NetworkBuilder("join and reader")
    left, right = new.stream("a", COLUMNS, time="ts"), new.stream("b", OTHER, time="ts")
    left.join("j", right, on=["k"], within_s=1).output("o")
    right.filter("g", "w > 0").output("p", Qos(weight=100.0))
    known = Statistics({"j": 1.0, "g": 1.0})
    table = RoadMap(flow_graph(new.build(), known, {"a": 10.0, "b": 10.0}))
    assert [table.row(i).limits for i in range(len(table))] == [
        {},
        {"a": 0.0, "b->j.right": 0.0},
        {"a": 0.0, "b": 0.0},
    ]
    assert [table.row(i).savings for i in range(len(table))] == [
        {"a": 0, "b": 0},
        {"a": 1, "b": 1},
        {"a": 1, "b": 2},
    ]


def test_values_go_cell_by_cell_from_the_least_valuable() -> None:
    new = NetworkBuilder("values")
    value = ValueGraph.of("value", [(0, 0.5), (40, 0.5), (40, 1.0), (80, 1.0), (80, 0.2), (100, 0.2)])
    new.stream("A", COLUMNS).filter("f", "value > 10").output("o", Qos(value=value))
    graph = flow_graph(new.build(), Statistics({"f": 1.0}, {"f": 0.9}, {"A": UNIFORM}), {"A": 1.0}, by_value=True)
    assert candidates(graph) == [(0,), (1,), (2,), (3,)]
    table = RoadMap(graph)
    # Tuples up to 10 are rejected anyway; then 80 to 100 (0.2 each), 10 to 40 (0.5), 40 to 80.
    assert [round(table.row(i).savings["A"], 9) for i in range(len(table))] == [0.0, 0.1, 0.3, 0.6, 1.0]
    worth = 0.3 * 0.5 + 0.4 * 1.0 + 0.2 * 0.2
    values = [table.row(i).outputs[0].value_utility for i in range(len(table))]
    assert values == pytest.approx([1.0, 1.0, 1 - 0.04 / worth, 0.4 / worth, 0.0])


# --- drops that cost something ----------------------------------------------------------------------------------------


def test_a_drops_first_step_saves_more_than_the_drop_costs() -> None:
    """Per tuple of A a drop costs 0.2 s. Before `two` 5 % more than that is saved by a step of 0.0525, then 0.05 each.

    The 21st step removes all of it, 4 − 0.2 s. Then A: 0.07·3 s saved, 0.2 s for the drop there, and 0.014 s less for
    the one before `two`, which is reached by 0.93 of the tuples.
    """
    table = road_map(forked(), drop_cost=0.2)
    found = rows(table)
    assert found[1] == (0.01, {"one->two": 0.9475}, [0.9475, 1.0])
    assert found[2] == (0.21, {"one->two": 0.8975}, [0.8975, 1.0])
    emptied = next(i for i, row in enumerate(found) if row[2][0] == 0.0)
    assert emptied == 20
    assert found[emptied] == (3.8, {"one->two": 0.0}, [0.0, 1.0])
    assert found[emptied + 1] == (3.824, {"A": 0.93, "one->two": 0.0}, [0.0, 0.93])
    assert found[emptied + 2] == (3.984, {"A": 0.88, "one->two": 0.0}, [0.0, 0.88])
    assert found[-1] == (6.8, {"A": 0.0}, [0.0, 0.0]), "nothing comes to the drop before `two` any more"
    for index in range(len(table)):
        flowing = table.fractions(Position(index, 0.0))
        assert table.graph.full_load - table.graph.load(flowing) == pytest.approx(10 * found[index][0], abs=1e-6)


def test_a_drop_that_cannot_save_what_it_costs_is_never_made() -> None:
    """7 s at A, 4 s and 2 s behind it, and a drop of 3 s: it pays at A and before `two`, but not before `four`."""
    table = road_map(forked(Qos(weight=5.0)), drop_cost=3.0)
    found = rows(table)
    # Before `four` the ratio is least, 1/2 to 5/4 and 6/7. But it would cost more than it saves.
    assert found[1] == (0.15, {"A": 0.55}, [0.55, 0.55])
    assert found[-1] == (4.0, {"A": 0.0}, [0.0, 0.0])
    assert all("one->four" not in limits for _, limits, _ in found)


def test_the_least_step_is_drop_cost_over_the_least_load_coefficient() -> None:
    assert least_step_size(road_map(forked(), drop_cost=0.5).graph) == pytest.approx(0.5 / 2.0)
    cheap = {name: cost / 1000 for name, cost in COSTS.items()}
    assert least_step_size(road_map(forked(), cheap, drop_cost=0.0005).graph) == pytest.approx(0.5 / 2.0)
    assert least_step_size(road_map(forked()).graph) == 0.0
    assert least_step_size(road_map(forked(), rate=0.0, drop_cost=0.5).graph) == 0.0
    assert RoadMap(road_map(forked()).graph).step_size == 1.0
    assert RoadMap(road_map(forked(), drop_cost=0.1).graph).step_size == 0.05
    table = road_map(forked())
    for step_size in (0.0, -0.1, 1.1):
        with pytest.raises(InvalidValueError, match="STEP_SIZE does not fit"):
            RoadMap(table.graph, step_size)
    assert RoadMap(table.graph, 1.0).step_size == 1.0


def test_load_coefficients_of_streams_that_meet_are_those_of_the_network() -> None:
    """30 tuples/s of a and 10 of b meet; behind the union each costs 2 s, whatever the other's rate is."""
    new = NetworkBuilder("union")
    first, second = new.stream("a", COLUMNS).filter("f", "value > 0"), new.stream("b", COLUMNS).filter("g", "value > 0")
    first.union("u", second).filter("h", "value > 1").output("o")
    network, known = new.build(), Statistics({"f": 0.5, "g": 4.0, "h": 2.0}, drop_cost=0.1)
    coefficients = load_coefficients(network, known)
    assert (coefficients["a"], coefficients["b"]) == (2.5, 6.0)
    assert least_step_size(flow_graph(network, known, {"a": 30.0, "b": 10.0})) == pytest.approx(0.1 / 2.5)
    assert least_step_size(flow_graph(network, known, {"a": 10.0, "b": 30.0})) == pytest.approx(0.1 / 2.5)
    joined = NetworkBuilder("join")
    left, right = joined.stream("a", COLUMNS, time="ts"), joined.stream("b", OTHER, time="ts")
    left.filter("f", "value > 0").join("j", right, on=["k"], within_s=1).filter("h", "value > 1").output("o")
    network, known = joined.build(), Statistics({"f": 2.0, "j": 3.0, "h": 6.0}, {"f": 0.5}, drop_cost=0.1)
    assert least_step_size(flow_graph(network, known, {"a": 10.0, "b": 1.0})) == pytest.approx(0.1 / (2 + 0.5 * 9))


# --- the table and its look-up ----------------------------------------------------------------------------------------


def test_a_row_is_all_moves_up_to_it() -> None:
    """Through blocks of rows: limits and savings are those of the moves one after another."""
    table = road_map(forked(Qos(loss=KNEE)), step_size=0.005)
    moves: list[Move] = list(Walk(table.graph, 0.005).moves())
    assert len(table) == len(moves) + 1 == 321
    assert len(table) > 4 * 64, "more than a few blocks"
    saved = list(accumulate((move.savings["A"] for move in moves), initial=0.0))
    limits: dict[int, float] = {}
    for index in range(len(table)):
        assert table.row(index).savings["A"] == pytest.approx(saved[index], abs=1e-12)
        assert table.fractions(Position(index, 0.0)) == pytest.approx(table.graph.fractions(limits), abs=1e-12)
        if index < len(moves):
            for node in moves[index].nodes:
                limits[node] = min(limits.get(node, 1.0), moves[index].limit)


@pytest.mark.parametrize("start", [0.0, 20.0, 69.0, 70.0])
def test_the_last_step_is_taken_as_far_as_needed(start: float) -> None:
    """Wherever the last look-up ended: the first row that saves enough, its step in part, the load the capacity."""
    table = road_map(forked(Qos(loss=KNEE)), step_size=0.005)
    rates = np.array([10.0])
    saved = [0.0, *accumulate(10 * move.savings["A"] for move in Walk(table.graph, 0.005).moves())]
    for capacity in (70 * (i / 97 + 1e-4) for i in range(97)):
        table.lookup(rates, start)
        found = table.lookup(rates, capacity)
        row = next(i for i, seconds in enumerate(saved) if seconds >= 70 - capacity) - 1
        assert found == Position(row, pytest.approx((70 - capacity - saved[row]) / (saved[row + 1] - saved[row])))
        assert table.graph.load(table.fractions(found)) == pytest.approx(capacity, abs=1e-7)
    assert table.lookup(rates, 70.0) == table.lookup(rates, 71.0) == Position(0, 0.0)
    assert table.lookup(rates, 0.0).row >= 319


def test_a_look_up_goes_by_present_rates() -> None:
    table = road_map(forked())
    assert table.lookup(np.array([10.0]), 50.0) == Position(0, pytest.approx(0.5))
    assert table.lookup(np.array([10.0]), 15.0) == Position(1, pytest.approx(0.5))
    assert table.lookup(np.array([20.0]), 50.0) == Position(1, pytest.approx((90 - 80) / 60))
    assert table.lookup(np.array([20.0]), 140.0) == Position(0, 0.0)
    assert table.lookup(np.array([1e9]), 7e9 - 1.0) == Position(0, 0.0), "rounding is no overload"
    assert table.lookup(np.array([20.0]), 139.0) == Position(0, pytest.approx(1 / 80))
    assert table.fractions(Position(1, 0.25)) == pytest.approx([0.75, 0.0, 0.75])
    assert table.limits(Position(1, 0.25)).tolist() == pytest.approx([0.75, 0.0, 1.0])


def test_where_even_the_last_row_saves_too_little_it_is_the_one() -> None:
    """What a drop costs stays when nothing gets past it."""
    table = road_map(forked(), drop_cost=0.2)
    last = Position(len(table) - 1, 0.0)
    assert table.lookup(np.array([10.0]), 1.0) == last
    assert table.lookup(np.array([10.0]), 0.0) == last
    assert table.lookup(np.array([10.0]), 5.0).row < last.row


def test_a_step_that_is_not_linear_is_taken_in_full() -> None:
    """The first step of a drop that costs something: a part of it would not pay for the drop."""
    table = road_map(forked(), drop_cost=0.2)
    assert table.lookup(np.array([10.0]), 69.95) == Position(1, 0.0)
    assert table.lookup(np.array([10.0]), 69.9) == Position(1, 0.0)
    assert table.lookup(np.array([10.0]), 31.9) == Position(21, 0.0), "38 s are saved before `two`, 38.24 s with A"
    assert table.lookup(np.array([10.0]), 69.0).part > 0 or table.lookup(np.array([10.0]), 69.0).row > 1


def test_each_row_of_any_table_saves_more() -> None:
    for step_size, drop_cost in ((None, 0.0), (0.03, 0.0), (None, 0.4), (0.3, 0.4)):
        table = road_map(forked(Qos(loss=KNEE)), step_size=step_size, drop_cost=drop_cost)
        assert all(later[0] > earlier[0] for earlier, later in pairwise(rows(table)))


# --- the planner ------------------------------------------------------------------------------------------------------


def drifted(costs: dict[str, float] | None = None, share: float = 0.5, **other: object) -> Statistics:
    return Statistics({**COSTS, **(costs or {})}, {"one": share}, **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "rates", "network", "is_new"),
    [
        (drifted(), {"A": 30.0, "B": 90.0}, forked(), False),  # the scale of the rates is no drift
        (drifted({"two": 4.19}), {"A": 1.0, "B": 3.0}, forked(), False),
        (drifted({"two": 4.21}), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted({"two": 3.79}), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted(share=0.52), {"A": 1.0, "B": 3.0}, forked(), False),
        (drifted(share=0.53), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted({"other": 1e-9}), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted({"other": 0.0}), {"A": 1.0, "B": 3.0}, forked(), False),
        (drifted(), {"A": 0.1, "B": 0.3}, forked(), False),
        (drifted(), {"A": 0.3, "B": 0.1}, forked(), True),
        (Statistics(COSTS), {"A": 1.0, "B": 3.0}, forked(), True),
        (Statistics({"two": 4.0, "four": 2.0}, {"one": 0.5}), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted(drop_cost=1e-9), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted(histograms={"A": UNIFORM}), {"A": 1.0, "B": 3.0}, forked(), True),
        (drifted(), {"A": 1.03, "B": 3.0}, forked(), False),  # a share of 0.2556 for 0.25
        (drifted(), {"A": 1.08, "B": 3.0}, forked(), True),  # 0.2647
        (drifted(), {"A": 0.0, "B": 0.0}, forked(), True),
        (drifted(), {"A": 1.0, "B": 3.0}, forked(Qos(weight=2.0)), True),
    ],
)
def test_a_map_is_built_anew_when_something_moves_by_more_than_5_per_cent(
    known: Statistics, rates: dict[str, float], network: Network, is_new: bool
) -> None:
    planner = RoadMapPlanner()
    planner._map = RoadMap(flow_graph(forked(), drifted(), {"A": 1.0}))
    planner._built_for = (forked(), drifted(), {"A": 1.0, "B": 3.0})
    assert planner._has_drifted(network, known, rates) is is_new


def test_drift_counts_from_where_the_map_was_built() -> None:
    planner = RoadMapPlanner()
    for step, rebuilds in ((4.0, 1), (4.15, 1), (4.19, 1), (4.25, 2), (4.1, 2)):
        planner.plan(forked(), Statistics({**COSTS, "two": step}), {"A": 1.0}, Admission(1.0))
        assert planner.rebuilds == rebuilds


def test_within_drift_a_plan_still_fits_the_present_rates() -> None:
    """A map for 10 and 30 tuples/s in a union, used at 10.3 and 29.7: its savings are nearly right, the plan fits."""
    new = NetworkBuilder("union")
    first, second = new.stream("a", COLUMNS).filter("f", "value > 0"), new.stream("b", COLUMNS).filter("g", "value > 0")
    first.union("u", second).filter("h", "value > 1").output("o")
    network, known = new.build(), Statistics({"f": 1.0, "g": 4.0, "h": 2.0})
    planner = RoadMapPlanner()
    planner.plan(network, known, {"a": 10.0, "b": 30.0}, Admission(1.0))
    for capacity in (200.0, 100.0, 50.0, 20.0, 5.0):
        plan = planner.plan(network, known, {"a": 10.3, "b": 29.7}, Admission(capacity))
        assert plan.load_before == pytest.approx(10.3 * 3 + 29.7 * 6)
        assert plan.fits
        assert plan.load_after >= 0.97 * capacity
    assert planner.rebuilds == 1


def test_the_semantic_plan_is_the_better_of_two() -> None:
    """In a join the walk over values goes wrong; the plan over whole arcs is taken where it is better."""
    network = forked(Qos(value=ValueGraph.of("value", [(0, 0.5), (40, 0.5), (40, 1.0), (100, 1.0)])))
    known = Statistics(COSTS, {}, {"A": UNIFORM})
    planner = SemanticRoadMapPlanner()
    plan = planner.plan(network, known, {"A": 10.0}, Admission(60.0))
    # Values up to 40 before `two` cost 0.2 of 0.8 per 16 s saved: 1/64; `four` at random 1/20.
    (drop,) = plan.drops
    assert (drop.arc, drop.column, drop.predicate("value")) == ("one->two", "value", "value >= 25")
    assert plan.load_after == pytest.approx(60.0)
    assert plan.outputs[0].value_utility == pytest.approx(1 - 0.25 * 0.5 / 0.8)
    assert planner.rebuilds == planner._random.rebuilds == 1
    assert (SemanticRoadMapPlanner(0.5, 0.2)._random.step_size, SemanticRoadMapPlanner(0.5, 0.2)._random.drift) == (
        0.5,
        0.2,
    )
