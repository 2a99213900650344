"""Writing specs: the text that reads back as the same spec, defaults left out, short things on one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import yaml

from streamshed.network.document import Dumper
from streamshed.network.nodes import Aggregate, Connector, Filter, Join, Map, Operator, Output, Split, Stream, Union
from streamshed.network.placement import Placement
from streamshed.network.spec import Spec
from streamshed.network.statistics import Statistics
from streamshed.qos import Goals, PriorityWeights, Qos, ValueGraph
from streamshed.qos.value import DEFAULT_CHUNKS

_LINE = 100
_EXACT_INTEGERS = 2.0**53


def dump_spec(spec: Spec) -> str:
    """A spec as YAML; `parse_spec` gives the same spec back.

    >>> from streamshed.network import NetworkBuilder
    >>> new = NetworkBuilder("example")
    >>> new.stream("readings", {"value": "double"}).filter("hot", "value > 30").output("alarms")
    >>> print(dump_spec(Spec(new.build(), rates={"readings": 1000.0})), end="")
    name: example
    streams:
      readings:
        columns: {value: double}
    operators:
      hot: {type: filter, input: readings, where: value > 30}
    outputs:
      alarms:
        input: hot
    rates: {readings: 1000}
    """
    network = spec.network
    data = {
        "name": network.name,
        "streams": {stream.id: _values(_stream(stream)) for stream in network.streams},
        "operators": {operator.id: _short(_operator(operator)) for operator in network.operators},
        "outputs": {output.id: _values(_output(output)) for output in network.outputs},
        "statistics": _values(_statistics(spec.statistics)),
        "rates": _short(_numbers(spec.rates)),
        "capacity": None if spec.capacity is None else _number(spec.capacity),
        "priorities": None if spec.priorities == PriorityWeights() else _short(_numbers(asdict(spec.priorities))),
        "nodes": {node.name: _short(_placement(node)) for node in spec.nodes},
    }
    return _yaml({key: value for key, value in data.items() if value not in (None, {})})


def _stream(stream: Stream) -> dict[str, Any]:
    return _given(
        columns=dict(stream.columns),
        time=stream.time,
        key=list(stream.key) or None,
        lateness_s=_number(stream.lateness_s) or None,
        source=_connector(stream.source),
    )


def _operator(operator: Operator) -> dict[str, Any]:
    data: dict[str, Any]
    match operator:
        case Filter():
            data = {"input": operator.input, "where": operator.where}
        case Map():
            data = _given(input=operator.input, select=dict(operator.select), keep=operator.keep or None)
        case Union():
            data = {"inputs": list(operator.inputs)}
        case Join():
            data = {
                "left": operator.left,
                "right": operator.right,
                "on": list(operator.on),
                "within_s": _number(operator.within_s),
            }
        case Aggregate():
            data = _given(
                input=operator.input,
                window_s=_number(operator.window_s),
                slide_s=None if operator.slide_s is None else _number(operator.slide_s),
                group_by=list(operator.group_by) or None,
                aggregates={name: str(aggregation) for name, aggregation in operator.aggregates.items()},
            )
        case Split():
            data = {"input": operator.input, "branches": dict(operator.branches)}
    return {"type": type(operator).__name__.lower(), **data, **_given(stage=operator.stage or None)}


def _output(output: Output) -> dict[str, Any]:
    return _given(input=output.input, qos=_qos(output.qos) or None, sink=_connector(output.sink))


def _qos(qos: Qos) -> dict[str, Any]:
    return _given(
        weight=None if qos.weight == 1 else _number(qos.weight),
        least_share=None if qos.least_share == 0 else _number(qos.least_share),
        latency=_points(qos.latency.graph.points) if qos.latency else None,
        loss=_points(qos.loss.graph.points) if qos.loss else None,
        value=_value(qos.value) if qos.value else None,
        goals=_goals(qos.goals) if qos.goals is not None else None,
    )


def _goals(goals: Goals) -> dict[str, Any]:
    data: dict[str, Any] = {
        measure.value: {"priority": goal.priority.value, "points": _points(goal.graph.points)}
        for measure, goal in goals.measures.items()
    }
    by = goals.shed_by
    shed_by = {"column": by.column, "first": by.first.value} if by is not None else None
    return {**data, **_given(mtre=_number(goals.mtre) or None, shed_by=shed_by)}


def _value(graph: ValueGraph) -> dict[str, Any]:
    chunks = None if graph.chunks == DEFAULT_CHUNKS else graph.chunks
    return _given(column=graph.column, points=_points(graph.points), chunks=chunks)


def _statistics(statistics: Statistics) -> dict[str, Any]:
    return _given(
        costs=_numbers(statistics.costs) or None,
        selectivities=_numbers(statistics.selectivities) or None,
        histograms={
            stream_id: {column: _points(histogram.bins) for column, histogram in columns.items()}
            for stream_id, columns in statistics.histograms.items()
        }
        or None,
        drop_cost=_number(statistics.drop_cost) or None,
    )


def _placement(node: Placement) -> dict[str, Any]:
    return _given(
        operators=list(node.operators),
        capacity=None if node.capacity == 1 else _number(node.capacity),
        bandwidth_tps=None if node.bandwidth_tps is None else _number(node.bandwidth_tps),
    )


def _connector(connector: Connector | None) -> dict[str, Any] | None:
    if connector is None:
        return None
    return _given(format=connector.format, options=dict(connector.options) or None)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _points(points: Iterable[Sequence[float]]) -> list[list[float]]:
    return [[_number(number) for number in point] for point in points]


def _numbers(values: Mapping[str, float]) -> dict[str, float]:
    return {key: _number(value) for key, value in values.items()}


def _number(value: float) -> float:
    """Whole numbers without a point."""
    return int(value) if value == int(value) and abs(value) < _EXACT_INTEGERS else float(value)


class _OneLine:
    """Data that is written in flow style."""

    def __init__(self, data: Any) -> None:
        self.data = data


def _represent_one_line(dumper: yaml.SafeDumper, value: _OneLine) -> yaml.Node:
    node = dumper.represent_data(value.data)
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, yaml.CollectionNode):
            part.flow_style = True
            pending.extend(x for item in part.value for x in (item if isinstance(item, tuple) else (item,)))
    return node


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Double quotes where single ones would be doubled (SQL is full of them), or would fold a line break."""
    double = ("'" in text and '"' not in text) or len(text.splitlines()) > 1 or text[-1:].isspace()
    style = '"' if double else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


Dumper.add_representer(_OneLine, _represent_one_line)
Dumper.add_representer(str, _represent_text)


def _short(data: Any) -> Any:
    """On one line if it fits, else piece by piece."""
    if not data or not isinstance(data, dict | list):
        return data
    if len(_yaml(_OneLine(data))) <= _LINE:
        return _OneLine(data)
    return _values(data) if isinstance(data, dict) else [_short(item) for item in data]


def _values(data: dict[str, Any]) -> dict[str, Any]:
    return {key: _short(value) for key, value in data.items()}


def _yaml(data: Any) -> str:
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=math.inf)
    return text
