"""Queries that share nodes: SIC is conserved through every operator, and shared out evenly under overload."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamshed.engines.sim.federated import simulate_federation
from streamshed.engines.sim.federation import Coordination, Federation, Happening, Source
from streamshed.engines.sim.fragments import (
    Fragment,
    OpenWindows,
    Rows,
    average,
    count,
    covariance,
    everything,
    largest,
    pairs,
    top_five,
)
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.experiments.dissp_workload import Workload, build
from streamshed.workload import Constant, Pareto

COST_S = 1e-4


def rows(times_s: list[float], keys: list[int], values: list[float]) -> Rows:
    return Rows.of(np.array(times_s), np.array(keys), np.array(values))


# --- fragments -------------------------------------------------------------------------------------------------------


def test_what_becomes_of_a_window() -> None:
    left = rows([0.1, 0.2, 0.3], [1, 2, 3], [10.0, 20.0, 60.0])
    right = rows([0.1, 0.2], [2, 3], [5.0, 7.0])
    assert average([left]).values.tolist() == [30.0]
    assert count([left]).values.tolist() == [3.0]
    assert largest([left]).values.tolist() == [60.0]
    assert len(everything([left, right])) == 5
    assert pairs([left, right]).keys.tolist() == [2, 3]
    assert top_five([left, right]).keys.tolist() == [3, 2]
    assert covariance([left, right]).values.tolist() == [pytest.approx(np.cov([20, 60], [5, 7])[0, 1])]
    means = Rows(np.zeros(2), np.zeros(2, dtype=np.int64), np.array([10.0, 40.0]), np.array([3.0, 1.0]))
    assert average([means]).values.tolist() == [17.5], "parts count by what they stand for"


def test_windows_close_at_their_end_and_late_tuples_go_into_the_next() -> None:
    windows = OpenWindows(Fragment(0, "n", COST_S, count), window_s=1.0)
    assert windows.push(rows([0.5, 1.0, 1.5], [0, 0, 0], [1.0, 2.0, 3.0]), 0, 0.3) == 0.0
    found, sic = windows.close(1)
    assert (found.values.tolist(), found.times_s.tolist()) == ([2.0], [1.0])
    assert sic == pytest.approx(0.2)
    windows.push(rows([0.9], [0], [1.0]), 0, 0.1)
    found, sic = windows.close(2)
    assert found.values.tolist() == [2.0]
    assert sic == pytest.approx(0.2)
    assert windows.close(3)[1] == 0.0


def test_what_a_filter_rejects_is_used() -> None:
    windows = OpenWindows(Fragment(0, "n", COST_S, count, at_least=(50.0,)), window_s=1.0)
    assert windows.push(rows([0.1, 0.2, 0.3, 0.4], [0] * 4, [10, 90, 40, 60]), 0, 0.4) == pytest.approx(0.2)
    assert windows.close(1)[1] == pytest.approx(0.2)
    assert windows.push(rows([1.1], [0], [10]), 0, 0.4) == pytest.approx(0.4)
    assert windows.close(2)[1] == 0.0


# --- SIC without shedding --------------------------------------------------------------------------------------------

OPERATORS = {
    "filter": ([Fragment(0, "a", COST_S, everything, (30.0,))], [Source(0, Constant(97))]),
    "filter that rejects all": ([Fragment(0, "a", COST_S, everything, (1000.0,))], [Source(0, Constant(97))]),
    "union": ([Fragment(0, "a", COST_S, everything)], [Source(0, Constant(97)), Source(0, Constant(11))]),
    "join": (
        [Fragment(0, "a", COST_S, pairs, (None, None))],
        [Source(0, Constant(97), 0), Source(0, Constant(31), 1)],
    ),
    "join without partners": (
        [Fragment(0, "a", COST_S, pairs, (None, 1000.0))],
        [Source(0, Constant(97), 0), Source(0, Constant(31), 1)],
    ),
    "window": ([Fragment(0, "a", COST_S, average)], [Source(0, Constant(97))]),
    "windows over windows on three nodes": (
        [
            Fragment(0, "a", COST_S, top_five, (None, 20.0), to=2),
            Fragment(0, "b", COST_S, top_five, (None, 20.0), to=2),
            Fragment(0, "c", COST_S, top_five),
        ],
        [Source(number, Constant(50), side, keys=20, kinship=0.8) for number in (0, 1) for side in (0, 1)],
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shedding", [None, "fair"])
def test_sic_sums_to_one_without_overload(name: str, shedding: str | None) -> None:
    fragments, sources = OPERATORS[name]
    federation = Federation(fragments, sources, dict.fromkeys("abc", 1.0))
    run = simulate_federation(federation, 25, policy=shedding, coordination=Coordination(), seed=3)
    assert run.tuples["dropped"] == run.tuples["lost"] == 0
    assert run.sent[1:].sum() == pytest.approx(2.5, abs=0.02), "all tuples of a source time window are worth 1"
    for last in range(10, run.closed + 1):
        assert run.sic(last) == pytest.approx([1.0], abs=1e-9)


def test_bursty_sources_are_worth_one_as_well() -> None:
    patterns = [Pareto(100, beta=0.5, seed=number) for number in range(3)]
    federation = Federation(
        [Fragment(0, "a", COST_S, average)], [Source(0, pattern) for pattern in patterns], {"a": 1.0}
    )
    run = simulate_federation(federation, 40, seed=1)
    assert run.sic(run.closed) == pytest.approx([1.0], abs=1e-9)


def test_all_sic_is_accounted_for_under_overload() -> None:
    for policy in ("fair", "random", "proportional"):
        federation = build(Workload(queries=12, nodes=3, overload=2.0), seed=5)
        run = simulate_federation(
            federation, 20, policy=policy, coordination=Coordination(), seed=5, decision_s=0.002,
            happenings=[Happening(8.0, "node-1", "fail"), Happening(11.0, "node-1", "recover")],
        )  # fmt: skip
        rest = run.sent.sum() - run.arrived.sum() - run.dropped_sic - run.lost_sic
        assert run.dropped_sic > 1
        assert run.lost_sic > 0.1
        assert rest == pytest.approx(0.0, abs=0.2), "what is left is in buffers and open windows"
        assert rest >= -1e-9


# --- overload --------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run() -> None:
    federation = build(Workload(queries=9, nodes=3, overload=2.0), seed=1)
    first, again, other = (
        simulate_federation(federation, 12, policy="random", coordination=Coordination(loss=0.3), seed=seed)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first.arrived, again.arrived)
    assert not np.array_equal(first.arrived, other.arrived)


def test_one_node_shares_evenly_and_keeps_up() -> None:
    federation = build(Workload(queries=15, overload=3.0), seed=2)
    run = simulate_federation(federation, 26, seed=2)
    assert min(fairness.jain for fairness in run.fairness(10)) >= 0.99
    assert float(run.mean_sic(10).mean()) == pytest.approx(1 / 3, abs=0.02)
    assert run.busy["node-0"] > 0.97
    assert run.waits_s["node-0"].max() < 3 * 0.25


def test_without_shedding_the_queue_grows() -> None:
    federation = build(Workload(queries=6, overload=2.0), seed=2)
    run = simulate_federation(federation, 20, policy=None, seed=2)
    assert run.mean_sic(10).mean() < 0.6  # answers come too late for their windows, and pile up


def test_coordinators_let_nodes_share_evenly() -> None:
    federation = build(Workload(queries=18, nodes=4, overload=2.0), seed=4)

    def jain(coordination: Coordination | None) -> float:
        run = simulate_federation(federation, 23, spares_derived=True, coordination=coordination, seed=4)
        return float(np.mean([fairness.jain for fairness in run.fairness(10)]))

    alone, together, lossy = jain(None), jain(Coordination()), jain(Coordination(loss=0.25))
    assert together > alone + 0.01
    assert lossy > alone + 0.01


def test_messages_are_counted_and_lost() -> None:
    federation = build(Workload(queries=6, nodes=3, overload=2.0), seed=4)
    run = simulate_federation(federation, 15, coordination=Coordination(loss=0.25), seed=4)
    sent, lost = run.messages
    assert sent > 100
    assert lost / sent == pytest.approx(0.25, abs=0.1)


def test_nodes_leave_and_join() -> None:
    federation = build(Workload(queries=12, nodes=4, overload=2.0), seed=6)
    speed = federation.speeds["node-0"]
    run = simulate_federation(
        federation, 40, coordination=Coordination(), seed=6,
        happenings=[Happening(12.0, "node-0", "leave"), Happening(26.0, "new", "join", speed)],
    )  # fmt: skip
    with_four, with_three = run.sic(11).mean(), run.sic(25).mean()
    assert with_three < with_four - 0.05, "three nodes do the work of four"
    assert run.sic(run.closed).mean() > with_three + 0.05, "and a fourth one helps"
    assert run.busy["new"] > 0.2


def test_a_spike_costs_quality_and_passes() -> None:
    federation = build(Workload(queries=9, overload=1.5), seed=7)
    speed = federation.speeds["node-0"]
    run = simulate_federation(
        federation, 45, seed=7,
        happenings=[Happening(12.0, "node-0", "speed", speed / 2), Happening(24.0, "node-0", "speed", speed)],
    )  # fmt: skip
    before, during, after = (float(run.sic(last).mean()) for last in (11, 24, 45))
    assert during < 0.7 * before
    assert after == pytest.approx(before, abs=0.05)


def test_senseless_federations_are_refused() -> None:
    fragment, sources = Fragment(0, "a", COST_S, average), [Source(0, Constant(10))]
    with pytest.raises(StreamshedError, match="node that does not exist"):
        Federation([fragment], sources, {"b": 1.0})
    with pytest.raises(InvalidValueError, match="another query"):
        Federation([replace(fragment, to=1), replace(fragment, query=1)], sources, {"a": 1.0})
    with pytest.raises(InvalidValueError, match="seconds must be positive"):
        simulate_federation(Federation([fragment], sources, {"a": 1.0}), 0)
    with pytest.raises(InvalidValueError, match="no sources"):
        Federation([fragment], [], {"a": 1.0})
