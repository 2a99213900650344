"""A run in numbers: sums over its micro-batches, in constant memory however long it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from streamshed.control import OutOfReach
from streamshed.engines.spark.timeliness import MeanUtilities
from streamshed.planning.fair import jain_index

if TYPE_CHECKING:
    from streamshed.engines.spark.monitor import DropCounts
    from streamshed.engines.spark.network_batch import NetworkBatch

_POINTS = 50  # that stand for the delays of the tuples of a batch
_EDGES = np.geomspace(1e-3, 1e5, 1852)  # seconds; each 1 % above the one before


@dataclass
class ArcTotals:
    """What one drop did; `arrived` = `malformed` + `delivered` + `dropped`."""

    arrived: int = 0
    malformed: int = 0
    delivered: int = 0
    dropped: int = 0

    def add(self, counts: DropCounts) -> None:
        """Count a batch."""
        self.arrived += counts.arrived
        self.malformed += counts.malformed
        self.delivered += counts.kept
        self.dropped += counts.dropped


@dataclass
class Totals:
    """Sums over the batches of a run.

    Delays are those of tuples from arrival to the end of their last batch, over all batches, to 1 %. A utility is the
    mean over the batches that ended at an output, weighted by the tuples that had arrived for them.

    Attributes:
        target_s: the delay asked for.
        batches: how many there were with tuples in them, in all stages.
        arrived: well-formed tuples of all streams.
        arcs: what each drop did, by arc.
        first_s: when the first batch started, seconds since 1970.
        last_s: when the last one ended.
        sic: by output, the share of its streams' tuples that came through the drops.
        out_of_reach: why the target cannot be held, as of the last batch; None if it can.
    """

    target_s: float
    batches: int = 0
    arrived: int = 0
    arcs: dict[str, ArcTotals] = field(default_factory=dict)
    first_s: float | None = None
    last_s: float | None = None
    sic: Mapping[str, float] = field(default_factory=dict)
    out_of_reach: OutOfReach | None = None

    def __post_init__(self) -> None:
        self._delays = np.zeros(len(_EDGES) + 1)
        self._in_time = 0.0
        self._worth = MeanUtilities()
        self._worked, self._known_work = 0.0, 0

    def add(self, batch: NetworkBatch) -> None:
        """Count a batch."""
        sample = batch.sample
        if not any(counts.arrived for counts in batch.counts.values()):
            return
        self.batches += 1
        self.arrived += batch.arrived
        self.first_s = batch.start_s if self.first_s is None else self.first_s
        self.last_s = sample.time_s
        self.out_of_reach = batch.out_of_reach
        for arc, counts in batch.counts.items():
            self.arcs.setdefault(arc, ArcTotals()).add(counts)
            if counts.arrivals_s:
                self._add_delays([counts.delay_s((k + 0.5) / _POINTS, sample.time_s) for k in range(_POINTS)], counts)
        self._worth.add(batch.utilities, batch.utilities_of_loss, sample.arrived)
        if batch.load_share == batch.load_share:  # nan: not known
            self._worked += batch.load_share * batch.arrived
            self._known_work += batch.arrived

    def _add_delays(self, found: Sequence[float | None], counts: DropCounts) -> None:
        delays_s = np.array([delay_s for delay_s in found if delay_s is not None])
        weight = counts.kept / len(delays_s)
        np.add.at(self._delays, np.searchsorted(_EDGES, delays_s), weight)
        self._in_time += weight * int((delays_s <= self.target_s).sum())

    @property
    def seconds(self) -> float:
        """From the start of the first batch to the end of the last one."""
        return 0.0 if self.first_s is None or self.last_s is None else self.last_s - self.first_s

    @property
    def work_kept(self) -> float | None:
        """The work that was left, as a share of the work without drops; None if that is not known."""
        return self._worked / self._known_work if self._known_work else None

    @property
    def timed(self) -> tuple[float, float]:
        """Delivered tuples whose delay is known, and those of them that were on time."""
        return float(self._delays.sum()), self._in_time

    @property
    def within_target(self) -> float | None:
        """The share of the delivered tuples that were on time; None without arrival times."""
        total = float(self._delays.sum())
        return self._in_time / total if total else None

    def delay_s(self, quantile: float) -> float | None:
        """The delay that this share of the delivered tuples did not exceed; None without arrival times."""
        reached = np.cumsum(self._delays)
        if not reached[-1]:
            return None
        return float(_EDGES[min(int(np.searchsorted(reached, quantile * reached[-1])), len(_EDGES) - 1)])

    @property
    def utilities(self) -> dict[str, float | None]:
        """By output, with latency; None where sources cannot tell arrival times."""
        return self._worth.utilities

    @property
    def utilities_of_loss(self) -> dict[str, float | None]:
        """By output, as if nothing was late; None if nothing is known."""
        return self._worth.of_loss

    @property
    def jain(self) -> float | None:
        """Jain's index of the outputs' SIC; None without several."""
        return jain_index(list(self.sic.values())) if len(self.sic) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; null where a thing is not known."""
        return {
            "target_s": self.target_s,
            "batches": self.batches,
            "seconds": self.seconds,
            "arrived": self.arrived,
            "out_of_reach": str(self.out_of_reach) if self.out_of_reach is not None else None,
            "work_kept": self.work_kept,
            "within_target": self.within_target,
            "p50_s": self.delay_s(0.5),
            "p95_s": self.delay_s(0.95),
            "p99_s": self.delay_s(0.99),
            "arcs": {arc: vars(counts) for arc, counts in self.arcs.items()},
            "utility": self.utilities,
            "utility_of_loss": self.utilities_of_loss,
            "sic": dict(self.sic),
            "jain": self.jain,
        }
