"""What lies on a durable arc, and the sums along chains of stages, without Spark."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamshed.engines.spark.arc_queue import ArcQueue
from streamshed.engines.spark.arcs import ArcBatch
from streamshed.engines.spark.backlog import StageCosts
from streamshed.engines.spark.checkpoint import CheckpointLog
from streamshed.engines.spark.layout import check_layout
from streamshed.engines.spark.passes import Pass, SlowestWay, follow
from streamshed.errors import NetworkError
from streamshed.network import NetworkBuilder, Statistics
from streamshed.network.stages import stages
from tests.polling import PATIENCE_S


class FakeArc:
    """An arc in memory; a batch is its number of rows."""

    directory = "memory"

    def __init__(self, **rows: int) -> None:
        self.rows = {int(number[1:]): count for number, count in rows.items()}
        self.broken: set[int] = set()
        self.while_removing: Callable[[], object] = lambda: None

    def batches(self, _: object) -> list[int]:
        return sorted(self.rows)

    def batch(self, _: object, number: int) -> ArcBatch:
        return ArcBatch(number, self.rows[number], 10 * self.rows[number])

    def write(self, batch: int, number: int) -> ArcBatch:
        if batch:
            self.rows[number] = batch
        return ArcBatch(number, batch, 10 * batch)

    def remove(self, _: object, number: int) -> None:
        if number in self.broken:
            raise OSError("the disk is away")
        self.while_removing()
        self.rows.pop(number, None)


def queue(arc: FakeArc, *readers: str) -> ArcQueue:
    return ArcQueue(cast("Any", None), cast("Any", arc), readers)


def waiting(of_queue: ArcQueue, reader: str) -> list[int]:
    return [batch.number for batch in of_queue.waiting(reader)]


def test_what_waits_for_each_reader() -> None:
    arc = queue(FakeArc(b3=5), "a", "b")
    assert arc.put(cast("Any", 7), 4) == ArcBatch(4, 7, 70)
    assert arc.put(cast("Any", 0), 5).rows == 0, "an empty batch leaves nothing"
    assert waiting(arc, "a") == waiting(arc, "b") == [3, 4]
    arc.take("a", [2, 3])
    assert (waiting(arc, "a"), waiting(arc, "b")) == ([4], [3, 4])
    arc.take("a", [6])
    arc.put(cast("Any", 1), 6)
    assert (waiting(arc, "a"), waiting(arc, "b")) == ([4], [3, 4, 6]), "seen by a reader before its writer said so"
    arc.passes[4] = Pass({"s": 70})
    assert arc.waiting_tuples("b") == 76, "the tuples behind a batch where they are known, else its rows"


class TellingLock:
    """A lock that says so if somebody has to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.somebody_waits = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.somebody_waits.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def both_process(of_queue: ArcQueue) -> None:
    with of_queue.processing("a"), of_queue.processing("b"):
        pass


def test_only_what_all_readers_have_finished_is_deleted() -> None:
    arc = FakeArc(b0=1, b1=1, b2=1, b3=1)
    of_arc = queue(arc, "a", "b")
    of_arc.finish("a", [0, 1, 2, 3])
    both_process(of_arc)
    assert sorted(arc.rows) == [0, 1, 2, 3], "b may still want them"
    of_arc.finish("b", [0, 2, 3])
    both_process(of_arc)
    assert sorted(arc.rows) == [1, 3], "the newest must be found by its writer's replay"
    of_arc.put(cast("Any", 1), 4)
    both_process(of_arc)
    assert sorted(arc.rows) == [1, 4]
    assert waiting(of_arc, "a") == [1, 4]


def test_nothing_is_deleted_while_a_reader_may_list_files() -> None:
    arc = FakeArc(b0=1, b1=1)
    of_arc = queue(arc, "a", "b")
    for reader in ("a", "b"):
        of_arc.finish(reader, [0])
    for reader in ("a", "b", "a"):  # never both at once
        with of_arc.processing(reader):
            assert sorted(arc.rows) == [0, 1]
    deleting = of_arc._deleting = cast("Any", TellingLock())
    entered, removed = threading.Event(), threading.Event()

    def remove() -> None:
        entered.set()
        assert deleting.somebody_waits.wait(PATIENCE_S), "whoever goes on to list files waits for the deletion"
        removed.set()

    arc.while_removing = remove
    with of_arc.processing("a"):
        other = threading.Thread(target=both_process, args=(of_arc,))
        other.start()
        assert entered.wait(PATIENCE_S)
    assert removed.is_set()
    assert sorted(arc.rows) == [1]
    other.join()


def test_a_deletion_that_fails_is_tried_again() -> None:
    arc = FakeArc(b0=1, b1=1, b2=1)
    of_arc = queue(arc, "a")
    of_arc.finish("a", [0, 1])
    arc.broken = {0}
    for still_there in ([0, 2], [2]):
        with of_arc.processing("a"):
            assert sorted(arc.rows) == still_there
        arc.broken = set()


def test_the_files_that_a_source_has_read(tmp_path: Path) -> None:
    def entries(*numbers: int) -> str:
        return "\n".join(["v1", *(json.dumps({"path": f"f{n}", "batchId": n}) for n in numbers)])

    place = tmp_path / "sources" / "1"
    place.mkdir(parents=True)
    for name, numbers in {"8": (8,), "9.compact": range(10), "10": (10,), "11": (11,)}.items():
        (place / name).write_text(entries(*numbers))
    spark = SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=None, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))
    )
    log = CheckpointLog(cast("Any", spark), tmp_path.as_uri())

    def read(end: int, after: int | None = None) -> list[str]:
        begin = None if after is None else json.dumps({"logOffset": after})
        return log.files_read(1, json.dumps({"logOffset": end}), begin)

    assert read(10) == [f"f{n}" for n in range(11)]
    assert read(11, 10) == ["f11"]
    assert read(9, 7) == ["f8", "f9"]
    assert read(8, 7) == ["f8"]
    assert read(8, 8) == []
    assert log.files_read(1, None) == log.files_read(1, '{"index": 7}') == []


def test_passes_add_up_along_a_chain() -> None:
    left = follow({"s": 100}, [], duration_s=0.5, tuple_s=0.002, share=0.5)
    right = follow({"s": 100, "t": 50}, [], duration_s=0.2, tuple_s=0.001, share=1.0)
    both = follow({}, [[left, left], [right]], duration_s=1.0, tuple_s=0.01, share=0.5)
    assert both.arrived == {"s": 200, "t": 50}, "what comes on two ways is there once"
    assert both.duration_s == pytest.approx(2.0), "the longest way"
    assert both.full_s == pytest.approx(0.2 + 0.2 + 0.15 + 2.5)
    assert both.worked_s == pytest.approx(0.1 + 0.1 + 0.15 + 1.25)
    assert math.isnan(follow({"s": 1}, [], duration_s=1, tuple_s=0.1, share=math.nan).share)
    assert follow({"s": 1}, [], duration_s=1, tuple_s=0.0, share=1.0).share == 1.0


def test_the_slowest_way_leads() -> None:
    slowest = SlowestWay()
    assert slowest.leads_to("a", 1.0)
    assert slowest.leads_to("b", 2.0)
    assert not slowest.leads_to("a", 1.1)
    assert not slowest.leads_to("a", 2.5), "one slow batch is no trend"
    for _ in range(5):
        slowest.leads_to("a", 2.5)
    assert slowest.leads_to("a", 2.5)
    assert not slowest.leads_to("b", 2.0)


def test_costs_of_stages() -> None:
    new = NetworkBuilder("chain")
    first = new.stream("s", {"v": "int"}).filter("f", "v > 1", stage=True)
    first.filter("g", "v > 2").output("out")
    new.stream("t", {"v": "int"}).filter("h", "v > 1").output("other")
    network = new.build()
    costs = StageCosts(
        network,
        Statistics({"f": 1.0, "g": 2.0, "h": 3.0}, {"f": 0.5}),
        {"s": 10.0, "t": 30.0},
        stages(network),
    )
    assert costs.tuple_s == {"f": 1.0, "out": 1.0, "other": 3.0}
    # Of 110 s a second, 10 are spent on half of the tuples of `s`: a quarter of all tuples.
    assert costs.ahead["out"] == pytest.approx(10 / 110 * 4)
    assert costs.ahead["f"] == pytest.approx(20 / 110 * 4)


def test_a_directory_keeps_its_stages(tmp_path: Path) -> None:
    file = tmp_path / "stages.json"
    before = {"f": {"operators": ["f"], "columns": "struct<v:int>"}, "all outputs": {"operators": [], "columns": None}}
    check_layout(file, before)
    check_layout(file, before)
    with pytest.raises(NetworkError) as fewer:
        check_layout(file, {"all outputs": before["all outputs"]})
    assert fewer.value.expected == "stages 'f', 'all outputs'"
    with pytest.raises(NetworkError) as other:
        check_layout(file, {**before, "f": {"operators": ["f"], "columns": "struct<v:bigint>"}})
    assert other.value.got == "columns of stage 'f': struct<v:bigint>"
