"""Spec files: a network, what is known about it, and its load, as YAML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from streamshed.errors import InvalidValueError, SpecError, did_you_mean
from streamshed.network.document import Document, describe
from streamshed.network.network import Network
from streamshed.network.nodes import Output
from streamshed.network.placement import Placement, check_placements
from streamshed.network.spec_models import (
    OPERATOR_TYPES,
    GoalModel,
    GoalsModel,
    OutputModel,
    SpecModel,
    StatisticsModel,
)
from streamshed.network.statistics import Statistics, check_rates
from streamshed.qos import (
    Goal,
    Goals,
    Histogram,
    LatencyGraph,
    LossGraph,
    Measure,
    OverTime,
    PriorityWeights,
    Qos,
    SheddingBy,
    ValueGraph,
)

_WRONG_KIND = {
    "dict_type": ("not a mapping", "a mapping, key: value"),
    "model_type": ("not a mapping", "a mapping, key: value"),
    "list_type": ("not a list", "a list, [a, b]"),
}


@dataclass(frozen=True)
class Spec:
    """A network with what is known about it.

    Attributes:
        network: the structure.
        statistics: costs, selectivities, histograms.
        rates: tuples per second by stream; empty, or one for every stream.
        capacity: seconds of processing available per second (cores); None where it is to be measured.
        priorities: how much the classes of goals count for the runtime optimizer.
        nodes: which node runs which operators; empty where one runs all.
    """

    network: Network
    statistics: Statistics = field(default_factory=Statistics)
    rates: Mapping[str, float] = field(default_factory=dict)
    capacity: float | None = None
    priorities: PriorityWeights = field(default_factory=PriorityWeights)
    nodes: tuple[Placement, ...] = ()

    def __post_init__(self) -> None:
        self.statistics.check(self.network)
        if self.rates:
            check_rates(self.network, self.rates)
        if self.capacity is not None and not (math.isfinite(self.capacity) and self.capacity > 0):
            raise InvalidValueError(
                "the capacity must be positive",
                where="capacity",
                got=self.capacity,
                expected="seconds of processing per second, > 0",
                at=("capacity",),
            )
        if self.nodes:
            check_placements(self.network, self.nodes)


def load_spec(path: str | Path) -> Spec:
    """Read a spec file; every complaint names the file and the line."""
    file = Path(path)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        beside = [other.name for other in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
        raise SpecError(
            "the spec file does not exist",
            where=str(path),
            expected="a YAML file",
            hint=did_you_mean(file.name, beside) if beside else None,
        ) from None
    except IsADirectoryError:
        raise SpecError(
            "the spec file is a directory", where=str(path), got="a directory", expected="a YAML file"
        ) from None
    except OSError as error:
        raise SpecError("the spec file cannot be read", where=str(path), got=error.strerror) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(
            "the spec file is not UTF-8",
            where=f"{path} line {line}",
            got=f"byte 0x{content[error.start]:02x}",
            expected="text encoded as UTF-8",
        ) from None
    return parse_spec(text, str(path))


def parse_spec(text: str, name: str = "spec") -> Spec:
    """Read a spec from text; `name` stands for the file in messages.

    >>> spec = parse_spec('''
    ... name: example
    ... streams:
    ...   readings: {columns: {at: timestamp, value: double}, time: at}
    ... operators:
    ...   hot: {type: filter, input: readings, where: value > 30}
    ... outputs:
    ...   alarms: {input: hot}
    ... ''')
    >>> spec.network.operators
    (Filter(id='hot', input='readings', where='value > 30', stage=False),)
    """
    document = Document.parse(text, name)
    try:
        model = SpecModel.model_validate(document.data)
    except ValidationError as error:
        raise _first_refusal(document, error) from None
    with document.locating():
        network = Network(
            model.name,
            tuple(stream.build(id) for id, stream in model.streams.items()),
            tuple(operator.build(id) for id, operator in model.operators.items()),
            tuple(_output(id, output, document) for id, output in model.outputs.items()),
        )
        priorities = PriorityWeights(**model.priorities.model_dump()) if model.priorities else PriorityWeights()
        nodes = tuple(node.build(name) for name, node in model.nodes.items())
        statistics = _statistics(model.statistics, document)
        return Spec(network, statistics, model.rates, model.capacity, priorities, nodes)


def _output(id: str, model: OutputModel, document: Document) -> Output:
    sink = model.sink.build() if model.sink else None
    if model.qos is None:
        return Output(id, model.input, sink=sink)
    path = ("outputs", id, "qos")
    latency = loss = value = None
    if model.qos.latency is not None:
        with document.locating(*path, "latency"):
            latency = LatencyGraph.of(model.qos.latency)
    if model.qos.loss is not None:
        with document.locating(*path, "loss"):
            loss = LossGraph.of(model.qos.loss)
    if model.qos.value is not None:
        with document.locating(*path, "value"):
            value = ValueGraph.of(model.qos.value.column, model.qos.value.points, model.qos.value.chunks)
    goals = _goals(model.qos.goals, document, path) if model.qos.goals is not None else None
    with document.locating(*path, "weight"):
        qos = Qos(latency, loss, value, model.qos.weight, goals)
    with document.locating(*path, "least_share"):
        return Output(id, model.input, replace(qos, least_share=model.qos.least_share), sink)


def _goals(model: GoalsModel, document: Document, path: tuple[str, ...]) -> Goals:
    measures: dict[Measure, Goal] = {}
    for measure in Measure:
        goal: GoalModel | None = getattr(model, measure.value)
        if goal is not None:
            with document.locating(*path, "goals", measure.value):
                measures[measure] = Goal(OverTime.of(goal.points), goal.priority)
    shed_by = SheddingBy(model.shed_by.column, model.shed_by.first) if model.shed_by else None
    with document.locating(*path, "goals", "mtre"):
        return Goals(measures, model.mtre, shed_by)


def _statistics(model: StatisticsModel, document: Document) -> Statistics:
    histograms: dict[str, dict[str, Histogram]] = {}
    for stream_id, columns in model.histograms.items():
        histograms[stream_id] = {}
        for column, bins in columns.items():
            with document.locating("statistics", "histograms", stream_id, column):
                histograms[stream_id][column] = Histogram.of(bins)
    return Statistics(model.costs, model.selectivities, histograms, model.drop_cost)


def _first_refusal(document: Document, error: ValidationError) -> SpecError:
    """The complaint that stands first in the file."""
    found: list[tuple[int, SpecError]] = []
    for detail in error.errors(include_url=False):
        path = list(detail["loc"])
        if path[:1] == ["operators"] and len(path) > 2:
            del path[2]  # pydantic's tag of the operator type, which is no key of the file
        if detail["type"].startswith("union_tag"):
            path.append("type")
        context: dict[str, Any] = detail.get("ctx", {})
        if context.get("key") is not None:
            path.append(context["key"])
        line, shown = document.position(path)
        refusal = _refusal(detail["type"], detail["input"], context, shown, detail["msg"])
        refusal.where = document.where(path)
        found.append((line, refusal))
    return min(found, key=lambda pair: pair[0])[1]


def _refusal(kind: str, value: Any, context: dict[str, Any], shown: str, message: str) -> SpecError:
    name = shown or "the spec"
    if kind.startswith("union_tag"):
        if not isinstance(value, dict):
            kind = "model_type"
        elif "type" not in value:
            return SpecError(
                "missing key 'type'", got=", ".join(value) or "none", expected=f"one of {', '.join(OPERATOR_TYPES)}"
            )
        else:
            given = describe(value["type"])
            return SpecError(
                "unknown operator type",
                got=given,
                expected=f"one of {', '.join(OPERATOR_TYPES)}",
                hint=did_you_mean(given, OPERATOR_TYPES),
            )
    if kind in _WRONG_KIND:
        what, expected = _WRONG_KIND[kind]
        return SpecError(f"{name} is {what}", got=describe(value), expected=expected)
    what = context.get("what", message)
    if what.startswith(("not ", "neither ")):
        what = f"{name} is {what}"
    return SpecError(what, got=context.get("got"), expected=context.get("expected"), hint=context.get("hint"))
