"""The parts of the virtual-time engine one by one: measures, gauges, meters, windows, queues, processors, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import simpy

from streamshed.control import Controller, HoldingController, LoadSample, Outlook, Release
from streamshed.engines.sim import JoinWindow, SimResult, simulate
from streamshed.engines.sim.backlog import Backlog
from streamshed.engines.sim.gauges import DelayCounts, OutputGauge
from streamshed.engines.sim.measures import Measures
from streamshed.engines.sim.places import Gauge, Out, Place, Places, Sides
from streamshed.engines.sim.processor import Processor
from streamshed.engines.sim.quality import Accounts, FederationRun
from streamshed.engines.sim.queues import ArcQueue
from streamshed.engines.sim.result import step_end_s
from streamshed.engines.sim.tracks import Both, Meter, Reading, Watch, read
from streamshed.engines.sim.tuples import DELIVERED, DROPPED, FILTERED, Ids, Times, Tuples
from streamshed.engines.sim.values import draws_from, value_test, value_utility_of
from streamshed.engines.sim.windows import AggregateContents, JoinContents
from streamshed.errors import InvalidValueError, StreamshedError
from streamshed.load import Admission
from streamshed.network import Arc, Filter, Network, NetworkBuilder, Output, Statistics
from streamshed.network.expressions import RangeTest
from streamshed.network.paths import queries
from streamshed.planning import FairPlanner, planner_named
from streamshed.qos import Histogram, LossGraph, Qos, ValueGraph
from streamshed.workload import Phases
from streamshed.workload.costs import CostJump

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}


def tuples_of(
    arrived_s: Sequence[float], left_s: Sequence[float] = (), fate: Sequence[int] = (), values: Sequence[float] = ()
) -> tuple[Tuples, Ids]:
    """Tuples that arrived at some times; when and how they left, and their values."""
    tuples = Tuples(slots=1 if len(values) else 0)
    ids = tuples.add(np.array(arrived_s, dtype=np.float64), np.zeros(len(arrived_s)))
    at = tuples.at(ids)
    if len(left_s):
        tuples.left_s[at] = left_s
    if len(fate):
        tuples.fate[at] = fate
    if len(values):
        tuples.values[0][at] = values
    return tuples, at


# --- delays and measures ----------------------------------------------------------------------------------------------


def test_delays_are_counted_to_one_per_cent() -> None:
    counts = DelayCounts()
    assert counts.delays.quantile_s(0.5) == counts.delays.mean_s == counts.delays.max_s == 0.0
    counts.add(np.array([0.5, 1.0]))
    counts.add(np.array([2.0, 0.0]))
    found = counts.delays
    assert (found.mean_s, found.max_s) == (0.875, 2.0)
    assert found.quantile_s(0.25) == step_end_s(0) == 1e-6
    assert 0.5 <= found.quantile_s(0.5) < 0.505 * 1.0001
    assert 1.0 <= found.quantile_s(0.75) < 1.01 * 1.0001
    assert found.quantile_s(1.0) == found.quantile_s(0.76) == 2.0
    assert step_end_s(3) == pytest.approx(1e-6 * 1.01**3)
    counts.add(np.array([1e9]))
    assert counts.delays.counts[-1] == 1, "the last step has no end"
    # A delay at the end of a step is in it.
    counts = DelayCounts()
    counts.add(np.array([step_end_s(700) * (1 - 1e-9), step_end_s(700) * (1 + 1e-9)]))
    assert np.flatnonzero(counts.delays.counts).tolist() == [700, 701]


def test_measures_of_a_few_tuples() -> None:
    """Target 1 s: one is on time, one 0.5 s late, one 2 s late; one was filtered, two dropped."""
    measures = Measures(period_s=1.0, periods=3, target_s=1.0, keep_tuples=True)
    tuples, at = tuples_of(
        [0.5, 0.6, 1.5, 2.5, 0.7, 0.8],
        [1.25, 2.1, 4.5, 2.75, 9.0, 0.9],
        [DELIVERED, DELIVERED | DROPPED, DELIVERED | FILTERED, FILTERED, DROPPED, DROPPED | FILTERED],
    )
    measures.left(tuples, at[:3])
    measures.left(tuples, at[3:])
    assert sorted(measures.delays_of_period()) == pytest.approx([0.25, 0.75, 1.5, 3.0])
    assert measures.delays_of_period().tolist() == []
    assert (measures.delivered, measures.dropped, measures.filtered) == (3, 2, 1)
    measures.refused(7)
    assert measures.dropped == 9
    assert measures.violations_s == pytest.approx(0.5 + 2.0)
    assert (measures.delayed, measures.overshoot_s) == (2, pytest.approx(2.0))
    assert measures.delays.mean_s == pytest.approx(5.5 / 4)
    assert [times_s.tolist() for times_s in measures.tuples_s] == [[0.5, 0.6, 1.5, 2.5], [1.25, 2.1, 4.5, 2.75]]
    for number in (1, 2, 3):
        measures.end_period(float(number), 10 * number, 9, 4 * (number - 1), 5, 0.5)
    series = measures.series
    assert series.time_s.tolist() == [1.0, 2.0, 3.0]
    assert series.arrived.tolist() == [10, 20, 30]
    assert (series.admitted.tolist(), series.finished.tolist(), series.outstanding.tolist()) == (
        [9] * 3,
        [0, 4, 8],
        [5] * 3,
    )
    assert series.cost_s.tolist()[1:] == [0.125, 0.0625]
    assert math.isnan(series.cost_s[0])
    assert series.delay_mean_s.tolist() == pytest.approx([(0.75 + 1.5) / 2, 3.0, 0.25])
    assert series.delay_max_s.tolist() == pytest.approx([1.5, 3.0, 0.25])
    assert series.target_s.tolist() == [1.0] * 3


def test_a_tuple_at_the_target_is_on_time_and_the_target_may_change() -> None:
    measures = Measures(1.0, 2, 1.0, keep_tuples=False)
    tuples, at = tuples_of([0.0, 0.0, 0.0], [1.0, 1.5, 1.5], [DELIVERED] * 3)
    measures.left(tuples, at[:2])
    measures.delays_of_period()
    measures.target_s = 1.25
    measures.left(tuples, at[2:])
    measures.delays_of_period()
    assert (measures.delayed, measures.violations_s, measures.overshoot_s) == (2, 0.75, 0.5)
    assert [len(times_s) for times_s in measures.tuples_s] == [0, 0]
    measures.end_period(1.0, 3, 3, 3, 0, 0.1)
    assert measures.series.delay_mean_s.tolist() == pytest.approx([4 / 3])


# --- gauges -----------------------------------------------------------------------------------------------------------


def gauge(qos: Qos | None = None, *, slot: int | None = None) -> OutputGauge:
    return OutputGauge(Output("o", "s", qos or Qos()), slot, period_s=1.0, periods=2)


def test_an_output_is_judged_period_by_period() -> None:
    """In the first period 1 of 4 came through, in the second all 2, in a later one 1 of 2: utilities 0.5, 1 and 0.8."""
    counts = gauge(Qos(weight=3.0))
    tuples, at = tuples_of([0.1, 0.2, 0.3, 0.4, 1.5, 1.6, 7.0, 8.0])
    counts.deliver(tuples, at[[0, 4, 5, 6]], np.array([0.6, 3.5, 1.7, 7.2]))
    counts.lose(tuples, at[[1, 2, 3, 7]])
    result = counts.result(LossGraph.of([(0, 0), (0.25, 0.5), (0.5, 0.8), (1, 1)]))
    assert (result.output, result.weight, result.delivered, result.lost) == ("o", 3.0, 4, 4)
    assert result.tuple_utility == pytest.approx((4 * 0.5 + 2 * 1.0 + 2 * 0.8) / 8)
    assert result.value_utility == result.share == 0.5, "by tuples, without a value graph"
    assert (result.delays.mean_s, result.delays.max_s) == (pytest.approx((0.5 + 2.0 + 0.1 + 0.2) / 4), 2.0)


def test_an_output_is_judged_by_the_value_that_it_got() -> None:
    value = ValueGraph.of("v", [(0, 0.2), (50, 0.2), (50, 1.0), (100, 1.0)])
    counts = gauge(Qos(value=value), slot=0)
    tuples, at = tuples_of([0.1] * 5, values=[10.0, 60.0, 70.0, 20.0, math.nan])
    counts.deliver(tuples, at[[0, 1, 4]], np.full(3, 0.2))
    counts.lose(tuples, at[[2, 3]])
    result = counts.result(LossGraph.linear())
    assert result.value_utility == pytest.approx(1.2 / 2.4)
    assert (result.delivered, result.lost, result.tuple_utility) == (3, 2, pytest.approx(0.6))


def test_an_output_without_tuples_has_lost_nothing() -> None:
    result = gauge().result(LossGraph.linear())
    assert (result.delivered, result.lost, result.share, result.value_utility, result.delays.mean_s) == (0, 0, 1, 1, 0)
    worthless = gauge(Qos(value=ValueGraph.of("v", [(0, 0.0), (100, 0.0)])), slot=0)
    tuples, at = tuples_of([0.1, 0.2], values=[1.0, 2.0])
    worthless.deliver(tuples, at[:1], np.array([0.2]))
    worthless.lose(tuples, at[1:])
    assert worthless.result(LossGraph.linear()).value_utility == 0.5


# --- meters of queries ------------------------------------------------------------------------------------------------


def test_a_meter_counts_since_it_was_last_read() -> None:
    meter, reading = Meter(), Reading()
    tuples, at = tuples_of([0.0, 1.0, 2.0, 3.0])
    meter.deliver(tuples, at[:2], np.array([0.5, 2.5]))
    assert (meter.count, meter.delay_s) == (2, 2.0)
    assert read(reading, meter, 4.0) == (1.0, 0.5)
    assert (reading.time_s, reading.count, reading.delay_s) == (4.0, 2, 2.0)
    meter.deliver(tuples, at[2:], np.array([6.0, 6.0]))
    assert read(reading, meter, 5.0) == (3.5, 2.0)
    latency_s, throughput_tps = read(reading, meter, 6.0)
    assert math.isnan(latency_s)
    assert throughput_tps == 0.0
    assert read(reading, meter, 6.0)[1] == 0.0
    # What a tuple waited before a change of strategy does not count.
    meter.since_s = 2.5
    meter.deliver(tuples, at[1:], np.full(3, 4.0))
    assert read(reading, meter, 8.0) == (pytest.approx((1.5 + 1.5 + 1.0) / 3), 1.5)
    meter.lose(tuples, at)
    assert meter.count == 7


class Noted(Gauge):
    def __init__(self) -> None:
        self.delivered, self.lost = 0, 0

    def deliver(self, tuples: Tuples, at: Ids, times_s: Times) -> None:
        self.delivered += len(at)

    def lose(self, tuples: Tuples, at: Ids) -> None:
        self.lost += len(at)


def test_two_may_count_at_one_place() -> None:
    one, other = Noted(), Noted()
    tuples, at = tuples_of([0.0] * 5)
    Both(one, other).deliver(tuples, at[:3], np.zeros(3))
    Both(one, other).lose(tuples, at)
    assert (one.delivered, one.lost) == (other.delivered, other.lost) == (3, 5)


def test_the_record_of_a_query() -> None:
    new = NetworkBuilder("watched")
    new.stream("s", COLUMNS).filter("a", "value > 0").map("b", {"value": "value"}).output("o")
    network = new.build()
    watch = Watch(queries(network)[0], network, {"s->a": 20.0, "a->b": 8.0, "s": 1.0, "b->o": 1.0})
    assert watch.arcs == [("s->a", 20.0), ("a->b", 8.0)]
    watch.rows += [(1.0, 0.1, 100.0, 5.0), (2.0, 0.2, 200.0, 6.0)]
    watch.strategies += ["segment", "segment"]
    assert math.isnan(watch.track.latency_mean_s)
    watch.meter.count, watch.meter.delay_s = 4, 2.0
    track = watch.track
    assert (track.time_s.tolist(), track.latency_s.tolist()) == ([1.0, 2.0], [0.1, 0.2])
    assert (track.memory_bytes.tolist(), track.throughput_tps.tolist()) == ([100.0, 200.0], [5.0, 6.0])
    assert (track.strategy, track.latency_mean_s, track.delivered) == (("segment", "segment"), 0.5, 4)


# --- windows ----------------------------------------------------------------------------------------------------------


def partners(join: JoinContents, side: int, arrived_s: Sequence[float]) -> list[int]:
    tuples, at = tuples_of(arrived_s)
    return join.pass_on(tuples, at, at, side).tolist()


def test_a_join_pairs_with_the_last_tuples_of_the_other_side() -> None:
    join = JoinContents(JoinWindow(1, tuples=3), seed=0, salt=1)
    assert partners(join, 0, [0.0, 0.1]) == [0, 0]
    assert partners(join, 1, [0.2]) == [2]
    assert partners(join, 0, [0.3, 0.4]) == [1, 1]
    assert partners(join, 1, [0.5]) == [3], "of four the side keeps the last three"
    assert partners(join, 1, [0.6, 0.7, 0.8]) == [3, 3, 3]
    assert partners(join, 0, [0.9]) == [3]


def test_a_join_pairs_with_what_came_within_a_time() -> None:
    join = JoinContents(JoinWindow(1, seconds=2.0), seed=0, salt=1)
    partners(join, 0, [0.0, 1.0, 1.5])
    assert partners(join, 1, [1.6]) == [3]
    partners(join, 0, [3.25])
    assert partners(join, 1, [3.3]) == [2], "1.25 s is the limit, and 1.5 and 3.25 are left"
    partners(join, 0, [9.0])
    assert partners(join, 1, [9.0]) == [1]


def test_a_join_pairs_equal_keys_only() -> None:
    join = JoinContents(JoinWindow(4, tuples=10_000), seed=3, salt=1)
    assert partners(join, 0, [0.0] * 4000) == [0] * 4000
    found = partners(join, 1, [1.0] * 4000)
    # Both sides number their tuples alike here, so a tuple meets all that have its own key.
    assert sorted(set(found)) == sorted(set(np.bincount(np.unique(found, return_inverse=True)[1])))
    assert all(count == pytest.approx(1000, abs=100) for count in found)


@pytest.mark.parametrize("window", [{"keys": 0, "tuples": 1}, {"keys": 1}, {"keys": 1, "tuples": 1, "seconds": 1.0}])
def test_a_join_window_is_kept_by_tuples_or_by_time(window: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match="by tuples or by time"):
        JoinWindow(**window)  # type: ignore[arg-type]


def test_an_aggregate_answers_when_a_window_closes() -> None:
    contents = AggregateContents(10.0, {"v": 0})

    def closing(arrived_s: Sequence[float], values: Sequence[float]) -> list[int]:
        tuples, at = tuples_of(arrived_s, values=values)
        return contents.pass_on(tuples, at, at, 0).tolist()

    assert closing([1.0, 9.0], [2.0, math.nan]) == [0, 0]
    assert closing([9.9, 10.0, 12.0], [3.0, 4.0, 5.0]) == [0, 1, 0]
    assert closing([15.0, 31.0, 8.0, 35.0], [1.0, 2.0, 7.0, 3.0]) == [0, 1, 0, 0], "a late tuple closes nothing"
    assert closing([40.0], [1.0]) == [1]
    assert closing([45.0, 51.0, 52.0], [8.0, 2.0, 3.0]) == [0, 1, 0]
    found = contents.result
    assert found.window_s == 10.0
    assert found.number.tolist() == [0, 1, 3, 4, 5]
    assert found.count.tolist() == [4.0, 3.0, 2.0, 2.0, 2.0]
    assert found.sums["v"].tolist() == [2.0 + 3.0 + 7.0, 4.0 + 5.0 + 1.0, 2.0 + 3.0, 1.0 + 8.0, 2.0 + 3.0]


# --- SIC of a federation ----------------------------------------------------------------------------------------------


def test_sic_is_compared_over_a_source_time_window() -> None:
    accounts = Accounts(queries=3, windows=5, span=2)
    accounts.sent[1:5] = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    accounts.arrived[1:5] = [[1.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.25, 0.0, 1.0], [0.25, 0.0, 0.0]]
    assert accounts.result_sic(2).tolist() == [0.75, 0.25, 1.0]
    assert accounts.result_sic(1).tolist() == [1.0, 0.5, 1.0]
    assert accounts.result_sic(4).tolist() == [0.25, 1.0, 1.0]
    assert accounts.active(2).tolist() == [True, True, False]
    first = Accounts(queries=1, windows=1, span=2)
    first.sent[0], first.arrived[0] = 0.5, 0.25
    assert (first.active(1).tolist(), first.result_sic(1).tolist()) == ([True], [0.5])
    assert accounts.active(4).tolist() == [True, False, True]
    run = FederationRun(0.5, 2, accounts.sent, accounts.arrived, 4, 0.0, 0.0, {}, 0, {}, {}, (0, 0))
    assert run.sic(2).tolist() == [0.75, 0.25]
    assert [even.queries for even in run.fairness()] == [2, 3, 2]
    assert [even.least for even in run.fairness(0.5)] == [0.0, 0.25]
    assert run.mean_sic().tolist() == [0.5, 0.25, 1.0]
    assert run.mean_sic(1.0).tolist() == [0.25, 1.0]


# --- queues, sides, processors ----------------------------------------------------------------------------------------


def test_a_queue_knows_its_head_and_length() -> None:
    queue = ArcQueue()
    assert (queue.length, queue.head_s, queue.head_id) == (0, math.inf, None)
    queue.push(np.array([], dtype=np.int64), np.array([]))
    assert queue.head_id is None
    queue.push(np.array([4, 5]), np.array([1.0, 3.0]))
    queue.push(np.array([6]), np.array([3.0]))
    assert (queue.length, queue.head_s, queue.head_id) == (3, 1.0, 4)
    ids, ready_s = queue.take(1, until_s=9.0)
    assert (ids.tolist(), ready_s.tolist(), queue.length, queue.head_s) == ([4], [1.0], 2, 3.0)
    ids, ready_s = queue.take(9, until_s=3.0)
    assert (ids.tolist(), ready_s.tolist(), queue.length) == ([5, 6], [3.0, 3.0], 0)


def test_sides_of_a_join_take_over_values_and_partners() -> None:
    sides = Sides((frozenset({0}), frozenset({1})))
    tuples = Tuples(slots=2)
    ids = tuples.add(np.zeros(5), np.array([0.0, 0.2, 0.4, 0.6, 0.8]))
    at = tuples.at(ids)
    tuples.values[0][at[:2]] = [10.0, 20.0]
    tuples.values[1][at[2:]] = [1.0, 2.0, 3.0]
    sides.meet(tuples, ids[:2], at[:2], 0)
    assert np.isnan(tuples.values[1][at[:2]]).all(), "nothing was seen on the other side"
    sides.meet(tuples, ids[2:], at[2:], 1)
    assert tuples.values[0][at[2:]].tolist() == [10.0, 20.0, 10.0]
    assert tuples.values[1][at[2:]].tolist() == [1.0, 2.0, 3.0]
    sides.meet(tuples, ids[:2], at[:2], 0)
    assert tuples.values[1][at[:2]].tolist() == [1.0, 2.0]
    assert sides.partnered(tuples, at, 0) is None
    sides.shares = [0.8, 0.4]
    mask = sides.partnered(tuples, at, 0)
    assert mask is not None
    assert mask.tolist() == [False, False, False, True, True], "of the other side 0.4 come: ranks from 0.6 on"
    mask = sides.partnered(tuples, at, 1)
    assert mask is not None
    assert mask.tolist() == [False, True, True, True, True]


def place_with(queues: int, cost_s: float, name: str) -> Place:
    """An operator with so many inputs."""
    place = Place(Filter(name, "s", "v > 0"), cost_s, salt=1)
    for port in range(queues):
        out = Out(Arc(f"{name}.{port}", "s", name, port=port), None)
        out.place = place
        place.inputs.append(out)
    return place


def push(place: Place, ids: Sequence[int], ready_s: Sequence[float], port: int = 0) -> None:
    place.inputs[port].queue.push(np.array(ids), np.array(ready_s))


def test_a_processor_with_one_operator_looks_ahead() -> None:
    processor = Processor(simpy.Environment(), 1, headroom=0.5, service="fixed", seed=0)
    place = place_with(1, 0.1, "a")
    assert processor.next() is None
    push(place, [1, 2, 3, 4], [0.0, 0.1, 0.9, 5.0])
    processor.list(place)
    assert processor.next() == (place, 0.0)
    # 0.2 s each at half of the processor; 1 s are five of them at most.
    found, side, ids, done_s = processor.take(0.0, 1.0, factor=1.0)
    assert (found, side, ids.tolist()) == (place, 0, [1, 2, 3])
    assert done_s.tolist() == pytest.approx([0.2, 0.4, 1.1])
    assert (processor.busy_s, processor.work_s, processor.nominal_s) == pytest.approx((0.3, 0.3, 0.3))
    assert processor.executions == 3
    assert processor.next() == (place, 5.0), "it waits for the one that is to come"
    _, _, ids, done_s = processor.take(5.0, 1.0, factor=3.0)
    assert (ids.tolist(), done_s.tolist()) == ([4], pytest.approx([5.6]))
    assert (processor.busy_s, processor.nominal_s) == pytest.approx((0.6, 0.4)), "thrice the cost for one of four"
    assert processor.next() is None
    assert not place.is_listed


def test_a_train_holds_what_its_time_allows() -> None:
    processor = Processor(simpy.Environment(), 1, headroom=1.0, service="fixed", seed=0)
    place = place_with(1, 0.1, "a")
    push(place, range(10), [0.0] * 10)
    processor.list(place)
    assert len(processor.take(0.0, 0.35, factor=1.0)[2]) == 3
    assert len(processor.take(0.0, 0.35, factor=4.0)[2]) == 1
    assert len(processor.take(0.0, 0.0, factor=1.0)[2]) == 1, "one at least"
    assert place.is_listed
    assert len(processor.take(0.0, 1.0, factor=0.0)[2]) == 5


def test_operators_take_turns() -> None:
    processor = Processor(simpy.Environment(), 2, headroom=1.0, service="fixed", seed=0)
    first, second = place_with(1, 0.1, "a"), place_with(2, 0.2, "b")
    push(first, [1, 2], [0.0, 0.0])
    push(second, [3], [0.0], port=0)
    push(second, [4], [-1.0], port=1)
    processor.list(first)
    processor.list(second)
    processor.list(first)
    turns = []
    while (turn := processor.next()) is not None:
        found, side, ids, done_s = processor.take(turn[1], 0.1, factor=1.0)
        turns.append((found.id, side, ids.tolist(), done_s.tolist()))
    assert turns == [
        ("a", 0, [1], [0.1]),
        ("b", 1, [4], [0.2]),  # the side whose first tuple has been there longest
        ("a", 0, [2], [0.1]),
        ("b", 0, [3], [0.2]),
    ]


def test_who_has_a_tuple_now_goes_before_who_waits_for_one() -> None:
    env = simpy.Environment(initial_time=1.0)
    processor = Processor(env, 2, headroom=1.0, service="fixed", seed=0)
    early, late, now = place_with(1, 0.1, "early"), place_with(1, 0.1, "late"), place_with(1, 0.1, "now")
    push(late, [1], [3.0])
    push(early, [2], [2.0])
    processor.list(late)
    processor.list(early)
    assert processor.next() == (early, 2.0)
    push(now, [3, 4], [0.5, 2.5])
    processor.list(now)
    assert processor.next() == (now, 1.0)
    assert processor.take(1.0, 5.0, factor=1.0)[2].tolist() == [3], "with others waiting it takes what is there"


def test_the_next_in_line_goes_before_those_behind_it() -> None:
    env = simpy.Environment(initial_time=1.0)
    processor = Processor(env, 3, headroom=1.0, service="fixed", seed=0)
    places = [place_with(1, 0.1, name) for name in "abc"]
    for number, (place, ready_s) in enumerate(zip(places, (2.0, 0.0, 0.0), strict=True)):
        push(place, [number], [ready_s])
        processor.list(place)
    order = []
    while (turn := processor.next()) is not None:
        order.append((processor.take(turn[1], 1.0, factor=1.0)[0].id, turn[1]))
    assert order == [("b", 1.0), ("c", 1.0), ("a", 2.0)]


def test_time_spent_beside_the_operators_delays_the_next_train() -> None:
    processor = Processor(simpy.Environment(), 1, headroom=0.5, service="fixed", seed=0)
    place = place_with(1, 0.1, "a")
    push(place, [1], [0.0])
    processor.list(place)
    processor.debt_s = 0.3
    _, _, _, done_s = processor.take(0.0, 1.0, factor=1.0)
    assert done_s.tolist() == pytest.approx([0.6 + 0.2])
    assert (processor.debt_s, processor.busy_s, processor.work_s) == (0.0, pytest.approx(0.4), pytest.approx(0.4))


def test_exponential_costs_have_the_mean_and_are_those_of_the_tuple() -> None:
    def done(ids: Sequence[int], seed: int = 0) -> list[float]:
        processor = Processor(simpy.Environment(), 1, headroom=0.5, service="exponential", seed=seed)
        place = place_with(1, 0.1, "a")
        push(place, ids, [0.0] * len(ids))
        processor.list(place)
        done_s = processor.take(0.0, 1e9, factor=1.0)[3]
        assert processor.busy_s == pytest.approx(done_s[-1] * 0.5)
        return np.diff(done_s, prepend=0.0).tolist()

    costs_s = done(range(20_000))
    assert np.mean(costs_s) == pytest.approx(0.2, rel=0.03)
    assert np.std(costs_s) == pytest.approx(0.2, rel=0.03)
    assert done([7, 3])[1] == pytest.approx(costs_s[3])
    assert done([7], seed=1)[0] != done([7])[0]


# --- the virtual queue ------------------------------------------------------------------------------------------------


def test_the_backlog_is_reckoned_in_tuples_that_nothing_is_dropped_of() -> None:
    """10 tuples/s: 1 s at `one`, half go on to 4 s and 2 s: a full tuple takes 4 s."""
    new = NetworkBuilder("forked")
    one = new.stream("s", COLUMNS).filter("one", "k > 0")
    one.filter("two", "k > 0").output("O1")
    one.filter("four", "k > 0").output("O2")
    network, known = new.build(), Statistics({"one": 1.0, "two": 4.0, "four": 2.0}, {"one": 0.5})
    places = Places(network, known, seed=0)
    backlog = Backlog(places, known, {"s": 10.0})
    assert backlog.full_s == 4.0
    assert backlog.waiting == 0.0
    places.outs["s->one"].queue.push(np.arange(3), np.zeros(3))
    places.outs["one->two"].queue.push(np.arange(3, 5), np.zeros(2))
    assert backlog.waiting == pytest.approx((3 * 4.0 + 2 * 4.0) / 4.0)
    backlog.set({"s": 0.0, "one->two": 0.5, "one->four": 0.0})
    assert places.outs["one->two"].threshold == 0.5
    assert backlog.waiting == pytest.approx((3 * (1 + 0.5 * (0.5 * 4 + 2)) + 2 * 4.0) / 4.0)
    # A drop at the entry takes the same tuples: of those that are past it, 0.5 / 0.8 go on to `two`.
    backlog.set({"s": 0.2, "one->two": 0.5, "one->four": 0.1})
    assert backlog.waiting == pytest.approx((3 * (1 + 0.5 * (0.5 / 0.8 * 4 + 2)) + 2 * 4.0) / 4.0)
    backlog.set({"s": 0.0, "one->two": 1.0, "one->four": 1.0})
    assert backlog.waiting == pytest.approx((3 * 1.0 + 2 * 4.0) / 4.0)
    assert Backlog(places, Statistics(), {"s": 10.0}).waiting == 0.0
    assert Backlog(places, known, {"s": 0.0}).full_s == 0.0


def test_the_backlog_of_streams_that_meet_goes_by_their_rates() -> None:
    new = NetworkBuilder("meet")
    a, b = new.stream("a", COLUMNS, time="ts"), new.stream("b", {"ts": "timestamp", "k": "bigint"}, time="ts")
    a.union("u", new.stream("c", COLUMNS, time="ts")).join("j", b, on=["k"], within_s=1).output("o")
    network, known = new.build(), Statistics({"u": 1.0, "j": 2.0})
    places = Places(network, known, seed=0)
    backlog = Backlog(places, known, {"a": 30.0, "b": 10.0, "c": 10.0})
    assert backlog.full_s == pytest.approx((30 * 3 + 10 * 2 + 10 * 3) / 50)
    backlog.set({"a": 0.4, "b": 0.5, "c": 0.0})
    sides = places.places["j"].sides
    assert sides is not None
    assert sides.shares == pytest.approx([0.75 * 0.6 + 0.25 * 1.0, 0.5])
    still = Backlog(places, known, dict.fromkeys("abc", 0.0))
    still.set({"a": 0.4, "b": 0.5, "c": 0.0})
    assert sides.shares == [1.0, 0.5], "of nothing nothing is dropped"


@pytest.mark.parametrize(
    ("predicate", "passing"),
    [
        ("v > 2", [0, 0, 0, 1, 1]),
        ("v >= 2", [0, 0, 1, 1, 1]),
        ("v < 2", [1, 1, 0, 0, 0]),
        ("v <= 2", [1, 1, 1, 0, 0]),
        ("v = 2", [0, 0, 1, 0, 0]),
        ("v <> 2", [1, 1, 0, 1, 1]),
        ("v >= 1 AND v < 3", [0, 1, 1, 0, 0]),
        ("v > 1 OR v < 1", [1, 0, 1, 1, 1]),
        ("true", [1, 1, 1, 1, 1]),
    ],
)
def test_a_predicate_on_many_values_at_once(predicate: str, passing: list[int]) -> None:
    test = RangeTest.of(predicate, "v")
    assert test is not None
    assert value_test(test)(np.array([0.0, 1.0, 2.0, 3.0, 4.0])).tolist() == [bool(one) for one in passing]
    assert not value_test(test)(np.array([math.nan]))[0]


def test_the_utility_of_many_values_at_once() -> None:
    """As of each alone: on knees, slopes, jumps, and beyond the ends."""
    graph = ValueGraph.of("v", [(0, 0.1), (10, 0.5), (10, 0.9), (20, 0.9), (40, 0.3)])
    values = np.array([-5.0, 0.0, 2.5, 7.5, 10.0, 15.0, 20.0, 25.0, 39.0, 40.0, 99.0])
    assert value_utility_of(graph)(values).tolist() == pytest.approx([graph.utility(value) for value in values])


def test_values_are_drawn_as_a_histogram_says() -> None:
    draw = draws_from(Histogram.of([(0, 10, 1), (10, 10, 2), (10, 20, 0), (30, 50, 1)]))
    assert draw(np.array([0.0, 0.125, 0.25, 0.7, 0.75, 0.875, 0.9999])).tolist() == pytest.approx(
        [0.0, 5.0, 10.0, 10.0, 30.0, 40.0, 50.0], abs=0.01
    )


# --- whole runs -------------------------------------------------------------------------------------------------------


class Gate(HoldingController):
    """Lets nothing go on before a time, then so many at a time."""

    target_s = 10.0

    def __init__(self, opens_s: float, room: float, wait_limit_s: float = math.inf) -> None:
        self.opens_s, self.room, self.wait_limit_s = opens_s, room, wait_limit_s
        self.asked: list[Outlook] = []
        self.samples: list[LoadSample] = []

    def observe(self, sample: LoadSample) -> None:
        self.samples.append(sample)

    def admit(self, outlook: Outlook) -> Release:
        self.asked.append(outlook)
        room = self.room if outlook.time_s >= self.opens_s - 1e-9 else 0.0
        return Release(1.0, 1.0, room=room, wait_limit_s=self.wait_limit_s)


def one_operator(cost_s: float) -> tuple[Network, Statistics]:
    new = NetworkBuilder("one")
    new.stream("s", {"v": "double"}).map("work", {"v": "v"}).output("out")
    return new.build(), Statistics({"work": cost_s})


def gated(gate: Gate, rate_tps: float = 10.0, cost_s: float = 0.01) -> SimResult:
    network, known = one_operator(cost_s)
    return simulate(
        network, known, {"s": Phases(((rate_tps, 1), (0, 3)))}, 4, controller=gate, tick_s=0.1, keep_tuples=True
    )


def test_held_tuples_enter_when_they_are_let_in() -> None:
    """Ten in the first second are let in at 2 s and are done one after the other; delays count from arrival."""
    gate = Gate(opens_s=2.0, room=100.0)
    run = gated(gate)
    assert run.admitted == run.delivered == run.arrived == len(run.arrivals_s) >= 9
    assert run.departures_s.tolist() == pytest.approx([2.0 + 0.01 * i for i in range(1, run.arrived + 1)])
    assert run.arrivals_s.max() <= 1.0
    first = gate.samples[0]
    assert (first.kept, first.waiting) == (0, (run.arrivals_s < 1.0).sum())
    assert first.oldest_wait_s == pytest.approx(1.0 - run.arrivals_s.min())
    before = next(outlook for outlook in gate.asked if outlook.time_s == pytest.approx(1.5))
    assert before.waiting == run.arrived
    assert before.oldest_wait_s == before.span_s == pytest.approx(1.5 - run.arrivals_s.min())
    assert (before.again_s, before.outstanding) == (pytest.approx(0.1), 0.0)
    assert sum(sample.kept for sample in gate.samples) == run.admitted


def test_held_tuples_go_on_as_there_is_room_and_the_oldest_first() -> None:
    run = gated(Gate(opens_s=2.0, room=1.5))
    starts_s = [2.0 + 0.1 * (i // 2) for i in range(run.arrived)]
    ends_s = [start_s + 0.01 * (1 + i % 2) for i, start_s in enumerate(starts_s)]
    assert run.departures_s.tolist() == pytest.approx(ends_s), "a part of a tuple is a tuple"
    assert run.arrivals_s.tolist() == sorted(run.arrivals_s)


def test_held_tuples_that_waited_too_long_are_dropped() -> None:
    gate = Gate(opens_s=2.0, room=100.0, wait_limit_s=1.45)
    run = gated(gate)
    assert run.arrivals_s.min() >= 0.55 - 1e-9
    assert run.dropped == run.arrived - run.delivered
    assert run.dropped_on == {"s": run.dropped}
    assert run.delivered == sum(arrived_s >= 0.55 for arrived_s in run.arrivals_s)
    shut = gated(Gate(opens_s=99.0, room=1.0))
    assert (shut.under_way, shut.admitted, shut.delivered, shut.dropped) == (shut.arrived, 0, 0, 0)


def test_held_tuples_of_two_streams_keep_their_order() -> None:
    new = NetworkBuilder("two")
    a, b = new.stream("a", {"v": "double"}), new.stream("b", {"v": "double"})
    a.union("u", b).output("o")
    run = simulate(
        new.build(), Statistics({"u": 0.01}), {"a": Phases(((5, 1), (0, 3))), "b": Phases(((3, 1), (0, 3)))}, 4,
        controller=Gate(2.0, 1.0), tick_s=0.1, keep_tuples=True,
    )  # fmt: skip
    assert run.arrivals_s.tolist() == sorted(run.arrivals_s)
    assert run.departures_s.tolist() == pytest.approx([2.01 + 0.1 * i for i in range(run.arrived)])
    assert (run.entered["a"], run.entered["b"]) == pytest.approx((5, 3), abs=1)


class Half(Controller):
    """Keeps half."""

    target_s = 1.0

    def __init__(self) -> None:
        self.asked: list[Outlook] = []

    def observe(self, sample: LoadSample) -> None:
        pass

    def admit(self, outlook: Outlook) -> Admission:
        self.asked.append(outlook)
        return Admission(1.0, 0.5)


def test_a_coin_is_flipped_for_the_tuples_of_a_tick() -> None:
    network, known = one_operator(0.0001)
    controller = Half()
    run = simulate(network, known, {"s": Phases(((1000, 2),))}, 2, controller=controller, tick_s=0.5)
    assert [(outlook.time_s, outlook.span_s, outlook.oldest_wait_s) for outlook in controller.asked] == [
        (0.5 * tick, 0.5, 0.0) for tick in range(4)
    ]
    assert [outlook.waiting for outlook in controller.asked] == pytest.approx([500] * 4, abs=1)
    assert run.dropped == pytest.approx(1000, abs=70)
    assert (run.admitted + run.dropped, run.dropped_on, run.faced) == (
        run.arrived,
        {"s": run.dropped},
        {"s": run.arrived},
    )
    assert run.series.admitted.sum() == run.admitted
    assert run.series.arrived.sum() == run.arrived
    assert run.loss == run.dropped / run.arrived


def test_a_tuple_is_gone_when_its_last_copy_is() -> None:
    """One reader after 0.1 s, the other after 0.3 s: the tuple is under way for 0.3 s, and delivered once."""
    new = NetworkBuilder("copies")
    s = new.stream("s", {"v": "double"})
    s.map("a", {"v": "v"}).output("o")
    s.map("b", {"v": "v"}).output("p")
    run = simulate(
        new.build(), Statistics({"a": 0.1, "b": 0.3}), {"s": Phases(((1, 2), (0, 1)))}, 3,
        processors={"a": "x", "b": "y"}, keep_tuples=True, target_s=0.25, headroom=1.0,
    )  # fmt: skip
    assert run.delivered == run.arrived == len(run.departures_s)
    assert (run.departures_s - run.arrivals_s).tolist() == pytest.approx([0.3] * run.arrived)
    assert run.outputs["o"].delays.mean_s == pytest.approx(0.1)
    assert run.outputs["p"].delays.mean_s == pytest.approx(0.3)
    assert run.violations_s == pytest.approx(0.05 * run.arrived)
    assert (run.delayed, run.overshoot_s) == (run.arrived, pytest.approx(0.05))
    assert (run.executions, run.work_s) == (2 * run.arrived, pytest.approx(0.4 * run.arrived))
    assert run.utilization == pytest.approx(0.4 * run.arrived / 2 / 3, rel=1e-6)


def test_a_filter_decides_by_value_and_the_books_know() -> None:
    new = NetworkBuilder("filter")
    new.stream("s", {"v": "double"}).filter("f", "v > 30").output("o")
    known = Statistics({"f": 0.0001}, {"f": 0.7}, {"s": {"v": Histogram.uniform(0, 100)}})
    run = simulate(new.build(), known, {"s": Phases(((1000, 2), (0, 1)))}, 3)
    assert run.filtered == pytest.approx(0.3 * run.arrived, rel=0.1)
    assert run.filtered + run.delivered == run.arrived
    assert run.outputs["o"].delivered == run.delivered
    coin = simulate(new.build(), Statistics({"f": 0.0001}, {"f": 0.2}), {"s": Phases(((1000, 2), (0, 1)))}, 3)
    assert coin.delivered == pytest.approx(0.2 * coin.arrived, rel=0.1)


def test_targets_and_costs_change_at_their_time() -> None:
    network, known = one_operator(0.01)
    run = simulate(
        network, known, {"s": Phases(((10, 4),))}, 4, target_s=0.005, target_changes={2.0: 0.015},
        cost=CostJump(at_s=1.0, height=2, fall_s=1e6), keep_tuples=True,
    )  # fmt: skip
    delays_s = run.departures_s - run.arrivals_s
    early = run.arrivals_s < 1.0 - 0.02
    assert delays_s[early] == pytest.approx(0.01)
    assert delays_s[run.arrivals_s > 1.0] == pytest.approx(0.02, rel=0.01)
    assert run.series.target_s.tolist() == [0.005, 0.005, 0.015, 0.015]
    assert run.delayed == run.arrived - run.under_way
    early_s = 0.005 * early.sum() + 0.015 * ((run.arrivals_s > 1.0) & (run.departures_s <= 2.0)).sum()
    assert run.violations_s == pytest.approx(early_s + 0.005 * (run.departures_s > 2.0).sum(), rel=0.1)
    assert run.series.cost_s.tolist() == pytest.approx([0.01, 0.02, 0.02, 0.02], rel=0.06)


def test_a_manager_is_asked_eight_times_within_the_target() -> None:
    """With a target of 2 s every 0.25 s, about what came since; every period it hears what was kept in that."""
    network, known = one_operator(0.0001)
    controller = Half()
    samples: list[LoadSample] = []
    controller.observe = samples.append  # type: ignore[method-assign]
    run = simulate(
        network, known, {"s": Phases(((1000, 3),))}, 3, controller=controller, planner=FairPlanner(), tick_s=0.125,
        target_s=2.0,
    )  # fmt: skip
    assert [outlook.time_s for outlook in controller.asked] == [0.25 * i for i in range(1, 12)]
    assert [outlook.waiting for outlook in controller.asked] == pytest.approx([250] * 11, abs=1)
    assert [outlook.span_s for outlook in controller.asked] == [0.25] * 11
    # Everything before it was asked for the first time, then half: in full tuples.
    assert [sample.kept for sample in samples] == pytest.approx([250 + 375, 500, 500], abs=2)
    assert [sample.arrived for sample in samples] == pytest.approx([1000] * 3, abs=1)
    assert run.dropped == pytest.approx(1375, abs=90)


def test_a_plan_by_value_drops_low_values() -> None:
    new = NetworkBuilder("valued")
    value = ValueGraph.of("v", [(0, 0.1), (50, 0.1), (50, 1.0), (100, 1.0)])
    new.stream("s", {"v": "double"}).map("work", {"v": "v"}).output("o", Qos(value=value))
    known = Statistics({"work": 0.0001}, {}, {"s": {"v": Histogram.uniform(0, 100)}})
    run = simulate(
        new.build(), known, {"s": Phases(((1000, 4),))}, 4, controller=Half(), planner=planner_named("semantic"),
        tick_s=0.125, rates={"s": 1000.0},
    )  # fmt: skip
    # After 0.25 s half of the tuples go, the lower half, which is worth a tenth.
    assert run.outputs["o"].share == pytest.approx(1 - 0.5 * 3.75 / 4, abs=0.02)
    assert run.outputs["o"].value_utility == pytest.approx(1 - 0.05 / 0.55 * 3.75 / 4, abs=0.01)


def test_streams_and_arrivals_must_match() -> None:
    network, known = one_operator(0.01)
    with pytest.raises(StreamshedError, match="a stream needs a rate"):
        simulate(network, known, {}, 1.0)
    with pytest.raises(StreamshedError, match="stream that does not exist"):
        simulate(network, known, {"s": Phases(((1, 1),)), "t": Phases(((1, 1),))}, 1.0)
    with pytest.raises(StreamshedError, match="operator that does not exist"):
        simulate(network, Statistics({"word": 1.0}), {"s": Phases(((1, 1),))}, 1.0)


@pytest.mark.parametrize("name", ["seconds", "period_s", "tick_s", "headroom", "target_s", "train_s"])
def test_impossible_runs_are_refused(name: str) -> None:
    network, known = one_operator(0.01)
    options: dict[str, float] = {"seconds": 1.0, name: -1.0}
    with pytest.raises(InvalidValueError, match=name):
        simulate(network, known, {"s": Phases(((1, 1),))}, **options)  # type: ignore[arg-type]
