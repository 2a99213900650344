"""Nodes that shed load for one another, in virtual time: queues, delays on the way, messages that get lost.

What flows are amounts of tuples with the time that they came into being. Every node looks at its rates once a period
and decides what to drop as tuples come in; how it decides is the question:

- `tables`: by its feasible input table, built on the tables that its children send once a period;
- `coordinator`: as one node says that hears from all others once a period, and answers;
- `local`: by its own constraints alone, as if nobody was below it.

In all of them a node whose queue has grown drops more for a while, and a node that has lost touch goes by its own
constraints.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
import simpy

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.feasible_input.corners import corner_table
from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.feasible_input.upkeep import TableKeeper
from streamshed.distributed.feasible_input.wire import MessageError, encode
from streamshed.distributed.mailbox import Mailbox
from streamshed.distributed.model import NodeModel
from streamshed.engines.sim.cluster import Node, Post, at, every
from streamshed.engines.sim.tree_run import TreeResult, TreeRun

Mode = Literal["tables", "coordinator", "local"]

_OLD_PLAN = 5
"""Periods after which a plan that was not renewed no longer counts; a table is stale after as many."""
_SLACK = 0.02


@dataclass(frozen=True)
class _Train:
    """Tuples at an input of a node."""

    input_id: str
    amount: float
    born_s: float
    keep: Mapping[str, float] = field(default_factory=dict)


def run_tree(settings: TreeRun, mode: Mode) -> TreeResult:
    """Play a topology for some time."""
    return _Play(settings, mode).result()


class _Play:
    def __init__(self, settings: TreeRun, mode: Mode) -> None:
        self.settings, self.mode = settings, mode
        self.env = simpy.Environment()
        self.post = Post(self.env, settings.delay_s, settings.seed)
        self.bytes = 0
        self.arrived: list[tuple[float, float, float, float]] = []
        topology = settings.topology
        self.sites = {node.name: _Site(self, node) for node in topology.nodes}
        self.office = _Office(self) if mode == "coordinator" else None
        for input_id in topology.external:
            site = self.sites[topology.owner[input_id]]
            every(self.env, settings.step_s, self._feeder(site, input_id), first_s=0.0)
        for number, name in enumerate(topology.upstream_first):
            # Not all at the same moment: nobody has synchronised them.
            first_s = settings.period_s * (0.05 + 0.9 * ((number * 0.618) % 1.0))
            every(self.env, settings.period_s, self.sites[name].tick, first_s=first_s)
        for spike in settings.spikes:
            at(self.env, spike.start_s, self.sites[spike.node].speed_setter(spike.share))
            at(self.env, spike.end_s, self.sites[spike.node].speed_setter(1.0))
        for outage in settings.outages:
            at(self.env, outage.start_s, self.sites[outage.node].fail)
            at(self.env, outage.end_s, self.sites[outage.node].recover)

    def _feeder(self, site: _Site, input_id: str) -> Callable[[], None]:
        amount = self.settings.rates_tps[input_id] * self.settings.step_s
        return lambda: site.take(_Train(input_id, amount, self.env.now))

    def send(self, receiver: Callable[[bytes], None], data: bytes) -> None:
        self.bytes += len(data)
        self.post.send(receiver, data, loss=self.settings.loss)

    def deliver(self, output: str, amount: float, born_s: float) -> None:
        worth = self.settings.score.worth(output, 1.0) * amount
        self.arrived.append((self.env.now, worth, self.env.now - born_s, amount))

    def result(self) -> TreeResult:
        settings = self.settings
        self.env.run(until=settings.seconds)
        rows = np.array(self.arrived).reshape(-1, 4)
        periods = round(settings.seconds / settings.period_s)
        place = np.minimum((rows[:, 0] / settings.period_s).astype(int), periods - 1)
        amount = np.bincount(place, rows[:, 3], periods)
        waited = np.bincount(place, rows[:, 3] * rows[:, 2], periods)
        return TreeResult(
            np.bincount(place, rows[:, 1], periods) / settings.period_s,
            np.divide(waited, amount, out=np.full(periods, np.nan), where=amount > 0),
            rows[:, 0],
            rows[:, 2],
            rows[:, 3],
            self.post.sent - self.carried,
            self.bytes,
            self.post.lost,
            sum(site.node.busy_s for site in self.sites.values()),
        )

    @property
    def carried(self) -> int:
        """Things sent that were tuples."""
        return sum(site.sent for site in self.sites.values())


class _Site:
    """A node of the topology: its queue, its decisions, and what it hears."""

    def __init__(self, play: _Play, model: NodeModel) -> None:
        self.play, self.model = play, model
        self.node: Node[_Train] = Node(play.env, model.name, deque(), self._cost_s, self._done)
        self.sent = 0
        self.speed = 1.0
        self._forget()

    def _forget(self) -> None:
        """What a node knows when it starts."""
        topology = self.play.settings.topology
        self.seen = dict.fromkeys(self.model.inputs, 0.0)
        self.keep = dict.fromkeys((segment.id for segment in self.model.segments), 1.0)
        self.plan_age = 0
        self.plan: Mapping[str, float] | None = None
        self.mailbox = Mailbox(
            {child: topology.node[child].inputs for child in topology.children[self.model.name]},
            stale_after_s=_OLD_PLAN * self.play.settings.period_s,
        )
        self.keeper = TableKeeper(self._table, tolerance=self._error / 2)

    @property
    def _error(self) -> float:
        return self.play.settings.max_error / len(self.play.settings.topology.nodes)

    def _table(self, model: NodeModel, children: Mapping[str, FeasibleInputTable]) -> FeasibleInputTable:
        limits = dict.fromkeys(model.inputs, 10 * max(self.play.settings.rates_tps.values()))
        return corner_table(model, self.play.settings.score, MaxError(self._error), children.values(), limits)

    def current_model(self) -> NodeModel:
        """The node as it is: with what the machine has left for it."""
        share = self.play.settings.headroom * self.speed
        return replace(self.model, capacity=float(self.model.capacity) * share)

    def speed_setter(self, share: float) -> Callable[[], None]:
        """Lets the node have a share of its machine."""

        def change() -> None:
            self.speed = self.node.speed = share

        return change

    def fail(self) -> None:
        self.node.fail()

    def recover(self) -> None:
        self._forget()
        self.node.recover()

    def take(self, train: _Train) -> None:
        """Tuples have arrived: what is dropped is dropped now."""
        self.seen[train.input_id] += train.amount
        self.node.accept(replace(train, keep=self.keep))

    def _flows(self, train: _Train) -> dict[str, float]:
        flows: dict[str, float] = {}
        available = {train.input_id: train.amount}
        for segment in self.model.segments:
            if segment.source in available:
                flows[segment.id] = available[segment.source] * train.keep[segment.id]
                available[segment.id] = flows[segment.id] * float(segment.selectivity)
        return flows

    def _cost_s(self, train: _Train) -> float:
        flows = self._flows(train)
        return sum(
            float(segment.cost) * flows[segment.id] for segment in self.model.segments if segment.id in flows
        ) / float(self.model.capacity)

    def _done(self, train: _Train) -> None:
        flows = self._flows(train)
        topology = self.play.settings.topology
        for end in self.model.ends:
            amount, target = flows.get(end.id, 0.0) * float(end.selectivity), str(end.end)
            if amount <= 0:
                continue
            if target in topology.owner:
                self.sent += 1
                below = self.play.sites[topology.owner[target]]
                self.play.post.send(below.take, _Train(target, amount, train.born_s))
            else:
                self.play.deliver(target, amount, train.born_s)

    def tick(self) -> None:
        """A period is over: hear, decide, tell."""
        if not self.node.is_up:
            return
        now_s, period_s = self.play.env.now, self.play.settings.period_s
        rates = {name: amount / period_s for name, amount in self.seen.items()}
        self.seen = dict.fromkeys(self.model.inputs, 0.0)
        backlog_s = sum(self._cost_s(train) for train in self.node.waiting) / max(self.speed, 1e-9)
        if self.play.office is not None:
            self.plan_age += 1
            self._report(self.play.office, rates)
        flows = self._planned(rates) or self._decided(rates, now_s)
        self.keep = self._kept(rates, flows, max(1.0 - max(backlog_s - 0.1, 0.0) / self.play.settings.drain_s, 0.1))
        if self.play.mode == "tables":
            self._tell(now_s)

    def _planned(self, rates: Mapping[str, float]) -> Mapping[str, float] | None:
        """The coordinator's plan, unless it is old, or would overload the node as it is."""
        if self.plan is None or self.plan_age > _OLD_PLAN:
            return None
        capacity = float(self.current_model().capacity)
        return self.plan if self._load(rates, self.plan) <= capacity * (1 + _SLACK) else None

    def _decided(self, rates: Mapping[str, float], now_s: float) -> Mapping[str, float]:
        """By the node's own table, with what is known of its children."""
        children = self.mailbox.tables(now_s) if self.play.mode == "tables" else {}
        self.keeper.update(self.current_model(), children)
        assert self.keeper.table is not None
        return self.keeper.table.decide(rates).flows

    def _load(self, rates: Mapping[str, float], flows: Mapping[str, float]) -> float:
        """The load of a plan made for other rates, at these: what is planned, or what comes if that is less."""
        keep = self._kept(rates, flows, 1.0)
        load, available = 0.0, dict(rates)
        for segment in self.model.segments:
            into = available[segment.source] * keep[segment.id]
            available[segment.id] = into * float(segment.selectivity)
            load += float(segment.cost) * into
        return load

    def _kept(self, rates: Mapping[str, float], flows: Mapping[str, float], relief: float) -> dict[str, float]:
        """Flows as shares of what comes; `relief` takes off where tuples enter."""
        available, keep = dict(rates), {}
        for segment in self.model.segments:
            whole = available[segment.source]
            into = min(flows[segment.id], whole)
            keep[segment.id] = (into / whole if whole > 1e-12 else 1.0) * (
                relief if segment.source in self.model.inputs else 1.0
            )
            available[segment.id] = into * float(segment.selectivity)
        return keep

    def _tell(self, now_s: float) -> None:
        message = self.keeper.message(now_s)
        for name in self.play.settings.topology.parents[self.model.name]:
            if message is not None:
                self.play.send(partial(self.play.sites[name].hear, self), encode(message))

    def hear(self, child: _Site, data: bytes) -> None:
        """A child's table arrives; it is told which version is known now."""
        if not self.node.is_up:
            return
        with suppress(MessageError):  # the answer says what is known
            self.mailbox.accept(data, self.play.env.now)
        version = self.mailbox.version(child.model.name)
        self.play.send(child.answered, b"" if version is None else str(version).encode())

    def answered(self, data: bytes) -> None:
        """A parent says which version of the table it has."""
        self.keeper.heard(int(data) if data else None)

    def _report(self, office: _Office, rates: Mapping[str, float]) -> None:
        numbers = np.array([self.speed, *rates.values()]).tobytes()
        self.play.send(partial(office.hear, self.current_model(), dict(rates)), numbers)

    def obey(self, flows: Mapping[str, float], _: bytes) -> None:
        """A plan arrives."""
        self.plan, self.plan_age = flows, 0


class _Office:
    """The coordinator: knows what it was told last, and plans once a period."""

    def __init__(self, play: _Play) -> None:
        self._play = play
        settings = play.settings
        self._models = {name: site.current_model() for name, site in play.sites.items()}
        self._rates = dict.fromkeys(settings.topology.external, 0.0)
        every(play.env, settings.period_s, self._plan, first_s=1.5 * settings.period_s)

    def hear(self, model: NodeModel, rates: Mapping[str, float], _: bytes) -> None:
        """A node says how it is, and what comes in."""
        self._models[model.name] = model
        self._rates |= {input_id: rate for input_id, rate in rates.items() if input_id in self._rates}

    def _plan(self) -> None:
        settings = self._play.settings
        topology = settings.topology.replaced(*self._models.values())
        plan = Coordinator(topology, settings.score, max(*self._rates.values(), 1.0)).plan(self._rates)
        for name, flows in plan.flows.items():
            data = np.array(list(flows.values())).tobytes()
            self._play.send(partial(self._play.sites[name].obey, flows), data)
