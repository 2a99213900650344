"""What makes a network sound: ids, references, no cycle, known columns, windows with time.

One pass over the nodes; each complaint names what, where, got, expected, and a hint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from streamshed.errors import NetworkError, did_you_mean
from streamshed.network.expressions import columns_used, renamed_column
from streamshed.network.nodes import (
    AGGREGATE_FUNCTIONS,
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    Filter,
    Join,
    Map,
    Node,
    Operator,
    Output,
    Split,
    Stream,
    Union,
)

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ID_RULE = "a letter or _, then letters, digits, _ or -"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*( [A-Za-z0-9_-]+)*")
_NAME_RULE = f"{_ID_RULE}; a space between words"


@dataclass(frozen=True)
class Schema:
    """What flows out of a node: columns with Spark types (None where only Spark can tell), and the time column."""

    columns: Mapping[str, str | None]
    time: str | None


@dataclass(frozen=True)
class Checked:
    """What validation found out on its way: an order in which every node follows its inputs, and all schemas."""

    order: tuple[str, ...]
    schemas: Mapping[str, Schema]


def validate(streams: Sequence[Stream], operators: Sequence[Operator], outputs: Sequence[Output]) -> Checked:
    """Check a network; raises `NetworkError` on the first thing that is wrong."""
    if not streams:
        raise NetworkError(
            "a network needs a stream", where="streams", got="none", expected="at least one", at=["streams"]
        )
    if not outputs:
        raise NetworkError(
            "a network needs an output", where="outputs", got="none", expected="at least one", at=["outputs"]
        )
    nodes: dict[str, Node] = {}
    for node in (*streams, *operators, *outputs):
        if not _ID.fullmatch(node.id):
            raise _fault(node, "not a valid id", got=repr(node.id), expected=_ID_RULE)
        if node.id in nodes:
            raise _fault(
                node,
                f"the id {node.id!r} is used twice",
                got=f"also {locate(nodes[node.id])}",
                expected="one id per stream, operator and output",
            )
        nodes[node.id] = node
    _check_references(nodes)
    order = _topological_order(nodes)
    _check_dangling(nodes)
    schemas: dict[str, Schema] = {}
    for node_id in order:
        schemas[node_id] = _schema(nodes[node_id], schemas)
    return Checked(order, schemas)


def check_name(name: str, where: str, at: Sequence[str], *, words: bool = True) -> None:
    """Raise unless a name is made of what ids are made of; `words` allows single spaces, too.

    Directories are called after networks and nodes: a name must not lead anywhere.
    """
    if not (_NAME if words else _ID).fullmatch(name):
        plain = re.sub(r"^[^A-Za-z_]+", "", re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-"))
        raise NetworkError(
            "not a valid name",
            where=where,
            got=repr(name) if name else "nothing",
            expected=_NAME_RULE if words else _ID_RULE,
            hint=f"for example {plain!r}" if plain else None,
            at=at,
        )


def locate(node: Node) -> str:
    """How messages name a node."""
    kind = type(node).__name__.lower()
    return f"{kind} {node.id!r}" if isinstance(node, Stream | Output) else f"operator {node.id!r} ({kind})"


def _fault(
    node: Node, what: str, *keys: str, got: object = None, expected: object = None, hint: str | None = None
) -> NetworkError:
    """An error about a node, and about one of its keys where given."""
    return NetworkError(what, where=locate(node), got=got, expected=expected, hint=hint, at=_path(node, *keys))


def _path(node: Node, *keys: str) -> tuple[str, ...]:
    section = "streams" if isinstance(node, Stream) else "outputs" if isinstance(node, Output) else "operators"
    return (section, node.id, *keys)


def _input_keys(node: Node) -> tuple[str, ...]:
    """The key under which each input of a node is written."""
    match node:
        case Join():
            return ("left", "right")
        case Union():
            return ("inputs",) * len(node.inputs)
        case _:
            return ("input",) * len(node.inputs)


def _check_references(nodes: Mapping[str, Node]) -> None:
    for node in nodes.values():
        for key, reference in zip(_input_keys(node), node.inputs, strict=True):
            source_id, dot, branch = reference.partition(".")
            source = nodes.get(source_id)
            if source is None or isinstance(source, Output):
                what = "reads from an output" if source is not None else "reads from an unknown id"
                raise _fault(
                    node,
                    f"{locate(node)} {what}",
                    key,
                    got=repr(reference),
                    expected="the id of a stream or operator",
                    hint=did_you_mean(
                        source_id, (key for key, known in nodes.items() if not isinstance(known, Output))
                    ),
                )
            branches = source.branches if isinstance(source, Split) else {}
            if branch not in branches and (dot or branches):
                raise _fault(
                    node,
                    f"{locate(node)} reads a branch that does not exist",
                    key,
                    got=repr(reference),
                    expected=f"one of {', '.join(f'{source_id}.{name}' for name in branches)}"
                    if branches
                    else f"{source_id!r}: only a split has branches",
                    hint=did_you_mean(branch, branches) if branch and branches else None,
                )


def _topological_order(nodes: Mapping[str, Node]) -> tuple[str, ...]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    for node in nodes.values():
        graph.add_edges_from((reference.partition(".")[0], node.id) for reference in node.inputs)
    try:
        return tuple(nx.topological_sort(graph))
    except nx.NetworkXUnfeasible:
        loop = [edge[0] for edge in nx.find_cycle(graph)]
        raise _fault(
            nodes[loop[0]],
            "the network has a cycle",
            got=" -> ".join([*loop, loop[0]]),
            expected="tuples that flow one way, from streams to outputs",
        ) from None


def _check_dangling(nodes: Mapping[str, Node]) -> None:
    read = {reference for node in nodes.values() for reference in node.inputs}
    for node in nodes.values():
        if isinstance(node, Output):
            continue
        ends: dict[str, tuple[str, ...]] = (
            {f"{node.id}.{name}": ("branches", name) for name in node.branches}
            if isinstance(node, Split)
            else {node.id: ()}
        )
        for end, keys in ends.items():
            if end not in read:
                raise _fault(
                    node,
                    f"nothing reads {end!r}",
                    *keys,
                    got="a dangling arc",
                    expected="every stream, operator and branch to lead to an output",
                    hint="add an output for it or take it out",
                )


def _schema(node: Node, schemas: Mapping[str, Schema]) -> Schema:
    """The columns a node hands on, after a check of those that it uses."""
    inputs = [schemas[reference.partition(".")[0]] for reference in node.inputs]
    match node:
        case Stream():
            return _stream_schema(node)
        case Output():
            if node.qos.value is not None:
                _require_column(node, node.qos.value.column, inputs[0], "the value graph", "qos", "value", "column")
            return inputs[0]
        case Filter():
            _require_columns(node, node.where, inputs[0], "the predicate", "where")
            return inputs[0]
        case Split():
            if not node.branches:
                raise _fault(node, "a split needs a branch", "branches", got="none", expected="at least one")
            for name, predicate in node.branches.items():
                if not _ID.fullmatch(name):
                    raise _fault(node, "not a valid branch name", "branches", name, got=repr(name), expected=_ID_RULE)
                _require_columns(node, predicate, inputs[0], f"branch {name!r}", "branches", name)
            return inputs[0]
        case Map():
            return _map_schema(node, inputs[0])
        case Union():
            return _union_schema(node, inputs)
        case Join():
            return _join_schema(node, *inputs)
        case Aggregate():
            return _aggregate_schema(node, inputs[0])


def _stream_schema(stream: Stream) -> Schema:
    if not stream.columns:
        raise _fault(stream, "a stream needs columns", "columns", got="none", expected="name: type")
    schema = Schema(dict(stream.columns), stream.time)
    if stream.time is not None:
        _require_column(stream, stream.time, schema, "time", "time")
    for column in stream.key:
        _require_column(stream, column, schema, "key", "key")
    if not (math.isfinite(stream.lateness_s) and stream.lateness_s >= 0):
        raise _fault(stream, "lateness is negative", "lateness_s", got=stream.lateness_s, expected="seconds >= 0")
    return schema


def _map_schema(node: Map, schema: Schema) -> Schema:
    if not node.select:
        raise _fault(node, "a map needs a column", "select", got="none", expected="name: expression")
    columns: dict[str, str | None] = dict(schema.columns) if node.keep else {}
    time = schema.time if node.keep and schema.time not in node.select else None
    for name, expression in node.select.items():
        _require_columns(node, expression, schema, f"column {name!r}", "select", name)
        same = renamed_column(expression, locate(node))
        columns[name] = schema.columns[same] if same is not None else None
        if time is None and schema.time is not None and same == schema.time:
            time = name
    return Schema(columns, time)


def _union_schema(node: Union, inputs: Sequence[Schema]) -> Schema:
    if len(inputs) < 2:
        raise _fault(node, "a union needs two inputs", "inputs", got=len(inputs), expected="2 or more")
    if len(set(node.inputs)) < len(node.inputs):
        raise _fault(
            node, "a union reads the same input twice", "inputs", got=list(node.inputs), expected="distinct inputs"
        )
    first = inputs[0]
    for reference, schema in zip(node.inputs[1:], inputs[1:], strict=True):
        if list(schema.columns) != list(first.columns):
            raise _fault(
                node,
                "the inputs of a union have different columns",
                "inputs",
                got=f"{reference}: {', '.join(schema.columns)}",
                expected=f"{node.inputs[0]}: {', '.join(first.columns)}",
                hint="bring them to the same columns, in the same order, with a map",
            )
    return Schema(first.columns, first.time if all(schema.time == first.time for schema in inputs) else None)


def _join_schema(node: Join, left: Schema, right: Schema) -> Schema:
    if not node.on:
        raise _fault(node, "a join needs key columns", "on", got="none", expected="at least one in `on`")
    for side, reference, schema in (("left", node.left, left), ("right", node.right, right)):
        for column in node.on:
            _require_column(node, column, schema, f"the {side} key", "on")
        _require_time(node, schema, f"the {side} input {reference!r}")
    if not (math.isfinite(node.within_s) and node.within_s > 0):
        raise _fault(node, "the window of a join is empty", "within_s", got=node.within_s, expected="within_s > 0")
    columns = dict(left.columns)
    for name, kind in right.columns.items():
        if name in node.on or name == right.time == left.time:
            continue
        if name in columns:
            raise _fault(
                node,
                f"both sides of a join have a column {name!r}",
                got=name,
                expected="different names, except for keys and time",
                hint="rename one of them with a map before the join",
            )
        columns[name] = kind
    return Schema(columns, left.time)


def _aggregate_schema(node: Aggregate, schema: Schema) -> Schema:
    _require_time(node, schema, f"the input {node.input!r}")
    if not (math.isfinite(node.window_s) and node.window_s > 0):
        raise _fault(node, "the window is empty", "window_s", got=node.window_s, expected="window_s > 0")
    if node.slide_s is not None and not 0 < node.slide_s <= node.window_s:
        raise _fault(
            node,
            "the slide does not fit the window",
            "slide_s",
            got=node.slide_s,
            expected=f"0 < slide_s <= window_s ({node.window_s:g})",
        )
    if not node.aggregates:
        raise _fault(node, "an aggregate needs a function", "aggregates", got="none", expected="name: avg(column)")
    columns: dict[str, str | None] = {WINDOW_START: "timestamp", WINDOW_END: "timestamp"}
    for column in node.group_by:
        _require_column(node, column, schema, "group_by", "group_by")
        _require_new(node, column, columns, "group_by")
        columns[column] = schema.columns[column]
    for name, aggregation in node.aggregates.items():
        keys = ("aggregates", name)
        if aggregation.function not in AGGREGATE_FUNCTIONS:
            raise _fault(
                node,
                "unknown aggregate function",
                *keys,
                got=str(aggregation),
                expected=", ".join(AGGREGATE_FUNCTIONS),
                hint=did_you_mean(aggregation.function, AGGREGATE_FUNCTIONS),
            )
        if aggregation.column is not None:
            _require_column(node, aggregation.column, schema, f"aggregate {name!r}", *keys)
        elif aggregation.function != "count":
            raise _fault(
                node,
                f"{aggregation.function} needs a column",
                *keys,
                got=str(aggregation),
                expected=f"{aggregation.function}(column)",
            )
        _require_new(node, name, columns, *keys)
        columns[name] = "bigint" if aggregation.function == "count" else None
    return Schema(columns, WINDOW_END)


def _require_columns(node: Node, sql: str, schema: Schema, what: str, *keys: str) -> None:
    try:
        columns = columns_used(sql, locate(node))
    except NetworkError as error:
        error.at = _path(node, *keys)
        raise
    for column in columns:
        _require_column(node, column, schema, what, *keys)


def _require_column(node: Node, column: str, schema: Schema, what: str, *keys: str) -> None:
    if column not in schema.columns:
        raise _fault(
            node,
            f"{what} uses an unknown column",
            *keys,
            got=repr(column),
            expected=f"one of {', '.join(schema.columns)}",
            hint=did_you_mean(column, schema.columns),
        )


def _require_new(node: Node, column: str, columns: Mapping[str, str | None], *keys: str) -> None:
    if column in columns:
        raise _fault(node, f"the column {column!r} is there twice", *keys, got=column, expected="a name of its own")


def _require_time(node: Node, schema: Schema, what: str) -> None:
    if schema.time is None:
        raise _fault(
            node,
            "a window needs a time column",
            got=f"{what} has none",
            expected="`time:` on the stream, kept by every map on the way",
        )
