"""Tables on the wire: what travels, what is refused, what changes when little has changed."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from streamshed.distributed.exchange import PATH, TableDirectory, TableEndpoint, send
from streamshed.distributed.feasible_input.corners import corner_table
from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.upkeep import TableKeeper, drifted
from streamshed.distributed.feasible_input.wire import (
    MAGIC,
    MOST_BYTES,
    BaseUnknownError,
    MessageError,
    changes,
    decode,
    encode,
    whole,
)
from streamshed.distributed.mailbox import Mailbox, StaleError
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.scores import Throughput
from streamshed.errors import InvalidValueError
from tests.polling import PATIENCE_S, wait_for

TOTAL = Throughput()
TOKEN = "a token of some length"
B = NodeModel("B", ("b1", "b2"), (Segment("s1", "b1", 3, 0.5, "q1"), Segment("s2", "b2", 1, 1.0, "q2")))
TABLE = grid_table(B, TOTAL, MaxError(0.1))


def costing(cost: float) -> NodeModel:
    return replace(B, segments=(replace(B.segments[0], cost=cost), B.segments[1]))


def mailbox() -> Mailbox:
    return Mailbox({"B": ("b1", "b2")}, stale_after_s=10.0)


def same(one: FeasibleInputTable, other: FeasibleInputTable) -> bool:
    return (
        one.inputs == other.inputs
        and one.units == other.units
        and np.array_equal(one.counts, other.counts)
        and np.array_equal(one.scores, other.scores)
    )


def tampered(**header: object) -> bytes:
    data = encode(whole(TABLE, 1, 100.0))
    length = int.from_bytes(data[4:8], "little")
    text = json.dumps({**json.loads(data[8 : 8 + length]), **header}).encode()
    return MAGIC + len(text).to_bytes(4, "little") + text + data[8 + length :]


def test_a_table_comes_back_as_it_was_without_its_local_plans() -> None:
    data = encode(whole(TABLE, 7, 100.0))
    message = decode(data)
    assert (message.node, message.version, message.made_at_s) == ("B", 7, 100.0)
    assert message.table is not None
    assert same(message.table, TABLE)
    assert message.table.flows is None
    assert message.table.max_error == TABLE.max_error
    assert len(data) < 600  # 48 entries of three numbers


BAD = [
    b"",
    b"hello",
    encode(whole(TABLE, 1, 100.0))[:-5],
    tampered(rows=47),
    tampered(rows=10**9),
    tampered(rows="many"),
    tampered(units=["1/10", "0"]),
    tampered(units=["1/10", "1/0"]),
    tampered(units=["1/10"]),
    tampered(inputs=["b1", "b1"]),
    tampered(inputs=[1, 2]),
    tampered(made_at_s="now"),
    tampered(version=-1),
    tampered(node=None),
    tampered(node="stranger"),
    tampered(inputs=["b1", "x"]),
    MAGIC + (2).to_bytes(4, "little") + b"{}" + zlib.compress(b""),
    MAGIC + (2).to_bytes(4, "little") + b"[]" + zlib.compress(b""),
    MAGIC + (10**6).to_bytes(4, "little") + b"{}",
    encode(whole(replace(TABLE, scores=-TABLE.scores), 1, 100.0)),
    encode(whole(replace(TABLE, scores=np.full(len(TABLE), np.inf)), 1, 100.0)),
    encode(whole(replace(TABLE, counts=-TABLE.counts), 1, 100.0)),
    b"\0" * (MOST_BYTES + 1),
]


@pytest.mark.parametrize("data", BAD, ids=range(len(BAD)))
def test_bad_messages_are_refused_and_logged_and_change_nothing(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    box = mailbox()
    box.accept(encode(whole(TABLE, 1, 100.0)), 100.0)
    before = box.tables(100.0)["B"]
    with caplog.at_level(logging.WARNING), pytest.raises(MessageError):
        box.accept(data, 101.0)
    assert box.tables(101.0)["B"] is before
    assert box.version("B") == 1
    assert box.refused == 1
    assert "refused" in caplog.text


def test_what_unpacks_to_too_much_is_refused() -> None:
    bomb = zlib.compress(b"\0" * (9 * MOST_BYTES))
    with pytest.raises(MessageError, match="too large when unpacked"):
        decode(MAGIC + (2).to_bytes(4, "little") + b"{}" + bomb)


def test_stale_messages_and_tables() -> None:
    box = mailbox()
    assert box.silent(0.0) == ("B",)
    with pytest.raises(StaleError, match="too old"):
        box.accept(encode(whole(TABLE, 1, 80.0)), 100.0)
    with pytest.raises(StaleError, match="future"):
        box.accept(encode(whole(TABLE, 1, 1000.0)), 100.0)
    box.accept(encode(whole(TABLE, 2, 99.0)), 100.0)
    with pytest.raises(StaleError, match="newer"):
        box.accept(encode(whole(TABLE, 1, 98.0)), 100.0)
    assert box.tables(109.0) != {}
    assert box.tables(111.0) == {}
    assert box.silent(111.0) == ("B",)
    # A node that began again counts its versions anew; its clock goes on.
    assert box.accept(encode(whole(TABLE, 0, 112.0)), 112.0) == 0
    assert box.tables(112.0) != {}


def test_only_changes_travel() -> None:
    dearer = grid_table(costing(3.2), TOTAL, MaxError(0.1))
    message = changes(dearer, 2, 101.0, TABLE, 1)
    assert message.base == 1
    assert message.table is None  # nothing came in; what is no longer feasible went
    assert len(message.removed) == len(TABLE) - len(dearer)
    assert len(encode(message)) < len(encode(whole(dearer, 2, 101.0)))
    read = decode(encode(message))
    assert same(read.applied_to(TABLE, 1), dearer)
    with pytest.raises(BaseUnknownError):
        read.applied_to(TABLE, 3)
    with pytest.raises(BaseUnknownError):
        read.applied_to(None, None)
    nothing = changes(dearer, 3, 102.0, dearer, 2)
    assert (nothing.table, nothing.removed) == (None, ())
    finer = grid_table(B, TOTAL, MaxError(0.05))
    assert changes(finer, 2, 101.0, TABLE, 1).base is None  # another grid: all of it


def test_a_keeper_sends_what_drift_changed_and_survives_losses() -> None:
    def make(model: NodeModel, children: Mapping[str, FeasibleInputTable]) -> FeasibleInputTable:
        return corner_table(model, TOTAL, MaxError(0.001), children.values())

    keeper = TableKeeper(make, tolerance=0.01)
    assert keeper.message(0.0) is None
    assert keeper.update(B, {})
    box = mailbox()
    first = keeper.message(0.0)
    assert first is not None
    keeper.heard(box.accept(encode(first), 0.0))
    assert not keeper.update(costing(3.03), {})  # 1 % is noise
    assert drifted(B, costing(3.2))
    still = keeper.message(1.0)
    assert still is not None
    assert (still.base, still.table, still.removed) == (1, None, ())
    table = box.tables(0.0)["B"]
    box.accept(encode(still), 1.0)
    assert box.tables(1.0)["B"] is table
    # The dear query's corner moves, that of the other one stays.
    assert keeper.update(costing(3.5), {})
    moved = keeper.message(2.0)
    assert moved is not None
    assert moved.base == 1
    assert len(moved.removed) < len(table)
    # The message is lost, and another drift comes: the next one still builds on what the parent has.
    assert keeper.update(costing(3.8), {})
    later = keeper.message(3.0)
    assert later is not None
    assert later.base == 1
    keeper.heard(box.accept(encode(later), 3.0))
    known = box.tables(3.0)["B"]
    for b1, b2 in ((0.2, 0.0), (0.1, 0.4), (1.0, 1.0), (0.05, 0.9)):
        rates = {"b1": b1, "b2": b2}
        assert keeper.table is not None
        assert known.decide(rates).score == pytest.approx(keeper.table.decide(rates).score, abs=0.011)
        assert known.decide(rates).score <= keeper.table.decide(rates).score + 1e-4
    keeper.heard(None)  # the parent began again
    again = keeper.message(4.0)
    assert again is not None
    assert again.base is None


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint gives nobody up while the tests run."""
    monkeypatch.setattr("streamshed.distributed.exchange._TIMEOUT_S", PATIENCE_S)


def post(url: str, data: bytes, headers: dict[str, str], method: str = "POST") -> int:
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_an_endpoint_says_how_it_wants_its_tables(method: str, caplog: pytest.LogCaptureFixture) -> None:
    box = mailbox()
    with TableEndpoint(box, TOKEN) as endpoint, caplog.at_level(logging.WARNING):
        assert post(endpoint.url, b"", {"Authorization": f"Bearer {TOKEN}"}, method) == 405
    assert box.refused == 1
    assert f"tables are sent by POST ({method})" in caplog.text


def test_an_endpoint_takes_tables_in_and_refuses_the_rest() -> None:
    box = mailbox()
    threads = threading.active_count()
    good = encode(whole(TABLE, 3, 100.0))
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    with TableEndpoint(box, TOKEN, clock=lambda: 100.0) as endpoint:
        assert endpoint.url.startswith("http://127.0.0.1:")
        assert post(endpoint.url, good, {}) == 401
        assert post(endpoint.url, good, {"Authorization": "Bearer something else"}) == 401
        assert post(endpoint.url + "/elsewhere", good, allowed) == 404
        assert post(endpoint.url, b"nonsense", allowed) == 400
        assert post(endpoint.url, encode(whole(TABLE, 3, 1.0)), allowed) == 410
        assert post(endpoint.url, encode(changes(TABLE, 4, 100.0, TABLE, 3)), allowed) == 409
        assert post(endpoint.url, b"x", {**allowed, "Content-Length": str(MOST_BYTES + 1)}) == 413
        assert box.tables(100.0) == {}
        assert box.refused == 7
        assert send(endpoint.url, TOKEN, good, PATIENCE_S) == 3
        assert same(box.tables(100.0)["B"], TABLE)
        assert send(endpoint.url, "not this token at all", good, PATIENCE_S) is None
        url = endpoint.url
    assert send(url, TOKEN, good, PATIENCE_S) is None  # nobody is there any more
    assert threading.active_count() == threads
    with pytest.raises(InvalidValueError, match="too short"):
        TableEndpoint(box, "short")


def test_the_length_of_a_message_is_known_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    good = encode(whole(TABLE, 3, 100.0))
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    box = mailbox()
    with TableEndpoint(box, TOKEN, clock=lambda: 100.0) as endpoint:
        monkeypatch.setattr("streamshed.distributed.exchange.MOST_BYTES", len(good))
        assert post(endpoint.url, good, allowed) == 200
        monkeypatch.setattr("streamshed.distributed.exchange.MOST_BYTES", len(good) - 1)
        assert post(endpoint.url, good, allowed) == 413
        assert post(endpoint.url, good, {**allowed, "Content-Length": "-5"}) == 411
        connection = http.client.HTTPConnection(*endpoint._server.server_address[:2], timeout=PATIENCE_S)  # type: ignore[arg-type]
        connection.putrequest("POST", PATH)
        connection.putheader("Authorization", f"Bearer {TOKEN}")
        connection.endheaders()
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Content-Type")) == (411, "application/json")
        assert json.loads(answer.read()) == {"error": "a message without a length"}
        assert answer.will_close, "what is left of the message must not be taken for the next one"
        connection.close()
    assert box.refused == 3


def test_an_endpoint_closes_when_what_was_begun_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    box, begun, go_on = mailbox(), threading.Event(), threading.Event()
    order: list[str] = []
    accept = box.accept

    def slow(data: bytes, now_s: float) -> int:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        order.append("accepted")
        return accept(data, now_s)

    def close() -> None:
        endpoint.close()
        order.append("closed")

    monkeypatch.setattr(box, "accept", slow)
    endpoint = TableEndpoint(box, TOKEN, clock=lambda: 100.0)
    answers: list[int | None] = []
    good = encode(whole(TABLE, 3, 100.0))
    sender = threading.Thread(target=lambda: answers.append(send(endpoint.url, TOKEN, good, PATIENCE_S)))
    sender.start()
    assert begun.wait(PATIENCE_S)
    closer = threading.Thread(target=close)
    closer.start()
    wait_for(lambda: endpoint._server.socket.fileno() == -1, "it to listen no longer")
    go_on.set()
    for thread in (sender, closer):
        thread.join(PATIENCE_S)
    assert (order, answers) == (["accepted", "closed"], [3])


def test_a_directory_does_as_well(tmp_path: Path) -> None:
    box, directory = mailbox(), TableDirectory(tmp_path / "tables")
    assert directory.collect("B", box, 100.0) is None
    directory.publish("B", encode(whole(TABLE, 1, 100.0)))
    assert directory.collect("B", box, 100.0) == 1
    (tmp_path / "tables" / "B.fit").write_bytes(b"half of a ta")
    assert directory.collect("B", box, 101.0) == 1
    assert box.refused == 1
    (tmp_path / "tables" / "B.fit").write_bytes(b"\0" * (MOST_BYTES + 1))
    assert directory.collect("B", box, 102.0) == 1
    assert box.refused == 2
    directory.publish("B", encode(whole(TABLE, 2, 103.0)))
    assert directory.collect("B", box, 103.0) == 2
    assert [file.name for file in (tmp_path / "tables").iterdir()] == ["B.fit"]
