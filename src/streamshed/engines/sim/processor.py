"""A processor: whose turn it is, and how long a train takes."""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np
import simpy

from streamshed.engines.sim.places import Place
from streamshed.engines.sim.tuples import Ids, Times
from streamshed.workload.hashing import hash64, unit

Service = Literal["fixed", "exponential"]
"""How the cost of a single tuple lies around the mean: all the same, or drawn from an exponential distribution."""

MOST = 1 << 16
"""Tuples that a train may have at most, however little they cost."""

_SERVICE_SALT = 1 << 49
_NUMBERS: Times = np.arange(1.0, MOST + 1)


class Processor:
    """Serves its operators in turn (round robin).

    With one operator, all that is known to arrive while a train lasts may go into that train, and every departure comes
    out exactly. With several, a train that waits for tuples would hold up the others, so it takes what is there.

    Args:
        env: the clock.
        operators: how many it serves.
        headroom: the share of it that queries get.
        service: how costs of single tuples lie around the mean.
        seed: of those costs.

    Attributes:
        serves_one: whether it has but one operator.
        debt_s: processing time that was spent beside the operators (on drops), to be taken off before the next train.
        busy_s: processing time spent on tuples since it was last asked.
        work_s: the same since the start.
        nominal_s: what `busy_s` would be if all costs were nominal.
        executions: tuples processed, once for each operator.
    """

    def __init__(self, env: simpy.Environment, operators: int, headroom: float, service: Service, seed: int) -> None:
        self._env = env
        self.serves_one = operators == 1
        self._headroom = headroom
        self._exponential = service == "exponential"
        self._seed = seed
        self._listed: deque[Place] = deque()
        self._idle: simpy.Event | None = None
        self.debt_s = self.busy_s = self.work_s = self.nominal_s = 0.0
        self.executions = 0

    def list(self, place: Place) -> None:
        """There is something to do at an operator."""
        if not place.is_listed:
            place.is_listed = True
            self._listed.append(place)
        self._wake()

    def _wake(self) -> None:
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def work(self) -> simpy.Event:
        """An event for when there is something to do."""
        self._idle = self._env.event()
        return self._idle

    def next(self) -> tuple[Place, float] | None:
        """Whose turn it is and when it can begin: the next with a tuple there, else the one that gets one first."""
        now_s = self._env.now
        listed = self._listed
        first, first_s = None, float("inf")
        for _ in range(len(listed)):
            place = listed[0]
            head_s = place.longest_waiting().queue.head_s
            if head_s <= now_s:
                return place, now_s
            if head_s < first_s:
                first, first_s = place, head_s
            listed.rotate(-1)
        if first is None:
            return None
        while listed[0] is not first:
            listed.rotate(-1)
        return first, first_s

    def take(self, start_s: float, train_s: float, factor: float) -> tuple[Place, int, Ids, Times]:
        """Process a train at the operator whose turn it is.

        Args:
            start_s: when it begins. A processor with one operator also takes what arrives within `train_s` from then
                on, and waits in between for tuples that are not there yet.
            train_s: how long it may take.
            factor: on nominal costs.

        Returns:
            The operator, the side its tuples came from, the tuples, and when each of them is done.
        """
        place = self._listed.popleft()
        arc = place.longest_waiting()
        lasts_s = place.cost_s * factor / self._headroom
        most = MOST if lasts_s * MOST <= train_s else max(1, int(train_s / lasts_s))
        looks_ahead = self.serves_one and len(place.inputs) == 1
        ids, ready_s = arc.queue.take(most, start_s + train_s if looks_ahead else start_s)
        if any(other.queue.length for other in place.inputs):
            self._listed.append(place)
        else:
            place.is_listed = False
        return place, arc.arc.port, ids, self._run(place, ids, ready_s, start_s, factor)

    def _run(self, place: Place, ids: Ids, ready_s: Times, start_s: float, factor: float) -> Times:
        """Process a train, after what was spent beside the operators; when each tuple is done."""
        if self.debt_s > 0:
            start_s = max(start_s, self._env.now + self.debt_s / self._headroom)
            self._spend(self.debt_s, self.debt_s)
            self.debt_s = 0.0
        done_s, busy_s = self._serve(place, ids, ready_s, start_s, place.cost_s * factor)
        self._spend(busy_s, place.cost_s * len(ids))
        self.executions += len(ids)
        return done_s

    def _spend(self, busy_s: float, nominal_s: float) -> None:
        self.busy_s += busy_s
        self.work_s += busy_s
        self.nominal_s += nominal_s

    def _serve(self, place: Place, ids: Ids, ready_s: Times, start_s: float, unit_s: float) -> tuple[Times, float]:
        """When each tuple of a train is done, first come, first served, and the processing time in all."""
        lasts_s: Times | float
        if self._exponential and unit_s > 0:
            costs_s = -unit_s * np.log1p(-unit(hash64(self._seed, _SERVICE_SALT + place.salt, ids)))
            lasts_s = costs_s / self._headroom
            ends_s = np.cumsum(lasts_s)
            busy_s = float(costs_s.sum())
        else:
            lasts_s = unit_s / self._headroom
            ends_s = _NUMBERS[: len(ids)] * lasts_s
            busy_s = unit_s * len(ids)
        if ready_s[-1] <= start_s:
            return start_s + ends_s, busy_s
        # Each begins when it is there and the one before it is done: d_i = max(r_i, d_{i-1}) + c_i, unrolled.
        return ends_s + np.maximum.accumulate(np.maximum(ready_s, start_s) - (ends_s - lasts_s)), busy_s
