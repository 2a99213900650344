"""Which thresholds held when: the durable history beside the control line.

A journal of records: a change of the thresholds with the slots for which the line was written (`from`, `to`) and the
pins among them; `void` takes back the change before it, which no batch has seen; `late` names slots whose batches may
have read something else; `closed` says that nothing is dropped any more, for good; `since` where a history that has
forgotten its beginning begins.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from streamshed.engines.spark.journal import Journal, Record

Levels = tuple[int, ...]

_FOR_EVER = 2**62
_REACH = 256  # of records that do not say how far the line was written


class ControlHistory:
    """The thresholds of every slot, and whether batches of that slot surely obeyed them.

    Args:
        file: of the journal.
        size: how many thresholds there are.
        kept: how many changes are kept, and up to twice as many before the older ones are forgotten.
        shown: whether a change could be seen; asked of the last one, as an earlier writer left it.

    Attributes:
        last: the slot from which the last change holds, seen or not.
        covered: up to where the line was written, exclusively.
    """

    def __init__(self, file: Path, size: int, kept: int, shown: Callable[[Record], bool]) -> None:
        self.last = 0
        self.covered = 0
        self._size, self._kept = size, kept
        self._journal = Journal(file)
        self._announced = False
        self._since = 0
        self._froms: list[int] = []
        self._levels: list[Levels] = []
        self._late: list[tuple[int, int]] = []
        for record in self._seen(shown):
            self._replay(record)
        self.forget()

    # --- writing ---------------------------------------------------------------------------------------------------

    def announce(
        self,
        start: int,
        end: int,
        levels: Levels,
        pins: Sequence[tuple[int, Levels]],
        doubted: Iterable[tuple[int, int]],
    ) -> Record:
        """Write down a change that is about to be shown.

        Args:
            start: the slot from which it holds.
            end: up to where the line is written, exclusively.
            levels: the thresholds.
            pins: slots from there on that have others, in order, with these.
            doubted: slots that get uncertain by it, from one to another.
        """
        record: Record = {"from": start, "to": end, "x": levels, "pins": pins}
        # If the one before was not shown, because the disk was slow or failed, it is taken back.
        void: list[Record] = [{"void": self.last}] if self._announced else []
        late: list[Record] = [{"late": [first, last]} for first, last in doubted]
        self._journal.append(*void, *late, record)
        self._announced, self.last = True, start
        for one in late:
            self._replay(one)
        return record

    def confirm(self, record: Record) -> None:
        """The change that was announced last is shown."""
        self._announced = False
        self._replay(record)
        self.forget()

    def doubt(self, first: int, last: int) -> None:
        """Note that batches which started in these slots may have read something else."""
        if last >= first:
            self._note({"late": [first, last]})

    def close(self) -> None:
        """Note that the line holds the last thresholds in all slots from now on."""
        self._note({"closed": self.last})

    def forget(self) -> None:
        """Forget the older half of a long history: batches that started then are over and in the ledger."""
        if len(self._froms) <= 2 * self._kept:
            return
        del self._froms[: -self._kept], self._levels[: -self._kept]
        self._since = self._froms[0]
        self._late = [(start, end) for start, end in self._late if end >= self._since]
        changes = zip(self._froms, self._levels, strict=True)
        self._journal.replace(
            [
                {"since": self._since},
                *({"late": late} for late in self._late),
                *({"from": start, "to": self.covered, "x": levels, "pins": []} for start, levels in changes),
            ]
        )

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> Levels:
        """The thresholds that were written last."""
        return self.at(self._froms[-1])

    def at(self, slot: int) -> Levels:
        """The thresholds of a slot."""
        entry = bisect_right(self._froms, slot)
        levels = self._levels[entry - 1] if entry else ()
        return (*levels, *[0] * self._size)[: self._size]

    def is_certain(self, slot: int) -> bool:
        """Whether batches of a slot surely obeyed these."""
        if not self._since <= slot < self.covered:
            return False
        return not any(start <= slot <= end for start, end in self._late)

    # --- within ----------------------------------------------------------------------------------------------------

    def _note(self, record: Record) -> None:
        self._journal.append(record)
        self._replay(record)

    def _seen(self, shown: Callable[[Record], bool]) -> list[Record]:
        """The records without what never came to be seen: changes taken back, or cut off by the writer's death."""
        records: list[Record] = []
        for record in self._journal.read():
            if "void" in record:
                _take_back(records)
            else:
                records.append(record)
        last = next((record for record in reversed(records) if "from" in record), None)
        if last is not None and not shown(last):
            self._journal.append({"void": last["from"]})
            _take_back(records)
        return records

    def _replay(self, record: Record) -> None:
        """Take a record in: a change takes the place of all that was to come from its start on."""
        if "since" in record:
            self._since = record["since"]
        elif "late" in record:
            first, last = record["late"]
            self._late.append((first, last))
        elif "closed" in record:
            self.covered = _FOR_EVER
        else:
            self._take_in(record)

    def _take_in(self, change: Record) -> None:
        start, levels = int(change["from"]), tuple(change["x"])
        if self._froms and start > self.covered:  # nobody has carried the line on meanwhile
            self._late.append((self.covered, start - 1))
        self.last, self.covered = start, int(change.get("to", start + _REACH))
        keep = bisect_right(self._froms, start - 1)
        del self._froms[keep:], self._levels[keep:]
        self._put(start, levels)
        for slot, of_pin in change["pins"]:
            self._put(slot, tuple(of_pin))
            self._put(slot + 1, levels)

    def _put(self, start: int, levels: Levels) -> None:
        if self._froms and self._froms[-1] == start:
            self._levels[-1] = levels
        else:
            self._froms.append(start)
            self._levels.append(levels)


def _take_back(records: list[Record]) -> None:
    """Take the last change out."""
    place = max((i for i, record in enumerate(records) if "from" in record), default=None)
    if place is not None:
        del records[place]
