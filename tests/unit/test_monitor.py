"""Reports on batches, from Spark's own text, and who hears of them."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark.monitor import BatchReport, DropCounts, Monitor

# Of Spark 4.3, from a query over b and a, with b read twice; shortened only in what nobody looks at.
PROGRESS = """
{"id": "3465dc3e-5b07-4aad-8d4d-e0c2e2284264", "runId": "401eb90a-1285-4049-8987-c14f577ae050", "name": "q",
 "timestamp": "2026-11-18T19:17:22.683Z", "batchId": 7, "batchDuration": 8407, "numInputRows": 12,
 "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 1.4,
 "durationMs": {"addBatch": 5639, "commitOffsets": 75, "getBatch": 66, "latestOffset": 231, "queryPlanning": 2272,
  "triggerExecution": 8402, "walCommit": 51},
 "stateOperators": [{"operatorName": "stateStoreSave", "numRowsTotal": 3, "memoryUsedBytes": 4096},
  {"operatorName": "dedupe", "numRowsTotal": 1, "memoryUsedBytes": 512}, {"operatorName": "odd"}],
 "sources": [{"description": "FileStreamSource[file:/in2]", "startOffset": null, "endOffset": {"logOffset": 0},
   "latestOffset": null, "numInputRows": 2, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.2},
  {"description": "FileStreamSource[file:/in]", "startOffset": {"logOffset": 3}, "endOffset": {"logOffset": 4},
   "latestOffset": null, "numInputRows": 10, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 1.2}],
 "sink": {"description": "NoopTable", "numOutputRows": 12},
 "observedMetrics": {"streamshed/f65ef9d9/a/tuples": {"arrived": 10, "kept": 7, "malformed": 1},
  "streamshed/f65ef9d9/b/tuples": {"arrived": 4, "kept": 3}}}
"""


def changed(**fields: Any) -> BatchReport:
    return BatchReport.from_json(json.dumps(json.loads(PROGRESS) | fields))


def test_a_report_is_read_from_the_text_that_spark_gives() -> None:
    report = BatchReport.from_json(PROGRESS)
    assert report.query_id == "3465dc3e-5b07-4aad-8d4d-e0c2e2284264"
    assert report.run_id == "401eb90a-1285-4049-8987-c14f577ae050"
    assert (report.query_name, report.batch_id) == ("q", 7)
    assert report.start_s == 1_795_029_442.683
    assert report.duration_s == 8.402
    assert report.end_s == pytest.approx(1_795_029_451.085)
    assert report.state_bytes == 4608
    assert [source["endOffset"] for source in report.sources] == [{"logOffset": 0}, {"logOffset": 4}]


def test_counts_are_found_by_the_name_of_the_drop() -> None:
    report = BatchReport.from_json(PROGRESS)
    assert report.counts("streamshed/f65ef9d9/a") == DropCounts(10, 1, 7)
    assert report.counts("streamshed/f65ef9d9/b") == DropCounts(4, 0, 3)
    assert report.counts("streamshed/f65ef9d9/c") is None


def test_what_is_not_said_is_nothing() -> None:
    report = changed(name=None, observedMetrics=None, sources=None, stateOperators=None, durationMs={})
    assert (report.query_name, report.observed, report.sources) == (None, {}, ())
    assert (report.state_bytes, report.duration_s) == (0, 0.0)


def with_arrivals(**found: Any) -> DropCounts:
    counts = changed(observedMetrics={"a/tuples": {"arrived": 9, "kept": 9, **found}}).counts("a")
    assert counts is not None
    return counts


def test_arrival_times_are_the_first_the_quantiles_and_the_last() -> None:
    counts = with_arrivals(first=1.0, last=5.0, quantiles=[1.1, 1.2, 2.0, 3.0, 4.0, 4.8])
    assert counts.arrivals_s == (1.0, 1.1, 1.2, 2.0, 3.0, 4.0, 4.8, 5.0)


@pytest.mark.parametrize("quantiles", [None, []])
def test_without_a_sample_arrivals_are_taken_to_be_even(quantiles: list[float] | None) -> None:
    counts = with_arrivals(first=100.0, last=200.0, quantiles=quantiles)
    assert counts.arrivals_s == pytest.approx((100.0, 101.0, 105.0, 125.0, 150.0, 175.0, 195.0, 200.0))


@pytest.mark.parametrize("found", [{}, {"first": None, "last": None}, {"first": 1.0}, {"last": 1.0}])
def test_without_arrival_times_there_are_none(found: dict[str, Any]) -> None:
    counts = with_arrivals(**found)
    assert counts.arrivals_s == ()
    assert counts.delay_s(0.5, 10.0) is None
    assert counts.mean_delay_s(10.0) is None


def test_cells_are_counted_in_order_up_to_the_first_that_is_missing() -> None:
    assert with_arrivals(cell0=4, cell1=0, cell2=5, cell4=7).cells == (4, 0, 5)
    assert with_arrivals().cells == ()


def test_what_was_neither_malformed_nor_kept_was_dropped() -> None:
    assert DropCounts(100, 8, 30).dropped == 62


# --- delays ----------------------------------------------------------------------------------------------------------

# The quantiles are those of 0, 1, 5, 25, 50, 75, 95 and 100 % of the arrivals; done at 10.
COUNTS = DropCounts(9, 0, 9, (1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0))


@pytest.mark.parametrize(
    ("quantile", "delay_s"),
    [
        (1.0, 9.0),  # the first one has waited longest
        (0.99, 8.0),
        (0.995, 8.5),  # half way between the first and the quantile of 1 %
        (0.95, 7.0),
        (0.75, 6.0),
        (0.5, 4.0),
        (0.625, 5.0),
        (0.25, 3.0),
        (0.05, 2.0),
        (0.0, 1.0),
        (0.025, 1.5),
    ],
)
def test_delays_are_read_off_the_arrivals_from_the_other_end(quantile: float, delay_s: float) -> None:
    assert COUNTS.delay_s(quantile, 10.0) == pytest.approx(delay_s)


def test_below_all_quantiles_the_last_arrival_counts() -> None:
    assert COUNTS.delay_s(-0.1, 10.0) == 1.0


def test_the_mean_delay_weighs_each_part_by_its_share() -> None:
    # 1 % at 1.5, 4 % at 2.5, 20 % at 3.5, 25 % at 5, 25 % at 6.5, 20 % at 7.5, 5 % at 8.5: 5.615 on average.
    assert COUNTS.mean_delay_s(10.0) == pytest.approx(10.0 - 5.615)


# --- who hears of it -------------------------------------------------------------------------------------------------


class Listener:
    """Writes down what it hears."""

    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self._fails = fails

    def _hear(self, *what: Any) -> None:
        self.heard.append(what)
        if self._fails:
            raise ZeroDivisionError

    def on_start(self, query_id: str, run_id: str, query_name: str | None) -> None:
        self._hear("start", query_id, run_id, query_name)

    def on_batch(self, report: BatchReport) -> None:
        self._hear("batch", report.batch_id)

    def on_end(self, query_id: str, run_id: str, error: str | None) -> None:
        self._hear("end", query_id, run_id, error)


def events(monitor: Monitor) -> None:
    """A query starts, runs a batch and dies."""
    started: Any = SimpleNamespace(id="q", runId="r", name="n")
    progress: Any = SimpleNamespace(progress=SimpleNamespace(json=PROGRESS))
    ended: Any = SimpleNamespace(id="q", runId="r", exception="kaputt")
    idle: Any = SimpleNamespace(id="q")
    monitor.onQueryStarted(started)
    monitor.onQueryProgress(progress)
    monitor.onQueryIdle(idle)
    monitor.onQueryTerminated(ended)


HEARD = [("start", "q", "r", "n"), ("batch", 7), ("end", "q", "r", "kaputt")]


def test_all_subscribers_hear_all_events_in_turn(caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor()
    listeners = [Listener(), Listener(fails=True), Listener()]
    for listener in listeners:
        monitor.subscribe(listener)
    events(monitor)
    assert [listener.heard for listener in listeners] == [HEARD] * 3
    failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(failed) == 3, "one that fails is said, and does not reach the others"


def test_who_has_unsubscribed_hears_no_more() -> None:
    monitor = Monitor()
    stays, goes = Listener(), Listener()
    monitor.subscribe(stays)
    monitor.subscribe(goes)
    monitor.unsubscribe(goes)
    monitor.unsubscribe(goes)
    events(monitor)
    assert (stays.heard, goes.heard) == (HEARD, [])


def test_a_session_has_one_monitor() -> None:
    added: list[Monitor] = []
    session: Any = SimpleNamespace(streams=SimpleNamespace(addListener=added.append))
    monitor = Monitor.of(session)
    assert Monitor.of(session) is monitor
    assert added == [monitor]
    other: Any = SimpleNamespace(streams=session.streams)
    assert Monitor.of(other) is not monitor
