"""The shape of a spec file: which keys there are, and what may stand behind them.

Sense (do the ids exist, is there a cycle, do the columns match) is checked by the network itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Tag, model_validator
from pydantic_core import PydanticCustomError

from streamshed.errors import did_you_mean
from streamshed.network.builder import parse_aggregation
from streamshed.network.document import describe, is_null
from streamshed.network.nodes import Aggregate, Connector, Filter, Join, Map, Operator, Split, Stream, Union
from streamshed.network.placement import Placement
from streamshed.qos import DropOrder, Priority, PriorityWeights
from streamshed.qos.value import DEFAULT_CHUNKS

Choice = TypeVar("Choice", bound=Enum)

# YAML 1.1 takes 1e-6 for text, since it has no dot; here it is a number.
_NUMBER = re.compile(r"[-+]?(\d+(_\d+)*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_NOT_FINITE = re.compile(r"[-+]?\.?(inf|nan)", re.IGNORECASE)


def refusal(
    what: str, *, got: str, expected: str, hint: str | None = None, key: str | None = None
) -> PydanticCustomError:
    """What a validator raises; the context becomes a `SpecError` with a line. `key` is the key at fault, if any."""
    context = {"what": what, "got": got, "expected": expected, "hint": hint, "key": key}
    return PydanticCustomError("refusal", "{what}", context)


def _text(value: object) -> str:
    if isinstance(value, yaml.ScalarNode) and not is_null(value):
        return str(value.value)
    raise refusal("not a text", got=describe(value), expected="text")


def _number(value: object) -> float:
    text = value.value if isinstance(value, yaml.ScalarNode) else ""
    quoted = isinstance(value, yaml.ScalarNode) and value.style is not None
    if quoted or not _NUMBER.fullmatch(text):
        what = "not a finite number" if _NOT_FINITE.fullmatch(text) else "not a number"
        hint = "take the quotes off" if quoted and _NUMBER.fullmatch(text) else None
        raise refusal(what, got=describe(value), expected="a number", hint=hint)
    number = float(text)
    if not math.isfinite(number):
        raise refusal("not a finite number", got=describe(value), expected="a number")
    return number


def _whole(value: object) -> int:
    number = _number(value)
    if not number.is_integer():
        raise refusal("not a whole number", got=describe(value), expected="a whole number")
    return int(number)


def _flag(value: object) -> bool:
    text = value.value.lower() if isinstance(value, yaml.ScalarNode) and value.style is None else ""
    if text not in ("true", "false"):
        raise refusal("neither true nor false", got=describe(value), expected="true or false")
    return bool(text == "true")


def _one_of(kind: type[Choice]) -> Callable[[object], Choice]:
    """Reads one of the values of an enumeration."""

    def read(value: object) -> Choice:
        text = value.value if isinstance(value, yaml.ScalarNode) else ""
        known = {str(member.value): member for member in kind}
        if text not in known:
            raise refusal(
                "not one of the choices",
                got=describe(value),
                expected=" or ".join(repr(name) for name in known),
                hint=did_you_mean(text, known) if text else None,
            )
        return known[text]

    return read


Text = Annotated[str, BeforeValidator(_text)]
Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_whole)]
Flag = Annotated[bool, BeforeValidator(_flag)]


class Model(BaseModel):
    """A mapping with fixed keys. A key with nothing behind it counts as left out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        fields = cls.model_fields
        for key in data:
            if key not in fields:
                raise refusal(
                    f"unsupported key {key!r}",
                    got=key,
                    expected=f"one of {', '.join(fields)}",
                    hint=did_you_mean(key, fields),
                    key=key,
                )
        given = {key: value for key, value in data.items() if not is_null(value)}
        for key, field in fields.items():
            if field.is_required() and key not in given:
                needed = ", ".join(name for name, other in fields.items() if other.is_required())
                raise refusal(f"missing key {key!r}", got=", ".join(given) or "none", expected=f"the keys {needed}")
        return given


class ConnectorModel(Model):
    """`{format: …, options: {…}}`."""

    format: Text
    options: dict[str, Text] = {}

    def build(self) -> Connector:
        return Connector(self.format, self.options)


class StreamModel(Model):
    """An entry of `streams`."""

    columns: dict[str, Text]
    time: Text | None = None
    key: list[Text] = []
    lateness_s: Number = 0.0
    source: ConnectorModel | None = None

    def build(self, id: str) -> Stream:
        source = self.source.build() if self.source else None
        return Stream(id, self.columns, self.time, tuple(self.key), self.lateness_s, source)


class OperatorModel(Model):
    """An entry of `operators`; its `type` chooses the class."""

    type: Text
    stage: Flag = False

    def build(self, id: str) -> Operator:
        raise NotImplementedError


class FilterModel(OperatorModel):
    """Keeps what satisfies a predicate."""

    input: Text
    where: Text

    def build(self, id: str) -> Operator:
        return Filter(id, self.input, self.where, self.stage)


class MapModel(OperatorModel):
    """Computes columns."""

    input: Text
    select: dict[str, Text]
    keep: Flag = False

    def build(self, id: str) -> Operator:
        return Map(id, self.input, self.select, self.keep, self.stage)


class UnionModel(OperatorModel):
    """Merges flows."""

    inputs: list[Text]

    def build(self, id: str) -> Operator:
        return Union(id, tuple(self.inputs), self.stage)


class JoinModel(OperatorModel):
    """Pairs flows."""

    left: Text
    right: Text
    on: list[Text]
    within_s: Number

    def build(self, id: str) -> Operator:
        return Join(id, self.left, self.right, tuple(self.on), self.within_s, self.stage)


class AggregateModel(OperatorModel):
    """Aggregates over windows and groups."""

    input: Text
    window_s: Number
    slide_s: Number | None = None
    group_by: list[Text] = []
    aggregates: dict[str, Text]

    def build(self, id: str) -> Operator:
        functions = {
            name: parse_aggregation(text, f"operator {id!r}", at=("operators", id, "aggregates", name))
            for name, text in self.aggregates.items()
        }
        return Aggregate(id, self.input, functions, self.window_s, self.slide_s, tuple(self.group_by), self.stage)


class SplitModel(OperatorModel):
    """Routes to branches."""

    input: Text
    branches: dict[str, Text]

    def build(self, id: str) -> Operator:
        return Split(id, self.input, self.branches, self.stage)


OPERATOR_TYPES = ("filter", "map", "union", "join", "aggregate", "split")


def _operator_type(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, Mapping) else None
    return kind.value if isinstance(kind, yaml.ScalarNode) and kind.value in OPERATOR_TYPES else None


AnyOperator = Annotated[
    Annotated[FilterModel, Tag("filter")]
    | Annotated[MapModel, Tag("map")]
    | Annotated[UnionModel, Tag("union")]
    | Annotated[JoinModel, Tag("join")]
    | Annotated[AggregateModel, Tag("aggregate")]
    | Annotated[SplitModel, Tag("split")],
    Discriminator(_operator_type),
]

Points = list[list[Number]]


class ValueModel(Model):
    """A value graph."""

    column: Text
    points: Points
    chunks: Whole = DEFAULT_CHUNKS


class GoalModel(Model):
    """What a measure is to be over the age of the query."""

    points: Points
    priority: Annotated[Priority, BeforeValidator(_one_of(Priority))] = Priority.BEST_EFFORT


class SheddingModel(Model):
    """By which values a semantic shedder sheds."""

    column: Text
    first: Annotated[DropOrder, BeforeValidator(_one_of(DropOrder))]


class GoalsModel(Model):
    """The goals of an output for the runtime optimizer."""

    latency_s: GoalModel | None = None
    memory_bytes: GoalModel | None = None
    throughput_tps: GoalModel | None = None
    mtre: Number = 0.0
    shed_by: SheddingModel | None = None


class QosModel(Model):
    """The quality of service of an output."""

    weight: Number = 1.0
    latency: Points | None = None
    loss: Points | None = None
    value: ValueModel | None = None
    goals: GoalsModel | None = None
    least_share: Number = 0.0


class OutputModel(Model):
    """An entry of `outputs`."""

    input: Text
    qos: QosModel | None = None
    sink: ConnectorModel | None = None


class StatisticsModel(Model):
    """The section `statistics`."""

    costs: dict[str, Number] = {}
    selectivities: dict[str, Number] = {}
    histograms: dict[str, dict[str, Points]] = {}
    drop_cost: Number = 0.0


class PrioritiesModel(Model):
    """The section `priorities`: the weights of the classes of goals."""

    must_satisfy: Number = PriorityWeights.must_satisfy
    best_effort: Number = PriorityWeights.best_effort
    dont_care: Number = PriorityWeights.dont_care


class NodeModel(Model):
    """An entry of `nodes`: what runs on one machine, or in one application."""

    operators: list[Text]
    capacity: Number = 1.0
    bandwidth_tps: Number | None = None

    def build(self, name: str) -> Placement:
        return Placement(name, tuple(self.operators), self.capacity, self.bandwidth_tps)


class SpecModel(Model):
    """A whole file."""

    name: Text
    streams: dict[str, StreamModel]
    operators: dict[str, AnyOperator] = {}
    outputs: dict[str, OutputModel]
    statistics: StatisticsModel = StatisticsModel()
    rates: dict[str, Number] = {}
    capacity: Number | None = None
    priorities: PrioritiesModel | None = None
    nodes: dict[str, NodeModel] = {}
