"""What a query's trigger says about it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming import StreamingQuery

_STOPPING = frozenset({"AvailableNowTrigger", "OneTimeTrigger"})


def stops_by_itself(query: StreamingQuery) -> bool:
    """Whether a query reads what is there and stops: its trigger is `availableNow` or `once`."""
    execution: Any = query._jsq.streamingQuery()
    return execution.trigger().toString() in _STOPPING
