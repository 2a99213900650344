"""The loop around one query: what a controller gets to see of a batch, and of the one that would start now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.control import BatchAdmission, BatchCost, LoadSample, Outlook, PlantController
from streamshed.engines.spark.checkpoint import BatchStart
from streamshed.engines.spark.cost_memory import CostMemory
from streamshed.engines.spark.loop import BatchLoop, batch_sample
from streamshed.engines.spark.monitor import BatchReport, DropCounts


def report(batch_id: int = 0, start_s: float = 100.0, duration_s: float = 2.0) -> BatchReport:
    return BatchReport("q", "r", "name", batch_id, start_s, duration_s, {}, ())


# --- batches that have ended -----------------------------------------------------------------------------------------


def test_a_sample_is_about_all_well_formed_tuples_and_the_slowest_of_the_streams() -> None:
    # Arrivals: the first, quantiles of 1, 5, 25, 50, 75 and 95 %, the last.
    fast = DropCounts(10, 1, 9, (98.0, 98.1, 98.2, 98.5, 99.0, 99.5, 99.8, 100.0))
    slow = DropCounts(20, 2, 5, (90.0, 97.0, 97.5, 98.0, 99.5, 99.6, 99.9, 100.0))
    sample = batch_sample(report(), [fast, slow, DropCounts(7, 0, 0)], kept=14)
    assert (sample.time_s, sample.duration_s, sample.arrived, sample.kept) == (102.0, 2.0, 34, 14)
    assert sample.delay_p50_s == pytest.approx(3.0)  # of the fast one: 102 - 99
    assert sample.delay_p95_s == pytest.approx(4.5)  # of the slow one: 102 - 97.5
    assert sample.delay_p99_s == pytest.approx(5.0)
    assert sample.delay_max_s == pytest.approx(12.0)


def test_without_arrival_times_there_are_no_delays() -> None:
    sample = batch_sample(report(), [DropCounts(10, 0, 10)], kept=10)
    assert (sample.delay_p50_s, sample.delay_p95_s, sample.delay_p99_s, sample.delay_max_s) == (None,) * 4


class Controller(PlantController):
    """Writes down what it is told and asked."""

    def __init__(self) -> None:
        super().__init__(2.0)
        self.samples: list[LoadSample] = []
        self.outlooks: list[Outlook] = []

    def observe(self, sample: LoadSample) -> None:
        self.samples.append(sample)

    def admit(self, outlook: Outlook) -> BatchAdmission:
        self.outlooks.append(outlook)
        return BatchAdmission(1.0, 0.25)


class Gated:
    """A query behind a gate, of which the test says what has started, and what is over.

    Args:
        drops: their names.
        plan_order: the places in which their streams are read.
    """

    def __init__(self, drops: tuple[str, ...] = ("a",), plan_order: tuple[str, ...] = ("a",)) -> None:
        self.drops, self.plan_order = list(drops), list(plan_order)
        self.started: dict[int, BatchStart] = {}
        self.committed: set[int] = set()
        self.handle = SimpleNamespace(isActive=True, status={"message": "Processing new data"})
        self.log = SimpleNamespace(batch=self.started.get, is_committed=self.committed.__contains__)

    def start(self, batch_id: int, time_ms: int, *offsets: str | None) -> None:
        self.started[batch_id] = BatchStart(batch_id, time_ms, offsets)

    def latest(self, _: float) -> BatchStart | None:
        return self.started[max(self.started)] if self.started else None


@pytest.fixture
def controller() -> Controller:
    return Controller()


def loop(gated: Gated, controller: Controller, place: Path) -> BatchLoop:
    made: Any = gated
    return BatchLoop(made, controller, CostMemory(place / "cost.json"))


def arrived(number: int, kept: int | None = None) -> Mapping[str, DropCounts]:
    return {"a": DropCounts(number, 0, number if kept is None else kept)}


def test_a_batch_is_told_to_the_controller_and_remembered(tmp_path: Path, controller: Controller) -> None:
    made = loop(Gated(), controller, tmp_path)
    before = made.sample
    assert before is None
    counts = {"a": DropCounts(100, 10, 40), "b": DropCounts(50, 0, 20)}
    sample = made.learn(report(), counts)
    assert made.sample is sample
    assert controller.samples == [sample]
    assert (sample.arrived, sample.kept) == (140, 60)


def rate(gated: Gated, controller: Controller, place: Path, *batches: tuple[int, int]) -> float:
    """The rate that is known after batches (start in ms, tuples), as seen in an outlook one second later."""
    made = loop(gated, controller, place)
    for batch_id, (time_ms, tuples) in enumerate(batches):
        gated.start(batch_id, time_ms, None)
        made.learn(report(batch_id), arrived(tuples))
    made.admission(max(time_ms for time_ms, _ in batches) / 1000 + 1.0, {})
    return controller.outlooks[-1].waiting


def test_one_batch_tells_no_rate(tmp_path: Path, controller: Controller) -> None:
    assert rate(Gated(), controller, tmp_path, (1000, 500)) == 0.0


def test_the_rate_is_what_came_since_the_batch_before(tmp_path: Path, controller: Controller) -> None:
    assert rate(Gated(), controller, tmp_path, (1000, 900), (3000, 500)) == pytest.approx(250.0)


def test_rates_are_averaged_by_halves(tmp_path: Path, controller: Controller) -> None:
    # 250, then half way to 1000, then half way to 125.
    found = rate(Gated(), controller, tmp_path, (1000, 0), (3000, 500), (4000, 1000), (8000, 500))
    assert found == pytest.approx((250 + 1000) / 4 + 125 / 2)


def test_a_batch_that_started_no_later_tells_no_rate(tmp_path: Path, controller: Controller) -> None:
    """The clock was set back, or it was replayed."""
    found = rate(Gated(), controller, tmp_path, (1000, 0), (3000, 500), (3000, 9000), (2000, 9000))
    assert found == pytest.approx(500.0), "250 a second for the two since the last one"


def test_a_batch_that_is_not_in_the_log_tells_no_rate(tmp_path: Path, controller: Controller) -> None:
    gated = Gated()
    made = loop(gated, controller, tmp_path)
    gated.start(0, 1000, None)
    made.learn(report(0), arrived(100))
    made.learn(report(1), arrived(100))
    assert made._rate_tps == 0.0


# --- the batch that would start now ----------------------------------------------------------------------------------


def test_before_the_first_batch_and_after_the_end_everything_is_kept(tmp_path: Path, controller: Controller) -> None:
    gated = Gated()
    made = loop(gated, controller, tmp_path)
    assert made.admission(5.0, {}) == BatchAdmission(1.0)
    gated.start(0, 1000, None)
    gated.handle.isActive = False
    assert made.admission(5.0, {}) == BatchAdmission(1.0)
    assert controller.outlooks == []
    gated.handle.isActive = True
    assert made.admission(5.0, {}) == BatchAdmission(1.0, 0.25)


def test_the_oldest_tuple_has_waited_since_the_last_batch_started(tmp_path: Path, controller: Controller) -> None:
    gated = Gated()
    gated.start(0, 1000, None)
    made = loop(gated, controller, tmp_path)
    made.admission(5.0, {})
    (outlook,) = controller.outlooks
    assert (outlook.time_s, outlook.oldest_wait_s, outlook.span_s) == (5.0, 4.0, 4.0)
    made.admission(0.5, {})  # the clock was set back
    assert (controller.outlooks[1].oldest_wait_s, controller.outlooks[1].span_s) == (0.0, 0.001)


def test_a_query_that_waits_for_data_has_nothing_waiting(tmp_path: Path, controller: Controller) -> None:
    gated = Gated()
    made = loop(gated, controller, tmp_path)
    for batch_id, time_ms in enumerate((1000, 2000)):
        gated.start(batch_id, time_ms, None)
        made.learn(report(batch_id), arrived(100))
    idle = {"message": "Waiting for data to arrive"}
    for committed, status, waiting in [
        ({0, 1}, idle, 0.0),
        ({0}, idle, 200.0),
        ({0, 1}, {"message": "Processing new data"}, 200.0),
    ]:
        gated.committed.clear()
        gated.committed |= committed
        gated.handle.status = status
        made.admission(4.0, {})
        assert controller.outlooks[-1].waiting == pytest.approx(waiting)


def test_a_source_that_can_tell_is_asked_with_its_own_offset(tmp_path: Path, controller: Controller) -> None:
    gated = Gated(("b", "a"), ("b", "a", "b"))
    gated.start(0, 1000, "of b", "of a", "of b")
    asked: list[tuple[str | None, float]] = []

    def waiting(offset: str | None, time_s: float) -> float:
        asked.append((offset, time_s))
        return {"of b": 30, "of a": 500}[offset or ""]

    loop(gated, controller, tmp_path).admission(4.0, {"a": waiting, "b": waiting})
    assert asked == [("of b", 4.0), ("of a", 4.0)]
    assert controller.outlooks[0].waiting == 530.0


def test_streams_that_cannot_tell_are_taken_to_be_like_those_that_can(tmp_path: Path, controller: Controller) -> None:
    gated = Gated(("a", "b", "c"), ("a", "b", "c"))
    gated.start(0, 1000, None, None, None)
    waiting = {"a": lambda _, __: 100.0, "b": lambda _, __: 50.0, "of another query": lambda _, __: 1e9}
    loop(gated, controller, tmp_path).admission(4.0, waiting)
    assert controller.outlooks[0].waiting == pytest.approx(225.0)


def test_a_source_that_has_no_offset_yet_is_asked_without_one(tmp_path: Path, controller: Controller) -> None:
    gated = Gated(("a",), ("a",))
    gated.start(0, 1000)  # from before the stream was added
    asked: list[str | None] = []

    def waiting(offset: str | None, _: float) -> float:
        asked.append(offset)
        return 7.0

    loop(gated, controller, tmp_path).admission(4.0, {"a": waiting})
    assert asked == [None]
    assert controller.outlooks[0].waiting == 7.0


# --- what the last run has found out ---------------------------------------------------------------------------------


def test_a_loop_begins_with_what_the_last_run_has_found_out(tmp_path: Path) -> None:
    first = PlantController(2.0)
    first.believe(BatchCost(0.1, 1e-6, 1e-4), 1000)
    memory = CostMemory(tmp_path / "cost.json")
    made: Any = Gated()
    BatchLoop(made, first, memory).learn(report(), arrived(1000))
    again = PlantController(2.0)
    assert again.cost is None
    BatchLoop(made, again, memory)
    assert again.cost is not None
