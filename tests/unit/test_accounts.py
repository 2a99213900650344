"""The accounts of queries behind a gate: what is entered, what is counted again, which thresholds stay."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark import accounts
from streamshed.engines.spark.ledger import Ledger
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from tests.books_world import PLACES, START_S, DiskFullError, Query, World, world


@pytest.fixture
def now(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        made.open()
        yield made


def begin(now: World, query: Query, tuples: int = 0) -> None:
    """A batch of a query starts, with so many more tuples of each stream."""
    if not query.isActive:
        now.start(query)
    for stream in query.streams:
        now.arrive(stream, tuples)
    now.go(query)


def end(now: World, query: Query) -> str:
    """The batch goes through to its end; give Spark's report on it, which nobody has got."""
    while query.running is not None:
        now.go(query)
    return now.reports.pop()[1]


def run(now: World, query: Query, tuples: int, *, reported: bool = True) -> str:
    """A batch from begin to end."""
    begin(now, query, tuples)
    text = end(now, query)
    if reported:
        now.live.on_batch(BatchReport.from_json(text))
    return text


def drop(now: World, **fractions: float) -> None:
    """Change the thresholds, and wait until they hold."""
    now.live.apply({name.replace("_x", "->x"): fraction for name, fraction in fractions.items()})
    now.elapse(0.2)


def counts(now: World) -> dict[tuple[int, str], tuple[int, int, int, int]]:
    """By batch and drop: arrived, delivered, dropped, malformed."""
    return {(row.batch_id, row.drop): (row.arrived, row.delivered, row.dropped, row.malformed) for row in now.rows()}


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_report_becomes_a_row_for_each_drop(now: World) -> None:
    drop(now, a=0.5, a_x=0.75)
    query = now.queries["deep"]
    run(now, query, 100)
    entry, inner = sorted(now.rows(), key=lambda row: row.drop)
    batch = query.batches[0]
    assert (entry.drop, entry.stream, entry.entry, entry.source, entry.fraction) == ("a", "a", True, True, 0.5)
    assert (inner.drop, inner.stream, inner.entry, inner.source, inner.fraction) == ("a->x", "a", False, False, 0.75)
    # Of 100 tuples those with the numbers 5, 18, ... 96 are malformed: 8.
    assert (entry.arrived, entry.malformed) == (100, 8)
    assert inner.arrived == entry.delivered == batch.counts(PLACES["a"])[2]
    assert inner.delivered == batch.counts(PLACES["a->x"])[2]
    assert {(row.batch_id, row.time_ms, row.output, row.recounted, row.run_id) for row in (entry, inner)} == {
        (0, batch.time_ms, "deep", False, "deep-1")
    }
    assert entry.sources == [{"description": "a", "start": {"index": 0}, "end": None}]


def test_a_place_where_nothing_is_dropped_has_no_fraction(now: World) -> None:
    drop(now, a=0.5, b=0.5)
    run(now, now.queries["stage"], 100)
    arc = next(row for row in now.rows() if row.drop == "arc")
    assert (arc.fraction, arc.arrived, arc.delivered, arc.dropped) == (0.0, 100, 100, 0)
    assert (arc.entry, arc.source) == (False, True)


def test_a_drop_without_counts_had_nothing(now: World) -> None:
    """Its source had nothing, and the optimiser took it out."""
    query = now.queries["stage"]
    begin(now, query, 10)
    report = json.loads(end(now, query))
    del report["observedMetrics"][f"{query.token}/arc/tuples"]
    now.live.on_batch(BatchReport.from_json(json.dumps(report)))
    assert counts(now)[0, "arc"] == (0, 0, 0, 0)
    assert counts(now)[0, "b"] == (10, 9, 0, 1)


def test_reports_of_others_and_of_batches_that_are_not_in_the_log_are_none(now: World) -> None:
    query = now.queries["deep"]
    text = run(now, query, 10, reported=False)
    report = BatchReport.from_json(text)
    assert now.live.accounts.enter(replace(report, query_id="other")) is None
    assert now.live.accounts.enter(replace(report, batch_id=7)) is None
    assert now.rows() == []
    entered = now.live.accounts.enter(report)
    assert entered == {"a": DropCounts(10, 1, 9), "a->x": DropCounts(9, 0, 9)}


def test_a_row_names_the_run_that_ran_the_batch(now: World) -> None:
    query = now.queries["deep"]
    text = run(now, query, 10, reported=False)
    now.stop(query)
    now.start(query)
    now.live.on_batch(BatchReport.from_json(text))
    assert {row.run_id for row in now.rows()} == {"deep-1"}


# --- queries ---------------------------------------------------------------------------------------------------------


def test_a_query_is_noted_with_its_checkpoint_and_the_order_of_its_sources(now: World) -> None:
    query = now.queries["self"]
    now.start(query)
    gated = now.live.accounts.queries[query.id]
    assert (gated.drops, gated.plan_order) == (["b", "a"], ["b", "a", "b"])
    noted = now.live.accounts.ledger.queries()[query.id]
    assert (noted.output, noted.checkpoint, noted.first_batch, noted.drops) == (
        "self", query.root.as_uri(), 0, ["b", "a"],
    )  # fmt: skip


def test_drops_further_in_are_no_sources(now: World) -> None:
    query = now.queries["deep"]
    now.start(query)
    gated = now.live.accounts.queries[query.id]
    assert (gated.drops, gated.plan_order) == (["a->x", "a"], ["a"])


def test_a_query_without_our_drops_is_not_ours(now: World) -> None:
    query = now.queries["deep"]
    query.token = "somebody/else"
    assert now.live.watch(query) is None  # type: ignore[arg-type]
    assert now.live.accounts.queries == {}
    assert list((now.directory / "ledger").iterdir()) == []


def test_a_query_is_noted_once_a_run(now: World) -> None:
    query = now.queries["deep"]
    now.start(query)
    known = now.live.accounts.queries[query.id]
    assert now.live.watch(query) is known  # type: ignore[arg-type]
    now.stop(query)
    now.start(query)
    assert now.live.accounts.queries[query.id] is not known
    (file,) = (now.directory / "ledger").iterdir()
    assert len(file.read_text().splitlines()) == 1


def test_batches_that_ran_before_the_query_was_under_control_are_nobodys(now: World) -> None:
    query = now.queries["deep"]
    query.token = "somebody/else"
    query.isActive = True
    for _ in range(3):
        run(now, query, 10, reported=False)
    now.stop(query)
    run(now, query, 10)
    now.stop(query)
    assert now.live.accounts.ledger.queries()[query.id].first_batch == 3
    assert now.live.settle() == []
    assert {batch_id for batch_id, _ in counts(now)} == {3}
    assert now.live.accounts.accounted(now.live.accounts.queries[query.id]) == 3


def test_a_query_that_cannot_be_noted_is_not_taken_for_known(now: World) -> None:
    """Or its replays would go unpinned after a restart."""
    query = now.queries["deep"]
    now.fill()
    query.token, query.runs = now.live._token, 1
    with pytest.raises(DiskFullError):
        now.live.watch(query)  # type: ignore[arg-type]
    assert now.live.accounts.queries == {}
    now.start(query)
    assert list(now.live.accounts.ledger.queries()) == [query.id]


# --- what is missing -------------------------------------------------------------------------------------------------


def test_the_last_batch_of_a_query_that_runs_is_not_missed_yet(now: World) -> None:
    query = now.queries["deep"]
    for _ in range(3):
        run(now, query, 10, reported=False)
    gated = now.live.accounts.queries[query.id]
    assert now.live.accounts.missing(gated) == {0, 1}
    now.stop(query)
    assert now.live.accounts.missing(gated) == {0, 1, 2}


def test_a_batch_that_is_noted_as_open_is_missed_at_once(now: World) -> None:
    query = now.queries["deep"]
    run(now, query, 10, reported=False)
    now.live.accounts.ledger.open_batch(query.id, 0)
    assert now.live.accounts.missing(now.live.accounts.queries[query.id]) == {0}


def test_a_query_without_batches_misses_nothing(now: World) -> None:
    query = now.queries["deep"]
    now.start(query)
    gated = now.live.accounts.queries[query.id]
    assert now.live.accounts.missing(gated) == set()
    assert now.live.accounts.accounted(gated) == -1


def test_all_is_accounted_for_up_to_the_first_batch_that_is_missing(now: World) -> None:
    query = now.queries["deep"]
    for reported in (True, True, False):
        run(now, query, 10, reported=reported)
    gated = now.live.accounts.queries[query.id]
    assert now.live.accounts.accounted(gated) == 1
    now.stop(query)
    now.live.settle()
    assert now.live.accounts.accounted(gated) == 2


def test_a_lost_report_is_counted_again_when_the_next_one_comes(now: World) -> None:
    query = now.queries["deep"]
    run(now, query, 10)
    run(now, query, 20, reported=False)
    assert [total.open for total in summarise(now.directory)] == [0], "nobody can know yet"
    run(now, query, 30)
    assert {(row.batch_id, row.drop): row.recounted for row in now.rows()} == {
        (0, "a"): False, (0, "a->x"): False, (1, "a"): True, (2, "a"): False, (2, "a->x"): False,
    }  # fmt: skip
    (total,) = summarise(now.directory)
    assert (total.arrived, total.balanced) == (60, True)


def test_waiting_ends_as_soon_as_all_ended_queries_are_in(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    query = now.queries["deep"]
    text = run(now, query, 10, reported=False)
    slept: list[float] = []
    time_s = [0.0]

    def pause(seconds: float) -> None:
        slept.append(seconds)
        time_s[0] += seconds
        if len(slept) == 3:
            now.live.accounts.enter(BatchReport.from_json(text))

    monkeypatch.setattr(accounts, "time", SimpleNamespace(monotonic=lambda: time_s[0], sleep=pause))
    now.live.accounts.wait(5.0)
    assert slept == [], "it runs: nobody waits for its reports"
    now.stop(query)
    now.live.accounts.wait(5.0)
    assert slept == [0.02] * 3
    now.live.accounts.ledger.open_batch(query.id, 5)
    now.live.accounts.wait(0.05)
    assert slept == [0.02] * 6, "not for ever"


# --- counting again --------------------------------------------------------------------------------------------------


def test_a_lost_batch_is_counted_with_the_thresholds_of_its_time(now: World) -> None:
    query = now.queries["self"]
    drop(now, a=0.25, b=0.5)
    run(now, query, 40)
    drop(now, a=0.75, b=1.0)
    now.arrive("b", 60)
    run(now, query, 60, reported=False)
    drop(now, a=0.0, b=0.0)
    now.stop(query)
    assert now.live.settle() == []
    lost = query.batches[1]
    rows = {row.drop: row for row in now.rows() if row.batch_id == 1}
    for name, fraction in (("a", 0.75), ("b", 1.0)):
        arrived, malformed, kept = lost.counts(PLACES[name])
        row = rows[name]
        assert (row.arrived, row.malformed, row.delivered) == (arrived, malformed, kept)
        assert (row.fraction, row.recounted, row.time_ms) == (fraction, True, lost.time_ms)
    assert rows["a"].arrived == 60
    assert rows["b"].arrived == 120, "a stream that is read in two places counts once"
    assert rows["b"].sources == [
        {"start": '{"index": 40}', "end": '{"index": 160}'},
        {"start": '{"index": 40}', "end": '{"index": 100}'},
        {"start": '{"index": 40}', "end": '{"index": 160}'},
    ]


def test_a_lost_batch_without_tuples_needs_no_count(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    query = now.queries["deep"]
    run(now, query, 10)
    run(now, query, 0, reported=False)
    now.stop(query)
    monkeypatch.setattr(now.live.accounts, "_recount", None)
    assert now.live.settle() == []
    assert counts(now)[1, "a"] == (0, 0, 0, 0)


def test_the_first_batch_is_counted_from_the_begin_of_its_sources(now: World) -> None:
    query = now.queries["deep"]
    run(now, query, 10, reported=False)
    now.stop(query)
    assert now.live.settle() == []
    (row,) = now.rows()
    assert (row.arrived, row.sources) == (10, [{"start": None, "end": '{"index": 10}'}])


def test_what_cannot_be_counted_stays_open_and_is_said(now: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    query = now.queries["deep"]
    for _ in range(3):
        run(now, query, 10, reported=False)
    now.stop(query)
    (query.root / "offsets" / "0").unlink()
    (query.root / "offsets" / "1").unlink()  # so that 1 is gone, and 2 has no begin
    gated = now.live.accounts.queries[query.id]
    gated.log._known.clear()
    assert now.live.settle() == [(query.id, 0), (query.id, 1), (query.id, 2)]
    assert "batch 1 of deep is still open" in caplog.text
    assert now.rows() == []
    (total,) = summarise(now.directory)
    assert (total.open, total.balanced) == (3, False)


def test_a_batch_that_is_not_certain_is_not_counted(now: World) -> None:
    query = now.queries["deep"]
    run(now, query, 10, reported=False)
    now.live.line._history.doubt(query.batches[0].time_ms // 50, query.batches[0].time_ms // 50)
    now.stop(query)
    assert now.live.settle() == [(query.id, 0)]
    assert now.rows() == []


def test_a_query_with_a_source_that_is_not_guarded_cannot_be_counted(now: World) -> None:
    query = now.queries["self"]
    run(now, query, 10, reported=False)
    now.stop(query)
    now.live.accounts.queries[query.id].plan_order = ["b", "a"]
    assert now.live.settle() == [(query.id, 0)]


def test_open_batches_are_left_even_if_the_disk_is_full(now: World) -> None:
    query = now.queries["deep"]
    run(now, query, 10, reported=False)
    now.stop(query)
    (query.root / "offsets" / "0").unlink()
    now.live.accounts.queries[query.id].log._known.clear()
    now.fill()
    assert now.live.settle() == [(query.id, 0)]
    assert Ledger(now.directory / "ledger").noted_open(query.id) == set()
    assert now.live.settle() == [(query.id, 0)]
    assert Ledger(now.directory / "ledger").noted_open(query.id) == {0}


# --- replays ---------------------------------------------------------------------------------------------------------


def again(now: World, query: Query, seconds: float) -> None:
    """The driver dies and comes back after a while."""
    now.bury(seconds)
    now.open()
    now.start(query)


@pytest.mark.parametrize("seconds", [0.5, 60.0, 86_400.0])
def test_a_replay_after_a_restart_obeys_the_thresholds_of_its_first_attempt(now: World, seconds: float) -> None:
    query = now.queries["deep"]
    drop(now, a=0.5)
    begin(now, query, 50)
    now.go(query)
    again(now, query, seconds)
    now.live.apply({"a": 1.0})
    now.elapse(30.0)
    now.live.on_batch(BatchReport.from_json(end(now, query)))
    batch = query.batches[0]
    assert batch.read == [(0.5, 0.0, 0.0)] * 2
    assert counts(now)[0, "a"][0] == 50
    assert {row.fraction for row in now.rows() if row.drop == "a"} == {0.5}


def test_a_replay_under_the_same_gate_obeys_them_too(now: World) -> None:
    """The query died, and its user starts it again half a minute later."""
    query = now.queries["deep"]
    drop(now, a=0.5)
    begin(now, query, 50)
    now.go(query)
    now.stop(query)
    drop(now, a=1.0)
    now.elapse(30.0)
    now.start(query)
    end(now, query)
    assert query.batches[0].read == [(0.5, 0.0, 0.0)] * 2


def test_a_batch_that_runs_for_long_keeps_its_thresholds(now: World) -> None:
    """It has waited for free processors, or computes its input several times."""
    query = now.queries["deep"]
    drop(now, a=0.5)
    begin(now, query, 50)
    drop(now, a=1.0)
    now.elapse(40.0)
    assert now.live.line.is_certain(query.batches[0].time_ms)
    end(now, query)
    assert query.batches[0].read == [(0.5, 0.0, 0.0)]


def test_a_batch_that_is_over_is_kept_no_longer(now: World) -> None:
    query = now.queries["deep"]
    drop(now, a=0.5)
    begin(now, query, 50)
    now.elapse(10.0)
    pins = now.live.line._pins
    assert list(pins) == [query.batches[0].time_ms // 50]
    end(now, query)  # its report is lost
    now.elapse(2.0)
    assert list(pins) == []


def test_a_query_that_has_ended_needs_no_pin(now: World) -> None:
    query = now.queries["deep"]
    begin(now, query, 50)
    now.elapse(10.0)
    now.stop(query)
    now.elapse(2.0)
    assert list(now.live.line._pins) == []


def test_short_batches_are_not_pinned(now: World) -> None:
    query = now.queries["deep"]
    begin(now, query, 50)
    now.elapse(4.0)
    assert list(now.live.line._pins) == []


def test_the_report_of_an_earlier_batch_does_not_let_go_of_a_replay(now: World) -> None:
    query = now.queries["deep"]
    drop(now, a=0.5)
    late = run(now, query, 50, reported=False)
    begin(now, query, 50)
    now.stop(query)
    now.start(query)
    now.live.on_batch(BatchReport.from_json(late))
    drop(now, a=1.0)
    now.elapse(30.0)
    text = end(now, query)
    assert query.batches[1].read == [(0.5, 0.0, 0.0)]
    now.live.on_batch(BatchReport.from_json(text))
    assert list(now.live.line._pins) == []


def test_two_replays_of_one_slot_are_let_go_one_by_one(now: World) -> None:
    first, second = now.queries["deep"], now.queries["self"]
    drop(now, a=0.5)
    begin(now, first, 50)
    begin(now, second, 50)
    now.bury(60.0)
    now.open()
    now.start(first)
    now.start(second)
    now.live.on_batch(BatchReport.from_json(end(now, first)))
    drop(now, a=1.0)
    now.elapse(30.0)
    end(now, second)
    assert first.batches[0].read == second.batches[0].read == [(0.5, 0.0, 0.0)]


def test_a_replay_that_the_sink_skips_is_counted_again(now: World) -> None:
    query = now.queries["deep"]
    query.skips = True
    drop(now, a=0.5)
    begin(now, query, 50)
    now.go(query)
    now.go(query)
    again(now, query, 60.0)
    now.live.on_batch(BatchReport.from_json(end(now, query)))
    (row,) = now.rows()
    assert (row.recounted, row.fraction, row.arrived) == (True, 0.5, 50)
    assert row.delivered == query.batches[0].counts(PLACES["a"])[2]


def test_a_skipped_replay_is_open_until_then(now: World) -> None:
    query = now.queries["deep"]
    query.skips = True
    begin(now, query, 50)
    now.go(query)
    now.go(query)
    again(now, query, 60.0)
    assert now.live.accounts.enter(BatchReport.from_json(end(now, query))) is None
    assert now.live.accounts.ledger.noted_open(query.id) == {0}


def test_a_skipped_replay_is_known_even_if_its_report_comes_after_the_next_restart(now: World) -> None:
    query = now.queries["deep"]
    query.skips = True
    begin(now, query, 50)
    now.go(query)
    now.go(query)
    again(now, query, 60.0)
    text = end(now, query)
    now.stop(query)
    now.start(query)
    assert now.live.accounts.enter(BatchReport.from_json(text)) is None


def test_an_empty_report_of_another_batch_is_what_it_says(now: World) -> None:
    """Files may be empty: only a replay can have been skipped."""
    query = now.queries["deep"]
    begin(now, query, 50)
    report: dict[str, Any] = json.loads(end(now, query))
    report["observedMetrics"] = {}
    now.live.on_batch(BatchReport.from_json(json.dumps(report)))
    assert counts(now)[0, "a"] == (0, 0, 0, 0)


def test_a_replay_without_tuples_was_not_skipped(now: World) -> None:
    query = now.queries["deep"]
    query.skips = True
    run(now, query, 10)
    begin(now, query, 0)
    now.go(query)
    now.go(query)
    again(now, query, 60.0)
    now.live.on_batch(BatchReport.from_json(end(now, query)))
    assert counts(now)[1, "a"] == (0, 0, 0, 0)
    assert not any(row.recounted for row in now.rows())


# --- closing ---------------------------------------------------------------------------------------------------------


def test_who_is_at_work_on_what(now: World) -> None:
    idle, busy, ended = now.queries.values()
    run(now, idle, 10)
    begin(now, busy, 10)
    begin(now, ended, 10)
    now.stop(ended)
    assert now.live.accounts.running() == [None, busy.batches[0].time_ms]


def test_remote_checkpoints_are_looked_into_once_a_second(now: World) -> None:
    query = now.queries["deep"]
    now.start(query)
    gated = now.live.accounts.queries[query.id]
    gated.log._local = None
    looks: list[int] = []

    def latest(after: int) -> Any:
        looks.append(after)
        return SimpleNamespace(batch_id=6 + len(looks))

    gated.log.latest = latest  # type: ignore[method-assign,assignment]
    for step in range(21):
        gated.latest(START_S + step / 10)
    assert looks == [-1, 7, 8]
