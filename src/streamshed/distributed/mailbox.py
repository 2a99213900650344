"""Where the tables of a node's children arrive, and what is refused.

A message that is malformed, too large, from a stranger, about other inputs, or older than what is known changes
nothing, and is logged. A table that has not been heard of for too long no longer counts: its node may be gone, so its
parent goes by its own constraints until it hears again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.wire import MessageError, decode
from streamshed.errors import did_you_mean

LOG = logging.getLogger("streamshed.distributed")
LOG.addHandler(logging.NullHandler())  # whoever runs the program decides where it is written

STALE_AFTER_S = 10.0
_AHEAD_S = 60.0


class StaleError(MessageError):
    """A message that comes too late."""


@dataclass(frozen=True)
class _Known:
    table: FeasibleInputTable
    version: int
    made_at_s: float
    heard_at_s: float


class Mailbox:
    """The newest table of every child. Safe to use from several threads.

    Args:
        children: who may send, and the inputs that its table may have columns for.
        stale_after_s: how old a message may be, and for how long a table counts without another message.
    """

    def __init__(self, children: Mapping[str, Collection[str]], stale_after_s: float = STALE_AFTER_S) -> None:
        self._children = {name: frozenset(inputs) for name, inputs in children.items()}
        self._stale_after_s = stale_after_s
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self.refused = 0

    def accept(self, data: bytes, now_s: float) -> int:
        """Take a message in.

        Returns:
            The version of the sender's table that is known now.

        Raises:
            MessageError: if it is refused; then nothing has changed.
        """
        try:
            with self._lock:
                return self._accept(data, now_s)
        except MessageError as error:
            self.refuse(error)
            raise

    def refuse(self, error: MessageError) -> None:
        """Count and log a refusal."""
        self.refused += 1
        LOG.warning("table message refused: %s (%s)", error.what, error.got or error.where)

    def _accept(self, data: bytes, now_s: float) -> int:
        message = decode(data)
        where = f"table of {message.node!r}"
        if message.node not in self._children:
            raise MessageError(
                "a message from a node that is no child", where=where, got=message.node,
                hint=did_you_mean(message.node, self._children),
            )  # fmt: skip
        age_s = now_s - message.made_at_s
        if not -_AHEAD_S <= age_s <= self._stale_after_s:
            raise StaleError(
                "the message is too old" if age_s > 0 else "the message is from the future",
                where=where,
                got=f"{age_s:.1f} s old",
                expected=f"at most {self._stale_after_s:g} s",
            )
        known = self._known.get(message.node)
        if known is not None and message.made_at_s < known.made_at_s:
            raise StaleError("a newer message is here already", where=where, got=f"version {message.version}")
        table = message.applied_to(known.table if known else None, known.version if known else None)
        if not self._children[message.node].issuperset(table.inputs):
            raise MessageError("the table has columns that are no inputs", where=where, got=", ".join(table.inputs))
        same = known is not None and known.version == message.version and message.table is None and not message.removed
        self._known[message.node] = _Known(
            known.table if same and known is not None else table, message.version, message.made_at_s, now_s
        )
        return message.version

    def version(self, child: str) -> int | None:
        """The version of a child's table that is known; None if there is none."""
        with self._lock:
            known = self._known.get(child)
            return None if known is None else known.version

    def tables(self, now_s: float) -> dict[str, FeasibleInputTable]:
        """The tables that count now: those that are not stale."""
        with self._lock:
            return {
                name: known.table
                for name, known in self._known.items()
                if now_s - known.heard_at_s <= self._stale_after_s
            }

    def ages_s(self, now_s: float) -> dict[str, float | None]:
        """For how long each child has not been heard of; None if never."""
        with self._lock:
            known = dict(self._known)
        return {name: now_s - known[name].heard_at_s if name in known else None for name in self._children}

    def silent(self, now_s: float) -> tuple[str, ...]:
        """The children without a table that counts."""
        fresh = self.tables(now_s)
        return tuple(name for name in self._children if name not in fresh)
