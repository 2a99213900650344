"""A network made ready to run: arrivals, where values are known, who passes, what drops take and what ghosts count."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simpy

from streamshed.engines.sim import simulate
from streamshed.engines.sim.arrivals import Arrivals, Spacing, ticks
from streamshed.engines.sim.gauges import Ghosts, OutputGauge, attach_gauges
from streamshed.engines.sim.measures import Measures
from streamshed.engines.sim.places import Places
from streamshed.engines.sim.processor import Processor
from streamshed.engines.sim.scheduled import Scheduling
from streamshed.engines.sim.traffic import Traffic
from streamshed.engines.sim.tuples import Ids, Tuples
from streamshed.engines.sim.values import order_rank
from streamshed.errors import InvalidValueError
from streamshed.network import Flow, Network, NetworkBuilder, Statistics
from streamshed.planning.ranks import ranked_order
from streamshed.qos import Cell, Histogram, LossGraph
from streamshed.workload import Constant, Phases

COLUMNS = {"ts": "timestamp", "k": "bigint", "v": "double"}
UNIFORM = Histogram.uniform(0, 100)


def network_of(*streams: str) -> tuple[NetworkBuilder, list[Flow]]:
    new = NetworkBuilder("places")
    return new, [new.stream(name, COLUMNS, time="ts", key=["k"]) for name in streams]


def known(**histograms: Histogram) -> Statistics:
    return Statistics({}, {}, {stream: {"v": histogram} for stream, histogram in histograms.items()})


# --- arrivals ---------------------------------------------------------------------------------------------------------


def arrivals(spacing: Spacing, rate_tps: float, number: int = 0, seed: int = 0) -> tuple[Arrivals, Places]:
    new, (s,) = network_of("s")
    s.filter("f", "v > 50").output("o")
    network, statistics = new.build(), known(s=UNIFORM)
    places = Places(network, statistics, seed=seed)
    return Arrivals("s", number, Constant(rate_tps), spacing, places, statistics, seed), places


def test_even_arrivals_are_cut_at_the_ticks() -> None:
    source, places = arrivals("even", 8.0)
    tuples = Tuples(places.slots.count)
    first = source.block(np.array([0.0, 0.25, 0.5]), tuples)
    second = source.block(np.array([0.5, 0.75, 1.0]), tuples)
    times_s = [train[1].tolist() for train in (*first, *second)]
    assert [moment for train in times_s for moment in train] == pytest.approx([i / 8 for i in range(1, 8)])
    assert [len(train) for train in times_s] == [1, 2, 2, 2], "what comes on an edge belongs to the tick that begins"
    assert [train[0].tolist() for train in (*first, *second)] == [[0], [1, 2], [3, 4], [5, 6]]
    assert tuples.arrived_s[:7].tolist() == [moment for train in times_s for moment in train]
    assert (tuples.copies[:7] == 1).all()


def test_random_arrivals_have_the_rate_of_their_pattern() -> None:
    source, places = arrivals("poisson", 5000.0)
    tuples = Tuples(places.slots.count, capacity=1 << 15)
    edges_s = np.arange(9) / 4
    trains = source.block(edges_s, tuples)
    counts = [len(ids) for ids, _ in trains]
    assert sum(counts) == pytest.approx(10_000, abs=300)
    assert counts == pytest.approx([1250] * 8, abs=150)
    for (_, times_s), low, high in zip(trains, edges_s, edges_s[1:], strict=False):
        assert ((times_s >= low) & (times_s < high)).all()
        assert (np.diff(times_s) >= 0).all()
        assert times_s.mean() == pytest.approx((low + high) / 2, abs=0.01)
    at = np.arange(sum(counts))
    assert tuples.rank[at].mean() == pytest.approx(0.5, abs=0.02)
    assert tuples.values[0][at].mean() == pytest.approx(50, abs=2)
    assert abs(np.corrcoef(tuples.rank[at], tuples.values[0][at])[0, 1]) < 0.05, "values do not tell ranks"


def test_streams_draw_numbers_of_their_own() -> None:
    drawn = []
    for number, seed in ((0, 0), (0, 0), (1, 0), (0, 1)):
        source, places = arrivals("poisson", 500.0, number, seed)
        tuples = Tuples(places.slots.count)
        trains = source.block(np.array([0.0, 1.0]), tuples)
        drawn.append((trains[0][1].tolist(), tuples.rank[:100].tolist(), tuples.values[0][:100].tolist()))
    assert drawn[0] == drawn[1]
    for other in (2, 3):
        assert all(mine != theirs for mine, theirs in zip(drawn[0], drawn[other], strict=True))


def test_ticks_come_in_blocks_and_tell_before_each() -> None:
    source, places = arrivals("even", 8.0)
    tuples = Tuples(places.slots.count)
    told: list[int] = []
    found = list(ticks({"s": source}, 0.125, 130, tuples, lambda: told.append(tuples.next)))
    assert len(found) == 130
    assert sum(len(ids) for trains in found for _, ids, _ in trains) == tuples.next == 129
    assert len(told) == 3, "64, 64 and 2 ticks"
    assert told == [0, 63, 127]
    assert all(name == "s" and len(ids) == 1 for trains in found[1:] for name, ids, _ in trains)


# --- where values are known -------------------------------------------------------------------------------------------


def slots(network: Network, statistics: Statistics) -> dict[str, int | None]:
    """By arc: the slot of the column v (or w, as it is called behind a map)."""
    places = Places(network, statistics, seed=0)
    found = {}
    for arc in network.arcs:
        if not arc.is_entry:
            column = "w" if "w" in network.schemas[arc.source].columns else "v"
            found[arc.id] = places.slots.slot(arc, column)
    return found


def test_a_column_is_known_by_its_new_name_but_not_if_it_is_computed() -> None:
    new, (s,) = network_of("s")
    s.map("m", {"w": "v"}).filter("f", "w > 1").output("o")
    s.map("n", {"w": "v + 1"}).filter("g", "w > 1").output("p")
    s.map("l", {"x": "k"}, keep=True).filter("h", "v > 1").output("q")
    found = slots(new.build(), known(s=UNIFORM))
    assert {arc: slot for arc, slot in found.items() if arc in ("m->f", "n->g", "l->h", "s->m")} == {
        "s->m": 0,
        "m->f": 0,
        "n->g": None,
        "l->h": 0,
    }
    assert set(slots(new.build(), Statistics()).values()) == {None}


def test_streams_that_meet_share_a_slot() -> None:
    new, (a, b, c) = network_of("a", "b", "c")
    a.union("u", b).filter("f", "v > 1").output("o")
    c.filter("g", "v > 1").output("p")
    places = Places(new.build(), known(a=UNIFORM, b=UNIFORM, c=UNIFORM), seed=0)
    assert places.slots.count == 2
    assert places.slots.of_stream("a") == places.slots.of_stream("b") != places.slots.of_stream("c")
    partly = Places(new.build(), known(a=UNIFORM, c=UNIFORM), seed=0)
    assert partly.slots.of_stream("a") == {}, "not known of b, so not where they have met"


def test_two_columns_of_a_stream_under_one_name_have_no_slot() -> None:
    new = NetworkBuilder("mixed")
    s = new.stream("s", {"v": "double", "w": "double"})
    s.map("m", {"x": "v"}).union("u", s.map("n", {"x": "w"})).filter("f", "x > 50").output("o")
    histograms = {"s": {"v": UNIFORM, "w": UNIFORM}}
    assert Places(new.build(), Statistics({}, {}, histograms), seed=0).slots.count == 0


# --- who passes -------------------------------------------------------------------------------------------------------


def some(places: Places, count: int, values: list[float] | None = None) -> tuple[Tuples, Ids, Ids]:
    tuples = Tuples(places.slots.count, capacity=1 << 14)
    ids = tuples.add(np.zeros(count), np.linspace(0, 1, count, endpoint=False))
    at = tuples.at(ids)
    if values is not None:
        tuples.values[0][at] = values
    return tuples, ids, at


def test_a_filter_goes_by_values_or_by_a_coin() -> None:
    new, (s,) = network_of("s")
    s.filter("f", "v > 30").output("o")
    s.filter("g", "k > 30").output("p")
    s.filter("h", "k > 0").output("q")
    s.filter("i", "k > 0").map("r", {"v": "v"}).output("t")
    statistics = Statistics({}, {"f": 0.1, "g": 0.25, "i": 0.0}, {"s": {"v": UNIFORM}})
    places = Places(new.build(), statistics, seed=0)
    tuples, ids, at = some(places, 3, [20.0, 30.0, 40.0])
    by_value = places.outs["f->o"].choice
    assert by_value is not None
    assert by_value(tuples, ids, at).tolist() == [False, False, True]
    tuples, ids, at = some(places, 10_000)
    coin = places.outs["g->p"].choice
    assert coin is not None
    assert coin(tuples, ids, at).mean() == pytest.approx(0.25, abs=0.02)
    assert coin(tuples, ids, at).tolist() == coin(tuples, ids, at).tolist()
    assert places.outs["h->q"].choice is None, "all pass"
    never = places.outs["i->r"].choice
    assert never is not None
    assert not never(tuples, ids, at).any()


def test_readers_share_a_coin_and_branches_do_not() -> None:
    new, (s,) = network_of("s")
    shared = s.filter("f", "k > 0")
    shared.output("o")
    shared.output("p")
    branches = s.split("b", {"x": "k > 1", "y": "k < 1"})
    branches["x"].output("q")
    branches["y"].output("r")
    statistics = Statistics({}, {"f": 0.5, "b.x": 0.5, "b.y": 0.5})
    places = Places(new.build(), statistics, seed=0)
    tuples, ids, at = some(places, 1000)

    def passing(arc: str) -> list[bool]:
        choice = places.outs[arc].choice
        assert choice is not None
        return choice(tuples, ids, at).tolist()

    assert passing("f->o") == passing("f->p")
    assert passing("b.x->q") != passing("b.y->r")
    assert passing("b.x->q") != passing("f->o")


def test_tuples_multiply_as_the_selectivity_says() -> None:
    new, (s,) = network_of("s")
    s.aggregate("w", {"n": "count()"}, window_s=10, slide_s=5).output("o")
    places = Places(new.build(), Statistics({}, {"w": 2.25}), seed=0)
    tuples, ids, at = some(places, 10_000)
    choice = places.outs["w->o"].choice
    assert choice is not None
    found = choice(tuples, ids, at)
    assert set(found.tolist()) == {2, 3}
    assert found.mean() == pytest.approx(2.25, abs=0.02)
    assert places.may_repeat


def test_tuples_may_repeat_where_paths_of_a_stream_meet_again() -> None:
    new, (a, b) = network_of("a", "b")
    a.filter("f", "k > 0").union("u", b).output("o")
    assert not Places(new.build(), Statistics(), seed=0).may_repeat
    new, (a, b) = network_of("a", "b")
    a.filter("f", "k > 0").union("u", b, a.filter("g", "k < 0")).output("o")
    assert Places(new.build(), Statistics(), seed=0).may_repeat
    run = simulate(new.build(), Statistics({"u": 1e-4}), {"a": Phases(((10, 1), (0, 1))), "b": Constant(0)}, 2)
    assert run.outputs["o"].delivered == 2 * run.arrived == 2 * run.delivered
    assert run.under_way == 0


# --- drops and ghosts -------------------------------------------------------------------------------------------------


def traffic(network: Network, statistics: Statistics, train_s: float = 0.0) -> Traffic:
    places = Places(network, statistics, seed=0)
    env = simpy.Environment()
    processors = {node: Processor(env, 1, 1.0, "fixed", 0) for node in places.places}
    measures = Measures(1.0, 1, 1.0, keep_tuples=False)
    return Traffic(places, Tuples(places.slots.count), processors, measures, statistics.drop_cost, train_s)


def test_a_drop_costs_the_processor_behind_it() -> None:
    new, (s,) = network_of("s")
    s.output("o")
    first = s.filter("f", "k > 0")
    first.filter("g", "k > 1").output("p")
    first.output("q")
    moving = traffic(new.build(), Statistics(drop_cost=0.5))
    outs = moving.places.outs
    for arc, count in (("s", 2), ("s->f", 3), ("f->g", 4), ("f->q", 5)):
        moving.charge_drop(outs[arc], count)
    debts_s = {node: processor.debt_s for node, processor in moving._processors.items()}
    assert debts_s == {"f": 2.5, "g": 2.0}, "an output has no processor"
    free = traffic(new.build(), Statistics())
    free.charge_drop(free.places.outs["s"], 9)
    assert {processor.debt_s for processor in free._processors.values()} == {0.0}


def test_tuples_that_are_refused_or_dropped_are_out_of_the_books() -> None:
    new, (s,) = network_of("s")
    shared = s.filter("f", "k > 0")
    shared.output("o")
    shared.output("p")
    moving = traffic(new.build(), Statistics())
    ids = moving.tuples.add(np.zeros(10), np.arange(10) / 10)
    moving.refuse("s", ids[:3])
    assert (moving.places.outs["s"].dropped, moving.measures.dropped, moving.outstanding) == (3, 3, 0)
    assert moving.tuples.copies[:10].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    moving.let_in("s", ids[3:], np.full(7, 1.0))
    assert (moving.outstanding, moving.finished, moving.places.outs["s->f"].queue.length) == (7, 0, 7)
    moving.places.outs["f->o"].threshold = 0.5
    moving.leave(moving.places.places["f"], 0, ids[3:], np.full(7, 2.0))
    out = moving.places.outs["f->o"]
    assert (out.entered, out.faced, out.dropped) == (7, 7, 2), "ranks 0.3 and 0.4"
    assert (moving.places.outs["f->p"].entered, moving.places.outs["f->p"].faced) == (7, 0)
    assert (moving.outstanding, moving.finished) == (0, 7)
    moving.measures.delays_of_period()
    assert (moving.measures.delivered, moving.measures.dropped) == (7, 3), "a copy of each came through"


def test_arrivals_in_groups_are_there_when_their_group_is() -> None:
    new, (s,) = network_of("s")
    s.filter("f", "k > 0").map("g", {"v": "v"}).output("o")
    network = new.build()
    places = Places(network, Statistics(), seed=0)
    shared = Processor(simpy.Environment(), 2, 1.0, "fixed", 0)
    measures = Measures(1.0, 1, 1.0, keep_tuples=False)
    moving = Traffic(places, Tuples(0), dict.fromkeys(places.places, shared), measures, 0.0, 0.25)
    ids = moving.tuples.add(np.array([0.1, 0.25, 0.3]), np.zeros(3))
    moving.let_in("s", ids, np.array([0.1, 0.25, 0.3]))
    assert places.outs["s->f"].queue.take(9, 9.0)[1].tolist() == [0.25, 0.25, 0.5]
    alone = traffic(network, Statistics(), train_s=0.25)
    ids = alone.tuples.add(np.array([0.1]), np.zeros(1))
    alone.let_in("s", ids, np.array([0.1]))
    assert alone.places.outs["s->f"].queue.head_s == 0.1, "a processor with one operator needs no groups"


def test_ghosts_are_counted_where_they_would_have_got_to() -> None:
    new, (s,) = network_of("s")
    shared = s.filter("f", "v > 30")
    shared.output("o")
    shared.aggregate("w", {"n": "count()"}, window_s=10).map("m", {"n": "n"}).output("p")
    network = new.build()
    places = Places(network, Statistics({}, {"w": 0.1}, {"s": {"v": UNIFORM}}), seed=0)
    gauges: dict[str, OutputGauge] = attach_gauges(places, 1.0, 1)
    tuples, ids, _ = some(places, 4, [10.0, 40.0, 50.0, 20.0])
    ghosts = Ghosts(places, tuples)
    ghosts.add(places.outs["s"], ids[:3])
    ghosts.add(places.outs["f->o"], ids[3:])
    ghosts.add(places.outs["s"], ids[:0])
    ghosts.settle()
    ghosts.settle()
    lost = {name: gauge.result(LossGraph.linear()).lost for name, gauge in gauges.items()}
    assert lost == {"o": 3, "p": 2}, "behind an aggregate it is what goes into that"


# --- scheduling -------------------------------------------------------------------------------------------------------


def test_a_scheduled_processor_begins_when_the_first_tuple_is_there() -> None:
    new, (s,) = network_of("s")
    s.map("a", {"v": "v"}).map("b", {"v": "v"}).output("o")
    run = simulate(
        new.build(), Statistics({"a": 0.01, "b": 0.02}), {"s": Phases(((2, 2), (0, 2)))}, 4,
        scheduling=Scheduling("path-capacity", quantum_s=1.0), train_s=0.0, tick_s=0.5, keep_tuples=True,
        target_s=0.02,
    )  # fmt: skip
    assert (run.departures_s - run.arrivals_s).tolist() == pytest.approx([0.03] * run.arrived)
    assert run.scheduling is not None
    track = run.scheduling.queries["o"]
    assert (track.delivered, track.latency_mean_s) == (run.arrived, pytest.approx(0.03))
    assert track.time_s.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert track.throughput_tps.sum() == run.arrived
    assert [latency_s for latency_s in track.latency_s if not math.isnan(latency_s)] == pytest.approx(
        [0.03, 0.03, 0.03]
    )
    assert run.violations_s == pytest.approx(0.01 * run.arrived)


def test_strategies_are_for_one_processor_and_queries_that_exist() -> None:
    new, (s,) = network_of("s")
    s.map("a", {"v": "v"}).output("o")
    with pytest.raises(InvalidValueError, match="strategies are for one processor"):
        simulate(new.build(), Statistics(), {"s": Constant(1)}, 1, scheduling=Scheduling(), processors={"a": "x"})
    with pytest.raises(InvalidValueError, match="query that does not exist"):
        simulate(new.build(), Statistics(), {"s": Constant(1)}, 1, scheduling=Scheduling(strategies={"x": "segment"}))


def test_tuples_without_a_partner_are_followed_too() -> None:
    new, (s, t) = network_of("s", "t")
    s.join("j", t.map("r", {"ts": "ts", "k": "k", "w": "v"}), on=["k"], within_s=1).output("o")
    places = Places(new.build(), Statistics(), seed=0)
    gauges = attach_gauges(places, 1.0, 1)
    tuples, ids, _ = some(places, 4)
    ghosts = Ghosts(places, tuples)
    ghosts.add_alone(places.places["j"], ids[:3])
    ghosts.settle()
    assert gauges["o"].result(LossGraph.linear()).lost == 3


def test_ranks_in_a_cell_begin_at_its_low_end() -> None:
    order = ranked_order([(Cell(10, 20), 0.5), (Cell(20, 30), 0.5)])
    ranks = order_rank(order)(np.array([10.0, 12.5, 15.0, 25.0]), np.zeros(4))
    assert (ranks * 256).tolist() == pytest.approx([0.0, 30.0, 60.0, 180.0])
