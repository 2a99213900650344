"""Counting a past batch again: which copy of the checkpoint Spark gets, and which query it runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.engines.spark import recount as module
from streamshed.engines.spark.checkpoint import CheckpointLog
from streamshed.engines.spark.monitor import BatchReport, DropCounts
from streamshed.engines.spark.recount import RecountError, is_recount, recount


def checkpoint(root: Path, *offsets: str) -> CheckpointLog:
    """Three batches that are committed; those after the first read up to the given offsets."""
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    for number in range(3):
        texts = [f"{offset}{number}" for offset in offsets]
        (root / "offsets" / str(number)).write_text("\n".join(["v1", '{"batchTimestampMs": 1000}', *texts]))
        (root / "commits" / str(number)).write_text("v1\n{}")
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=None, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))
    )
    return CheckpointLog(session, str(root))


class Spark:
    """In the place of Spark: looks at the copy that it is to go on from, and reports."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked: list[dict[str, Any]] = []
        self.observed: dict[str, dict[str, int]] = {}
        self.fails = False
        patch.setattr(module, "F", SimpleNamespace(lit=lambda value: value))
        patch.setattr(module, "_replay", self.replay)

    def replay(self, batch_id: int, frames: Any, place: Path) -> BatchReport:
        self.asked.append(
            {
                "batch": batch_id,
                "frames": list(frames),
                "offsets": (place / "offsets" / str(batch_id)).read_text().splitlines()[2:],
                "commits": sorted(int(entry.name) for entry in (place / "commits").iterdir()),
                "place": place,
            }
        )
        if self.fails:
            raise RecountError("no")
        return BatchReport("q", "r", None, batch_id, 0.0, 0.0, self.observed, ())


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(monkeypatch)


def drops(**places: int) -> Any:
    """A drop for each name, which makes a frame that says its name and its threshold."""
    return {name: lambda threshold, name=name, place=place: (name, threshold(place)) for name, place in places.items()}


def test_sources_are_taken_by_name_whatever_their_order(tmp_path: Path, spark: Spark) -> None:
    """The plan reads c, a, c and b; the drops come in the order of the sources, and know their own thresholds."""
    log = checkpoint(tmp_path / "log", "c", "a", "c", "b")
    recount(log, 1, drops(b=2, c=0, a=1), [0.25, 0.5, 0.75], ["c", "a", "c", "b"])
    (asked,) = spark.asked
    assert asked["frames"] == [("b", 0.75), ("c", 0.25), ("a", 0.5)]
    assert asked["offsets"] == ["b1", "c1", "a1"]
    assert (asked["batch"], asked["commits"]) == (1, [0])


def test_counts_are_those_of_the_report_and_nothing_where_it_says_nothing(tmp_path: Path, spark: Spark) -> None:
    spark.observed = {"a/tuples": {"arrived": 9, "malformed": 1, "kept": 5}}
    found = recount(checkpoint(tmp_path / "log", "a", "b"), 1, drops(a=0, b=1), [0.5, 0.5], ["a", "b"])
    assert found == {"a": DropCounts(9, 1, 5), "b": DropCounts(0, 0, 0)}


@pytest.mark.parametrize("fails", [False, True])
def test_the_copy_is_gone_afterwards(tmp_path: Path, spark: Spark, fails: bool) -> None:
    spark.fails = fails
    log = checkpoint(tmp_path / "log", "a")
    if fails:
        with pytest.raises(RecountError):
            recount(log, 1, drops(a=0), [0.5], ["a"])
    else:
        recount(log, 1, drops(a=0), [0.5], ["a"])
    assert not spark.asked[0]["place"].parent.exists()


@pytest.mark.parametrize("order", [["a"], ["a", "b", "a"]])
def test_a_source_that_is_not_guarded_once_cannot_be_counted(tmp_path: Path, spark: Spark, order: list[str]) -> None:
    log = checkpoint(tmp_path / "log", "a", "b")
    with pytest.raises(RecountError, match=f"2 sources, {len(order)} drops"):
        recount(log, 1, drops(a=0, b=1), [0.0, 0.0], order)
    assert spark.asked == []


def test_a_batch_that_is_no_longer_in_the_log_cannot_be_counted(tmp_path: Path, spark: Spark) -> None:
    with pytest.raises(RecountError, match=r"no longer(.|\n)*batch 7"):
        recount(checkpoint(tmp_path / "log", "a"), 7, drops(a=0), [0.0], ["a"])


def test_queries_that_count_again_are_known_by_their_names() -> None:
    assert is_recount("streamshed-recount/x")
    assert [is_recount(name) for name in (None, "", "q", "streamshed-recount", "x/streamshed-recount/x")] == [False] * 5


# --- the query -------------------------------------------------------------------------------------------------------


class Frame:
    """A frame, a writer of it, and the query that it starts."""

    def __init__(self, name: str, progress: list[int]) -> None:
        self.name, self.progress = name, progress
        self.said: list[tuple[str, ...]] = []

    def select(self, column: str) -> Frame:
        return Frame(f"{self.name}.{column}", self.progress)

    def unionAll(self, other: Frame) -> Frame:
        return Frame(f"{self.name} + {other.name}", self.progress)

    @property
    def writeStream(self) -> Frame:
        SEEN.append(self)
        return self

    def format(self, name: str) -> Frame:
        return self._say("format", name)

    def option(self, name: str, value: str) -> Frame:
        return self._say(name, value)

    def queryName(self, name: str) -> Frame:
        return self._say("name", name)

    def trigger(self, *, once: bool) -> Frame:
        return self._say("once", str(once))

    def start(self) -> Frame:
        return self._say("start")

    def awaitTermination(self) -> None:
        self._say("await")

    @property
    def recentProgress(self) -> list[Any]:
        assert self.said[-1] == ("await",)
        told = {"id": "q", "runId": "r", "timestamp": "2026-11-18T19:17:22.683Z", "durationMs": {}}
        return [SimpleNamespace(json=json.dumps({**told, "batchId": batch_id})) for batch_id in self.progress]

    def _say(self, *what: str) -> Frame:
        self.said.append(what)
        return self


SEEN: list[Frame] = []


@pytest.fixture(autouse=True)
def _functions(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    literal = SimpleNamespace(lit=lambda value: SimpleNamespace(alias=lambda name: f"{name}={value}"))
    monkeypatch.setattr(module, "F", literal)
    monkeypatch.setattr(module, "DataFrame", Frame)


def replay(frames: Any, batch_id: int, place: Path) -> BatchReport:
    return module._replay(batch_id, frames, place)


def test_one_batch_of_all_drops_together_is_run_again(tmp_path: Path) -> None:
    place = tmp_path / "streamshed-recount-x" / "checkpoint"
    frames = [Frame("a", [3, 4]), Frame("b", [3, 4])]
    assert replay(frames, 4, place).batch_id == 4
    (query,) = SEEN
    assert query.name == "a.tuple=1 + b.tuple=1"
    assert query.said == [
        ("format", "noop"),
        ("checkpointLocation", place.as_uri()),
        ("name", "streamshed-recount/streamshed-recount-x"),
        ("once", "True"),
        ("start",),
        ("await",),
    ]


def test_if_spark_did_not_run_it_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecountError, match=r"did not run(.|\n)*batch 4"):
        replay([Frame("a", [3, 5])], 4, tmp_path)
