"""The simulation of a federation: queries that share overloaded nodes, and their coordinators.

Decisions are those of `planning.fair`: what is simulated here is what happens around them. Tuples travel in batches,
as the shedder handles them.

The single-machine engine next door decides on single tuples on the arcs of a network, and takes windows by their
statistics. Here a decision is about batches in the buffer of a node, and SIC is conserved only if windows are filled
and closed, so queues, tuples and traffic are other ones; clock, arrival patterns and hashes are the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import simpy

from streamshed.engines.sim.cluster import Post, at, every
from streamshed.engines.sim.federation import Coordination, Federation, Happening
from streamshed.engines.sim.feed import Feed
from streamshed.engines.sim.fragments import OpenWindows, Rows, window_of
from streamshed.engines.sim.quality import Accounts, FederationRun
from streamshed.engines.sim.sites import Parcel, Site, parcel_of
from streamshed.errors import InvalidValueError
from streamshed.planning.fair import (
    INTERVAL_S,
    WINDOW_S,
    Batch,
    OverloadDetector,
    Shedder,
    SheddingPolicy,
    policy_named,
)
from streamshed.workload.hashing import hash64, unit

_LOOK_SALT = 1 << 43


def simulate_federation(
    federation: Federation,
    seconds: float,
    *,
    policy: str | Callable[[int], SheddingPolicy] | None = "fair",
    spares_derived: bool = False,
    interval_s: float = INTERVAL_S,
    span_s: float = WINDOW_S,
    coordination: Coordination | None = None,
    happenings: Sequence[Happening] = (),
    decision_s: float = 0.0,
    seed: int = 0,
    keep_results: bool = False,
) -> FederationRun:
    """Run a federation in virtual time.

    Args:
        federation: nodes, fragments and sources.
        seconds: for how long sources send; rounded up to whole windows.
        policy: how shedders choose, by name or as what makes a policy from a seed; None for no shedding at all.
        spares_derived: whether shedders spare tuples that other nodes have worked on.
        interval_s: the shedding interval δ.
        span_s: the source time window.
        coordination: how coordinators report; None if there are none, so that every node knows only its own part.
        happenings: what happens to nodes on the way.
        decision_s: how long a node stands still while its shedder decides.
        seed: of everything random.
        keep_results: whether to return all results.

    >>> from streamshed.engines.sim.federation import Source
    >>> from streamshed.engines.sim.fragments import Fragment, average
    >>> from streamshed.workload import Constant
    >>> queries = [Fragment(query, "n", cost_s=0.001, finish=average) for query in range(2)]
    >>> federation = Federation(queries, [Source(0, Constant(400)), Source(1, Constant(1600))], {"n": 1.0})
    >>> run = simulate_federation(federation, 30)
    >>> run.mean_sic(10).round(1).tolist()
    [0.5, 0.5]
    """
    for name, value in {"seconds": seconds, "interval_s": interval_s, "span_s": span_s}.items():
        if not (value > 0 and math.isfinite(value)):
            raise InvalidValueError(f"{name} must be positive", where="simulation", got=value, expected="> 0")

    def new_shedder(number: int) -> Shedder:
        own = seed * 1009 + number
        chooses = policy(own) if callable(policy) else policy_named(policy or "fair", own)
        detector = OverloadDetector(interval_s)
        return Shedder(federation.queries, chooses, detector, window_s=span_s, spares_derived=spares_derived)

    running = _Running(federation, seconds, span_s, new_shedder, decision_s, seed, keep_results)
    running.start(interval_s, coordination, sheds=policy is not None)
    for happening in happenings:
        running.plan(happening)
    end_s = running.last_window * federation.window_s + running.answer_s
    running.env.run(until=end_s + 1e-6)
    accounts, sites = running.accounts, running.sites
    dropped, lost = sum(site.dropped_sic for site in sites.values()), sum(site.lost_sic for site in sites.values())
    return FederationRun(
        window_s=federation.window_s,
        span=accounts.span,
        sent=accounts.sent,
        arrived=accounts.arrived,
        closed=running.closed,
        dropped_sic=dropped,
        lost_sic=lost,
        tuples={
            "sent": running.feed.tuples,
            "dropped": sum(site.dropped for site in sites.values()),
            "lost": sum(site.lost for site in sites.values()),
        },
        decisions=sum(site.decisions for site in sites.values()),
        waits_s={name: np.array(site.waits_s) for name, site in sites.items()},
        busy={name: site.node.busy_s / end_s for name, site in sites.items()},
        messages=(running.reports.sent, running.reports.lost),
        results=running.results,
    )


class _Running:
    """A federation while it runs."""

    def __init__(
        self,
        federation: Federation,
        seconds: float,
        span_s: float,
        new_shedder: Callable[[int], Shedder],
        decision_s: float,
        seed: int,
        keep_results: bool,
    ) -> None:
        self.env = simpy.Environment()
        self._federation, self._seed, self._keep_results = federation, seed, keep_results
        self._new_shedder, self._decision_s = new_shedder, decision_s
        self._interval_s, self._sheds = 0.0, False
        self._post = Post(self.env, federation.delay_s, seed)
        self.reports = Post(self.env, 0.0, seed + 1)
        self.feed = Feed(federation, seconds, span_s, seed)
        self.last_window = window_of(seconds, federation.window_s)
        self.accounts = Accounts(federation.queries, self.last_window, round(span_s / federation.window_s))
        self._home = [fragment.node for fragment in federation.fragments]
        self._open = [OpenWindows(fragment, federation.window_s) for fragment in federation.fragments]
        depths = [federation.depth(number) for number in range(len(federation.fragments))]
        self._by_depth = [[n for n, of in enumerate(depths) if of == depth] for depth in range(max(depths) + 1)]
        self.answer_s = federation.slack_s * len(self._by_depth)
        self.closed = 0
        self.results: list[list[tuple[int, float, Rows]]] = [[] for _ in range(federation.queries)]
        self.sites: dict[str, Site] = {}

    def start(self, interval_s: float, coordination: Coordination | None, *, sheds: bool) -> None:
        """Set all clocks going: sources, windows, detectors, coordinators if there are any."""
        federation = self._federation
        self._interval_s, self._sheds = interval_s, sheds
        for name, speed in federation.speeds.items():
            self._add_site(name, speed)
        every(self.env, federation.batch_s, self._send_batches)
        for depth, numbers in enumerate(self._by_depth):
            late_s = federation.slack_s * (1 + depth)
            closing = _Closing(self, numbers, is_last=depth == len(self._by_depth) - 1)
            every(self.env, federation.window_s, closing.next, first_s=federation.window_s + late_s)
        if coordination is not None:
            every(self.env, coordination.period_s, lambda: self._report(coordination))

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _add_site(self, name: str, speed: float) -> None:
        number = len(self.sites)
        site = Site(
            self.env, name, speed, lambda: self._new_shedder(number), self._cost_s, self._processed, self._decision_s
        )
        self.sites[name] = site
        # Detectors of different nodes look at different times.
        first_s = self._interval_s * (0.5 + float(unit(hash64(self._seed, _LOOK_SALT, np.array([number])))[0]))
        every(self.env, self._interval_s, site.look if self._sheds else site.watch, first_s=first_s)

    def plan(self, happening: Happening) -> None:
        """Let something happen to a node."""
        at(self.env, happening.time_s, lambda: self._happen(happening))

    def _happen(self, happening: Happening) -> None:
        if happening.what == "join":
            self._add_site(happening.node, happening.speed)
            self._move_to(happening.node)
            return
        site = self.sites[happening.node]
        if happening.what == "speed":
            site.node.speed = happening.speed
        elif happening.what == "recover":
            site.recover()
        else:
            if happening.what == "leave":
                self._move_from(happening.node)
            site.fail()

    def _move_from(self, name: str) -> None:
        """The fragments of a node move to those that have the fewest."""
        others = [other for other, site in self.sites.items() if other != name and site.node.is_up]
        for number, home in enumerate(self._home):
            if home == name:
                counts = Counter(self._home)
                self._home[number] = min(others, key=lambda other: counts[other])

    def _move_to(self, name: str) -> None:
        """A new node takes fragments from those that have the most, until it has its share."""
        share = len(self._home) // sum(site.node.is_up for site in self.sites.values())
        for _ in range(share):
            most = Counter(self._home).most_common(1)[0][0]
            self._home[self._home.index(most)] = name

    # --- tuples ------------------------------------------------------------------------------------------------------

    def _cost_s(self, batch: Batch) -> float:
        return batch.tuples * self._open[parcel_of(batch).fragment].fragment.cost_s

    def _send_batches(self) -> None:
        by_query, batches = self.feed.next()
        self.accounts.sent[min(window_of(self.env.now, self._federation.window_s), self.last_window)] += by_query
        for batch, after_s in batches:
            self._send(batch, after_s)

    def _send(self, batch: Batch, after_s: float = 0.0) -> None:
        """To the node that hosts the fragment when it arrives."""
        number = parcel_of(batch).fragment
        self._post.send(
            lambda sent: self.sites[self._home[number]].node.accept(sent),
            batch,
            delay_s=self._federation.delay_s + after_s,
        )

    def _processed(self, batch: Batch) -> None:
        parcel = parcel_of(batch)
        self._push(parcel.fragment, self.feed.rows(batch), parcel.side, batch.sic)

    def _push(self, number: int, rows: Rows, side: int, sic: float) -> None:
        used = self._open[number].push(rows, side, sic)
        if used > 0:
            window = window_of(float(rows.times_s[-1]), self._federation.window_s)
            self._arrive(self._open[number].fragment.query, window, used)

    def _arrive(self, query: int, window: int, sic: float) -> None:
        """SIC has come to a query's result, or was used; what comes too late counts for the oldest open window."""
        self.accounts.arrived[min(max(window, self.closed + 1), self.last_window), query] += sic

    def close(self, number: int, window: int) -> None:
        """A window of a fragment is over: its results go to the next fragment, through the buffer of its node."""
        rows, sic = self._open[number].close(window)
        fragment = self._open[number].fragment
        if sic == 0:
            return
        if fragment.to is None or not len(rows):
            self._arrive(fragment.query, window, sic)
            if self._keep_results and fragment.to is None:
                self.results[fragment.query].append((window, sic, rows))
        elif self._home[fragment.to] == self._home[number]:
            self._push(fragment.to, rows, 0, sic)  # within a node tuples do not wait in its buffer again
        else:
            parcel = Parcel(fragment.to, 0, self.env.now, rows)
            self._send(Batch(fragment.query, sic, len(rows), parcel, is_derived=True))

    # --- coordinators ------------------------------------------------------------------------------------------------

    def _report(self, coordination: Coordination) -> None:
        """Every query's coordinator tells the nodes that host it what its results were worth."""
        if self.closed == 0:
            return
        as_of_s = self.closed * self._federation.window_s
        found = self.accounts.result_sic(self.closed).tolist()
        hosts = sorted({(fragment.query, self._home[n]) for n, fragment in enumerate(self._federation.fragments)})
        for query, name in hosts:
            report = (as_of_s, query, found[query])
            self.reports.send(_receiver(self.sites[name]), report, delay_s=coordination.lag_s, loss=coordination.loss)


def _receiver(site: Site) -> Callable[[tuple[float, int, float]], None]:
    return lambda report: site.report(*report)


class _Closing:
    """Closes the windows of all fragments of one depth, one after the other."""

    def __init__(self, running: _Running, numbers: list[int], *, is_last: bool) -> None:
        self._running, self._numbers, self._is_last = running, numbers, is_last
        self._window = 0

    def next(self) -> None:
        self._window += 1
        for number in self._numbers:
            self._running.close(number, self._window)
        if self._is_last:
            self._running.closed = min(self._window, self._running.last_window)
