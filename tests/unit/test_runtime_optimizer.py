"""The thesis's tables 4.2, 4.3 and 4.5, and what the decision maker does step by step."""

from __future__ import annotations

import json
import math
import random

import pytest

from streamshed.errors import InvalidValueError
from streamshed.qos import Goal, Goals, Measure, OverTime, Priority, PriorityWeights
from streamshed.scheduling import (
    DEFAULT_TABLE,
    DecisionMaker,
    DecisionTable,
    Job,
    MasterScheduler,
    Monitoring,
    OptimizerSettings,
    RuntimeOptimizer,
    Step,
    reduced_weight,
)
from streamshed.shedding import Shedder

LATENCY, MEMORY, THROUGHPUT = Measure.LATENCY, Measure.MEMORY, Measure.THROUGHPUT
MUST, BEST, DONT = Priority.MUST_SATISFY, Priority.BEST_EFFORT, Priority.DONT_CARE
SHEDDERS = (Shedder("s->f", 3.0, 0.2), Shedder("t->g", 1.0, 0.2))


def goals(mtre: float = 0.0, **of: tuple[float, Priority]) -> Goals:
    named = {"latency": LATENCY, "memory": MEMORY, "throughput": THROUGHPUT}
    return Goals(
        {named[name]: Goal(OverTime.of([(0, value)]), priority) for name, (value, priority) in of.items()}, mtre
    )


def test_table_4_2_only_memory_violated() -> None:
    """The thesis prints 0.66 for simplified segment; its own formula (4.1) and table (4.1) give 3/4."""
    assert DEFAULT_TABLE.scores({MEMORY: 1.0}) == {
        "round-robin": 0.5,
        "path-capacity": 0.25,
        "segment": 1.0,
        "simplified-segment": 0.75,
    }
    maker = DecisionMaker("q", goals(memory=(1e6, MUST), latency=(1.0, MUST)), "path-capacity")
    decision = maker.decide(10.0, {MEMORY: 2e6, LATENCY: 0.5}, 13.0)
    assert decision.scores == DEFAULT_TABLE.scores({MEMORY: 1.0})  # what is satisfied in the same class does not count
    assert (decision.violated, decision.satisfied) == ((MEMORY,), (LATENCY,))
    assert decision.after == "segment"


def test_table_4_3_all_violated() -> None:
    assert list(DEFAULT_TABLE.scores({LATENCY: 1.0, MEMORY: 1.0, THROUGHPUT: 1.0}).values()) == [1.5, 2.25, 1.5, 2.25]
    maker = DecisionMaker("q", goals(latency=(1, MUST), memory=(1, MUST), throughput=(9, MUST)), "round-robin")
    assert maker.decide(0.0, {LATENCY: 2, MEMORY: 2, THROUGHPUT: 1}, 3.0).after == "path-capacity"  # the first of two


def test_table_4_5_reduced_weights() -> None:
    assert reduced_weight(PriorityWeights(), MUST, LATENCY, 1.0, 2.0) == 0.75
    maker = DecisionMaker("q", goals(latency=(2.0, MUST), memory=(1e6, BEST)), "round-robin")
    decision = maker.decide(0.0, {LATENCY: 1.0, MEMORY: 2e6}, 3.0)
    assert decision.weights == {LATENCY: 0.75, MEMORY: 0.5}
    assert list(decision.scores.values()) == [0.625, 0.875, 0.6875, 0.9375]
    assert decision.after == "simplified-segment"


def test_a_reduced_weight_stays_above_the_next_class() -> None:
    assert reduced_weight(PriorityWeights(), MUST, LATENCY, 0.0, 2.0) > PriorityWeights().best_effort


def test_priorities_are_looked_at_one_after_the_other() -> None:
    """All of them at once would lead to simplified segment, and memory, which must be met, would not be."""
    maker = DecisionMaker("q", goals(memory=(1e6, MUST), latency=(1, BEST), throughput=(9, BEST)), "round-robin")
    decision = maker.decide(0.0, {MEMORY: 2e6, LATENCY: 2, THROUGHPUT: 1}, 3.0)
    assert decision.violated == (MEMORY,)
    assert decision.after == "segment"


def test_a_dont_care_goal_takes_any_better_strategy() -> None:
    maker = DecisionMaker("q", goals(latency=(1.0, DONT)), "segment")
    assert maker.decide(0.0, {LATENCY: 2.0}, 3.0).after == "round-robin"
    maker = DecisionMaker("q", goals(latency=(1.0, BEST)), "segment")
    assert maker.decide(0.0, {LATENCY: 2.0}, 3.0).after == "path-capacity"


def test_nothing_is_done_while_goals_are_met_or_nothing_is_measured() -> None:
    maker = DecisionMaker("q", goals(latency=(1.0, MUST)), "segment", SHEDDERS)
    assert not maker.decide(0.0, {LATENCY: 1.0}, 3.0).switches
    decision = maker.decide(3.0, {}, 6.0)
    assert (decision.after, decision.reason) == ("segment", "nothing to compare")


def test_lookahead_compares_with_the_goal_of_later_and_reduces_by_the_goal_of_now() -> None:
    tightening = Goals(
        {
            LATENCY: Goal(OverTime.of([(0, 2.0), (10, 2.0), (10, 0.5)]), MUST),
            MEMORY: Goal(OverTime.of([(0, 1.0)]), BEST),
        }
    )
    maker = DecisionMaker("q", tightening, "segment", lookahead_s=2.0)
    assert not maker.decide(7.0, {LATENCY: 1.0, MEMORY: 0.5}, 9.0).violated
    assert maker.decide(9.0, {LATENCY: 1.0, MEMORY: 0.5}, 12.0).violated == (LATENCY,)
    loosening = Goals(
        {
            LATENCY: Goal(OverTime.of([(0, 1.0), (10, 1.0), (10, 4.0)]), MUST),
            MEMORY: Goal(OverTime.of([(0, 1.0)]), BEST),
        }
    )
    maker = DecisionMaker("q", loosening, "segment", lookahead_s=2.0)
    decision = maker.decide(9.0, {LATENCY: 0.5, MEMORY: 2.0}, 12.0)
    assert decision.expected[LATENCY] == 4.0
    assert decision.weights[LATENCY] == 0.75  # half of what is allowed now


def test_instead_of_a_cycle_there_is_a_compromise() -> None:
    maker = DecisionMaker("q", goals(latency=(1.0, MUST), memory=(1.0, MUST)), "segment")
    assert maker.decide(0, {LATENCY: 2.0, MEMORY: 0.5}, 3).after == "path-capacity"
    back = maker.decide(3, {LATENCY: 0.5, MEMORY: 2.0}, 6)
    assert back.after == "simplified-segment"
    assert "latency_s, which was missed before" in back.reason
    assert back.weights == {LATENCY: 1.0, MEMORY: 1.0}
    for i, (latency_s, memory_bytes) in enumerate([(0.5, 2.0), (2.0, 0.5), (0.5, 2.0), (2.0, 2.0), (0.5, 0.5)]):
        assert not maker.decide(6 + 3 * i, {LATENCY: latency_s, MEMORY: memory_bytes}, 0).switches


def test_history_counts_within_a_piece_of_the_goals_only() -> None:
    memory = Goal(OverTime.of([(0, 10.0), (500, 10.0), (500, 1.0)]), MUST)
    maker = DecisionMaker("q", Goals({LATENCY: Goal(OverTime.of([(0, 1.0)]), MUST), MEMORY: memory}), "segment")
    assert maker.decide(3, {LATENCY: 2.0, MEMORY: 2.0}, 6).after == "path-capacity"
    assert maker.decide(501, {LATENCY: 0.5, MEMORY: 2.0}, 504).after == "segment"


def test_what_a_higher_class_missed_is_not_given_up_for_a_lower_one() -> None:
    """By the scores with reduced weights it would go to simplified segment, and back when latency misses its goal."""
    maker = DecisionMaker("q", goals(latency=(2.0, MUST), memory=(1.0, BEST)), "segment")
    assert maker.decide(0, {LATENCY: 3.0, MEMORY: 0.5}, 3).after == "path-capacity"
    decision = maker.decide(3, {LATENCY: 1.0, MEMORY: 2.0}, 6)
    assert max(decision.scores, key=lambda name: decision.scores[name]) == "simplified-segment"
    assert not decision.switches


def test_what_is_met_for_long_is_forgotten_but_later_each_time() -> None:
    maker = DecisionMaker("q", goals(latency=(1.0, MUST), memory=(1.0, MUST)), "segment")
    both, latency, calm = ({LATENCY: 2.0, MEMORY: 2.0}, {LATENCY: 2.0, MEMORY: 0.5}, {LATENCY: 0.5, MEMORY: 0.5})
    after = []
    for _ in range(12):  # calm of 150 looks: longer than it remembers at first
        for measured in (latency, latency, both, both, *([calm] * 150)):
            decision = maker.decide(0, measured, 0)
            if decision.switches:
                after.append(decision.after)
    assert after == ["path-capacity", "simplified-segment"] * 2


def test_switches_are_few_whatever_is_measured() -> None:
    every = [Priority(priority) for priority in Priority]
    draw = random.Random(1)
    for _ in range(100):
        wanted = goals(
            latency=(1.0, draw.choice(every)), memory=(1.0, draw.choice(every)), throughput=(1.0, draw.choice(every))
        )
        maker = DecisionMaker("q", wanted, draw.choice(DEFAULT_TABLE.strategies))
        switches = sum(
            maker.decide(3.0 * look, {measure: draw.choice((0.5, 2.0)) for measure in Measure}, 0).switches
            for look in range(100)
        )
        assert switches <= 4


def test_a_new_strategy_is_not_blamed_for_memory_that_it_found_and_works_off() -> None:
    maker = DecisionMaker("q", goals(memory=(1.0, MUST)), "path-capacity", SHEDDERS)
    assert maker.decide(0, {MEMORY: 5.0}, 3).after == "segment"
    decision = maker.decide(3, {MEMORY: 4.0}, 6)
    assert (decision.violated, decision.shedding) == ((), {})
    assert "gets less" in decision.reason
    assert not maker.decide(6, {MEMORY: 3.0}, 9).violated
    assert maker.decide(9, {MEMORY: 3.0}, 12).shedding  # no longer less
    assert maker.decide(12, {MEMORY: 2.0}, 15).violated


def test_shedding_is_the_last_resort_one_shedder_after_the_other_and_never_beyond_its_most() -> None:
    maker = DecisionMaker("q", goals(0.2, latency=(1.0, MUST)), "segment", SHEDDERS)
    late = {LATENCY: 2.0}
    steps = [maker.decide(3.0 * i, late, 0.0) for i in range(4)]
    assert [step.after for step in steps] == ["path-capacity"] * 4
    assert [list(step.shedding) for step in steps] == [[], ["s->f"], ["s->f", "t->g"], ["s->f", "t->g"]]
    assert set(steps[-1].shedding.values()) == {0.2}
    assert "all shedders are at work" in steps[-1].reason
    good = [maker.decide(20.0 + i, {LATENCY: 0.5}, 0.0) for i in range(3)]
    assert [list(step.shedding) for step in good] == [["s->f"], [], []]


def test_only_must_satisfy_sheds() -> None:
    maker = DecisionMaker("q", goals(0.2, latency=(1.0, BEST)), "path-capacity", SHEDDERS)
    assert not maker.decide(0.0, {LATENCY: 9.0}, 3.0).shedding


def test_while_shedding_nothing_is_done_for_lower_classes() -> None:
    maker = DecisionMaker("q", goals(0.2, latency=(1.0, MUST), memory=(1.0, BEST)), "path-capacity", SHEDDERS)
    maker.decide(0, {LATENCY: 2.0, MEMORY: 2.0}, 3)
    maker.decide(3, {LATENCY: 2.0, MEMORY: 2.0}, 6)
    decision = maker.decide(6, {LATENCY: 0.1, MEMORY: 2.0}, 9)
    assert list(decision.shedding) == ["s->f"]
    assert not decision.switches
    decision = maker.decide(9, {LATENCY: 0.1, MEMORY: 2.0}, 12)  # the last goes off, and memory is looked at
    assert (decision.shedding, decision.violated) == ({}, (MEMORY,))
    assert decision.scores


def test_a_better_strategy_puts_all_shedders_off() -> None:
    maker = DecisionMaker("q", goals(0.2, latency=(1.0, MUST), memory=(1.0, MUST)), "path-capacity", SHEDDERS)
    maker.decide(0, {LATENCY: 2.0, MEMORY: 0.5}, 3)
    assert maker.shedding
    decision = maker.decide(3, {LATENCY: 0.5, MEMORY: 2.0}, 6)
    assert decision.after == "simplified-segment"
    assert not decision.shedding
    assert "shedders go off" in decision.reason


def test_decisions_can_be_read_by_people_and_machines() -> None:
    maker = DecisionMaker("report", goals(latency=(1.0, MUST)), "segment")
    decision = maker.decide(3.0, {LATENCY: 2.5}, 6.0)
    assert str(decision) == (
        "3.0 s, report: latency_s 2.5 misses 1. "
        "scores: round-robin 0.5, path-capacity 1, segment 0.25, simplified-segment 0.75. "
        "a better strategy: segment → path-capacity"
    )
    document = json.loads(json.dumps(decision.as_document()))
    assert document["violated"] == ["latency_s"]
    assert document["after"] == "path-capacity"


def test_a_new_strategy_is_a_new_column_of_the_table() -> None:
    table = DecisionTable({LATENCY: {"round-robin": 1, "mine": 2}})
    maker = DecisionMaker("q", goals(latency=(1.0, MUST)), "round-robin", table=table)
    assert maker.decide(0.0, {LATENCY: 2.0}, 3.0).after == "mine"
    with pytest.raises(InvalidValueError, match="same strategies"):
        DecisionTable({LATENCY: {"a": 1}, MEMORY: {"b": 1}})
    with pytest.raises(InvalidValueError, match="out of range"):
        DecisionTable({LATENCY: {"a": 1, "b": 3}})


def test_monitoring_stays_within_its_bounds_and_looks_in_time_at_a_new_piece() -> None:
    monitoring = Monitoring(times=10, min_s=3.0, max_s=30.0, lookahead_s=1.0)
    assert monitoring.interval_s(0, 10, 0) == 3.0
    assert monitoring.interval_s(0, 200, 0) == 20.0
    assert monitoring.interval_s(0, math.inf, 0) == 30.0
    assert monitoring.interval_s(0, 200, 190) == 9.0  # just before the end
    with pytest.raises(InvalidValueError, match="monitoring interval"):
        Monitoring(min_s=3.0, lookahead_s=3.0)


def test_system_monitor_looks_at_each_query_when_it_is_due() -> None:
    master = MasterScheduler()
    optimizer = RuntimeOptimizer(master, OptimizerSettings(Monitoring(times=10, min_s=3.0, max_s=30.0)))
    assert optimizer.next_s == math.inf
    for name in ("often", "seldom"):
        master.start(Job(name, ((Step(f"s->{name}", name, 0.001),),)), "segment")
    hundred = Goals({LATENCY: Goal(OverTime.of([(0, 1.0), (50, 1.0)]), BEST)})
    optimizer.watch("often", hundred, "segment")
    optimizer.watch("seldom", goals(latency=(1.0, BEST)), "segment")
    asked: list[tuple[float, str]] = []
    for _ in range(8):
        now_s = optimizer.next_s
        optimizer.review(now_s, lambda query, now_s=now_s: asked.append((now_s, query)) or {LATENCY: 2.0})
    assert asked[:7] == [(5.0 * i, "often") for i in range(1, 6)] + [(30.0, "often"), (30.0, "seldom")]
    assert optimizer.switches("often") == optimizer.switches("seldom") == 1
    assert len(optimizer.log) == len(asked)
    master.next({"s->often": 1.0})
    assert master.strategy_of("often") == "path-capacity"
    optimizer.forget("often")
    assert optimizer.next_s == 60.0


def test_the_optimizer_starts_with_what_is_best_for_the_highest_class() -> None:
    first = RuntimeOptimizer(MasterScheduler()).first
    assert first(goals(latency=(1.0, DONT))) == "path-capacity"
    assert first(goals(memory=(1.0, BEST), latency=(1.0, DONT))) == "segment"
    assert first(goals(memory=(1.0, MUST), latency=(1.0, MUST))) == "simplified-segment"
    # path capacity and simplified segment serve these three equally well
    assert first(goals(latency=(1, MUST), memory=(1, MUST), throughput=(9, MUST))) == "path-capacity"
    assert first(None) == "round-robin"


def test_when_a_strategy_was_changed() -> None:
    optimizer = RuntimeOptimizer(MasterScheduler())
    assert optimizer.changed_s("q") == -math.inf
    optimizer.watch("q", goals(latency=(1.0, MUST)), "segment", start_s=100.0)
    optimizer.review(optimizer.next_s, lambda _: {LATENCY: 5.0})
    changed_s = optimizer.changed_s("q")
    assert changed_s > 100.0
    optimizer.review(optimizer.next_s, lambda _: {LATENCY: 5.0})
    assert optimizer.changed_s("q") == changed_s


def test_without_leave_to_shed_shedders_stay_off() -> None:
    optimizer = RuntimeOptimizer(MasterScheduler(), OptimizerSettings(may_shed=False))
    optimizer.watch("q", goals(0.3, latency=(1.0, MUST)), "path-capacity", SHEDDERS)
    for _ in range(3):
        (decision,) = optimizer.review(optimizer.next_s, lambda _: {LATENCY: 5.0})
        assert not decision.shedding
