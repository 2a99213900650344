"""`streamshed ledger` on ledgers written by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.engines.spark.ledger import Ledger, LedgerQuery, LedgerRow
from streamshed.engines.spark.ledger_totals import By, summarise


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)


def row(batch_id: int, *, arrived: int, dropped: int, malformed: int = 0, stream: str = "s") -> LedgerRow:
    return LedgerRow(
        query_id="q",
        run_id="r",
        output="report",
        batch_id=batch_id,
        drop=stream,
        stream=stream,
        entry=True,
        time_ms=1_700_000_000_000 + batch_id * 60_000,
        arrived=arrived,
        delivered=arrived - dropped - malformed,
        dropped=dropped,
        malformed=malformed,
        fraction=0.5,
        salt=0,
    )


def test_sums_and_json(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.add([row(0, arrived=1000, dropped=400, malformed=10)])
    ledger.add([row(1, arrived=2000, dropped=1)])
    ledger.add([row(1, arrived=2000, dropped=1000)])  # the same batch again: it replaces the first
    result = CliRunner().invoke(app, ["ledger", str(tmp_path), "--json", str(tmp_path / "sums.json")])
    assert result.exit_code == 0, result.output
    assert "3,000" in result.output
    assert "exact" in result.output
    (total,) = json.loads((tmp_path / "sums.json").read_text())
    assert total == {
        "key": "s",
        "batches": 2,
        "arrived": 3000,
        "delivered": 1590,
        "dropped": 1400,
        "malformed": 10,
        "open": 0,
        "balanced": True,
    }
    by_minute = CliRunner().invoke(app, ["ledger", str(tmp_path), "--by", "time"])
    assert "2023-11-14 22:13" in by_minute.output
    assert "2023-11-14 22:14" in by_minute.output


def test_open_batches_are_said_and_fail(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.add([row(0, arrived=10, dropped=4)])
    ledger.open_batch("q", 1)
    result = CliRunner().invoke(app, ["ledger", str(tmp_path)])
    assert result.exit_code == 3
    assert "1 open" in result.output


def of_long(place: Path, kept_rows: int) -> Ledger:
    """Three drops in 100 batches, ten a minute; one was replayed, one was never reported."""
    ledger = Ledger(place / "ledger", kept_rows)
    ledger.add_query(LedgerQuery("q", "report", "/checkpoint", 0, ["s", "t", "inner"]))
    for batch_id in range(100):
        if batch_id == 33:
            ledger.open_batch("q", batch_id)
            continue
        for attempt in range(2 if batch_id == 7 else 1):
            minute = batch_id // 10
            rows = [
                row(minute, arrived=100 + batch_id, dropped=batch_id // 2 + attempt),
                row(minute, arrived=50, dropped=5, malformed=1, stream="t"),
                replace(row(minute, arrived=30, dropped=batch_id % 7), drop="inner", entry=False),
            ]
            ledger.add([replace(one, batch_id=batch_id) for one in rows])
    return ledger


@pytest.mark.parametrize("by", ["stream", "drop", "output", "time"])
def test_old_batches_are_added_up_and_sums_stay_exact(tmp_path: Path, by: By) -> None:
    whole, folded = of_long(tmp_path / "whole", 10_000), of_long(tmp_path / "folded", 20)
    lines = {ledger: (ledger.directory / "q.jsonl").read_text().splitlines() for ledger in (whole, folded)}
    assert len(lines[whole]) == 2 + 3 * 100
    assert len(lines[folded]) <= 3 + 3 * 10 + 2 * 20 + 3, "by the minute, and the latest"
    assert [bool(page.sums) for ledger in (whole, folded) for page in ledger.pages()] == [False, True]
    assert summarise(tmp_path / "folded", by) == summarise(tmp_path / "whole", by)
    assert [one for one in whole.rows() if one.batch_id > 95] == [one for one in folded.rows() if one.batch_id > 95]


def test_which_batches_are_entered_is_known_after_they_were_added_up(tmp_path: Path) -> None:
    written = of_long(tmp_path, 20)
    for ledger in (written, Ledger(tmp_path / "ledger", 20)):
        assert [batch_id for batch_id in range(103) if not ledger.has("q", batch_id)] == [33, 100, 101, 102]
        assert ledger.noted_open("q") == {33}
        assert [page.open for page in ledger.pages()] == [{33}]
        assert ledger.queries()["q"].checkpoint == "/checkpoint"
        assert {one.batch_id for one in ledger.rows()}.isdisjoint(range(80))
    written.add([row(33, arrived=10, dropped=1)])  # counted again at last
    for batch_id in range(100, 130):
        written.add([row(batch_id, arrived=1, dropped=0)])
    assert written.has("q", 33)
    assert [page.open for page in Ledger(tmp_path / "ledger").pages()] == [set()]
    assert sum(total.batches for total in summarise(tmp_path, "output")) == 130


def test_no_ledger_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["ledger", str(tmp_path)])
    assert result.exit_code == 2
    assert "there is no ledger" in result.stderr
