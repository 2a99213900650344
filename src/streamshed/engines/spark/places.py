"""Which threshold on the control line is whose, the same after a restart."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from streamshed.distributed.arc_files import read_document, write_atomically
from streamshed.errors import InvalidValueError, StreamshedError

_LOG = logging.getLogger(__name__)


class Places:
    """The places of drops on a control line.

    They are on disk before they are used. A program that makes its drops in another order after a restart, or others,
    finds the thresholds of its replayed batches, and of those that are counted again, where they were.

    Args:
        file: where they are kept.
        size: how many there are.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "places.json"
    >>> places = Places(file, 3)
    >>> places.of("cars"), places.of("roads"), places.of("cars")
    (0, 1, 0)
    >>> Places(file, 3).of("roads")
    1
    """

    def __init__(self, file: Path, size: int) -> None:
        self._file, self._size = file, size
        self._used: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        try:
            self._kept = {name: int(place) for name, place in read_document(file).items()}
        except (StreamshedError, TypeError, ValueError) as error:
            _LOG.warning("the places of thresholds of the last run cannot be read: %s", error)

    def of(self, name: str) -> int:
        """The place of a drop: that of the last run, or else one that nobody had, or else one that nobody has now.

        Raises:
            InvalidValueError: if all are taken.
        """
        if name not in self._used:
            place = self._choose(name)
            others = {other: taken for other, taken in self._kept.items() if taken != place}
            if self._kept != (kept := others | {name: place}):
                write_atomically(self._file, json.dumps(kept))
                self._kept = kept
            self._used[name] = place
        return self._used[name]

    def _choose(self, name: str) -> int:
        free = [place for place in range(self._size) if place not in self._used.values()]
        if not free:
            raise InvalidValueError(
                "the control line is full",
                where=f"drop {name!r}",
                got=len(self._used) + 1,
                expected=f"at most {self._size}",
            )
        if self._kept.get(name) in free:
            return self._kept[name]
        return next((place for place in free if place not in self._kept.values()), free[0])
