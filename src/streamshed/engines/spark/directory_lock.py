"""One writer a directory: a second run or guard in the same one would falsify its ledger.

The lock is the operating system's (`flock`), on a file in the directory. It goes with the process that holds it, so
that one that was killed leaves nothing that anybody would have to clear away. What the file says (who holds it) is for
the error message only.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path

from streamshed.errors import StreamshedError

_LOG = logging.getLogger(__name__)

CONTROL = "control"
"""The directory, within that of a run, which is held: control line and ledger are in it."""

_NAME = ".lock"


class DirectoryInUseError(StreamshedError, OSError):
    """Another run or guard writes in the directory."""


class DirectoryLock:
    """Holds a directory, which exists, until it is released or the process ends.

    A file system that knows no locks is written to without one; the log says so.

    Args:
        directory: to be held.

    Raises:
        DirectoryInUseError: if another holds it, in this process or another one.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> lock = DirectoryLock(place)
    >>> DirectoryLock(place)
    Traceback (most recent call last):
        ...
    streamshed.engines.spark.directory_lock.DirectoryInUseError: another run or guard uses this directory
    ...
    >>> lock.release()
    >>> DirectoryLock(place).release()
    """

    def __init__(self, directory: Path) -> None:
        file = directory / _NAME
        self._handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._handle, 1000, 0).decode(errors="replace").strip()
            self.release()
            raise DirectoryInUseError(
                "another run or guard uses this directory",
                where=str(directory),
                got=holder or "a process that has not said who it is yet",
                expected="one writer at a time: two would falsify the ledger",
                hint="stop that one, or give another directory (the lock of a process that died is free by itself)",
            ) from None
        except OSError as error:  # such as ENOLCK on some network file systems
            _LOG.warning("no lock on %s (%s): see to it that nobody else uses it", directory, error.strerror)
            return
        program = Path(sys.argv[0]).name or "python"
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        os.ftruncate(self._handle, 0)
        os.pwrite(
            self._handle, f"{program}, process {os.getpid()} on {socket.gethostname()}, since {since}\n".encode(), 0
        )

    def release(self) -> None:
        """Let go; a second time nothing happens."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def check_free(directory: Path) -> None:
    """Raise if somebody holds a directory; for whoever wants to know before much else is done.

    Raises:
        DirectoryInUseError: then.
    """
    if (directory / _NAME).exists():
        DirectoryLock(directory).release()
