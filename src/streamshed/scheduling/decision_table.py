"""The decision table: how well each strategy serves each measure, as data (MavStream, 4.2.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamshed.errors import InvalidValueError
from streamshed.qos import Goals, Measure, Priority


@dataclass(frozen=True)
class DecisionTable:
    """Ranks of strategies, by measure and strategy; n is the best of n. A new strategy is a new column.

    >>> scores = DEFAULT_TABLE.scores({Measure.MEMORY: 1.0})
    >>> scores["segment"], scores["path-capacity"]
    (1.0, 0.25)
    """

    ranks: Mapping[Measure, Mapping[str, int]]

    def __post_init__(self) -> None:
        rows = [set(row) for row in self.ranks.values()]
        if not rows or not rows[0] or any(row != rows[0] for row in rows):
            raise InvalidValueError(
                "every row of the decision table must rank the same strategies",
                where="decision table",
                got="; ".join(", ".join(sorted(row)) or "none" for row in rows) or "no rows",
                expected="one rank for every strategy in every row",
            )
        for measure, row in self.ranks.items():
            if not all(1 <= rank <= len(row) for rank in row.values()):
                raise InvalidValueError(
                    "a rank of the decision table is out of range",
                    where=f"decision table, {measure.value}",
                    got=", ".join(f"{name} {rank}" for name, rank in row.items()),
                    expected=f"1 to {len(row)}, the number of strategies",
                )

    @property
    def strategies(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(next(iter(self.ranks.values())))

    def scores(self, weights: Mapping[Measure, float]) -> dict[str, float]:
        """The score of every strategy: Σ weight · rank / number of strategies over the measures (equation 4.1)."""
        count = len(self.strategies)
        return {
            name: sum(weight * self.ranks[measure][name] / count for measure, weight in weights.items())
            for name in self.strategies
        }

    def best_for(self, goals: Goals) -> str:
        """The strategy that serves goals best: those of the highest class, and among equals those of the next.

        >>> from streamshed.qos import Goal, OverTime
        >>> latency, memory = Goal(OverTime.of([(0, 1.0)])), Goal(OverTime.of([(0, 1e6)]))
        >>> DEFAULT_TABLE.best_for(Goals({Measure.LATENCY: latency}))
        'path-capacity'
        >>> DEFAULT_TABLE.best_for(Goals({Measure.LATENCY: latency, Measure.MEMORY: memory}))
        'simplified-segment'
        """
        by_class = [self.scores(dict.fromkeys(goals.of_priority(priority), 1.0)) for priority in Priority]
        return max(self.strategies, key=lambda name: [scores[name] for scores in by_class])


_NAMES = ("round-robin", "path-capacity", "segment", "simplified-segment")
DEFAULT_TABLE = DecisionTable(
    {
        Measure.LATENCY: dict(zip(_NAMES, (2, 4, 1, 3), strict=True)),
        Measure.MEMORY: dict(zip(_NAMES, (2, 1, 4, 3), strict=True)),
        Measure.THROUGHPUT: dict(zip(_NAMES, (2, 4, 1, 3), strict=True)),
    }
)
"""The thesis's table 4.1."""
