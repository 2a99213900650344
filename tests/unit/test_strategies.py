"""What each strategy makes of a query, number by number: units, the order of turns, how many tuples a turn takes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from streamshed.errors import UnknownNameError
from streamshed.network import NetworkBuilder, Statistics
from streamshed.scheduling import (
    STRATEGIES,
    Job,
    PathCapacity,
    RoundRobin,
    Segment,
    SimplifiedSegment,
    Step,
    Strategy,
    Turn,
    Unit,
    WeightedRoundRobin,
    arc_bytes,
    capacity_tps,
    jobs,
    release_bps,
    segments,
    simplified_segments,
    strategy_named,
    tuple_bytes,
)

PLENTY = 2**31

# A join of two paths, and what follows it. Seconds per tuple, and tuples handed on per tuple:
# the left path takes 0.004 + 0.5·(0.003 + 1·0.001) = 0.006 s a tuple, the right one 0.002 + 0.8·(0.005 + 0.5·0.001).
LEFT, RIGHT = Step("s->l", "l", 0.004, 0.5, 40, 40), Step("t->r", "r", 0.002, 0.8, 40, 40)
JOIN_LEFT = Step("l->j.left", "j", 0.003, 1.0, 40, 60, weight=2.0)
JOIN_RIGHT = Step("r->j.right", "j", 0.005, 0.5, 40, 60, weight=2.0)
TOP = Step("j->top", "top", 0.001, 1.0, 60, 0)
PAIRS = Job("pairs", ((LEFT, JOIN_LEFT, TOP), (RIGHT, JOIN_RIGHT, TOP)))


def tasks_of(strategy: Strategy, waiting: Mapping[str, float], turns: int) -> list[tuple[str, ...]]:
    found = [strategy.next(waiting) for _ in range(turns)]
    return [turn.tasks for turn in found if turn is not None]


def slices_of(strategy: Strategy, **waiting: float) -> list[tuple[str, int]]:
    turn = strategy.next({name.replace("_", "->"): tuples for name, tuples in waiting.items()})
    assert turn is not None
    return [(part.step.id, part.most) for part in turn.slices]


# --- steps and jobs --------------------------------------------------------------------------------------------------


def test_a_capacity_is_one_tuple_over_what_it_takes_all_the_way() -> None:
    assert capacity_tps((LEFT, JOIN_LEFT, TOP)) == pytest.approx(1 / 0.006)
    assert capacity_tps((RIGHT, JOIN_RIGHT, TOP)) == pytest.approx(1 / 0.0064)
    assert capacity_tps((JOIN_RIGHT,)) == pytest.approx(200)


def test_what_a_segment_sets_free_is_what_comes_in_less_what_is_left_at_its_end() -> None:
    # 40 bytes come in, 0.8·0.5·60 = 24 leave, 1/(0.002 + 0.8·0.005) = 166.7 times a second.
    assert release_bps((RIGHT, JOIN_RIGHT)) == pytest.approx(16 / 0.006)
    # At the end of the path nothing is left; and a step that makes tuples larger takes memory.
    assert release_bps((RIGHT, JOIN_RIGHT, TOP)) == pytest.approx(40 / 0.0064)
    assert JOIN_LEFT.release_bps == pytest.approx(-20 / 0.003)
    # What costs nothing and changes nothing sets nothing free; what costs nothing and shrinks sets all free at once.
    assert Step("a", "a", 0.0).release_bps == 0.0
    assert Step("a", "a", 0.0, 0.5).release_bps == math.inf


def test_a_jobs_steps_come_level_by_level_each_once() -> None:
    assert [step.id for step in PAIRS.steps] == ["s->l", "t->r", "l->j.left", "r->j.right", "j->top"]
    # A step on two paths is as deep as on the longer one: it comes after all that it may read.
    short = Job("q", ((JOIN_LEFT, TOP), (RIGHT, LEFT, JOIN_RIGHT, TOP)))
    assert [step.id for step in short.steps] == ["l->j.left", "t->r", "s->l", "r->j.right", "j->top"]
    shared = Job("q", ((TOP,), (LEFT, TOP)))
    assert [step.id for step in shared.steps] == ["s->l", "j->top"]


def test_time_is_shared_by_operators_and_a_join_is_one() -> None:
    strategy = PathCapacity()
    strategy.add(PAIRS)
    assert strategy.weight == 4
    strategy.add(Job("lone", ((Step("u->x", "x", 0.001),),), weight=0.25))
    assert strategy.weight == 4.25
    strategy.add(Job("lone", ((Step("u->x", "x", 0.001), Step("x->y", "y", 0.001)),), weight=0.5))
    assert strategy.weight == 5
    assert strategy.remove("pairs") is PAIRS
    assert strategy.weight == 1
    with pytest.raises(UnknownNameError, match="does not have the query"):
        strategy.remove("pairs")


# --- turns -----------------------------------------------------------------------------------------------------------


def test_the_inputs_of_a_join_share_its_time() -> None:
    strategy = RoundRobin(quantum_s=0.1)
    strategy.add(PAIRS)
    assert slices_of(strategy, **{"l->j.left": 5}) == [("l->j.left", 16), ("r->j.right", 10)]  # 0.05 s for each
    assert slices_of(strategy, s_l=5) == [("s->l", 25)]
    turn = strategy.next({"t->r": 1.0})
    assert turn is not None
    assert (turn.job, turn.strategy, turn.quantum_s) == ("pairs", "round-robin", 0.1)


def test_a_turn_takes_one_tuple_at_least_and_what_is_free_takes_all() -> None:
    strategy = RoundRobin(quantum_s=0.01)
    strategy.add(Job("q", ((Step("s->dear", "dear", 1.0), Step("dear->free", "free", 0.0)),)))
    assert slices_of(strategy, s_dear=5) == [("s->dear", 1)]
    assert slices_of(strategy, dear_free=5) == [("dear->free", PLENTY)]
    path = PathCapacity(quantum_s=0.01)
    path.add(Job("q", ((Step("s->free", "free", 0.0), Step("free->dear", "dear", 1.0)),)))
    assert slices_of(path, s_free=5) == [("s->free", 1), ("free->dear", 1)]
    path.add(Job("q", ((Step("s->free", "free", 0.0), Step("free->rest", "rest", 0.0)),)))
    assert slices_of(path, s_free=5) == [("s->free", PLENTY), ("free->rest", PLENTY)]


def test_weights_multiply_the_time_of_an_operator() -> None:
    strategy = WeightedRoundRobin(quantum_s=0.1)
    strategy.add(PAIRS)
    assert slices_of(strategy, **{"l->j.left": 5}) == [("l->j.left", 33), ("r->j.right", 20)]  # 0.2 s for both
    assert slices_of(strategy, s_l=5) == [("s->l", 25)]


def test_round_robin_goes_from_the_leaves_to_the_root_and_skips_who_has_nothing_to_do() -> None:
    strategy = RoundRobin()
    strategy.add(PAIRS)
    strategy.add(Job("lone", ((Step("u->x", "x", 0.001),),)))
    everything = dict.fromkeys(("j->top", "u->x", "r->j.right", "t->r", "s->l"), 1.0)
    assert tasks_of(strategy, everything, 7) == [("l",), ("r",), ("j",), ("top",), ("x",), ("l",), ("r",)]
    # Next is the join: from there on it is the nearest that has something to do, around the corner, too.
    assert tasks_of(strategy, {"s->l": 1.0, "u->x": 1.0, "j->top": 0.0}, 3) == [("x",), ("l",), ("x",)]
    assert tasks_of(strategy, {"s->l": 1.0, "l->j.left": 1.0, "t->r": 1.0}, 1) == [("l",)]


def test_new_statistics_do_not_begin_the_round_anew() -> None:
    strategy = RoundRobin()
    strategy.add(PAIRS)
    everything = dict.fromkeys(("s->l", "t->r", "l->j.left", "j->top"), 1.0)
    assert tasks_of(strategy, everything, 2) == [("l",), ("r",)]
    strategy.add(PAIRS)
    assert tasks_of(strategy, everything, 1) == [("j",)]
    strategy.add(Job("pairs", ((LEFT,),)))  # what was next is gone: from the beginning
    strategy.add(Job("lone", ((Step("u->x", "x", 0.001),),)))
    assert tasks_of(strategy, {"s->l": 1.0, "u->x": 1.0}, 2) == [("l",), ("x",)]
    strategy.remove("pairs")
    assert strategy.next({"s->l": 1.0}) is None


def test_path_capacity_takes_the_faster_path_and_asks_again() -> None:
    strategy = PathCapacity(quantum_s=0.1)
    strategy.add(PAIRS)
    # The left path carries 166.7 tuples/s, the right one 156.25; three operators have 0.3 s.
    assert slices_of(strategy, s_l=1, t_r=99) == [("s->l", 50), ("l->j.left", 100), ("j->top", 300)]
    assert slices_of(strategy, t_r=99) == [("t->r", 46), ("r->j.right", 60), ("j->top", 300)]
    # A tuple on what both share goes on with the faster one; so does one that a change of strategy left in between.
    assert tasks_of(strategy, {"j->top": 1.0}, 1) == [("l", "j", "top")]
    assert tasks_of(strategy, {"r->j.right": 1.0}, 1) == [("r", "j", "top")]
    assert strategy.next({"t->r": 0.0, "elsewhere": 3.0}) is None


def test_segments_of_the_pairs_and_who_is_first() -> None:
    # Released per second: l 40·0.5/0.004 = 5,000, j.left −6,667, top 60,000; r 4,000, j.right 2,000.
    assert [[step.task for step in part] for part in segments((LEFT, JOIN_LEFT, TOP))] == [["l"], ["j", "top"]]
    assert [[step.task for step in part] for part in segments((RIGHT, JOIN_RIGHT, TOP))] == [["r"], ["j", "top"]]
    strategy = Segment(quantum_s=0.1)
    strategy.add(PAIRS)
    everything = dict.fromkeys(("s->l", "t->r", "l->j.left", "r->j.right", "j->top"), 1.0)
    # By segments: (j.left, top) 40/0.004 = 10,000, (j.right, top) 40/0.0055 = 7,273, l 5,000, r 8/0.002 = 4,000.
    assert slices_of(strategy, **everything) == [("l->j.left", 50), ("j->top", 200)]
    del everything["l->j.left"], everything["j->top"]
    assert slices_of(strategy, **everything) == [("r->j.right", 36), ("j->top", 200)]
    del everything["r->j.right"]
    assert slices_of(strategy, **everything) == [("s->l", 25)]
    assert slices_of(strategy, t_r=1) == [("t->r", 50)]


def test_a_segment_goes_on_with_who_is_as_fast_and_a_simplified_one_with_who_is_nearly() -> None:
    def step(name: str, released: float) -> Step:
        return Step(name, name, 1.0, 1.0, 100 + released, 100)

    def cut(found: list[tuple[Step, ...]]) -> list[str]:
        return ["".join(step.task for step in part) for part in found]

    path = [step("a", 8), step("b", 8), step("c", 6), step("d", 4), step("e", 4)]
    assert cut(segments(path)) == ["ab", "c", "de"]
    assert cut(simplified_segments(path)) == ["abc", "de"], "c has three quarters of b, d less of c"
    assert cut(simplified_segments(path, 0.5)) == ["abcde"]
    assert cut(simplified_segments(path[2:4], 0.75)) == ["c", "d"]
    assert cut(simplified_segments(path[:1])) == cut(segments(path[:1])) == ["a"]
    # Where memory is taken, the plain order decides: −4 does not keep up with −3, nor −1 with 0.
    down = [step("a", -3), step("b", -4), step("c", -3), step("d", 0), step("e", -1)]
    assert cut(segments(down)) == ["a", "bcd", "e"]
    assert cut(simplified_segments(down)) == ["a", "bcde"]
    assert cut(simplified_segments([step("a", -4), step("b", -3.5)])) == ["ab"]
    assert cut(simplified_segments([step("a", -4), step("b", -4.5)])) == ["a", "b"], "three quarters are no excuse"
    assert cut(simplified_segments([step("a", 1), step("b", 0.8)])) == ["ab"], "little is a ratio, too"
    assert cut(simplified_segments([step("a", 0.5), step("b", 0.4)])) == ["ab"]


def test_simplified_segment_has_two_segments_where_segment_has_three() -> None:
    path = (
        Step("s->a", "a", 0.01, 0.5, 100, 100),
        Step("a->b", "b", 0.01, 0.5, 100, 100),
        Step("b->c", "c", 0.02, 0.5, 100, 100),
        Step("c->d", "d", 0.05, 1.0, 100, 0),
    )
    # 5,000, 5,000, 2,500 and 2,000 bytes a second: a and b together, then c, then d, which is no match for three
    # quarters of b's.
    three, two = Segment(), SimplifiedSegment()
    for strategy in (three, two):
        strategy.add(Job("q", (path,)))
    assert [turn.tasks for name in ("s->a", "b->c", "c->d") if (turn := three.next({name: 1.0}))] == [
        ("a", "b"),
        ("c",),
        ("d",),
    ]
    assert [turn.tasks for name in ("s->a", "b->c", "c->d") if (turn := two.next({name: 1.0}))] == [
        ("a", "b"),
        ("c", "d"),
        ("c", "d"),
    ]


def test_every_strategy_is_known_by_its_name() -> None:
    assert list(STRATEGIES) == [
        "round-robin", "weighted-round-robin", "path-capacity", "segment", "simplified-segment",
    ]  # fmt: skip
    for name, kind in STRATEGIES.items():
        assert strategy_named(name) is kind
        strategy = kind()
        assert strategy.quantum_s == 0.01
        strategy.add(PAIRS)
        turn = strategy.next({"s->l": 1.0})
        assert turn is not None
        assert turn.strategy == name


# --- from networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STRATEGIES.values())
def test_a_strategy_without_queries_has_nothing_to_do_and_arranges_once_what_it_has(kind: type[Strategy]) -> None:
    strategy, arranged = kind(), []
    assert strategy.next({"s->l": 1.0}) is None
    assert strategy.weight == 0
    arrange = strategy._arrange

    def counted(units: list[Unit]) -> None:
        arranged.append(len(units))
        arrange(units)

    strategy._arrange = counted  # type: ignore[method-assign]
    strategy.add(PAIRS)
    for _ in range(3):
        assert strategy.next({"s->l": 1.0}) is not None
    assert len(arranged) == 1, "a turn takes no time to find"
    strategy.remove("pairs")
    assert strategy.next({"s->l": 1.0}) is None
    assert len(arranged) == 2


def test_steps_and_turns_are_plain_where_nothing_is_said() -> None:
    plain = Step("s->a", "a", 0.5)
    assert (plain.selectivity, plain.bytes_in, plain.bytes_out, plain.weight) == (1, 1, 1, 1)
    assert Job("q", ((plain,),)).weight == 1
    assert Turn("q", "segment", ()).quantum_s == 0


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("boolean", 1), ("tinyint", 1), ("smallint", 2), ("int", 4), (" INTEGER ", 4), ("float", 4), ("date", 4),
        ("bigint", 8), ("double", 8), ("timestamp", 8), ("decimal(10,2)", 8), (None, 8), ("", 8), ("string", 20),
        ("varchar(3)", 20), ("char(3)", 20), ("binary", 20),
    ],
)  # fmt: skip
def test_sizes_of_columns(kind: str | None, size: int) -> None:
    assert tuple_bytes({"a": kind}) == size
    assert tuple_bytes({"a": kind, "b": kind, "c": "smallint"}) == 2 * size + 2


def test_sizes_come_from_measurements_where_there_are_some() -> None:
    new = NetworkBuilder("n")
    parsed = new.stream("s", {"text": "string"}).map("parse", {"a": "length(text)", "b": "text"})
    parsed.filter("f", "a > 1").output("o")
    network = new.build()
    by_types = arc_bytes(network)
    assert {name: by_types[name] for name in ("s", "s->parse")} == {"s": 20.0, "s->parse": 20.0}
    measured = arc_bytes(network, {"s": 35.0, "parse": 50.0})
    assert measured == {"s": 35.0, "s->parse": 35.0, "parse->f": 50.0, "f->o": by_types["f->o"]}
    (job,) = jobs(network, Statistics({"parse": 0.002, "f": 0.001}, {"f": 0.25}), {"parse": 50.0})
    ((first, last),) = job.paths
    assert (first.bytes_in, first.bytes_out, first.cost_s, first.selectivity, first.weight) == (20, 50, 0.002, 1, 2)
    assert (last.bytes_in, last.bytes_out, last.cost_s, last.selectivity, last.weight) == (50, 0, 0.001, 0.25, 1)
    assert job.weight == 1


def test_the_branches_of_a_split_have_selectivities_of_their_own() -> None:
    new = NetworkBuilder("n")
    ways = new.stream("s", {"v": "double"}).split("ways", {"low": "v < 3", "high": "v >= 3"})
    ways["low"].map("m", {"v": "v"}).output("some")
    ways["high"].output("rest")
    statistics = Statistics({"ways": 0.001, "m": 0.002}, {"ways.low": 0.25, "ways.high": 0.75})
    (job,) = jobs(new.build(), statistics)
    assert [[(step.id, step.selectivity) for step in path] for path in job.paths] == [
        [("s->ways", 0.25), ("ways.low->m", 1.0)],
        [("s->ways", 0.75)],
    ]
