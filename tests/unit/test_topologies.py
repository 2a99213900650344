"""Nodes, segments and how they are joined; specs cut into nodes; what comes of all nodes' decisions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.cutting import external_rates, topology_of
from streamshed.distributed.feasible_input.spread import MaxError, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment, Topology, link
from streamshed.distributed.scores import Throughput
from streamshed.distributed.tables import build_tables, nominal_outputs, play, spread_shares, table_for, table_of
from streamshed.errors import InvalidValueError, NetworkError
from streamshed.network import Statistics, parse_spec

F = Fraction
TOTAL = Throughput()

# `top` feeds `left` and `right`, both feed `end`; `top` has an output of its own, and `outside` comes in at `right`.
TOP = NodeModel(
    "top",
    ("in",),
    (
        Segment("trunk", "in", F(1, 100), F(1, 2)),
        Segment("own", "trunk", F(1, 50), 1, "own results"),
        Segment("to left", "trunk", 0, F(1, 4), "left in"),
        Segment("to right", "trunk", 0, 1, "right in"),
    ),
)
LEFT = NodeModel("left", ("left in",), (Segment("l", "left in", F(1, 10), 2, "end in"),), 2)
RIGHT = NodeModel(
    "right",
    ("right in", "outside"),
    (Segment("r", "right in", F(1, 20), 1, "end in"), Segment("o", "outside", F(1, 20), 1, "also")),
)
END = NodeModel("end", ("end in",), (Segment("e", "end in", F(1, 100), F(1, 2), "results"),))
DIAMOND = Topology((END, RIGHT, LEFT, TOP))


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_segments_know_their_way_and_their_input() -> None:
    assert [one.id for one in TOP.ends] == ["own", "to left", "to right"]
    assert {name: [one.id for one in path] for name, path in TOP.path.items()} == {
        "trunk": ["trunk"], "own": ["trunk", "own"], "to left": ["trunk", "to left"], "to right": ["trunk", "to right"],
    }  # fmt: skip
    assert TOP.input_of == dict.fromkeys(("trunk", "own", "to left", "to right"), "in")
    assert RIGHT.input_of == {"r": "right in", "o": "outside"}
    assert (Segment("s", "i").cost, Segment("s", "i").selectivity, LEFT.capacity, END.capacity) == (0, 1, 2, 1)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"inputs": ()}, "inputs with different names"),
        ({"inputs": ("i", "i")}, "inputs with different names"),
        ({"segments": (Segment("s", "i", 1, 1, "o"), Segment("s", "i", 1, 1, "o"))}, "twice"),
        ({"segments": (Segment("t", "s", 1, 1, "o"), Segment("s", "i", 1, 1))}, "does not come before"),
        ({"segments": (Segment("s", "i", 1, 1, "o"), Segment("t", "s", 1, 1, "o"))}, "got: *both"),
        ({"segments": (Segment("s", "i", 1, 1),)}, "got: *neither"),
        ({"segments": (Segment("s", "i", -1e-9, 1, "o"),)}, "a cost is out of range"),
        ({"segments": (Segment("s", "i", math.inf, 1, "o"),)}, "a cost is out of range"),
        ({"segments": (Segment("s", "i", 1, math.nan, "o"),)}, "a selectivity is out of range"),
        ({"capacity": 0}, "capacity must be positive"),
        ({"capacity": -1}, "capacity must be positive"),
        ({"capacity": math.inf}, "capacity must be positive"),
    ],
)
def test_nodes_that_make_no_sense_are_refused(made: dict[str, Any], words: str) -> None:
    sound: dict[str, Any] = {"inputs": ("i",), "segments": (Segment("s", "i", 0, 0, "o"),), "capacity": 0.5}
    NodeModel("N", **sound)
    with pytest.raises((NetworkError, InvalidValueError), match=words):
        NodeModel("N", **(sound | made))


# --- topologies ------------------------------------------------------------------------------------------------------


def test_who_sends_to_whom() -> None:
    assert DIAMOND.children == {"end": (), "right": ("end",), "left": ("end",), "top": ("left", "right")}
    assert DIAMOND.parents == {"end": ("right", "left"), "right": ("top",), "left": ("top",), "top": ()}
    assert DIAMOND.external == {"in", "outside"}
    assert DIAMOND.outputs == ("results", "also", "own results")
    assert DIAMOND.upstream_first[0] == "top"
    assert DIAMOND.upstream_first[-1] == "end"
    assert DIAMOND.owner["right in"] == DIAMOND.owner["outside"] == "right"
    assert Topology.of([TOP, LEFT, RIGHT, END]).external == {"in", "outside"}


def test_names_are_there_once() -> None:
    with pytest.raises(NetworkError, match="two nodes have the same name"):
        Topology((LEFT, NodeModel("left", ("x",), (Segment("s", "x", 1, 1, "o"),))))
    with pytest.raises(NetworkError, match="two inputs have the same name"):
        Topology((LEFT, NodeModel("x", ("left in",), (Segment("s", "left in", 1, 1, "o"),))))


def test_a_changed_node_takes_the_place_of_the_old_one() -> None:
    dear = NodeModel("left", ("left in",), (Segment("l", "left in", 1, 1, "end in"),))
    changed = DIAMOND.replaced(dear)
    assert [node.name for node in changed.nodes] == ["end", "right", "left", "top"]
    assert changed.node["left"] is dear
    assert changed.node["top"] is TOP


def test_a_link_takes_a_second_for_as_many_tuples_as_it_carries() -> None:
    pipe = link(RIGHT, 50)
    assert pipe == NodeModel(
        "link to right",
        ("link to right/right in", "link to right/outside"),
        (
            Segment("send right in", "link to right/right in", F(1, 50), 1, "right in"),
            Segment("send outside", "link to right/outside", F(1, 50), 1, "outside"),
        ),
    )
    assert link(RIGHT, 0.3, "wire").segments[0].cost == F(10, 3)
    joined = DIAMOND.with_link("right", 50)
    assert joined.node["link to right"].segments == pipe.segments[:1], "what comes from outside does not pass it"
    assert joined.node["link to right"].inputs == ("link to right/right in",)
    assert [one.end for one in joined.node["top"].ends] == ["own results", "left in", "link to right/right in"]
    assert [(one.cost, one.selectivity) for one in joined.node["top"].segments] == [
        (one.cost, one.selectivity) for one in TOP.segments
    ]
    assert joined.node["left"].capacity == 2
    assert joined.parents["right"] == ("link to right",)
    assert joined.parents["link to right"] == ("top",)
    assert joined.external == {"in", "outside"}
    with pytest.raises(NetworkError, match="nothing is sent"):
        DIAMOND.with_link("top", 50)


# --- specs -----------------------------------------------------------------------------------------------------------

SPEC = """
name: cut
streams:
  a: {columns: {v: double}}
  b: {columns: {v: double}}
operators:
  one: {type: filter, input: a, where: v > 0}
  two: {type: map, input: b, select: {v: v}}
  both: {type: union, inputs: [one, two]}
  some: {type: filter, input: both, where: v > 1}
outputs:
  out: {input: some}
statistics:
  costs: {one: 0.001, two: 0.002, both: 0.01, some: 0.02}
  selectivities: {one: 0.5, some: 0.25}
rates: {a: 30, b: 40}
"""


def test_a_spec_without_nodes_is_one_node_with_its_capacity() -> None:
    (node,) = topology_of(parse_spec(SPEC + "capacity: 4\n")).nodes
    assert (node.name, node.inputs, node.capacity) == ("all", ("all/a", "all/b"), 4)
    assert topology_of(parse_spec(SPEC)).node["all"].capacity == 1
    # What meets in a union is kept apart by input: a tuple of a costs 0.001 + 0.5·(0.01 + 0.02).
    assert [(one.id, one.source, one.end) for one in node.segments] == [
        ("a->one", "all/a", "out"),
        ("b->two", "all/b", "out"),
    ]
    assert [float(one.cost) for one in node.segments] == pytest.approx([0.016, 0.032])
    assert [float(one.selectivity) for one in node.segments] == pytest.approx([0.125, 0.25])


def test_what_meets_behind_a_fan_out_has_the_name_of_its_input() -> None:
    split = (
        SPEC.replace("outputs:\n", "outputs:\n  all: {input: both}\n")
        + "nodes:\n  n: {operators: [one, two, both, some], capacity: 2}\n"
    )
    topology = topology_of(parse_spec(split))
    (node,) = topology.nodes
    found = {one.id: (one.source, float(one.cost), float(one.selectivity), one.end) for one in node.segments}
    near = pytest.approx
    assert found == {
        "a->one": ("n/a", near(0.006), 0.5, None),
        "both->all": ("a->one", 0, 1, "all"),
        "both->some": ("a->one", near(0.02), 0.25, "out"),
        "b->two": ("n/b", near(0.012), 1, None),
        "both->all of n/b": ("b->two", 0, 1, "all"),
        "both->some of n/b": ("b->two", near(0.02), 0.25, "out"),
    }
    assert (node.capacity, set(topology.outputs)) == (2, {"all", "out"})


def test_a_spec_is_cut_where_its_nodes_are_and_measured_statistics_go_first() -> None:
    spec = parse_spec(
        SPEC + "nodes:\n  edge: {operators: [one, two], capacity: 1, bandwidth_tps: 7}\n"
        "  core: {operators: [both, some], capacity: 0.5, bandwidth_tps: 100}\n"
    )
    topology = topology_of(spec)
    assert set(topology.node) == {"edge", "core", "link to core"}, "nobody sends to the edge: its link is nobody's"
    assert topology.node["core"].inputs == ("core/one", "core/two")
    assert {one.id: float(one.cost) for one in topology.node["core"].segments} == pytest.approx(
        {"one->both": 0.03, "two->both": 0.03}
    )
    assert topology.node["link to core"].segments[0].cost == F(1, 100)
    assert topology.node["core"].capacity == 0.5
    assert external_rates(topology, spec.rates) == {"edge/a": 30, "edge/b": 40}
    measured = topology_of(spec, Statistics({"one": 0.5, "both": 0.25}, {"one": 0.1}))
    assert [(float(one.cost), float(one.selectivity)) for one in measured.node["edge"].segments] == [(0.5, 0.1), (0, 1)]
    assert float(measured.node["core"].segments[0].cost) == 0.25


# --- decisions of all nodes ------------------------------------------------------------------------------------------


def test_without_drops_rates_follow_the_selectivities() -> None:
    # 80 come in, 40 pass the trunk: 40 results of its own, 10 to the left, which become 20, and 40 to the right.
    assert nominal_outputs(DIAMOND, {"in": 80.0, "outside": 3.0}) == {"results": 30, "also": 3, "own results": 40}


def test_the_coordinator_adds_up_what_comes_of_all_nodes() -> None:
    # Without load everything is taken. The trunk takes 0.04 s and its own results 0.04 s: nothing is too much.
    plan = Coordinator(DIAMOND, TOTAL, 10.0).plan({"in": 4.0, "outside": 3.0})
    assert plan.flows["top"] == pytest.approx({"trunk": 4, "own": 2, "to left": 2, "to right": 2})
    assert plan.flows["left"] == pytest.approx({"l": 0.5})
    assert plan.flows["right"] == pytest.approx({"r": 2, "o": 3})
    assert plan.flows["end"] == pytest.approx({"e": 3}), "1 from the left, 2 from the right"
    assert plan.outputs == pytest.approx({"results": 1.5, "also": 3, "own results": 2})
    assert plan.score == pytest.approx(6.5)
    heavy = Coordinator(DIAMOND, Throughput({"results": 4.0})).plan({"in": 4.0, "outside": 3.0})
    assert heavy.score == pytest.approx(11)
    # 15 a second fill the right node: of 20 and 15 it takes the 15 that bring a whole result each.
    full = Coordinator(DIAMOND, TOTAL, 10.0).plan({"in": 40.0, "outside": 15.0})
    assert full.flows["right"]["o"] == pytest.approx(15)
    assert full.flows["right"]["r"] == pytest.approx(5)
    with pytest.raises(InvalidValueError, match="no rate") as error:
        Coordinator(DIAMOND, TOTAL).plan({"in": 40.0})
    assert "outside" in str(error.value)


def test_two_nodes_may_feed_one_output() -> None:
    one = NodeModel("one", ("a",), (Segment("s", "a", F(1, 10), F(1, 2), "o"),))
    two = NodeModel("two", ("b",), (Segment("s", "b", F(1, 10), 1, "o"),), F(1, 2))
    topology = Topology((one, two))
    plan = Coordinator(topology, TOTAL).plan({"a": 4.0, "b": 9.0})
    assert plan.flows == {"one": {"s": pytest.approx(4)}, "two": {"s": pytest.approx(5)}}
    assert plan.outputs == {"o": pytest.approx(7)}
    tables = build_tables(topology, TOTAL, MaxError(0.01))
    played = play(topology, tables, {"a": 4.0, "b": 9.0}, TOTAL)
    assert played.outputs == {"o": pytest.approx(7, abs=1e-3)}
    assert played.loads == {"one": pytest.approx(0.4), "two": pytest.approx(0.5, abs=1e-3)}


def test_what_nodes_let_through_arrives_at_the_next_ones() -> None:
    def table(node: NodeModel, kept: dict[str, float]) -> FeasibleInputTable:
        """One entry, which says what enters the segments."""
        rates = {name: max(kept[one.id] for one in node.segments if one.source == name) for name in node.inputs}
        return FeasibleInputTable(
            node.name, node.inputs, (F(1),) * len(node.inputs), np.array([[int(rates[name]) for name in node.inputs]]),
            np.ones(1), tuple(kept), np.array([list(kept.values())]),
        )  # fmt: skip

    tables = {
        "top": table(TOP, {"trunk": 8, "own": 3, "to left": 4, "to right": 4}),
        "left": table(LEFT, {"l": 1}),
        "right": table(RIGHT, {"r": 4, "o": 2}),
        "end": table(END, {"e": 5}),
    }
    played = play(DIAMOND, tables, {"in": 9.0, "outside": 2.0}, Throughput({"also": 10.0}))
    assert played.arriving == {"in": 9, "left in": 1, "right in": 4, "outside": 2, "end in": 6}
    assert played.outputs == {"results": 2.5, "also": 2, "own results": 3}
    assert played.score == 25.5
    assert played.loads == pytest.approx({"top": 0.08 + 0.06, "left": 0.1, "right": 0.3, "end": 0.05})
    counted = play(DIAMOND, tables, {"in": 9.0, "outside": 2.0}, Throughput(counts_results=False))
    assert counted.score == 5 + 2 + 3
    assert counted.outputs == played.outputs


# --- errors and shares -----------------------------------------------------------------------------------------------


def test_who_adds_to_the_error_shares_it() -> None:
    corners = spread_shares(DIAMOND, MaxError(0.4))
    assert corners == {name: MaxError(F(1, 10)) for name in DIAMOND.node}
    assert spread_shares(Topology((END,)), MaxError(0.4)) == {"end": MaxError(F(2, 5))}
    # Grids are laid where results leave only: at `end`, `right` and `top`.
    grids = spread_shares(DIAMOND, MaxError(0.3), "grid")
    assert grids == {name: MaxError(F(1, 10)) for name in DIAMOND.node}
    assert spread_shares(DIAMOND, TableSize(7)) == {name: TableSize(7) for name in DIAMOND.node}


def test_the_error_of_a_trees_grids_is_the_sum_of_those_below() -> None:
    root = NodeModel(
        "root", ("in",), (Segment("t", "in", F(1, 8)), Segment("x", "t", 0, 1, "x in"), Segment("y", "t", 0, 1, "y in"))
    )
    leaves = [
        NodeModel(f"{name} node", (f"{name} in",), (Segment("s", f"{name} in", F(1, 4), 1, name),)) for name in "xy"
    ]
    topology = Topology((root, *leaves))
    tables = build_tables(topology, TOTAL, MaxError(2), kind="grid")
    assert [tables[name].max_error for name in ("x node", "y node", "root")] == [1, 1, 2]
    assert tables["x node"].units == (F(1),)
    assert tables["x node"].counts[:, 0].tolist() == [4, 3, 2, 1, 0]
    # Both branches map to the same rate, and 4 a second fill either leaf; the root could take 8.
    assert tables["root"].exact_rates(0) == (F(4),)
    assert tables["root"].scores[0] == 8
    decided = tables["root"].decide({"in": 6.0})
    assert (decided.score, decided.flows) == (8, {"t": 4, "x": 4, "y": 4})
    decided = tables["root"].decide({"in": 2.5})
    assert (decided.rates, decided.score, decided.keep) == ({"in": 2}, 4, {"in": 0.8})


def test_what_nodes_below_do_not_need_of_the_error_the_ones_above_may_use() -> None:
    """A leaf with one query has two corners, and no error: all of it is left for the node above."""
    leaf = NodeModel("leaf", ("leaf in",), (Segment("s", "leaf in", F(1, 4), 1, "o"),))
    root = NodeModel("root", ("in",), (Segment("t", "in", F(1, 8), 1, "leaf in"),))
    tables = build_tables(Topology((root, leaf)), TOTAL, MaxError(0.5))
    assert tables["leaf"].max_error == pytest.approx(0, abs=1e-9)
    assert tables["root"].max_error <= 0.5
    assert tables["root"].decide({"in": 9.0}).score == pytest.approx(4)
    assert tables["root"].decide({"in": 3.0}).score == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize("kind", ["corners", "grid"])
def test_what_is_left_of_an_error_goes_to_the_parents_in_equal_parts(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four nodes share an error of 1; the last one needs 0.05 of it, `left` nothing and `right` all that it may."""
    needs = {"end": 0.05, "left": 0.0, "right": 9.0, "top": 9.0}
    asked: dict[str, float] = {}

    def made(node: NodeModel, _: object, spread: Any, below: dict[str, FeasibleInputTable], **__: object) -> Any:
        asked[node.name] = float(spread.error)
        error = sum(table.max_error for table in below.values()) + min(needs[node.name], float(spread.error))
        rows = np.zeros((1, len(node.inputs)), dtype=np.int64)
        return FeasibleInputTable(node.name, node.inputs, (F(1),) * len(node.inputs), rows, np.ones(1), max_error=error)

    monkeypatch.setattr("streamshed.distributed.tables.table_of", made)
    build_tables(DIAMOND, TOTAL, MaxError(1), kind=kind)
    if kind == "grid":  # an output in the middle is all that it adds to, and there it is laid as fine as can be
        assert asked == pytest.approx(dict.fromkeys(DIAMOND.node, 1 / 3))
        return
    # 0.2 are left of the last one, half for either; `left` has no use for its 0.35 and leaves them to `top`.
    assert asked == pytest.approx({"end": 0.25, "left": 0.35, "right": 0.35, "top": 0.25 + 0.35})


def test_only_a_node_with_several_parents_sends_each_a_share() -> None:
    table = FeasibleInputTable(
        "end", ("end in",), (F(1, 2),), np.array([[4], [2], [0]]), np.array([2.0, 1.0, 0.0]), mixing=True, max_error=0.5
    )
    even = table_for(DIAMOND, table, "left")
    assert (even.units, even.scores.tolist(), even.max_error) == ((F(1, 4),), [1.0, 0.5, 0.0], 0.25)
    given = table_for(DIAMOND, table, "right", {"end": {"left": 0.75, "right": 0.25}})
    assert (given.units, given.scores.tolist()) == ((F(1, 8),), [0.5, 0.25, 0.0])
    assert table_for(DIAMOND, table, "right", {"left": {"right": 0.9}}).units == (F(1, 4),)
    alone = FeasibleInputTable(
        "right", ("right in", "outside"), (F(1), F(1)), np.array([[2, 0], [0, 2], [1, 0]]), np.array([2.0, 2.0, 1.0])
    )
    mine = table_for(DIAMOND, alone, "top", {"right": {"top": 0.5}})
    # What comes from outside is not the parent's: its column goes, with the entries that need it. Nobody else shares.
    assert (mine.inputs, mine.counts.tolist(), mine.scores.tolist()) == (("right in",), [[2], [1]], [2.0, 1.0])
    whole = FeasibleInputTable("left", ("left in",), (F(1),), np.array([[1]]), np.array([1.0]))
    assert table_for(DIAMOND, whole, "top") is whole


def test_kinds_of_tables_are_two() -> None:
    assert table_of(LEFT, TOTAL, MaxError(0.1), kind="grid").mixing is False
    assert table_of(LEFT, TOTAL, MaxError(0.1)).mixing is True
    assert table_of(LEFT, TOTAL, MaxError(0.1), kind="grid", limits_tps={"left in": 3}).highest == {"left in": 3.0}
    with pytest.raises(InvalidValueError, match="no such kind"):
        table_of(LEFT, TOTAL, MaxError(0.1), kind="net")
