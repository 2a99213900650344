"""Stages as what is scheduled: which outputs are one query, what is foreseen of a stage, and its steps."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.network.stages import Stage, stages
from streamshed.scheduling import StageCapacity, foreseen, stage_jobs, stage_queries, step_id

COLUMNS = {"ts": "timestamp", "k": "int", "v": "double"}  # 20 bytes
STATISTICS = Statistics(
    {"parse": 0.001, "ways": 0.002, "hot": 0.004, "j": 0.01, "late": 0.003},
    {"parse": 0.5, "ways.high": 0.25, "ways.low": 0.75, "hot": 0.2, "j": 3.0},
)
RATES = {"s": 100.0, "t": 40.0}


def network() -> Network:
    """`parse` and the join are stages of their own; a split's branches go to a stage each."""
    new = NetworkBuilder("n")
    parsed = new.stream("s", COLUMNS, time="ts").map("parse", {"ts": "ts", "k": "k", "v": "v"}, stage=True)
    ways = parsed.split("ways", {"high": "v > 5", "low": "v <= 5"})
    ways["high"].filter("hot", "v > 7").output("alarms")
    ways["low"].output("rest")
    other = new.stream("t", {"ts": "timestamp", "k": "int", "w": "smallint"}, time="ts")
    pairs = parsed.join("j", other, on=["k"], within_s=1, stage=True)
    pairs.filter("late", "v > 1").output("paired")
    pairs.output("raw")
    return new.build()


def by_id(found: tuple[Stage, ...]) -> dict[str, Stage]:
    return {stage.id: stage for stage in found}


def test_what_is_foreseen_of_a_stage_is_per_row_that_comes_in() -> None:
    of = network()
    known = foreseen(of, STATISTICS, RATES, stages(of))
    # 100 rows a second come to `parse`, 50 leave it with three columns of 20 bytes.
    assert astuple(known["parse"]) == pytest.approx((0.001, 0.5, 20.0))
    # 50 rows and 40 of the other stream come to the join: 90 of 0.01 s, and 3 leave for each.
    assert astuple(known["j"]) == pytest.approx((0.01, 3.0, 22.0))
    # 50 rows come to the split, a quarter of which goes on: (50·0.002 + 12.5·0.004)/50 s a row. Nothing is handed on.
    assert known["alarms"].cost_s == pytest.approx(0.003)
    assert (known["alarms"].selectivity, known["alarms"].row_bytes) == (0.0, 0.0)
    # The other branch: the split again, for its own output.
    assert astuple(known["rest"]) == pytest.approx((0.002, 0.0, 0.0))
    # 270 rows come from the join.
    assert astuple(known["paired"]) == pytest.approx((0.003, 0.0, 0.0))
    assert astuple(known["raw"]) == pytest.approx((0.0, 0.0, 0.0))
    slow = foreseen(of, STATISTICS, dict.fromkeys(RATES, 0.25), stages(of))
    assert astuple(slow["parse"]) == pytest.approx((0.001, 0.5, 20.0)), "few rows cost as much each"
    fused = foreseen(of, STATISTICS, RATES, stages(of, together=True))
    # The last stage reads the 50 rows of `parse` and the 270 of the join, for the split, `hot` and `late`.
    load = 50 * 0.002 + 12.5 * 0.004 + 270 * 0.003
    assert astuple(fused["all outputs"]) == pytest.approx((load / 320, 0.0, 0.0))
    silent = foreseen(of, STATISTICS, dict.fromkeys(RATES, 0.0), stages(of))
    assert astuple(silent["parse"]) == pytest.approx((0.0, 0.0, 20.0)), "no rows, no cost for any"


def test_what_is_only_believed_of_a_cost_is_no_seconds() -> None:
    of = network()
    known = foreseen(of, replace(STATISTICS, believed=frozenset({"hot"})), RATES, stages(of))
    assert known["alarms"].cost_s == 0.0, "one of its operators is enough"
    assert known["rest"].cost_s == pytest.approx(0.002)
    assert astuple(known["parse"]) == pytest.approx((0.001, 0.5, 20.0))


def test_rows_of_all_branches_that_a_stage_reads_come_in() -> None:
    new = NetworkBuilder("n")
    ways = new.stream("s", COLUMNS).split("ways", {"high": "v > 5", "low": "v <= 5"}, stage=True)
    both = ways["high"].map("m", {"v": "v"}).union("u", ways["low"].map("l", {"v": "v"}))
    both.output("o")
    of = new.build()
    statistics = Statistics({"ways": 0.001, "m": 0.01, "u": 0.002}, {"ways.high": 0.25, "ways.low": 0.5})
    known = foreseen(of, statistics, {"s": 100.0}, stages(of))
    assert astuple(known["ways"]) == pytest.approx((0.001, 0.75, 20.0)), "a split's branches lie on the arc together"
    # 75 rows come, of which 25 cost 0.01 s more than 0.002 s.
    assert known["o"].cost_s == pytest.approx((25 * 0.01 + 75 * 0.002) / 75)
    # What two operators read of one branch lies there once.
    new = NetworkBuilder("n")
    once = new.stream("s", COLUMNS).map("m", {"v": "v"}, stage=True)
    once.filter("f", "v > 1").output("x")
    once.filter("g", "v > 2").output("y")
    of = new.build()
    known = foreseen(of, Statistics({"f": 0.01, "g": 0.02}), {"s": 10.0}, stages(of))
    assert (known["m"].selectivity, known["x"].cost_s, known["y"].cost_s) == pytest.approx((1.0, 0.01, 0.02))


def test_queries_that_share_a_stage_are_one() -> None:
    of = network()
    apart = stage_queries(of, stages(of))
    # All that shares operators is one query already: here everything reads `parse`.
    assert [(query.id, query.outputs) for query in apart] == [("alarms", ("alarms", "rest", "paired", "raw"))]
    new = NetworkBuilder("n")
    for name in "abcd":
        new.stream(f"s{name}", COLUMNS).filter(f"f{name}", "v > 0").output(name)
    of = new.build()
    cut = stages(of)
    alone = stage_queries(of, cut)
    assert [query.outputs for query in alone] == [("a",), ("b",), ("c",), ("d",)]

    def both(*names: str) -> Stage:
        chosen = [by_id(cut)[name] for name in names]
        return Stage(
            "+".join(names),
            tuple(one for stage in chosen for one in stage.operators),
            tuple(one for stage in chosen for one in stage.inputs),
            tuple(one for stage in chosen for one in stage.arcs),
            names,
        )

    merged = stage_queries(of, [both("a", "c"), by_id(cut)["b"], by_id(cut)["d"]])
    assert [query.outputs for query in merged] == [("b",), ("a", "c"), ("d",)]
    together = merged[1]
    assert (together.id, together.operators) == ("a", ("fa", "fc"))
    assert [path.stream for path in together.paths] == ["sa", "sc"]
    # Two groups that a third output joins are one.
    chain = stage_queries(of, [both("a", "b"), both("c", "d"), both("b", "d")])
    assert [set(query.outputs) for query in chain] == [{"a", "b", "c", "d"}]


def test_a_query_has_a_path_for_every_way_through_its_stages() -> None:
    of = network()
    cut = stages(of)
    known = {
        "parse": StageCapacity(0.001, 0.5, 22.0),
        "j": StageCapacity(0.01, 3.0, 44.0),
        "alarms": StageCapacity(0.003),
        "rest": StageCapacity(0.002),
        "paired": StageCapacity(0.004, 0.5, 0.0),
        "raw": StageCapacity(0.0),
    }
    (job,) = stage_jobs(of, cut, stage_queries(of, cut), known)
    ways = {tuple(step.id for step in path) for path in job.paths}
    assert ways == {
        ("s->parse", "parse->alarms"),
        ("s->parse", "parse->rest"),
        ("s->parse", "parse->j", "j->paired"),
        ("s->parse", "parse->j", "j->raw"),
        ("t->j", "j->paired"),
        ("t->j", "j->raw"),
    }
    assert job.id == "alarms"
    steps = {step.id: step for step in job.steps}
    shown = {name: (one.task, one.bytes_in, one.bytes_out, one.weight) for name, one in steps.items()}
    assert shown["s->parse"] == ("parse", 20.0, 22.0, 2.0), "a leaf"
    assert shown["parse->j"] == ("j", 22.0, 44.0, 2.0), "a join"
    assert shown["t->j"] == ("j", 14.0, 44.0, 4.0), "both"
    assert shown["j->paired"] == ("paired", 44.0, 0.0, 1.0)
    assert shown["parse->alarms"] == ("alarms", 22.0, 0.0, 1.0)
    assert (steps["parse->j"].cost_s, steps["parse->j"].selectivity) == (0.01, 3.0)
    assert (steps["parse->alarms"].cost_s, steps["parse->alarms"].selectivity) == (0.003, 1.0)
    assert step_id("parse", "j") == "parse->j"


def test_a_stage_with_a_join_among_others_counts_as_one() -> None:
    new = NetworkBuilder("n")
    left = new.stream("s", COLUMNS, time="ts").filter("f", "v > 0")
    left.join("j", new.stream("t", {"ts": "timestamp", "k": "int"}, time="ts"), on=["k"], within_s=1).output("o")
    of = new.build()
    cut = stages(of)
    (job,) = stage_jobs(of, cut, stage_queries(of, cut), {"o": StageCapacity(0.1)})
    assert [(step.id, step.weight) for step in job.steps] == [("s->o", 4.0), ("t->o", 4.0)]
