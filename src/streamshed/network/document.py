"""YAML documents that know the line of everything in them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from streamshed.errors import SpecError, StreamshedError

_MAX_NODES = 200_000
"""Aliases multiply: a few lines of YAML can stand for more nodes than there is memory."""

Path = Sequence[str | int]


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """PyYAML's, except that only true and false are booleans: in YAML 1.1 the key `on` of a join would be one."""
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = copy.deepcopy(yaml.SafeLoader.yaml_implicit_resolvers)
    for first, rules in resolvers.items():
        resolvers[first] = [rule for rule in rules if rule[0] != "tag:yaml.org,2002:bool"]
    boolean = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
    for first in "tTfF":
        resolvers.setdefault(first, []).append(("tag:yaml.org,2002:bool", boolean))
    return resolvers


class Loader(yaml.SafeLoader):
    """Reads plain data, with `on`, `off`, `yes` and `no` as text."""

    yaml_implicit_resolvers = _resolvers()


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` reads, every value in full."""

    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def is_null(value: object) -> bool:
    """Whether nothing is written where a value could be."""
    return isinstance(value, yaml.ScalarNode) and value.tag == "tag:yaml.org,2002:null"


def describe(value: object) -> str:
    """How messages show what was found."""
    if isinstance(value, yaml.ScalarNode):
        if is_null(value):
            return "nothing"
        return value.value if value.style is None else f"the text {value.value!r}"
    return "a list" if isinstance(value, list | yaml.SequenceNode) else "a mapping"


@dataclass(frozen=True)
class Document:
    """A parsed file.

    Attributes:
        name: the file, as messages name it.
        root: the tree with positions.
        data: the same as dicts with text keys, lists, and scalar nodes at the leaves. Scalars stay nodes because only
            the reader of a field knows whether `1` is a number there or an SQL expression.
    """

    name: str
    root: yaml.Node
    data: Any

    @classmethod
    def parse(cls, text: str, name: str) -> Document:
        """Read YAML; refuses what is no YAML, is empty, or says something twice."""
        loader: Loader | None = None
        try:
            loader = Loader(text)
            root = loader.get_single_node()
            if root is None:
                raise SpecError(
                    "the spec is empty", where=f"{name} line 1", got="nothing", expected="streams, operators, outputs"
                )
            return cls(name, root, _Reader(name).read(root, ()))
        except yaml.MarkedYAMLError as error:
            raise _syntax_error(error, name) from None
        except yaml.reader.ReaderError as error:
            raise SpecError(
                "a character that YAML does not allow",
                where=f"{name} line {text.count(chr(10), 0, error.position) + 1}",
                got=f"U+{ord(text[error.position]):04X}",
                expected="printable text",
            ) from None
        except RecursionError:
            line = loader.line + 1 if loader is not None else 1
            raise SpecError(
                "the spec is nested too deeply", where=f"{name} line {line}", expected="a handful of levels"
            ) from None

    def position(self, path: Path) -> tuple[int, str]:
        """The line of what a path leads to, or of the nearest thing around it that exists, and how to name it."""
        node, line, shown = self.root, self.root.start_mark.line, ""
        for step in path:
            if isinstance(node, yaml.MappingNode):
                entry = next(((key, value) for key, value in node.value if key.value == step), None)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line, entry[1]
                shown += f".{step}" if shown else str(step)
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line
                shown += f"[{step}]"
            else:
                break
        return line + 1, shown

    def where(self, path: Path) -> str:
        """File, line and name, as errors show them."""
        line, shown = self.position(path)
        return f"{self.name} line {line}{f', {shown}' if shown else ''}"

    @contextmanager
    def locating(self, *path: str) -> Iterator[None]:
        """Errors that come out of this block get file and line; the path counts where they do not bring their own."""
        try:
            yield
        except StreamshedError as error:
            error.at = error.at or path
            error.where = self.where(error.at)
            raise


class _Reader:
    """Turns nodes to data and refuses repeated keys, which PyYAML would settle silently in favour of the last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes = 0
        self._open: set[int] = set()

    def read(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        self._nodes += 1
        if id(node) in self._open:
            raise SpecError(
                "an alias leads to itself",
                where=self._where(node, path),
                got="a value that contains itself",
                expected="aliases of values that stand elsewhere",
            )
        if self._nodes > _MAX_NODES:
            raise SpecError(
                "the spec is too large",
                where=self._where(node, path),
                got=f"more than {_MAX_NODES} values",
                expected="fewer, aliases resolved",
            )
        if isinstance(node, yaml.ScalarNode):
            return node
        self._open.add(id(node))
        data: Any
        if isinstance(node, yaml.MappingNode):
            data = self._mapping(node, path)
        else:
            data = [self.read(item, path) for item in node.value]
        self._open.remove(id(node))
        return data

    def _mapping(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise SpecError(
                    "a key must be text", where=self._where(key, path), got=describe(key), expected="key: value"
                )
            if key.value in lines:
                raise SpecError(
                    f"the key {key.value!r} is there twice",
                    where=self._where(key, (*path, key.value)),
                    got=f"twice on line {line}" if lines[key.value] == line else f"lines {lines[key.value]} and {line}",
                    expected="every key once",
                    hint="rename one of them or take it out",
                )
            lines[key.value] = line
            data[key.value] = self.read(value, (*path, key.value))
        return data

    def _where(self, node: yaml.Node, path: tuple[str, ...]) -> str:
        return f"{self._name} line {node.start_mark.line + 1}{', ' + '.'.join(path) if path else ''}"


def _syntax_error(error: yaml.MarkedYAMLError, name: str) -> SpecError:
    mark = error.problem_mark or error.context_mark
    place = f" line {mark.line + 1} column {mark.column + 1}" if mark is not None else ""
    hint = error.context
    if hint is not None and error.problem_mark is not None and error.context_mark is not None:
        hint += f" that begins on line {error.context_mark.line + 1}"
    if "\\t" in (error.problem or ""):
        hint = "indent with spaces: YAML does not take tabs"
    return SpecError(
        "not valid YAML", where=f"{name}{place}", got=error.problem or error.context, expected="YAML", hint=hint
    )
