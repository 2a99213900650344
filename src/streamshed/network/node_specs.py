"""A node's part of a network as a spec of its own, which an application of its own can run.

What the node reads from other nodes becomes a stream of the part, and what others read from it becomes an output, both
with a connector of the format `arc`: a durable arc that one application writes and another one reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from streamshed.errors import NetworkError, UnknownNameError, did_you_mean
from streamshed.network.network import Network
from streamshed.network.nodes import Aggregate, Connector, Filter, Join, Map, Operator, Output, Split, Stream, Union
from streamshed.network.placement import Part, cut
from streamshed.network.spec import Spec
from streamshed.network.stages import lateness_s
from streamshed.network.statistics import Statistics, selectivity_ends

ARC = "arc"
"""The format of streams and outputs that are durable arcs between nodes; the option `name` says which."""

_UNKNOWN_TYPE = "string"
"""Of a column whose type only Spark knows. Nothing goes by it: an arc is read with the types it was written with."""


@dataclass(frozen=True)
class NodeSpec:
    """What one node runs.

    Attributes:
        name: the node's name.
        number: counts the nodes, upstream first.
        spec: its part of the network.
        writes: the arcs that it writes: by output of the part, the arc's name.
        reads: the arcs that it reads: by stream of the part, the arc's name.
        inputs: by stream of the part, what the node's feasible input table calls it.
        places: by the arc of the whole network where tuples leave for another node, the arc of the part.
        parents: the nodes that send to it.
        children: the nodes that it sends to.
        position: how many nodes a tuple has come through at most when it leaves this one, itself included.
        length: how many nodes there are on the longest way through this one.
    """

    name: str
    number: int
    spec: Spec
    writes: Mapping[str, str]
    reads: Mapping[str, str]
    inputs: Mapping[str, str]
    places: Mapping[str, str]
    parents: tuple[str, ...]
    children: tuple[str, ...]
    position: int
    length: int

    def own_target_s(self, target_s: float) -> float:
        """Its share of the time that a tuple may take through all nodes."""
        return target_s / self.length

    def due_s(self, target_s: float) -> float:
        """How long after its arrival a tuple should have left this node."""
        return target_s * self.position / self.length


def arc_name(reference: str, reader: str) -> str:
    """What the arc is called on which a node reads an operator, or `split.branch`, of another one.

    A hyphen in a name is doubled: no two arcs are called the same.

    >>> arc_name("parsed", "core"), arc_name("parsed-hot", "core"), arc_name("parsed", "hot-core")
    ('parsed-core', 'parsed--hot-core', 'parsed-hot--core')
    """
    return "-".join(name.replace("-", "--") for name in (reference, reader))


def node_specs(spec: Spec) -> dict[str, NodeSpec]:
    """The parts of a spec by node, each after those that send to it.

    What several nodes read is written for each of them: they may want different shares of it.
    """
    if not spec.nodes:
        raise NetworkError(
            "the network is not cut into nodes", where="nodes", got="none", expected="nodes with their operators",
            hint="name nodes under `nodes:`, or run it as a whole", at=("nodes",),
        )  # fmt: skip
    parts = cut(spec.network, spec.nodes)
    home = {operator: part.name for part in parts for operator in part.operators}
    parents = {
        part.name: tuple(dict.fromkeys(home[reference.partition(".")[0]] for reference in part.receives))
        for part in parts
    }
    children = {part.name: tuple(other.name for other in parts if part.name in parents[other.name]) for part in parts}
    before = _depths(parents)
    after = _depths(children)
    cutter = _Parts(spec, parts)
    return {
        part.name: replace(
            cutter.of(part, number),
            parents=parents[part.name],
            children=children[part.name],
            position=before[part.name],
            length=before[part.name] + after[part.name] - 1,
        )
        for number, part in enumerate(parts)
    }


def node_spec(spec: Spec, name: str) -> NodeSpec:
    """The part of one node."""
    found = node_specs(spec)
    if name not in found:
        raise UnknownNameError(
            f"there is no node {name!r}", where="nodes", got=name, expected="a node of the spec",
            hint=did_you_mean(name, found),
        )  # fmt: skip
    return found[name]


def _depths(reads: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """How many nodes there are on the longest way to each, itself included."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(reads).static_order():
        depth[name] = 1 + max((depth[before] for before in reads[name]), default=0)
    return depth


class _Parts:
    """Cuts one spec."""

    def __init__(self, spec: Spec, parts: tuple[Part, ...]) -> None:
        self._spec = spec
        self._network = spec.network
        self._parts = parts
        self._rates = _rates(spec)

    def of(self, part: Part, number: int) -> NodeSpec:
        taken = set(self._network.nodes)
        streams = [stream for stream in self._network.streams if stream.id in part.streams]
        inputs = {stream.id: f"{part.name}/{stream.id}" for stream in streams}
        reads: dict[str, str] = {}
        renamed: dict[str, str] = {}
        for reference in part.receives:
            stream_id = reference if "." not in reference else _new_id(reference.replace(".", "_"), taken)
            renamed[reference] = stream_id
            reads[stream_id] = arc_name(reference, part.name)
            inputs[stream_id] = f"{part.name}/{reference}"
            streams.append(self._stream(stream_id, reference, reads[stream_id]))
        operators = tuple(
            _reading(operator, renamed) for operator in self._network.operators if operator.id in part.operators
        )
        outputs = [output for output in self._network.outputs if output.id in part.outputs]
        writes: dict[str, str] = {}
        places: dict[str, str] = {}
        for reader in self._parts:
            for reference in reader.receives:
                source, _, branch = reference.partition(".")
                if source not in part.operators:
                    continue
                output_id = _new_id(f"{reference.replace('.', '_')}_to_{reader.name}", taken)
                writes[output_id] = arc_name(reference, reader.name)
                outputs.append(Output(output_id, reference, sink=Connector(ARC, {"name": writes[output_id]})))
                places |= {
                    arc.id: f"{reference}->{output_id}"
                    for arc in self._network.arcs_out_of[source]
                    if arc.target in reader.operators and (arc.branch or "") == branch
                }
        network = Network(f"{self._network.name} at {part.name}", tuple(streams), operators, tuple(outputs))
        rates = {stream_id: self._rates[inputs[stream_id].partition("/")[2]] for stream_id in inputs}
        capacity = next(node.capacity for node in self._spec.nodes if node.name == part.name)
        sub = Spec(network, self._statistics(network), rates if self._spec.rates else {}, capacity)
        return NodeSpec(part.name, number, sub, writes, reads, inputs, places, (), (), 1, 1)

    def _stream(self, stream_id: str, reference: str, arc: str) -> Stream:
        source = reference.partition(".")[0]
        schema, key = self._network.schemas[source], self._key(source)
        return Stream(
            stream_id,
            {name: kind or _UNKNOWN_TYPE for name, kind in schema.columns.items()},
            schema.time,
            key if set(key) <= set(schema.columns) else (),
            lateness_s(self._network, source),
            Connector(ARC, {"name": arc}),
        )

    def _key(self, node_id: str) -> tuple[str, ...]:
        """The key of the first stream upstream."""
        node = self._network.nodes[node_id]
        while not isinstance(node, Stream):
            node = self._network.nodes[self._network.arcs_into[node.id][0].source]
        return node.key

    def _statistics(self, network: Network) -> Statistics:
        known = self._spec.statistics
        operators = {operator.id for operator in network.operators}
        ends = set(selectivity_ends(network))
        streams = {stream.id for stream in network.streams}
        return Statistics(
            {name: cost for name, cost in known.costs.items() if name in operators},
            {end: share for end, share in known.selectivities.items() if end in ends},
            {name: columns for name, columns in known.histograms.items() if name in streams},
            known.drop_cost,
            known.believed & operators,
        )


def _rates(spec: Spec) -> dict[str, float]:
    """Tuples per second of everything that can be read, without drops: streams, operators and branches of splits."""
    network, rates = spec.network, spec.rates
    found: dict[str, float] = {stream.id: rates.get(stream.id, 0.0) for stream in network.streams}
    for node in network.nodes.values():
        if isinstance(node, Stream | Output):
            continue
        into = sum(found[reference] for reference in node.inputs)
        ends = [f"{node.id}.{branch}" for branch in node.branches] if isinstance(node, Split) else [node.id]
        found |= {end: into * spec.statistics.selectivity(end) for end in ends}
    return found


def _reading(operator: Operator, renamed: Mapping[str, str]) -> Operator:
    """The operator with other names for what it reads."""

    def name(reference: str) -> str:
        return renamed.get(reference, reference)

    match operator:
        case Union():
            return replace(operator, inputs=tuple(map(name, operator.inputs)))
        case Join():
            return replace(operator, left=name(operator.left), right=name(operator.right))
        case Filter() | Map() | Aggregate() | Split():
            return replace(operator, input=name(operator.input))


def _new_id(wanted: str, taken: set[str]) -> str:
    """An id that no node has, made of letters that ids may have."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in wanted)
    while plain in taken:
        plain += "_"
    taken.add(plain)
    return plain
