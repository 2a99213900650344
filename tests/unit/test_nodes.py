"""Nodes as applications of their own, without Spark: parts, arcs as files, tables from experience, and the post."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamshed.cli.node import TOKEN, stop_with_parent, token_for
from streamshed.cli.processes import cpu_s
from streamshed.control import BatchCost, CostEstimator, LoadSample, Outlook, PlantController
from streamshed.coordination import LastingRate, TablePlanner, measured_model, table_for_parent
from streamshed.distributed.arc_files import ArcFiles, Inbox, file_name, write_atomically
from streamshed.distributed.cutting import topology_of
from streamshed.distributed.exchange import send
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.upkeep import TableKeeper
from streamshed.distributed.feasible_input.wire import MOST_BYTES, encode, whole
from streamshed.distributed.mailbox import Mailbox
from streamshed.distributed.model import NodeModel
from streamshed.distributed.post import DirectoryPost, HttpPost
from streamshed.distributed.scores import Throughput
from streamshed.engines.spark.backlog import Backlog, StageCosts
from streamshed.engines.spark.cost_memory import CostMemory, believed_cost
from streamshed.errors import InvalidValueError, NetworkError, StreamshedError, UnknownNameError
from streamshed.load import Admission
from streamshed.manager import Manager
from streamshed.network import NodeSpec, Spec, Statistics, load_spec, node_spec, node_specs, parse_spec
from streamshed.planning import RoadMapPlanner
from tests.polling import PATIENCE_S, wait_for

CHAIN = Path(__file__).parents[2] / "examples" / "chain.yaml"
SPLIT = """
name: split
streams:
  left: {columns: {k: bigint, v: double}, key: [k]}
  right: {columns: {k: bigint, v: double}}
operators:
  clean: {type: filter, input: left, where: v > 0}
  ways: {type: split, input: clean, branches: {hot: v > 10, cold: v <= 10}}
  also: {type: map, input: right, select: {k: k, v: v * 2}}
  mixed: {type: union, inputs: [ways.cold, also]}
  alarm: {type: filter, input: ways.hot, where: v > 20}
  watch: {type: filter, input: ways.hot, where: v > 15}
outputs:
  alarms: {input: alarm, qos: {weight: 3}}
  watched: {input: watch}
  rest: {input: mixed}
statistics:
  costs: {clean: 0.001, ways: 0.001, also: 0.002, mixed: 0.001, alarm: 0.004, watch: 0.002}
  selectivities: {clean: 0.8, ways.hot: 0.25, ways.cold: 0.75, alarm: 0.5, watch: 0.5}
rates: {left: 500, right: 300}
nodes:
  edge: {operators: [clean, ways, also]}
  core: {operators: [mixed, alarm]}
  desk: {operators: [watch]}
"""


# --- parts -----------------------------------------------------------------------------------------------------------


def test_a_part_reads_and_writes_arcs() -> None:
    edge, core, desk = node_specs(parse_spec(SPLIT)).values()
    assert (edge.name, edge.number, edge.children, edge.position, edge.length) == ("edge", 0, ("core", "desk"), 1, 2)
    assert (core.parents, core.position, core.length) == (("edge",), 2, 2)
    assert edge.own_target_s(8.0) == edge.due_s(8.0) == 4.0
    assert core.due_s(8.0) == 8.0
    # What two nodes read is written for each of them, and a branch has a stream of its own.
    assert sorted(edge.writes.values()) == ["also-core", "ways.cold-core", "ways.hot-core", "ways.hot-desk"]
    assert core.reads == {"ways_cold": "ways.cold-core", "also": "also-core", "ways_hot": "ways.hot-core"}
    assert desk.reads == {"ways_hot": "ways.hot-desk"}
    assert core.inputs == {"ways_cold": "core/ways.cold", "also": "core/also", "ways_hot": "core/ways.hot"}
    assert core.spec.rates == {"ways_cold": pytest.approx(300), "also": 300, "ways_hot": pytest.approx(100)}
    mixed = next(operator for operator in core.spec.network.operators if operator.id == "mixed")
    assert mixed.inputs == ("ways_cold", "also")
    assert {stream.id: stream.key for stream in core.spec.network.streams} == {
        "ways_cold": ("k",), "also": (), "ways_hot": ("k",),
    }  # fmt: skip
    assert edge.places["ways.hot->watch"] == "ways.hot->ways_hot_to_desk"
    assert edge.spec.statistics.costs == {"clean": 0.001, "ways": 0.001, "also": 0.002}
    assert core.spec.statistics.selectivities == {"alarm": 0.5}


def test_wrong_nodes_are_refused() -> None:
    spec = parse_spec(SPLIT)
    with pytest.raises(UnknownNameError, match="no node 'cor'") as error:
        node_spec(spec, "cor")
    assert "core" in str(error.value)
    with pytest.raises(NetworkError, match="not cut into nodes"):
        node_specs(Spec(spec.network, spec.statistics, spec.rates))


# --- arcs ------------------------------------------------------------------------------------------------------------


def put(files: ArcFiles, number: int, rows: int, at_s: float = 0.0) -> None:
    place = files.directory / f"batch-{number:012d}"
    place.mkdir()
    pq.write_table(pa.table({"v": list(range(rows))}), place / "part-0.parquet")
    os.utime(place, (at_s, at_s))


def test_files_go_when_the_reader_has_finished_them_and_are_still_counted(tmp_path: Path) -> None:
    writer = ArcFiles(tmp_path, "parsed-core")
    box = Inbox(ArcFiles(tmp_path, "parsed-core"))
    for number, rows in ((0, 10), (1, 20), (3, 30)):  # batch 2 had no rows
        put(writer, number, rows, at_s=100.0 + number)
    (writer.directory / ".batch-000000000004").mkdir()  # being written
    assert (writer.written_rows(), box.waiting_rows()) == (60, 60)
    assert box.oldest_wait_s(105.0) == 5.0
    box.take([0, 1])
    assert (box.waiting_rows(), box.files.sweep()) == (30, 0)
    box.finish([1])
    assert writer.finished() == -1, "the first is not finished"
    box.finish([0])
    assert writer.finished() == 1
    assert box.files.sweep() == 2
    assert sorted(path.name for path in writer.directory.glob("batch-*")) == ["batch-000000000003"]
    assert (writer.written_rows(), box.waiting_rows()) == (60, 30)
    # A reader that begins again knows how far it was; a batch that it takes again is not finished again.
    again = Inbox(ArcFiles(tmp_path, "parsed-core"))
    again.take([0, 1, 3])
    again.finish([0, 1])
    assert (again.waiting_rows(), writer.finished()) == (0, 1)
    assert again.waiting(None, 0.0) == 0
    again.finish([3])
    assert again.files.sweep() == 0, "the writer may have to run the newest again"
    put(writer, 5, 50)
    assert again.files.sweep(reading=again.files.batches()) == 0, "a batch that is done again may need them"
    assert again.files.sweep() == 1
    assert (writer.written_rows(), again.waiting_rows()) == (110, 50)


def test_a_deletion_that_was_cut_off_counts_nothing_twice(tmp_path: Path) -> None:
    files = ArcFiles(tmp_path, "a")
    put(files, 0, 10)
    put(files, 1, 5)
    Inbox(files).finish([0])
    write_atomically(files.directory / "swept.json", '{"swept": 0, "rows": 10}')  # and then it crashed
    assert ArcFiles(tmp_path, "a").written_rows() == 15
    assert Inbox(ArcFiles(tmp_path, "a")).waiting_rows() == 5
    assert files.sweep() == 1
    assert ArcFiles(tmp_path, "a").written_rows() == 15


def test_what_waits_on_an_arc_is_known_before_the_first_batch(tmp_path: Path) -> None:
    """Otherwise the first batch would take all of it."""
    spec = node_spec(load_spec(CHAIN), "core").spec
    files = ArcFiles(tmp_path, "parsed-core")
    stage = SimpleNamespace(
        id="outputs",
        sources=("parsed",),
        plan_order=("parsed",),
        inboxes={"parsed": Inbox(files)},
        reads={},
        gated=None,
    )
    backlog = Backlog(spec.network, cast("Any", [stage]), StageCosts(spec.network, spec.statistics, spec.rates, ()))
    now_s = time.time()
    outlook = backlog.outlook(now_s)
    assert outlook is not None
    assert outlook.waiting == 0
    put(files, 0, 50, at_s=now_s - 30.0)
    put(files, 1, 20, at_s=now_s - 20.0)
    outlook = backlog.outlook(now_s)
    assert outlook is not None
    assert outlook.waiting == 70
    assert outlook.oldest_wait_s == pytest.approx(30.0, abs=1e-3)


def test_an_arc_keeps_its_columns(tmp_path: Path) -> None:
    files = ArcFiles(tmp_path, "a")
    assert files.schema() is None
    files.set_schema('{"fields": [1]}')
    files.set_schema('{"fields": [2]}')  # nothing was written yet
    put(files, 0, 1)
    files.set_schema('{"fields":  [2]}')
    with pytest.raises(StreamshedError, match="cannot change its columns"):
        files.set_schema('{"fields": [3]}')
    (files.directory / "reader.json").write_text("[")
    with pytest.raises(StreamshedError, match="cannot be read"):
        files.finished()
    assert file_name("a b/c") == "a_20b_2fc"


# --- tables ----------------------------------------------------------------------------------------------------------


def of_core(spec: Spec, lasting_tps: float) -> FeasibleInputTable:
    """What the core of the chain tells the edge when it can take so much."""
    model = topology_of(spec).node["core"]
    rates = {"core/parsed": 1500.0}
    measured = measured_model(model, rates, lasting_tps)
    return table_for_parent(measured, Throughput(), {}, rates, frozenset(model.inputs))


def planner_of(spec: Spec, name: str) -> tuple[NodeSpec, TablePlanner]:
    node = node_spec(spec, name)
    return node, TablePlanner(node, topology_of(spec).node[name], Throughput({"alarms": 3.0}), RoadMapPlanner())


def test_a_node_sheds_on_behalf_of_the_one_below() -> None:
    spec = load_spec(CHAIN)
    node, planner = planner_of(spec, "edge")
    of_node = node.spec
    manager = Manager(of_node.network, of_node.statistics, of_node.rates, PlantController(4.0), planner)
    now = Outlook(0.0, 100, 0.1, 0.1)
    assert manager.decide(now).thresholds == {"reports": 0.0}, "nothing is known: everything goes on"
    came = {"edge/reports": 1500.0}
    table = {"core": of_core(spec, 500.0)}
    assert planner.update(table, came)
    assert not planner.update(table, came)
    assert manager.decide(now).thresholds == {"reports": 0.0}, "not asked again yet"
    manager.replan()
    decision = manager.decide(now)
    assert decision.thresholds["reports"] == pytest.approx(2 / 3, abs=0.01)
    assert decision.load_share == pytest.approx(1 / 3, abs=0.01)
    planner.update(table, {"edge/reports": 750.0})
    manager.replan()
    assert manager.decide(now).thresholds["reports"] == pytest.approx(1 / 3, abs=0.01)
    planner.update(table, {"edge/reports": 450.0})
    manager.replan()
    assert manager.decide(now).thresholds["reports"] == 0.0
    planner.update({}, came)  # stale
    manager.replan()
    assert manager.decide(now).thresholds["reports"] == 0.0


def test_the_own_capacity_and_that_of_others_are_held_together() -> None:
    spec = load_spec(CHAIN)
    node, planner = planner_of(spec, "edge")
    of_node = node.spec
    planner.update({"core": of_core(spec, 500.0)}, {"edge/reports": 1500.0})
    full = 1500 * 4.0e-4

    def kept(keep: float) -> float:
        plan = planner.plan(of_node.network, of_node.statistics, of_node.rates, Admission(full * keep))
        return plan.load_after / plan.load_before

    assert kept(1.0) == pytest.approx(1 / 3, abs=0.01)
    assert kept(0.5) == pytest.approx(1 / 3, abs=0.01), "not dropped twice"
    assert kept(0.2) == pytest.approx(0.2, abs=0.01)


def test_drops_are_where_they_hurt_least() -> None:
    """The core can take little; what goes to the desk, and the dear alarms, stay."""
    spec = parse_spec(SPLIT)
    node, planner = planner_of(spec, "edge")
    topology = topology_of(spec)
    model = measured_model(topology.node["core"], {"core/ways.cold": 300, "core/also": 300, "core/ways.hot": 100}, 200)
    rates = {"core/ways.cold": 300.0, "core/also": 300.0, "core/ways.hot": 100.0}
    core = table_for_parent(model, planner.score, {}, rates, frozenset(model.inputs))
    planner.update({"core": core}, {"edge/left": 500.0, "edge/right": 300.0})
    part = node.spec
    plan = planner.plan(part.network, part.statistics, part.rates, Admission(10.0))
    dropped = {drop.arc: drop.fraction for drop in plan.drops}
    assert dropped, "something has to go"
    kept = {effect.output: effect.delivered for effect in plan.outputs}
    assert kept["ways_hot_to_desk"] == 1.0
    sent = {
        "core/ways.cold": 300 * kept["ways_cold_to_core"],
        "core/also": 300 * kept["also_to_core"],
        "core/ways.hot": 100 * kept["ways_hot_to_core"],
    }
    assert core.carries({name: rate * 0.999 for name, rate in sent.items()})
    assert sum(sent.values()) > 100


def test_what_a_node_can_do_is_learnt_from_its_batches() -> None:
    controller = PlantController(4.0, CostEstimator(warmup=0))
    assert PlantController(4.0).lasting_rate_tps is None
    for tuples in (1000, 2000, 4000, 3000):
        controller.observe(LoadSample(0.0, 0.2 + 5e-4 * tuples, arrived=tuples, kept=tuples))
    batch_s, rate_tps = controller.lasting_batch_s, controller.lasting_rate_tps
    assert batch_s == pytest.approx(1.8, abs=0.01)
    assert rate_tps == pytest.approx((1.8 - 0.2) / 1.8 / 5e-4, rel=0.02)
    # With that rate a batch of the wanted length follows the other.
    assert rate_tps is not None
    assert 0.2 + 5e-4 * rate_tps * 1.8 == pytest.approx(1.8, abs=0.05)

    again = PlantController(4.0)
    cost = controller.cost
    assert cost is not None
    again.believe(cost, 3000)
    assert again.lasting_rate_tps == pytest.approx(rate_tps, rel=0.05)
    assert again.admit(Outlook(0.0, 100_000, 30.0, 30.0)).keep < 0.1, "a backlog is not taken as a whole"
    hopeless = PlantController(0.5)
    hopeless.believe(BatchCost(1.0, 0.0, 1e-4), 1000)
    assert hopeless.lasting_rate_tps is None


def test_a_modest_table_grows_and_a_bold_one_shrinks() -> None:
    rate = LastingRate()
    assert rate.of(300.0) == 300.0, "the model, while nothing was done"
    sent_tps = rate.of(300.0)
    for _ in range(40):  # it could do 1000 a second, of which its model knows nothing
        rate.observe(
            fill=min(sent_tps / 1000.0, 1.0), dropped=max(1 - 1000.0 / sent_tps, 0.0), done_tps=min(sent_tps, 1000.0)
        )
        sent_tps = rate.of(300.0)
    assert sent_tps == pytest.approx(1150.0, rel=0.03), "full, and a little more"
    for _ in range(8):  # from now on it can do half of that, of which its model knows nothing either
        rate.observe(fill=1.0, dropped=1 - 500.0 / sent_tps, done_tps=500.0)
        sent_tps = rate.of(1000.0)
    assert sent_tps == pytest.approx(575.0, rel=0.03)
    rate.observe(fill=3.0, dropped=0.0, done_tps=20.0)  # held up
    rate.observe(fill=1.0, dropped=0.95, done_tps=20.0)  # and then it had to get rid of what had piled up
    assert rate.of(1000.0) == pytest.approx(575.0, rel=0.03), "neither says what it can do"
    for _ in range(4):
        rate.observe(fill=0.1, dropped=0.0, done_tps=100.0)
    assert rate.of(600.0) == 600.0, "with little to do the model is believed again"


def test_a_node_begins_with_the_costs_of_its_spec_and_comes_back_with_those_that_it_found(tmp_path: Path) -> None:
    """A backlog of a hundred batches must not be taken as a whole, also if nobody knows what a tuple costs."""
    spec = node_spec(load_spec(CHAIN), "core").spec
    memory, backlog = CostMemory(tmp_path / "cost.json"), Outlook(0.0, 80_000, 60.0, 60.0)
    controller = PlantController(5.0)
    memory.recall(controller)
    assert controller.admit(backlog).keep == 1.0, "what happens without"
    cost = believed_cost(spec, 5.0)
    assert cost is not None
    controller.believe(cost, sum(spec.rates.values()) * 1.25)
    assert controller.cost is not None
    assert controller.cost.process_s == pytest.approx(1.5e-3, rel=0.02)
    assert controller.admit(backlog).keep * 80_000 * 1.5e-3 < 5.0
    assert controller.lasting_rate_tps == pytest.approx(450, rel=0.1), "parents can be told at once"

    seen = LoadSample(0.0, 2.0, arrived=800, kept=700)
    alike = PlantController(5.0)
    for _ in range(9):
        alike.observe(seen)
    memory.keep(alike, seen)
    again = PlantController(5.0)
    memory.recall(again)
    assert again.cost is not None
    assert again.cost.duration_s(800, 700) == pytest.approx(2.0, rel=0.05)
    assert again.admit(backlog).keep * 80_000 * 2.0 / 700 < 5.0


def test_costs_that_cannot_be_read_do_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cost.json").write_text('{"cost": 3}')
    controller = PlantController(5.0)
    with caplog.at_level(logging.WARNING):
        CostMemory(tmp_path / "cost.json").recall(controller)
    assert "cannot be used" in caplog.text
    assert controller.cost is None
    spec = node_spec(load_spec(CHAIN), "core").spec
    assert believed_cost(replace(spec, statistics=Statistics()), 5.0) is None


def test_costs_that_are_not_known_say_nothing() -> None:
    spec = load_spec(CHAIN)
    model = topology_of(spec).node["core"]
    free = NodeModel(
        model.name, model.inputs, tuple(type(one)(one.id, one.source, 0, 1, one.end) for one in model.segments)
    )
    assert measured_model(free, {"core/parsed": 10.0}, 5.0) == free


# --- the post --------------------------------------------------------------------------------------------------------


def keeper(spec: Spec) -> TableKeeper:
    def make(model: NodeModel, _: object) -> FeasibleInputTable:
        return of_core(spec, float(model.capacity))

    made = TableKeeper(make)
    made.update(measured_model(topology_of(spec).node["core"], {"core/parsed": 1500.0}, 500.0), {})
    return made


@pytest.mark.parametrize("way", ["directory", "http"])
def test_tables_come_to_the_parent_and_grow_old(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamshed.distributed.post._SEND_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr("streamshed.distributed.exchange._TIMEOUT_S", PATIENCE_S)
    spec = load_spec(CHAIN)
    box = Mailbox({"core": ["core/parsed"]}, stale_after_s=10.0)
    assert box.ages_s(1.0) == {"core": None}
    token = "a token of some length"
    now_s = 1_700_000_000.0
    edge = (
        DirectoryPost(tmp_path, "edge", ["core"], box)
        if way == "directory"
        else HttpPost(tmp_path, "edge", ["core"], box, token, clock=lambda: now_s)
    )
    core = (
        DirectoryPost(tmp_path, "core", [], Mailbox({}))
        if way == "directory"
        else HttpPost(tmp_path, "core", [], Mailbox({}), token)
    )
    try:
        own = {"edge": keeper(spec)}
        core.deliver(own, now_s)
        edge.collect(now_s)
        assert list(box.tables(now_s)) == ["core"]
        core.deliver(own, now_s + 1)
        edge.collect(now_s + 1)
        assert box.tables(now_s + 8)["core"].highest["core/parsed"] > 0
        age_s = box.ages_s(now_s + 20)["core"]
        assert age_s is not None
        assert age_s > 10
        assert box.tables(now_s + 20) == {}, "then the node goes by its own constraints"

        with caplog.at_level(logging.WARNING):
            bad = [b"nonsense", b"\0" * (MOST_BYTES + 1), encode(whole(of_core(spec, 1.0), 9, now_s - 60))]
            for number, data in enumerate(bad):
                if way == "http":
                    url = f"{(tmp_path / 'edge.endpoint').read_text().split(chr(34))[3]}"
                    assert send(url, token, data, PATIENCE_S) is None
                    good = encode(whole(of_core(spec, 1.0), 9, now_s))
                    assert send(url, "another token, just as long", good, PATIENCE_S) is None
                else:
                    (tmp_path / "edge" / "core.fit").write_bytes(data)
                    os.utime(tmp_path / "edge" / "core.fit", (number, number))
                    edge.collect(now_s + 2)
        assert box.refused == (6 if way == "http" else 3)
        assert caplog.text.count("refused") == box.refused
        assert box.version("core") == 1
    finally:
        edge.close()
        core.close()


def test_a_parent_that_is_not_there_does_no_harm(tmp_path: Path) -> None:
    spec = load_spec(CHAIN)
    core = HttpPost(tmp_path, "core", [], Mailbox({}), "a token of some length")
    core.deliver({"edge": keeper(spec)}, 0.0)
    (tmp_path / "edge.endpoint").write_text('{"url": "http://127.0.0.1:9/tables"}')
    core.deliver({"edge": keeper(spec)}, 0.0)
    (tmp_path / "edge.endpoint").write_text('{"url": "http://example.org/tables"}')
    core.deliver({"edge": keeper(spec)}, 0.0)
    (tmp_path / "edge.endpoint").write_text("{")
    core.deliver({"edge": keeper(spec)}, 0.0)


# --- processes -------------------------------------------------------------------------------------------------------


def test_a_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert token_for("directory") is None
    with pytest.raises(InvalidValueError, match="need a token"):
        token_for("http")
    monkeypatch.setenv(TOKEN, "secret")
    assert token_for("http") == "secret"


def test_a_node_stops_when_its_parent_is_gone() -> None:
    theirs, ours = os.pipe()
    stopped = threading.Event()
    stop_with_parent(stopped, theirs)
    for byte in (b"a", b"b"):
        os.write(ours, byte)
        wait_for(lambda: not select.select([theirs], [], [], 0)[0], "what was sent to be read")
    assert not stopped.is_set()
    os.close(ours)
    assert stopped.wait(PATIENCE_S)
    os.close(theirs)


def test_processor_time_counts_what_was_started() -> None:
    used_s = cpu_s()
    if used_s is not None:
        child = subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
        assert child.returncode == 0
        after_s = cpu_s()
        assert after_s is not None
        assert after_s > used_s
