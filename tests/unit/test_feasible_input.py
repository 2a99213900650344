"""Feasible input tables: the paper's example to the digit, and what tables on a grid must keep."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.feasible_input.corners import corner_table
from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.sharing import agreed_shares, table_share
from streamshed.distributed.feasible_input.spread import MaxError, TableSize
from streamshed.distributed.model import NodeModel, Segment, Topology
from streamshed.distributed.program import FlowProgram, Solution
from streamshed.distributed.scores import Fairness, Throughput, jain
from streamshed.distributed.tables import build_tables, nominal_outputs, play, table_for
from streamshed.errors import InvalidValueError, NetworkError
from streamshed.experiments.random_trees import random_tree

F = Fraction
TOTAL = Throughput()
PROCESSED = Throughput(counts_results=False)

# Figure 1 of the paper.
A = NodeModel("A", ("a1", "a2"), (Segment("a-top", "a1", 1, 1.0, "b1"), Segment("a-low", "a2", 2, 1.0, "b2")))
B = NodeModel("B", ("b1", "b2"), (Segment("b-top", "b1", 3, 0.5, "q1"), Segment("b-low", "b2", 1, 1.0, "q2")))
CHAIN = Topology((A, B))

# Figure 3: an input that splits; 8 units of load a tuple, 5 of them in the lower branch.
SPLIT = NodeModel(
    "S", ("r",), (Segment("trunk", "r", 1), Segment("top", "trunk", 2, 1, "o1"), Segment("low", "trunk", 5, 1, "o2"))
)


def load(node: NodeModel, *rates: Fraction) -> Fraction:
    return sum((F(segment.cost) * rate for segment, rate in zip(node.segments, rates, strict=True)), F(0))


def round_robin(node: NodeModel, *rates: Fraction) -> tuple[Fraction, ...]:
    """Table 1's throughput: an overloaded node gives all its boxes the same number of tuples, as far as they come."""
    if load(node, *rates) <= 1:
        return rates
    some = [segment.cost for segment, rate in zip(node.segments, rates, strict=True) if rate]
    equal = F(1) / F(sum(some))
    return tuple(min(rate, equal) for rate in rates)


@pytest.mark.parametrize(
    ("rates", "a_load", "a_out", "b_load", "b_out"),
    [
        ((F(1), F(1)), 3, (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4))),
        ((F(1, 3), F(1, 3)), 1, (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4))),
        ((F(1), F(0)), 1, (F(1), F(0)), 3, (F(1, 3), F(0))),
        ((F(0), F(1, 2)), 1, (F(0), F(1, 2)), F(1, 2), (F(0), F(1, 2))),
        ((F(1, 5), F(2, 5)), 1, (F(1, 5), F(2, 5)), 1, (F(1, 5), F(2, 5))),
    ],
)
def test_table_1(rates: tuple[Fraction, ...], a_load: Fraction, a_out: object, b_load: Fraction, b_out: object) -> None:
    assert load(A, *rates) == a_load
    through_a = round_robin(A, *rates)
    assert through_a == a_out
    assert load(B, *through_a) == b_load
    assert round_robin(B, *through_a) == b_out


def test_node_b_has_48_feasible_points_and_the_paper_counts_46() -> None:
    table = grid_table(B, TOTAL, MaxError(0.1))
    assert table.units == (F(1, 10), F(1, 20))
    points = {table.exact_rates(row) for row in range(len(table))}
    by_hand = {(F(i, 10), F(j, 20)) for i in range(4) for j in range(21) if 3 * F(i, 10) + F(j, 20) <= 1}
    assert points == by_hand
    assert len(points) == 48
    # Floats that step from rate to rate lose points on the border, where 3·b1 + b2 is 1: that makes the paper's 46.
    upper, lower = (list(accumulate([spread] * steps, initial=0.0)) for spread, steps in ((0.1, 3), (0.05, 20)))
    assert sum(3 * b1 + b2 <= 1 for b1 in upper for b2 in lower) == 46
    assert table.exact_rates(0) == (0, 1)
    assert table.scores[0] == 1.0
    assert table.max_error == pytest.approx(0.1)


def test_node_b_looks_rates_up() -> None:
    table = grid_table(B, TOTAL, MaxError(0.1))
    assert table.carries({"b1": 0.2, "b2": 0.35})
    assert not table.carries({"b1": 0.5, "b2": 0.5})
    # The paper has (0.15, 0.5) with 0.575 here; 0.15 is no multiple of the stated spread 0.1 but of half of it.
    decision = table.decide({"b1": 0.5, "b2": 0.5})
    assert decision.rates == {"b1": 0.1, "b2": 0.5}
    assert decision.score == pytest.approx(0.55)
    assert decision.keep == {"b1": pytest.approx(0.2), "b2": 1.0}
    finer = grid_table(B, TOTAL, MaxError(0.05)).decide({"b1": 0.5, "b2": 0.5})
    assert finer.rates["b1"] == pytest.approx(0.15)
    assert finer.score == pytest.approx(0.575)
    # Entries that may be mixed find the best there is: 3·b1 + 0.5 = 1.
    best = corner_table(B, TOTAL, MaxError(0.001)).decide({"b1": 0.5, "b2": 0.5})
    assert best.rates["b1"] == pytest.approx(1 / 6, rel=1e-4)
    assert best.score == pytest.approx(0.5 + 1 / 12, abs=1e-3)


def test_node_a_with_the_table_of_b() -> None:
    tables = build_tables(CHAIN, TOTAL, MaxError(0.1), kind="grid")
    table = tables["A"]
    best = {table.exact_rates(row) for row in range(len(table)) if table.scores[row] == pytest.approx(0.5)}
    # All on the line between the two that the paper's plans 3 and 4 have; the one that drops least comes first.
    assert best == {(F(1, 5), F(2, 5)), (F(1, 10), F(9, 20)), (F(0), F(1, 2))}
    assert table.exact_rates(0) == (F(1, 5), F(2, 5))
    processed = build_tables(CHAIN, PROCESSED, MaxError(0.1), kind="grid")["A"]
    assert processed.exact_rates(0) == (F(1, 5), F(2, 5))
    assert processed.scores[0] == pytest.approx(0.6)
    assert processed.scores[1] < 0.6 - 1e-9
    played = play(CHAIN, tables, {"a1": 1.0, "a2": 1.0}, TOTAL)
    assert played.loads == {"A": pytest.approx(1.0), "B": pytest.approx(1.0)}
    assert Coordinator(CHAIN, TOTAL).plan({"a1": 1.0, "a2": 1.0}).score == pytest.approx(0.5)


def test_a_split_with_a_local_plan() -> None:
    table = grid_table(SPLIT, TOTAL, MaxError(0.05))
    row = table.best_row({"r": 0.2})
    assert row is not None
    assert table.exact_rates(row) == (F(1, 5),)
    assert table.scores[row] == pytest.approx(0.28)
    assert table.flows is not None
    trunk, top, low = table.flows[row]
    assert (trunk, top) == (0.2, 0.2)
    assert 1 - low / trunk == pytest.approx(0.6)
    assert table.planless is not None
    # Without local plans 1/8 is the highest rate, with score 1/4; with them 1/3 is.
    planless = table.rates[table.planless, 0]
    assert planless.max() == 0.125
    assert table.scores[table.planless].max() == pytest.approx(0.25)
    assert 1 / 3 - 0.025 < table.rates.max() <= 1 / 3
    assert table.carries({"r": 0.125})
    assert not table.carries({"r": 0.13})
    corners = corner_table(SPLIT, TOTAL, MaxError(0.001))
    assert corners.decide({"r": 0.2}).score == pytest.approx(0.28, abs=1e-3)
    assert corners.decide({"r": 0.2}).flows["low"] == pytest.approx(0.08, abs=1e-3)


def test_at_a_split_the_highest_rate_is_asked_for_and_the_rest_dropped_locally() -> None:
    parent = NodeModel(
        "P", ("p",), (Segment("x", "p", 0.1), Segment("u", "x", 0, 0.5, "b1"), Segment("v", "x", 0, 1, "b2"))
    )
    table = grid_table(parent, TOTAL, MaxError(0.1), [grid_table(B, TOTAL, MaxError(0.1))])
    row = next(i for i in range(len(table)) if table.exact_rates(i) == (F(2, 5),) and table.scores[i] > 0.49)
    assert table.flows is not None
    assert table.flows[row].tolist() == pytest.approx([0.4, 0.4, 0.4])  # 0.2 and 0.4 at B: exactly its capacity
    first = table.flows[0].tolist()
    assert first == pytest.approx([1.0, 0.0, 1.0])  # all of B's room for the cheap query
    assert table.planless is not None
    assert table.planless[row]
    assert not table.planless[0]


def test_a_bounded_table_has_at_most_so_many_entries_and_loses_little() -> None:
    for kind in ("grid", "corners"):
        errors = []
        for entries in (100, 10, 3):
            tables = build_tables(CHAIN, TOTAL, TableSize(entries), kind=kind)
            assert max(map(len, tables.values())) <= entries
            errors.append(0.5 - play(CHAIN, tables, {"a1": 1.0, "a2": 1.0}, TOTAL).score)
        assert errors[0] < 0.06
        assert max(errors) < 0.26


def test_a_look_up_with_and_without_index_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = grid_table(B, TOTAL, MaxError(0.03))
    monkeypatch.setattr("streamshed.distributed.feasible_input.table._MOST_CELLS", 0)
    slow = grid_table(B, TOTAL, MaxError(0.03))
    assert slow._index is None
    rng = np.random.default_rng(0)
    for b1, b2 in rng.uniform(0, 1, (50, 2)):
        assert fast.decide({"b1": b1, "b2": b2}) == slow.decide({"b1": b1, "b2": b2})


@pytest.mark.parametrize("seed", range(6))
def test_tables_are_within_the_error_of_the_optimum(seed: int) -> None:
    tree = random_tree(2 + seed, seed, most_inputs=3)
    best = Coordinator(tree.topology, TOTAL, 100.0).plan(tree.rates_tps).score
    tables = build_tables(tree.topology, TOTAL, MaxError(0.1 * best))
    played = play(tree.topology, tables, tree.rates_tps, TOTAL)
    assert best * 0.9 <= played.score <= best * (1 + 1e-6)
    assert best - played.score <= tables["n0"].max_error + 1e-6 * best
    assert tables["n0"].max_error <= 0.1 * best * (1 + 1e-9)
    for node in tree.topology.nodes:
        assert played.loads[node.name] <= float(node.capacity) * (1 + 1e-6)


def test_few_programs_make_the_tables_of_a_tree_with_wide_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Four inputs at the root, three children, and the bound above it has hundreds of corners: with a program for each
    # of them, and an entry in the table of the child for each of its own, this took many minutes.
    tree = random_tree(20, 36, most_inputs=4)
    best = Coordinator(tree.topology, TOTAL, 100.0).plan(tree.rates_tps).score
    solve, asked = FlowProgram.solve, []

    def counted(self: FlowProgram, *arguments: Mapping[str, float]) -> Solution:
        asked.append(arguments)
        assert len(asked) <= 1000
        return solve(self, *arguments)

    monkeypatch.setattr(FlowProgram, "solve", counted)
    tables = build_tables(tree.topology, TOTAL, MaxError(0.1 * best))
    assert max(map(len, tables.values())) <= 150
    assert tables["n0"].max_error <= 0.1 * best
    assert best - play(tree.topology, tables, tree.rates_tps, TOTAL).score <= tables["n0"].max_error


@pytest.mark.parametrize("seed", range(6))
def test_grids_are_within_the_error_of_the_optimum(seed: int) -> None:
    tree = random_tree(2 + seed % 2, seed, most_inputs=2, most_children=1)
    best = Coordinator(tree.topology, TOTAL, 100.0).plan(tree.rates_tps).score
    tables = build_tables(tree.topology, TOTAL, MaxError(0.25 * best), kind="grid")
    played = play(tree.topology, tables, tree.rates_tps, TOTAL)
    assert best * 0.75 <= played.score <= best * (1 + 1e-6)
    for node in tree.topology.nodes:
        assert played.loads[node.name] <= float(node.capacity) * (1 + 1e-9)


def test_weights_and_fairness_change_who_is_served() -> None:
    rates = {"a1": 1.0, "a2": 1.0}
    gold = Throughput({"q1": 100.0})
    assert play(CHAIN, build_tables(CHAIN, gold, MaxError(0.01)), rates, gold).outputs["q1"] == pytest.approx(
        1 / 6, abs=1e-3
    )
    demands = nominal_outputs(CHAIN, rates)
    assert demands == {"q1": 0.5, "q2": 1.0}
    fair = Fairness(demands, bias=4.0)
    shares = {}
    for score in (TOTAL, fair):
        tables = build_tables(CHAIN, score, MaxError(0.1 if score is fair else 0.01))
        outputs = play(CHAIN, tables, rates, score).outputs
        shares[score.is_linear] = [outputs[name] / demand for name, demand in demands.items()]
        assert score.total(outputs) == pytest.approx(Coordinator(CHAIN, score).plan(rates).score, abs=0.1)
    assert jain(shares[False]) > 0.97 > jain(shares[True])
    with pytest.raises(InvalidValueError, match="linear"):
        grid_table(B, fair, MaxError(0.1))


def test_two_parents_share_a_childs_table() -> None:
    left = NodeModel("L", ("l",), (Segment("l1", "l", F(1, 10), 1, "b1"),))
    right = NodeModel("R", ("r",), (Segment("r1", "r", F(1, 10), 1, "b2"),))
    topology = Topology((left, right, B))
    assert topology.parents["B"] == ("L", "R")
    whole = corner_table(B, TOTAL, MaxError(0.001))
    rates = {"l": 1.0, "r": 0.4}
    shares = agreed_shares(whole, {"L": {"b1": 1.0}, "R": {"b2": 0.4}})
    assert shares == {"L": pytest.approx(0.6, abs=0.01), "R": pytest.approx(0.4, abs=0.01)}
    best = Coordinator(topology, TOTAL).plan(rates).score
    assert best == pytest.approx(0.5)
    agreed = play(topology, build_tables(topology, TOTAL, MaxError(0.003), shares={"B": shares}), rates, TOTAL)
    even = play(topology, build_tables(topology, TOTAL, MaxError(0.003)), rates, TOTAL)
    assert agreed.score == pytest.approx(best, abs=0.01)
    assert even.score < best - 0.01
    for played in (agreed, even):
        assert 3 * played.arriving["b1"] + played.arriving["b2"] <= 1 + 1e-6
    part = table_for(topology, whole, "R", {"B": {"L": 0.6, "R": 0.4}})
    assert part.inputs == ("b2",)
    assert part.highest["b2"] == pytest.approx(0.4)
    with pytest.raises(InvalidValueError, match="share"):
        table_share(whole, ["b1"], 0.0)


def test_a_link_is_one_more_operator() -> None:
    wide, narrow = CHAIN.with_link("B", 10), CHAIN.with_link("B", F(3, 10))
    assert set(narrow.parents["link to B"]) == {"A"}
    rates = {"a1": 1.0, "a2": 1.0}
    scores = {}
    for name, topology in (("wide", wide), ("narrow", narrow)):
        tables = build_tables(topology, TOTAL, MaxError(0.003))
        played = play(topology, tables, rates, TOTAL)
        scores[name] = played.score
        assert played.score == pytest.approx(Coordinator(topology, TOTAL).plan(rates).score, abs=0.003)
        assert played.loads["link to B"] <= 1 + 1e-6
    assert scores["wide"] == pytest.approx(0.5, abs=0.003)
    assert scores["narrow"] == pytest.approx(0.3, abs=0.003)


@pytest.mark.parametrize(
    ("segments", "words"),
    [
        ((Segment("s", "nowhere", 1, 1, "o"),), "does not come before"),
        ((Segment("s", "i", 1, 1),), "either end somewhere"),
        ((Segment("i", "i", 1, 1, "o"),), "twice"),
        ((Segment("s", "i", -1, 1, "o"),), "out of range"),
    ],
)
def test_nodes_that_make_no_sense_are_refused(segments: tuple[Segment, ...], words: str) -> None:
    with pytest.raises((NetworkError, InvalidValueError), match=words):
        NodeModel("N", ("i",), segments)


def test_circles_and_free_inputs_are_refused() -> None:
    one = NodeModel("one", ("i",), (Segment("s", "i", 1, 1, "j"),))
    two = NodeModel("two", ("j",), (Segment("t", "j", 1, 1, "i"),))
    with pytest.raises(NetworkError, match="circle"):
        Topology((one, two))
    free = NodeModel("free", ("i",), (Segment("s", "i", 0, 1, "o"),))
    for make in (grid_table, corner_table):
        with pytest.raises(InvalidValueError, match="nothing limits"):
            make(free, TOTAL, MaxError(0.1))
        assert make(free, TOTAL, MaxError(0.1), limits_tps={"i": 5}).decide({"i": 7.0}).score == pytest.approx(5)
