"""Strategies on steps made up for the test: capacities, segments, who gets the turn, and the master scheduler."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from streamshed.errors import InvalidValueError, UnknownNameError
from streamshed.network import NetworkBuilder, Statistics
from streamshed.network.paths import queries
from streamshed.scheduling import (
    STRATEGIES,
    Job,
    MasterScheduler,
    Segment,
    Step,
    capacity_tps,
    jobs,
    release_bps,
    segments,
    simplified_segments,
    strategy_named,
)


def step(name: str, cost_s: float, selectivity: float = 1.0, size: float = 100, out: float = 100) -> Step:
    return Step(name, name, cost_s, selectivity, size, out)


# Released per second: a 5,000, b -5,000, c 10,000, d 8,000 bytes.
A, B, C, D = (
    step("a", 0.01, 0.5),
    step("b", 0.02, 1.0, 100, 200),
    step("c", 0.01, 0.5, 200, 200),
    step("d", 0.025, 1.0, 200, 0),
)


def test_capacity_of_a_path_is_equation_4_4() -> None:
    # 1 / (1/C1 + σ1/C2 + σ1σ2/C3) with C = 200, 100, 50 tuples/s and σ = 0.5, 0.4, 1.
    path = [step("x", 1 / 200, 0.5), step("y", 1 / 100, 0.4), step("z", 1 / 50, 1.0)]
    assert capacity_tps(path) == pytest.approx(1 / (1 / 200 + 0.5 / 100 + 0.5 * 0.4 / 50))
    assert capacity_tps(path) == pytest.approx(71.43, abs=0.005)
    assert capacity_tps([step("free", 0.0)]) == math.inf


def test_memory_release_is_capacity_times_bytes_set_free() -> None:
    assert [round(one.release_bps) for one in (A, B, C, D)] == [5000, -5000, 10000, 8000]
    # A tuple of 100 bytes costs 0.01 + 0.5·0.02 = 0.02 s and leaves 0.5 · 200 bytes: nothing is released.
    assert release_bps([A, B]) == pytest.approx(0.0)
    assert release_bps([A, B, C, D]) == pytest.approx(100 / (0.01 + 0.01 + 0.005 + 0.25 * 0.025))


def test_a_segment_ends_where_memory_is_released_more_slowly() -> None:
    assert [[one.id for one in part] for part in segments([A, B, C, D])] == [["a"], ["b", "c"], ["d"]]


def test_simplified_segments_are_two_at_most_and_forgive_a_little() -> None:
    assert [[one.id for one in part] for part in simplified_segments([A, B, C, D])] == [["a"], ["b", "c", "d"]]
    assert [[one.id for one in part] for part in simplified_segments([C, D])] == [["c", "d"]]  # 8,000 / 10,000 > 3/4
    assert [[one.id for one in part] for part in segments([C, D])] == [["c"], ["d"]]


def test_segment_gives_the_turn_to_the_greatest_release_with_something_to_do() -> None:
    strategy = Segment()
    strategy.add(Job("q", ((A, B, C, D),)))
    everything = {"a": 9.0, "b": 9.0, "c": 9.0, "d": 9.0}
    first = strategy.next(everything)
    assert first is not None
    assert first.tasks == ("d",)  # 8,000, before a with 5,000 and b, c with 0 (100 bytes in, 0.5 · 200 out)
    without_d = strategy.next(everything | {"d": 0.0})
    assert without_d is not None
    assert without_d.tasks == ("a",)
    assert strategy.next({"a": 0.0, "elsewhere": 5.0}) is None


def test_a_turn_takes_as_many_tuples_as_its_path_can_carry() -> None:
    strategy = strategy_named("path-capacity")(quantum_s=0.1)
    strategy.add(Job("q", ((A, B),)))
    turn = strategy.next({"a": 100.0})
    assert turn is not None
    # Two operators have 0.2 s, and a tuple costs 0.02 s on the whole path.
    assert [(part.step.id, part.most) for part in turn.slices] == [("a", 10), ("b", 10)]


def test_shares_of_round_robin_follow_the_weights() -> None:
    light, heavy = Step("x", "x", 0.001), Step("y", "y", 0.001, weight=3.0)
    for name, expected in (("round-robin", 10), ("weighted-round-robin", 30)):
        strategy = strategy_named(name)(quantum_s=0.01)
        strategy.add(Job("q", ((light,), (heavy,))))
        turns = [strategy.next({"x": 99.0, "y": 99.0}) for _ in range(6)]
        most = {part.step.id: part.most for turn in turns if turn for part in turn.slices}
        assert Counter(turn.tasks[0] for turn in turns if turn) == {"x": 3, "y": 3}
        assert most == {"x": 10, "y": expected}


@pytest.mark.parametrize("name", STRATEGIES)
def test_contract_every_step_gets_its_turn_and_nobody_else(name: str) -> None:
    """A run by hand: whatever waits is worked off, and a turn has something to do."""
    left, right = step("s->left", 0.004, 0.5), step("t->right", 0.002, 0.8)
    join_left = Step("left->j.left", "j", 0.003, 1.0, 100, 150)
    join_right = Step("right->j.right", "j", 0.003, 0.5, 100, 150)
    top = step("j->top", 0.001, 1.0, 150, 0)
    strategy = strategy_named(name)()
    strategy.add(Job("q", ((left, join_left, top), (right, join_right, top))))
    strategy.add(Job("other", ((step("s->lone", 0.001),),)))
    follows = {left.id: join_left.id, right.id: join_right.id, join_left.id: top.id, join_right.id: top.id}
    waiting = {"s->left": 400.0, "t->right": 300.0, "s->lone": 200.0, "left->j.left": 50.0}
    turns = 0
    while any(waiting.values()):
        turn = strategy.next(waiting)
        assert turn is not None
        assert any(waiting.get(part.step.id, 0.0) > 0 for part in turn.slices)
        for part in turn.slices:
            taken = min(part.most, waiting.get(part.step.id, 0.0))
            waiting[part.step.id] = waiting.get(part.step.id, 0.0) - taken
            if part.step.id in follows:
                after = follows[part.step.id]
                waiting[after] = waiting.get(after, 0.0) + int(taken * part.step.selectivity)
        turns += 1
        assert turns < 2000
    assert strategy.next(waiting) is None
    strategy.remove("q")
    assert strategy.next({"s->left": 5.0}) is None
    assert strategy.weight == 1


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="no strategy"):
        strategy_named("segmnt")
    with pytest.raises(UnknownNameError, match="does not have the query"):
        Segment().remove("q")
    with pytest.raises(InvalidValueError, match="quantum"):
        Segment(quantum_s=0)


def test_jobs_of_a_network_have_semi_operators_sizes_and_shares() -> None:
    new = NetworkBuilder("n")
    s = new.stream("s", {"ts": "timestamp", "k": "int"}, time="ts")
    t = new.stream("t", {"ts": "timestamp", "k": "int", "v": "double"}, time="ts")
    joined = s.filter("f", "k > 0").join("j", t, on=["k"], within_s=1)
    joined.output("pairs")
    s.filter("g", "k < 0").output("rest")
    network = new.build()
    statistics = Statistics({"f": 0.001, "j": 0.002, "g": 0.003}, {"f": 0.5, "j": 2.0})
    pairs, rest = jobs(network, statistics)
    assert (pairs.id, rest.id) == ("pairs", "rest")
    assert [[one.id for one in path] for path in pairs.paths] == [["s->f", "f->j.left"], ["t->j.right"]]
    first, left = pairs.paths[0]
    assert (first.cost_s, first.selectivity, first.bytes_in, first.bytes_out, first.weight) == (0.001, 0.5, 12, 12, 2)
    assert (left.selectivity, left.bytes_in, left.bytes_out, left.weight) == (2.0, 12, 0, 2)  # its pairs leave
    assert pairs.paths[1][0].weight == 4  # a join, and next to the source
    assert [one.id for one in pairs.steps] == ["s->f", "t->j.right", "f->j.left"]


def test_paths_beyond_all_measure_are_refused() -> None:
    new = NetworkBuilder("n")
    flow = new.stream("s", {"v": "double"})
    for i in range(14):
        flow = flow.filter(f"a{i}", "v > 0").union(f"u{i}", flow.filter(f"b{i}", "v <= 0"))
    flow.output("o")
    with pytest.raises(InvalidValueError, match="too many paths"):
        queries(new.build())


def test_master_shares_time_among_strategies_by_their_operators() -> None:
    master = MasterScheduler(quantum_s=0.01)
    master.start(Job("three", ((step("x", 0.01), step("y", 0.01), step("z", 0.01)),)), "round-robin")
    master.start(Job("one", ((step("w", 0.01),),)), "segment")
    time_s: Counter[str] = Counter()
    for _ in range(400):
        turn = master.next(dict.fromkeys("wxyz", 5.0))
        assert turn is not None
        master.spent(0.01)
        time_s[turn.job] += 1
    assert time_s == {"three": 300, "one": 100}


def test_master_shares_time_by_what_queries_count() -> None:
    master = MasterScheduler(quantum_s=0.01)
    master.start(Job("urgent", ((step("x", 0.01),),), weight=1.0), "path-capacity")
    master.start(Job("other", ((step("w", 0.01),),), weight=0.25), "round-robin")
    time_s: Counter[str] = Counter()
    for _ in range(400):
        turn = master.next({"x": 5.0, "w": 5.0})
        assert turn is not None
        master.spent(0.01)
        time_s[turn.job] += 1
    assert time_s["other"] == pytest.approx(80, abs=2)


def test_master_gives_the_rest_of_its_time_to_others_if_a_strategy_has_nothing_to_do() -> None:
    master = MasterScheduler()
    master.start(Job("a", ((step("x", 0.01),),)), "round-robin")
    master.start(Job("b", ((step("w", 0.01),),)), "segment")
    assert [turn.job for _ in range(3) if (turn := master.next({"w": 1.0}))] == ["b", "b", "b"]
    assert master.next({}) is None


def test_master_keeps_the_time_of_a_strategy_that_is_idle_for_a_moment() -> None:
    master = MasterScheduler(quantum_s=0.01)
    master.start(Job("a", ((step("x", 0.01),),)), "round-robin")
    master.start(Job("b", ((step("w", 0.01),),)), "segment")
    time_s: Counter[str] = Counter()
    gap = 0
    for _ in range(300):  # `b` is ready only every other time, and its turns are shorter than those of `a`
        turn = master.next({"x": 5.0} if gap else {"x": 5.0, "w": 5.0})
        assert turn is not None
        took_s = 0.02 if turn.job == "a" else 0.01
        gap = turn.job == "b"
        master.spent(took_s)
        time_s[turn.job] += round(took_s * 100)
    assert time_s["b"] == pytest.approx(time_s["a"] / 2, abs=2), "never two in a row, and no turn of `a` in between"
    assert not gap or turn.job == "b"


def test_master_takes_back_what_a_turn_took_too_long() -> None:
    master = MasterScheduler(quantum_s=0.01)
    master.start(Job("long", ((step("x", 0.01),),)), "round-robin")
    master.start(Job("short", ((step("w", 0.01),),)), "segment")
    time_s: Counter[str] = Counter()
    for _ in range(600):
        turn = master.next({"x": 5.0, "w": 5.0})
        assert turn is not None
        took_s = 0.05 if turn.job == "long" else 0.01
        master.spent(took_s)
        time_s[turn.job] += round(took_s * 100)
    assert time_s["long"] == pytest.approx(time_s["short"], rel=0.02)


def test_master_keeps_no_more_than_two_rounds() -> None:
    master = MasterScheduler(quantum_s=0.01)
    master.start(Job("a", ((step("x", 0.01),),)), "round-robin")
    master.start(Job("b", ((step("w", 0.01),),)), "segment")
    for _ in range(100):
        assert master.next({"x": 5.0}) is not None
        master.spent(0.01)
    order = []
    for _ in range(6):
        turn = master.next({"x": 5.0, "w": 5.0})
        assert turn is not None
        master.spent(0.01)
        order.append(turn.job)
    assert order[:4].count("b") == 3, order
    assert order[-2:] in (["a", "b"], ["b", "a"])


def test_requests_are_carried_out_between_rounds_only() -> None:
    master = MasterScheduler(quantum_s=0.01)
    job = Job("q", ((step("x", 0.01), step("y", 0.01)),))
    master.start(job, "segment")
    assert master.strategy_of("q") is None
    master.next({"x": 5.0})
    assert master.strategy_of("q") == "segment"
    master.change("q", "path-capacity")
    master.spent(0.01)
    turn = master.next({"x": 5.0})
    assert turn is not None
    assert turn.strategy == "segment"  # a round of two quanta, half of it left
    master.spent(0.01)
    turn = master.next({"x": 5.0})
    assert turn is not None
    assert turn.strategy == "path-capacity"
    master.update(Job("q", ((step("x", 0.001),),)))
    master.spent(1.0)
    turn = master.next({"x": 5.0})
    assert turn is not None
    assert turn.slices[0].step.cost_s == 0.001
    master.stop("q")
    master.change("q", "segment")  # too late: it is gone by then
    master.spent(1.0)
    assert master.next({"x": 5.0}) is None
    assert master.strategy_of("q") is None
