"""Hypothesis strategies for random sound networks, with statistics and rates to go with them.

All streams have the columns ts, k and value, with values between 0 and 100, so that any flow can be filtered, joined
and judged by value. Every operator hands these three on, except aggregates, which stand right before outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from hypothesis import strategies as st

from streamshed.network import (
    Aggregate,
    Filter,
    Flow,
    Join,
    Network,
    NetworkBuilder,
    Spec,
    Split,
    Statistics,
)
from streamshed.qos import Histogram, LatencyGraph, LossGraph, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
VALUES = Histogram.uniform(0, 100)

fractions = st.integers(0, 16).map(lambda sixteenths: sixteenths / 16)
thresholds = st.integers(0, 100)


# --- quality of service -----------------------------------------------------------------------------------------------


@st.composite
def loss_graphs(draw: st.DrawFn) -> LossGraph:
    """Concave, from (0, 0) to (1, 1), with up to four pieces."""
    inner = draw(st.sets(st.integers(1, 15), max_size=3))
    xs = [0.0, *(sixteenths / 16 for sixteenths in sorted(inner)), 1.0]
    pieces = len(xs) - 1
    slopes = sorted(draw(st.lists(st.integers(0, 20), min_size=pieces, max_size=pieces)), reverse=True)
    rises = [slope * (xs[i + 1] - xs[i]) for i, slope in enumerate(slopes)]
    if sum(rises) == 0:
        return LossGraph.linear()
    ys = [0.0, *accumulate(rises)]
    return LossGraph.of([(x, y / ys[-1]) for x, y in zip(xs, ys, strict=True)])


@st.composite
def value_graphs(draw: st.DrawFn, column: str = "value") -> ValueGraph:
    """Two to five points over [0, 100]; jumps and slopes both ways."""
    xs = [0, *sorted(draw(st.lists(thresholds, max_size=3))), 100]
    utilities = draw(st.lists(fractions, min_size=len(xs), max_size=len(xs)))
    return ValueGraph.of(column, list(zip(xs, utilities, strict=True)), chunks=draw(st.integers(1, 10)))


@st.composite
def latency_graphs(draw: st.DrawFn) -> LatencyGraph:
    """Level up to a target, then down to nothing."""
    target, grace = draw(st.integers(1, 10)), draw(st.integers(1, 20))
    return LatencyGraph.of([(0, 1), (target, 1), (target + grace, draw(fractions))])


@st.composite
def qualities(draw: st.DrawFn, *, with_value: bool = True) -> Qos:
    """The quality of service of an output: a loss graph, a value graph or neither."""
    kind = draw(st.sampled_from(["none", "loss", "value"] if with_value else ["none", "loss"]))
    return Qos(
        latency=draw(st.none() | latency_graphs()),
        loss=draw(loss_graphs()) if kind == "loss" else None,
        value=draw(value_graphs()) if kind == "value" else None,
        weight=draw(st.sampled_from([0.5, 1.0, 2.0, 5.0])),
    )


# --- networks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _End:
    """A flow that may be read, and its columns."""

    flow: Flow
    columns: tuple[str, ...]


@dataclass
class _Growth:
    """A network on its way: what can be read, and what is read already."""

    draw: st.DrawFn
    builder: NetworkBuilder
    ends: list[_End] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    count: int = 0

    def new_id(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def pick(self, among: list[_End] | None = None) -> _End:
        """Something to read; taking the same again is fan-out."""
        end = self.draw(st.sampled_from(self.ends if among is None else among))
        self.read.add(end.flow.reference)
        return end

    def add(self, flow: Flow, columns: tuple[str, ...]) -> None:
        self.ends.append(_End(flow, columns))


def _filter(growth: _Growth, end: _End | None = None) -> None:
    end = end or growth.pick()
    comparison = growth.draw(st.sampled_from([">", "<="]))
    predicate = f"value {comparison} {growth.draw(thresholds)}"
    growth.add(end.flow.filter(growth.new_id("filter"), predicate, stage=growth.draw(st.booleans())), end.columns)


def _map(growth: _Growth) -> None:
    end, id = growth.pick(), growth.new_id("map")
    column = f"{id}_column"
    growth.add(end.flow.map(id, {column: "value * 2 + k"}, keep=True), (*end.columns, column))


def _union(growth: _Growth) -> None:
    first = growth.pick()
    alike = [end for end in growth.ends if end.columns == first.columns and end != first]
    if not alike:
        _filter(growth, first)
        return
    others = [growth.pick(alike)]
    rest = [end for end in alike if end not in others]
    if growth.draw(st.booleans()) and rest:
        others.append(growth.pick(rest))
    growth.add(first.flow.union(growth.new_id("union"), *(end.flow for end in others)), first.columns)


def _join(growth: _Growth) -> None:
    left, right, id = growth.pick(), growth.pick(), growth.new_id("join")
    renamed = right.flow.map(f"{id}_right", {"ts": "ts", "k": "k", f"{id}_value": "value"})
    growth.add(left.flow.join(id, renamed, on=["k"], within_s=10), (*left.columns, f"{id}_value"))


def _split(growth: _Growth) -> None:
    end, at = growth.pick(), growth.draw(thresholds)
    branches = {"low": f"value < {at}", "high": f"value >= {at}"}
    if growth.draw(st.booleans()):
        branches["some"] = f"value > {growth.draw(thresholds)}"  # overlaps the others
    for flow in end.flow.split(growth.new_id("split"), branches).values():
        growth.add(flow, end.columns)


_OPERATORS: dict[str, Callable[[_Growth], None]] = {
    "filter": _filter,
    "map": _map,
    "union": _union,
    "join": _join,
    "split": _split,
}


def _finish(growth: _Growth, end: _End) -> None:
    """An output, maybe behind an aggregate."""
    if not growth.draw(st.booleans()):
        end.flow.output(growth.new_id("output"), growth.draw(qualities()))
        return
    flow = end.flow.aggregate(
        growth.new_id("aggregate"),
        {"mean": "avg(value)", "tuples": "count()"},
        window_s=60,
        slide_s=growth.draw(st.none() | st.just(20.0)),
        group_by=growth.draw(st.sampled_from([[], ["k"]])),
    )
    flow.output(growth.new_id("output"), growth.draw(qualities(with_value=False)))


@st.composite
def networks(
    draw: st.DrawFn,
    *,
    max_streams: int = 4,
    max_operators: int = 6,
    operators: tuple[str, ...] = ("filter", "map", "union", "join", "split"),
) -> Network:
    """A sound network with fan-out, shared operators, and aggregates before some outputs.

    `operators` restricts the kinds of operators; aggregates may come at the outputs all the same.
    """
    growth = _Growth(draw, NetworkBuilder("random"))
    for i in range(draw(st.integers(1, max_streams))):
        growth.add(growth.builder.stream(f"stream{i + 1}", COLUMNS, time="ts", key=["k"]), tuple(COLUMNS))
    for kind in draw(st.lists(st.sampled_from(operators), max_size=max_operators)):
        _OPERATORS[kind](growth)
    for end in growth.ends:
        if end.flow.reference not in growth.read or draw(st.integers(0, 4)) == 0:
            _finish(growth, end)
    return growth.builder.build()


# --- what is known about them -----------------------------------------------------------------------------------------


@st.composite
def statistics(draw: st.DrawFn, network: Network) -> Statistics:
    """Costs, some of them zero; selectivities drawn freely, not computed from the predicates; uniform histograms."""
    costs = st.just(0.0) | st.integers(1, 50).map(lambda tenths: tenths * 1e-7)
    selectivities: dict[str, float] = {}
    for operator in network.operators:
        match operator:
            case Filter() | Aggregate():
                selectivities[operator.id] = draw(fractions)
            case Join():
                selectivities[operator.id] = draw(st.integers(0, 24)) / 8
            case Split():
                selectivities.update({f"{operator.id}.{branch}": draw(fractions) for branch in operator.branches})
            case _:
                pass  # a map or union hands on what it gets
    return Statistics(
        costs={operator.id: draw(costs) for operator in network.operators},
        selectivities=selectivities,
        histograms={stream.id: {"value": VALUES} for stream in network.streams},
        drop_cost=draw(st.sampled_from([0.0, 1e-8])),
    )


def rates(network: Network) -> st.SearchStrategy[dict[str, float]]:
    """Tuples per second for every stream; some streams stand still."""
    rate = st.just(0.0) | st.integers(1, 100_000).map(float)
    return st.fixed_dictionaries({stream.id: rate for stream in network.streams})


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """A network with statistics, rates and capacity, each of the latter maybe left out."""
    network = draw(networks())
    return Spec(
        network,
        draw(st.just(Statistics()) | statistics(network)),
        draw(st.just({}) | rates(network)),
        draw(st.none() | st.floats(0.01, 64)),
    )
