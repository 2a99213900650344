"""What a node makes of its children's tables and of its own batches, with tables and rates that can be worked out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from streamshed.coordination import LastingRate, TablePlanner, measured_model, table_for_parent
from streamshed.distributed.cutting import topology_of
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Throughput
from streamshed.load import Admission
from streamshed.network import Statistics, node_spec, parse_spec
from streamshed.planning import DropPlan, RoadMapPlanner, SemanticRoadMapPlanner

# Of 400 tuples a second `edge` passes on half. Each costs it 1 ms, and 2 ms more if it goes on.
PAIR = """
name: pair
streams: {s: {columns: {k: bigint, v: double}}}
operators:
  clean: {type: filter, input: s, where: v > 0}
  rough: {type: map, input: clean, select: {k: k, v: v}}
  dear: {type: filter, input: rough, where: v > 10}
outputs: {out: {input: dear}}
statistics: {costs: {clean: 0.001, rough: 0.002, dear: 0.004}, selectivities: {clean: 0.5, dear: 0.5}}
rates: {s: 400}
nodes: {edge: {operators: [clean, rough]}, core: {operators: [dear]}}
"""
# Two streams, 200 and 100 a second, meet on their way from `edge` to `core`; each tuple costs 1 ms.
UNION = """
name: union
streams: {a: {columns: {k: bigint, v: double}}, b: {columns: {k: bigint, v: double}}}
operators:
  both: {type: union, inputs: [a, b]}
  dear: {type: filter, input: both, where: v > 10}
outputs: {out: {input: dear}}
statistics: {costs: {both: 0.001, dear: 0.004}, selectivities: {dear: 0.5}}
rates: {a: 200, b: 100}
nodes: {edge: {operators: [both]}, core: {operators: [dear]}}
"""


def planner_of(text: str, *, by_value: bool = False) -> TablePlanner:
    spec = parse_spec(text)
    otherwise = SemanticRoadMapPlanner() if by_value else RoadMapPlanner()
    return TablePlanner(node_spec(spec, "edge"), topology_of(spec).node["edge"], Throughput(), otherwise)


def takes(node: str = "core", /, worth: float | None = None, **rates_tps: float) -> dict[str, FeasibleInputTable]:
    """A table by which a node takes up to these rates, all together, to a tenth of a tuple."""
    inputs = tuple(f"{node}/{name}" for name in rates_tps)
    counts = np.array([[round(10 * rate) for rate in rates_tps.values()]])
    scores = np.array([float(sum(rates_tps.values())) if worth is None else worth])
    return {node: FeasibleInputTable(node, inputs, (Fraction(1, 10),) * len(inputs), counts, scores, mixing=True)}


def planned(planner: TablePlanner, capacity: float, statistics: Statistics | None = None) -> DropPlan:
    part = planner.node.spec
    return planner.plan(part.network, statistics or part.statistics, part.rates, Admission(capacity))


def kept(plan: DropPlan) -> float:
    return plan.load_after / plan.load_before


# Half of 400 tuples a second pass the filter, at 1 ms each; the core reads all of these, the desk what another
# operator makes of half of them, at 2 ms each.
FAN = """
name: fan
streams: {s: {columns: {k: bigint, v: double}}}
operators:
  clean: {type: filter, input: s, where: v > 0}
  washed: {type: map, input: clean, select: {k: k, v: v}}
  some: {type: filter, input: washed, where: v > 5}
  dear: {type: filter, input: washed, where: v > 10}
  shown: {type: filter, input: some, where: v > 20}
outputs: {out: {input: dear}, seen: {input: shown}}
statistics:
  costs: {clean: 0.001, washed: 0, some: 0.002, dear: 0.004, shown: 0.001}
  selectivities: {clean: 0.5, some: 0.25, dear: 0.5}
rates: {s: 400}
nodes: {edge: {operators: [clean, washed, some]}, core: {operators: [dear]}, desk: {operators: [shown]}}
"""


# --- drops for children ----------------------------------------------------------------------------------------------


def test_without_tables_its_own_planner_decides() -> None:
    planner = planner_of(PAIR)
    plan = planned(planner, 0.8 * 0.3)
    assert (plan.planner, plan.load_before) == (RoadMapPlanner.name, pytest.approx(0.8))
    assert kept(plan) == pytest.approx(0.3)


def test_of_what_comes_as_much_goes_on_as_the_child_takes() -> None:
    """100 of 200 are every second one; of those the filter passes on half whatever is dropped."""
    planner = planner_of(PAIR)
    assert planner.rates_tps == {"edge/s": 400}, "of the spec, until somebody tells"
    planner.update(takes(rough=100), planner.rates_tps)
    plan = planned(planner, 0.8)
    assert (plan.planner, plan.capacity) == ("tables", 0.8)
    assert [(drop.arc, drop.fraction) for drop in plan.drops] == [("s", pytest.approx(0.5))]
    assert [effect.delivered for effect in plan.outputs] == [pytest.approx(0.5)]
    planner.update(takes(rough=100), {"edge/s": 1000.0})
    assert kept(planned(planner, 0.8)) == pytest.approx(0.2), "as much of what comes now"


def test_the_own_capacity_counts_in_steps_of_one_in_128() -> None:
    planner = planner_of(PAIR)
    planner.update(takes(rough=30), {"edge/s": 400})
    for keep in (0.2, 0.999, 1.0, 7.0):
        assert kept(planned(planner, 0.8 * keep)) == pytest.approx(0.15), "the child takes less"
    planner.update(takes(rough=39.5), {"edge/s": 400})
    # 40 would be too much for the child, which takes 39.5: with 25/128 of the work left 39.06 go on.
    assert kept(planned(planner, 0.8 * 0.2)) == pytest.approx(25 / 128)


def test_where_the_child_can_take_what_is_left_the_own_planner_decides() -> None:
    planner = planner_of(PAIR)
    planner.update(takes(rough=100), {"edge/s": 400})
    plan = planned(planner, 0.8 * 0.3)
    assert plan.planner == RoadMapPlanner.name
    assert kept(plan) == pytest.approx(0.3), "to the digit"


@pytest.mark.parametrize(("takes_tps", "by"), [(200.0, "own"), (198.1, "own"), (198.0, "tables"), (150.0, "tables")])
def test_one_in_a_hundred_too_many_is_no_reason_to_drop(takes_tps: float, by: str) -> None:
    planner = planner_of(PAIR)
    planner.update(takes(rough=takes_tps), {"edge/s": 400})
    plan = planned(planner, 0.8)
    assert plan.planner == ("tables" if by == "tables" else RoadMapPlanner.name)
    assert kept(plan) == pytest.approx(takes_tps / 200 if by == "tables" else 1.0)


def test_what_another_node_sends_to_the_child_is_not_reckoned_with() -> None:
    """It takes 200 of ours, and hardly anything else: who sends that keeps to a share of his own."""
    planner = planner_of(PAIR)
    planner.update(takes(rough=200, other=0.5), {"edge/s": 400})
    assert planned(planner, 0.8).planner == RoadMapPlanner.name


def test_streams_that_meet_are_one_rate_to_the_child() -> None:
    planner = planner_of(UNION)
    assert planner.rates_tps == {"edge/a": 200, "edge/b": 100}
    for takes_tps, by in ((297.5, RoadMapPlanner.name), (296.5, "tables")):  # 300 / 1.01 is 297.03
        planner.update(takes(both=takes_tps), planner.rates_tps)
        assert planned(planner, 0.3).planner == by
    planner.update(takes(both=140), planner.rates_tps)
    plan = planned(planner, 0.15)
    assert plan.planner == "tables", "half of the work is 150 tuples"
    assert 300 * kept(plan) == pytest.approx(140)


def test_a_stream_that_stands_still_is_left_alone() -> None:
    planner = planner_of(UNION)
    planner.update(takes(both=150), {"edge/a": 300.0, "edge/b": 0.0})
    plan = planned(planner, 0.3)
    assert [(drop.arc, drop.fraction) for drop in plan.drops] == [("a", pytest.approx(0.5))]


def test_less_than_a_tuple_a_second_is_a_rate() -> None:
    planner = planner_of(PAIR)
    planner.update(takes(rough=0.1), {"edge/s": 0.5})
    assert kept(planned(planner, 0.8)) == pytest.approx(0.4)


def test_where_nothing_costs_anything_the_child_counts_all_the_same() -> None:
    planner = planner_of(PAIR.replace("clean: 0.001, rough: 0.002", "clean: 0, rough: 0"))
    planner.update(takes(rough=100), {"edge/s": 400})
    assert [effect.delivered for effect in planned(planner, 0.0).outputs] == [pytest.approx(0.5)]


@pytest.mark.parametrize(
    ("core_tps", "desk_tps", "drops"),
    [
        (200, 50, {}),
        (100, 50, {"washed->washed_to_core": 0.5}),  # the desk gets all that it takes
        (200, 20, {"washed->some": 0.6}),
        (100, 25, {"s": 0.5}),  # both take half
        (100, 10, {"s": 0.5, "washed->some": 0.8}),
    ],
)
def test_what_each_child_takes_counts_where_the_ways_part(
    core_tps: float, desk_tps: float, drops: Mapping[str, float]
) -> None:
    """Of 200 a second that are clean the core reads all, and the desk the 50 that are left of them."""
    planner = planner_of(FAN)
    planner.update(takes("core", washed=core_tps) | takes("desk", some=desk_tps), {"edge/s": 400})
    found = {drop.arc: drop.fraction for drop in planned(planner, 0.8).drops}
    assert found == pytest.approx(drops, abs=1e-6)


def test_the_cost_behind_a_parting_is_that_of_what_gets_there() -> None:
    """The filter takes 1 ms of all, the operator behind it 2 ms of half: 400 ms each, of which half are left."""
    planner = planner_of(FAN)
    planner.update(takes("core", washed=200) | takes("desk", worth=500, some=20), {"edge/s": 400})
    plan = planned(planner, 0.4)
    assert (plan.planner, plan.load_before) == ("tables", pytest.approx(0.8))
    # The desk is worth more: 20 are made of 80 tuples, in 160 ms. 240 ms are left for 240 at the filter, 120 behind it.
    sent = {effect.output: effect.delivered for effect in plan.outputs}
    assert sent == pytest.approx({"washed_to_core": 0.6, "some_to_desk": 0.4}, abs=1e-6)


def test_shares_that_hardly_differ_have_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller asks many times a second."""
    solved: list[float] = []

    class Counted(FlowProgram):
        def solve(self, *given: Any) -> Any:
            solved.append(1.0)
            return super().solve(*given)

    monkeypatch.setattr("streamshed.coordination.FlowProgram", Counted)
    planner = planner_of(PAIR)
    planner.update(takes(rough=10), {"edge/s": 400})
    for keep, programs in ((0.2, 1), (0.2001, 1), (0.25, 2), (0.2, 2), (1.0, 3), (1.5, 3), (7.0, 3)):
        planned(planner, 0.8 * keep)
        assert len(solved) == programs, keep


def test_only_new_tables_or_rates_are_a_change() -> None:
    planner = planner_of(PAIR)
    table, rates = takes(rough=100), {"edge/s": 400.0}
    assert not planner.update({}, rates)
    assert planner.update(table, rates)
    assert not planner.update(dict(table), dict(rates))
    assert planner.update(table, {"edge/s": 401.0})
    assert planner.update(takes(rough=100), {"edge/s": 401.0}), "a table that came anew"
    assert planner.update({"other": planner.tables["core"]}, {"edge/s": 401.0})
    assert planner.update({}, {"edge/s": 401.0})
    assert not planner.update({}, {"edge/s": 401.0})


def test_a_new_table_replaces_what_was_worked_out_for_the_old_one() -> None:
    planner = planner_of(PAIR)
    for takes_tps in (100, 50, 200, 20):
        planner.update(takes(rough=takes_tps), {"edge/s": 400})
        assert kept(planned(planner, 0.8)) == pytest.approx(takes_tps / 200)


def test_it_tells_values_apart_where_its_own_planner_does() -> None:
    assert not planner_of(PAIR).by_value
    assert planner_of(PAIR, by_value=True).by_value


def test_new_statistics_replace_what_was_worked_out_with_the_old_ones() -> None:
    """All costs double, so that the capacity that left two fifths of the work leaves one."""
    planner = planner_of(PAIR)
    planner.update(takes(rough=39.5), {"edge/s": 400})
    known = planner.node.spec.statistics
    dearer = replace(known, costs={name: 2 * cost for name, cost in known.costs.items()})
    for statistics, load, share in ((known, 0.8, 39.5 / 200), (dearer, 1.6, 25 / 128), (known, 0.8, 39.5 / 200)):
        plan = planned(planner, 0.32, statistics)
        assert (plan.planner, plan.load_before) == ("tables", pytest.approx(load))
        assert kept(plan) == pytest.approx(share)


def test_new_statistics_may_tell_that_the_child_can_take_what_is_left() -> None:
    """Three quarters of the work are left: if the filter is dear, so many tuples go to the core, and else all."""
    planner = planner_of(FAN)
    planner.update(takes("core", washed=155) | takes("desk", some=50), {"edge/s": 400})
    known = planner.node.spec.statistics
    for clean_s, some_s, by in ((0.0005, 0.003, "tables"), (0.0015, 0.001, RoadMapPlanner.name)):
        plan = planned(planner, 0.8 * 0.75, replace(known, costs={"clean": clean_s, "washed": 0.0, "some": some_s}))
        assert (plan.planner, plan.load_before) == (by, pytest.approx(0.8))


# --- what a node can do ----------------------------------------------------------------------------------------------


def test_it_asks_for_more_than_it_has_done_and_for_what_the_model_says_unless_its_batches_are_full() -> None:
    rate = LastingRate()
    assert rate.of(300.0) == 300.0
    rate.observe(fill=0.5, dropped=0.0, done_tps=100.0)
    assert (rate.of(200.0), rate.of(100.0)) == pytest.approx((200.0, 115.0))
    rate.observe(fill=1.0, dropped=0.2, done_tps=50.0)  # busy 0.6·0.5 + 0.4·1.2 = 0.78, done 0.6·100 + 0.4·50 = 80
    assert (rate.of(200.0), rate.of(10.0)) == pytest.approx((200.0, 92.0))
    rate.observe(fill=1.0, dropped=0.2, done_tps=50.0)  # busy 0.948, done 68
    assert (rate.of(200.0), rate.of(10.0)) == pytest.approx((78.2, 78.2))


@pytest.mark.parametrize(("fill", "dropped", "full"), [(0.9, 0.0, True), (0.89, 0.0, False), (0.5, 0.4, True)])
def test_batches_are_full_that_are_long_or_of_which_something_was_dropped(
    fill: float, dropped: float, full: bool
) -> None:
    rate = LastingRate()
    rate.observe(fill, dropped, 100.0)
    assert rate.of(500.0) == pytest.approx(115.0 if full else 500.0)


def test_a_batch_that_was_held_up_or_mostly_dropped_does_not_say_what_can_be_done() -> None:
    for fill, dropped, counts in ((1.3, 0.0, True), (1.31, 0.0, False), (1.0, 0.8, True), (1.0, 0.81, False)):
        rate = LastingRate()
        rate.observe(fill, dropped, 50.0)
        assert rate.of(300.0) == pytest.approx(57.5 if counts else 300.0), (fill, dropped)


def test_a_very_long_batch_counts_as_two_full_ones() -> None:
    """So that it is forgotten as soon as two: 0.6·2 + 0.4·0.1 = 1.24, 0.784."""
    rate = LastingRate()
    rate.observe(fill=50.0, dropped=0.0, done_tps=1.0)
    rate.observe(fill=0.1, dropped=0.0, done_tps=100.0)
    assert rate.of(500.0) == pytest.approx(115.0)
    rate.observe(fill=0.1, dropped=0.0, done_tps=100.0)
    assert rate.of(500.0) == 500.0


# Half of what comes at `a` costs 4 ms beside the 2 ms of all of it; what comes at `b` costs 1 ms.
TWO_INPUTS = NodeModel(
    "n",
    ("n/a", "n/b"),
    (
        Segment("first", "n/a", 0.002, 0.5),
        Segment("second", "first", 0.004, 1, "x"),
        Segment("third", "n/b", 0.001, 1, "y"),
    ),
    capacity=2,
)


def test_a_measured_rate_is_a_capacity_by_the_mix_of_inputs() -> None:
    """100 and 300 a second cost 0.2 + 0.2 + 0.3 seconds each second: 200 of such tuples cost half of that."""
    assert measured_model(TWO_INPUTS, {"n/a": 100.0, "n/b": 300.0}, 200.0).capacity == pytest.approx(0.35)
    assert measured_model(TWO_INPUTS, {"n/a": 100.0, "n/b": 0.0}, 200.0).capacity == pytest.approx(0.8)
    assert measured_model(TWO_INPUTS, {"n/a": 0.5, "n/b": 0.0}, 200.0).capacity == pytest.approx(0.8)


def test_without_rates_or_costs_nothing_was_measured() -> None:
    assert measured_model(TWO_INPUTS, {"n/a": 0.0, "n/b": 0.0}, 200.0) == TWO_INPUTS
    free = replace(TWO_INPUTS, segments=tuple(replace(segment, cost=0) for segment in TWO_INPUTS.segments))
    assert measured_model(free, {"n/a": 100.0, "n/b": 300.0}, 200.0) == free


# --- what it tells its parents ---------------------------------------------------------------------------------------

# 10 ms a tuple at either input.
EVEN = NodeModel("n", ("n/a", "n/b"), (Segment("a", "n/a", 0.01, 1, "x"), Segment("b", "n/b", 0.01, 1, "y")))
BOTH = frozenset(EVEN.inputs)


def told(
    inputs: frozenset[str],
    rates_tps: Mapping[str, float],
    share: float = 1.0,
    weights: Mapping[str, float] | None = None,
    model: NodeModel = EVEN,
) -> FeasibleInputTable:
    return table_for_parent(model, Throughput(dict(weights or {})), {}, rates_tps, inputs, share)


def test_an_input_of_no_concern_to_the_parent_stays_as_it_is() -> None:
    """What comes at `b` counts three times as much: 40 of it stay, and 60 are left for `a`."""
    table = told(frozenset({"n/a"}), {"n/a": 10.0, "n/b": 40.0}, weights={"y": 3.0})
    assert table.inputs == ("n/a",)
    assert table.decide({"n/a": 500.0}).rates["n/a"] == pytest.approx(60.0, rel=1e-4)
    assert table.decide({"n/a": 30.0}).score == pytest.approx(30 + 3 * 40, rel=1e-4)
    silent = told(frozenset({"n/a"}), {"n/a": 10.0}, weights={"y": 3.0})
    assert silent.decide({"n/a": 500.0}).score == pytest.approx(100.0, rel=1e-4), "nothing comes at the other one"


def test_one_parent_of_all_inputs_is_told_of_all() -> None:
    table = table_for_parent(EVEN, Throughput(), {}, {"n/a": 10.0, "n/b": 40.0}, BOTH)
    assert table.inputs == ("n/a", "n/b")
    assert table.planless is not None, "where the node itself would drop is known"
    decision = table.decide({"n/a": 70.0, "n/b": 90.0})
    assert decision.score == pytest.approx(100.0, rel=0.01)
    assert sum(decision.rates.values()) == pytest.approx(100.0, rel=0.01)


@pytest.mark.parametrize("share", [0.5, 0.25])
def test_one_of_several_parents_is_told_of_its_share(share: float) -> None:
    """Whatever the others send now: of 100 tuples a second it may send its share."""
    table = told(frozenset({"n/a"}), {"n/a": 10.0, "n/b": 90.0}, share)
    assert table.inputs == ("n/a",)
    assert table.decide({"n/a": 500.0}).rates["n/a"] == pytest.approx(100 * share, rel=0.01)


def test_an_input_that_costs_nothing_is_told_a_hundred_times_what_comes() -> None:
    free = replace(EVEN, segments=(replace(EVEN.segments[0], cost=0), EVEN.segments[1]))
    for rate_tps, highest in ((50.0, 5000.0), (0.5, 100.0), (0.0, 100.0)):
        table = told(BOTH, {"n/a": rate_tps, "n/b": 40.0}, model=free)
        assert table.highest["n/a"] == pytest.approx(highest, rel=1e-4)
        assert table.highest["n/b"] == pytest.approx(100.0, rel=1e-4)
    assert told(BOTH, {}, model=free).highest["n/a"] == pytest.approx(100.0, rel=1e-4)


@pytest.mark.parametrize("worth", [1e-4, 1.0, 1e3])
def test_a_table_is_within_one_in_a_hundred_of_the_best_and_no_finer_whatever_the_scale(worth: float) -> None:
    """Many ways of different worth and cost, so that the score has corners; against the program itself."""
    ways = [(name, i, f"{name}{i}") for name in "ab" for i in range(1, 25)]
    segments = [Segment(id, f"n/{name}", 0.001 * i**1.3, 1, id) for name, i, id in ways]
    weights = {id: worth * i for _, i, id in ways}
    model = NodeModel("n", ("n/a", "n/b"), tuple(segments))
    table = told(BOTH, {"n/a": 30.0, "n/b": 30.0}, weights=weights, model=model)
    program = FlowProgram((model,), Throughput(weights), (), 100.0)
    top = program.solve({"n/a": 1e4, "n/b": 1e4}).score
    for a, b in ((1, 1), (2, 5), (15, 25), (0, 30), (40, 10), (100, 100)):
        rates = {"n/a": float(a), "n/b": float(b)}
        best = program.solve(rates).score
        assert best - 0.0101 * top <= table.decide(rates).score <= best * (1 + 1e-4)
    assert 1e-4 * top < table.max_error <= 0.01 * top
