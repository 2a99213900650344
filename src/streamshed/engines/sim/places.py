"""The network made ready to run: operators with their queues, and what becomes of tuples on each arc."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from streamshed.engines.sim.queues import ArcQueue
from streamshed.engines.sim.tuples import Ids, Mask, Times, Tuples
from streamshed.engines.sim.values import Slots, order_rank, value_test
from streamshed.load import out_selectivity
from streamshed.network import Arc, Filter, Join, Network, Operator, Output, Split, Statistics, Stream
from streamshed.network.expressions import RangeTest, columns_used
from streamshed.planning.ranks import RankedLocation
from streamshed.shedding import ObservedRange
from streamshed.workload.hashing import hash64, unit

Counts = NDArray[np.int64]
Choice = Callable[[Tuples, Ids, Ids], "Mask | Counts"]
"""Which of some tuples (their numbers, and where they are) an operator hands on to an arc: a mask, or how often."""


_COIN_SALT = 1 << 48
_SAMPLE = 256


class Window(ABC):
    """What an operator remembers of tuples."""

    @abstractmethod
    def pass_on(self, tuples: Tuples, ids: Ids, at: Ids, side: int) -> Counts:
        """How many tuples each of these, which come from one side, causes on the way out."""


class Gauge(ABC):
    """Counts what an output gets."""

    @abstractmethod
    def deliver(self, tuples: Tuples, at: Ids, times_s: Times) -> None:
        """Tuples have reached it at some times."""

    @abstractmethod
    def lose(self, tuples: Tuples, at: Ids) -> None:
        """Tuples would have reached it, had they not been dropped."""


class Out:
    """An arc out of a stream or an operator, with the drop on it.

    Attributes:
        arc: the arc.
        choice: which tuples go there; None for all.
        place: the operator at its end; None where it leads to an output.
        output: the id of that output.
        queue: the tuples that wait on it.
        threshold: the share to drop.
        entered: tuples that came to the drop.
        faced: those among them that came while it had a threshold.
        dropped: tuples that it dropped.
        gauge: counts what the output at its end gets, where there is one.
        seen: for a drop by the range of values seen: their slot, and the range.
    """

    def __init__(self, arc: Arc, choice: Choice | None) -> None:
        self.arc = arc
        self.choice = choice
        self.place: Place | None = None
        self.output: str | None = None
        self.queue = ArcQueue()
        self.threshold = 0.0
        self.entered = 0
        self.faced = 0
        self.dropped = 0
        self.gauge: Gauge | None = None
        self.seen: tuple[int, ObservedRange] | None = None
        self._by_value: tuple[int, Callable[[Times, Times], Times]] | None = None

    def rank_by_value(self, slot: int, rank: Callable[[Times, Times], Times]) -> None:
        """Let the drop go by the values in a slot."""
        self._by_value = (slot, rank)

    def rank_by_range(self, slot: int, seen: ObservedRange) -> None:
        """Let the drop go by where values lie in the range of those that were seen here."""
        self.seen = slot, seen
        self._by_value = slot, lambda values, _ties: seen.ranks(values)

    @property
    def is_by_value(self) -> bool:
        """Whether its drop looks at values."""
        return self._by_value is not None

    def ranks(self, tuples: Tuples, at: Ids) -> Times:
        """The places of tuples in the order in which this arc gives them up."""
        ranks: Times = tuples.rank[at]
        if self._by_value is None:
            return ranks
        slot, rank = self._by_value
        return rank(tuples.values[slot][at], ranks)


class Sides:
    """What the two sides of a join know of one another.

    Partners hash to one rank, so a tuple meets its partner if that rank is not dropped on the other side. What a tuple
    takes over from its partner are values of one that was seen there lately.

    Attributes:
        shares: of the undropped tuples of each side, how many come.
    """

    def __init__(self, slots: tuple[frozenset[int], frozenset[int]]) -> None:
        self.shares = [1.0, 1.0]
        self._own = slots
        self._seen: tuple[dict[int, Times], dict[int, Times]] = ({}, {})

    def meet(self, tuples: Tuples, ids: Ids, at: Ids, side: int) -> None:
        """Show tuples of one side to the other, and let them take over its values."""
        for slot in self._own[side]:
            self._seen[side][slot] = tuples.values[slot][at[-_SAMPLE:]]
        for slot in self._own[1 - side] - self._own[side]:
            seen = self._seen[1 - side].get(slot)
            if seen is not None:
                tuples.values[slot][at] = seen[ids % len(seen)]

    def partnered(self, tuples: Tuples, at: Ids, side: int) -> Mask | None:
        """Which tuples of a side have a partner; None if all have."""
        share = self.shares[1 - side]
        return None if share >= 1 else tuples.rank[at] >= 1 - share


class Place:
    """An operator at work.

    Attributes:
        id: its id.
        cost_s: nominal processing time of a tuple.
        salt: tells its random numbers from those of others.
        inputs: the arcs that lead here.
        outs: the arcs that lead on.
        gauges: count what outputs get, where it is the aggregate that makes their tuples.
        sides: of a join.
        window: what it remembers of tuples, where that is simulated.
        is_listed: whether its processor has it on the list of those with something to do.
    """

    def __init__(self, operator: Operator, cost_s: float, salt: int) -> None:
        self.id = operator.id
        self.cost_s = cost_s
        self.salt = salt
        self.inputs: list[Out] = []
        self.outs: list[Out] = []
        self.gauges: list[Gauge] = []
        self.sides: Sides | None = None
        self.window: Window | None = None
        self.is_listed = False

    def longest_waiting(self) -> Out:
        """The input whose first tuple has been there longest."""
        if len(self.inputs) == 1:
            return self.inputs[0]
        return min(self.inputs, key=lambda arc: arc.queue.head_s)


def _chance(seed: int, salt: int, ids: Ids) -> Times:
    return unit(hash64(seed, salt, ids))


def _coin(selectivity: float, seed: int, salt: int) -> Choice | None:
    """So many tuples out per tuple in, on average; the same for a tuple whenever it is asked about."""
    whole = int(selectivity)
    rest = selectivity - whole
    if selectivity == 1:
        return None
    if whole == 0:
        return lambda _tuples, ids, _at: _chance(seed, salt, ids) < rest
    return lambda _tuples, ids, _at: whole + (_chance(seed, salt, ids) < rest).astype(np.int64)


def _by_value(slot: int, test: Callable[[Times], Mask]) -> Choice:
    return lambda tuples, _ids, at: test(tuples.values[slot][at])


class Places:
    """A network made ready to run.

    Filters and splits decide by the tuple's value where it is known (see `Slots`), else by a coin with the operator's
    selectivity. Joins and aggregates are taken by their statistics alone: every tuple that comes in causes so many
    tuples out as the selectivity says, at once, and these carry its arrival time and values.

    Args:
        network: the network.
        statistics: costs, selectivities, histograms.
        seed: of the coins.
        locations: where drops may go by value.
        columns: further columns whose values are looked at, and on which arcs.
    """

    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        seed: int,
        locations: Sequence[RankedLocation] = (),
        columns: Sequence[tuple[Arc, str]] = (),
    ) -> None:
        self.network = network
        self._statistics = statistics
        self._seed = seed
        self._salts = {node: salt for salt, node in enumerate(network.nodes, start=1)}
        arcs = {arc.id: arc for arc in network.arcs}
        ordered = [(arcs[place.arc], place.column) for place in locations if place.column is not None]
        self.slots = Slots(network, statistics, [*self._looked_at(), *ordered, *columns])
        self.places = {
            operator.id: Place(operator, statistics.cost(operator.id), self._salts[operator.id])
            for operator in network.operators
        }
        self.outs: dict[str, Out] = {}
        self.entries: dict[str, list[Out]] = {stream.id: [] for stream in network.streams}
        for arc in network.arcs:
            if arc.is_entry:
                self.outs[arc.id] = Out(arc, None)
            else:
                self._connect(arc)
        for location in locations:
            slot = self.slots.slot(arcs[location.arc], location.column) if location.column is not None else None
            if slot is not None:
                self.outs[location.arc].rank_by_value(slot, order_rank(location.order))
        above = self._streams_above()
        self.may_repeat = self._may_repeat(above)
        for node in network.operators:
            if isinstance(node, Join):
                left, right = (self._slots_of(above[arc.source]) for arc in network.arcs_into[node.id])
                self.places[node.id].sides = Sides((left, right))

    def _looked_at(self) -> list[tuple[Arc, str]]:
        """The columns that predicates and value graphs look at, and on which arcs."""
        network = self.network
        wanted: list[tuple[Arc, str]] = []
        for node in network.operators:
            predicates = [node.where] if isinstance(node, Filter) else []
            if isinstance(node, Split):
                predicates = list(node.branches.values())
            for predicate in predicates:
                wanted += [(network.arcs_into[node.id][0], column) for column in columns_used(predicate, node.id)]
        wanted += [
            (network.arcs_into[output.id][0], output.qos.value.column)
            for output in network.outputs
            if output.qos.value is not None
        ]
        return wanted

    def _connect(self, arc: Arc) -> None:
        source, target = self.network.nodes[arc.source], self.network.nodes[arc.target]
        out = Out(arc, None if isinstance(source, Stream | Output) else self._choice(source, arc))
        self.outs[arc.id] = out
        (self.entries[source.id] if isinstance(source, Stream) else self.places[source.id].outs).append(out)
        if isinstance(target, Output):
            out.output = target.id
        else:
            out.place = self.places[target.id]
            out.place.inputs.append(out)

    def _choice(self, node: Operator, arc: Arc) -> Choice | None:
        if isinstance(node, Filter | Split):
            predicate = node.branches[arc.branch or ""] if isinstance(node, Split) else node.where
            into = self.network.arcs_into[node.id][0]
            columns = columns_used(predicate, node.id)
            slot = self.slots.slot(into, columns[0]) if len(columns) == 1 else None
            test = RangeTest.of(predicate, columns[0], node.id) if slot is not None else None
            if slot is not None and test is not None:
                return _by_value(slot, value_test(test))
        # The arcs of one operator share its coin: all its readers get the same tuples. Branches have their own.
        branches = list(node.branches) if isinstance(node, Split) else []
        salt = _COIN_SALT + (self._salts[node.id] << 16) + (branches.index(arc.branch or "") + 1 if branches else 0)
        return _coin(out_selectivity(self._statistics, arc), self._seed, salt)

    def _streams_above(self) -> dict[str, frozenset[str]]:
        above: dict[str, frozenset[str]] = {}
        for node in self.network.nodes.values():
            sources = [arc.source for arc in self.network.arcs_into[node.id] if not arc.is_entry]
            own = {node.id} if isinstance(node, Stream) else set[str]()
            above[node.id] = frozenset(own).union(*(above[source] for source in sources))
        return above

    def _slots_of(self, streams: frozenset[str]) -> frozenset[int]:
        return frozenset(slot for stream in streams for slot in self.slots.of_stream(stream).values())

    def _may_repeat(self, above: Mapping[str, frozenset[str]]) -> bool:
        """Whether a train may hold two copies of one tuple: where paths of a stream meet again, or tuples multiply."""
        if any(share > 1 for share in self._statistics.selectivities.values()):
            return True
        for node in self.network.operators:
            met: set[str] = set()
            for arc in self.network.arcs_into[node.id]:
                if met & above[arc.source]:
                    return True
                met |= above[arc.source]
        return False
