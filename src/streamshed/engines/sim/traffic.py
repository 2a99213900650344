"""Tuples on their way: along arcs, past drops, into queues and outputs, and out of the books."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamshed.engines.sim.gauges import Ghosts
from streamshed.engines.sim.measures import Measures
from streamshed.engines.sim.places import Counts, Out, Place, Places
from streamshed.engines.sim.processor import Processor
from streamshed.engines.sim.tuples import DELIVERED, DROPPED, FILTERED, Ids, Mask, Times, Tuples


class Traffic:
    """Moves tuples, and knows how many are under way.

    A drop decides on a tuple when it comes to the arc: what is in a queue will be processed. Tuples come in in groups,
    every `train_s`, where they go to a processor with several operators (see `Processor`).

    Attributes:
        outstanding: tuples let in that have not left.
        finished: tuples that left since it was last asked.
    """

    def __init__(
        self,
        places: Places,
        tuples: Tuples,
        processors: Mapping[str, Processor],
        measures: Measures,
        drop_cost_s: float,
        train_s: float,
    ) -> None:
        self.places = places
        self.tuples = tuples
        self.ghosts = Ghosts(places, tuples)
        self.measures = measures
        self.outstanding = 0
        self.finished = 0
        self._processors = processors
        self._drop_cost_s = drop_cost_s
        self._group_s = {
            stream: 0.0 if all(out.place is None or processors[out.place.id].serves_one for out in outs) else train_s
            for stream, outs in places.entries.items()
        }

    def refuse(self, stream: str, ids: Ids) -> None:
        """Tuples are dropped where they come in."""
        entry = self.places.outs[stream]
        entry.dropped += len(ids)
        self.tuples.copies[self.tuples.at(ids)] = 0
        self.ghosts.add(entry, ids)
        self.measures.refused(len(ids))

    def let_in(self, stream: str, ids: Ids, times_s: Times) -> None:
        """Tuples enter the network."""
        self.outstanding += len(ids)
        if self._group_s[stream] > 0:
            times_s = np.ceil(times_s / self._group_s[stream]) * self._group_s[stream]
        self._hand_on(self.places.entries[stream], ids, self.tuples.at(ids), times_s)

    def charge_drop(self, out: Out, count: int) -> None:
        """The drop on an arc has looked at tuples; that costs the processor behind it."""
        if self._drop_cost_s > 0:
            place = out.place
            if out.arc.is_entry:
                place = next((further.place for further in self.places.entries[out.arc.target] if further.place), None)
            if place is not None:
                self._processors[place.id].debt_s += count * self._drop_cost_s

    def leave(self, place: Place, side: int, ids: Ids, times_s: Times) -> None:
        """Tuples come out of an operator."""
        tuples = self.tuples
        at = tuples.at(ids)
        for gauge in place.gauges:
            gauge.deliver(tuples, at, times_s)
        if place.sides is not None:
            place.sides.meet(tuples, ids, at, side)
            partnered = place.sides.partnered(tuples, at, side) if place.window is None else None
            if partnered is not None and not partnered.all():
                alone = ~partnered
                self.ghosts.add_alone(place, ids[alone])
                self._end(at[alone], times_s[alone], DROPPED)
                ids, at, times_s = ids[partnered], at[partnered], times_s[partnered]
        caused = None if place.window is None else place.window.pass_on(tuples, ids, at, side)
        self._hand_on(place.outs, ids, at, times_s, caused)

    def _hand_on(self, outs: list[Out], ids: Ids, at: Ids, times_s: Times, caused: Counts | None = None) -> None:
        """Along every arc that wants them, or out for good if none does; `caused` says how often, if it is known."""
        tuples = self.tuples
        chosen: list[Mask | Counts | None]
        if caused is not None:
            chosen = [caused] * len(outs)
        elif len(outs) == 1 and outs[0].choice is None:
            self._pass(outs[0], ids, at, times_s)
            return
        else:
            chosen = [None if out.choice is None else out.choice(tuples, ids, at) for out in outs]
        copies = np.zeros(len(ids), dtype=np.int32)
        for choice in chosen:
            copies += 1 if choice is None else choice.astype(np.int32)
        ended = copies == 0
        if ended.any():
            self._end(at[ended], times_s[ended], FILTERED)
        more = copies > 1
        if more.any():
            if self.places.may_repeat:
                np.add.at(tuples.copies, at[more], copies[more] - 1)
            else:
                tuples.copies[at[more]] += copies[more] - 1
        for out, choice in zip(outs, chosen, strict=True):
            if choice is None:
                self._pass(out, ids, at, times_s)
            elif choice.dtype == np.bool_:
                self._pass(out, ids[choice], at[choice], times_s[choice])
            else:
                self._pass(out, np.repeat(ids, choice), np.repeat(at, choice), np.repeat(times_s, choice))

    def _pass(self, out: Out, ids: Ids, at: Ids, times_s: Times) -> None:
        """Past the drop of an arc, and into its queue or the output."""
        if not len(ids):
            return
        out.entered += len(ids)
        if out.seen is not None:
            slot, seen = out.seen
            seen.observe(self.tuples.values[slot][at])
        if out.threshold > 0:
            out.faced += len(ids)
            self.charge_drop(out, len(ids))
            kept = out.ranks(self.tuples, at) >= out.threshold
            lost = len(ids) - int(np.count_nonzero(kept))
            if lost:
                out.dropped += lost
                gone = ~kept
                self.ghosts.add(out, ids[gone])
                self._end(at[gone], times_s[gone], DROPPED)
                ids, at, times_s = ids[kept], at[kept], times_s[kept]
                if not len(ids):
                    return
        if out.place is not None:
            out.queue.push(ids, times_s)
            self._processors[out.place.id].list(out.place)
            return
        if out.gauge is not None:
            out.gauge.deliver(self.tuples, at, times_s)
        self._end(at, times_s, DELIVERED)

    def _end(self, at: Ids, times_s: Times, fate: int) -> None:
        """Copies of tuples have come to their end."""
        tuples = self.tuples
        if self.places.may_repeat:
            np.subtract.at(tuples.copies, at, 1)
            np.maximum.at(tuples.left_s, at, times_s)
            at = np.unique(at)
        else:
            tuples.copies[at] -= 1
            tuples.left_s[at] = np.maximum(tuples.left_s[at], times_s)
        tuples.fate[at] |= fate
        gone = at[tuples.copies[at] == 0]
        if len(gone):
            self.outstanding -= len(gone)
            self.finished += len(gone)
            self.measures.left(tuples, gone)
