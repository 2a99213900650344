"""The simulation itself: feeders, processors and a monitor as SimPy processes, tuples in trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal

import numpy as np
import simpy

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.engines.sim.arrivals import Arrivals, Spacing, ticks
from streamshed.engines.sim.measures import Measures
from streamshed.engines.sim.places import Out, Place, Places
from streamshed.engines.sim.result import SimResult
from streamshed.engines.sim.tuples import DELIVERED, DROPPED, FILTERED, Ids, Times, Tuples
from streamshed.errors import InvalidValueError
from streamshed.manager import Manager
from streamshed.network import Network, Statistics, check_rates
from streamshed.planning import Planner
from streamshed.workload import ArrivalPattern
from streamshed.workload.costs import ConstantCost, CostTrace
from streamshed.workload.hashing import hash64, unit

Process = Generator[Any, Any, None]
Service = Literal["fixed", "exponential"]
"""How the cost of a single tuple lies around the mean: all the same, or drawn from an exponential distribution."""

_SERVICE_SALT = 1 << 49
_MOST = 1 << 16
_FACTORS = 1024


def simulate(
    network: Network,
    statistics: Statistics,
    arrivals: Mapping[str, ArrivalPattern],
    seconds: float,
    *,
    controller: Controller | None = None,
    planner: Planner | None = None,
    rates: Mapping[str, float] | None = None,
    target_s: float = 2.0,
    target_changes: Mapping[float, float] | None = None,
    period_s: float = 1.0,
    headroom: float = 1.0,
    cost: CostTrace | None = None,
    service: Service = "fixed",
    spacing: Spacing = "even",
    tick_s: float = 0.01,
    train_s: float = 0.01,
    processors: Mapping[str, str] | None = None,
    seed: int = 0,
    keep_tuples: bool = False,
    progress: Callable[[float], None] | None = None,
) -> SimResult:
    """Run a network in virtual time.

    One processor takes the operators that have something to do in turn (round robin). A turn is a train: the tuples
    that are there, as many as can be processed in `train_s`. Delays are exact to `tick_s` + `train_s` in any network,
    and to the digit where every processor has one operator.

    The controller gets a sample every `period_s`, and is asked for an admission at every tick, with the tuples that
    arrive in it. Without a planner its `keep` is a coin at the entries; with one, the manager turns it into drops.

    Args:
        network: the network.
        statistics: what its operators really cost and let through, and how values are spread.
        arrivals: when tuples come, by stream.
        seconds: for how long; rounded up to whole control periods.
        controller: decides how much; None lets everything in.
        planner: decides where; None for a coin at the entries.
        rates: tuples per second that the planner takes as given; the mean rates of the arrivals if None.
        target_s: the delay beyond which a tuple counts as late.
        target_changes: new targets, by the time from which they count; the controller is told.
        period_s: the control period.
        headroom: H, the share of a processor that queries get.
        cost: by how much costs differ from the nominal ones over time.
        service: how costs of single tuples lie around the mean.
        spacing: how arrivals lie within their pattern.
        tick_s: arrivals are decided upon for so much time at once.
        train_s: how long a turn may take.
        processors: the name of the processor of each operator; one for all that are not mentioned.
        seed: of everything random.
        keep_tuples: whether to return arrival and departure of every tuple.
        progress: called with the virtual time at the end of every control period.
    """
    for name, value in (("seconds", seconds), ("period_s", period_s), ("tick_s", tick_s), ("headroom", headroom)):
        if not (value > 0 and np.isfinite(value)):
            raise InvalidValueError(f"{name} must be positive", where="simulation", got=value, expected="> 0")
    statistics.check(network)
    mean_rates = {stream: float(pattern.cumulative(seconds)) / seconds for stream, pattern in arrivals.items()}
    check_rates(network, mean_rates)
    manager = None
    if planner is not None and controller is not None:
        manager = Manager(network, statistics, rates or mean_rates, controller, planner)
    run = _Run(
        network,
        statistics,
        manager,
        controller,
        period_s=period_s,
        periods=int(np.ceil(seconds / period_s - 1e-9)),
        tick_s=tick_s,
        train_s=train_s,
        headroom=headroom,
        cost=cost or ConstantCost(),
        service=service,
        processors=processors or {},
        target_s=target_s,
        target_changes=target_changes or {},
        seed=seed,
        keep_tuples=keep_tuples,
        progress=progress,
    )
    feeds = {
        stream.id: Arrivals(stream.id, number, arrivals[stream.id], spacing, run.places, statistics, seed)
        for number, stream in enumerate(network.streams)
    }
    return run.result(feeds)


class _Processor:
    """A processor that serves its operators in turn."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self.listed: deque[Place] = deque()
        self._idle: simpy.Event | None = None
        self.debt_s = 0.0

    def list(self, place: Place) -> None:
        """There is something to do at an operator."""
        if not place.is_listed:
            place.is_listed = True
            self.listed.append(place)
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None

    def work(self) -> simpy.Event:
        """An event for when there is something to do."""
        self._idle = self._env.event()
        return self._idle

    def next(self, now_s: float) -> tuple[Place, float] | None:
        """Whose turn it is and when it can begin: the next with a tuple there, else the one that gets one first."""
        listed = self.listed
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

    def after_turn(self) -> None:
        """Put the operator whose turn it was at the end, or strike it off if nothing is left there."""
        place = self.listed.popleft()
        if any(arc.queue.length for arc in place.inputs):
            self.listed.append(place)
        else:
            place.is_listed = False


class _Run:
    """One simulation: the state that its processes share."""

    def __init__(
        self,
        network: Network,
        statistics: Statistics,
        manager: Manager | None,
        controller: Controller | None,
        *,
        period_s: float,
        periods: int,
        tick_s: float,
        train_s: float,
        headroom: float,
        cost: CostTrace,
        service: Service,
        processors: Mapping[str, str],
        target_s: float,
        target_changes: Mapping[float, float],
        seed: int,
        keep_tuples: bool,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.env = simpy.Environment()
        self.places = Places(network, statistics, seed, manager.locations if manager is not None else ())
        self.tuples = Tuples(self.places.slots.count)
        self.measures = Measures(period_s, periods, target_s, keep_tuples)
        self._manager = manager
        self._controller = controller
        self._network = network
        self._period_s = period_s
        self._periods = periods
        self._ticks_per_period = max(1, round(period_s / tick_s))
        self._tick_s = period_s / self._ticks_per_period
        self._train_s = train_s
        self._headroom = headroom
        self._cost = cost
        self._factor = 1.0
        self._exponential = service == "exponential"
        self._seed = seed
        self._drop_cost_s = statistics.drop_cost
        self._target_changes = sorted(target_changes.items())
        self._progress = progress
        self._steps = np.arange(1.0, _MOST + 1)
        names = {operator.id: processors.get(operator.id, "") for operator in network.operators}
        by_name = {name: _Processor(self.env) for name in sorted(set(names.values()))}
        self._processors = list(by_name.values())
        self._processor_of = {operator: by_name[name] for operator, name in names.items()}
        # Since the last sample; and in all.
        self._arrived = self._admitted = self._finished = 0
        self._busy_s = 0.0
        self._totals = np.zeros(2, dtype=np.int64)
        self._taken_up_s = 0.0
        self._executions = 0
        self._outstanding = 0

    def result(self, feeds: Mapping[str, Arrivals]) -> SimResult:
        """Run to the end."""
        env = self.env
        monitor = env.process(self._monitor())
        env.process(self._feeder(feeds))
        for processor in self._processors:
            env.process(self._serve(processor))
        end_s = self._periods * self._period_s
        env.run(until=monitor)
        measures = self.measures
        measures.delays_of_period()
        arrivals_s, departures_s = measures.tuples_s
        arrived = int(self._totals[0])
        outs = self.places.outs.items()
        return SimResult(
            seconds=end_s,
            arrived=arrived,
            admitted=int(self._totals[1]),
            delivered=measures.delivered,
            dropped=measures.dropped,
            filtered=measures.filtered,
            under_way=self._outstanding,
            violations_s=measures.violations_s,
            delayed=measures.delayed,
            overshoot_s=measures.overshoot_s,
            delays=measures.delays,
            utilization=self._taken_up_s / end_s / len(self._processors) if self._processors else 0.0,
            executions=self._executions,
            dropped_on={arc: out.dropped for arc, out in outs if out.dropped},
            entered={arc: out.entered for arc, out in outs},
            series=measures.series,
            arrivals_s=arrivals_s,
            departures_s=departures_s,
        )

    # --- processes ----------------------------------------------------------------------------------------------------

    def _monitor(self) -> Process:
        for number in range(1, self._periods + 1):
            yield self._until(number * self._ticks_per_period)
            sample = self._sample(number * self._period_s)
            if self._manager is not None:
                self._manager.observe(sample)
            elif self._controller is not None:
                self._controller.observe(sample)
            if self._progress is not None:
                self._progress(sample.time_s)

    def _feeder(self, feeds: Mapping[str, Arrivals]) -> Process:
        count = self._periods * self._ticks_per_period
        for tick, trains in enumerate(ticks(feeds, self._tick_s, count, self.tuples, lambda: None)):
            yield self._until(tick)
            if tick % _FACTORS == 0:
                factors = self._cost.factor(np.arange(tick, tick + _FACTORS, dtype=np.float64) * self._tick_s)
            self._factor = float(factors[tick % _FACTORS])
            self._change_target(tick * self._tick_s)
            self._take_in(trains)

    def _serve(self, processor: _Processor) -> Process:
        env = self.env
        while True:
            turn = processor.next(env.now)
            if turn is None:
                yield processor.work()
                continue
            yield env.timeout(self._turn(processor, *turn))

    def _until(self, tick: int) -> simpy.Event:
        return self.env.timeout(max(0.0, tick * self._tick_s - self.env.now))

    # --- what they do -------------------------------------------------------------------------------------------------

    def _change_target(self, now_s: float) -> None:
        while self._target_changes and self._target_changes[0][0] <= now_s + 1e-9:
            self.measures.delays_of_period()
            self.measures.target_s = self._target_changes.pop(0)[1]
            if self._controller is not None:
                self._controller.target_s = self.measures.target_s

    def _sample(self, time_s: float) -> LoadSample:
        measures = self.measures
        delays_s = measures.delays_of_period()
        quantiles = [float(q) for q in np.quantile(delays_s, [0.5, 0.95, 0.99, 1.0])] if len(delays_s) else [None] * 4
        sample = LoadSample(
            time_s,
            self._period_s,
            self._arrived,
            self._admitted,
            waiting=0.0,
            oldest_wait_s=0.0,
            delay_p50_s=quantiles[0],
            delay_p95_s=quantiles[1],
            delay_p99_s=quantiles[2],
            delay_max_s=quantiles[3],
            outstanding=float(self._outstanding),
            finished=float(self._finished),
            busy_s=self._busy_s,
        )
        measures.end_period(time_s, self._arrived, self._admitted, self._finished, self._outstanding, self._busy_s)
        self._arrived = self._admitted = self._finished = 0
        self._busy_s = 0.0
        return sample

    def _take_in(self, trains: list[tuple[str, Ids, Times]]) -> None:
        """Decide on the tuples of a tick, and let those in that stay."""
        count = sum(len(ids) for _, ids, _ in trains)
        self._arrived += count
        self._totals[0] += count
        if not count:
            return
        self._decide(count)
        for stream, ids, times_s in trains:
            entry = self.places.outs[stream]
            entry.entered += len(ids)
            at = self.tuples.at(ids)
            if entry.threshold > 0:
                kept = entry.ranks(self.tuples, at) >= entry.threshold
                refused = len(ids) - int(np.count_nonzero(kept))
                if refused:
                    self.tuples.copies[at[~kept]] = 0
                    entry.dropped += refused
                    self.measures.refused(refused)
                    ids, times_s, at = ids[kept], times_s[kept], at[kept]
            self._admitted += len(ids)
            self._totals[1] += len(ids)
            self._outstanding += len(ids)
            self._hand_on(self.places.entries[stream], ids, at, times_s)

    def _decide(self, waiting: int) -> None:
        if self._controller is None:
            return
        outlook = Outlook(self.env.now, float(waiting), 0.0, self._tick_s, float(self._outstanding), self._finished)
        if self._manager is not None:
            for arc, threshold in self._manager.decide(outlook).thresholds.items():
                self.places.outs[arc].threshold = threshold
            return
        threshold = 1.0 - self._controller.admit(outlook).keep
        for stream in self._network.streams:
            self.places.outs[stream.id].threshold = threshold

    def _turn(self, processor: _Processor, place: Place, start_s: float) -> float:
        """Process a train, and say how long that takes from now on."""
        now_s = self.env.now
        unit_s = place.cost_s * self._factor
        lasts_s = unit_s / self._headroom
        most = _MOST if lasts_s * _MOST <= self._train_s else max(1, int(self._train_s / lasts_s))
        idle = start_s > now_s
        ids, ready_s = place.longest_waiting().queue.take(most, start_s + self._train_s if idle else start_s)
        processor.after_turn()
        count = len(ids)
        done_s, busy_s = self._service(place, ids, ready_s, start_s, unit_s)
        self._busy_s += busy_s
        self._taken_up_s += busy_s / self._headroom
        self._executions += count
        self._hand_on(place.outs, ids, self.tuples.at(ids), done_s)
        return max(0.0, float(done_s[-1]) - now_s)

    def _service(self, place: Place, ids: Ids, ready_s: Times, start_s: float, unit_s: float) -> tuple[Times, float]:
        """When each tuple of a train is done, first come, first served, and the processing time in all."""
        if self._exponential and unit_s > 0:
            chance = unit(hash64(self._seed, _SERVICE_SALT + place.salt, ids))
            costs_s = -unit_s * np.log1p(-chance)
            ends_s = np.cumsum(costs_s) / self._headroom
            lasts_s: Times | float = costs_s / self._headroom
            busy_s = float(costs_s.sum())
        else:
            lasts_s = unit_s / self._headroom
            ends_s = self._steps[: len(ids)] * lasts_s
            busy_s = unit_s * len(ids)
        if ready_s[-1] <= start_s:
            return start_s + ends_s, busy_s
        # Each begins when it is there and the one before it is done: d_i = max(r_i, d_{i-1}) + c_i, unrolled.
        return ends_s + np.maximum.accumulate(np.maximum(ready_s, start_s) - (ends_s - lasts_s)), busy_s

    def _hand_on(self, outs: list[Out], ids: Ids, at: Ids, times_s: Times) -> None:
        """Tuples leave a stream or an operator: along every arc that wants them, or for good if none does."""
        tuples = self.tuples
        if len(outs) == 1 and outs[0].choice is None:
            self._pass(outs[0], ids, at, times_s)
            return
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
        """Tuples come to an arc: past its drop, and into its queue or the output."""
        if not len(ids):
            return
        out.entered += len(ids)
        if out.threshold > 0:
            kept = out.ranks(self.tuples, at) >= out.threshold
            lost = len(ids) - int(np.count_nonzero(kept))
            if lost:
                out.dropped += lost
                gone = ~kept
                self._end(at[gone], times_s[gone], DROPPED)
                ids, at, times_s = ids[kept], at[kept], times_s[kept]
                if not len(ids):
                    return
        if out.place is None:
            self._end(at, times_s, DELIVERED)
            return
        out.queue.push(ids, times_s)
        self._processor_of[out.place.id].list(out.place)

    def _end(self, at: Ids, times_s: Times, fate: int) -> None:
        """Copies of tuples have come to their end."""
        tuples = self.tuples
        if self.places.may_repeat:
            np.subtract.at(tuples.copies, at, 1)
            np.maximum.at(tuples.left_s, at, times_s)
            tuples.fate[at] |= fate
            at = np.unique(at)
        else:
            tuples.copies[at] -= 1
            tuples.left_s[at] = np.maximum(tuples.left_s[at], times_s)
            tuples.fate[at] |= fate
        gone = at[tuples.copies[at] == 0]
        if len(gone):
            self._outstanding -= len(gone)
            self._finished += len(gone)
            self.measures.left(tuples, gone)
