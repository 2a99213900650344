"""The master scheduler turn by turn: shares of time, time that is kept or owed, and when requests are carried out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import UnknownNameError
from streamshed.scheduling import Job, MasterScheduler, Step

QUANTUM_S = 0.25  # sums of it are exact
BOTH = {"s->a": 9.0, "s->b": 9.0}


def job(name: str, *tasks: str, weight: float = 1.0) -> Job:
    return Job(name, tuple((Step(f"s->{task}", task, 0.01),) for task in tasks or (name,)), weight)


def two() -> MasterScheduler:
    """`a` and `b` with an operator each, under a strategy each."""
    master = MasterScheduler(QUANTUM_S)
    master.start(job("a"), "round-robin")
    master.start(job("b"), "segment")
    return master


def run(master: MasterScheduler, *took_s: float, waiting: dict[str, float] | None = None) -> str:
    """Who has the turns, one after the other."""
    order = ""
    for seconds in took_s:
        turn = master.next(BOTH if waiting is None else waiting)
        assert turn is not None
        master.spent(seconds)
        order += turn.job
    return order


def test_a_round_gives_each_strategy_its_quanta() -> None:
    assert run(two(), *[0.25] * 6) == "ababab"
    assert run(two(), *[0.125] * 8) == "aabbaabb"


def test_shares_are_operators_times_what_their_queries_count() -> None:
    master = MasterScheduler(QUANTUM_S)
    master.start(job("a", "a", "c", "d"), "round-robin")
    master.start(job("b", "b", "e", weight=0.5), "segment")
    waiting = {f"s->{name}": 9.0 for name in "abcde"}
    assert run(master, *[0.25] * 8, waiting=waiting) == "aaabaaab"


def test_a_turn_that_took_too_long_is_paid_back_in_the_rounds_that_follow() -> None:
    assert run(two(), 1.0, *[0.25] * 7) == "abbbbaba", "four quanta at once, then the other one has four"


def test_rounds_in_which_nobody_could_run_go_by_at_once() -> None:
    # Both owe three quanta. After the fourth round each has one; one that owes more waits for what it owes more.
    assert run(two(), 1.0, 1.0, *[0.25] * 4) == "ababab"
    assert run(two(), 1.0, 1.5, *[0.25] * 5) == "abaaaba"
    # With twice the weight, twice as much is paid back in a round.
    master = two()
    master.start(job("b", "b", weight=2.0), "segment")
    assert run(master, 1.0, 2.0, *[0.25] * 6) == "ababbabb"


def test_what_is_owed_is_counted_in_whole_rounds() -> None:
    # Either owes two and a half quanta: after three rounds either has half of one.
    assert run(two(), 0.875, 0.875, *[0.25] * 5) == "abababa"
    # With quanta of 2 s, either owes one and a half.
    master = MasterScheduler(2.0)
    master.start(job("a"), "round-robin")
    master.start(job("b"), "segment")
    assert run(master, 5.0, 5.0, *[2.0] * 4) == "ababab"


def test_what_a_strategy_cannot_use_is_kept_for_two_rounds() -> None:
    master = two()
    assert run(master, *[0.25] * 10, waiting={"s->a": 9.0}) == "a" * 10
    assert run(master, *[0.25] * 6) == "bbabab"
    assert run(master, 0.25, waiting={"s->a": 9.0}) == "a"
    assert run(master, *[0.25] * 4) == "baba"


def test_where_nothing_waits_nobody_has_missed_anything_and_nobody_owes_anything() -> None:
    master = two()
    assert run(master, 1.0) == "a"
    assert master.next({}) is None
    assert run(master, *[0.25] * 4) == "abab"
    master = two()
    assert run(master, 0.125) == "a"
    assert master.next({"s->c": 5.0}) is None
    assert run(master, 0.125, 0.125, 0.25) == "aab", "a whole new round"


def test_the_time_of_a_turn_counts_for_who_had_it() -> None:
    master = two()
    master.spent(5.0)  # nobody has run yet
    assert run(master, 0.25, 0.25) == "ab"
    master.stop("b")
    master.spent(5.0)
    assert run(master, 1.0, 0.25) == "aa"
    master.spent(1.0)  # `b` is gone, and `a` had the last turn
    master.start(job("b"), "segment")
    assert run(master, *[0.25] * 6) == "bbbbab"


def test_requests_are_carried_out_in_their_order() -> None:
    master = MasterScheduler(QUANTUM_S)
    master.change("a", "segment")  # not there yet: nothing to change
    master.update(job("a", "c"))
    master.stop("a")
    master.start(job("a"), "segment")
    master.update(job("a", "a", "c"))
    master.change("a", "path-capacity")
    assert master.strategy_of("a") is None
    turn = master.next({"s->c": 1.0})
    assert turn is not None
    assert (turn.strategy, turn.tasks, master.strategy_of("a")) == ("path-capacity", ("c",), "path-capacity")
    master.start(job("a"), "round-robin")  # there already: new statistics, and the strategy
    master.spent(1.0)
    assert master.next({"s->c": 1.0}) is None
    assert master.strategy_of("a") == "round-robin"
    turn = master.next({"s->a": 1.0})
    assert turn is not None
    assert turn.strategy == "round-robin"
    master.stop("a")
    master.spent(1.0)
    assert master.next({"s->a": 1.0}) is None
    assert master.strategy_of("a") is None
    master.start(job("a"), "segment")
    assert master.next({"s->a": 1.0}) is not None
    master.stop("a")
    master.start(job("b"), "segment")
    turn = master.next({"s->b": 1.0})
    assert turn is not None
    assert (turn.job, master.strategy_of("a"), master.strategy_of("b")) == ("b", None, "segment")
    assert MasterScheduler().quantum_s == 0.01


def test_a_query_is_under_one_strategy_at_a_time() -> None:
    master = two()
    assert run(master, 0.25, 0.25) == "ab"
    master.change("a", "segment")
    # Two operators under one strategy: a round is half a second, and nobody is left under round robin.
    for _ in range(4):
        turn = master.next(BOTH)
        assert turn is not None
        assert turn.strategy == "segment"
        master.spent(0.25)
    master.change("b", "round-robin")
    assert run(master, *[0.25] * 6) in ("ababab", "bababa")


def test_strategies_that_are_not_known_are_refused_at_once() -> None:
    master = two()
    with pytest.raises(UnknownNameError, match="no strategy 'fifo'"):
        master.start(job("c"), "fifo")
    with pytest.raises(UnknownNameError, match="no strategy 'fifo'"):
        master.change("a", "fifo")


@settings(max_examples=30, deadline=None)
@given(
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    turns=st.lists(st.integers(1, 12), min_size=1, max_size=6),
)
def test_shares_hold_over_time_however_long_turns_are(weights: list[int], turns: list[int]) -> None:
    master = MasterScheduler(QUANTUM_S)
    names = ["round-robin", "weighted-round-robin", "path-capacity", "segment"]
    for number, weight in enumerate(weights):
        master.start(job(f"q{number}", weight=float(weight)), names[number])
    waiting = {f"s->q{number}": 1.0 for number in range(len(weights))}
    time_s = dict.fromkeys((f"q{number}" for number in range(len(weights))), 0.0)
    for look in range(1500):
        turn = master.next(waiting)
        assert turn is not None
        took_s = QUANTUM_S * turns[look % len(turns)] / 4
        master.spent(took_s)
        time_s[turn.job] += took_s
    total_s = sum(time_s.values())
    for number, weight in enumerate(weights):
        due_s = total_s * weight / sum(weights)
        # One turn too long, and two rounds kept, on either side.
        assert abs(time_s[f"q{number}"] - due_s) <= 3 * QUANTUM_S + 3 * weight * QUANTUM_S
