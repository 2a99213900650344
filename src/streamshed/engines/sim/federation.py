"""Queries that share nodes, as values: fragments on nodes, the sources that feed them, and what happens to them.

How they run is in `federated`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from streamshed.engines.sim.fragments import Fragment
from streamshed.errors import InvalidValueError, UnknownNameError
from streamshed.workload import ArrivalPattern


@dataclass(frozen=True)
class Source:
    """Where tuples come from.

    Attributes:
        fragment: the number of the fragment that reads it.
        pattern: when its tuples come.
        side: the side of the fragment on which they do.
        keys: how many keys they have, in turn; with 0 each tuple has its number as key.
        kinship: the share of a value that all tuples of the query with the same key have in common.
    """

    fragment: int
    pattern: ArrivalPattern
    side: int = 0
    keys: int = 0
    kinship: float = 0.0


@dataclass(frozen=True)
class Coordination:
    """How coordinators report the SIC of their queries' results to the nodes that host them.

    Attributes:
        period_s: the time between two reports.
        lag_s: how long one is on its way.
        loss: the chance that one is lost.
    """

    period_s: float = 1.0
    lag_s: float = 0.05
    loss: float = 0.0


@dataclass(frozen=True)
class Happening:
    """Something that happens to a node.

    Attributes:
        time_s: when.
        node: to which one.
        what: `fail` (it loses what it has), `recover`, `leave` (its fragments move to the others first), `join` (a new
            node, which takes fragments over from the others), `speed` (it has another speed from now on).
        speed: the new speed, for `join` and `speed`.
    """

    time_s: float
    node: str
    what: Literal["fail", "recover", "leave", "join", "speed"]
    speed: float = 1.0


@dataclass(frozen=True)
class Federation:
    """Nodes, the fragments on them and the sources that feed these.

    Attributes:
        fragments: of all queries; queries are numbered from 0.
        sources: of all fragments.
        speeds: for each node the processing time that it has per second.
        window_s: the length of all windows of queries.
        batch_s: how often a source sends what it has.
        delay_s: how long a batch travels, from a source or between nodes.
        slack_s: how long after its end a window of the first fragments is closed; one of the fragment behind it that
            much later still.
    """

    fragments: Sequence[Fragment]
    sources: Sequence[Source]
    speeds: Mapping[str, float]
    window_s: float = 1.0
    batch_s: float = 0.25
    delay_s: float = 0.005
    slack_s: float = 0.75

    def __post_init__(self) -> None:
        if not self.sources:
            raise InvalidValueError("there are no sources", where="federation", expected="at least one")
        for number, fragment in enumerate(self.fragments):
            if fragment.node not in self.speeds:
                raise UnknownNameError(
                    "a fragment is on a node that does not exist", where=f"fragment {number}", got=fragment.node
                )
            if fragment.to is not None and self.fragments[fragment.to].query != fragment.query:
                raise InvalidValueError(
                    "a fragment sends its results to another query", where=f"fragment {number}", got=fragment.to
                )

    @property
    def queries(self) -> int:
        """How many there are."""
        return 1 + max((fragment.query for fragment in self.fragments), default=-1)

    def depth(self, number: int) -> int:
        """How many fragments lie before a fragment, at most."""
        return max((1 + self.depth(i) for i, other in enumerate(self.fragments) if other.to == number), default=0)

    def load(self, seconds: float) -> dict[str, float]:
        """The processing time per second that the sources' tuples need at each node, without any drops."""
        needed = dict.fromkeys(self.speeds, 0.0)
        for source in self.sources:
            fragment = self.fragments[source.fragment]
            needed[fragment.node] += fragment.cost_s * source.pattern.cumulative(seconds) / seconds
        return needed
