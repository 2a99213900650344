"""The ledger's files: which batches are in, which are open, what is added up, and what a crash leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from streamshed.engines.spark.ledger import KEPT_ROWS, Ledger, LedgerQuery, LedgerRow, LedgerSum
from streamshed.engines.spark.ledger_totals import Total, summarise

MINUTE_MS = 60_000


def row(batch_id: int, drop: str = "a", **changes: object) -> LedgerRow:
    """Of 10 tuples one is malformed, 3 are dropped, 6 delivered."""
    made = LedgerRow(
        query_id="q",
        run_id="r",
        output="report",
        batch_id=batch_id,
        drop=drop,
        stream=drop,
        entry=True,
        time_ms=batch_id * 20_000,
        arrived=10,
        delivered=6,
        dropped=3,
        malformed=1,
        fraction=0.25,
        salt=0,
        sources=[{"start": None, "end": {"index": 10}}],
        source=True,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def query(**changes: object) -> LedgerQuery:
    return replace(LedgerQuery("q", "report", "/checkpoint", 0, ["a", "b"]), **changes)  # type: ignore[arg-type]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("os.fsync", lambda _: None)
    return tmp_path / "ledger"


def torn(place: Path, characters: int) -> None:
    """The writer died before all of the last write was on disk."""
    file = place / "q.jsonl"
    file.write_bytes(file.read_bytes()[:-characters])


# --- rows ------------------------------------------------------------------------------------------------------------


def test_a_row_comes_back_as_it_was(place: Path) -> None:
    written = row(3, recounted=True)
    Ledger(place).add([written])
    assert Ledger(place).rows() == [written]


def test_rows_come_in_the_order_of_queries_batches_and_drops(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(11, "b"), row(11, "a")])
    ledger.add([row(2, "b"), row(2, "a"), row(0, "a", query_id="p")])
    assert [(one.query_id, one.batch_id, one.drop) for one in ledger.rows()] == [
        ("p", 0, "a"),
        ("q", 2, "a"),
        ("q", 2, "b"),
        ("q", 11, "a"),
        ("q", 11, "b"),
    ]


def test_the_last_row_of_a_batch_and_drop_counts(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(0, "a"), row(0, "b")])
    ledger.add([row(0, "a", dropped=0, delivered=9)])
    assert [(one.drop, one.dropped) for one in ledger.rows()] == [("a", 0), ("b", 3)]
    assert [total.balanced for total in summarise(place)] == [True, True]


def test_rows_of_several_queries_go_to_their_files(place: Path) -> None:
    Ledger(place).add([row(0), row(0, query_id="other")])
    assert sorted(file.name for file in place.iterdir()) == ["other.jsonl", "q.jsonl"]
    assert [page.query_id for page in Ledger(place).pages()] == ["other", "q"]


# --- which batches are in --------------------------------------------------------------------------------------------


def test_a_batch_is_in_once_its_rows_are_and_not_before(place: Path) -> None:
    ledger = Ledger(place)
    assert not ledger.has("q", 0)
    ledger.add([row(0)])
    for known in (ledger, Ledger(place)):
        assert [batch_id for batch_id in range(3) if known.has("q", batch_id)] == [0]
        assert not known.has("other", 0)


def test_a_batch_whose_rows_were_torn_apart_by_a_crash_is_open_until_it_is_counted_again(place: Path) -> None:
    Ledger(place).add_query(query())
    Ledger(place).add([row(0, "a"), row(0, "b")])
    Ledger(place).add([row(1, "a"), row(1, "b")])
    torn(place, 30)
    ledger = Ledger(place)
    assert not ledger.has("q", 1)
    assert ledger.missing("q", 2) == {1}
    assert [one.batch_id for one in ledger.rows()] == [0, 0], "a half is no batch"
    ledger.add([row(2, "a"), row(2, "b")])
    assert [page.open for page in ledger.pages()] == [{1}]
    assert {total.key: (total.arrived, total.open, total.balanced) for total in summarise(place)} == {
        "a": (20, 1, False),
        "b": (20, 1, False),
    }
    ledger.add([row(1, "a"), row(1, "b")])
    assert Ledger(place).has("q", 1)
    assert all(total.balanced for total in summarise(place))


def test_a_batch_that_was_in_stays_in_if_a_crash_tears_its_second_entry(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(0, "a"), row(0, "b")])
    ledger.add([row(0, "a"), row(0, "b")])
    torn(place, 30)
    assert Ledger(place).has("q", 0)
    assert [one.drop for one in Ledger(place).rows()] == ["a", "b"]


def test_rows_of_earlier_versions_count(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(0, "a"), row(0, "b")])
    file = place / "q.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line.pop("more", None) for line in lines] == [True, None]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines[:1]))
    assert Ledger(place).has("q", 0)


def test_a_batch_that_is_missing_between_others_is_open(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add_query(query(first_batch=2))
    for batch_id in (3, 4, 7):
        ledger.add([row(batch_id)])
    assert [page.open for page in ledger.pages()] == [{2, 5, 6}]
    assert ledger.missing("q", 10) == {2, 5, 6, 8, 9}
    assert ledger.missing("q", 5) == {2}
    assert ledger.missing("q", 0) == set()
    assert ledger.noted_open("q") == set()
    (total,) = summarise(place)
    assert (total.batches, total.open, total.balanced) == (3, 3, False)


def test_without_a_query_batches_are_missing_from_the_first_that_is_in(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(4)])
    ledger.add([row(6)])
    assert [page.open for page in ledger.pages()] == [{5}]


def test_a_batch_noted_as_open_is_open_until_its_rows_come(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(0)])
    ledger.open_batch("q", 5)
    ledger.open_batch("q", 5)
    for known in (ledger, Ledger(place)):
        assert known.noted_open("q") == {5}
        assert not known.has("q", 5)
        assert known.missing("q", 1) == {5}
    ledger.add([row(5)])
    for known in (ledger, Ledger(place)):
        assert known.noted_open("q") == set()
        assert known.has("q", 5)


def test_the_first_batch_under_control_is_that_of_the_first_run(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add_query(query(first_batch=3, checkpoint="/old"))
    ledger.add_query(query(first_batch=9, checkpoint="/new"))
    assert ledger.queries() == {"q": query(first_batch=3, checkpoint="/new")}
    assert Ledger(place).missing("q", 5) == {3, 4}


# --- adding up -------------------------------------------------------------------------------------------------------


def folded(place: Path, batches: int, kept_rows: int = 4) -> Ledger:
    """So many batches with a row for each of two drops; `kept_rows` rows are kept, at most twice as many."""
    ledger = Ledger(place, kept_rows)
    ledger.add_query(query())
    for batch_id in range(batches):
        ledger.add([row(batch_id, "a"), row(batch_id, "b")])
    return ledger


def test_rows_are_added_up_once_there_are_more_than_twice_those_to_be_kept(place: Path) -> None:
    file = place / "q.jsonl"
    folded(place, 4)
    assert not any("sum" in line for line in file.read_text().splitlines())
    Ledger(place, 4).add([row(4, "a"), row(4, "b")])
    (page,) = Ledger(place).pages()
    assert [(one.batch_id, one.drop) for one in page.rows] == [(3, "a"), (3, "b"), (4, "a"), (4, "b")]
    # Batches 0 to 2 started at 0, 20 and 40 s.
    assert page.sums == [
        LedgerSum("q", "report", drop, drop, entry=True, source=True, time_ms=0, batches=3, arrived=30, delivered=18,
                  dropped=9, malformed=3)
        for drop in ("a", "b")
    ]  # fmt: skip


def test_sums_go_by_the_minute_and_grow(place: Path) -> None:
    folded(place, 12)
    (page,) = Ledger(place).pages()
    sums = {(one.drop, one.time_ms): one.batches for one in page.sums}
    assert sums == {(drop, minute * MINUTE_MS): 3 for drop in "ab" for minute in range(3)}
    assert {one.batch_id for one in page.rows} == {9, 10, 11}
    assert [total.arrived for total in summarise(place)] == [120, 120]


def test_a_batch_is_added_up_as_a_whole(place: Path) -> None:
    """Of the oldest batch that is kept, all rows are."""
    folded(place, 3, kept_rows=1)
    (page,) = Ledger(place).pages()
    assert [(one.batch_id, one.drop) for one in page.rows] == [(2, "a"), (2, "b")]
    assert sum(one.batches for one in page.sums) == 4


def test_a_batch_that_comes_again_after_it_was_added_up_does_not_count_twice(place: Path) -> None:
    ledger = folded(place, 5)
    before = summarise(place)
    for known in (ledger, Ledger(place, 4)):
        known.add([row(0, "a"), row(0, "b")])
        known.add([row(4, "a"), row(4, "b")])  # this one is still kept: it is replaced
    assert summarise(place) == before
    assert [(total.batches, total.arrived) for total in before] == [(5, 50), (5, 50)]


def test_a_batch_that_was_missing_when_others_were_added_up_stays_open_and_can_be_entered(place: Path) -> None:
    ledger = Ledger(place, 2)
    ledger.add_query(query(drops=["a"]))
    for batch_id in (0, 1, 3, 5, 6, 7, 8, 9, 10):
        ledger.add([row(batch_id)])
    (page,) = ledger.pages()
    assert page.sums
    assert page.open == {2, 4}
    for known in (ledger, Ledger(place, 2)):
        assert [batch_id for batch_id in range(12) if not known.has("q", batch_id)] == [2, 4, 11]
        assert known.missing("q", 11) == {2, 4}
    ledger.add([row(2)])
    ledger.add([row(2)])
    (total,) = summarise(place)
    assert (total.batches, total.arrived, total.open) == (10, 100, 1)
    for batch_id in range(11, 20):  # and the late one is added up, too
        ledger.add([row(batch_id)])
    ledger.add([row(2)])
    (total,) = summarise(place)
    assert (total.batches, total.arrived, total.open) == (19, 190, 1)


def test_a_batch_torn_apart_is_not_added_up(place: Path) -> None:
    ledger = Ledger(place, 4)
    ledger.add_query(query())
    for batch_id in range(2):
        ledger.add([row(batch_id, "a"), row(batch_id, "b")])
    torn(place, 30)
    ledger = Ledger(place, 4)
    for batch_id in range(2, 6):
        ledger.add([row(batch_id, "a"), row(batch_id, "b")])
    (page,) = ledger.pages()
    assert page.sums
    assert page.open == {1}
    assert {total.key: total.arrived for total in summarise(place)} == {"a": 50, "b": 50}


def test_what_was_open_stays_open_when_others_are_added_up(place: Path) -> None:
    ledger = Ledger(place, 2)
    ledger.add_query(query())
    ledger.open_batch("q", 40)
    for batch_id in range(5):
        ledger.add([row(batch_id)])
    assert [page.open for page in Ledger(place).pages()] == [{40}]


def test_sums_do_not_mix_drops_streams_outputs_or_kinds(place: Path) -> None:
    ledger = Ledger(place, 1)
    kinds = [("a", "s", True, True), ("b", "s", True, True), ("c", "t", False, True), ("d", "t", False, False)]
    for batch_id in range(2):
        ledger.add(
            row(batch_id, drop, stream=stream, entry=entry, source=source) for drop, stream, entry, source in kinds
        )
    (page,) = ledger.pages()
    assert [(one.drop, one.stream, one.entry, one.source, one.batches) for one in page.sums] == [
        (*kind, 1) for kind in kinds
    ]


def test_months_fit_into_the_default(place: Path) -> None:
    assert KEPT_ROWS == 20_000
    assert Ledger(place)._kept_rows == KEPT_ROWS


# --- sums ------------------------------------------------------------------------------------------------------------


def mixed(place: Path) -> None:
    """Two queries: one with an entry drop, one further in and an arc; one that reads the same stream."""
    ledger = Ledger(place)
    ledger.add(
        [
            row(0, "s"),
            row(0, "inner", stream="s", entry=False, source=False, arrived=6, delivered=2, dropped=4, malformed=0),
            row(0, "arc", stream="stage", entry=False, arrived=5, delivered=5, dropped=0, malformed=0),
        ]
    )
    ledger.add([row(1, "s", time_ms=59_999)])
    ledger.add([row(0, "s", query_id="p", output="other", time_ms=60_000, arrived=7, dropped=0)])
    ledger.open_batch("p", 3)
    ledger.open_batch("p", 4)


def test_streams_count_where_tuples_enter(place: Path) -> None:
    mixed(place)
    assert summarise(place, "stream") == [Total("s", 3, 27, 18, 6, 3, open=2)]


def test_drops_are_all_there_one_by_one(place: Path) -> None:
    mixed(place)
    assert summarise(place, "drop") == [
        Total("arc", 1, 5, 5, 0, 0),
        Total("inner", 1, 6, 2, 4, 0),
        Total("s", 3, 27, 18, 6, 3, open=2),
    ]


def test_outputs_count_what_their_query_reads_arcs_as_well(place: Path) -> None:
    mixed(place)
    assert summarise(place, "output") == [Total("other", 1, 7, 6, 0, 1, open=2), Total("report", 2, 25, 17, 6, 2)]


def test_minutes_begin_on_the_minute(place: Path) -> None:
    mixed(place)
    assert summarise(place, "time") == [
        Total("1970-01-01 00:00", 2, 20, 12, 6, 2),
        Total("1970-01-01 00:01", 1, 7, 6, 0, 1, open=2),
    ]


def test_open_batches_of_a_query_without_rows_are_told_by_its_id(place: Path) -> None:
    ledger = Ledger(place)
    ledger.add([row(0)])
    ledger.open_batch("unseen", 0)
    assert summarise(place) == [Total("a", 1, 10, 6, 3, 1), Total("unseen", 0, 0, 0, 0, 0, open=1)]


@pytest.mark.parametrize(
    ("counts", "balanced"),
    [((10, 6, 3, 1, 0), True), ((10, 6, 3, 0, 0), False), ((10, 6, 3, 1, 1), False), ((9, 6, 3, 1, 0), False)],
)
def test_a_total_is_balanced_if_every_tuple_is_somewhere(counts: tuple[int, ...], balanced: bool) -> None:
    arrived, delivered, dropped, malformed, waiting = counts
    assert Total("a", 1, arrived, delivered, dropped, malformed, waiting).balanced == balanced


def test_batches_that_were_added_up_count_once_however_many_drops_they_had(place: Path) -> None:
    folded(place, 8)
    assert [(total.key, total.batches, total.arrived) for total in summarise(place, "output")] == [("report", 8, 160)]
    # Batches 0 to 2, 3 to 5, 6 and 7.
    assert [total.batches for total in summarise(place, "time")] == [3, 3, 2]


def test_the_directory_of_a_guard_will_do(place: Path) -> None:
    mixed(place)
    assert summarise(place.parent) == summarise(place)
