"""How much waits: at the sources of a running network, and on the durable arcs between its stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from streamshed.control import Outlook
from streamshed.distributed.arc_files import Inbox
from streamshed.engines.spark.checkpoint import BatchStart
from streamshed.engines.spark.sources.feeder import FeederClock
from streamshed.engines.spark.stage import RunningStage
from streamshed.load import arc_rates
from streamshed.network import Network, Statistics, Stream
from streamshed.network.stages import Stage
from streamshed.scheduling import tuple_bytes

_RATE_MEMORY = 0.5


class StageCosts:
    """What the statistics say about the work of stages.

    Attributes:
        tuple_s: what a tuple of the streams upstream costs in a stage, by its id.
        ahead: what is still to be done for a tuple whose rows lie on an arc, by the id of the stage that reads it: as
            a share of the work for a tuple of all streams.
    """

    def __init__(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], stages: Sequence[Stage]
    ) -> None:
        on_arcs = arc_rates(network, statistics, rates)
        load = {
            stage.id: sum(
                statistics.cost(operator) * sum(on_arcs[arc.id] for arc in network.arcs_into[operator])
                for operator in stage.operators
            )
            for stage in stages
        }
        upstream: dict[str, set[str]] = {}
        for stage in stages:  # each after those it reads
            upstream[stage.id] = set(stage.inputs).union(*(upstream.get(before, ()) for before in stage.inputs))
        rate = {
            stage_id: sum(rates[stream.id] for stream in network.streams if stream.id in above)
            for stage_id, above in upstream.items()
        }
        total, every = sum(load.values()), sum(rates[stream.id] for stream in network.streams)
        self.tuple_s = {stage_id: _ratio(load[stage_id], rate[stage_id]) for stage_id in load}
        self.ahead = {
            stage_id: _ratio(load[stage_id] + sum(load[other] for other in load if stage_id in upstream[other]), total)
            * _ratio(every, rate[stage_id])
            for stage_id in load
        }


class Backlog:
    """What waits for a network's stages.

    Args:
        network: the network.
        stages: those that run, each after those it reads.
        costs: of the stages.
    """

    def __init__(self, network: Network, stages: Sequence[RunningStage], costs: StageCosts) -> None:
        self._stages = stages
        self._costs = costs
        self._inboxes = {arc: inbox for stage in stages for arc, inbox in stage.inboxes.items()}
        self._clocks = {stream.id: self._inboxes.get(stream.id) or _clock(stream) for stream in network.streams}
        self._row_bytes = {stream.id: tuple_bytes(stream.columns) for stream in network.streams}
        self._rate_tps: dict[str, float] = {}
        self._last_start_s: dict[str, float] = {}
        # A stream that several stages read is looked at where the first of them reads it.
        self.leads: dict[str, tuple[str, ...]] = {}
        seen: set[str] = set()
        for stage in stages:
            self.leads[stage.id] = tuple(name for name in stage.sources if name in self._clocks and name not in seen)
            seen.update(self.leads[stage.id])

    def learn(self, stage: RunningStage, start_s: float, arrived: int) -> None:
        """So many tuples came into the network with a batch."""
        if not self.leads[stage.id]:
            return
        last_s = self._last_start_s.get(stage.id)
        if last_s is not None and start_s > last_s:
            rate_tps = arrived / (start_s - last_s)
            known_tps = self._rate_tps.get(stage.id, rate_tps)
            self._rate_tps[stage.id] = known_tps + _RATE_MEMORY * (rate_tps - known_tps)
        self._last_start_s[stage.id] = start_s

    def outlook(self, time_s: float) -> Outlook | None:
        """The batch that would start now; None before the first one, unless all that it could read waits on arcs."""
        started = {stage.id: self._started(stage, time_s) for stage in self._stages if self.leads[stage.id]}
        known = [batch for batch in started.values() if batch is not None]
        from_arcs = len(self._inboxes) == len(self._clocks)
        if not from_arcs and (len(known) < len(started) or not known):
            return None
        since_s = max((time_s - batch.time_ms / 1000 for batch in known), default=math.inf)
        if from_arcs:  # it may have been idle since
            since_s = min(since_s, max(self._waits_s(time_s)))
        since_s = max(since_s, 1e-3)
        return Outlook(time_s, self._at_sources(time_s, started) + self._on_arcs(), since_s, since_s)

    def _waits_s(self, time_s: float) -> list[float]:
        return [inbox.oldest_wait_s(time_s) for inbox in self._inboxes.values()]

    def waiting(self, time_s: float, stage: RunningStage, ended: BatchStart) -> float:
        """How many tuples wait when a stage's batch has ended, in full ones."""
        started = {other.id: self._started(other, time_s) for other in self._stages if other.id != stage.id}
        return self._at_sources(time_s, {**started, stage.id: ended}) + self._on_arcs()

    def unprocessed(self, stage: RunningStage, time_s: float) -> dict[str, float]:
        """Tuples of its streams that no batch of a stage has ended with, begun or waiting, by stream.

        For a stream that cannot tell it is guessed from its rate, as far as that is known.
        """
        found: dict[str, float] = {}
        ended = stage.log.batch(stage.last.batch_id) if stage.last is not None else None
        offsets = dict(zip(stage.plan_order, ended.offsets, strict=False)) if ended is not None else {}
        for stream in stage.sources:
            if stream not in self._clocks:
                continue
            clock = self._clocks[stream]
            if clock is not None:
                found[stream] = float(clock.waiting(offsets.get(stream), time_s))
            elif ended is not None and stream in self.leads[stage.id]:
                rate_tps = self._rate_tps.get(stage.id, 0.0) / len(self.leads[stage.id])
                found[stream] = rate_tps * max(time_s - ended.time_ms / 1000, 0.0)
        return found

    def held_bytes(self, stage: RunningStage, time_s: float) -> float:
        """What a stage holds up: tuples of streams by the types of their columns, files on its arcs, and its state."""
        state_bytes = stage.last.state_bytes if stage.last is not None else 0
        at_streams = sum(count * self._row_bytes[stream] for stream, count in self.unprocessed(stage, time_s).items())
        return state_bytes + at_streams + sum(batch.bytes for batch in stage.unfinished)

    @staticmethod
    def _started(stage: RunningStage, time_s: float) -> BatchStart | None:
        return stage.gated.latest(time_s) if stage.gated is not None else None

    def _at_sources(self, time_s: float, started: Mapping[str, BatchStart | None]) -> float:
        """How many tuples have arrived since batches started; guessed from their rate where a source cannot tell."""
        waiting = 0.0
        for stage in self._stages:
            streams, batch = self.leads[stage.id], started.get(stage.id)
            clocks = [clock for stream in streams if (clock := self._clocks[stream]) is not None]
            if batch is None:
                waiting += sum(clock.waiting_rows() for clock in clocks if isinstance(clock, Inbox))
                continue
            if len(clocks) < len(streams):
                waiting += self._rate_tps.get(stage.id, 0.0) * max(time_s - batch.time_ms / 1000, 0.0)
                continue
            offsets = dict(zip(stage.plan_order, batch.offsets, strict=False))
            waiting += sum(
                clock.waiting(offsets.get(stream), time_s) for stream, clock in zip(streams, clocks, strict=True)
            )
        return waiting

    def _on_arcs(self) -> float:
        waiting = 0.0
        for stage in self._stages:
            for queue in stage.reads.values():
                waiting += self._costs.ahead[stage.id] * queue.waiting_tuples(stage.id)
        return waiting


def _clock(stream: Stream) -> FeederClock | Inbox | None:
    if stream.source is None or stream.source.format != "feeder":
        return None
    return FeederClock.from_options(dict(stream.source.options))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
