"""Waiting for other threads and processes: the only place where tests sleep, and never for longer than it takes."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0
"""For what never comes; no machine is so slow as to reach it."""
_POLL_S = 0.005


def wait_for(condition: Callable[[], bool], what: str = "something", seconds: float = PATIENCE_S) -> None:
    """Until a condition holds."""
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, f"waited in vain for {what}"
        time.sleep(_POLL_S)
