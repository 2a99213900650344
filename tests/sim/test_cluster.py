"""Nodes, post and clocks: exact times, losses and failures."""

from __future__ import annotations

from collections import deque

import pytest
import simpy

from streamshed.engines.sim.cluster import Node, Post, at, every
from streamshed.errors import InvalidValueError


class Log:
    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self.done: list[tuple[float, float]] = []
        self.lost: list[float] = []

    def node(self) -> Node[float]:
        return Node(
            self._env, "n", deque(), float, lambda item: self.done.append((item, self._env.now)), self.lost.append
        )


def test_a_node_serves_in_order_and_waits_for_what_comes() -> None:
    env = simpy.Environment()
    log = Log(env)
    node = log.node()
    post = Post(env, delay_s=1.0)
    for item, delay_s in ((2.0, None), (3.0, None), (1.0, 10.0)):
        post.send(node.accept, item, delay_s=delay_s)
    env.run(until=20)
    assert log.done == [(2.0, 3.0), (3.0, 6.0), (1.0, 11.0)]
    assert (node.busy_s, node.served) == (6.0, 3)


def test_a_spike_slows_a_node_down_from_the_next_item_on() -> None:
    env = simpy.Environment()
    log = Log(env)
    node = log.node()
    for item in (1.0, 1.0, 1.0):
        node.accept(item)
    at(env, 0.5, lambda: setattr(node, "speed", 0.5))
    at(env, 2.0, lambda: setattr(node, "speed", 1.0))
    env.run(until=20)
    assert [time_s for _, time_s in log.done] == [1.0, 3.0, 4.0]


def test_a_node_that_is_held_takes_longer() -> None:
    env = simpy.Environment()
    log = Log(env)
    node = log.node()
    at(env, 0.5, lambda: node.hold(2.0))
    for item in (1.0, 1.0):
        node.accept(item)
    at(env, 10.0, lambda: node.hold(2.0))
    at(env, 10.5, lambda: node.accept(1.0))
    env.run(until=20)
    assert [time_s for _, time_s in log.done] == [3.0, 4.0, 13.0]
    assert node.busy_s == 7.0


def test_a_failed_node_loses_what_it_has_and_comes_back_empty() -> None:
    env = simpy.Environment()
    log = Log(env)
    node = log.node()
    for item in (4.0, 5.0):
        node.accept(item)
    at(env, 1.0, node.fail)
    at(env, 2.0, lambda: node.accept(6.0))
    at(env, 3.0, node.recover)
    at(env, 6.0, lambda: node.accept(7.0))
    env.run(until=30)
    assert sorted(log.lost) == [4.0, 5.0, 6.0]
    assert log.done == [(7.0, 13.0)]


def test_the_same_seed_loses_the_same_messages() -> None:
    def arrived(seed: int) -> list[int]:
        env = simpy.Environment()
        found: list[int] = []
        post = Post(env, delay_s=0.1, seed=seed)
        for number in range(1000):
            post.send(found.append, number, loss=0.25)
        env.run()
        assert post.sent - post.lost == len(found)
        return found

    assert arrived(1) == arrived(1) != arrived(2)
    assert len(arrived(1)) == pytest.approx(750, abs=50)


def test_repeated_actions_do_not_drift() -> None:
    env = simpy.Environment()
    times_s: list[float] = []
    every(env, 0.1, lambda: times_s.append(env.now))
    env.run(until=1000.05)
    assert len(times_s) == 10_000
    assert times_s[-1] == pytest.approx(1000.0, abs=1e-9)


def test_impossible_times_are_refused() -> None:
    env = simpy.Environment(initial_time=5.0)
    with pytest.raises(InvalidValueError, match="the time is over"):
        at(env, 4.0, lambda: None)
    with pytest.raises(InvalidValueError, match="not positive"):
        every(env, 0.0, lambda: None)
    with pytest.raises(InvalidValueError, match="negative"):
        Post(env, -1.0)
