"""The network as planners see it: nodes, locations, joints, rates and weights of small networks, by hand."""

from __future__ import annotations

import pytest

from streamshed.network import Flow, NetworkBuilder, Statistics
from streamshed.planning.flow import FlowGraph, Rule
from streamshed.planning.flow_builder import flow_graph
from streamshed.qos import Cell, Histogram, LossGraph, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
OTHER = {"ts": "timestamp", "k": "bigint", "w": "double"}
UNIFORM = {"value": Histogram.uniform(0, 100)}
STEP = Qos(value=ValueGraph.of("value", [(0, 0.25), (60, 0.25), (60, 1), (100, 1)]), weight=2.0)


def network_of(*streams: str) -> tuple[NetworkBuilder, list[Flow]]:
    new = NetworkBuilder("graph")
    return new, [new.stream(name, OTHER if name == "t" else COLUMNS, time="ts", key=["k"]) for name in streams]


def places(graph: FlowGraph) -> dict[str, bool]:
    """By arc with a place for a drop: whether values are told apart there."""
    return {location.arc: location.by_value for location in graph.locations}


def joints(graph: FlowGraph) -> list[set[str]]:
    """The arcs whose drops go together."""
    return [{graph.locations[place].arc for place in joint} for joint in graph.joints]


def loads(graph: FlowGraph) -> dict[str, float]:
    """Seconds of processing per second by the arc that a segment begins with."""
    found: dict[str, float] = {}
    for arc, weight in zip(graph.head_arc, graph.weight, strict=True):
        found[arc] = found.get(arc, 0.0) + weight
    return found


def test_a_chain_is_one_segment_from_its_entry_on() -> None:
    new, (s,) = network_of("s")
    s.filter("a", "value > 0").map("b", {"value": "value"}).filter("c", "value > 1").output("o")
    known = Statistics({"a": 1.0, "b": 2.0, "c": 4.0}, {"a": 0.5, "c": 0.25})
    graph = flow_graph(new.build(), known, {"s": 8.0})
    assert len(graph) == 1
    assert graph.weight == [8 * (1 + 0.5 * 2 + 0.5 * 4)]
    assert graph.weight_by_stream == [{"s": 4.0}]
    assert (graph.head_rate, graph.head_arc, graph.is_on_arc) == ([8.0], ["s"], [True])
    assert places(graph) == {"s": False}
    assert graph.children == [[]]


def test_a_fan_out_begins_a_segment_for_each_reader() -> None:
    new, (s,) = network_of("s")
    shared = s.filter("a", "value > 0")
    shared.filter("b", "value > 1").output("o")
    shared.output("p", Qos(weight=3.0))
    known = Statistics({"a": 1.0, "b": 5.0}, {"a": 0.5, "b": 0.1})
    graph = flow_graph(new.build(), known, {"s": 4.0})
    assert graph.rule == [Rule.ENTRY, Rule.COPY, Rule.COPY]
    assert graph.parents == [(), (0,), (0,)]
    assert graph.children == [[1, 2], [], []]
    assert graph.weight == [4.0, 10.0, 0.0]
    assert graph.head_rate == [4.0, 2.0, 2.0]
    assert graph.head_by_stream == [{"s": 1.0}, {"s": 0.5}, {"s": 0.5}]
    assert places(graph) == {"s": False, "a->b": False, "a->p": False}
    assert [(leaf.output, leaf.weight, leaf.nodes) for leaf in graph.leaves] == [("o", 1.0, (1,)), ("p", 3.0, (2,))]


def test_branches_of_a_split_have_their_own_selectivities() -> None:
    new, (s,) = network_of("s")
    branches = s.split("p", {"low": "value < 40", "high": "value >= 60"})
    branches["low"].filter("a", "k > 0").output("o")
    branches["high"].filter("b", "k > 0").output("q")
    known = Statistics({"p": 1.0, "a": 2.0, "b": 3.0}, {"p.low": 0.4, "p.high": 0.2})
    graph = flow_graph(new.build(), known, {"s": 10.0})
    assert loads(graph) == pytest.approx({"s": 10.0, "p.low->a": 8.0, "p.high->b": 6.0})


def test_a_union_carries_the_mean_of_its_inputs_by_their_rates() -> None:
    new, (a, b) = network_of("a", "b")
    a.filter("f", "value > 0").union("u", b).filter("g", "value > 1").output("o")
    known = Statistics({"f": 1.0, "u": 1.0, "g": 2.0}, {"f": 0.5, "u": 1.0})
    graph = flow_graph(new.build(), known, {"a": 20.0, "b": 30.0})
    assert graph.rule == [Rule.ENTRY, Rule.ENTRY, Rule.MEAN]
    assert graph.shares[2] == pytest.approx((0.25, 0.75))
    assert graph.weight == pytest.approx([20 + 10, 30.0, 80.0])
    assert graph.weight_by_stream[2] == pytest.approx({"a": 1.0, "b": 2.0})
    assert graph.fractions({0: 0.4, 1: 0.8}) == pytest.approx([0.4, 0.8, 0.25 * 0.4 + 0.75 * 0.8])
    assert places(graph) == {"a": False, "b": False}
    assert graph.joints == []


def test_where_nothing_flows_the_inputs_of_a_union_count_alike() -> None:
    new, (a, b) = network_of("a", "b")
    a.union("u", b).output("o")
    graph = flow_graph(new.build(), Statistics(), {"a": 0.0, "b": 0.0})
    assert graph.shares[2] == (0.5, 0.5)
    slow = flow_graph(new.build(), Statistics(), {"a": 0.2, "b": 0.6})
    assert slow.shares[2] == pytest.approx((0.25, 0.75)), "by rate, however small"


def test_a_join_carries_the_least_of_its_sides_which_drop_together() -> None:
    new, (s, t) = network_of("s", "t")
    s.filter("f", "value > 0").join("j", t, on=["k"], within_s=1).filter("g", "value > 1").output("o")
    t.output("p")
    known = Statistics({"f": 1.0, "j": 2.0, "g": 4.0}, {"f": 0.5, "j": 3.0})
    graph = flow_graph(new.build(), known, {"s": 10.0, "t": 6.0})
    assert loads(graph) == pytest.approx(
        {"s": 10 + 5 * 2, "t": 0.0, "t->j.right": 12.0, "t->p": 0.0, "j->g": 11 * 3 * 4}
    )
    assert joints(graph) == [{"s", "t->j.right"}]
    least = graph.rule.index(Rule.LEAST)
    nodes = {location.arc: location.nodes[0] for location in graph.locations}
    assert graph.fractions({nodes["s"]: 0.7, nodes["t->j.right"]: 0.6})[least] == 0.6
    assert graph.fractions({nodes["s"]: 0.5, nodes["t"]: 0.6})[least] == 0.5


def test_a_join_of_a_stream_with_itself_drops_at_one_place() -> None:
    new, (s,) = network_of("s")
    first = s.filter("f", "value > 0")
    first.map("m", {"ts": "ts", "k": "k", "v": "value"}).join(
        "j", first.filter("g", "k > 0"), on=["k"], within_s=1
    ).output("o")
    graph = flow_graph(new.build(), Statistics(), {"s": 1.0})
    assert joints(graph) == [{"f->m", "f->g"}]
    other, (s, t) = network_of("s", "t")
    both = s.join("j", t, on=["k"], within_s=1)
    both.map("m", {"ts": "ts", "k": "k"}).output("o")
    assert joints(flow_graph(other.build(), Statistics(), {"s": 1.0, "t": 1.0})) == [{"s", "t"}]


def test_a_join_behind_a_union_drops_with_all_that_met_there() -> None:
    new, (a, b, t) = network_of("a", "b", "t")
    a.union("u", b).filter("f", "value > 0").join("j", t, on=["k"], within_s=1).output("o")
    graph = flow_graph(new.build(), Statistics(), {"a": 1.0, "b": 1.0, "t": 1.0})
    assert joints(graph) == [{"a", "b", "t"}]
    forked, (a, b, t) = network_of("a", "b", "t")
    met = a.union("u", b)
    met.output("p")
    met.join("j", t, on=["k"], within_s=1).output("o")
    graph = flow_graph(forked.build(), Statistics(), {"a": 1.0, "b": 1.0, "t": 1.0})
    assert joints(graph) == [{"u->j.left", "t"}], "the nearest places above"
    hub = graph.rule.index(Rule.MEAN)
    assert not graph.is_on_arc[hub], "what is ahead of the fork is on no arc"
    assert [graph.is_on_arc[node] for node in graph.children[hub]] == [True, True]


# --- values told apart ------------------------------------------------------------------------------------------------


def test_without_values_there_is_a_node_an_arc() -> None:
    new, (s,) = network_of("s")
    s.output("o", STEP)
    network, known = new.build(), Statistics({}, {}, {"s": UNIFORM})
    graph = flow_graph(network, known, {"s": 7.0})
    assert (len(graph), graph.head_rate) == (1, [pytest.approx(7.0)])
    assert len(flow_graph(network, known, {"s": 1.0}, by_value=True)) == 2


def test_an_output_is_judged_by_its_values_or_by_the_loss_that_follows_from_them() -> None:
    new, (s,) = network_of("s")
    given = LossGraph.of([(0, 0), (0.5, 0.9), (1, 1)])
    s.filter("f", "value > 20").output("derived", STEP)
    s.output("given", Qos(loss=given, value=STEP.value))
    s.output("linear")
    network, known = new.build(), Statistics({}, {"f": 0.8}, {"s": UNIFORM})
    derived, stated, linear = flow_graph(network, known, {"s": 10.0}).leaves
    # Half of what passes is worth a quarter: n = 0.25·0.5 / (0.25·0.5 + 1·0.5) = 0.2.
    assert derived.loss.graph.points == ((0.0, 0.0), (pytest.approx(0.5), pytest.approx(0.8)), (1.0, 1.0))
    assert (derived.by_value, derived.frequencies, derived.values) == (False, (1.0,), (1.0,))
    assert stated.loss == given
    assert linear.loss == LossGraph.linear()
    graph = flow_graph(network, known, {"s": 10.0}, by_value=True)
    derived, stated, linear = graph.leaves
    assert [graph.cell[node] for node in derived.nodes] == [Cell(0, 20), Cell(20, 60), Cell(60, 100)]
    assert derived.frequencies == pytest.approx((0.0, 0.5, 0.5))
    assert derived.values == pytest.approx((0.0, 0.2, 0.8))
    assert (derived.by_value, stated.by_value, linear.by_value) == (True, True, False)
    assert stated.loss == given
    # 20 % and 40 % at a quarter, 40 % in full: 0.05 and 0.1 of 0.55.
    assert stated.values == pytest.approx((0.05 / 0.55, 0.1 / 0.55, 0.4 / 0.55))
    assert linear.frequencies == linear.values == pytest.approx((0.2, 0.4, 0.4))
    assert places(graph) == {"s": False, "s->f": True, "s->given": True, "s->linear": False}
    assert {location.column for location in graph.locations if location.by_value} == {"value"}
    assert {location.column for location in graph.locations if not location.by_value} == {None}


def test_values_are_told_apart_ahead_of_a_fork_only_if_all_readers_value_them() -> None:
    for second, expected in ((STEP, True), (Qos(), False)):
        new, (s,) = network_of("s")
        shared = s.filter("f", "value > 20")
        shared.output("o", STEP)
        shared.output("p", second)
        graph = flow_graph(new.build(), Statistics({}, {"f": 0.8}, {"s": UNIFORM}), {"s": 1.0}, by_value=True)
        assert places(graph) == {"s": expected, "f->o": True, "f->p": expected}


def test_a_drop_by_value_is_known_under_the_name_of_the_column_there() -> None:
    new, (s,) = network_of("s")
    renamed = s.map("m", {"level": "value"})
    graph_of_level = Qos(value=ValueGraph.of("level", [(0, 0.25), (60, 0.25), (60, 1), (100, 1)]))
    renamed.output("o", graph_of_level)
    renamed.output("p", graph_of_level)
    graph = flow_graph(new.build(), Statistics({}, {}, {"s": UNIFORM}), {"s": 1.0}, by_value=True)
    assert {location.arc: location.column for location in graph.locations} == {
        "s": "value",
        "m->o": "level",
        "m->p": "level",
    }


def test_where_the_valued_column_ends_its_cells_are_one_again() -> None:
    new, (s,) = network_of("s")
    s.output("o", STEP)
    s.map("m", {"value": "value * 2"}).filter("g", "value > 0").output("p")
    known = Statistics({"m": 1.0, "g": 3.0}, {"g": 0.5}, {"s": UNIFORM})
    graph = flow_graph(new.build(), known, {"s": 10.0}, by_value=True)
    assert places(graph) == {"s": False, "s->o": True, "s->m": False}
    (output,) = (leaf for leaf in graph.leaves if leaf.output == "p")
    (node,) = output.nodes
    assert graph.weight[node] == pytest.approx(30.0)
    assert sum(graph.weight) == graph.full_load == pytest.approx(40.0)
    low, high = next(location.nodes for location in graph.locations if location.arc == "s->m")
    # 60 % of the values are up to 60.
    assert [graph.weight[low], graph.weight[high]] == pytest.approx([6.0, 4.0])
    flowing = graph.fractions({low: 0.5, high: 0.25})
    assert flowing[node] == pytest.approx(0.6 * 0.5 + 0.4 * 0.25)
    mean = graph.parents[node][0]
    assert graph.rule[mean] is Rule.MEAN
    assert not graph.is_on_arc[mean]
    assert graph.weight[mean] == 0.0


def test_at_a_join_the_side_without_the_column_is_one_flow() -> None:
    new, (s, t) = network_of("s", "t")
    s.filter("f", "k > 0").join("j", t, on=["k"], within_s=1).output("o", STEP)
    known = Statistics({"f": 1.0, "j": 2.0}, {"j": 0.5}, {"s": UNIFORM})
    graph = flow_graph(new.build(), known, {"s": 10.0, "t": 4.0}, by_value=True)
    assert places(graph) == {"s": True, "t": False}
    (low, high), (other,) = (location.nodes for location in graph.locations)
    (leaf,) = graph.leaves
    assert [graph.parents[node] for node in leaf.nodes] == [(low, other), (high, other)]
    assert [graph.rule[node] for node in leaf.nodes] == [Rule.LEAST, Rule.LEAST]
    assert leaf.frequencies == pytest.approx((0.6, 0.4))
    assert graph.fractions({low: 0.3, other: 0.5})[leaf.nodes[0]] == 0.3
    assert graph.fractions({low: 0.3, other: 0.5})[leaf.nodes[1]] == 0.5
    assert [graph.weight[node] for node in (low, high, other)] == pytest.approx([18.0, 12.0, 8.0])


def test_both_sides_of_a_join_told_apart_below_another_value_graph_are_not() -> None:
    """The right side has a valued column of its own, which pairs with all cells of the left one."""
    new, (s, t) = network_of("s", "t")
    t.output("w", Qos(value=ValueGraph.of("w", [(0, 0), (60, 0), (60, 1), (100, 1)])))
    s.join("j", t, on=["k"], within_s=1).output("o", STEP)
    known = Statistics({"j": 1.0}, {}, {"s": UNIFORM, "t": {"w": Histogram.uniform(0, 100)}})
    graph = flow_graph(new.build(), known, {"s": 10.0, "t": 30.0}, by_value=True)
    assert places(graph) == {"s": True, "t": False, "t->w": True, "t->j.right": False}
    low, high = next(location.nodes for location in graph.locations if location.arc == "t->j.right")
    (leaf,) = (leaf for leaf in graph.leaves if leaf.output == "o")
    # Whatever goes of the right side goes from all cells of the left one alike.
    flowing = graph.fractions({low: 0.0, high: 0.5})
    assert [flowing[node] for node in leaf.nodes] == pytest.approx([0.2, 0.2])


def test_a_union_of_values_carries_the_mean_cell_by_cell() -> None:
    new, (a, b) = network_of("a", "b")
    a.union("u", b).output("o", STEP)
    known = Statistics({"u": 1.0}, {}, {"a": UNIFORM, "b": {"value": Histogram.uniform(40, 80)}})
    graph = flow_graph(new.build(), known, {"a": 10.0, "b": 8.0}, by_value=True)
    cells = [Cell(0, 40), Cell(40, 60), Cell(60, 80), Cell(80, 100)]
    (leaf,) = graph.leaves
    assert [graph.cell[node] for node in leaf.nodes] == cells
    assert [graph.shares[node][0] for node in leaf.nodes] == pytest.approx([1.0, 2 / 6, 2 / 6, 1.0])
    assert leaf.frequencies == pytest.approx((4 / 18, 6 / 18, 6 / 18, 2 / 18))
    first, second = (location.nodes for location in graph.locations)
    flowing = graph.fractions({first[1]: 0.0, second[1]: 0.5, second[0]: 0.0})
    assert [flowing[node] for node in leaf.nodes] == pytest.approx([1.0, 0.5 * 4 / 6, 1.0, 1.0])
