"""Taking turns with threads that stand for stages; no Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.scheduler import StageScheduler
from streamshed.engines.spark.stage import StageBatch
from streamshed.engines.spark.turn_order import TurnOrder
from streamshed.engines.spark.turns import TurnGivenUp, Turns
from streamshed.errors import InvalidValueError, UnknownNameError
from streamshed.network import Spec, parse_spec
from streamshed.network.stages import stages
from streamshed.qos import Measure
from streamshed.scheduling import (
    Job,
    MasterScheduler,
    Monitoring,
    OptimizerSettings,
    StageCapacity,
    Step,
    foreseen,
    stage_jobs,
    stage_queries,
)
from tests.polling import PATIENCE_S, wait_for

SLOW, FAST = Step("s->slow", "slow", 1.0), Step("t->fast", "fast", 0.1)
LAST = Step("fast->last", "last", 0.1)
STEPS = {"slow": ["s->slow"], "fast": ["t->fast"], "last": ["fast->last"]}


def master(strategy: str) -> MasterScheduler:
    made = MasterScheduler(quantum_s=1.0)
    made.start(Job("dear", ((SLOW,),)), strategy)
    made.start(Job("cheap", ((FAST, LAST),)), strategy)
    return made


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Players:
    """Threads that want turns, and hold them until they are told to go."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.order: list[str] = []
        self.failed: list[str] = []
        self._go: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []

    def come(self, *names: str, dies: bool = False, may_wait: Callable[[], bool] = lambda: True) -> None:
        for name in names:
            go = self._go[name] = threading.Event()
            thread = threading.Thread(target=self._play, args=(name, go, dies, may_wait))
            thread.start()
            self._threads.append(thread)
            wait_for(lambda name=name: name in self.turns.ready or self.order[-1:] == [name], name)  # type: ignore[misc]

    def _play(self, name: str, go: threading.Event, dies: bool, may_wait: Callable[[], bool]) -> None:
        try:
            with self.turns.turn(name, may_wait):
                self.order.append(name)
                assert go.wait(PATIENCE_S)
                if dies:
                    raise RuntimeError(name)
        except (RuntimeError, TurnGivenUp) as error:
            self.failed.append(type(error).__name__)

    def go(self, name: str, then: str | None) -> None:
        """Let the one that has the turn end; another has it then."""
        count = len(self.order)
        self._go[name].set()
        if then is not None:
            wait_for(lambda: len(self.order) > count)
            assert self.order[-1] == then

    def join(self) -> None:
        for go in self._go.values():
            go.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def taking_turns(of_turns: MasterScheduler, clock: Clock, most_rest_s: Mapping[str, float] | None = None) -> Turns:
    return Turns(TurnOrder(of_turns, STEPS, most_rest_s), STEPS, clock=clock, poll_s=0.01)


def play(strategy: str, clock: Clock | None = None) -> tuple[Players, MasterScheduler]:
    of_turns = master(strategy)
    return Players(taking_turns(of_turns, clock or Clock())), of_turns


def test_one_at_a_time_in_the_order_of_the_strategy() -> None:
    players, _ = play("path-capacity")
    players.come("slow")  # nobody else is ready: it is not held back
    players.come("last", "fast")
    assert players.order == ["slow"]
    players.go("slow", then="last")  # nearest to the end: what `fast` hands on comes too late for this turn
    players.come("slow")
    players.go("last", then="fast")  # the rest of the path, before the other one
    players.go("fast", then="slow")
    players.go("slow", then=None)
    players.join()
    assert players.turns.given == 4
    assert set(players.turns.used_s) == {"slow", "fast", "last"}
    assert players.turns.ready == ()


def test_a_turn_is_not_held_for_a_stage_that_is_not_ready() -> None:
    players, _ = play("round-robin")
    players.come("last")
    players.come("slow")
    players.go("last", then="slow")  # it would be the turn of `fast`, which does not wait
    players.come("fast")
    players.go("slow", then="fast")
    players.join()


def all_wait_after_turns(players: Players, clock: Clock) -> None:
    """`last` has the turn, `slow` had one 6 s before its end, `fast` 5 s."""
    for name in ("slow", "fast"):
        players.come(name)
        clock.now_s += 1.0
        players.go(name, then=None)
        wait_for(lambda: players.turns._running is None)
    players.come("last")
    players.come("slow", "fast")
    clock.now_s += 4.0


def test_whoever_had_a_turn_stands_back_for_a_round() -> None:
    clock = Clock()
    players, _ = play("path-capacity", clock)
    all_wait_after_turns(players, clock)
    players.go("last", then="slow")  # two rounds take 6 s: it ran so long ago, and `fast` 5 s ago
    clock.now_s += 1.0
    players.come("last")
    players.go("slow", then="fast")
    players.join()


def test_whoever_must_be_on_time_stands_back_for_less() -> None:
    clock = Clock()
    players = Players(taking_turns(master("path-capacity"), clock, {"fast": 2.0}))
    all_wait_after_turns(players, clock)
    players.go("last", then="fast")  # two rounds take 6 s, and it ran 5 s ago, but that is long enough for it
    players.go("fast", then="slow")
    players.join()


@pytest.mark.parametrize(("must", "order"), [((), ["fast", "slow"]), (("slow",), ["slow", "fast"])])
def test_whoever_must_be_on_time_comes_first_whatever_the_strategy(must: Sequence[str], order: list[str]) -> None:
    chooses = TurnOrder(master("path-capacity"), STEPS, dict.fromkeys(must, 1.0))
    ready = {"fast": 0.0, "slow": 0.0}
    found = [chooses.next(ready, 0.0)]
    chooses.ended(found[0], 1.0)
    ready[found[0]] = 1.0
    assert [*found, chooses.next(ready, 1.0 - 1e-9)] == order, "who has just had a turn stands back"


def test_nobody_waits_for_ever() -> None:
    clock = Clock()
    players, _ = play("path-capacity", clock)
    players.come("last")
    players.come("slow")
    clock.now_s += 1.0
    players.come("fast")
    players.go("last", then="fast")  # the rest of the faster path, although the other one has waited longer
    clock.now_s += 40.0
    players.come("last")
    players.go("fast", then="slow")
    players.go("slow", then="last")
    players.join()


def test_a_stage_with_more_weight_has_more_batches_in_a_round() -> None:
    of_turns = MasterScheduler(quantum_s=1.0)
    of_turns.start(Job("q", ((replace(FAST, weight=2.0), LAST),)), "weighted-round-robin")
    players = Players(taking_turns(of_turns, Clock()))
    players.come("fast")
    players.come("last")
    players.go("fast", then="last")  # it is not ready again yet
    players.come("fast")
    players.go("last", then="fast")
    players.come("last")
    players.go("fast", then="last")
    players.join()


def test_a_strategy_is_changed_while_stages_wait() -> None:
    players, of_turns = play("round-robin")
    players.come("last")
    players.come("slow", "fast")
    of_turns.change("dear", "path-capacity")
    of_turns.change("cheap", "path-capacity")
    of_turns.spent(100.0)  # the round is over, and requests are carried out
    players.go("last", then="fast")
    assert of_turns.strategy_of("cheap") == "path-capacity"
    players.join()
    assert sorted(players.order) == ["fast", "last", "slow"]


def test_who_dies_or_is_stopped_leaves_the_turn_to_others() -> None:
    players, _ = play("path-capacity")
    stopped = threading.Event()
    players.come("slow", dies=True)
    players.come("fast", may_wait=lambda: not stopped.is_set())
    players.come("last")
    stopped.set()
    wait_for(lambda: players.failed == ["TurnGivenUp"])
    players.go("slow", then="last")
    players.join()
    assert players.failed == ["TurnGivenUp", "RuntimeError"]
    assert players.order == ["slow", "last"]


def test_every_turn_ends_with_many_threads() -> None:
    turns = Turns(TurnOrder(master("segment"), STEPS), STEPS, poll_s=0.01)
    inside: list[str] = []
    most = 0
    done = dict.fromkeys(STEPS, 0)

    def work(name: str) -> None:
        nonlocal most
        for _ in range(50):
            with turns.turn(name):
                inside.append(name)
                most = max(most, len(inside))
                inside.remove(name)
                done[name] += 1

    threads = [threading.Thread(target=work, args=(name,)) for name in STEPS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert done == dict.fromkeys(STEPS, 50)
    assert most == 1
    assert turns.given == 150


# --- stages as what is scheduled -------------------------------------------------------------------------------------

SPEC = """\
name: paths
streams:
  a: {columns: {id: bigint, value: double}}
  b: {columns: {id: bigint, value: double}}
operators:
  cheap: {type: filter, input: a, where: value > 50, stage: true}
  further: {type: filter, input: cheap, where: value > 75}
  dear: {type: filter, input: b, where: value > 50, stage: true}
outputs:
  alarms:
    input: further
    qos:
      goals:
        latency_s: {points: [[0, 2]], priority: must satisfy}
        memory_bytes: {points: [[0, 1.0e+9]], priority: must satisfy}
        mtre: 0.3
  audit: {input: dear}
statistics: {costs: {cheap: 1.0e-6, further: 2.0e-6, dear: 9.0e-6}, selectivities: {cheap: 0.5, dear: 0.5}}
rates: {a: 1000, b: 1000}
"""


def test_jobs_of_stages() -> None:
    spec = parse_spec(SPEC)
    cut = stages(spec.network)
    known = foreseen(spec.network, spec.statistics, spec.rates, cut)
    assert known["cheap"] == StageCapacity(1e-6, 0.5, 16.0)
    assert known["alarms"] == StageCapacity(2e-6, 0.0, 0.0)
    found = stage_queries(spec.network, cut)
    measured = {**known, "cheap": StageCapacity(4e-6, 0.25, 40.0)}
    alarms, audit = stage_jobs(spec.network, cut, found, measured)
    assert (alarms.id, audit.id) == ("alarms", "audit")
    ((first, last),) = alarms.paths
    assert (first.id, first.task, first.cost_s, first.selectivity) == ("a->cheap", "cheap", 4e-6, 0.25)
    assert (first.bytes_in, first.bytes_out, last.bytes_in, last.bytes_out) == (16.0, 40.0, 40.0, 0.0)
    assert first.release_bps == pytest.approx((16 - 10) / 4e-6)
    (fused,) = stage_queries(spec.network, stages(spec.network, together=True))
    assert fused.outputs == ("alarms", "audit")


class FakeStage:
    """As much of a running stage as the scheduler looks at."""

    def __init__(self, plan: Any) -> None:
        self.plan, self.id = plan, plan.id
        self.last: StageBatch | None = None
        self.unfinished: Sequence[object] = ()


class FakeBacklog:
    held = 1000.0

    def held_bytes(self, stage: Any, now_s: float) -> float:
        return self.held

    def unprocessed(self, stage: Any, now_s: float) -> dict[str, float]:
        return {"a": 5.0}


def scheduler(spec: Spec, name: str = "optimizer", **settings: Any) -> tuple[StageScheduler, dict[str, FakeStage]]:
    cut = stages(spec.network)
    monitoring = Monitoring(min_s=2.0, max_s=2.0, lookahead_s=0.5)
    made = StageScheduler(spec, cut, name, OptimizerSettings(monitoring, **settings))
    running = {stage.id: FakeStage(stage) for stage in cut}
    made.attach(cast("Any", list(running.values())), cast("Any", FakeBacklog()))
    return made, running


def feed(
    made: StageScheduler, running: dict[str, FakeStage], end_s: float, delay_s: float, duration_s: float = 5.0
) -> None:
    """A batch of every stage, of which the last one tells the delay."""
    for stage in running.values():
        stage.last = StageBatch(1, 100, duration_s, end_s, worked_s=0.1, passed_on=50, passed_bytes=800)
        arrivals = (end_s - delay_s,) * 8 if stage.plan.outputs else ()
        made.learn(cast("Any", stage), [DropCounts(100, 0, 100, arrivals)])


def test_strategies_first_then_shedding_within_the_tolerable_error() -> None:
    made, running = scheduler(parse_spec(SPEC))
    assert made.strategies == {"alarms": "simplified-segment", "audit": "round-robin"}, "what is best for its goals"
    assert made.review(0.0) == {}, "nothing is judged before the first batches"
    feed(made, running, 1.0, 30.0)
    assert made.review(1.0) == {}, "what came before is not held against it"
    seen = []
    for now_s, delay_s in ((3.0, 5.0), (5.0, 5.0), (7.0, 5.0), (9.0, 1.0), (11.0, 1.0)):
        feed(made, running, now_s, delay_s)
        shedding = made.review(now_s)
        made.master.spent(1000.0)
        made.master.next({})
        seen.append((made.strategies["alarms"], shedding))
    assert [strategy for strategy, _ in seen] == ["path-capacity"] * 5
    most = {"a": 76 / 256}  # the step below 0.3
    assert [shedding for _, shedding in seen] == [{}, {}, most, {}, {}], "a new strategy is given time first"
    assert made.strategies["audit"] == "round-robin", "a query without goals stays where it is"
    assert made.switches == {"alarms": 1, "audit": 0}
    told = [str(decision) for decision in made.changes]
    assert [("a better strategy" in told[0]), ("goes on" in told[1]), ("goes off" in told[2])] == [True] * 3
    document = made.as_document()
    assert document["switches"] == {"alarms": 1, "audit": 0}
    assert len(document["changes"]) == 3


def test_a_new_strategy_is_judged_by_what_came_in_under_it() -> None:
    made, running = scheduler(parse_spec(SPEC))
    feed(made, running, 1.0, 0.5, duration_s=0.5)
    made.review(1.0)
    feed(made, running, 3.0, 5.0, duration_s=0.5)
    assert made.review(3.0) == {}
    assert made.switches["alarms"] == 1
    feed(made, running, 5.0, 4.0, duration_s=4.5)  # came in before, and waited before
    assert made.review(5.0) == {}
    feed(made, running, 7.0, 3.0, duration_s=0.5)  # it did not help
    assert made.review(7.0) == {"a": 76 / 256}


def test_a_query_counts_as_much_as_the_most_urgent_of_its_goals() -> None:
    made, _ = scheduler(parse_spec(SPEC))
    strategies = {job.id: job for strategy in made.master._schedulers.values() for job in strategy.jobs.values()}
    assert {name: job.weight for name, job in strategies.items()} == {"alarms": 1.0, "audit": 0.5}


def test_stages_of_a_query_that_must_be_on_time_rest_for_what_is_left_of_the_goal() -> None:
    made, running = scheduler(parse_spec(SPEC))
    rests_s = made._most_rest_s
    assert rests_s == {"cheap": 0.5, "alarms": 0.5}, "half of the goal, which is 2 s, as long as nothing is known"
    for delay_s, rest_s in ((1.2, 0.4), (1.8, 0.1), (5.0, 0.0), (0.4, 0.8)):
        feed(made, running, 1.0, delay_s)
        assert rests_s == pytest.approx({"cheap": rest_s, "alarms": rest_s})
    by_strategy, _ = scheduler(parse_spec(SPEC), "path-capacity")
    assert by_strategy._most_rest_s == {}


def test_it_does_not_shed_where_that_is_forbidden() -> None:
    made, running = scheduler(parse_spec(SPEC), may_shed=False)
    feed(made, running, 1.0, 30.0)
    made.review(1.0)
    for now_s in (3.0, 5.0, 7.0):
        feed(made, running, now_s, 5.0)
        assert made.review(now_s) == {}


def test_the_wait_for_a_turn_is_no_cost_and_memory_is_what_waits() -> None:
    made, running = scheduler(parse_spec(SPEC), "segment")
    for end_s in (1.0, 2.0, 3.0, 4.0):
        feed(made, running, end_s, 1.0)
    found = made.capacities["cheap"]
    assert found.cost_s == pytest.approx(0.001 / 3), "0.1 s for 100 rows, no batch is shorter; with the wait it is 5 s"
    assert (found.selectivity, found.row_bytes) == (pytest.approx(0.5), pytest.approx(16.0))
    measured = made.measure("alarms", 5.0)
    assert measured[Measure.MEMORY] == 2 * FakeBacklog.held
    assert measured[Measure.LATENCY] == pytest.approx(1.0)
    assert measured[Measure.THROUGHPUT] == pytest.approx(400 / 5.0)
    assert made.measure("alarms", 9.0)[Measure.LATENCY] == pytest.approx(9.0 - (4.0 - 5.0)), "the longest wait"


def test_what_waits_for_a_stage_with_two_inputs_counts_once() -> None:
    spec = parse_spec(
        """\
name: both
streams:
  a: {columns: {id: bigint}}
  b: {columns: {id: bigint}}
operators:
  both: {type: union, inputs: [a, b], stage: true}
  some: {type: filter, input: both, where: id > 5}
outputs:
  out: {input: some}
rates: {a: 10, b: 10}
"""
    )
    made, running = scheduler(spec, "segment")
    assert set(running) == {"both", "out"}
    assert made.memory_bytes("out", 0.0) == 2 * FakeBacklog.held


def test_what_cannot_be_scheduled_is_refused() -> None:
    spec = parse_spec(SPEC)
    with pytest.raises(UnknownNameError, match="no strategy 'fifo'"):
        StageScheduler(spec, stages(spec.network), "fifo")
    without = parse_spec(SPEC[: SPEC.index("    qos:")] + SPEC[SPEC.index("  audit:") :])
    with pytest.raises(InvalidValueError, match="no goals to meet"):
        StageScheduler(without, stages(without.network), "optimizer")
    by_value = parse_spec(SPEC.replace("mtre: 0.3", "mtre: 0.3\n        shed_by: {column: value, first: lowest}"))
    with pytest.raises(InvalidValueError, match="go by values"):
        StageScheduler(by_value, stages(by_value.network), "optimizer")
