"""The parts of a federation and of a tree of nodes: feeds, windows, sites, moves and small runs, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import simpy

from streamshed.distributed.model import NodeModel, Segment, Topology
from streamshed.engines.sim.federated import simulate_federation
from streamshed.engines.sim.federation import Coordination, Federation, Happening, Source
from streamshed.engines.sim.feed import Feed
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
    window_of,
)
from streamshed.engines.sim.node_tree import run_tree
from streamshed.engines.sim.sites import Parcel, Site, parcel_of
from streamshed.engines.sim.tree_run import Spike, TreeResult, TreeRun
from streamshed.planning.fair import Batch, OverloadDetector, Shedder
from streamshed.workload import Constant, Phases
from streamshed.workload.hashing import hash64, unit


def rows(times_s: list[float], keys: list[int], values: list[float], weights: list[float] | None = None) -> Rows:
    found = Rows.of(np.array(times_s), np.array(keys), np.array(values))
    return found if weights is None else Rows(found.times_s, found.keys, found.values, np.array(weights))


# --- fragments --------------------------------------------------------------------------------------------------------


def test_windows_count_by_what_their_tuples_stand_for() -> None:
    some = rows([0.1, 0.2, 0.3], [1, 1, 2], [10.0, 40.0, 30.0], [3.0, 1.0, 2.0])
    assert (average([some]).values.tolist(), average([some]).weights.tolist()) == ([130 / 6], [6.0])
    assert (count([some]).values.tolist(), count([some]).weights.tolist()) == ([6.0], [6.0])
    assert (largest([some]).values.tolist(), largest([some]).weights.tolist()) == ([40.0], [6.0])
    assert len(everything([some, some])) == 6
    nothing = Rows.joined([])
    assert (len(nothing), len(average([nothing])), len(largest([nothing])), len(covariance([some, nothing]))) == (
        0,
    ) * 4
    assert count([nothing]).values.tolist() == [0.0]
    best = top_five([some])
    assert (best.keys.tolist(), best.values.tolist(), best.weights.tolist()) == ([2, 1], [30.0, 17.5], [2.0, 4.0])
    many = rows([0.0] * 7, list(range(7)), [1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0])
    assert top_five([many]).keys.tolist() == [1, 3, 5, 6, 4]
    assert top_five([many, rows([0.0], [4], [0.0])]).keys.tolist() == [4]
    found = pairs([rows([0.1, 0.2, 0.3], [5, 7, 5], [1.0, 2.0, 3.0]), rows([0.0, 0.0], [5, 6], [8.0, 9.0])])
    assert (found.keys.tolist(), found.values.tolist(), found.weights.tolist()) == ([5], [1.0], [8.0])
    left, right = rows([0.0] * 3, [1, 2, 3], [1.0, 2.0, 6.0]), rows([0.0] * 3, [1, 2, 3], [2.0, 4.0, 3.0])
    # Means 3 and 3: (−2·−1 + −1·1 + 3·0) / 2.
    assert covariance([left, right]).values.tolist() == [pytest.approx(0.5)]
    assert covariance([left, right]).weights.tolist() == [3.0]


def test_a_window_holds_its_end_and_not_its_beginning() -> None:
    assert [window_of(time_s, 0.5) for time_s in (0.0, 0.1, 0.5, 0.51, 1.0, 1.01)] == [0, 1, 1, 2, 2, 3]
    assert window_of(0.1 + 0.2, 0.1) == 3, "rounding moves nothing into the next window"


def test_tuples_go_into_their_windows_side_by_side() -> None:
    windows = OpenWindows(Fragment(0, "n", 0.1, pairs, at_least=(None, 5.0)), window_s=1.0)
    assert windows.push(rows([0.5, 1.5, 2.5], [1, 2, 3], [1.0, 2.0, 3.0]), 0, 0.6) == 0.0
    assert windows.push(rows([0.5, 0.6, 1.2, 1.8], [1, 9, 2, 2], [6.0, 4.0, 7.0, 3.0]), 1, 0.4) == pytest.approx(0.2)
    assert windows.push(rows([], [], []), 1, 0.125) == 0.125, "a batch without tuples was used"
    assert windows.sic == pytest.approx(0.8)
    first, sic = windows.close(1)
    assert (first.keys.tolist(), first.times_s.tolist(), sic) == ([1], [1.0], pytest.approx(0.2 + 0.1))
    # Too late for the first window: into the oldest one that is open.
    windows.push(rows([0.9, 1.9], [2, 8], [1.0, 1.0]), 0, 0.2)
    second, sic = windows.close(2)
    assert (second.keys.tolist(), second.weights.tolist(), sic) == ([2], [7.0], pytest.approx(0.2 + 0.1 + 0.2))
    assert windows.sic == pytest.approx(0.2)
    windows.push(rows([0.2], [4], [1.0]), 0, 0.1)
    third, sic = windows.close(3)
    assert (len(third), sic, windows.sic) == (0, pytest.approx(0.3), 0)


# --- federations ------------------------------------------------------------------------------------------------------


def three_stages() -> Federation:
    """Query 0 in three stages on three nodes, query 1 on the first node."""
    fragments = [
        Fragment(0, "a", 0.01, everything, to=1),
        Fragment(0, "b", 0.02, everything, to=2),
        Fragment(0, "c", 0.03, count),
        Fragment(1, "a", 0.04, count),
    ]
    return Federation(fragments, [Source(0, Constant(20)), Source(3, Constant(5))], dict.fromkeys("abc", 1.0))


def test_depths_and_loads_of_a_federation() -> None:
    federation = three_stages()
    assert federation.queries == 2
    assert [federation.depth(number) for number in range(4)] == [0, 1, 2, 0]
    assert federation.load(10.0) == pytest.approx({"a": 20 * 0.01 + 5 * 0.04, "b": 0.0, "c": 0.0})
    assert Federation([], [Source(0, Constant(1))], {}).queries == 0


def test_a_run_without_overload_to_the_digit() -> None:
    """Answers go from node to node, and every one of 10 windows counts its 20 and 5 tuples."""
    run = simulate_federation(three_stages(), 10, span_s=5.0, keep_results=True, seed=1)
    assert (run.window_s, run.span, run.closed, run.decisions, run.messages) == (1.0, 5, 10, 0, (0, 0))
    assert run.tuples == {"sent": 250, "dropped": 0, "lost": 0}
    counted = [[float(found.values.sum()) for _, _, found in of_query] for of_query in run.results]
    assert counted[1] == [5.0] * 10
    assert sum(counted[0]) == 200.0
    assert [window for window, _, _ in run.results[1]] == list(range(1, 11))
    assert run.sent[1:].sum(axis=0) == pytest.approx([2.0, 2.0], abs=0.05)
    # 200 tuples pass a, b and c; 50 more are counted at a; the clock stops 3 · 0.75 s after the last window.
    busy_s = {name: share * 12.25 for name, share in run.busy.items()}
    assert busy_s == pytest.approx({"a": 200 * 0.01 + 50 * 0.04, "b": 200 * 0.02, "c": 200 * 0.03})
    assert all((waits_s >= 0).all() and len(waits_s) >= 40 for waits_s in run.waits_s.values())


def test_a_source_sends_batches_of_its_tuples_in_turn() -> None:
    fragments = [Fragment(0, "n", 0.1, count), Fragment(1, "n", 0.1, count)]
    sources = [
        Source(0, Constant(8), keys=3),
        Source(0, Phases(((4, 1), (0, 9))), side=0, kinship=0.25, keys=2),
        Source(1, Constant(4)),
    ]
    federation = Federation(fragments, sources, {"n": 1.0}, batch_s=0.5)
    feed = Feed(federation, 2.0, 1.0, seed=5)
    assert list(feed.query) == [0, 0, 1]
    by_query, batches = feed.next()
    sent = list(batches)
    # 4 and 2 tuples of two sources, 2 of one, in half of a source time window.
    assert by_query.tolist() == pytest.approx([0.5, 0.5])
    assert [(batch.query, batch.tuples, batch.is_derived) for batch, _ in sent] == [
        (0, 4, False),
        (0, 2, False),
        (1, 2, False),
    ]
    assert [batch.sic for batch, _ in sent] == pytest.approx([0.25, 0.25, 0.5])
    phases_s = [after_s for _, after_s in sent]
    assert len(set(phases_s)) == 3
    assert phases_s == pytest.approx((0.5 * unit(hash64(5, 1 << 42, np.arange(3)))).tolist())
    parcels = [parcel_of(batch) for batch, _ in sent]
    assert [(parcel.first, parcel.count, parcel.start_s) for parcel in parcels] == [
        (0, 4, 0.0),
        (0, 2, 0.0),
        (0, 2, 0.0),
    ]
    assert [parcel.sent_s for parcel in parcels] == pytest.approx([0.5 + after_s for after_s in phases_s])
    drawn = feed.rows(sent[0][0])
    assert drawn.times_s.tolist() == [0.125, 0.25, 0.375, 0.5]
    assert drawn.keys.tolist() == [0, 1, 2, 0]
    assert ((drawn.values >= 0) & (drawn.values < 100)).all()
    assert len(set(drawn.values.tolist())) == 4
    cut = feed.rows(sent[0][0].cut(2))
    assert (cut.times_s.tolist(), cut.values.tolist()) == ([0.125, 0.25], drawn.values[:2].tolist())
    # Of kin a quarter of the value is what all tuples of the query with the same key have.
    kin = feed.rows(sent[1][0])
    own = 75 * unit(hash64(5, (1 << 41) + 1, np.arange(2)))
    assert kin.values.tolist() == pytest.approx((own + 25 * unit(hash64(5, 1 << 40, np.array([0, 1])))).tolist())
    _, batches = feed.next()
    later = list(batches)
    assert feed.tuples == 16
    assert [after_s for _, after_s in later] == phases_s
    assert parcel_of(later[0][0]).first == 4
    assert feed.rows(later[0][0]).keys.tolist() == [1, 2, 0, 1]
    assert feed.rows(later[0][0]).times_s.tolist() == [0.625, 0.75, 0.875, 1.0]
    feed.next()
    assert [batch.query for batch, _ in feed.next()[1]] == [0, 1], "the second source is silent by now"
    by_query, batches = feed.next()
    assert (by_query.tolist(), list(batches)) == ([0.0, 0.0], [])


def test_rows_of_a_batch_from_another_node_are_its_first() -> None:
    feed = Feed(three_stages(), 1.0, 1.0, seed=0)
    inside = rows([0.1, 0.2, 0.3], [1, 2, 3], [1.0, 2.0, 3.0])
    batch = Batch(0, 0.3, 3, Parcel(1, 0, 0.0, inside))
    assert feed.rows(batch) is inside
    assert feed.rows(batch.cut(2)).keys.tolist() == [1, 2]


def placed(happenings: list[Happening], nodes: str = "abc") -> dict[str, int]:
    """How many tuples each node has processed: 8 queries, two thirds of the run after what happens."""
    fragments = [Fragment(query, nodes[query % len(nodes)], 0.001, count) for query in range(8)]
    federation = Federation(fragments, [Source(query, Constant(10)) for query in range(8)], dict.fromkeys(nodes, 1.0))
    run = simulate_federation(federation, 9, happenings=happenings, seed=2)
    end_s = 9 + 0.75
    return {name: round(share * end_s / 0.001) for name, share in run.busy.items()}


def test_fragments_move_to_where_there_are_fewest() -> None:
    """8 queries of 10 tuples/s on nodes with 3, 3 and 2; from the 3rd second on they are elsewhere."""
    assert placed([]) == {"a": 270, "b": 270, "c": 180}
    left = placed([Happening(3.0, "a", "leave")])
    # Its three go to c, then to b and c (3 each; the first of equals): 4 and 4.
    assert left["a"] == pytest.approx(90, abs=9)
    assert (left["b"], left["c"]) == (pytest.approx(270 + 60, abs=9), pytest.approx(180 + 120, abs=9))
    joined = placed([Happening(3.0, "d", "join")])
    # Four nodes: two each. The new one takes one from a and then one from b.
    assert joined["d"] == pytest.approx(120, abs=9)
    assert (joined["a"], joined["b"], joined["c"]) == (pytest.approx(210, abs=9), pytest.approx(210, abs=9), 180)


def test_a_slower_node_takes_longer() -> None:
    fragments = [Fragment(0, "n", 0.01, count)]
    federation = Federation(fragments, [Source(0, Constant(20))], {"n": 1.0})
    even = simulate_federation(federation, 8, seed=2)
    slow = simulate_federation(federation, 8, seed=2, happenings=[Happening(4.125, "n", "speed", 0.5)])
    assert even.busy["n"] * 8.75 == pytest.approx(160 * 0.01)
    assert slow.busy["n"] * 8.75 == pytest.approx(80 * 0.01 + 80 * 0.02, abs=0.11)
    assert slow.tuples["dropped"] == 0


def test_a_failed_node_loses_what_it_has_and_what_comes() -> None:
    federation = Federation([Fragment(0, "n", 0.01, count)], [Source(0, Constant(20))], {"n": 1.0})
    happenings = [Happening(2.0, "n", "fail"), Happening(4.0, "n", "recover")]
    run = simulate_federation(federation, 8, seed=2, happenings=happenings, span_s=2.0)
    assert run.tuples["lost"] == pytest.approx(40, abs=6)
    assert run.lost_sic == pytest.approx(run.tuples["lost"] / 40, rel=0.02)
    assert run.mean_sic().tolist() == pytest.approx([1 - run.tuples["lost"] / 160], abs=0.02)


def test_coordinators_report_to_the_nodes_that_host_a_query() -> None:
    """Nothing is closed before 1.75 s; then one report a second to three nodes of query 0 and one of query 1."""
    federation = three_stages()
    run = simulate_federation(federation, 10, coordination=Coordination(period_s=1.0), seed=1)
    assert run.messages == (4 * 9, 0), "from 4 s to 12 s: the last stage closes 2.25 s after the end of a window"
    assert simulate_federation(federation, 10, coordination=Coordination(loss=1.0), seed=1).messages == (36, 36)


# --- sites ------------------------------------------------------------------------------------------------------------


def site_with(env: simpy.Environment, decision_s: float = 0.0) -> tuple[Site, list[tuple[int, float]]]:
    done: list[tuple[int, float]] = []
    site = Site(
        env,
        "n",
        1.0,
        lambda: Shedder(2, detector=OverloadDetector(1.0), window_s=10.0),
        lambda batch: 0.1 * batch.tuples,
        lambda batch: done.append((batch.tuples, round(env.now, 9))),
        decision_s,
    )
    return site, done


def batch_of(query: int, tuples: int, sent_s: float = 0.0) -> Batch:
    return Batch(query, 0.01 * tuples, tuples, Parcel(query, 0, sent_s))


def test_a_detector_measures_busy_time_and_sheds_what_will_not_be_done() -> None:
    env = simpy.Environment()
    site, done = site_with(env)
    assert site.node.name == "n"
    site.node.accept(batch_of(0, 5))
    env.run(until=1.0)
    site.look()
    assert (done, site.waits_s, site.decisions) == ([(5, 0.5)], [0.0], 0)
    for query in (0, 1, 0, 1):
        site.node.accept(batch_of(query, 6, sent_s=0.75))
    env.run(until=1.25)  # the first batch is at work
    site.look()
    # 0.1 s a tuple, by the 5 of 0.5 s at work; 10 tuples in an interval of 1 s, and 18 wait. Query 0 has 6 already.
    assert (site.decisions, site.dropped, site.waits_s[-1]) == (1, 8, 0.5)
    assert site.dropped_sic == pytest.approx(0.08)
    env.run(until=9.0)
    assert done == [(5, 0.5), (6, 1.6), (6, 2.2), (4, 2.6)]


def test_while_a_shedder_decides_the_node_stands_still() -> None:
    env = simpy.Environment()
    site, done = site_with(env, decision_s=0.2)
    site.node.accept(batch_of(0, 5))
    env.run(until=1.0)
    site.look()
    site.node.accept(batch_of(1, 2))
    site.look()
    assert site.waits_s == [0.0], "one decision at a time"
    env.run(until=9.0)
    assert done == [(5, 0.5), (2, 1.4)]
    assert site.node.busy_s == pytest.approx(0.5 + 0.2 + 0.2)


def test_a_site_that_fails_forgets() -> None:
    env = simpy.Environment()
    site, done = site_with(env)
    for _ in range(3):
        site.node.accept(batch_of(0, 5))
    env.run(until=0.25)
    site.fail()
    site.report(1.0, 0, 0.9)
    env.run(until=1.0)
    assert (site.lost, site.lost_sic, done) == (15, pytest.approx(0.15), [])
    site.recover()
    site.node.accept(batch_of(1, 3))
    env.run(until=2.0)
    assert done == [(3, 1.3)]
    site.look()
    assert site.decisions == 0


# --- trees of nodes ---------------------------------------------------------------------------------------------------


def test_quantiles_of_delays_go_by_amounts() -> None:
    nothing = np.zeros(0)
    result = TreeResult(
        nothing,
        nothing,
        np.array([1.0, 2.0, 3.0, 4.0]),
        np.array([0.5, 0.1, 0.9, 5.0]),
        np.array([2.0, 5.0, 3.0, 90.0]),
        0,
        0,
        0,
        0.0,
    )
    assert [result.delay_quantile_s(share, to_s=4.0) for share in (0.0, 0.5, 0.51, 0.7, 0.71, 1.0)] == [
        0.1, 0.1, 0.5, 0.5, 0.9, 0.9,
    ]  # fmt: skip
    assert result.delay_quantile_s(1.0, from_s=2.0, to_s=3.0) == 0.1
    assert result.delay_quantile_s(0.5) == 5.0
    assert np.isnan(result.delay_quantile_s(0.5, from_s=9.0))


def chain(**changes: object) -> TreeRun:
    """A lets all of 10 tuples/s through for 0.01 s each, half of which go on to B, 0.02 s each."""
    a = NodeModel("A", ("a",), (Segment("trunk", "a", 0.01, 0.5, "b"),))
    b = NodeModel("B", ("b",), (Segment("work", "b", 0.02, 1, "q"),))
    values = {"topology": Topology((a, b)), "rates_tps": {"a": 10.0}, "seconds": 10.0, "delay_s": 0.125, **changes}
    return TreeRun(**values)  # type: ignore[arg-type]


def test_a_calm_tree_delivers_everything_on_time() -> None:
    """0.5 tuples every 0.05 s: 0.005 s at A, 0.125 s on the way, 0.25 tuples for 0.005 s at B."""
    run = run_tree(chain(), "local")
    assert run.delays_s == pytest.approx(0.005 + 0.125 + 0.005)
    assert run.amounts == pytest.approx(0.25)
    assert run.score[1:] == pytest.approx(5.0)
    assert run.delay_s == pytest.approx(0.135)
    assert (run.messages, run.message_bytes, run.lost) == (0, 0, 0)
    assert run.busy_s == pytest.approx(10 * 10 * 0.01 + 10 * 5 * 0.02, rel=0.03)
    assert run.arrived_s[0] == pytest.approx(0.135)
    assert np.diff(run.arrived_s) == pytest.approx(0.05)


def test_scores_are_told_by_period() -> None:
    run = run_tree(chain(period_s=0.5), "local")
    assert len(run.score) == len(run.delay_s) == 20
    assert run.score[1:] == pytest.approx(5.0)


def test_a_spike_slows_a_node_for_its_time() -> None:
    run = run_tree(chain(spikes=(Spike("B", 4.0, 6.0, 0.25),)), "local")
    inside = (run.arrived_s > 4.2) & (run.arrived_s < 6.0)
    assert run.delays_s[inside] == pytest.approx(0.005 + 0.125 + 0.02)
    assert run.delays_s[(run.arrived_s < 4.0) | (run.arrived_s > 6.3)] == pytest.approx(0.135)


def test_an_overloaded_node_keeps_what_its_headroom_allows() -> None:
    """200 tuples/s at A need 2 s per second: 0.95 s are 95 of them, half of which go on; B could do 47.5."""
    run = run_tree(chain(rates_tps={"a": 200.0}, seconds=20.0), "local")
    assert run.score[12:] == pytest.approx(0.95 / 0.01 * 0.5, rel=0.02)
    assert run.delay_s[-1] < 1.0
