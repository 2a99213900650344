"""The contract of tuple generators: rows that are a pure function of a seed and their index."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamshed.errors import InvalidValueError
from streamshed.workload.hashing import hash64, unit
from streamshed.workload.profile import Ints

Bools = NDArray[np.bool_]

TIMESTAMP = pa.timestamp("us", tz="UTC")
ORIGIN_US = 1_704_067_200_000_000  # 2024-01-01T00:00:00Z: event time of row 0 where nobody gives another

_MALFORMED_SALT = 0x4D


class Generator(ABC):
    """Makes any range of rows, as often as wanted, always the same.

    Attributes:
        malformed: the share of rows that are spoiled on purpose.
    """

    malformed: float

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns; all of them may be null."""

    @abstractmethod
    def _rows(self, index: Ints, seed: int, times_us: Ints | None) -> pa.RecordBatch:
        """The rows with these indices."""

    def generate(
        self, start_index: int, stop_index: int, seed: int = 0, *, times_us: Ints | None = None
    ) -> pa.RecordBatch:
        """The rows from `start_index` up to, not including, `stop_index`.

        Args:
            start_index: first row.
            stop_index: the row after the last.
            seed: chooses the stream.
            times_us: event times to use in the place of the generator's own: microseconds since 1970, one for each row.
        """
        if not 0 <= start_index <= stop_index:
            raise InvalidValueError(
                "that is no range of rows",
                where=f"generator {type(self).__name__}",
                got=f"{start_index} to {stop_index}",
                expected="0 <= start_index <= stop_index",
            )
        return self._rows(np.arange(start_index, stop_index, dtype=np.int64), seed, times_us)

    def malformed_rows(self, start_index: int, stop_index: int, seed: int = 0) -> Bools:
        """Which rows of a range are spoiled on purpose."""
        return self._spoiled(np.arange(start_index, stop_index, dtype=np.int64), seed)[0]

    def _spoiled(self, index: Ints, seed: int) -> tuple[Bools, Ints]:
        """Which rows to spoil, and a small random number for each row that says how."""
        bits = hash64(seed, _MALFORMED_SALT, index)
        return unit(bits) < self.malformed, (bits & np.uint64(0x7FF)).astype(np.int64)


def timestamps(at_us: Ints, missing: Bools | None = None) -> pa.Array:
    """Microseconds since 1970 as an Arrow column of timestamps in UTC."""
    return pa.array(at_us, mask=missing).view(TIMESTAMP)
