"""`streamshed ledger` on ledgers written by hand."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.engines.spark.ledger import Ledger, LedgerRow


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


def test_no_ledger_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["ledger", str(tmp_path)])
    assert result.exit_code == 2
    assert "there is no ledger" in result.stderr
