"""Keeping a table up to date while costs, selectivities and rates drift, and sending only what changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.wire import Message, changes, whole
from streamshed.distributed.model import NodeModel

DRIFT = 0.02
"""The relative change of a number that makes a table worth making again; less is noise."""


def drifted(old: NodeModel, new: NodeModel, tolerance: float = DRIFT) -> bool:
    """Whether a cost, a selectivity or the capacity moved by more than the tolerance, or the structure changed."""
    if [(one.id, one.source, one.end) for one in old.segments] != [
        (one.id, one.source, one.end) for one in new.segments
    ]:
        return True
    pairs = [(old.capacity, new.capacity)]
    for before, after in zip(old.segments, new.segments, strict=True):
        pairs += [(before.cost, after.cost), (before.selectivity, after.selectivity)]
    return any(abs(float(a) - float(b)) > tolerance * max(abs(float(a)), abs(float(b))) for a, b in pairs)


def settled(new: FeasibleInputTable, old: FeasibleInputTable, tolerance: float) -> FeasibleInputTable:
    """The new table with old entries instead of new ones where these say nothing else.

    An old entry may stay if what it promises can be kept (the new table scores no less for its rates) and is not too
    modest (not more than the tolerance less). A new entry is needed where mixtures of those that stay are too modest.
    Corners move a little with every drift; without this hardly any entry would ever stay the same.
    """
    if old.inputs != new.inputs or old.units != new.units or not new.mixing:
        return new
    slack = 1e-7 * max(float(new.scores.max()), 1e-300)
    possible = [new.decide(dict(zip(new.inputs, rates, strict=True))).score for rates in old.rates.tolist()]
    stays = [row for row, best in enumerate(possible) if best - tolerance <= float(old.scores[row]) <= best + slack]
    if not stays:
        return new
    part = replace(old.take(np.array(stays)), max_error=new.max_error, flows=None, planless=None)
    needed = [
        row
        for row, rates in enumerate(new.rates.tolist())
        if new.scores[row] - part.decide(dict(zip(new.inputs, rates, strict=True))).score > tolerance
    ]
    added = new.take(np.array(needed, dtype=np.int64)) if needed else None
    return replace(
        part,
        counts=part.counts if added is None else np.vstack([part.counts, added.counts]),
        scores=part.scores if added is None else np.concatenate([part.scores, added.scores]),
        max_error=new.max_error + tolerance,
    ).best_first()


@dataclass
class TableKeeper:
    """A node's own table, made again when it has to be, and the messages to its parent.

    Attributes:
        make: builds the table from the node as it is and its children's tables.
        tolerance: the score by which a table may be off before its entries are sent again.
        drift: see `drifted`.
    """

    make: Callable[[NodeModel, Mapping[str, FeasibleInputTable]], FeasibleInputTable]
    tolerance: float = 0.0
    drift: float = DRIFT
    table: FeasibleInputTable | None = None
    version: int = 0
    _model: NodeModel | None = None
    _children: Mapping[str, FeasibleInputTable] = field(default_factory=dict)
    _sent: dict[int, FeasibleInputTable] = field(default_factory=dict)
    _known: int | None = None

    def update(self, model: NodeModel, children: Mapping[str, FeasibleInputTable]) -> bool:
        """Look at what is known now; whether the table was made again."""
        same = {name: id(table) for name, table in children.items()} == {
            name: id(table) for name, table in self._children.items()
        }
        if self.table is not None and self._model is not None and same and not drifted(self._model, model, self.drift):
            return False
        self.table = self.make(model, children)
        self._model, self._children = model, dict(children)
        self.version += 1
        return True

    def message(self, now_s: float) -> Message | None:
        """What to send to the parent now; None before there is a table.

        It says what changed since the version that the parent is known to have. A message without changes is sent as
        well: it says that the table still holds.
        """
        if self.table is None:
            return None
        base = self._sent.get(self._known) if self._known is not None else None
        if base is None or self._known is None:
            self._sent[self.version] = _travelling(self.table)
            return whole(self.table, self.version, now_s)
        outgoing = self._sent.get(self.version)
        if outgoing is None:
            outgoing = settled(self.table, base, self.tolerance) if self.tolerance > 0 else self.table
        message = changes(outgoing, self.version, now_s, base, self._known)
        # As the parent will put it together, so that both number the entries alike.
        self._sent[self.version] = message.applied_to(base, self._known)
        return message

    def heard(self, version: int | None) -> None:
        """The parent says which version it has; None if it has none, and needs the whole table."""
        self._known = version if version in self._sent else None
        for older in [one for one in self._sent if self._known is None or one < self._known]:
            del self._sent[older]


def _travelling(table: FeasibleInputTable) -> FeasibleInputTable:
    return replace(table, segments=(), flows=None, planless=None)
