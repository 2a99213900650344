"""How tables travel: a small HTTP endpoint with a token at the parent, or a directory that both can see."""

from __future__ import annotations

import hmac
import json
import os
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from streamshed.distributed.feasible_input.wire import MOST_BYTES, BaseUnknownError, MessageError
from streamshed.distributed.mailbox import Mailbox, StaleError
from streamshed.errors import InvalidValueError

PATH = "/tables"
_TIMEOUT_S = 5.0
_SHORTEST_TOKEN = 16


class TableEndpoint:
    """Takes the tables of children in over HTTP, on this machine unless told otherwise.

    A request without the token is refused before its body is read, one that is too long as well. Use it as a context
    manager: its threads end with it.

    Args:
        mailbox: where accepted tables go.
        token: what a sender has to know.
        host: the address to listen at.
        port: 0 for any free one.
        clock: the time in seconds, as the senders' messages have it.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if len(token) < _SHORTEST_TOKEN:
            raise InvalidValueError(
                "the token is too short", where="table endpoint", got=f"{len(token)} characters",
                expected=f"at least {_SHORTEST_TOKEN}", hint="secrets.token_urlsafe() makes a good one",
            )  # fmt: skip
        self._server = ThreadingHTTPServer((host, port), _handler(mailbox, token, clock))
        self._server.daemon_threads = False
        self._server.block_on_close = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="table-endpoint")
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to send tables to."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{PATH}"

    def close(self) -> None:
        """Stop listening, and wait until everything that was begun is done."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> TableEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(mailbox: Mailbox, token: str, clock: Callable[[], float]) -> type[BaseHTTPRequestHandler]:
    expected = f"Bearer {token}".encode()

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S  # a sender that says nothing must not keep a thread

        def do_GET(self) -> None:
            error = MessageError("tables are sent by POST", where="table endpoint", got=self.command, expected="POST")
            self._refuse(405, error, Allow="POST")

        do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET

        def do_POST(self) -> None:
            if not hmac.compare_digest((self.headers.get("Authorization") or "").encode(), expected):
                self._refuse(401, MessageError("a message without the token", where="table endpoint"))
                return
            if self.path != PATH:
                self._refuse(404, MessageError("nothing is here", where="table endpoint", got=self.path))
                return
            length = self.headers.get("Content-Length") or ""
            if not length.isdecimal():
                self._refuse(411, MessageError("a message without a length", where="table endpoint", got=length))
                return
            if int(length) > MOST_BYTES:
                self._refuse(413, MessageError("the message is too large", where="table endpoint", got=length))
                return
            try:
                data = self.rfile.read(int(length))
            except TimeoutError:
                self._refuse(408, MessageError("the message does not end", where="table endpoint"))
                return
            try:
                version = mailbox.accept(data, clock())
            except BaseUnknownError as error:
                self._answer(409, {"error": error.what})
            except StaleError as error:
                self._answer(410, {"error": error.what})
            except MessageError as error:
                self._answer(400, {"error": error.what})
            else:
                self._answer(200, {"version": version})

        def _refuse(self, status: int, error: MessageError, **headers: str) -> None:
            mailbox.refuse(error)
            self.close_connection = True  # what is left of the message must not be taken for the next one
            self._answer(status, {"error": error.what}, **headers)

        def _answer(self, status: int, document: dict[str, object], **headers: str) -> None:
            body = json.dumps(document).encode()
            with suppress(OSError):  # the sender may have gone
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Refusals are logged by the mailbox; the rest is of no interest."""

    return Handler


def send(url: str, token: str, data: bytes, timeout_s: float = _TIMEOUT_S) -> int | None:
    """Send a message to an endpoint.

    Returns:
        The version that the parent has now; None if it needs the whole table, cannot be reached, or refused.
    """
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"}, method="POST")
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by a proxy: this is local
        with opener.open(request, timeout=timeout_s) as response:
            return int(json.loads(response.read(10_000))["version"])
    except (OSError, ValueError, KeyError):
        return None


class TableDirectory:
    """Tables as files in a directory: one for each node, always whole, replaced as a whole.

    Args:
        directory: the directory; it is made if it is not there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._seen: dict[str, tuple[int, int]] = {}

    def publish(self, node: str, data: bytes) -> None:
        """Write a node's message; a reader sees the old one or all of the new one."""
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=".", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
            Path(name).replace(self._file(node))
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise

    def collect(self, node: str, mailbox: Mailbox, now_s: float) -> int | None:
        """Take a node's message in, if there is a new one; the version that is known then, None if there is none."""
        try:
            status = self._file(node).stat()
            stamp = (status.st_mtime_ns, status.st_size)
            if self._seen.get(node) == stamp:
                return mailbox.version(node)
            if status.st_size > MOST_BYTES:
                self._seen[node] = stamp
                error = MessageError("the message is too large", where=str(self._file(node)), got=status.st_size)
                mailbox.refuse(error)
                return mailbox.version(node)
            data = self._file(node).read_bytes()
        except FileNotFoundError:
            return None
        self._seen[node] = stamp
        with suppress(MessageError):
            mailbox.accept(data, now_s)
        return mailbox.version(node)

    def _file(self, node: str) -> Path:
        return self._directory / f"{urllib.parse.quote(node, safe='')}.fit"
