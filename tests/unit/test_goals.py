"""Goals over the age of a query: graphs, priorities, and their place in spec files."""

from __future__ import annotations

import math

import pytest

from streamshed.errors import InvalidValueError, SpecError
from streamshed.network import dump_spec, parse_spec
from streamshed.qos import (
    DropOrder,
    Goal,
    Goals,
    Measure,
    OverTime,
    Priority,
    PriorityWeights,
    SheddingBy,
)

SPEC = """\
name: goals
streams:
  s: {columns: {ts: timestamp, v: double}, time: ts}
operators:
  f: {type: filter, input: s, where: v > 1}
outputs:
  out:
    input: f
    qos:
      goals:
        latency_s: {priority: must satisfy, points: [[0, 0.5]]}
        memory_bytes: {priority: don't care, points: [[0, 1e7], [500, 1e7], [500, 1e6]]}
        throughput_tps: {points: [[0, 100], [10, 200]]}
        mtre: 0.2
        shed_by: {column: v, first: centre}
priorities: {must_satisfy: 2, best_effort: 1, dont_care: 0.1}
"""


def test_values_lie_on_straight_lines_also_between_intervals_and_stay_beyond_the_ends() -> None:
    graph = OverTime.of([(10, 4), (20, 8), (40, 2), (50, 2)])  # intervals 10 to 20 and 40 to 50, a gap between
    assert [graph(age) for age in (0, 10, 15, 20, 30, 40, 45, 99)] == [4, 4, 6, 8, 5, 2, 2, 2]
    assert graph.piece_ends_s(5) == (0.0, 10)
    assert graph.piece_ends_s(30) == (20, 40)
    assert graph.piece_ends_s(60) == (50, math.inf)


def test_a_jump_counts_from_its_time_on() -> None:
    graph = OverTime.of([(0, 10), (500, 10), (500, 1), (600, 1)])
    assert graph(499.999) == 10
    assert graph(500) == 1
    assert graph.piece(499) != graph.piece(500)


@pytest.mark.parametrize(
    ("points", "what"),
    [
        ([], "at least one point"),
        ([(5, 1), (4, 1)], "forward in time"),
        ([(-1, 1)], "forward in time"),
        ([(0, 1), (0, 2), (0, 3)], "three points"),
        ([(0, -1)], "negative"),
        ([(0, math.nan)], "not a point"),
    ],
)
def test_bad_graphs_are_refused(points: list[tuple[float, float]], what: str) -> None:
    with pytest.raises(InvalidValueError, match=what):
        OverTime.of(points)


def test_a_graph_may_jump_at_its_beginning_in_its_middle_and_at_its_end() -> None:
    graph = OverTime.of([(0, 3), (0, 5), (10, 5), (10, 0), (20, 4), (20, 7)])
    assert [graph(age) for age in (0, 9, 10, 15, 19.999, 20, 99)] == pytest.approx([5, 5, 0, 2, 3.9996, 7, 7])
    assert graph.points == ((0, 3), (0, 5), (10, 5), (10, 0), (20, 4), (20, 7))
    with pytest.raises(InvalidValueError, match="three points"):
        OverTime.of([(0, 1), (5, 1), (5, 2), (5, 3), (9, 1)])
    with pytest.raises(InvalidValueError, match="negative"):
        OverTime.of([(0, 5), (1, -0.1), (2, 5)])


def test_goals_together_pass_from_piece_to_piece_when_one_of_them_does() -> None:
    latency, memory = OverTime.of([(0, 1), (10, 1), (30, 2)]), OverTime.of([(0, 5), (20, 5)])
    goals = Goals({Measure.LATENCY: Goal(latency), Measure.MEMORY: Goal(memory, Priority.MUST_SATISFY)})
    assert [goals.piece(age) for age in (0, 9, 10, 20, 30)] == [(1, 1), (1, 1), (2, 1), (2, 2), (3, 2)]
    assert [goals.piece_ends_s(age) for age in (5, 15, 25, 40)] == [(0, 10), (10, 20), (20, 30), (30, math.inf)]
    assert goals.of_priority(Priority.MUST_SATISFY) == (Measure.MEMORY,)
    assert goals.of_priority(Priority.BEST_EFFORT) == (Measure.LATENCY,), "if nothing is said"
    assert goals.of_priority(Priority.DONT_CARE) == ()
    assert Goals().piece_ends_s(7) == (0.0, math.inf)


def test_without_a_word_nothing_may_be_shed() -> None:
    assert (Goals().mtre, Goals().shed_by) == (0.0, None)
    assert Goals(mtre=1.0).mtre == 1.0
    for mtre in (-0.01, 1.01, math.nan):
        with pytest.raises(InvalidValueError, match="out of range") as caught:
            Goals(mtre=mtre)
        assert ("per cent" in str(caught.value)) == (mtre > 1)


def test_a_goal_that_is_just_met_is_not_violated() -> None:
    for measure in Measure:
        assert not measure.is_violated(100, 100)
        assert measure.is_violated(99.9, 100) == measure.is_floor
        assert measure.is_violated(100.1, 100) != measure.is_floor


def test_slack_is_a_share_of_the_goal_between_none_and_all() -> None:
    assert Measure.LATENCY.slack(0.2, 0.5) == pytest.approx(0.6)
    assert Measure.LATENCY.slack(0.5, 0.5) == 0.0
    assert Measure.LATENCY.slack(0.7, 0.5) == 0.0
    assert Measure.THROUGHPUT.slack(70, 100) == 0.0
    assert Measure.THROUGHPUT.slack(500, 100) == 1.0
    assert Measure.THROUGHPUT.slack(500, 0) == 0.0


def test_latency_and_memory_are_ceilings_and_throughput_is_a_floor() -> None:
    assert Measure.LATENCY.is_violated(2.0, 1.0)
    assert not Measure.MEMORY.is_violated(1.0, 1.0)
    assert Measure.THROUGHPUT.is_violated(50, 100)
    assert Measure.LATENCY.slack(1.0, 2.0) == 0.5
    assert Measure.THROUGHPUT.slack(150, 100) == 0.5
    assert Measure.MEMORY.slack(0.0, 0.0) == 0.0


def test_weights_of_classes_must_fall() -> None:
    with pytest.raises(InvalidValueError, match="must fall"):
        PriorityWeights(1.0, 1.0, 0.1)
    for weights in ((1.0, 0.5, 0.5), (1.0, 0.5, 0.0), (1.0, 0.5, -1.0), (math.inf, 0.5, 0.1), (math.nan, 0.5, 0.1)):
        with pytest.raises(InvalidValueError, match="must fall"):
            PriorityWeights(*weights)
    assert [PriorityWeights(3, 2, 0.5).of(priority) for priority in Priority] == [3, 2, 0.5]
    assert [PriorityWeights(3, 2, 0.5).range_of(priority) for priority in Priority] == [1, 1.5, 0.5]
    assert PriorityWeights() == PriorityWeights(1.0, 0.5, 0.01), "the thesis's"
    assert PriorityWeights().range_of(Priority.BEST_EFFORT) == pytest.approx(0.49)


def test_goals_in_a_spec_file() -> None:
    spec = parse_spec(SPEC)
    goals = spec.network.outputs[0].qos.goals
    assert goals == Goals(
        {
            Measure.LATENCY: Goal(OverTime((0.0,), (0.5,)), Priority.MUST_SATISFY),
            Measure.MEMORY: Goal(OverTime((0.0, 500.0, 500.0), (1e7, 1e7, 1e6)), Priority.DONT_CARE),
            Measure.THROUGHPUT: Goal(OverTime((0.0, 10.0), (100.0, 200.0)), Priority.BEST_EFFORT),
        },
        0.2,
        SheddingBy("v", DropOrder.CENTRE),
    )
    assert spec.priorities == PriorityWeights(2, 1, 0.1)
    assert parse_spec(dump_spec(spec)) == spec


@pytest.mark.parametrize(
    ("old", "new", "what", "hint"),
    [
        ("must satisfy", "must satisfie", "not one of the choices", "must satisfy"),
        ("first: centre", "first: middle", "not one of the choices", None),
        ("mtre: 0.2", "mtre: 20", "out of range", "fraction"),
        ("[[0, 0.5]]", "[[0, 0.5], [-1, 1]]", "forward in time", None),
        ("memory_bytes", "memory_mb", "unsupported key", "memory_bytes"),
        ("best_effort: 1", "best_effort: 3", "must fall", None),
    ],
)
def test_bad_goals_in_a_spec_file_are_named_with_their_line(old: str, new: str, what: str, hint: str | None) -> None:
    text = SPEC.replace(old, new)
    line = 1 + next(i for i, row in enumerate(text.splitlines()) if new in row)
    with pytest.raises((SpecError, InvalidValueError), match=what) as caught:
        parse_spec(text, "file.yaml")
    assert f"file.yaml line {line}" in str(caught.value)
    assert hint is None or hint in str(caught.value)
