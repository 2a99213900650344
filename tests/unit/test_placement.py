"""Networks cut into nodes: specs, parts, and the topology that tables are made from."""

from __future__ import annotations

import pytest

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.cutting import external_rates, topology_of
from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.scores import Throughput
from streamshed.distributed.tables import build_tables, play
from streamshed.errors import NetworkError, StreamshedError
from streamshed.network import Part, cut, dump_spec, parse_spec

SPEC = """
name: two nodes
streams:
  left: {columns: {v: double}}
  right: {columns: {v: double}}
operators:
  clean: {type: filter, input: left, where: v > 0}
  ways: {type: split, input: clean, branches: {hot: v > 10, cold: v <= 10}}
  also: {type: map, input: right, select: {v: v * 2}}
  mixed: {type: union, inputs: [ways.cold, also]}
  alarm: {type: filter, input: ways.hot, where: v > 20}
  watch: {type: filter, input: ways.hot, where: v > 15}
outputs:
  alarms: {input: alarm}
  watched: {input: watch}
  rest: {input: mixed}
statistics:
  costs: {clean: 0.001, ways: 0.001, also: 0.002, mixed: 0.001, alarm: 0.004, watch: 0.002}
  selectivities: {clean: 0.8, ways.hot: 0.25, ways.cold: 0.75, alarm: 0.5, watch: 0.5}
rates: {left: 500, right: 300}
nodes:
  edge: {operators: [clean, ways, also], capacity: 1}
  core: {operators: [mixed, alarm, watch], capacity: 0.5, bandwidth_tps: 2000}
"""


def test_parts_and_round_trip() -> None:
    spec = parse_spec(SPEC)
    edge, core = cut(spec.network, spec.nodes)
    assert edge == Part("edge", ("clean", "also", "ways"), ("left", "right"), (), ())
    assert (core.streams, set(core.receives)) == ((), {"ways.cold", "also", "ways.hot"})
    assert core.outputs == ("alarms", "watched", "rest")
    assert parse_spec(dump_spec(spec)) == spec


def test_segments_follow_the_operators() -> None:
    topology = topology_of(parse_spec(SPEC.replace(", bandwidth_tps: 2000", "")))
    edge, core = topology.node["edge"], topology.node["core"]
    found = {segment.id: (segment.source, segment.cost, segment.selectivity, segment.end) for segment in edge.segments}
    assert found == {
        "left->clean": ("edge/left", pytest.approx(0.001 + 0.8 * 0.001), 0.8, None),
        "ways.cold->mixed": ("left->clean", 0, 0.75, "core/ways.cold"),
        "ways.hot->alarm": ("left->clean", 0, 0.25, "core/ways.hot"),  # sent once, though two operators read it
        "right->also": ("edge/right", 0.002, 1, "core/also"),
    }
    assert {segment.id for segment in core.segments} == {
        "ways.cold->mixed", "also->mixed", "ways.hot->alarm", "ways.hot->watch"
    }  # fmt: skip
    assert topology.external == {"edge/left", "edge/right"}


def test_tables_of_a_spec_reach_the_optimum() -> None:
    spec = parse_spec(SPEC)
    topology = topology_of(spec)
    assert "link to core" in topology.node
    rates = external_rates(topology, spec.rates)
    best = Coordinator(topology, Throughput(), 500.0).plan(rates).score
    played = play(topology, build_tables(topology, Throughput(), MaxError(0.02 * best)), rates, Throughput())
    assert 0.98 * best <= played.score <= best * (1 + 1e-6)


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("[clean, ways, also]", "[clean, ways, alsoo]", "does not exist", 22),
        ("[clean, ways, also]", "[clean, ways]", "has no node", 21),
        ("[mixed, alarm, watch]", "[mixed, alarm, watch, also]", "two nodes", 23),
        ("[clean, ways, also]", "[]", "without operators", 22),
        ("capacity: 0.5", "capacity: -1", "must be positive", 23),
        ("capacity: 0.5", "cores: 2", "unsupported key", 23),
        ("{operators: [clean, ways, also], capacity: 1}", "3", "not a mapping", 22),
    ],
)
def test_placements_that_make_no_sense_are_refused_with_their_line(old: str, new: str, what: str, line: int) -> None:
    text = SPEC.replace(old, new, 1)
    assert text != SPEC
    with pytest.raises(StreamshedError, match=what) as caught:
        parse_spec(text, "cluster.yaml")
    assert f"cluster.yaml line {line}" in str(caught.value)


def test_circles_and_joins_are_refused() -> None:
    circle = SPEC.replace("[clean, ways, also]", "[clean, mixed, also]").replace(
        "[mixed, alarm, watch]", "[ways, alarm, watch]"
    )
    with pytest.raises(NetworkError, match="circle"):
        parse_spec(circle)
    with pytest.raises(NetworkError, match="past all nodes"):
        parse_spec(SPEC.replace("rest: {input: mixed}", "rest: {input: mixed}\n  raw: {input: left}"))
    joined = """
name: join
streams:
  a: {columns: {at: timestamp, k: int}, time: at}
  b: {columns: {at: timestamp, k: int}, time: at}
operators:
  pairs: {type: join, left: a, right: b, on: [k], within_s: 5}
outputs:
  out: {input: pairs}
nodes:
  only: {operators: [pairs]}
"""
    with pytest.raises(NetworkError, match="do not know joins"):
        topology_of(parse_spec(joined))
