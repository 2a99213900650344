"""The gate without Spark: what it puts into plans, what it applies, whom it tells, what it leaves when it closes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark import gate as module
from streamshed.engines.spark.control_line import SLOT_MS, SLOTS, ControlLine
from streamshed.engines.spark.directory_lock import DirectoryLock
from streamshed.engines.spark.gate import Gate
from streamshed.engines.spark.ledger_totals import summarise
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.errors import InvalidValueError, UnknownNameError
from tests.books_world import DiskFullError, Query, World, world


@pytest.fixture
def now(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        made.open()
        yield made


def reopened(now: World, **options: Any) -> Gate:
    """Another gate in the place of the world's, with options of its own."""
    now.bury()
    now.open(**options)
    return now.live


def report(now: World, query: Query, tuples: int) -> BatchReport:
    """Of a batch of a query, from begin to end."""
    if not query.isActive:
        now.start(query)
    now.arrive(query.streams[0], tuples)
    now.go(query)
    while query.running is not None:
        now.go(query)
    return BatchReport.from_json(now.reports.pop()[1])


# --- building plans --------------------------------------------------------------------------------------------------


class Expression:
    """In the place of a column: writes down what is made of it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __ge__(self, other: Expression) -> Expression:
        return Expression(f"({self.text} >= {other.text})")

    def __or__(self, other: Expression) -> Expression:
        return Expression(f"({self.text} | {other.text})")

    def __getitem__(self, place: int) -> Expression:
        return Expression(f"{self.text}[{place}]")

    def __repr__(self) -> str:
        return self.text


class Plans:
    """In the place of what makes plans: writes down what it is asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        functions = SimpleNamespace(col=Expression, lit=lambda value: Expression(str(value)))
        patch.setattr(module, "F", functions)
        patch.setattr(module, "Column", Expression)
        patch.setattr(module, "drop", self.drop)
        patch.setattr(module, "mark", self.mark)
        patch.setattr(ControlLine, "thresholds", lambda *_: "the line")

    def drop(self, frame: object, name: str, rank: object, threshold: object, **given: object) -> str:
        self.asked.append({"frame": frame, "name": name, "rank": rank, "threshold": str(threshold), **given})
        return f"{frame} after {name}"

    def mark(self, frame: object, name: str, rank: object, threshold: object, **given: object) -> tuple[str, str]:
        self.asked.append({"frame": frame, "name": name, "rank": rank, "threshold": str(threshold), **given})
        return f"{frame} with {name}", "kept"


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Plans:
    return Plans(monkeypatch)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Gate]:
    """A gate without drops."""
    with world(tmp_path) as made:
        gate = Gate(made, tmp_path / "gate", size=3, tick_s=0, clock=lambda: 1e9)  # type: ignore[arg-type]
        yield gate
        gate.close()


def test_a_drop_goes_by_its_own_place_on_the_line(empty: Gate, plans: Plans) -> None:
    rank: Any = Expression("rank")
    dropped: Any = empty.drop("reports", "a", rank, salt=7)  # type: ignore[arg-type]
    assert dropped == f"reports after {empty._token}/a"
    empty.drop("reports", "b", rank, stream="s", entry=False)  # type: ignore[arg-type]
    first, second = plans.asked
    assert (first["threshold"], second["threshold"]) == ("_thresholds[0]", "_thresholds[1]")
    assert (first["rank"], first["control"], first["needed"]) == (rank, "the line", None)
    a, b = empty.drops["a"], empty.drops["b"]
    assert (a.index, a.stream, a.entry, a.source, a.salt, a.observed) == (0, "a", True, True, 7, f"{empty._token}/a")
    assert (b.index, b.stream, b.entry, b.source, b.salt) == (1, "s", False, False, 0)


def test_what_no_reader_will_keep_is_dropped_ahead_of_them(empty: Gate, plans: Plans) -> None:
    readers: Any = {"a->x": Expression("x"), "a->y": Expression("y")}
    rank: Any = Expression("rank")
    empty.drop("reports", "a", rank, readers=readers)  # type: ignore[arg-type]
    assert str(plans.asked[0]["needed"]) == "((x >= _thresholds[1]) | (y >= _thresholds[2]))"
    assert empty._place("a->y") == 2, "and they get these places when they are made"


def test_a_drop_is_made_again_with_thresholds_of_its_own_and_without_the_line(empty: Gate, plans: Plans) -> None:
    readers: Any = {"a->x": Expression("x")}
    rank: Any = Expression("rank")
    empty.drop("reports", "a", rank, readers=readers, valid="valid", parse="parse", nested=True)  # type: ignore[arg-type]
    empty.drops["a"].at(lambda place: Expression(f"fraction {place}"))  # type: ignore[arg-type, return-value]
    first, second = plans.asked
    assert (second["threshold"], str(second["needed"])) == ("fraction 0", "(x >= fraction 1)")
    assert second["control"] is None
    different = {"threshold", "needed", "control"}
    assert {key: value for key, value in first.items() if key not in different} == {
        key: value for key, value in second.items() if key not in different
    }
    assert (first["valid"], first["parse"], first["weighted"], first["nested"]) == ("valid", "parse", False, True)


def test_a_mark_is_a_drop_that_is_no_source(empty: Gate, plans: Plans) -> None:
    rank: Any = Expression("rank")
    marked: Any = empty.mark("reports", "m", rank, stream="s", salt=3, on="here")  # type: ignore[arg-type]
    assert marked == (f"reports with {empty._token}/m", "kept")
    assert plans.asked[0]["threshold"] == "_thresholds[0]"
    assert (plans.asked[0]["control"], plans.asked[0]["on"]) == ("the line", "here")
    m = empty.drops["m"]
    assert (m.index, m.stream, m.entry, m.source, m.salt) == (0, "s", False, False, 3)


def test_a_count_keeps_all_and_takes_no_place(empty: Gate, plans: Plans) -> None:
    empty.count("rows", "arc", stream="stage", arrival="arrival")  # type: ignore[arg-type]
    (asked,) = plans.asked
    assert (asked["threshold"], str(asked["rank"]), asked["arrival"]) == ("0.0", "0.0", "arrival")
    arc = empty.drops["arc"]
    assert (arc.index, arc.stream, arc.entry, arc.source, arc.salt) == (None, "stage", False, True, 0)
    assert empty._place("next") == 0
    assert empty.fractions == {}


def test_a_name_is_given_once(empty: Gate, plans: Plans) -> None:
    rank: Any = Expression("rank")
    empty.drop("reports", "a", rank)  # type: ignore[arg-type]
    for again in (
        lambda: empty.drop("reports", "a", rank),  # type: ignore[arg-type]
        lambda: empty.mark("reports", "a", rank, stream="s", salt=0, on=rank),  # type: ignore[arg-type]
        lambda: empty.count("reports", "a", stream="s"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidValueError, match="this name already"):
            again()


# --- deciding --------------------------------------------------------------------------------------------------------


def test_fractions_are_applied_by_name_and_the_others_stay(now: World) -> None:
    now.live.apply({"a": 0.5, "b": 0.25})
    now.live.apply({"a->x": 0.75})
    assert now.live.fractions == {"a": 0.5, "a->x": 0.75, "b": 0.25}
    assert now.live.line.read() == (0.5, 0.75, 0.25)


def test_fractions_are_held_within_0_and_1(now: World) -> None:
    now.live.apply({"a": 1.5, "b": -0.5})
    assert now.live.fractions == {"a": 1.0, "a->x": 0.0, "b": 0.0}


def test_what_changes_nothing_is_not_written(now: World) -> None:
    now.live.apply({"a": 0.5})
    written = now.live.line.path.stat().st_mtime_ns
    now.live.apply({"a": 0.5 + 1 / 1024})  # the same of 256 levels
    assert now.live.line.path.stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["aa", "arc"])
def test_what_is_no_drop_cannot_be_set(now: World, name: str) -> None:
    with pytest.raises(UnknownNameError, match="no such drop"):
        now.live.apply({name: 0.5})


def test_a_tick_asks_for_a_decision_and_carries_the_line_on(now: World) -> None:
    asked: list[float] = []

    def decide(time_s: float) -> dict[str, float]:
        asked.append(time_s)
        return {"a": 0.5}

    gate = reopened(now, decide=decide)
    for _ in range(40):
        now.now += 1.0
        gate.tick(now.now)
    assert asked == [now.now - back for back in range(39, -1, -1)]
    assert gate.line.is_certain(int(now.now * 1000) + 5000)
    assert gate.line.at(int(now.now * 1000)) == (0.5, 0.0, 0.0)


def test_without_a_decision_the_line_is_carried_on_all_the_same(now: World) -> None:
    """Or batches would go by what was decided 25.6 s before."""

    def failing(_: float) -> dict[str, float]:
        raise KeyError

    gate = reopened(now, decide=failing)
    gate.apply({"a": 0.5})
    for _ in range(40):
        now.now += 1.0
        with pytest.raises(KeyError):
            gate.tick(now.now)
    assert gate.line.is_certain(int(now.now * 1000))
    assert now._read_line(int(now.now * 1000)) == (0.5, 0.0, 0.0)


def test_a_gate_that_fails_again_and_again_says_so_once(now: World, caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([True, False, False, True, False, False])
    ticks = threading.Semaphore(0)

    def decide(_: float) -> dict[str, float]:
        good = next(outcomes, None)
        if good is None:
            ticks.release()
        if not good and good is not None:
            raise ZeroDivisionError
        return {}

    drops = now.live.drops
    now.bury()
    gate = Gate(now, now.directory, size=3, tick_s=0.001, clock=lambda: now.now, decide=decide)  # type: ignore[arg-type]
    gate.drops |= drops
    assert ticks.acquire(timeout=5)
    gate.close()
    assert caplog.text.count("the gate cannot decide") == 2
    assert not gate._ticker.is_alive()


def test_a_gate_that_does_not_tick_has_no_thread(now: World) -> None:
    assert not now.live._ticker.is_alive()


def test_long_batches_are_kept_before_a_change_runs_over_them(now: World) -> None:
    """Whoever applies without ticking, too."""
    query = now.queries["deep"]
    now.live.apply({"a": 0.5})
    now.now += 0.2
    now.start(query)
    now.go(query)
    now.now += 12.0
    now.live.apply({"a": 0.75})
    now.now += 12.0
    now.live.apply({"a": 1.0})
    now.go(query)
    assert query.batches[0].read == [(0.5, 0.0, 0.0)]
    assert now.live.line.is_certain(query.batches[0].time_ms)


# --- telling ---------------------------------------------------------------------------------------------------------


def test_every_batch_that_is_entered_is_told(now: World) -> None:
    told: list[tuple[int, dict[str, DropCounts]]] = []
    reopened(now, on_batch=lambda report, counts: told.append((report.batch_id, dict(counts))))
    found = report(now, now.queries["deep"], 10)
    now.live.on_batch(found)
    assert told == [(0, {"a->x": DropCounts(9, 0, 9), "a": DropCounts(10, 1, 9)})]


def test_batches_of_others_are_neither_told_nor_settled(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    gate = reopened(now, on_batch=lambda *given: told.append(given))
    monkeypatch.setattr(gate, "settle_soon", lambda: told.append("settle"))
    gate.on_batch(BatchReport("other", "r", None, 0, 0.0, 1.0, {}, ()))
    assert told == []


def test_only_a_hole_before_a_batch_has_it_settled(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[str] = []
    monkeypatch.setattr(now.live, "settle_soon", lambda: settled.append("settle"))
    query = now.queries["deep"]
    now.live.on_batch(report(now, query, 10))
    now.live.on_batch(report(now, query, 10))
    assert settled == []
    report(now, query, 10)  # lost
    now.live.on_batch(report(now, query, 10))
    assert settled == ["settle"]
    now.live.on_batch(report(now, query, 10))
    assert settled == ["settle"], "the next one has a batch before it"


def test_settling_soon_happens_in_the_background(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = reopened(now)
    settled = threading.Event()
    monkeypatch.setattr(gate.accounts, "settle", settled.set)
    Gate.settle_soon(gate)
    assert settled.wait(5)


def test_settling_gives_what_is_left(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(now.live.accounts, "settle", lambda: [("q", 3)])
    assert now.live.settle() == [("q", 3)]


def test_a_query_that_counts_again_is_not_watched(now: World) -> None:
    query = now.queries["deep"]
    query.token, query.isActive = now.live._token, True
    now.live.on_start(query.id, "r", "streamshed-recount/x")
    assert now.live.accounts.queries == {}
    now.live.on_start(query.id, "r", "deep")
    assert list(now.live.accounts.queries) == [query.id]


def test_a_query_that_is_gone_again_is_nothing(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(now.streams, "get", lambda _: None)
    now.live.on_start("gone", "r", "deep")
    assert now.live.accounts.queries == {}


def test_the_death_of_a_query_is_noted_and_told(now: World) -> None:
    failed: list[bool] = []
    gate = reopened(now, on_failure=lambda: failed.append(True))
    now.start(now.queries["deep"])
    now.start(now.queries["self"])
    gate.on_end(now.queries["self"].id, "r", None)
    gate.on_end("other", "r", "kaputt")
    assert (gate.errors, failed) == ({}, [])
    gate.on_end(now.queries["deep"].id, "r", "kaputt")
    assert (gate.errors, failed) == ({"deep": "kaputt"}, [True])


def test_a_death_is_noted_if_nobody_wants_to_be_told(now: World) -> None:
    now.start(now.queries["deep"])
    now.live.on_end(now.queries["deep"].id, "r", "kaputt")
    assert now.live.errors == {"deep": "kaputt"}


# --- backfills -------------------------------------------------------------------------------------------------------


@pytest.fixture
def backfill(now: World, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate under which the query `self`, over b and a, reads what is there and stops."""
    gate = reopened(now, shed_backfills=False)
    stopping = now.queries["self"]
    monkeypatch.setattr(module, "stops_by_itself", lambda query: query is stopping)
    return gate


def test_nothing_is_dropped_from_what_a_backfill_reads_while_it_runs(now: World, backfill: Gate) -> None:
    backfill.apply({"a": 0.5, "a->x": 0.5, "b": 0.5})
    now.start(now.queries["deep"])
    assert backfill.fractions == {"a": 0.5, "a->x": 0.5, "b": 0.5}
    now.now += 0.2
    waited: list[float] = []
    backfill._stop.wait = waited.append  # type: ignore[method-assign, assignment]
    now.start(now.queries["self"])
    assert backfill.fractions == {"a": 0.0, "a->x": 0.5, "b": 0.0}
    assert waited == [pytest.approx(backfill.line.holds_from_ms / 1000 - now.now)]
    assert 0 < waited[0] <= 0.12
    backfill.apply({"a": 0.75, "a->x": 0.25})
    assert backfill.fractions == {"a": 0.0, "a->x": 0.25, "b": 0.0}
    backfill.on_end(now.queries["self"].id, "r", None)
    backfill.apply({"a": 0.75})
    assert backfill.fractions == {"a": 0.75, "a->x": 0.25, "b": 0.0}


def test_who_wants_it_has_backfills_shed(now: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = reopened(now, shed_backfills=True)
    monkeypatch.setattr(module, "stops_by_itself", lambda _: True)
    gate.apply({"b": 0.5})
    now.start(now.queries["self"])
    assert gate.fractions["b"] == 0.5


# --- closing ---------------------------------------------------------------------------------------------------------


def test_closing_settles_and_drops_nothing_any_more(now: World) -> None:
    query = now.queries["deep"]
    now.live.apply({"a": 0.5})
    now.now += 0.2
    report(now, query, 20)  # lost
    now.stop(query)
    gate = now.live
    gate.close()
    (total,) = summarise(now.directory)
    assert (total.arrived, total.balanced) == (20, True)
    assert {now._read_line(slot * SLOT_MS) for slot in range(SLOTS)} == {(0.0, 0.0, 0.0)}
    DirectoryLock(now.directory).release()


def test_closing_tells_the_line_of_the_batches_that_are_under_way(now: World) -> None:
    query = now.queries["deep"]
    now.live.apply({"a": 0.5})
    now.now += 0.2
    now.start(query)
    now.go(query)
    now.now += 1.0
    line = now.live.line
    now.live.close()
    assert not line.is_certain(query.batches[0].time_ms)


def test_a_gate_that_is_closed_hears_no_more(now: World) -> None:
    gate = now.live
    monitor = gate._monitor
    assert gate in monitor._subscribers
    gate.close()
    assert gate not in monitor._subscribers


def test_a_gate_that_cannot_close_in_good_order_lets_go_of_the_directory(now: World) -> None:
    gate = now.live
    now.fill()
    with pytest.raises(DiskFullError):
        gate.close()
    DirectoryLock(now.directory).release()


def test_a_gate_that_cannot_read_its_accounts_lets_go_of_the_directory(now: World) -> None:
    now.bury()
    (now.directory / "ledger" / "q.jsonl").write_text('{"kind":"query"}\n')
    with pytest.raises(KeyError):
        now.open()
    DirectoryLock(now.directory).release()


def test_last_reports_are_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert module._LAST_REPORTS_S == 5.0
    with world(tmp_path) as now:
        now.open()
        waited: list[float] = []
        monkeypatch.setattr(now.live.accounts, "wait", waited.append)
        monkeypatch.setattr(module, "_LAST_REPORTS_S", 5.0)
        now.live.close()
        assert waited == [5.0]


def test_sparing_is_logged(now: World, backfill: Gate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now.start(now.queries["self"])
    assert "self reads what is there and stops" in caplog.text
