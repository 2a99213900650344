"""Nodes that shed for one another, in virtual time."""

from __future__ import annotations

import pytest

from streamshed.distributed.model import NodeModel, Segment, Topology
from streamshed.engines.sim.node_tree import Mode, run_tree
from streamshed.engines.sim.tree_run import Outage, Spike, TreeRun

# A chain whose end is the bottleneck: B carries 50 of the 100 tuples a second that A could let through, and A's second
# query, which ends at A, is cheap for A and worth as much.
TRUNK, DOWN = Segment("trunk", "a", 0.004), Segment("down", "trunk", 0.004, 1, "b")
A = NodeModel("A", ("a",), (TRUNK, DOWN, Segment("own", "trunk", 0.002, 1, "qa")))
B = NodeModel("B", ("b",), (Segment("work", "b", 0.02, 1, "qb"),))
CHAIN = Topology((A, B))
RATES = {"a": 150.0}
MODES: tuple[Mode, ...] = ("tables", "coordinator", "local")


def settings(**changes: object) -> TreeRun:
    values = {"topology": CHAIN, "rates_tps": RATES, "seconds": 30.0, "max_error": 2.0, "headroom": 0.95, **changes}
    return TreeRun(**values)  # type: ignore[arg-type]


def test_tables_and_the_coordinator_shed_early_and_local_decisions_waste_work() -> None:
    results = {mode: run_tree(settings(), mode) for mode in MODES}
    # At A: 0.004·x + 0.004·d + 0.002·o ≤ 0.95 and d ≤ 47.5, so with d = 47.5, x = o: o = (0.95 − 0.19)/0.006 = 126.7.
    best = 47.5 + (0.95 - 0.004 * 47.5) / 0.006
    for mode in ("tables", "coordinator"):
        assert results[mode].score[10:].mean() == pytest.approx(best, rel=0.03)
        assert results[mode].delay_s[10:].max() < 1.0
    # A alone counts what it sends: it prefers nothing, lets 95 of each through, and B throws half of it away.
    assert results["local"].score[10:].mean() < 0.9 * best
    assert results["tables"].messages > 0
    assert results["local"].messages == 0


def test_a_spike_below_reaches_the_parent_within_a_few_periods() -> None:
    run = run_tree(settings(spikes=(Spike("B", 10.0, 20.0, 0.4),)), "tables")
    # With 0.38 of B: d = 19, o = (0.95 − 0.076)/0.006.
    hit = 19 + (0.95 - 0.004 * 19) / 0.006
    assert run.score[14:20].mean() == pytest.approx(hit, rel=0.04)
    assert run.delay_s[26:].max() < 1.0  # all is well again


def test_lost_messages_delay_but_do_not_mislead() -> None:
    run = run_tree(settings(loss=0.2, spikes=(Spike("B", 10.0, 20.0, 0.4),), seed=3), "tables")
    assert run.lost > 0
    assert run.score[22:].mean() > 165
    assert run.delay_s[26:].max() < 1.0


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_restarts_is_told_again_and_tells_again(mode: Mode) -> None:
    run = run_tree(settings(outages=(Outage("B", 8.0, 12.0),), seconds=26.0), mode)
    undisturbed = run_tree(settings(seconds=26.0), mode)
    assert run.score[9:11].mean() < undisturbed.score[9:11].mean() - 20  # B's query has nothing
    assert run.score[18:].mean() == pytest.approx(undisturbed.score[18:].mean(), rel=0.05)
