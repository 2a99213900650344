"""How much waits for the stages of a network: at its sources, and on the arcs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamshed.control import Outlook
from streamshed.distributed.arc_files import ArcFiles, Inbox
from streamshed.engines.spark.backlog import Backlog, StageCosts
from streamshed.engines.spark.checkpoint import BatchStart
from streamshed.network import Connector, Network, NetworkBuilder, Statistics
from streamshed.network.stages import stages

EPOCH_S = 1_700_000_000.0
COLUMNS = {"at": "timestamp", "v": "int"}  # 8 and 4 bytes


def feeder(rate_tps: int) -> Connector:
    """A source that can tell how many tuples have arrived: so many each second since the epoch."""
    return Connector("feeder", {"pattern": "constant", "rate_tps": str(rate_tps), "epoch": str(int(EPOCH_S))})


def network(**sources: Connector | None) -> Network:
    """A filter and an output behind each stream."""
    made = NetworkBuilder("streams")
    for name, source in sources.items():
        stream = made.stream(name, COLUMNS, source=source) if source is not None else made.stream(name, COLUMNS)
        stream.filter(f"of_{name}", "v > 1").output(f"out_{name}")
    return made.build()


class Stage:
    """A stage that runs, of which the test says what has started and what lies on its arcs.

    Args:
        name: of the stage.
        plan_order: what it reads, some perhaps repeatedly.
        arcs: tuples that wait on each of its durable arcs.
        inboxes: the arcs that another application writes.
    """

    def __init__(
        self,
        name: str,
        plan_order: Sequence[str],
        *,
        arcs: Mapping[str, int] | None = None,
        inboxes: Mapping[str, Inbox] | None = None,
    ) -> None:
        self.id = name
        self.plan_order = tuple(plan_order)
        self.sources = tuple(dict.fromkeys(plan_order))
        self.inboxes = dict(inboxes or {})
        self.batches: dict[int, BatchStart] = {}
        self.gated: Any = None
        self.log = SimpleNamespace(batch=self.batches.get)
        self.last: Any = None
        self.unfinished: list[Any] = []
        self.reads = {
            arc: SimpleNamespace(waiting_tuples=lambda reader, tuples=tuples: tuples if reader == name else 0)
            for arc, tuples in (arcs or {}).items()
        }

    def start(self, since_s: float, *indexes: int | None) -> BatchStart:
        """A batch starts, so long after the epoch, and reads up to these tuples of its sources."""
        number = len(self.batches)
        texts = tuple(None if index is None else f'{{"index": {index}}}' for index in indexes)
        self.batches[number] = BatchStart(number, round((EPOCH_S + since_s) * 1000), texts)
        self.gated = SimpleNamespace(latest=lambda _: self.batches[number])
        return self.batches[number]


def backlog(of: Network, *running: Stage, ahead: Mapping[str, float] | None = None) -> Backlog:
    costs: Any = SimpleNamespace(ahead=ahead or {})
    known: Any = list(running)
    return Backlog(of, known, costs)


def outlook(found: Outlook | None) -> tuple[float, float, float]:
    """What waits, how long the oldest has waited, and in how much time they came."""
    assert found is not None
    return found.waiting, found.oldest_wait_s, found.span_s


# --- the batch that would start now ----------------------------------------------------------------------------------


def test_before_the_first_batch_of_every_stage_nothing_can_be_said() -> None:
    one, two = Stage("one", ["s"]), Stage("two", ["t"])
    found = backlog(network(s=feeder(10), t=feeder(10)), one, two)
    assert found.outlook(EPOCH_S + 5) is None
    one.start(1.0, 0)
    assert found.outlook(EPOCH_S + 5) is None
    two.start(2.0, 0)
    assert found.outlook(EPOCH_S + 5) is not None


def test_sources_that_can_tell_are_asked_from_where_they_were_read() -> None:
    stage = Stage("one", ["t", "s", "t"])
    found = backlog(network(s=feeder(1000), t=feeder(10)), stage)
    stage.start(3.0, 20, 2500, 20)
    # After 5 s, 5000 and 50 have arrived.
    assert outlook(found.outlook(EPOCH_S + 5)) == pytest.approx((2500 + 30, 2.0, 2.0))


def test_a_source_that_has_not_been_read_has_all_of_it_waiting() -> None:
    stage = Stage("one", ["s"])
    found = backlog(network(s=feeder(1000)), stage)
    stage.start(3.0, None)
    assert outlook(found.outlook(EPOCH_S + 5))[0] == 5000


def test_the_oldest_has_waited_since_the_stage_that_started_first() -> None:
    one, two = Stage("one", ["s"]), Stage("two", ["t"])
    found = backlog(network(s=feeder(10), t=feeder(10)), one, two)
    one.start(1.0, 10)
    two.start(4.0, 40)
    assert outlook(found.outlook(EPOCH_S + 5)) == pytest.approx((40 + 10, 4.0, 4.0))


def test_a_batch_that_starts_just_now_has_no_wait_of_nothing() -> None:
    stage = Stage("one", ["s"])
    found = backlog(network(s=feeder(1000)), stage)
    stage.start(5.0, 5000)
    assert outlook(found.outlook(EPOCH_S + 5)) == (0.0, 0.001, 0.001)
    assert outlook(found.outlook(EPOCH_S + 4))[1:] == (0.001, 0.001)


def test_sources_that_cannot_tell_are_guessed_from_their_rate() -> None:
    stage = Stage("one", ["s"])
    found = backlog(network(s=None), stage)
    made: Any = stage
    stage.start(1.0, None)
    assert outlook(found.outlook(EPOCH_S + 5))[0] == 0.0, "not known yet"
    found.learn(made, EPOCH_S + 1.0, 999)
    found.learn(made, EPOCH_S + 3.0, 500)
    assert outlook(found.outlook(EPOCH_S + 5))[0] == pytest.approx(250 * 4)
    found.learn(made, EPOCH_S + 4.0, 1000)  # half way from 250 to 1000
    assert outlook(found.outlook(EPOCH_S + 5))[0] == pytest.approx(625 * 4)
    found.learn(made, EPOCH_S + 4.0, 9999)  # started no later: tells nothing
    assert outlook(found.outlook(EPOCH_S + 5))[0] == pytest.approx(625 * 4)
    found.learn(made, EPOCH_S + 8.0, 500)  # half way from 625 to 125
    assert outlook(found.outlook(EPOCH_S + 5))[0] == pytest.approx(375 * 4)
    assert outlook(found.outlook(EPOCH_S + 0.5))[0] == 0.0, "the clock was set back"


def test_if_one_of_a_stages_sources_cannot_tell_all_are_guessed() -> None:
    stage = Stage("one", ["s", "t"])
    found = backlog(network(s=feeder(1000), t=None), stage)
    made: Any = stage
    stage.start(1.0, 1000, None)
    found.learn(made, EPOCH_S, 0)
    found.learn(made, EPOCH_S + 1.0, 300)
    assert outlook(found.outlook(EPOCH_S + 5))[0] == pytest.approx(300 * 4)


def test_a_stream_that_several_stages_read_is_looked_at_once() -> None:
    one, two = Stage("one", ["s"]), Stage("two", ["t", "s"])
    found = backlog(network(s=feeder(1000), t=feeder(10)), one, two)
    assert found.leads == {"one": ("s",), "two": ("t",)}
    one.start(4.0, 4000)
    two.start(4.0, 40, 0)
    assert outlook(found.outlook(EPOCH_S + 5))[0] == 1000 + 10
    made: Any = two
    found.learn(made, EPOCH_S + 4.0, 5)
    assert found._last_start_s == {"two": EPOCH_S + 4.0}


def test_a_stage_that_leads_no_stream_is_not_waited_for() -> None:
    one, two = Stage("one", ["s"]), Stage("two", ["arc"], arcs={"arc": 30})
    found = backlog(network(s=feeder(1000)), one, two, ahead={"one": 1.0, "two": 0.5})
    one.start(4.0, 4000)
    # Of 30 tuples on the arc, half of the work is still to be done.
    assert outlook(found.outlook(EPOCH_S + 5)) == pytest.approx((1000 + 15, 1.0, 1.0))
    made: Any = two
    found.learn(made, EPOCH_S + 4.0, 5)
    assert found._last_start_s == {}


def test_what_waits_on_all_arcs_adds_up() -> None:
    one = Stage("one", ["s"])
    two = Stage("two", ["x", "y"], arcs={"x": 30, "y": 8})
    three = Stage("three", ["x"], arcs={"x": 10})
    found = backlog(network(s=feeder(1000)), one, two, three, ahead={"two": 0.5, "three": 2.0})
    one.start(5.0, 5000)
    assert outlook(found.outlook(EPOCH_S + 5))[0] == pytest.approx(0.5 * 38 + 2.0 * 10)


# --- arcs of other applications --------------------------------------------------------------------------------------


class Arc:
    """An inbox with so many rows, of which the oldest have waited for so long."""

    def __init__(self, place: Path, rows: int, wait_s: float) -> None:
        self.inbox = Inbox(ArcFiles(place, "arc"))
        self.inbox.waiting_rows = lambda: rows  # type: ignore[method-assign]
        self.inbox.oldest_wait_s = lambda _: wait_s  # type: ignore[method-assign, assignment]


def test_what_waits_on_arcs_alone_is_known_before_the_first_batch(tmp_path: Path) -> None:
    s, t = Arc(tmp_path / "s", 70, 3.0), Arc(tmp_path / "t", 5, 8.0)
    stage = Stage("one", ["s", "t"], inboxes={"s": s.inbox, "t": t.inbox})
    found = backlog(network(s=None, t=None), stage)
    assert outlook(found.outlook(EPOCH_S + 5)) == (75.0, 8.0, 8.0)


def test_a_stage_that_was_idle_has_waited_no_longer_than_its_oldest_rows(tmp_path: Path) -> None:
    arc = Arc(tmp_path, 70, 3.0)
    stage = Stage("one", ["s"], inboxes={"s": arc.inbox})
    found = backlog(network(s=None), stage)
    stage.start(1.0, None)
    assert outlook(found.outlook(EPOCH_S + 61)) == (70.0, 3.0, 3.0)
    assert outlook(found.outlook(EPOCH_S + 3)) == (70.0, 2.0, 2.0)


def test_with_a_source_beside_an_arc_the_first_batch_is_waited_for(tmp_path: Path) -> None:
    arc = Arc(tmp_path, 70, 3.0)
    stage = Stage("one", ["s", "t"], inboxes={"s": arc.inbox})
    found = backlog(network(s=None, t=feeder(10)), stage)
    assert found.outlook(EPOCH_S + 5) is None
    stage.start(4.0, None, 40)
    assert outlook(found.outlook(EPOCH_S + 5)) == (70.0 + 10, 1.0, 1.0)


# --- after a batch ---------------------------------------------------------------------------------------------------


def test_what_waits_after_a_batch_is_counted_from_its_own_offsets() -> None:
    """Its stage may have started the next one already."""
    one, two = Stage("one", ["s"]), Stage("two", ["t"], arcs={"arc": 10})
    found = backlog(network(s=feeder(1000), t=feeder(10)), one, two, ahead={"two": 0.5})
    ended = one.start(1.0, 1000)
    one.start(4.0, 4000)
    two.start(3.0, 30)
    made: Any = one
    assert found.waiting(EPOCH_S + 5, made, ended) == pytest.approx(4000 + 20 + 5)


def test_what_no_batch_has_ended_with_counts_from_the_last_one_that_has() -> None:
    stage = Stage("one", ["t", "s"])
    found = backlog(network(s=feeder(1000), t=feeder(10)), stage)
    made: Any = stage
    assert found.unprocessed(made, EPOCH_S + 5) == {"t": 50.0, "s": 5000.0}
    stage.start(1.0, 10, 1000)
    stage.last = SimpleNamespace(batch_id=0, state_bytes=7)
    stage.start(4.0, 40, 4000)
    assert found.unprocessed(made, EPOCH_S + 5) == {"t": 40.0, "s": 4000.0}


def test_of_streams_that_cannot_tell_the_rate_is_shared() -> None:
    one, two = Stage("one", ["s", "t", "arc"]), Stage("two", ["s"])
    found = backlog(network(s=None, t=None), one, two)
    first, second = [one, two]
    made: Any = first
    other: Any = second
    found.learn(made, EPOCH_S, 0)
    found.learn(made, EPOCH_S + 1.0, 300)
    assert found.unprocessed(made, EPOCH_S + 5) == {}, "no batch has ended"
    for stage in (one, two):
        stage.start(1.0, None, None, None)
        stage.last = SimpleNamespace(batch_id=0, state_bytes=0)
    assert found.unprocessed(made, EPOCH_S + 5) == {"s": 600.0, "t": 600.0}
    assert found.unprocessed(made, EPOCH_S) == {"s": 0.0, "t": 0.0}
    assert found.unprocessed(other, EPOCH_S + 5) == {}, "the first stage leads"


def test_a_stage_that_leads_and_has_no_rate_yet_has_nothing_to_guess_from() -> None:
    stage = Stage("one", ["s"])
    found = backlog(network(s=None), stage)
    stage.start(1.0, None)
    stage.last = SimpleNamespace(batch_id=0, state_bytes=0)
    made: Any = stage
    assert found.unprocessed(made, EPOCH_S + 5) == {"s": 0.0}


def test_a_stage_holds_tuples_files_and_state() -> None:
    stage = Stage("one", ["s"])
    found = backlog(network(s=feeder(1000)), stage)
    made: Any = stage
    stage.unfinished = [SimpleNamespace(bytes=100), SimpleNamespace(bytes=20)]
    assert found.held_bytes(made, EPOCH_S + 5) == 5000 * 12 + 120
    stage.start(1.0, 1000)
    stage.last = SimpleNamespace(batch_id=0, state_bytes=7)
    assert found.held_bytes(made, EPOCH_S + 5) == 4000 * 12 + 120 + 7


# --- costs -----------------------------------------------------------------------------------------------------------


def diamond() -> Network:
    """Both streams go through stages of their own into one output; `s` goes into another, too."""
    made = NetworkBuilder("diamond")
    s, t = made.stream("s", {"v": "int"}), made.stream("t", {"v": "int"})
    left = s.filter("f", "v > 1", stage=True)
    right = t.filter("g", "v > 1", stage=True)
    left.union("u", right).output("out")
    left.filter("h", "v > 2").output("other")
    return made.build()


def test_costs_of_stages_go_by_the_streams_above_them() -> None:
    of = diamond()
    costs = StageCosts(
        of,
        Statistics({"f": 1.0, "g": 2.0, "u": 0.5, "h": 4.0}, {"f": 0.5, "g": 0.25}),
        {"s": 10.0, "t": 20.0},
        stages(of),
    )
    # Per second: f 10 s, g 40 s, u 0.5 * (5 + 5) = 5 s, h 4 * 5 = 20 s; 75 s for 30 tuples.
    assert costs.tuple_s == pytest.approx({"f": 1.0, "g": 2.0, "out": 5 / 30, "other": 2.0})
    # Still to be done for what lies ahead of a stage: its own work and that of all it leads to.
    assert costs.ahead == pytest.approx(
        {"f": (10 + 25) / 75 * 3, "g": (40 + 5) / 75 * 1.5, "out": 5 / 75, "other": 20 / 75 * 3}
    )


def test_streams_without_a_rate_cost_nothing() -> None:
    of = diamond()
    costs = StageCosts(of, Statistics({"f": 1.0}), {"s": 0.0, "t": 0.0}, stages(of))
    assert set(costs.tuple_s.values()) == {0.0}
    assert set(costs.ahead.values()) == {0.0}
