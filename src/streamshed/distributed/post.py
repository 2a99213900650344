"""How the nodes of one network pass tables upstream: by files in the directory they share, or over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from streamshed.distributed.arc_files import file_name, read_document, write_atomically
from streamshed.distributed.exchange import TableDirectory, TableEndpoint, send
from streamshed.distributed.feasible_input.upkeep import TableKeeper
from streamshed.distributed.feasible_input.wire import encode
from streamshed.distributed.mailbox import Mailbox
from streamshed.errors import StreamshedError

_SEND_TIMEOUT_S = 1.0


class Post(Protocol):
    """What a node does about tables once a period."""

    def collect(self, now_s: float) -> None:
        """Take in what children have sent."""

    def deliver(self, keepers: Mapping[str, TableKeeper], now_s: float) -> None:
        """Send to each parent what it has to know."""

    def close(self) -> None:
        """Stop."""


class DirectoryPost:
    """Each node has a directory in which its children leave their tables, always whole.

    Args:
        root: the directory of all of these.
        node: whose post it is.
        children: those that may send.
        mailbox: where tables go.
    """

    def __init__(self, root: Path, node: str, children: Sequence[str], mailbox: Mailbox) -> None:
        self._root, self._node, self._children, self._mailbox = root, node, tuple(children), mailbox
        self._own = TableDirectory(root / file_name(node))
        self._parents: dict[str, TableDirectory] = {}

    def collect(self, now_s: float) -> None:
        for child in self._children:
            self._own.collect(child, self._mailbox, now_s)

    def deliver(self, keepers: Mapping[str, TableKeeper], now_s: float) -> None:
        for parent, keeper in keepers.items():
            keeper.heard(None)
            message = keeper.message(now_s)
            if message is not None:
                if parent not in self._parents:
                    self._parents[parent] = TableDirectory(self._root / file_name(parent))
                self._parents[parent].publish(self._node, encode(message))

    def close(self) -> None:
        """Nothing to stop."""


class HttpPost:
    """Each node with children listens on this machine; where it does is in a file beside the arcs, its token is not.

    Args:
        root: the directory of these files.
        node: whose post it is.
        children: those that may send.
        mailbox: where tables go.
        token: what senders have to know.
        clock: the time in seconds, as the senders' messages have it.
    """

    def __init__(
        self,
        root: Path,
        node: str,
        children: Sequence[str],
        mailbox: Mailbox,
        token: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root, self._token = root, token
        root.mkdir(parents=True, exist_ok=True)
        self._endpoint = TableEndpoint(mailbox, token, clock=clock) if children else None
        if self._endpoint is not None:
            write_atomically(self._file(node), json.dumps({"url": self._endpoint.url}))

    def collect(self, now_s: float) -> None:
        """Children are heard when they call."""

    def deliver(self, keepers: Mapping[str, TableKeeper], now_s: float) -> None:
        for parent, keeper in keepers.items():
            url = self._url(parent)
            message = keeper.message(now_s) if url else None
            if url and message is not None:
                keeper.heard(send(url, self._token, encode(message), _SEND_TIMEOUT_S))

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def _url(self, parent: str) -> str | None:
        try:
            url = read_document(self._file(parent)).get("url")
        except StreamshedError:
            return None
        return url if isinstance(url, str) and url.startswith("http://127.0.0.1:") else None

    def _file(self, node: str) -> Path:
        return self._root / f"{file_name(node)}.endpoint"
