"""The decision maker look by look: what counts, how much, for how long, and what is done about it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError
from streamshed.qos import Goal, Goals, Measure, OverTime, Priority, PriorityWeights
from streamshed.scheduling import (
    DEFAULT_TABLE,
    DecisionMaker,
    DecisionTable,
    MasterScheduler,
    Monitoring,
    OptimizerSettings,
    RuntimeOptimizer,
    reduced_weight,
)
from streamshed.shedding import Shedder

LATENCY, MEMORY, THROUGHPUT = Measure.LATENCY, Measure.MEMORY, Measure.THROUGHPUT
MUST, BEST, DONT = Priority.MUST_SATISFY, Priority.BEST_EFFORT, Priority.DONT_CARE
SHEDDERS = (Shedder("s->f", 3.0, 0.2), Shedder("t->g", 1.0, 0.1), Shedder("u->h", 0.5, 0.05))
RR, PC, SEG, SIMPLE = DEFAULT_TABLE.strategies


def goals(**of: tuple[float, Priority]) -> Goals:
    named = {"latency": LATENCY, "memory": MEMORY, "throughput": THROUGHPUT}
    return Goals({named[name]: Goal(OverTime.of([(0, value)]), priority) for name, (value, priority) in of.items()})


def met(latency: bool, memory: bool) -> dict[Measure, float]:
    """Measurements for goals of 1: half of it or twice as much."""
    return {LATENCY: 0.5 if latency else 2.0, MEMORY: 0.5 if memory else 2.0}


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_decision_table_of_the_thesis() -> None:
    assert DEFAULT_TABLE.strategies == ("round-robin", "path-capacity", "segment", "simplified-segment")
    assert {measure: tuple(row.values()) for measure, row in DEFAULT_TABLE.ranks.items()} == {
        LATENCY: (2, 4, 1, 3),
        MEMORY: (2, 1, 4, 3),
        THROUGHPUT: (2, 4, 1, 3),
    }
    assert DEFAULT_TABLE.scores({}) == dict.fromkeys(DEFAULT_TABLE.strategies, 0)
    assert DEFAULT_TABLE.scores({LATENCY: 0.5, MEMORY: 2.0}) == {RR: 1.25, PC: 1.0, SEG: 2.125, SIMPLE: 1.875}


def test_the_best_strategy_is_that_of_the_highest_class_and_among_equals_of_the_next() -> None:
    best = DEFAULT_TABLE.best_for
    assert best(goals(memory=(1, MUST), latency=(1, BEST), throughput=(1, BEST))) == SEG
    assert best(goals(memory=(1, BEST), latency=(1, DONT), throughput=(1, DONT))) == SEG
    # Latency and memory together: round robin 1, path capacity and segment 1.25, simplified segment 1.5.
    assert best(goals(latency=(1, MUST), memory=(1, MUST))) == SIMPLE
    # Where two serve the highest class alike, what is below decides; without anything below, their order does.
    table = DecisionTable({LATENCY: {"a": 2, "b": 2, "c": 1}, MEMORY: {"a": 1, "b": 3, "c": 2}})
    assert table.best_for(goals(latency=(1, MUST), memory=(1, DONT))) == "b"
    assert table.best_for(goals(latency=(1, MUST))) == "a"
    assert best(goals()) == RR


@pytest.mark.parametrize(
    "ranks",
    [
        {},
        {LATENCY: {}},
        {LATENCY: {"a": 0}},
        {LATENCY: {"a": 1, "b": 3}},
        {LATENCY: {"a": 1}, MEMORY: {"a": 1, "b": 2}},
    ],
)
def test_tables_that_make_no_sense_are_refused(ranks: Mapping[Measure, Mapping[str, int]]) -> None:
    with pytest.raises(InvalidValueError, match="decision table"):
        DecisionTable(ranks)


# --- weights ---------------------------------------------------------------------------------------------------------


def test_a_weight_is_reduced_by_the_slack_times_the_way_down_to_the_next_class() -> None:
    weights = PriorityWeights()  # 1, 0.5, 0.01
    assert reduced_weight(weights, MUST, LATENCY, 2.0, 2.0) == 1.0
    assert reduced_weight(weights, MUST, LATENCY, 1.5, 2.0) == 0.875
    assert reduced_weight(weights, BEST, MEMORY, 1.0, 4.0) == pytest.approx(0.5 - 0.75 * 0.49)
    assert reduced_weight(weights, DONT, MEMORY, 1.0, 2.0) == pytest.approx(0.005)
    assert reduced_weight(weights, MUST, THROUGHPUT, 15.0, 10.0) == 0.75, "a floor is better off above"
    assert reduced_weight(weights, MUST, LATENCY, 0.0, 2.0) == pytest.approx(1 - 0.99 * 0.5), "above the next class"
    assert reduced_weight(weights, MUST, THROUGHPUT, 99.0, 10.0) == pytest.approx(1 - 0.99 * 0.5)
    assert reduced_weight(PriorityWeights(8.0, 4.0, 1.0), BEST, LATENCY, 1.0, 2.0) == 2.5


def test_a_missed_goal_has_its_whole_weight_and_met_ones_above_have_reduced_ones() -> None:
    maker = DecisionMaker(
        "q", goals(latency=(2, MUST), throughput=(10, BEST), memory=(1, DONT)), SEG, weights=PriorityWeights(4, 2, 1)
    )
    decision = maker.decide(0.0, {LATENCY: 1.5, THROUGHPUT: 15.0, MEMORY: 9.0}, 3.0)
    assert decision.weights == {LATENCY: 3.5, THROUGHPUT: 1.5, MEMORY: 1.0}
    assert decision.scores == {RR: 3.0, PC: 5.25, SEG: 2.25, SIMPLE: 4.5}
    assert decision.after == RR, "for what nobody cares about, the first that is any better"
    maker = DecisionMaker("q", goals(latency=(2, BEST), memory=(1, BEST)), RR)
    decision = maker.decide(0.0, {LATENCY: 1.0, MEMORY: 9.0}, 3.0)
    assert decision.weights == {MEMORY: 0.5}, "what is met in the same class does not count"


def test_weights_and_scores_are_told_only_where_a_strategy_was_chosen() -> None:
    maker = DecisionMaker("q", goals(latency=(2, MUST), memory=(1, BEST)), SEG)
    decision = maker.decide(4.5, {LATENCY: 1.0, MEMORY: 0.5, THROUGHPUT: 7.0}, 7.5)
    assert (decision.time_s, decision.query, decision.next_s) == (4.5, "q", 7.5)
    assert (decision.weights, decision.scores, decision.reason) == ({}, {}, "all goals are met")
    assert (decision.violated, decision.satisfied) == ((), (LATENCY, MEMORY))
    assert decision.measured == {LATENCY: 1.0, MEMORY: 0.5}, "without a goal it is not looked at"
    assert decision.expected == {LATENCY: 2.0, MEMORY: 1.0}
    assert (decision.before, decision.after, decision.switches, decision.shedding) == (SEG, SEG, False, {})


# --- what is done ----------------------------------------------------------------------------------------------------


def test_below_a_missed_class_nothing_is_looked_at() -> None:
    maker = DecisionMaker("q", goals(latency=(1, MUST), memory=(1, BEST), throughput=(9, DONT)), PC)
    decision = maker.decide(0.0, {LATENCY: 2.0, MEMORY: 2.0, THROUGHPUT: 1.0}, 3.0)
    assert (decision.violated, decision.satisfied) == ((LATENCY,), ())
    assert decision.measured == {LATENCY: 2.0}
    decision = maker.decide(3.0, {LATENCY: 0.5, MEMORY: 2.0, THROUGHPUT: 1.0}, 6.0)
    assert (decision.violated, decision.satisfied) == ((MEMORY,), (LATENCY,))


def test_a_strategy_that_the_table_does_not_know_gives_way_to_the_best_one() -> None:
    maker = DecisionMaker("q", goals(latency=(1, MUST)), "weighted-round-robin")
    assert maker.decide(0.0, {LATENCY: 2.0}, 3.0).after == PC
    maker = DecisionMaker("q", goals(latency=(1, DONT)), "weighted-round-robin")
    assert maker.decide(0.0, {LATENCY: 2.0}, 3.0).after == RR


def test_as_good_is_not_better() -> None:
    maker = DecisionMaker("q", goals(latency=(1, MUST), memory=(1, MUST), throughput=(9, MUST)), SIMPLE)
    decision = maker.decide(0.0, {LATENCY: 2.0, MEMORY: 2.0, THROUGHPUT: 1.0}, 3.0)
    assert decision.scores[PC] == decision.scores[SIMPLE] == 2.25
    assert (decision.after, decision.reason) == (SIMPLE, "no better strategy")


def test_what_rounding_makes_of_equal_scores_is_no_improvement() -> None:
    wanted = goals(latency=(1, MUST), memory=(1, MUST), throughput=(9, MUST))
    maker = DecisionMaker("q", wanted, PC, weights=PriorityWeights(0.1, 0.05, 0.01))
    decision = maker.decide(0.0, {LATENCY: 2.0, MEMORY: 2.0, THROUGHPUT: 1.0}, 3.0)
    assert 0 < decision.scores[SIMPLE] - decision.scores[PC] < 1e-15
    assert decision.after == PC


def test_shedders_go_on_one_by_one_and_off_one_by_one_in_falling_order_of_weight() -> None:
    maker = DecisionMaker("q", goals(latency=(1, MUST)), PC, SHEDDERS)
    told = [maker.decide(3.0 * look, {LATENCY: 2.0}, 0.0) for look in range(4)]
    assert [dict(one.shedding) for one in told] == [
        {"s->f": 0.2},
        {"s->f": 0.2, "t->g": 0.1},
        {"s->f": 0.2, "t->g": 0.1, "u->h": 0.05},
        {"s->f": 0.2, "t->g": 0.1, "u->h": 0.05},
    ]
    assert [one.reason for one in told] == [
        "no better strategy, the shedder on s->f goes on",
        "no better strategy, the shedder on t->g goes on",
        "no better strategy, the shedder on u->h goes on",
        "no better strategy, all shedders are at work",
    ]
    assert maker.decide(12.0, {}, 0.0).shedding == told[-1].shedding, "nothing measured says nothing"
    told = [maker.decide(15.0 + look, {LATENCY: 1.0}, 0.0) for look in range(4)]
    assert [list(one.shedding) for one in told] == [["s->f", "t->g"], ["s->f"], [], []]
    assert told[0].reason == "goals that must be met are met, the shedder on u->h goes off"
    assert told[2].reason == "goals that must be met are met, the shedder on s->f goes off"
    assert told[3].reason == "all goals are met"
    assert maker.shedding == {}


def test_while_shedding_a_lower_class_is_told_of_and_left_alone() -> None:
    maker = DecisionMaker("q", goals(latency=(1, MUST), memory=(1, BEST)), PC, SHEDDERS[:2])
    for look in range(2):
        assert not maker.decide(3.0 * look, met(latency=False, memory=True), 0.0).switches
    decision = maker.decide(6.0, met(latency=True, memory=False), 0.0)
    assert (decision.violated, decision.satisfied, decision.scores) == ((MEMORY,), (LATENCY,), {})
    assert (list(decision.shedding), decision.after) == (["s->f"], PC)


def test_what_was_missed_counts_for_a_hundred_looks_and_then_for_two_hundred() -> None:
    """Latency was missed, and memory is now. As long as both count, simplified segment is the best for both."""

    def after(first: int, second: int | None = None) -> str:
        maker = DecisionMaker("q", goals(latency=(1, MUST), memory=(1, MUST)), SEG)
        maker.decide(0.0, met(latency=False, memory=True), 0.0)
        assert maker.strategy == PC
        for _ in range(first - 1):
            maker.decide(0.0, met(latency=True, memory=True), 0.0)
        if second is not None:
            maker.decide(0.0, met(latency=False, memory=True), 0.0)
            for _ in range(second - 1):
                maker.decide(0.0, met(latency=True, memory=True), 0.0)
        return maker.decide(0.0, met(latency=True, memory=False), 0.0).after

    assert (after(1), after(99), after(100), after(101)) == (SIMPLE, SIMPLE, SEG, SEG)
    assert (after(101, 199), after(101, 200)) == (SIMPLE, SEG), "it had been forgotten, and is remembered twice as long"
    assert (after(50, 99), after(50, 100)) == (SIMPLE, SEG), "it had not, and counts anew"


def test_a_measure_that_another_class_missed_counts_only_where_it_is_met_above() -> None:
    maker = DecisionMaker("q", goals(latency=(1, BEST), memory=(1, MUST)), PC)
    assert maker.decide(0.0, met(latency=True, memory=False), 0.0).after == SEG
    decision = maker.decide(3.0, met(latency=False, memory=True), 0.0)
    # Memory above has half of its slack: 1 − 0.5·0.5 = 0.75; simplified segment would score more, but serves it less.
    assert decision.weights == {MEMORY: 0.75, LATENCY: 0.5}
    assert decision.scores == {RR: 0.625, PC: 0.6875, SEG: 0.875, SIMPLE: 0.9375}
    assert (decision.after, decision.reason) == (SEG, "no better strategy")


def test_goals_are_those_of_a_little_later_and_a_new_piece_has_no_history() -> None:
    falling = Goals(
        {
            LATENCY: Goal(OverTime.of([(0, 1.0), (100, 1.0)]), MUST),
            MEMORY: Goal(OverTime.of([(0, 10.0), (10, 0.0)]), MUST),
        }
    )
    maker = DecisionMaker("q", falling, RR, lookahead_s=2.0)
    assert maker.decide(3.0, {MEMORY: 5.0}, 6.0).expected == {LATENCY: 1.0, MEMORY: 5.0}
    assert maker.decide(3.5, {MEMORY: 5.0}, 6.0).violated == (MEMORY,)
    # Without look-ahead of its own, a second.
    assert DecisionMaker("q", falling, RR).decide(3.0, {MEMORY: 5.0}, 6.0).expected[MEMORY] == 6.0
    maker = DecisionMaker("q", falling, SEG, lookahead_s=2.0)
    assert maker.decide(7.0, {LATENCY: 2.0, MEMORY: 0.5}, 0.0).after == PC
    # From 8 s on the goals of the next piece are looked at, where latency was never missed.
    assert maker.decide(8.0, {LATENCY: 0.5, MEMORY: 0.5}, 0.0).after == SEG


def test_memory_that_was_found_is_worked_off() -> None:
    maker = DecisionMaker("q", goals(memory=(10, MUST), latency=(1, MUST)), PC, SHEDDERS)
    assert maker.decide(0, {MEMORY: 50.0, LATENCY: 0.5}, 0).after == SEG
    decision = maker.decide(3, {MEMORY: 40.0, LATENCY: 0.5}, 0)
    assert decision.reason == "all goals are met, memory is not judged yet: it gets less since the change"
    assert decision.measured == {LATENCY: 0.5}
    # It may still be blamed for the rest.
    assert maker.decide(6, {MEMORY: 30.0, LATENCY: 2.0}, 0).violated == (LATENCY,)
    # The change that came of it began to count anew, from 30.
    assert maker.strategy == SIMPLE
    assert maker.decide(9, {MEMORY: 30.0, LATENCY: 0.5}, 0).violated == (MEMORY,)
    # Once it is within its goal, it is judged as ever; nobody found anything.
    maker = DecisionMaker("q", goals(memory=(10, MUST)), PC, SHEDDERS)
    maker.decide(0, {MEMORY: 50.0}, 0)
    assert maker.decide(3, {MEMORY: 10.0}, 0).satisfied == (MEMORY,)
    assert maker.decide(6, {MEMORY: 11.0}, 0).violated == (MEMORY,)
    # Where a look has no memory, nothing is known to get less.
    maker = DecisionMaker("q", goals(memory=(10, MUST)), PC, SHEDDERS)
    maker.decide(0, {MEMORY: 50.0}, 0)
    maker.decide(3, {}, 0)
    assert maker.decide(6, {MEMORY: 40.0}, 0).violated == (MEMORY,)


measurements = st.dictionaries(st.sampled_from(list(Measure)), st.sampled_from([0.5, 1.0, 2.0]))


@settings(max_examples=60, deadline=None)
@given(
    classes=st.dictionaries(st.sampled_from(list(Measure)), st.sampled_from(list(Priority))),
    first=st.sampled_from(DEFAULT_TABLE.strategies),
    looks=st.lists(measurements, max_size=25),
)
def test_every_decision_is_one_that_the_rules_allow(
    classes: dict[Measure, Priority], first: str, looks: list[dict[Measure, float]]
) -> None:
    wanted = Goals({measure: Goal(OverTime.of([(0, 1.0)]), priority) for measure, priority in classes.items()})
    maker = DecisionMaker("q", wanted, first, SHEDDERS)
    at_work = 0
    for number, measured in enumerate(looks):
        decision = maker.decide(float(number), measured, number + 1.0)
        missed = {
            measure: classes[measure]
            for measure, value in measured.items()
            if measure in classes and (value < 1.0 if measure is THROUGHPUT else value > 1.0)
        }
        worst = next((one for one in Priority if one in missed.values()), None)
        if "not judged" not in decision.reason:
            assert set(decision.violated) == {measure for measure, one in missed.items() if one is worst}
        now = len(decision.shedding)
        assert decision.shedding == {one.arc: one.most for one in SHEDDERS[:now]}, "the first ones, each at its most"
        if decision.switches:
            assert decision.violated
            assert decision.scores[decision.after] > decision.scores[decision.before]
            assert now == 0
        elif now > at_work:
            assert now == at_work + 1
            assert worst is MUST
            assert max(decision.scores.values()) <= decision.scores[decision.after] + 1e-12, "only as the last resort"
        elif now < at_work:
            assert now == at_work - 1
            assert not any(classes[measure] is MUST for measure in decision.violated)
        at_work = now


# --- the optimizer ---------------------------------------------------------------------------------------------------


def test_an_interval_is_a_part_of_the_piece_within_bounds_and_ends_a_look_ahead_before_it() -> None:
    monitoring = Monitoring(times=4, min_s=2.0, max_s=20.0, lookahead_s=1.5)
    assert monitoring.interval_s(100.0, 140.0, 100.0) == 10.0
    assert monitoring.interval_s(100.0, 140.0, 130.0) == 8.5
    assert monitoring.interval_s(100.0, 140.0, 137.5) == 2.0
    assert monitoring.interval_s(100.0, 140.0, 138.5) == 10.0, "the next piece has begun, seen from a look ahead"
    assert monitoring.interval_s(100.0, 140.0, 139.0) == 10.0
    assert monitoring.interval_s(0.0, 4.0, 0.0) == 2.0
    assert monitoring.interval_s(0.0, 4000.0, 0.0) == 20.0
    assert (Monitoring().times, Monitoring().min_s, Monitoring().max_s, Monitoring().lookahead_s) == (
        10,
        3.0,
        30.0,
        1.0,
    )
    Monitoring(times=1, min_s=1.0, max_s=1.0, lookahead_s=0.0)
    # The first look is that of age 0: a look-ahead before the end of the first piece.
    optimizer = RuntimeOptimizer(MasterScheduler(), OptimizerSettings(Monitoring(1, 0.1, 20.0, 0.05)))
    optimizer.watch("a", Goals({LATENCY: Goal(OverTime.of([(0, 1.0), (0.8, 1.0), (40, 2.0)]), BEST)}), PC)
    assert optimizer.next_s == 0.75


@pytest.mark.parametrize(
    "wrong", [{"times": 0}, {"min_s": 0.0}, {"min_s": 5.0, "max_s": 4.0}, {"lookahead_s": -0.1}, {"lookahead_s": 3.0}]
)
def test_monitoring_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match="monitoring interval"):
        Monitoring(**wrong)  # type: ignore[arg-type]


def test_queries_are_looked_at_when_they_are_due_by_the_age_that_they_have() -> None:
    optimizer = RuntimeOptimizer(MasterScheduler(), OptimizerSettings(Monitoring(4, 2.0, 20.0, 1.5)))
    forty = Goals({LATENCY: Goal(OverTime.of([(0, 3.0), (40, 3.0), (40, 1.0)]), MUST)})
    optimizer.watch("a", forty, PC, SHEDDERS, start_s=100.0)
    optimizer.watch("b", goals(latency=(1, BEST)), PC)
    assert optimizer.next_s == 20.0
    asked: list[str] = []

    def measure(query: str) -> dict[Measure, float]:
        asked.append(query)
        return {LATENCY: 2.0}

    assert optimizer.review(19.5, measure) == ()
    (decision,) = optimizer.review(20.0, measure)
    assert (decision.query, decision.time_s, decision.next_s) == ("b", 20.0, 40.0)
    optimizer.forget("b")
    optimizer.forget("b")  # it is not there any more
    assert optimizer.next_s == 110.0
    assert optimizer.review(110.0 - 1e-10, measure), "rounding does not put a look off"
    times = []
    for _ in range(4):
        now_s = optimizer.next_s
        (decision,) = optimizer.review(now_s, measure)
        times.append((round(now_s, 6), round(decision.time_s, 6), decision.expected[LATENCY], bool(decision.violated)))
    assert times[0] == (120.0, 20.0, 3.0, False)
    assert times[1] == (130.0, 30.0, 3.0, False)
    assert times[2] == (138.5, 38.5, 1.0, True), "seen from a look ahead"
    assert len(optimizer.log) == len(asked) == 6


def test_a_change_is_asked_of_the_master_and_remembered() -> None:
    master = MasterScheduler()
    asked: list[tuple[str, str]] = []
    master.change = lambda job_id, strategy: asked.append((job_id, strategy))  # type: ignore[method-assign]
    optimizer = RuntimeOptimizer(master, OptimizerSettings(Monitoring(1, 3.0, 3.0, 1.0), table=DEFAULT_TABLE))
    optimizer.watch("a", goals(latency=(1, MUST), memory=(1, MUST)), SEG, SHEDDERS, 10.0)
    assert optimizer.changed_s("a") == -math.inf
    seen = []
    for measured in (met(latency=False, memory=True), met(latency=True, memory=False), met(latency=True, memory=True)):
        optimizer.review(optimizer.next_s, {"a": measured}.__getitem__)
        seen.append((optimizer.changed_s("a"), optimizer.switches("a")))
    assert asked == [("a", PC), ("a", SIMPLE)]
    assert seen == [(13.0, 1), (16.0, 2), (16.0, 2)]
    assert optimizer.switches("b") == 0
    assert optimizer.changed_s("b") == -math.inf


def test_the_optimizers_settings_reach_its_decision_makers() -> None:
    table = DecisionTable({LATENCY: {"round-robin": 1, "segment": 2}})
    settings_ = OptimizerSettings(Monitoring(1, 3.0, 3.0, 2.5), table, PriorityWeights(9, 3, 1))
    optimizer = RuntimeOptimizer(MasterScheduler(), settings_)
    rising = Goals({LATENCY: Goal(OverTime.of([(0, 0.0), (100, 100.0)]), BEST)})
    assert optimizer.first(rising) == "segment"
    assert optimizer.first(None) == "round-robin"
    optimizer.watch("a", rising, "round-robin")
    (decision,) = optimizer.review(3.0, lambda _: {LATENCY: 6.0})
    assert decision.expected[LATENCY] == pytest.approx(5.5)
    assert decision.weights == {LATENCY: 3.0}
    assert decision.scores == {"round-robin": 1.5, "segment": 3.0}
    assert decision.after == "segment"
    assert OptimizerSettings().may_shed
    for may_shed, shedding in ((True, {"s->f": 0.2}), (False, {})):
        optimizer = RuntimeOptimizer(MasterScheduler(), OptimizerSettings(Monitoring(1, 3, 3, 1), may_shed=may_shed))
        optimizer.watch("a", goals(latency=(1, MUST)), PC, SHEDDERS)
        (decision,) = optimizer.review(3.0, lambda _: {LATENCY: 6.0})
        assert decision.shedding == shedding
