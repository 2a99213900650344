"""Tables of random nodes and trees: what they promise can be kept, and is never further from the best than they say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.spread import MaxError, TableSize
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment, Topology
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Throughput
from streamshed.distributed.tables import build_tables, play
from streamshed.experiments.random_trees import random_tree

TOTAL = Throughput()
shares = st.integers(0, 4).map(lambda quarters: quarters / 4)
costs = st.integers(0, 8).map(lambda quarters: quarters / 4)


@st.composite
def leaves(draw: st.DrawFn) -> NodeModel:
    """One or two inputs with one to three branches each."""
    segments: list[Segment] = []
    inputs = tuple("ij"[: draw(st.integers(1, 2))])
    for name in inputs:
        source, branches = name, draw(st.integers(1, 3))
        if branches > 1:
            source = f"{name} trunk"
            segments.append(Segment(source, name, draw(costs), draw(shares)))
        for number in range(branches):
            cost = 0.25 + draw(costs)
            segments.append(Segment(f"{name}{number}", source, cost, draw(shares), f"{name}{number} out"))
    return NodeModel("leaf", inputs, tuple(segments), draw(st.integers(1, 4)))


def load(node: NodeModel, flows: Mapping[str, float]) -> float:
    return sum(float(segment.cost) * flows[segment.id] for segment in node.segments)


def undropped(node: NodeModel, rates: Mapping[str, float]) -> dict[str, float]:
    """What enters the segments, and comes to the inputs, where nothing is dropped."""
    found = dict(rates)
    for segment in node.segments:
        ahead = [float(one.selectivity) for one in node.segments if one.id == segment.source]
        found[segment.id] = found[segment.source] * (ahead[0] if ahead else 1.0)
    return found


def check_plan(node: NodeModel, rates: Mapping[str, float], flows: Mapping[str, float]) -> None:
    """Every segment has no more than comes to it, and all together no more than the node can do."""
    selectivity = {segment.id: float(segment.selectivity) for segment in node.segments}
    for segment in node.segments:
        ahead = (
            rates[segment.source] if segment.source in rates else flows[segment.source] * selectivity[segment.source]
        )
        assert -1e-9 <= flows[segment.id] <= ahead * (1 + 2e-6) + 1e-6
    assert load(node, flows) <= float(node.capacity) * (1 + 2e-6)


def check_rows(node: NodeModel, table: FeasibleInputTable, *, leaf: bool) -> None:
    assert table.flows is not None
    assert table.planless is not None
    for row in range(len(table)):
        flows = dict(zip(table.segments, table.flows[row].tolist(), strict=True))
        rates = dict(zip(table.inputs, table.rates[row].tolist(), strict=True))
        check_plan(node, rates, flows)
        if leaf:
            results = sum(flows[end.id] * float(end.selectivity) for end in node.ends)
            assert float(table.scores[row]) == pytest.approx(results, abs=1e-5)
        whole = undropped(node, rates)
        dropped = any(flows[name] < whole[name] * (1 - 1e-5) - 1e-5 for name in flows)
        assert table.planless[row] == (not dropped)


@settings(max_examples=40, deadline=None)
@given(node=leaves(), seed=st.integers(0, 2**16))
def test_a_leafs_grid_is_within_its_error_everywhere(node: NodeModel, seed: int) -> None:
    best = FlowProgram((node,), TOTAL)
    top = best.solve(dict.fromkeys(node.inputs, 1e3)).score
    if top <= 0:
        return
    table = grid_table(node, TOTAL, MaxError(top / 4), limits_tps=dict.fromkeys(node.inputs, 50.0))
    assert table.max_error == pytest.approx(top / 4)
    check_rows(node, table, leaf=True)
    rng = np.random.default_rng(seed)
    for _ in range(8):
        rates = {name: float(rate) for name, rate in zip(node.inputs, rng.uniform(0, 6, len(node.inputs)), strict=True)}
        decision = table.decide(rates)
        check_plan(node, decision.rates, decision.flows)
        assert all(decision.rates[name] <= rate * (1 + 1e-7) for name, rate in rates.items())
        optimum = best.solve(rates).score
        assert optimum - table.max_error - 1e-4 <= decision.score <= optimum + 1e-4
        if table.carries(rates):
            assert load(node, undropped(node, rates)) <= float(node.capacity) * (1 + 1e-6)


@pytest.mark.parametrize("kind", ["corners", "grid"])
@pytest.mark.parametrize("seed", range(5))
def test_every_table_of_a_tree_is_within_its_error_of_what_is_below_it(seed: int, kind: str) -> None:
    tree = random_tree(3, seed, most_inputs=2, most_children=2)
    topology = tree.topology
    outputs = {name: FlowProgram(below(topology, name), TOTAL, scale_tps=100.0) for name in topology.node}
    top = outputs["n0"].solve(tree.rates_tps).score
    tables = build_tables(topology, TOTAL, MaxError(0.2 * top), kind=kind)
    rng = np.random.default_rng(seed)
    for name, table in tables.items():
        node = topology.node[name]
        check_rows(node, table, leaf=not topology.children[name])
        assert table.max_error <= 0.2 * top * (1 + 1e-8)
        highest = table.highest
        for _ in range(6):
            rates = {column: float(rng.uniform(0, 1.2)) * highest[column] for column in table.inputs}
            decision = table.decide(rates)
            check_plan(node, decision.rates, decision.flows)
            optimum = outputs[name].solve(rates).score
            assert decision.score <= optimum * (1 + 1e-5) + 1e-4, "what it promises can be kept by all below"
            assert decision.score >= optimum - table.max_error - 1e-4 * top


def below(topology: Topology, name: str) -> tuple[NodeModel, ...]:
    """A node, and all that it sends to."""
    found = [name]
    for one in found:
        found += [child for child in topology.children[one] if child not in found]
    return tuple(topology.node[one] for one in found)


@pytest.mark.parametrize("seed", range(4))
def test_bounded_tables_of_a_tree_are_kept_to_their_size_and_feasible(seed: int) -> None:
    tree = random_tree(3, seed, most_inputs=2, most_children=1)
    best = FlowProgram(tree.topology.nodes, TOTAL, scale_tps=100.0).solve(tree.rates_tps).score
    for kind in ("corners", "grid"):
        tables = build_tables(tree.topology, TOTAL, TableSize(8), kind=kind)
        assert max(map(len, tables.values())) <= 8
        played = play(tree.topology, tables, tree.rates_tps, TOTAL)
        assert best - tables["n0"].max_error - 1e-3 * best <= played.score <= best * (1 + 1e-5)
        for node in tree.topology.nodes:
            assert played.loads[node.name] <= float(node.capacity) * (1 + 1e-6)
