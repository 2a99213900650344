"""Random query networks (Aurora, section 5.2): trees of filters, maps, unions and joins over streams of values.

Values are spread evenly between 0 and 100 and filters are `value > constant`, so every selectivity is known exactly:
a flow is a mixture of parts, each even between a bound and 100. Structure and quality come from separate random
numbers: the same seed with other utilities is the same network.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate

from streamshed.errors import InvalidValueError
from streamshed.network import Flow, NetworkBuilder, Spec, Statistics
from streamshed.qos import Histogram, Qos, ValueGraph

LOW, HIGH = 0.0, 100.0
"""The range of all values."""
COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
UTILITY_LEVELS = 100
"""Utilities are drawn from 1/100, 2/100, …, 1."""

QualityOf = Callable[[random.Random], Qos]
"""Draws the quality of service of one output."""


@cache
def _zipf_ladder(skew: float) -> tuple[float, ...]:
    return tuple(accumulate(level**-skew for level in range(1, UTILITY_LEVELS + 1)))


def zipf_utility(rng: random.Random, skew: float) -> float:
    """A utility k/100 with probability proportional to 1/k^skew: even at 0, mostly low ones at high skew.

    One random number makes one utility, and a larger skew never makes it larger: networks that differ in skew only can
    be compared one by one.
    """
    ladder = _zipf_ladder(skew)
    return (bisect_left(ladder, rng.random() * ladder[-1]) + 1) / UTILITY_LEVELS


def two_intervals(skew: float, boundary: float = 75.0) -> QualityOf:
    """The paper's value graphs: a utility drawn from a Zipf distribution up to a boundary, and 1 from there on."""

    def quality(rng: random.Random) -> Qos:
        first = zipf_utility(rng, skew)
        return Qos(value=ValueGraph.of("value", [(LOW, first), (boundary, first), (boundary, 1.0), (HIGH, 1.0)]))

    return quality


@dataclass(frozen=True)
class Recipe:
    """What a random network is made of. The defaults are the network of Aurora's figures 9 to 11.

    Attributes:
        queries: how many outputs.
        operators: how many operators in all, dealt out evenly to the queries.
        mix: the proportions of `filter`, `map`, `union` and `join`; kept exactly, up to rounding. A join brings two
            maps of its own, which keep the columns apart; a union of a stream with itself brings a filter.
        streams: how many streams the queries have in common. A query has a home among them, and reaches for others
            only in unions and joins. None: every input of every query is a stream of its own.
        sharing: the chance that an input of a query is what an operator of an earlier query hands on (one that
            depends on the same stream), instead of the stream itself. Each makes a split.
        constants: between which bounds the constants of the filters lie.
        cost_s: by type of operator: between which bounds its cost per tuple lies.
        join_selectivity: between which bounds the selectivity of a join lies.
        rate_tps: between which bounds the rates of the streams lie.
    """

    queries: int = 5
    operators: int = 47
    mix: Mapping[str, float] = field(default_factory=lambda: {"filter": 34, "union": 13})
    streams: int | None = None
    sharing: float = 0.0
    constants: tuple[float, float] = (0.0, 50.0)
    cost_s: Mapping[str, tuple[float, float]] = field(
        default_factory=lambda: {"filter": (1.0, 1.0), "map": (0.5, 0.5), "union": (0.5, 0.5), "join": (2.0, 2.0)}
    )
    join_selectivity: tuple[float, float] = (0.2, 1.0)
    rate_tps: tuple[float, float] = (0.1, 0.1)

    def __post_init__(self) -> None:
        wrong = {name: weight for name, weight in self.mix.items() if name not in self.cost_s or weight < 0}
        if wrong or sum(self.mix.values()) <= 0:
            raise InvalidValueError(
                "the mix of operators is not valid",
                where="recipe",
                got=dict(self.mix),
                expected=f"weights >= 0 for {', '.join(self.cost_s)}",
            )
        if self.queries < 1 or self.operators < self.queries or (self.streams is not None and self.streams < 1):
            raise InvalidValueError(
                "the size of a random network is not valid",
                where="recipe",
                got=f"{self.queries} queries, {self.operators} operators, {self.streams} streams",
                expected="at least one query and one stream, and an operator for each query",
            )
        if not 0 <= self.sharing <= 1:
            raise InvalidValueError("a chance is out of range", where="sharing", got=self.sharing, expected="0 to 1")


@dataclass(frozen=True)
class _Head:
    """A flow on its way: its parts as (rate, lower bound of the values), and the stream it comes from, if only one."""

    flow: Flow
    parts: tuple[tuple[float, float], ...]
    stream: int | None

    @property
    def rate(self) -> float:
        return sum(rate for rate, _ in self.parts)


def random_network(recipe: Recipe, seed: int, quality: QualityOf) -> Spec:
    """A network of this recipe; the same seed gives the same network."""
    return _Grower(recipe, seed, quality).grow()


def shared_network(
    seed: int, quality: QualityOf, *, queries: int = 20, operators: int = 4, recipe: Recipe | None = None
) -> Spec:
    """Aurora's network of full sharing (section 6.4): identical queries behind one common operator.

    Args:
        seed: decides the constants of the filters and the utilities.
        quality: draws the quality of each output.
        queries: how many.
        operators: how many filters each query has for itself.
        recipe: for constants, costs and rates.
    """
    recipe = recipe or Recipe()
    grower = _Grower(replace(recipe, queries=queries, operators=queries * operators, streams=1), seed, quality)
    common = grower.filter(grower.stream(0), "common", grower.constant())
    constants = [grower.constant() for _ in range(operators)]
    for query in range(queries):
        head = common
        for position, constant in enumerate(constants):
            head = grower.filter(head, f"q{query}_{position}", constant)
        grower.output(head, query)
    return grower.finished()


class _Grower:
    def __init__(self, recipe: Recipe, seed: int, quality: QualityOf) -> None:
        self.recipe = recipe
        self.quality = quality
        self.rng = random.Random(f"structure {seed}")
        self.quality_rng = random.Random(f"quality {seed}")
        self.builder = NetworkBuilder(f"random-{seed}")
        self.streams: dict[int, _Head] = {}
        self.shareable: dict[int, list[_Head]] = {}
        self.rates: dict[str, float] = {}
        self.costs: dict[str, float] = {}
        self.selectivities: dict[str, float] = {}

    def grow(self) -> Spec:
        recipe = self.recipe
        kinds = _deck(recipe.mix, recipe.operators)
        self.rng.shuffle(kinds)
        for query in range(recipe.queries):
            grown: list[_Head] = []
            self.output(self._query(query, kinds[query :: recipe.queries], grown), query)
            for head in grown:  # only now, so that a query shares with earlier ones and not with itself
                if head.stream is not None:
                    self.shareable[head.stream].append(head)
        return self.finished()

    def _query(self, query: int, kinds: list[str], grown: list[_Head]) -> _Head:
        """Grow a tree from its inputs: filters and maps go on any flow, unions and joins merge any two."""
        heads = self._inputs(1 + sum(kind in ("union", "join") for kind in kinds))
        for position, kind in enumerate(kinds):
            name = f"q{query}_{position}"
            head = heads.pop(self.rng.randrange(len(heads)))
            if kind == "filter":
                head = self.filter(head, name, self.constant())
            elif kind == "map":
                head = self._measured(head.flow.map(name, {column: column for column in COLUMNS}), "map", 1.0, head)
            else:
                other = heads.pop(self.rng.randrange(len(heads)))
                if kind == "union" and other.flow.reference == head.flow.reference:
                    # A query that has to read a stream twice: a stream cannot be merged with itself.
                    other = self.filter(other, f"{name}_in", self.constant())
                head = (self._union if kind == "union" else self._join)(head, other, name)
            heads.append(head)
            grown.append(head)
        return heads[0]

    def _inputs(self, count: int) -> list[_Head]:
        home = self.rng.randrange(self.recipe.streams) if self.recipe.streams is not None else 0
        heads: list[_Head] = []
        for i in range(count):
            heads.append(self._input(home, i == 0, {head.flow.reference for head in heads}))
        return heads

    def _input(self, home: int, first: bool, taken: set[str]) -> _Head:
        """Something to read that the query does not read yet, as far as there is something."""
        common = self.recipe.streams
        shared = self.rng.random() < self.recipe.sharing
        if common is not None:
            at = home if first or common == 1 else (home + self.rng.randrange(1, common)) % common
        else:
            at = self.rng.choice(list(self.streams)) if shared and self.streams else len(self.streams)
        head = self.stream(at)
        if not shared:
            return head
        free = [other for other in (head, *self.shareable[at]) if other.flow.reference not in taken]
        if free:
            return self.rng.choice(free)
        return head if common is not None else self.stream(len(self.streams))

    def stream(self, index: int) -> _Head:
        """A stream by its number; new where it is not there yet."""
        if index not in self.streams:
            flow = self.builder.stream(f"s{index}", COLUMNS, time="ts")
            self.rates[flow.reference] = self.rng.uniform(*self.recipe.rate_tps)
            self.streams[index] = _Head(flow, ((self.rates[flow.reference], LOW),), index)
            self.shareable[index] = []
        return self.streams[index]

    def constant(self) -> float:
        """A constant for a filter; of few digits, since it stands in a predicate."""
        return round(self.rng.uniform(*self.recipe.constants), 2)

    def filter(self, head: _Head, name: str, constant: float) -> _Head:
        """Put a filter on a flow."""
        parts = tuple(
            (rate * max(0.0, HIGH - max(low, constant)) / (HIGH - low), max(low, constant)) for rate, low in head.parts
        )
        passing = min(1.0, sum(rate for rate, _ in parts) / head.rate)
        return self._measured(head.flow.filter(name, f"value > {constant:g}"), "filter", passing, head, parts)

    def _union(self, left: _Head, right: _Head, name: str) -> _Head:
        both = _Head(left.flow, (*left.parts, *right.parts), None)
        return self._measured(left.flow.union(name, right.flow), "union", 1.0, both)

    def _join(self, left: _Head, right: _Head, name: str) -> _Head:
        """Pair on the key; maps rename the other side's value before and remove it afterwards."""
        other = right.flow.map(f"{name}_right", {"ts": "ts", "k": "k", "other": "value"})
        renamed = self._measured(other, "map", 1.0, right)
        pairs = left.flow.join(f"{name}_pairs", renamed.flow, on=["k"], within_s=10)
        selectivity = self.rng.uniform(*self.recipe.join_selectivity)
        grows = selectivity * (left.rate + right.rate) / left.rate
        parts = tuple((rate * grows, low) for rate, low in left.parts)
        joined = self._measured(pairs, "join", selectivity, _Head(pairs, parts, None))
        return self._measured(pairs.map(name, {column: column for column in COLUMNS}), "map", 1.0, joined)

    def _measured(
        self,
        flow: Flow,
        kind: str,
        selectivity: float,
        head: _Head,
        parts: tuple[tuple[float, float], ...] | None = None,
    ) -> _Head:
        self.costs[flow.reference] = self.rng.uniform(*self.recipe.cost_s[kind])
        self.selectivities[flow.reference] = selectivity
        return _Head(flow, head.parts if parts is None else parts, head.stream)

    def output(self, head: _Head, query: int) -> None:
        """End a query."""
        head.flow.output(f"o{query}", self.quality(self.quality_rng))

    def finished(self) -> Spec:
        """The network with what is known about it."""
        histograms = {stream: {"value": Histogram.uniform(LOW, HIGH)} for stream in self.rates}
        return Spec(self.builder.build(), Statistics(self.costs, self.selectivities, histograms), self.rates)


def _deck(mix: Mapping[str, float], count: int) -> list[str]:
    """So many operators in these proportions; what rounding leaves over goes to the largest remainders."""
    total = sum(mix.values())
    exact = {kind: count * weight / total for kind, weight in mix.items()}
    deck = [kind for kind, share in exact.items() for _ in range(int(share))]
    remainders = sorted(exact, key=lambda kind: int(exact[kind]) - exact[kind])
    return [*deck, *remainders[: count - len(deck)]]
