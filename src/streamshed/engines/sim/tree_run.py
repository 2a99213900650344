"""What to run nodes that shed load for one another on, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamshed.distributed.model import Topology
from streamshed.distributed.scores import Score, Throughput
from streamshed.workload.profile import Floats


@dataclass(frozen=True)
class Spike:
    """For some time a node has only a share of its capacity left: something else needs the machine."""

    node: str
    start_s: float
    end_s: float
    share: float


@dataclass(frozen=True)
class Outage:
    """A node is down for some time, and comes back knowing nothing."""

    node: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class TreeRun:
    """How to run a topology.

    Attributes:
        topology: the nodes.
        rates_tps: what comes from outside.
        seconds: for how long.
        score: what results are worth; linear.
        max_error: the error of the tables, in score.
        headroom: the share of the capacity that is planned for.
        period_s: between two decisions, and two messages.
        delay_s: on the way between nodes, for tuples and messages.
        loss: the share of messages that get lost; tuples do not.
        step_s: the time between two arrivals; so many tuples at once are one item.
        drain_s: the time in which a queue should be worked off by dropping more.
        spikes: what goes wrong.
        outages: what goes worse.
        seed: decides which messages get lost.
    """

    topology: Topology
    rates_tps: Mapping[str, float]
    seconds: float = 60.0
    score: Score = field(default_factory=Throughput)
    max_error: float = 0.01
    headroom: float = 0.95
    period_s: float = 1.0
    delay_s: float = 0.05
    loss: float = 0.0
    step_s: float = 0.05
    drain_s: float = 4.0
    spikes: Sequence[Spike] = ()
    outages: Sequence[Outage] = ()
    seed: int = 0


@dataclass(frozen=True)
class TreeResult:
    """What came of a run.

    Attributes:
        score: by period, what arrived at the outputs, per second.
        delay_s: by period, the mean delay of that; not a number where nothing arrived.
        arrived_s: when everything that arrived did, by item.
        delays_s: how late each of them was.
        amounts: how many tuples each of them is.
        messages: messages sent between nodes, answers included.
        message_bytes: how long they were together.
        lost: how many got lost.
        busy_s: processing time of all nodes together.
    """

    score: Floats
    delay_s: Floats
    arrived_s: Floats
    delays_s: Floats
    amounts: Floats
    messages: int
    message_bytes: int
    lost: int
    busy_s: float

    def delay_quantile_s(self, share: float, from_s: float = 0.0, to_s: float = np.inf) -> float:
        """The delay that this share of what arrived between two times stayed within."""
        inside = (self.arrived_s >= from_s) & (self.arrived_s < to_s)
        if not inside.any():
            return float("nan")
        delays_s, amounts = self.delays_s[inside], self.amounts[inside]
        order = np.argsort(delays_s)
        reached = np.cumsum(amounts[order])
        return float(delays_s[order][np.searchsorted(reached, share * reached[-1])])
