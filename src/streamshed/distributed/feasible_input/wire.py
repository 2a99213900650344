"""Tables on the wire: a short JSON header, then packed columns; whole, or only what changed.

Local plans and what goes with them stay at home. A reader trusts nothing: sizes are bounded before anything is
unpacked, shapes have to match, rates and scores have to be finite and not negative.
"""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from streamshed.distributed.feasible_input.exact import Floats, Ints
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.errors import StreamshedError

MAGIC = b"FIT1"
MOST_BYTES = 4_000_000
"""The longest message that is read; unpacked it may be eight times as long."""
_MOST_UNPACKED = 8 * MOST_BYTES
_MOST_HEADER = 64_000
_MOST_ROWS = 2_000_000
_MOST_COLUMNS = 64


class MessageError(StreamshedError, ValueError):
    """A message that is refused."""


class BaseUnknownError(MessageError):
    """A message says what changed in a table that the reader does not have."""


@dataclass(frozen=True)
class Message:
    """A table on its way to a parent, or what has changed in it.

    Attributes:
        node: whose table it is.
        version: counts the tables of this node.
        made_at_s: when it was made, by the sender's clock.
        table: the whole table, or the entries that came in.
        base: the version that this says the changes of; None for a whole table.
        removed: of the entries of the base, the numbers of those that went.
    """

    node: str
    version: int
    made_at_s: float
    table: FeasibleInputTable | None
    base: int | None = None
    removed: tuple[int, ...] = ()
    max_error: float = 0.0

    def applied_to(self, known: FeasibleInputTable | None, known_version: int | None) -> FeasibleInputTable:
        """The table that the sender has."""
        if self.base is None:
            if self.table is None:
                raise MessageError("a message without a table", where=f"table of {self.node!r}", got="no entries")
            return self.table
        if known is None or known_version != self.base:
            raise BaseUnknownError(
                "the message is about changes of another table",
                where=f"table of {self.node!r}",
                got=f"changes of version {self.base}",
                expected=f"version {known_version}" if known_version is not None else "a whole table first",
                hint="ask for the whole table",
            )
        if any(row >= len(known) for row in self.removed):
            raise MessageError("an entry that is not there cannot go", where=f"table of {self.node!r}")
        stays = np.setdiff1d(np.arange(len(known)), np.array(self.removed, dtype=np.int64))
        part = replace(known.take(stays), flows=None, planless=None, max_error=self.max_error) if len(stays) else None
        if self.table is None or part is None:
            whole = part or self.table
            if whole is None:
                raise MessageError("nothing would be left of the table", where=f"table of {self.node!r}")
            return whole.best_first()
        if self.table.units != part.units or self.table.inputs != part.inputs:
            raise MessageError("the changes have other columns", where=f"table of {self.node!r}")
        return replace(
            part,
            counts=np.vstack([part.counts, self.table.counts]),
            scores=np.concatenate([part.scores, self.table.scores]),
        ).best_first()


def whole(table: FeasibleInputTable, version: int, made_at_s: float) -> Message:
    """A message with all of a table."""
    return Message(table.node, version, made_at_s, _travelling(table), max_error=table.max_error)


def changes(
    table: FeasibleInputTable, version: int, made_at_s: float, base: FeasibleInputTable, base_version: int
) -> Message:
    """A message with what changed since a table that the reader has; the whole table if that is shorter."""
    if base.inputs != table.inputs or base.units != table.units or base.mixing != table.mixing:
        return whole(table, version, made_at_s)
    old = {_key(base, row): row for row in range(len(base))}
    new = {_key(table, row): row for row in range(len(table))}
    came = np.array([row for key, row in new.items() if key not in old], dtype=np.int64)
    went = tuple(row for key, row in old.items() if key not in new)
    row_bytes = 8 * (len(table.inputs) + 1)
    if row_bytes * len(came) + 4 * len(went) >= row_bytes * len(table):
        return whole(table, version, made_at_s)
    added = _travelling(table.take(came)) if len(came) else None
    return Message(table.node, version, made_at_s, added, base_version, went, table.max_error)


def encode(message: Message) -> bytes:
    """A message as bytes."""
    header: dict[str, Any] = {
        "node": message.node,
        "version": message.version,
        "made_at_s": message.made_at_s,
        "max_error": message.max_error,
    }
    payload = b""
    if message.base is not None:
        header["base"] = message.base
        header["removed"] = len(message.removed)
        payload += np.array(message.removed, dtype="<u4").tobytes()
    table = message.table
    if table is not None:
        header |= {
            "inputs": list(table.inputs),
            "units": [str(unit) for unit in table.units],
            "rows": len(table),
            "mixing": table.mixing,
        }
        # By columns and as differences: neighbours are alike, and zeros pack well.
        steps = np.diff(table.counts, axis=0, prepend=0).astype("<i8")
        payload += steps.T.tobytes() + table.scores.astype("<f8").tobytes()
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text + zlib.compress(payload, 6)


def decode(data: bytes) -> Message:
    """The message in some bytes; raises `MessageError` on whatever is not one."""
    if len(data) > MOST_BYTES:
        raise MessageError(
            "the message is too large", where="table message", got=f"{len(data):,} bytes", expected=f"{MOST_BYTES:,}"
        )
    length = int.from_bytes(data[4:8], "little")
    if data[:4] != MAGIC or not 0 < length <= _MOST_HEADER or len(data) < 8 + length:
        raise _malformed("no table message", data[:8])
    try:
        header = json.loads(data[8 : 8 + length])
        unpack = zlib.decompressobj()
        payload = unpack.decompress(data[8 + length :], _MOST_UNPACKED)
        if unpack.unconsumed_tail or not unpack.eof:
            raise _malformed("the message is cut off, or too large when unpacked", len(payload))
        return _read(header, payload)
    except MessageError:
        raise
    except (ValueError, KeyError, TypeError, zlib.error, OverflowError, ZeroDivisionError, RecursionError) as error:
        raise _malformed("the message cannot be read", type(error).__name__) from None


def _read(header: dict[str, Any], payload: bytes) -> Message:
    node, version, made_at_s = header["node"], header["version"], header["made_at_s"]
    max_error = header["max_error"]
    if not (isinstance(node, str) and isinstance(version, int) and version >= 0):
        raise _malformed("the message names no node or version", header)
    for number in (made_at_s, max_error):
        if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
            raise _malformed("the message has a number that is none", number)
    base = header.get("base")
    removed: tuple[int, ...] = ()
    if base is not None:
        size = int(header["removed"])
        if not isinstance(base, int) or not 0 <= size <= _MOST_ROWS or len(payload) < 4 * size:
            raise _malformed("the message does not say what went", size)
        removed = tuple(int(row) for row in np.frombuffer(payload[: 4 * size], dtype="<u4"))
        payload = payload[4 * size :]
    table = _read_table(node, header, payload, max_error) if "rows" in header else None
    return Message(node, version, float(made_at_s), table, base, removed, float(max_error))


def _read_table(node: str, header: dict[str, Any], payload: bytes, max_error: float) -> FeasibleInputTable:
    rows, inputs = int(header["rows"]), header["inputs"]
    if not 0 < rows <= _MOST_ROWS or not 0 < len(inputs) <= _MOST_COLUMNS:
        raise _malformed("the table has no size that makes sense", f"{rows} × {len(inputs)}")
    units = tuple(Fraction(unit) for unit in header["units"])
    if len(units) != len(inputs) or len(set(inputs)) != len(inputs) or min(units) <= 0:
        raise _malformed("the columns make no sense", inputs)
    if not all(isinstance(name, str) for name in inputs) or len(payload) != 8 * rows * (len(inputs) + 1):
        raise _malformed("the columns are not as long as they say", len(payload))
    split = 8 * rows * len(inputs)
    steps: Ints = np.frombuffer(payload[:split], dtype="<i8").reshape(len(inputs), rows).T.astype(np.int64)
    counts: Ints = np.cumsum(steps, axis=0)
    scores: Floats = np.frombuffer(payload[split:], dtype="<f8").astype(np.float64)
    if counts.min() < 0 or not np.isfinite(scores).all() or scores.min() < 0:
        raise _malformed("a rate or score is negative or not finite", "numbers out of range")
    return FeasibleInputTable(
        node, tuple(inputs), units, counts, scores, mixing=bool(header["mixing"]), max_error=float(max_error)
    )


def _travelling(table: FeasibleInputTable) -> FeasibleInputTable:
    return replace(table, segments=(), flows=None, planless=None)


def _key(table: FeasibleInputTable, row: int) -> bytes:
    return bytes(table.counts[row].tobytes()) + np.float64(table.scores[row]).tobytes()


def _malformed(what: str, got: object) -> MessageError:
    return MessageError(what, where="table message", got=str(got)[:200], expected="a message made by `encode`")
