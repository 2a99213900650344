from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError, NetworkError, SpecError, UnknownNameError
from streamshed.network import (
    Aggregate,
    Aggregation,
    Connector,
    Filter,
    Join,
    Map,
    Network,
    NetworkBuilder,
    Output,
    Spec,
    Split,
    Statistics,
    Stream,
    Union,
    dump_spec,
    load_spec,
    parse_spec,
)
from streamshed.qos import Histogram, LatencyGraph, LossGraph, Qos, ValueGraph, derive_loss_graph
from tests.strategies import specs, value_graphs

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = """\
name: small
streams:
  s: {columns: {ts: timestamp, k: bigint, v: double}, time: ts}
outputs:
  out: {input: s}
"""


def everything() -> Spec:
    """A spec that has every operator and every optional field."""
    columns = {"ts": "timestamp", "k": "bigint", "v": "double"}
    network = Network(
        "every kind of thing",
        (
            Stream("a", columns, "ts", ("k",), 2.5, Connector("rate", {"rowsPerSecond": "10", "on": "yes", "x": ""})),
            Stream("b", columns, "ts"),
        ),
        (
            Filter("f", "a", "v > 1e-6 AND k <> 'it''s'", stage=True),
            Map("m", "f", {"k": "k", "ts": "ts", "v": "v * 2", "note": "\"quoted\" || '\n'"}),
            Map("n", "b", {"k": "k", "ts": "ts", "v": "v", "note": "'null'"}, stage=True),
            Union("u", ("m", "n"), stage=True),
            Map("r", "b", {"ts": "ts", "k": "k", "w": "v"}, keep=False),
            Join("j", "u", "r", ("k",), 0.5, stage=True),
            Split("s", "j", {"low": "v < 10", "on": "v >= 10"}, stage=True),
            Aggregate(
                "g",
                "s.low",
                {"c": Aggregation("count"), "m": Aggregation("avg", "v"), "d": Aggregation("count", "k")},
                60.0,
                7.5,
                ("k", "note"),
                stage=True,
            ),
        ),
        (
            Output("o", "g"),
            Output(
                "p",
                "s.on",
                Qos(
                    LatencyGraph.of([(0, 1), (0.25, 0.5)]),
                    LossGraph.of([(0, 0), (1 / 3, 0.7), (1, 1)]),
                    ValueGraph.of("v", [(0, 1), (0, 0.1), (9.5, 0.2)], chunks=3),
                    0.1,
                ),
                Connector("parquet", {"path": "somewhere", "n": "007"}),
            ),
        ),
    )
    statistics = Statistics(
        {"f": 1e-6, "g": 0.0},
        {"f": 0.1, "s.on": 1 / 3, "j": 2.5},
        {"a": {"v": Histogram.of([(0, 0, 1), (0, 10, 2), (10, 99.9, 4)])}, "b": {}},
        3e-9,
    )
    return Spec(network, statistics, {"a": 1000.0, "b": 0.125}, 2.0)


@pytest.mark.parametrize("name", ["expressway", "shared-cluster", "shared-sensors"])
def test_examples_survive_the_round_trip(name: str) -> None:
    spec = load_spec(EXAMPLES / f"{name}.yaml")
    assert spec.network.name == name
    text = dump_spec(spec)
    assert parse_spec(text) == spec
    assert dump_spec(parse_spec(text)) == text


def test_every_operator_and_field_survives_the_round_trip() -> None:
    spec = everything()
    again = parse_spec(dump_spec(spec))
    assert again == spec
    # Equality of mappings does not see the order, but columns are compared in order by unions.
    assert repr(again) == repr(spec)


@settings(deadline=None)
@given(specs())
def test_random_networks_survive_the_round_trip(spec: Spec) -> None:
    text = dump_spec(spec)
    again = parse_spec(text)
    assert again == spec
    assert again.network.schemas == spec.network.schemas
    assert dump_spec(again) == text


@settings(deadline=None)
@given(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]*( [A-Za-z0-9_-]+)*", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_text_survives_the_round_trip(name: str, option: str) -> None:
    network = Network(
        name, (Stream("s", {"a column": "int"}, source=Connector("f", {option: option})),), (), (Output("o", "s"),)
    )
    assert parse_spec(dump_spec(Spec(network))) == Spec(network)


@settings(deadline=None)
@given(st.floats(min_value=0, allow_infinity=False, exclude_min=True), st.floats(0, 1))
def test_any_number_survives_the_round_trip(cost: float, selectivity: float) -> None:
    new = NetworkBuilder("n")
    new.stream("s", {"v": "int"}).filter("f", "v > 0").output("o")
    spec = Spec(new.build(), Statistics({"f": cost}, {"f": selectivity}), {"s": cost}, cost)
    assert parse_spec(dump_spec(spec)) == spec


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=20))
def test_histograms_are_normalised_only_once(weights: list[float]) -> None:
    histogram = Histogram.of([(i, i + 1, weight) for i, weight in enumerate(weights)])
    assert Histogram.of(histogram.bins) == histogram


def test_columns_with_odd_names_can_be_aggregated() -> None:
    new = NetworkBuilder("n")
    stream = new.stream("s", {"ts": "timestamp", "top `speed`": "double"}, time="ts")
    stream.aggregate("g", {"m": "max(`top ``speed```)", "n": "COUNT(*)"}, window_s=1).output("o")
    spec = Spec(new.build())
    assert spec.network.operators[0] == Aggregate(
        "g", "s", {"m": Aggregation("max", "top `speed`"), "n": Aggregation("count")}, 1
    )
    assert parse_spec(dump_spec(spec)) == spec


def test_dump_is_readable() -> None:
    new = NetworkBuilder("readable")
    stream = new.stream("s", {"ts": "timestamp", "k": "bigint", "v": "double"}, time="ts")
    stream.join("j", stream.map("w", {"ts": "ts", "k": "k", "w": "v"}), on=["k"], within_s=30).output(
        "o", Qos(loss=LossGraph.of([(0, 0), (0.5, 0.7), (1, 1)]))
    )
    assert dump_spec(Spec(new.build(), Statistics({"j": 1e-6}))) == (
        "name: readable\n"
        "streams:\n"
        "  s:\n"
        "    columns: {ts: timestamp, k: bigint, v: double}\n"
        "    time: ts\n"
        "operators:\n"
        "  w: {type: map, input: s, select: {ts: ts, k: k, w: v}}\n"
        "  j: {type: join, left: s, right: w, on: [k], within_s: 30}\n"
        "outputs:\n"
        "  o:\n"
        "    input: j\n"
        "    qos: {loss: [[0, 0], [0.5, 0.7], [1, 1]]}\n"
        "statistics:\n"
        "  costs: {j: 1.0e-06}\n"
    )


@pytest.mark.parametrize("number", ["1e-6", "1E-6", "1.0e-6", "1.e-06", ".000001", "0.000001", "+1e-6"])
def test_numbers_may_be_written_in_any_usual_way(number: str) -> None:
    text = SMALL.replace("input: s", "input: f") + (
        f"operators: {{f: {{type: filter, input: s, where: v > 0}}}}\nstatistics: {{costs: {{f: {number}}}}}\n"
    )
    assert parse_spec(text).statistics.costs == {"f": 1e-6}


def test_text_is_taken_as_it_is_written() -> None:
    text = SMALL.replace("time: ts}", "time: ts, source: {format: f, options: {n: 010, on: yes, t: 12:30, b: true}}}")
    network = parse_spec(text.replace("name: small", "name: on")).network
    assert network.name == "on"
    assert network.streams[0].source == Connector("f", {"n": "010", "on": "yes", "t": "12:30", "b": "true"})


def test_a_literal_is_an_expression() -> None:
    text = SMALL.replace("input: s", "input: m") + "operators: {m: {type: map, input: s, select: {one: 1, t: true}}}\n"
    assert parse_spec(text).network.operators == (Map("m", "s", {"one": "1", "t": "true"}),)


def test_a_section_whose_lines_are_commented_out_counts_as_absent() -> None:
    assert parse_spec(SMALL + "statistics:\n  # costs: {f: 1}\nrates:\ncapacity:\n") == parse_spec(SMALL)


def test_aliases_may_be_used() -> None:
    text = SMALL.replace("input: s", "input: s, qos: &q {weight: 2}") + "  more: {input: s, qos: *q}\n"
    assert [output.qos.weight for output in parse_spec(text).network.outputs] == [2, 2]


def test_a_spec_made_in_python_is_checked_too() -> None:
    network = parse_spec(SMALL).network
    with pytest.raises(InvalidValueError, match="capacity"):
        Spec(network, capacity=0)
    with pytest.raises(UnknownNameError, match="a rate for a stream"):
        Spec(network, rates={"s": 1, "t": 1})
    with pytest.raises(UnknownNameError, match="a cost for an operator"):
        Spec(network, Statistics({"f": 1}))


@settings(deadline=None)
@given(value_graphs(), st.lists(st.floats(0, 1e6), min_size=1, max_size=10).filter(any))
def test_loss_tolerance_follows_from_any_value_graph(value: ValueGraph, weights: list[float]) -> None:
    histogram = Histogram.of([(i * 10, i * 10 + 10, weight) for i, weight in enumerate(weights)])
    loss = derive_loss_graph(value, histogram)
    assert (loss(0), loss(1)) == (0, 1)


def test_a_field_of_a_struct_is_computed_not_renamed() -> None:
    new = NetworkBuilder("n")
    new.stream("s", {"place": "struct<lat: double>"}).map("m", {"lat": "place.lat"}).output("o")
    assert new.build().schemas["m"].columns == {"lat": None}


def test_a_copy_of_the_time_column_does_not_replace_it() -> None:
    new = NetworkBuilder("n")
    new.stream("s", {"ts": "timestamp"}, time="ts").map("m", {"copy": "ts"}, keep=True).output("o")
    assert new.build().schemas["m"].time == "ts"


def test_a_join_does_not_take_a_plain_column_for_the_time_of_the_other_side() -> None:
    new = NetworkBuilder("n")
    left = new.stream("a", {"ts": "timestamp", "k": "int", "at": "int"}, time="ts")
    left.join("j", new.stream("b", {"at": "timestamp", "k": "int"}, time="at"), on=["k"], within_s=1).output("o")
    with pytest.raises(NetworkError, match="both sides of a join have a column 'at'"):
        new.build()


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_spec(file) == load_spec(str(file)) == parse_spec(SMALL)

    with pytest.raises(SpecError, match=r"does not exist[\s\S]*did you mean 'small.yaml'"):
        load_spec(tmp_path / "smal.yaml")
    with pytest.raises(SpecError, match="does not exist"):
        load_spec(tmp_path / "nowhere" / "small.yaml")
    with pytest.raises(SpecError, match="is a directory"):
        load_spec(tmp_path)
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(file / "small.yaml")
    file.write_bytes(b"name: small\nstreams: caf\xe9\n")
    with pytest.raises(SpecError, match=r"not UTF-8[\s\S]*small.yaml line 2[\s\S]*0xe9"):
        load_spec(file)
