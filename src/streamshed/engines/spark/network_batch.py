"""What a running network tells of each of its micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamshed.control import LoadSample, OutOfReach
from streamshed.engines.spark.monitor import DropCounts


@dataclass(frozen=True)
class NetworkBatch:
    """A micro-batch of a running network, or of one of its stages.

    Attributes:
        sample: what the controller gets to see. A batch at the end of a chain of stages counts with all batches
            upstream that led to it: their tuples, and the sum of their durations along the longest way.
        batch_id: counted from 0.
        start_s: when it started, seconds since 1970.
        counts: what each drop did, by arc; also how much was read from each durable arc. Arrival times are only with
            tuples that went no further.
        thresholds: of each drop, as applied.
        load_share: the work that was left, as a share of the work without drops; nan if that is not known.
        utilities: of each output for which tuples have come to their end with it: `utilities_of_loss`, times the mean
            latency utility of the tuples delivered; None where that is not known, because sources cannot tell arrivals.
        observed: everything observed in its plan, for observations of the user's own.
        stage: the stage that ran it.
        arrived: well-formed tuples that came into the network with it; a stream that several stages read is counted
            in the first of them.
        sic: of each output, over the source time window that ends with the batch: what share of its streams' tuples
            came through the drops.
        strategies: under which each query is, where stages are scheduled.
        switches: how often a query has changed its strategy.
        out_of_reach: why the target cannot be held, whatever is dropped; None if it can, as far as is known.
        utilities_of_loss: of the same outputs, what the plan foresees: value utility where it values values, else tuple
            utility; None for drops of a plan from before a restart.
    """

    sample: LoadSample
    batch_id: int
    start_s: float
    counts: Mapping[str, DropCounts]
    thresholds: Mapping[str, float]
    load_share: float
    utilities: Mapping[str, float | None]
    observed: Mapping[str, Mapping[str, Any]]
    stage: str
    arrived: int
    sic: Mapping[str, float] = field(default_factory=dict)
    strategies: Mapping[str, str] = field(default_factory=dict)
    switches: int = 0
    out_of_reach: OutOfReach | None = None
    utilities_of_loss: Mapping[str, float | None] = field(default_factory=dict)
