"""The virtual-time engine: books that balance, drops that do what plans say, the same run from the same seed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamshed.control import CONTROLLERS, Controller, DeadlineController, LoadSample, Outlook, controller_named
from streamshed.engines.sim import SimResult, simulate
from streamshed.engines.sim.queues import ArcQueue
from streamshed.engines.sim.tuples import Tuples
from streamshed.load import Admission, load_coefficients, total_load
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import PLANNERS, Drop, DropPlan, Planner, RoadMapPlanner, planner_named
from streamshed.qos import Histogram, LossGraph, Qos, ValueGraph
from streamshed.workload import Constant, Pareto, Phases
from streamshed.workload.costs import ConstantCost, CostJump
from tests.strategies import networks, rates, statistics

UNIFORM = {"s": {"value": Histogram.uniform(0, 100)}}


class Keep(Controller):
    """Always the same share."""

    target_s = 2.0

    def __init__(self, keep: float) -> None:
        self.keep = keep
        self.samples: list[LoadSample] = []

    def observe(self, sample: LoadSample) -> None:
        self.samples.append(sample)

    def admit(self, outlook: Outlook) -> Admission:
        return Admission(1.0, self.keep)


class Fixed(Planner):
    """Always the same drops."""

    name: ClassVar[str] = "fixed"
    title: ClassVar[str] = "Fixed"

    def __init__(self, fractions: Mapping[str, float]) -> None:
        self.fractions = fractions

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        drops = tuple(Drop(arc, fraction, fraction) for arc, fraction in self.fractions.items())
        return DropPlan(self.name, drops, (), 1.0, 1.0, 1.0)


def two_readers() -> tuple[Network, Statistics]:
    """A shared operator, and behind it a reader of high values and one of a mean."""
    new = NetworkBuilder("two")
    parsed = new.stream("s", {"ts": "timestamp", "value": "double"}, time="ts").map(
        "parse", {"value": "value"}, keep=True
    )
    worth = ValueGraph.of("value", [(0, 0.1), (95, 0.1), (95, 1), (100, 1)])
    parsed.filter("rare", "value > 80").output("alarms", Qos(value=worth, weight=10))
    loss = LossGraph.of([(0, 0), (0.3, 0.9), (1, 1)])
    parsed.aggregate("mean", {"mean": "avg(value)"}, window_s=10).output("report", Qos(loss=loss))
    costs = {"parse": 2e-5, "rare": 2e-5, "mean": 6e-5}
    return new.build(), Statistics(costs, {"rare": 0.2, "mean": 0.01}, UNIFORM)


def one_operator(cost_s: float = 0.005) -> tuple[Network, Statistics]:
    new = NetworkBuilder("one")
    new.stream("s", {"v": "double"}).map("work", {"v": "v"}).output("out")
    return new.build(), Statistics({"work": cost_s})


def balance(run: SimResult) -> int:
    return run.delivered + run.dropped + run.filtered + run.under_way


# --- the books ------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_tuple_is_accounted_for(data: st.DataObject) -> None:
    network = data.draw(networks(max_streams=3, max_operators=5))
    known = data.draw(statistics(network))
    pace = {stream: min(rate, 300.0) for stream, rate in data.draw(rates(network)).items()}
    costs = {operator: 1000 * cost_s for operator, cost_s in known.costs.items()}
    controller: Controller = Keep(data.draw(st.sampled_from([0.0, 0.3, 0.9, 1.0])))
    planner = data.draw(st.sampled_from([None, RoadMapPlanner(), planner_named("semantic")]))
    run = simulate(
        network,
        replace(known, costs=costs),
        {stream: Constant(rate) for stream, rate in pace.items()},
        3,
        controller=controller,
        planner=planner,
        train_s=0.1,
        tick_s=0.1,
    )
    assert run.arrived == sum(run.entered[stream.id] for stream in network.streams)
    assert run.arrived == balance(run)
    assert all(0 <= run.dropped_on.get(arc, 0) <= entered for arc, entered in run.entered.items())
    assert 0 <= run.utilization <= 1.2


def test_a_sample_tells_what_happened_in_its_period() -> None:
    network, known = one_operator()
    controller = Keep(0.5)
    simulate(network, known, {"s": Constant(300)}, 3, controller=controller, headroom=0.8)
    first = controller.samples[0]
    assert (first.time_s, first.duration_s) == (1.0, 1.0)
    assert first.arrived == pytest.approx(300, abs=1)
    assert first.kept == pytest.approx(150, abs=30)
    assert first.outstanding == pytest.approx(first.kept - (first.finished or 0))
    assert first.cost_s == pytest.approx(0.005)
    assert (first.delay_max_s or 0) >= (first.delay_p50_s or 0) >= 0.005


def test_one_seed_one_run() -> None:
    network, known = two_readers()

    def run(seed: int) -> SimResult:
        return simulate(
            network, known, {"s": Pareto(15_000, 1.0, seed=7)}, 5, controller=controller_named("ctrl", 0.5),
            planner=planner_named("semantic"), service="exponential", spacing="poisson", seed=seed, keep_tuples=True,
        )  # fmt: skip

    first, again, other = run(1), run(1), run(2)
    assert np.array_equal(first.departures_s, again.departures_s)
    assert first.outputs["alarms"] == replace(again.outputs["alarms"], delays=first.outputs["alarms"].delays)
    assert first.dropped_on == again.dropped_on
    assert not np.array_equal(first.departures_s[:1000], other.departures_s[:1000])


def test_memory_follows_the_queues_and_not_the_length_of_the_run() -> None:
    network, known = two_readers()

    def peak(seconds: float) -> int:
        tracemalloc.start()
        run = simulate(
            network, known, {"s": Constant(20_000)}, seconds, controller=controller_named("ctrl", 0.3),
            planner=RoadMapPlanner(), tick_s=0.05, train_s=0.05,
        )  # fmt: skip
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert run.loss > 0.1
        return used

    peak(2)  # what is imported and cached once
    assert peak(40) < 1.2 * peak(10)


# --- drops ----------------------------------------------------------------------------------------------------------


def drop_run(fractions: Mapping[str, float], network: Network, known: Statistics) -> SimResult:
    """Time to decide, five seconds of tuples, and time to finish them."""
    return simulate(
        network, known, {stream.id: Phases(((0, 1), (2000, 5))) for stream in network.streams}, 8,
        controller=Keep(1.0), planner=Fixed(fractions), rates={stream.id: 2000.0 for stream in network.streams},
    )  # fmt: skip


def test_drops_on_inner_arcs_nest_by_rank() -> None:
    network, known = two_readers()
    everything = drop_run({}, network, known)
    some = drop_run({"s": 0.3, "parse->rare": 0.6, "parse->mean": 0.2}, network, known)
    assert some.dropped_on["s"] == pytest.approx(0.3 * some.arrived, rel=0.05)
    assert some.dropped_on["parse->rare"] == pytest.approx(0.3 * some.arrived, rel=0.05), "half of it upstream already"
    assert "parse->mean" not in some.dropped_on, "what would be dropped there has been dropped upstream"
    assert some.outputs["report"].delivered == some.admitted
    assert everything.dropped == 0


@pytest.mark.parametrize("fractions", [{"s": 0.5}, {"parse->rare": 0.9}, {"s": 0.2, "parse->mean": 0.7}])
def test_what_an_output_lost_is_what_it_gets_without_drops(fractions: Mapping[str, float]) -> None:
    network, known = two_readers()
    everything, some = drop_run({}, network, known), drop_run(fractions, network, known)
    for name, output in some.outputs.items():
        assert output.delivered + output.lost == everything.outputs[name].delivered
        assert everything.outputs[name].lost == 0
    assert some.dropped + some.delivered + some.filtered == everything.arrived


def test_a_join_passes_the_least_share_of_its_sides() -> None:
    new = NetworkBuilder("join")
    columns = {"ts": "timestamp", "k": "bigint"}
    left = new.stream("left", {**columns, "value": "double"}, time="ts", key=["k"])
    right = new.stream("right", {**columns, "other": "double"}, time="ts", key=["k"])
    joined = left.join("join", right, on=["k"], within_s=5)
    joined.filter("high", "value > 60").output("out")
    known = Statistics(
        {"join": 1e-5, "high": 1e-5}, {"join": 0.8, "high": 0.4}, {"left": {"value": Histogram.uniform(0, 100)}}
    )
    everything = drop_run({}, new.build(), known)
    assert everything.outputs["out"].delivered == pytest.approx(20_000 * 0.8 * 0.4, rel=0.06)
    some = drop_run({"left": 0.3, "right": 0.6}, new.build(), known)
    assert some.outputs["out"].delivered == pytest.approx(0.4 * everything.outputs["out"].delivered, rel=0.06)


@pytest.mark.parametrize("name", list(PLANNERS))
def test_outputs_get_what_the_plan_promises(name: str) -> None:
    network, known = two_readers()
    planner = planner_named(name)
    load = total_load(load_coefficients(network, known), {"s": 2000.0})
    plan = planner.plan(network, known, {"s": 2000.0}, Admission(0.4 * load))
    run = simulate(
        network, known, {"s": Phases(((1, 1), (20_000, 2)))}, 5,
        controller=Keep(0.4), planner=planner, rates={"s": 2000.0},
    )  # fmt: skip
    for effect in plan.outputs:
        output = run.outputs[effect.output]
        assert output.share == pytest.approx(effect.delivered, abs=0.02)
        assert output.value_utility == pytest.approx(effect.value_utility, abs=0.02)
        assert output.tuple_utility == pytest.approx(effect.tuple_utility, abs=0.02)
    nominal_s = run.arrived / 2000.0 * load
    assert run.work_s == pytest.approx(0.4 * nominal_s, rel=0.03)


def test_drops_themselves_cost_time() -> None:
    network, known = two_readers()
    free = drop_run({"s": 0.5, "parse->mean": 0.7}, network, known)
    dear = drop_run({"s": 0.5, "parse->mean": 0.7}, network, replace(known, drop_cost=1e-5))
    looked_at = free.arrived + free.entered["parse->mean"]
    assert dear.work_s - free.work_s == pytest.approx(looked_at * 1e-5, rel=0.02)


# --- the processor --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headroom", [1.0, 0.97, 0.5])
def test_queries_get_their_share_of_the_processor(headroom: float) -> None:
    network, known = one_operator()
    run = simulate(network, known, {"s": Constant(1000)}, 10, headroom=headroom)
    assert run.delivered == pytest.approx(10 * headroom / 0.005, abs=4)
    assert run.utilization == pytest.approx(1.0, abs=0.01)
    alone = simulate(network, known, {"s": Constant(10)}, 10, headroom=headroom)
    assert alone.delays.max_s == pytest.approx(0.005 / headroom)


def test_costs_vary_over_time() -> None:
    network, known = one_operator()
    trace = CostJump(at_s=5, height=4, fall_s=1e6) * ConstantCost(0.5)
    run = simulate(network, known, {"s": Constant(1000)}, 10, cost=trace)
    finished = run.series.finished
    assert finished[:5].sum() == pytest.approx(5 / 0.0025, rel=0.01)
    assert finished[5:].sum() == pytest.approx(5 / 0.01, rel=0.01)
    assert run.series.cost_s[-1] == pytest.approx(0.01, rel=0.01)


# --- controllers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(CONTROLLERS))
@pytest.mark.parametrize("planned", [False, True])
def test_every_controller_holds_back_an_overload(name: str, planned: bool) -> None:
    network, known = two_readers()
    run = simulate(
        network, known, {"s": Phases(((5000, 2), (20_000, 10)))}, 12, target_s=1.0,
        controller=controller_named(name, 1.0, headroom=1.0), planner=planner_named("semantic") if planned else None,
    )  # fmt: skip
    assert run.arrived == balance(run)
    assert run.series.busy_s[4:].mean() > 0.95
    assert run.delays.quantile_s(0.99) < 4, "without control it would be more than 8 s"


def test_tuples_that_are_held_back_are_late_or_let_in_never_lost_sight_of() -> None:
    network, known = one_operator()
    pattern = Phases(((100, 2), (600, 20)))
    run = simulate(network, known, {"s": pattern}, 22, controller=DeadlineController(0.5), target_s=0.5)
    assert run.arrived == balance(run)
    assert run.delays.max_s < 0.55
    assert run.dropped == pytest.approx(20 * (600 - 200), rel=0.04)


def test_a_target_may_change_while_it_runs() -> None:
    network, known = one_operator()
    run = simulate(
        network, known, {"s": Constant(400)}, 60, controller=controller_named("ctrl", 1.0, headroom=1.0),
        target_s=1.0, target_changes={30.0: 3.0},
    )  # fmt: skip
    assert run.series.delay_mean_s[20:29].mean() == pytest.approx(1.0, rel=0.15)
    assert run.series.delay_mean_s[48:57].mean() == pytest.approx(3.0, rel=0.15)
    assert (run.series.target_s[0], run.series.target_s[-1]) == (1.0, 3.0)


# --- parts ----------------------------------------------------------------------------------------------------------


def test_a_queue_gives_what_is_there_in_order() -> None:
    queue = ArcQueue()
    queue.push(np.arange(3), np.array([1.0, 2.0, 3.0]))
    queue.push(np.arange(3, 5), np.array([3.0, 4.0]))
    assert queue.take(10, until_s=2.5)[0].tolist() == [0, 1]
    assert queue.take(2, until_s=9)[0].tolist() == [2, 3]
    assert (queue.length, queue.head_s) == (1, 4.0)
    assert queue.take(5, until_s=0.0)[0].tolist() == [4], "there is always one to take, even if it comes later"
    assert queue.head_s == float("inf")


def test_the_ring_of_tuples_grows_with_those_under_way_and_forgets_those_that_left() -> None:
    tuples = Tuples(slots=1, capacity=4)
    first = tuples.add(np.arange(3.0), np.zeros(3))
    tuples.values[0][tuples.at(first)] = [7, 8, 9]
    second = tuples.add(np.arange(3.0, 6.0), np.ones(3))
    assert tuples.capacity == 8
    assert tuples.values[0][tuples.at(first)].tolist() == [7, 8, 9]
    assert tuples.arrived_s[tuples.at(second)].tolist() == [3, 4, 5]
    tuples.copies[tuples.at(first)] = 0
    tuples.copies[tuples.at(second[:2])] = 0
    third = tuples.add(np.full(7, 9.0), np.zeros(7))
    assert tuples.capacity == 8, "the room of those that left is taken again"
    assert tuples.arrived_s[tuples.at(second[2:])].tolist() == [5]
    assert set(tuples.arrived_s[tuples.at(third)]) == {9.0}


@pytest.mark.parametrize("name", ["ctrl", "deadline"])
def test_a_drained_run_leaves_nothing_under_way(name: str) -> None:
    """The same arrivals, and what was under way at the end has become something; delays of late ones are counted."""
    from streamshed.experiments.control_plant import virtual_queue

    plant = virtual_queue()
    options: dict[str, Any] = {"headroom": 0.97, "tick_s": 0.02, "train_s": 0.02}
    runs = [
        simulate(
            plant.network, plant.statistics, {plant.stream: Constant(300)}, 10.0,
            controller=controller_named(name, 2.0), drain=drain, **options,
        )
        for drain in (False, True)
    ]  # fmt: skip
    assert runs[0].under_way > 100
    assert runs[1].under_way == 0
    assert runs[0].arrived == runs[1].arrived == runs[1].delivered + runs[1].dropped
    assert runs[1].violations_s >= runs[0].violations_s
    assert len(runs[1].series.time_s) == 10
