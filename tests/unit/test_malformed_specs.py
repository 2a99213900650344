"""Specs that are wrong in one way each, and the answer that each of them gets."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from streamshed.errors import InvalidValueError, NetworkError, SpecError, StreamshedError, UnknownNameError
from streamshed.network import parse_spec

FILE = "traffic.yaml"

SOUND = """\
name: traffic
streams:
  reports:
    columns: {ts: timestamp, car: bigint, speed: double, lane: int}
    time: ts
    key: [car]
  tolls:
    columns: {ts: timestamp, car: bigint, toll: double}
    time: ts
operators:
  stopped: {type: filter, input: reports, where: speed = 0}
  paid: {type: join, left: stopped, right: tolls, on: [car], within_s: 30}
  lanes: {type: split, input: reports, branches: {slow: speed < 40, fast: speed >= 40}}
  both: {type: union, inputs: [lanes.slow, lanes.fast]}
  mean:
    type: aggregate
    input: both
    window_s: 60
    slide_s: 10
    group_by: [lane]
    aggregates: {speed: avg(speed), cars: count()}
  kmh:
    type: map
    input: paid
    select:
      kmh: speed * 1.6
    keep: true
outputs:
  accidents:
    input: kmh
    qos:
      weight: 2
      latency: [[0, 1], [2, 1], [10, 0]]
      value: {column: speed, points: [[0, 1], [100, 0.1]]}
  speeds:
    input: mean
    qos:
      loss: [[0, 0], [0.5, 0.7], [1, 1]]
statistics:
  costs: {stopped: 1.0e-6, mean: 2.0e-6, paid: 0, lanes: 0, both: 0, kmh: 0}
  selectivities: {stopped: 0.01, lanes.slow: 0.3}
  histograms:
    reports:
      speed: [[0, 0, 1], [0, 100, 99]]
rates: {reports: 1000, tolls: 10}
capacity: 1.0
"""
ACCIDENTS_VALUE = "points: [[0, 1], [100, 0.1]]"
SPEEDS_LOSS = "[[0, 0], [0.5, 0.7], [1, 1]]"


def edit(*changes: tuple[str, str]) -> str:
    """The sound spec with some text replaced."""
    text = SOUND
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} must be there once"
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Case:
    """A malformed spec, the class of error it must raise, and what the message must say."""

    name: str
    text: str
    error: type[StreamshedError]
    fragments: tuple[str, ...]


CASES = [
    # --- the file
    Case("empty file", "", SpecError, ("the spec is empty", f"{FILE} line 1")),
    Case("only comments", "# nothing\n# here\n", SpecError, ("the spec is empty", f"{FILE} line 1")),
    Case("not a mapping", "- a\n- b\n", SpecError, ("the spec is not a mapping", "a list", f"{FILE} line 1")),
    Case(
        "unclosed bracket",
        edit(("key: [car]", "key: [car")),
        SpecError,
        ("not valid YAML", f"{FILE} line 7 column 8", "expected ',' or ']'", "begins on line 6"),
    ),
    Case(
        "tab",
        edit(("    time: ts\n    key", "\ttime: ts\n    key")),
        SpecError,
        ("not valid YAML", f"{FILE} line 5 column 1", "indent with spaces"),
    ),
    Case(
        "two documents", edit(("outputs:\n", "---\noutputs:\n")), SpecError, ("not valid YAML", "document", "line 28")
    ),
    Case(
        "control character",
        edit(("speed = 0", "speed \x07= 0")),
        SpecError,
        ("a character that YAML does not allow", f"{FILE} line 11", "U+0007"),
    ),
    Case(
        "alias to itself",
        edit(("key: [car]", "key: &loop [*loop]")),
        SpecError,
        ("an alias leads to itself", f"{FILE} line 6, streams.reports.key"),
    ),
    Case(
        "nested too deeply",
        edit(("key: [car]", f"key: {'[' * 1000}{']' * 1000}")),
        SpecError,
        ("nested too deeply", f"{FILE} line 6"),
    ),
    # --- shape
    Case(
        "unsupported key",
        edit(("where: speed = 0", "were: speed = 0")),
        SpecError,
        ("unsupported key 'were'", f"{FILE} line 11, operators.stopped.were", "type, stage, input, where", "'where'?"),
    ),
    Case(
        "unsupported key on a later line",
        edit(("    keep: true", "    keeps: true")),
        SpecError,
        ("unsupported key 'keeps'", f"{FILE} line 27, operators.kmh.keeps", "did you mean 'keep'?"),
    ),
    Case(
        "unsupported section",
        edit(("capacity: 1.0", "capasity: 1.0")),
        SpecError,
        ("unsupported key 'capasity'", f"{FILE} line 46, capasity", "did you mean 'capacity'?"),
    ),
    Case(
        "unknown operator type",
        edit(("type: filter", "type: fliter")),
        SpecError,
        ("unknown operator type", f"{FILE} line 11, operators.stopped.type", "fliter", "did you mean 'filter'?"),
    ),
    Case(
        "operator without type",
        edit(("type: filter, ", "")),
        SpecError,
        ("missing key 'type'", f"{FILE} line 11, operators.stopped", "filter, map, union"),
    ),
    Case(
        "missing key",
        edit((", within_s: 30", "")),
        SpecError,
        ("missing key 'within_s'", f"{FILE} line 12, operators.paid", "the keys type, left, right, on, within_s"),
    ),
    Case(
        "key with nothing behind it",
        edit(("    window_s: 60", "    window_s:")),
        SpecError,
        ("missing key 'window_s'", f"{FILE} line 15, operators.mean"),
    ),
    Case(
        "missing section",
        SOUND[: SOUND.index("outputs:")],
        SpecError,
        ("missing key 'outputs'", f"{FILE} line 1", "the keys name, streams, outputs"),
    ),
    Case(
        "text for a number",
        edit(("window_s: 60", "window_s: a minute")),
        SpecError,
        ("operators.mean.window_s is not a number", f"{FILE} line 18", "a minute"),
    ),
    Case(
        "number in quotes",
        edit(("window_s: 60", 'window_s: "60"')),
        SpecError,
        ("operators.mean.window_s is not a number", "the text '60'", "take the quotes off"),
    ),
    Case(
        "infinite number",
        edit(("window_s: 60", "window_s: .inf")),
        SpecError,
        ("operators.mean.window_s is not a finite number", f"{FILE} line 18"),
    ),
    Case(
        "fraction for a whole number",
        edit((ACCIDENTS_VALUE, ACCIDENTS_VALUE + ", chunks: 2.5")),
        SpecError,
        ("outputs.accidents.qos.value.chunks is not a whole number", f"{FILE} line 34", "2.5"),
    ),
    Case(
        "yes for true",
        edit(("keep: true", "keep: yes")),
        SpecError,
        ("operators.kmh.keep is neither true nor false", f"{FILE} line 27", "yes"),
    ),
    Case(
        "text for a list",
        edit(("on: [car]", "on: car")),
        SpecError,
        ("operators.paid.on is not a list", f"{FILE} line 12", "car"),
    ),
    Case(
        "list for text",
        edit(("where: speed = 0", "where: [speed]")),
        SpecError,
        ("operators.stopped.where is not a text", "a list", f"{FILE} line 11"),
    ),
    Case(
        "text for a mapping",
        edit(("    select:\n      kmh: speed * 1.6", "    select: speed * 1.6")),
        SpecError,
        ("operators.kmh.select is not a mapping", f"{FILE} line 25", "speed * 1.6"),
    ),
    Case(
        "list for an operator",
        edit(("stopped: {type: filter, input: reports, where: speed = 0}", "stopped: [filter, reports]")),
        SpecError,
        ("operators.stopped is not a mapping", f"{FILE} line 11"),
    ),
    Case(
        "text inside a graph",
        edit((SPEEDS_LOSS, "[[0, 0], [half, 0.7], [1, 1]]")),
        SpecError,
        ("outputs.speeds.qos.loss[1][0] is not a number", f"{FILE} line 38", "half"),
    ),
    Case(
        "column without a type",
        edit(("lane: int}", "lane}")),
        SpecError,
        ("streams.reports.columns.lane is not a text", "nothing", f"{FILE} line 4"),
    ),
    # --- ids and arcs
    Case(
        "id twice in a section",
        edit(("  lanes: {", "  stopped: {")),
        SpecError,
        ("the key 'stopped' is there twice", f"{FILE} line 13, operators.stopped", "lines 11 and 13"),
    ),
    Case(
        "section twice",
        edit(("capacity: 1.0", "operators: {}")),
        SpecError,
        ("the key 'operators' is there twice", f"{FILE} line 46, operators", "lines 10 and 46"),
    ),
    Case(
        "key twice inside a short form",
        edit(("{column: speed, ", "{column: speed, column: lane, ")),
        SpecError,
        ("the key 'column' is there twice", f"{FILE} line 34, outputs.accidents.qos.value.column", "twice on line 34"),
    ),
    Case(
        "id twice across sections",
        edit(("  speeds:", "  stopped:")),
        NetworkError,
        ("the id 'stopped' is used twice", f"{FILE} line 35, outputs.stopped", "also operator 'stopped' (filter)"),
    ),
    Case(
        "id with a dot",
        edit(("  speeds:", "  all.speeds:")),
        NetworkError,
        ("not a valid id", f"{FILE} line 35, outputs.all.speeds", "'all.speeds'"),
    ),
    Case(
        "cycle",
        edit(("where: speed = 0", "where: kmh = 0"), ("input: reports, where", "input: kmh, where")),
        NetworkError,
        ("the network has a cycle", f"{FILE} line 12, operators.paid", "paid -> kmh -> stopped -> paid"),
    ),
    Case(
        "dangling operator",
        edit(("    input: kmh", "    input: paid")),
        NetworkError,
        ("nothing reads 'kmh'", f"{FILE} line 22, operators.kmh", "dangling arc"),
    ),
    Case(
        "dangling branch",
        edit(("inputs: [lanes.slow, lanes.fast]", "inputs: [lanes.slow, reports]")),
        NetworkError,
        ("nothing reads 'lanes.fast'", f"{FILE} line 13, operators.lanes.branches.fast", "dangling arc"),
    ),
    Case(
        "unknown input",
        edit(("input: reports, where", "input: report, where")),
        NetworkError,
        ("reads from an unknown id", f"{FILE} line 11, operators.stopped.input", "'report'", "did you mean 'reports'?"),
    ),
    Case(
        "unknown branch",
        edit(("[lanes.slow, lanes.fast]", "[lanes.slow, lanes.vast]")),
        NetworkError,
        ("reads a branch that does not exist", f"{FILE} line 14, operators.both.inputs", "lanes.vast", "mean 'fast'?"),
    ),
    Case(
        "branch of something that is no split",
        edit(("    input: kmh", "    input: kmh.fast")),
        NetworkError,
        ("reads a branch that does not exist", f"{FILE} line 30, outputs.accidents.input", "only a split has branches"),
    ),
    Case(
        "split read as a whole",
        edit(("    input: both", "    input: lanes")),
        NetworkError,
        (
            "reads a branch that does not exist",
            f"{FILE} line 17, operators.mean.input",
            "one of lanes.slow, lanes.fast",
        ),
    ),
    Case(
        "output read by an operator",
        edit(("    input: both", "    input: accidents")),
        NetworkError,
        ("operator 'mean' (aggregate) reads from an output", f"{FILE} line 17, operators.mean.input", "'accidents'"),
    ),
    Case(
        "no outputs",
        SOUND[: SOUND.index("outputs:")] + "outputs: {}\n",
        NetworkError,
        ("a network needs an output", f"{FILE} line 28, outputs"),
    ),
    # --- columns and windows
    Case(
        "unknown column in a predicate",
        edit(("where: speed = 0", "where: sped = 0")),
        NetworkError,
        ("the predicate uses an unknown column", "operators.stopped.where", "line 11", "did you mean 'speed'?"),
    ),
    Case(
        "unknown column in an aggregate",
        edit(("avg(speed)", "avg(seed)")),
        NetworkError,
        ("aggregate 'speed' uses an unknown column", f"{FILE} line 21, operators.mean.aggregates.speed", "'speed'?"),
    ),
    Case(
        "unknown column in a map",
        edit(("kmh: speed * 1.6", "kmh: speeds * 1.6")),
        NetworkError,
        ("column 'kmh' uses an unknown column", f"{FILE} line 26, operators.kmh.select.kmh", "did you mean 'speed'?"),
    ),
    Case(
        "unknown column in a value graph",
        edit(("column: speed", "column: spede")),
        NetworkError,
        ("the value graph uses an unknown column", f"{FILE} line 34, outputs.accidents.qos.value.column", "'speed'"),
    ),
    Case(
        "unknown key column",
        edit(("key: [car]", "key: [cat]")),
        NetworkError,
        ("key uses an unknown column", f"{FILE} line 6, streams.reports.key", "did you mean 'car'?"),
    ),
    Case(
        "join key missing on a side",
        edit(("car: bigint, toll", "vehicle: bigint, toll")),
        NetworkError,
        ("the right key uses an unknown column", f"{FILE} line 12, operators.paid.on", "'car'", "ts, vehicle, toll"),
    ),
    Case(
        "column on both sides of a join",
        edit(("toll: double", "lane: int")),
        NetworkError,
        ("both sides of a join have a column 'lane'", f"{FILE} line 12, operators.paid", "rename one of them"),
    ),
    Case(
        "union of different columns",
        edit(("lanes.slow, lanes.fast", "lanes.slow, lanes.fast, tolls")),
        NetworkError,
        ("the inputs of a union have different columns", "line 14, operators.both.inputs", "tolls: ts, car, toll"),
    ),
    Case(
        "window without a time column",
        edit(("    time: ts\n    key", "    key")),
        NetworkError,
        ("a window needs a time column", f"{FILE} line 11, operators.paid", "the left input 'stopped' has none"),
    ),
    Case(
        "slide longer than the window",
        edit(("slide_s: 10", "slide_s: 90")),
        NetworkError,
        ("the slide does not fit the window", f"{FILE} line 19, operators.mean.slide_s", "window_s (60)"),
    ),
    Case(
        "empty window",
        edit(("window_s: 60", "window_s: 0")),
        NetworkError,
        ("the window is empty", f"{FILE} line 18, operators.mean.window_s"),
    ),
    Case(
        "predicate that does not parse",
        edit(("where: speed = 0", "where: speed = = 0")),
        NetworkError,
        ("not a Spark SQL expression", f"{FILE} line 11, operators.stopped.where", "'speed = = 0'"),
    ),
    Case(
        "statement for a predicate",
        edit(("where: speed = 0", "where: select speed from reports")),
        NetworkError,
        ("not a Spark SQL expression", f"{FILE} line 11", "it reads as select"),
    ),
    Case(
        "unknown aggregate function",
        edit(("avg(speed)", "mean(speed)")),
        NetworkError,
        ("unknown aggregate function", f"{FILE} line 21, operators.mean.aggregates.speed", "mean(speed)", "count, sum"),
    ),
    Case(
        "expression for an aggregate",
        edit(("avg(speed)", "avg(speed * 2)")),
        NetworkError,
        ("not an aggregate", f"{FILE} line 21, operators.mean.aggregates.speed", "with a map first"),
    ),
    Case(
        "average of nothing",
        edit(("avg(speed)", "avg()")),
        NetworkError,
        ("avg needs a column", f"{FILE} line 21, operators.mean.aggregates.speed"),
    ),
    Case(
        "group column twice",
        edit(("group_by: [lane]", "group_by: [lane, lane]")),
        NetworkError,
        ("the column 'lane' is there twice", f"{FILE} line 20, operators.mean.group_by"),
    ),
    # --- quality of service
    Case(
        "loss graph that is not concave",
        edit((SPEEDS_LOSS, "[[0, 0], [0.5, 0.2], [1, 1]]")),
        InvalidValueError,
        ("a loss graph must be concave", f"{FILE} line 38, outputs.speeds.qos.loss", "slopes 0.4, 1.6"),
    ),
    Case(
        "loss graph in per cent",
        edit((SPEEDS_LOSS, "[[0, 0], [50, 0.7], [100, 1]]")),
        InvalidValueError,
        ("must cover all delivered fractions", f"{FILE} line 38, outputs.speeds.qos.loss", "fractions, not per cent"),
    ),
    Case(
        "loss graph that falls",
        edit((SPEEDS_LOSS, "[[0, 1], [1, 0]]")),
        InvalidValueError,
        ("a loss graph must not fall", f"{FILE} line 38, outputs.speeds.qos.loss"),
    ),
    Case(
        "latency graph that rises",
        edit(("[[0, 1], [2, 1], [10, 0]]", "[[0, 0], [2, 1]]")),
        InvalidValueError,
        ("a latency graph must not rise", f"{FILE} line 33, outputs.accidents.qos.latency"),
    ),
    Case(
        "point with one number",
        edit((SPEEDS_LOSS, "[[0, 0], [0.5], [1, 1]]")),
        InvalidValueError,
        ("not a point", f"{FILE} line 38, outputs.speeds.qos.loss", "[0.5]", "2 finite numbers"),
    ),
    Case(
        "value graph from right to left",
        edit((ACCIDENTS_VALUE, "points: [[100, 1], [0, 0.1]]")),
        InvalidValueError,
        ("the points of a value graph must go from left to right", f"{FILE} line 34, outputs.accidents.qos.value"),
    ),
    Case(
        "value graph with three numbers in a point",
        edit((ACCIDENTS_VALUE, "points: [[0, 1, 5], [100, 0.1]]")),
        InvalidValueError,
        ("not a point", f"{FILE} line 34, outputs.accidents.qos.value", "[0.0, 1.0, 5.0]"),
    ),
    Case(
        "weight of zero",
        edit(("weight: 2", "weight: 0")),
        InvalidValueError,
        ("a weight must be positive", f"{FILE} line 32, outputs.accidents.qos.weight"),
    ),
    Case(
        "least share beyond all",
        edit(("weight: 2", "least_share: 2")),
        InvalidValueError,
        ("not a share", f"{FILE} line 32, outputs.accidents.qos.least_share", "2.0", "from 0 to 1"),
    ),
    # --- statistics and load
    Case(
        "negative cost",
        edit(("mean: 2.0e-6", "mean: -2.0e-6")),
        InvalidValueError,
        ("a cost is negative", f"{FILE} line 40, statistics.costs.mean", "-2e-06"),
    ),
    Case(
        "cost of an unknown operator",
        edit(("mean: 2.0e-6", "men: 2.0e-6")),
        UnknownNameError,
        ("a cost for an operator that does not exist", "line 40, statistics.costs.men", "did you mean 'mean'?"),
    ),
    Case(
        "selectivity out of range",
        edit(("stopped: 0.01", "stopped: 1.5")),
        InvalidValueError,
        ("a selectivity is out of range", f"{FILE} line 41, statistics.selectivities.stopped", "1.5", "<= 1"),
    ),
    Case(
        "selectivity of a whole split",
        edit(("lanes.slow: 0.3", "lanes: 0.3")),
        UnknownNameError,
        ("a selectivity for an operator or branch that does not exist", "line 41, statistics.selectivities.lanes"),
    ),
    Case(
        "histogram out of order",
        edit(("[[0, 0, 1], [0, 100, 99]]", "[[0, 100, 99], [0, 0, 1]]")),
        InvalidValueError,
        ("histogram ranges overlap", f"{FILE} line 44, statistics.histograms.reports.speed"),
    ),
    Case(
        "histogram of an unknown column",
        edit(("      speed: [[0, 0, 1]", "      sped: [[0, 0, 1]")),
        UnknownNameError,
        ("a histogram for a column", f"{FILE} line 44, statistics.histograms.reports.sped", "did you mean 'speed'?"),
    ),
    Case(
        "rate of an unknown stream",
        edit(("tolls: 10}", "tolls: 10, toll: 10}")),
        UnknownNameError,
        ("a rate for a stream that does not exist", f"{FILE} line 45, rates.toll", "did you mean 'tolls'?"),
    ),
    Case(
        "negative rate",
        edit(("tolls: 10}", "tolls: -10}")),
        InvalidValueError,
        ("a rate is out of range", f"{FILE} line 45, rates.tolls", "-10"),
    ),
    Case(
        "stream without a rate",
        edit((", tolls: 10}", "}")),
        InvalidValueError,
        ("a stream needs a rate", f"{FILE} line 45, rates"),
    ),
    Case(
        "no capacity at all",
        edit(("capacity: 1.0", "capacity: 0")),
        InvalidValueError,
        ("the capacity must be positive", f"{FILE} line 46, capacity"),
    ),
]


def refused(case: Case) -> StreamshedError:
    with pytest.raises(StreamshedError) as caught:
        parse_spec(case.text, FILE)
    return caught.value


def test_the_sound_spec_is_sound() -> None:
    assert len(parse_spec(SOUND, FILE).network.nodes) == 10


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_malformed(case: Case) -> None:
    error = refused(case)
    assert type(error) is case.error
    for fragment in case.fragments:
        assert fragment in str(error)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message_has_all_its_parts(case: Case) -> None:
    error = refused(case)
    assert error.where is not None
    assert error.where.startswith(FILE)
    assert " line " in error.where
    assert error.expected is not None
    assert "pydantic" not in str(error)


def test_messages_are_distinct() -> None:
    messages = {str(refused(case)) for case in CASES if case.name != "only comments"}
    assert len(messages) == len(CASES) - 1


def test_the_first_of_several_mistakes_is_reported() -> None:
    text = edit(("window_s: 60", "window_s: a"), ("within_s: 30", "within_s: b"), ("keep: true", "keep: c"))
    with pytest.raises(SpecError, match=r"line 12, operators\.paid\.within_s"):
        parse_spec(text, FILE)


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(SpecError, match="too large"):
        parse_spec("\n".join(lines), FILE)
