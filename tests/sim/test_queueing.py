"""Delays against queueing theory, and against an independent reckoning of single runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

from streamshed.engines.sim import SimResult, simulate
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.qos import Histogram
from streamshed.workload import Constant

RATE_TPS = 140.0
WARM_UP_S = 40.0


def one_operator() -> Network:
    new = NetworkBuilder("one")
    new.stream("s", {"v": "double"}).map("work", {"v": "v"}).output("out")
    return new.build()


def chain(length: int) -> Network:
    new = NetworkBuilder("chain")
    flow = new.stream("s", {"v": "double"})
    for number in range(length):
        flow = flow.map(f"op{number}", {"v": "v"})
    flow.output("out")
    return new.build()


def fork() -> Network:
    """A common operator, then one of two, by value."""
    new = NetworkBuilder("fork")
    branches = new.stream("s", {"v": "double"}).split("a", {"left": "v < 40", "right": "v >= 40"})
    for name, flow in branches.items():
        flow.map(f"{name}_work", {"v": "v"}).output(f"{name}_out")
    return new.build()


def mean_delay_s(run: SimResult) -> float:
    settled = run.arrivals_s > WARM_UP_S
    return float((run.departures_s - run.arrivals_s)[settled].mean())


def assert_within_confidence(means_s: list[float], expected_s: float) -> None:
    """The expectation lies in the 99 % confidence interval of the replications, and that is narrow."""
    half_s = student.ppf(0.995, len(means_s) - 1) * np.std(means_s, ddof=1) / math.sqrt(len(means_s))
    assert half_s < 0.04 * expected_s, "too few tuples to tell"
    assert abs(np.mean(means_s) - expected_s) <= half_s


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_operator_of_fixed_cost_is_m_d_1(load: float) -> None:
    """E[T] = s·(1 + ρ / (2·(1 − ρ))), Pollaczek and Khinchine."""
    cost_s = load / RATE_TPS
    means_s = [
        mean_delay_s(
            simulate(
                one_operator(), Statistics({"work": cost_s}), {"s": Constant(RATE_TPS)}, 600,
                spacing="poisson", tick_s=0.5, train_s=0.5, seed=seed, keep_tuples=True,
            )
        )
        for seed in range(8)
    ]  # fmt: skip
    assert_within_confidence(means_s, cost_s * (1 + load / 2 / (1 - load)))


def test_operators_on_processors_of_their_own_are_a_jackson_network() -> None:
    """With exponential costs each is an M/M/1 by itself: E[T] = Σ share / (μ − λ) over the operators."""
    costs = {"a": 0.6 / RATE_TPS, "left_work": 0.7 / (0.4 * RATE_TPS), "right_work": 0.5 / (0.6 * RATE_TPS)}
    visits = {"a": 1.0, "left_work": 0.4, "right_work": 0.6}
    expected_s = sum(visits[name] / (1 / cost_s - visits[name] * RATE_TPS) for name, cost_s in costs.items())
    statistics = Statistics(costs, {"a.left": 0.4, "a.right": 0.6}, {"s": {"v": Histogram.uniform(0, 100)}})
    means_s = [
        mean_delay_s(
            simulate(
                fork(), statistics, {"s": Constant(RATE_TPS)}, 600, service="exponential", spacing="poisson",
                tick_s=1.0, train_s=1.0, processors={name: name for name in costs}, seed=seed, keep_tuples=True,
            )
        )
        for seed in range(8)
    ]  # fmt: skip
    assert_within_confidence(means_s, expected_s)


def lindley(arrivals_s: NDArray[np.float64], cost_s: float) -> NDArray[np.float64]:
    """Departures from one queue, one after the other."""
    departures_s = np.zeros(len(arrivals_s))
    free_s = 0.0
    for i, arrived_s in enumerate(arrivals_s):
        free_s = max(free_s, arrived_s) + cost_s
        departures_s[i] = free_s
    return departures_s


@pytest.mark.parametrize(("tick_s", "train_s"), [(0.01, 0.01), (0.5, 0.1), (1.0, 0.0)])
def test_every_departure_from_one_operator_is_exact(tick_s: float, train_s: float) -> None:
    run = simulate(
        one_operator(), Statistics({"work": 0.005}), {"s": Constant(190)}, 40,
        spacing="poisson", tick_s=tick_s, train_s=train_s, seed=3, keep_tuples=True,
    )  # fmt: skip
    assert np.allclose(run.departures_s, lindley(run.arrivals_s, 0.005), atol=1e-9)


def test_a_processor_with_many_operators_wastes_no_time() -> None:
    """It runs empty exactly when a single queue with the same work would, whatever the order of the turns."""
    run = simulate(
        chain(5), Statistics({f"op{number}": 0.001 for number in range(5)}), {"s": Constant(150)}, 40,
        spacing="poisson", tick_s=0.1, train_s=0.0, seed=3, keep_tuples=True,
    )  # fmt: skip
    arrivals_s = np.sort(run.arrivals_s)
    whole_s = lindley(arrivals_s, 0.005)
    ends_s = whole_s[:-1][arrivals_s[1:] > whole_s[:-1]]
    assert len(ends_s) > 500
    found = np.searchsorted(np.sort(run.departures_s), ends_s - 1e-9)
    assert np.allclose(np.sort(run.departures_s)[found], ends_s, atol=1e-9)
    # Taking turns lies between finishing one tuple after the other and sharing the processor evenly: S / (1 − ρ).
    assert float(np.mean(whole_s - arrivals_s)) <= run.delays.mean_s <= 0.005 / (1 - 0.75)


def test_longer_trains_change_delays_by_no_more_than_their_length() -> None:
    statistics = Statistics({f"op{number}": 1e-5 for number in range(5)})
    means_s = {
        train_s: simulate(
            chain(5), statistics, {"s": Constant(15_000)}, 5,
            spacing="poisson", tick_s=0.01, train_s=train_s, seed=3,
        ).delays.mean_s
        for train_s in (0.001, 0.01)
    }  # fmt: skip
    assert abs(means_s[0.01] - means_s[0.001]) <= 0.01 + 0.01
