"""Tables on the wire byte by byte, when they are sent again, and what a mailbox makes of what comes too late."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.distributed import exchange
from streamshed.distributed.exchange import TableDirectory
from streamshed.distributed.feasible_input import wire
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.upkeep import DRIFT, TableKeeper, drifted, settled
from streamshed.distributed.feasible_input.wire import (
    MAGIC,
    BaseUnknownError,
    Message,
    MessageError,
    changes,
    decode,
    encode,
    whole,
)
from streamshed.distributed.mailbox import STALE_AFTER_S, Mailbox, StaleError
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.post import DirectoryPost, HttpPost
from tests.polling import PATIENCE_S

F = Fraction
B = NodeModel("B", ("b1", "b2"), (Segment("s1", "b1", 3.0, 0.5, "q1"), Segment("s2", "b2", 1.0, 1.0, "q2")), 1.0)


def table(*rows: tuple[int, int, float], mixing: bool = False, max_error: float = 0.5) -> FeasibleInputTable:
    """Rows of two counts and a score."""
    return FeasibleInputTable(
        "B", ("b1", "b2"), (F(1, 3), F(1)), np.array([row[:2] for row in rows]), np.array([row[2] for row in rows]),
        mixing=mixing, max_error=max_error,
    )  # fmt: skip


def rows_of(found: FeasibleInputTable | None) -> list[tuple[int, int, float]]:
    assert found is not None
    return [(int(one), int(two), float(score)) for (one, two), score in zip(found.counts, found.scores, strict=True)]


TABLE = table((0, 3, 3.0), (1, 2, 2.5), (1, 1, 1.5), (0, 1, 1.0), (0, 0, 0.0))


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_message_is_a_header_and_packed_columns() -> None:
    data = encode(whole(TABLE, 7, 100.5))
    length = int.from_bytes(data[4:8], "little")
    assert data[:4] == MAGIC == b"FIT1"
    assert json.loads(data[8 : 8 + length]) == {
        "node": "B", "version": 7, "made_at_s": 100.5, "max_error": 0.5,
        "inputs": ["b1", "b2"], "units": ["1/3", "1"], "rows": 5, "mixing": False,
    }  # fmt: skip
    payload = zlib.decompress(data[8 + length :])
    # By columns, as differences from row to row; then the scores.
    assert np.frombuffer(payload[:80], "<i8").tolist() == [0, 1, 0, -1, 0, 3, -1, -1, 0, -1]
    assert np.frombuffer(payload[80:], "<f8").tolist() == [3.0, 2.5, 1.5, 1.0, 0.0]


def test_names_travel_as_they_are_and_what_is_no_number_does_not() -> None:
    data = encode(whole(replace(TABLE, node="Köln"), 1, 100.0))
    assert "Köln".encode() in data
    assert decode(data).node == "Köln"
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            encode(whole(TABLE, 1, wrong))
        with pytest.raises(ValueError, match="JSON"):
            encode(whole(replace(TABLE, max_error=wrong), 1, 100.0))


def test_changes_are_what_came_in_and_the_numbers_of_what_went() -> None:
    new = table((0, 3, 3.0), (2, 1, 2.75), (1, 1, 1.5), (0, 0, 0.0), max_error=0.25)
    message = changes(new, 4, 101.0, TABLE, 3)
    assert (message.base, message.removed, rows_of(message.table)) == (3, (1, 3), [(2, 1, 2.75)])
    data = encode(message)
    length = int.from_bytes(data[4:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert (header["base"], header["removed"], header["rows"]) == (3, 2, 1)
    assert np.frombuffer(zlib.decompress(data[8 + length :])[:8], "<u4").tolist() == [1, 3]
    read = decode(data)
    assert (read.node, read.version, read.made_at_s, read.max_error) == ("B", 4, 101.0, 0.25)
    put_together = read.applied_to(TABLE, 3)
    assert rows_of(put_together) == rows_of(new)
    assert put_together.max_error == 0.25
    # An entry with the same rates and another score is another entry.
    rescored = changes(table((0, 3, 3.0), (1, 2, 2.4), (1, 1, 1.5), (0, 1, 1.0), (0, 0, 0.0)), 4, 101.0, TABLE, 3)
    assert (rescored.removed, rows_of(rescored.table)) == ((1,), [(1, 2, 2.4)])


def test_all_is_sent_where_that_is_not_longer() -> None:
    # An entry takes 24 bytes, the number of one that went 4.
    ten = table(*((0, 20 - row, 20.0 - row) for row in range(10)))
    nine_new = table((0, 20, 20.0), *((1, 19 - row, 19.0 - row) for row in range(9)))
    assert changes(nine_new, 2, 0.0, ten, 1).base is None, "9·24 + 9·4 > 10·24"
    eight_new = table((0, 20, 20.0), (0, 19, 19.0), *((1, 18 - row, 18.0 - row) for row in range(8)))
    assert changes(eight_new, 2, 0.0, ten, 1).base == 1, "8·24 + 8·4 < 10·24"
    six_gone = ten.take(np.array([0]))
    assert changes(six_gone, 2, 0.0, table(*rows_of(ten)[:6]), 1).base == 1, "5·4 < 24"
    assert changes(six_gone, 2, 0.0, table(*rows_of(ten)[:7]), 1).base is None, "6·4 = 24"
    for other in (
        replace(TABLE, units=(F(1, 2), F(1))), replace(TABLE, inputs=("b2", "b1")), replace(TABLE, mixing=True),
    ):  # fmt: skip
        assert changes(other, 2, 0.0, TABLE, 1).base is None


def test_changes_apply_to_the_table_that_they_are_about_only() -> None:
    message = Message("B", 5, 0.0, None, 3, (0,), 0.5)
    assert rows_of(message.applied_to(TABLE, 3)) == rows_of(TABLE)[1:]
    for known, version in ((TABLE, 4), (TABLE, 2), (TABLE, None), (None, 3)):
        with pytest.raises(BaseUnknownError, match="another table"):
            message.applied_to(known, version)
    assert Message("B", 5, 0.0, TABLE).applied_to(None, None) is TABLE
    assert rows_of(Message("B", 5, 0.0, None, 3, (4,)).applied_to(TABLE, 3)) == rows_of(TABLE)[:4]
    with pytest.raises(MessageError, match="not there"):
        Message("B", 5, 0.0, None, 3, (5,)).applied_to(TABLE, 3)
    with pytest.raises(MessageError, match="nothing would be left"):
        Message("B", 5, 0.0, None, 3, (0, 1, 2, 3, 4)).applied_to(TABLE, 3)
    with pytest.raises(MessageError, match="without a table"):
        Message("B", 5, 0.0, None).applied_to(TABLE, 3)
    everything_new = Message("B", 5, 0.0, table((0, 1, 1.0), (5, 5, 9.0)), 3, (0, 1, 2, 3, 4))
    assert rows_of(everything_new.applied_to(TABLE, 3)) == [(5, 5, 9.0), (0, 1, 1.0)], "the best first"
    for other in (replace(TABLE, units=(F(1, 2), F(1))), replace(TABLE, inputs=("b1", "b3"))):
        with pytest.raises(MessageError, match="other columns"):
            Message("B", 5, 0.0, other, 3, (0,)).applied_to(TABLE, 3)


counts = st.integers(0, 2**40)
scores = st.floats(0, 1e12, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(counts, counts, scores), min_size=1, max_size=12, unique_by=lambda row: row[:2]),
    units=st.tuples(st.fractions(1e-6, 1e6), st.fractions(1e-6, 1e6)),
    mixing=st.booleans(),
    made_at_s=st.floats(0, 2e9),
    kept=st.sets(st.integers(0, 11)),
)
def test_whatever_is_sent_comes_back(
    rows: list[tuple[int, int, float]], units: tuple[Fraction, Fraction], mixing: bool, made_at_s: float, kept: set[int]
) -> None:
    sent = replace(table(*rows, mixing=mixing), units=units)
    read = decode(encode(whole(sent, 3, made_at_s)))
    assert (read.node, read.version, read.made_at_s, read.base, read.removed) == ("B", 3, made_at_s, None, ())
    assert read.table is not None
    assert rows_of(read.table) == rows
    assert (read.table.units, read.table.mixing, read.table.max_error) == (units, mixing, 0.5)
    stays = sorted(number for number in kept if number < len(rows))
    if stays:
        fewer = replace(sent.take(np.array(stays)), max_error=0.75)
        told = decode(encode(changes(fewer, 4, made_at_s, sent, 3))).applied_to(read.table, 3)
        assert sorted(rows_of(told)) == sorted(rows_of(fewer))
        assert told.max_error == 0.75


def header_of(message: Message, **other: Any) -> bytes:
    """A message with another header."""
    data = encode(message)
    length = int.from_bytes(data[4:8], "little")
    fields = {**json.loads(data[8 : 8 + length]), **other}
    text = json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text + data[8 + length :]


CHANGED = changes(TABLE.take(np.array([0, 2, 3, 4])), 4, 101.0, TABLE, 3)
SPOILT = [
    header_of(whole(TABLE, 1, 0.0), max_error=...),
    header_of(whole(TABLE, 1, 0.0), max_error="0.1"),
    header_of(whole(TABLE, 1, 0.0), max_error=True),
    header_of(whole(TABLE, 1, 0.0), max_error=float("nan")),
    header_of(whole(TABLE, 1, 0.0), made_at_s=float("inf")),
    header_of(whole(TABLE, 1, 0.0), version=1.5),
    header_of(whole(TABLE, 1, 0.0), units=["1/3", "-1"]),
    header_of(whole(TABLE, 1, 0.0), units=["1/3", "1", "1"]),
    header_of(whole(TABLE, 1, 0.0), rows=4),
    header_of(whole(TABLE, 1, 0.0), rows=6),
    header_of(whole(TABLE, 1, 0.0), rows=0),
    header_of(whole(TABLE, 1, 0.0), rows=-5),
    header_of(whole(TABLE, 1, 0.0), inputs=[], units=[]),
    header_of(whole(TABLE, 1, 0.0), mixing=...),
    header_of(CHANGED, removed=...),
    header_of(CHANGED, removed=-1),
    header_of(CHANGED, removed=2),
    header_of(CHANGED, removed=3_000_000),
    header_of(CHANGED, base="3"),
    b"FIT2" + encode(whole(TABLE, 1, 0.0))[4:],
    encode(whole(TABLE, 1, 0.0))[:8],
    MAGIC + (0).to_bytes(4, "little") + zlib.compress(b""),
]


@pytest.mark.parametrize("data", SPOILT, ids=range(len(SPOILT)))
def test_what_is_spoilt_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode(data)


def test_how_large_a_message_may_be() -> None:
    short, long = "not as long as they say", "no size that makes sense"
    for rows, what in ((2_000_000, short), (2_000_001, long)):
        with pytest.raises(MessageError, match=what):
            decode(header_of(whole(TABLE, 1, 0.0), rows=rows))
    for columns, what in ((64, short), (65, long)):
        names = [f"c{number}" for number in range(columns)]
        with pytest.raises(MessageError, match=what):
            decode(header_of(whole(TABLE, 1, 0.0), inputs=names, units=["1"] * columns))
    with pytest.raises(MessageError, match="no table message"):
        decode(b"\0" * 4_000_000)
    with pytest.raises(MessageError, match="too large"):
        decode(b"\0" * 4_000_001)
    data = encode(whole(TABLE, 1, 0.0))
    length = int.from_bytes(data[4:8], "little")
    header, rest = data[8 : 8 + length], data[8 + length :]
    padded = header + b" " * (64_000 - length)
    assert decode(MAGIC + len(padded).to_bytes(4, "little") + padded + rest).version == 1
    padded += b" "
    with pytest.raises(MessageError, match="no table message"):
        decode(MAGIC + len(padded).to_bytes(4, "little") + padded + rest)
    with pytest.raises(MessageError) as refused:
        decode(header_of(whole(TABLE, 1, 0.0), version=-1, padding="x" * 500))
    assert len(str(refused.value.got)) == 200, "a part of it tells enough"
    assert Message("B", 1, 0.0, None).max_error == 0.0


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(whole(TABLE, 1, 0.0))
    length = int.from_bytes(data[4:8], "little")
    for name, most in (("MOST_BYTES", len(data)), ("_MOST_HEADER", length), ("_MOST_ROWS", 5), ("_MOST_COLUMNS", 2)):
        monkeypatch.setattr(wire, name, most)
        assert decode(data).version == 1
        monkeypatch.setattr(wire, name, most - 1)
        with pytest.raises(MessageError):
            decode(data)
        monkeypatch.undo()
    monkeypatch.setattr(wire, "_MOST_UNPACKED", 119)
    with pytest.raises(MessageError, match="too large when unpacked"):
        decode(data)


# --- upkeep ----------------------------------------------------------------------------------------------------------


def changed(number: int, **new: Any) -> NodeModel:
    segments = list(B.segments)
    segments[number] = replace(segments[number], **new)
    return replace(B, segments=tuple(segments))


@pytest.mark.parametrize(
    ("before", "factor", "drifts"),
    [
        (what, factor, drifts)
        for what in ("cost", "selectivity")
        for factor, drifts in ((1.03, True), (1.01, False), (0.97, True), (0.99, False), (0.0, True))
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_table_is_made_again_when_a_cost_or_a_selectivity_drifts(
    before: str, factor: float, drifts: bool, number: int
) -> None:
    assert drifted(B, changed(number, **{before: getattr(B.segments[number], before) * factor})) is drifts


def test_drift_is_relative_to_the_greater_value() -> None:
    assert DRIFT == 0.02
    assert not drifted(B, B)
    assert drifted(B, replace(B, capacity=0.9))
    assert not drifted(B, replace(B, capacity=0.99))
    wide = replace(B, capacity=64.0)
    assert not drifted(wide, replace(B, capacity=48.0), 0.25), "just the tolerance is no drift"
    assert drifted(wide, replace(B, capacity=47.9), 0.25)
    assert not drifted(replace(B, capacity=48.0), wide, 0.25), "either way"
    assert drifted(B, changed(0, cost=3.001), 0.0)
    free = changed(1, cost=0.0)
    assert not drifted(free, free)
    assert drifted(free, B)
    for other in (changed(0, id="s3"), changed(0, end="q3"), replace(B, segments=B.segments[::-1])):
        assert drifted(B, other)
    assert drifted(replace(B, segments=B.segments[:1]), B)


def test_old_entries_stay_where_they_say_nothing_else() -> None:
    old = table((0, 6, 6.0), (6, 0, 3.0), (0, 0, 0.0), mixing=True)
    # A quarter more modest, and the tolerance is a half: the old entries promise no more than can be kept.
    bolder = table((0, 6, 6.25), (6, 0, 3.25), (0, 0, 0.0), mixing=True, max_error=0.1)
    kept = settled(bolder, old, 0.5)
    assert rows_of(kept) == rows_of(old)
    assert kept.max_error == 0.6
    assert rows_of(settled(bolder, old, 0.25)) == rows_of(old), "just so"
    assert rows_of(settled(bolder, old, 0.125)) == rows_of(bolder), "then they are too modest"
    # One that promises too much goes, however little, and the new one comes.
    meeker = table((0, 6, 5.875), (6, 0, 3.125), (0, 0, 0.0), mixing=True)
    assert rows_of(settled(meeker, old, 0.5)) == [(0, 6, 5.875), (6, 0, 3.0), (0, 0, 0.0)]
    # A new entry that mixtures of old ones come close to is not needed, one that is better is.
    more = table((0, 6, 6.0), (3, 3, 4.75), (6, 0, 3.0), (0, 0, 0.0), mixing=True)
    assert rows_of(settled(more, old, 0.5)) == rows_of(old), "half of each is worth 4.5"
    assert rows_of(settled(more, old, 0.125)) == rows_of(more)
    assert settled(more, old, 0.125).max_error == 0.625


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_what_can_be_kept_is_judged_by_the_size_of_scores(size: float) -> None:
    new = table((0, 6, 6.0 * size), mixing=True)
    for factor, stays in ((1 + 5e-8, True), (1 + 1e-5, False)):
        old = table((0, 6, 6.0 * size * factor), mixing=True)
        assert rows_of(settled(new, old, 0.1 * size)) == rows_of(old if stays else new)


def test_tables_of_another_kind_are_taken_as_they_are() -> None:
    old = table((0, 6, 6.0), (0, 0, 0.0), mixing=True)
    for new in (
        replace(old, units=(F(1), F(1))), replace(old, inputs=("b1", "b3")), replace(old, mixing=False),
    ):  # fmt: skip
        assert settled(new, old, 0.5) is new
    meek = table((0, 6, 5.0), (0, 0, 0.0), mixing=True)
    assert settled(meek, old.take(np.array([0])), 0.5) is meek, "nothing of the old one can be kept"


def test_a_keeper_makes_a_table_again_when_the_node_or_a_child_has_changed() -> None:
    made: list[tuple[float, tuple[str, ...]]] = []

    def make(model: NodeModel, children: Mapping[str, FeasibleInputTable]) -> FeasibleInputTable:
        made.append((float(model.segments[0].cost), tuple(children)))
        return TABLE

    keeper = TableKeeper(make)
    assert (keeper.table, keeper.version, keeper.message(0.0)) == (None, 0, None)
    child, other = table((0, 1, 1.0)), table((0, 1, 1.0))
    looks = [
        (B, {}, True), (B, {}, False), (changed(0, cost=3.05), {}, False), (changed(0, cost=3.1), {}, True),
        (changed(0, cost=3.05), {}, False), (B, {}, True), (B, {"C": child}, True), (B, {"C": child}, False),
        (B, {"C": other}, True), (B, {"D": other}, True), (B, {}, True), (changed(1, selectivity=0.9), {}, True),
        (replace(changed(1, selectivity=0.9), capacity=2.0), {}, True),
    ]  # fmt: skip
    version = 0
    for model, children, anew in looks:
        assert keeper.update(model, children) is anew
        version += anew
        assert keeper.version == version
    assert len(made) == version
    # Small steps are drift, too: what counts is the table's model, not the last one looked at.
    slow = TableKeeper(make)
    found = [slow.update(changed(0, cost=3.0 * 1.01**step), {}) for step in range(6)]
    assert found == [True, False, False, True, False, False]
    strict = TableKeeper(make, drift=0.5)
    assert [strict.update(model, {}) for model in (B, changed(0, cost=5.9), changed(0, cost=6.1))] == [
        True,
        False,
        True,
    ]


def test_a_keeper_sends_what_changed_since_what_the_parent_has() -> None:
    tables = iter(
        [*(TABLE.take(np.array(rows)) for rows in ([0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 3, 4])), TABLE]
    )
    keeper = TableKeeper(lambda *_: next(tables))
    keeper.update(B, {})

    def sent(now_s: float) -> tuple[int, int | None, tuple[int, ...], bool]:
        message = keeper.message(now_s)
        assert message is not None
        assert message.made_at_s == now_s
        return message.version, message.base, message.removed, message.table is not None

    assert sent(1.0) == (1, None, (), True)
    assert sent(2.0) == (1, None, (), True), "nothing was heard: all of it again"
    keeper.heard(1)
    assert sent(3.0) == (1, 1, (), False), "it still holds"
    keeper.update(changed(0, cost=4.0), {})
    assert sent(4.0) == (2, 1, (1,), False)
    keeper.update(changed(0, cost=5.0), {})
    assert sent(5.0) == (3, 1, (2,), False), "the second was lost"
    keeper.heard(3)
    keeper.update(changed(0, cost=6.0), {})
    assert sent(6.0) == (4, 3, (1,), False)
    keeper.heard(1)  # of which it does not know any more what it was
    assert sent(7.0) == (4, None, (), True)
    keeper.heard(4)
    assert sent(8.0) == (4, 4, (), False)
    keeper.heard(None)
    assert sent(9.0) == (4, None, (), True)
    keeper.heard(5)  # what it never sent
    assert sent(9.0) == (4, None, (), True)
    keeper.update(changed(0, cost=7.0), {})
    assert sent(10.0) == sent(11.0) == (5, None, (), True), "nobody has said that it has this one"
    assert (keeper.tolerance, keeper.drift) == (0.0, 0.02)


@pytest.mark.parametrize(("tolerance", "kept"), [(0.0, False), (0.25, True), (0.5, True)])
def test_a_keeper_with_a_tolerance_keeps_entries_that_are_right_enough(tolerance: float, kept: bool) -> None:
    old = table((0, 6, 6.0), (3, 3, 4.5), (6, 0, 3.0), mixing=True)
    new = table((0, 6, 6.0 + tolerance / 2), (6, 0, 3.0 + tolerance / 2), mixing=True)
    tables = iter([old, new])
    keeper = TableKeeper(lambda *_: next(tables), tolerance=tolerance)
    keeper.update(B, {})
    assert keeper.message(0.0) is not None
    keeper.heard(1)
    keeper.update(replace(B, capacity=2.0), {})
    message = keeper.message(1.0)
    assert message is not None
    assert rows_of(message.applied_to(old, 1)) == rows_of(old if kept else new)


def test_what_a_keeper_sends_has_no_local_plans() -> None:
    plans = replace(TABLE, segments=("s1",), flows=np.ones((5, 1)), planless=np.ones(5, dtype=bool))
    keeper = TableKeeper(lambda *_: plans)
    keeper.update(B, {})
    message = keeper.message(0.0)
    assert message is not None
    assert message.table is not None
    assert (message.table.segments, message.table.flows, message.table.planless) == ((), None, None)
    keeper.heard(1)
    assert keeper.table is plans


# --- the mailbox -----------------------------------------------------------------------------------------------------


def box() -> Mailbox:
    return Mailbox({"B": ("b1", "b2"), "C": ("c1",)}, stale_after_s=8.0)


def test_messages_are_taken_in_their_order_each_once_or_twice() -> None:
    of = box()
    later = replace(TABLE, scores=TABLE.scores * 2)
    assert of.accept(encode(whole(TABLE, 1, 100.0)), 101.0) == 1
    assert of.accept(encode(whole(TABLE, 1, 100.0)), 102.0) == 1, "the same again changes nothing"
    assert of.accept(encode(whole(later, 2, 103.0)), 103.5) == 2
    with pytest.raises(StaleError, match="newer"):
        of.accept(encode(whole(TABLE, 1, 102.9)), 104.0)  # it was held up on its way
    assert (of.version("B"), of.refused) == (2, 1)
    assert rows_of(of.tables(104.0)["B"]) == rows_of(later)
    # Changes are taken once: then they are about a table that is not there any more.
    fewer = changes(later.take(np.array([0, 1, 2, 3])), 3, 104.0, later, 2)
    assert of.accept(encode(fewer), 104.0) == 3
    with pytest.raises(BaseUnknownError):
        of.accept(encode(replace(fewer, made_at_s=105.0)), 105.0)
    with pytest.raises(BaseUnknownError):
        of.accept(encode(replace(fewer, base=9, made_at_s=105.0)), 105.0)
    assert (of.version("B"), of.version("C"), of.refused) == (3, None, 3)
    assert len(of.tables(105.0)["B"]) == 4


def test_a_message_may_be_as_old_as_a_table_counts_and_a_minute_ahead() -> None:
    for made_at_s, what in ((91.9, "too old"), (160.1, "future")):
        with pytest.raises(StaleError, match=what):
            box().accept(encode(whole(TABLE, 1, made_at_s)), 100.0)
    for made_at_s in (92.0, 99.9, 100.0, 160.0):
        assert box().accept(encode(whole(TABLE, 1, made_at_s)), 100.0) == 1


def test_a_table_counts_for_as_long_as_it_is_heard_of() -> None:
    of = box()
    assert (of.tables(0.0), of.silent(0.0), of.ages_s(0.0)) == ({}, ("B", "C"), {"B": None, "C": None})
    of.accept(encode(whole(TABLE, 1, 95.0)), 100.0)
    assert of.ages_s(103.0) == {"B": 3.0, "C": None}, "since it was heard, not since it was made"
    assert (list(of.tables(108.0)), of.silent(108.0)) == (["B"], ("C",))
    assert (list(of.tables(108.1)), of.silent(108.1)) == ([], ("B", "C"))
    assert of.version("B") == 1, "what it was is still known"
    still = changes(TABLE, 1, 108.0, TABLE, 1)
    assert of.accept(encode(still), 109.0) == 1
    assert of.tables(117.0)["B"] is of.tables(110.0)["B"]
    assert Mailbox({"B": ("b1", "b2")})._stale_after_s == STALE_AFTER_S == 10.0


def test_a_table_that_holds_stays_the_same_object_and_one_that_changed_does_not() -> None:
    of = box()
    of.accept(encode(whole(TABLE, 1, 100.0)), 100.0)
    first = of.tables(100.0)["B"]
    of.accept(encode(changes(TABLE, 1, 101.0, TABLE, 1)), 101.0)
    assert of.tables(101.0)["B"] is first, "nobody has to build on it anew"
    of.accept(encode(changes(TABLE.take(np.array([0, 1, 2, 3])), 1, 102.0, TABLE, 1)), 102.0)
    assert of.tables(102.0)["B"] is not first
    of.accept(encode(Message("B", 2, 103.0, None, 1, (), 0.25)), 103.0)
    assert of.version("B") == 2
    assert of.tables(103.0)["B"].max_error == 0.25


def test_strangers_and_other_columns_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    of = box()
    with caplog.at_level(logging.WARNING):
        with pytest.raises(MessageError, match="no child"):
            of.accept(encode(whole(replace(TABLE, node="D"), 1, 100.0)), 100.0)
        with pytest.raises(MessageError, match="no inputs"):
            of.accept(encode(whole(replace(TABLE, node="C"), 1, 100.0)), 100.0)
        with pytest.raises(MessageError, match="no inputs"):
            of.accept(encode(whole(replace(TABLE, inputs=("b1", "c1")), 1, 100.0)), 100.0)
    assert (of.refused, len(caplog.records)) == (3, 3)
    one = FeasibleInputTable("B", ("b2",), (F(1),), np.array([[1]]), np.array([1.0]))
    assert of.accept(encode(whole(one, 1, 100.0)), 100.0) == 1, "a part of the columns will do"


# --- directories -----------------------------------------------------------------------------------------------------


def test_a_file_is_read_once_and_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, directory = box(), TableDirectory(tmp_path / "deep" / "tables")
    accepted: list[int] = []
    accept = of.accept

    def noted(data: bytes, now_s: float) -> int:
        accepted.append(len(data))
        return accept(data, now_s)

    monkeypatch.setattr(of, "accept", noted)
    assert directory.collect("B", of, 100.0) is None
    directory.publish("B", encode(whole(TABLE, 1, 100.0)))
    assert [directory.collect("B", of, 100.0) for _ in range(3)] == [1, 1, 1]
    assert len(accepted) == 1
    directory.publish("B", encode(whole(TABLE, 20, 101.0)))
    assert [directory.collect("B", of, 101.0) for _ in range(2)] == [20, 20]
    assert len(accepted) == 2
    directory.publish("B", encode(whole(TABLE, 21, 1.0)))
    assert [directory.collect("B", of, 101.0) for _ in range(2)] == [20, 20]
    assert (len(accepted), of.refused) == (3, 1), "what was refused once is not looked at again"
    file = next((tmp_path / "deep" / "tables").iterdir())
    for second, version in ((1, 22), (2, 23)):  # as long as before, and written at another time
        directory.publish("B", encode(whole(TABLE, version, 102.0)))
        os.utime(file, (second, second))
        assert [directory.collect("B", of, 102.0) for _ in range(2)] == [version, version]
    data = encode(whole(TABLE, 24, 1030.5))
    file.write_bytes(data)
    os.utime(file, (2, 2))  # at the same time, and longer
    assert directory.collect("B", of, 1030.5) == 24
    monkeypatch.setattr(exchange, "MOST_BYTES", len(data))
    file.write_bytes(encode(whole(TABLE, 25, 1030.5)))
    os.utime(file, (2.5, 2.5))
    assert directory.collect("B", of, 1030.5) == 25
    monkeypatch.setattr(exchange, "MOST_BYTES", len(data) - 1)
    os.utime(file, (3, 3))
    refused = of.refused
    assert [directory.collect("B", of, 1031.0) for _ in range(2)] == [25, 25]
    assert of.refused == refused + 1, "too large, and said so once"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = TableDirectory(tmp_path)
    directory.publish("a/b", b"old")

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError, match="full"):
        directory.publish("a/b", b"new")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"old"]


def test_a_directory_post_sends_whole_tables_to_every_parent(tmp_path: Path) -> None:
    of = Mailbox({"B": ("b1", "b2")})
    keepers = {
        "P": TableKeeper(lambda *_: TABLE),
        "Q": TableKeeper(lambda *_: TABLE),
        "R": TableKeeper(lambda *_: TABLE),
    }
    for name in "PQ":
        keepers[name].update(B, {})
    post = DirectoryPost(tmp_path, "B", [], Mailbox({}))
    for now_s in (100.0, 101.0):
        post.deliver(keepers, now_s)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["B", "P", "Q"], "R has no table yet"
    for name in "PQ":
        message = decode((tmp_path / name / "B.fit").read_bytes())
        assert (message.base, message.made_at_s, rows_of(message.table)) == (None, 101.0, rows_of(TABLE))
    parent = DirectoryPost(tmp_path, "P", ["A", "B"], of)
    parent.collect(102.0)
    assert of.version("B") == 1
    parent.close()
    post.close()


def test_over_http_a_parent_gets_changes_and_all_of_it_after_it_began_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamshed.distributed.post._SEND_TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(exchange, "_TIMEOUT_S", PATIENCE_S)
    token, seen = "a token of some length", []
    keeper, silent = TableKeeper(lambda *_: TABLE), TableKeeper(lambda *_: TABLE)
    keeper.update(B, {})

    def parent(of: Mailbox) -> HttpPost:
        accept = of.accept

        def noted(data: bytes, now_s: float) -> int:
            message = decode(data)
            seen.append((message.version, message.base, message.made_at_s, now_s))
            return accept(data, now_s)

        monkeypatch.setattr(of, "accept", noted)
        return HttpPost(tmp_path, "P", ["B"], of, token, clock=lambda: 100.0)

    child = HttpPost(tmp_path, "B", [], Mailbox({}), token)
    assert not list(tmp_path.iterdir()), "who has no children does not listen"
    child.deliver({"P": keeper}, 99.0)  # nobody is there yet
    first = parent(box())
    child.deliver({"P": keeper, "Q": silent}, 99.0)
    child.deliver({"P": keeper}, 99.5)
    first.close()
    second = parent(box())  # knows nothing: it asks for the whole table, and then has it
    for now_s in (100.0, 100.5, 101.0):
        child.deliver({"P": keeper}, now_s)
    second.close()
    child.close()
    assert seen == [
        (1, None, 99.0, 100.0), (1, 1, 99.5, 100.0),
        (1, 1, 100.0, 100.0), (1, None, 100.5, 100.0), (1, 1, 101.0, 100.0),
    ]  # fmt: skip
