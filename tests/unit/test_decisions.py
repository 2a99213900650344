"""The manager between a controller and a planner that do as they are told: who is asked when, and with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from streamshed.control import Controller, LoadSample, Outlook
from streamshed.load import Admission
from streamshed.manager import Manager
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.planning import DropPlan, Planner, RoadMapPlanner, SemanticRoadMapPlanner
from streamshed.qos import Cell, Histogram, Qos, ValueGraph

NOW = Outlook(0.0, 1000, 0.5, 0.5)
# 400 tuples a second: 2 ms each, and 4 ms more for those that pass.
KNOWN = Statistics({"high": 0.002, "dear": 0.004}, {"high": 0.25}, {"s": {"v": Histogram.uniform(0, 100)}})
FULL_LOAD = 400 * 0.002 + 100 * 0.004


class Told(Controller):
    """Keeps the share that it was told."""

    def __init__(self, keep: float = 1.0) -> None:
        self.target_s, self.keep = 2.0, keep
        self.seen: list[LoadSample] = []

    def observe(self, sample: LoadSample) -> None:
        self.seen.append(sample)

    def admit(self, outlook: Outlook) -> Admission:
        assert outlook is NOW
        return Admission(0.0, self.keep)


class Noted(Planner):
    """Hands on to a road map, and notes what it was asked."""

    name: ClassVar[str] = "noted"
    title: ClassVar[str] = "noted"

    def __init__(self, inner: Planner, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.inner, self.meanwhile = inner, meanwhile
        self.by_value = inner.by_value  # type: ignore[misc]
        self.asked: list[tuple[Statistics, Mapping[str, float], float]] = []

    def _plan(
        self, network: Network, statistics: Statistics, rates: Mapping[str, float], admission: Admission
    ) -> DropPlan:
        self.asked.append((statistics, dict(rates), admission.capacity))
        plan = self.inner.plan(network, statistics, rates, admission)
        self.meanwhile()
        return plan


def network() -> Network:
    new = NetworkBuilder("one")
    value = ValueGraph.of("v", [(75, 0.1), (90, 0.1), (90, 1), (100, 1)])
    flow = new.stream("s", {"k": "bigint", "v": "double"}).filter("high", "v > 75")
    flow.map("dear", {"k": "k", "v": "v"}).output("out", Qos(value=value))
    return new.build()


def managed(
    keep: float = 1.0, *, by_value: bool = False, statistics: Statistics = KNOWN
) -> tuple[Manager, Told, Noted]:
    controller = Told(keep)
    planner = Noted(SemanticRoadMapPlanner() if by_value else RoadMapPlanner())
    return Manager(network(), statistics, {"s": 400.0}, controller, planner), controller, planner


def test_the_planner_gets_the_share_of_the_full_load_that_the_controller_keeps() -> None:
    manager, controller, planner = managed(0.75)
    assert manager.keep == 1.0, "nobody was asked yet"
    decision = manager.decide(NOW)
    assert planner.asked == [(KNOWN, {"s": 400.0}, pytest.approx(0.75 * FULL_LOAD))]
    assert manager.keep == 0.75
    assert decision.load_share == pytest.approx(0.75)
    assert decision.thresholds == {"s": pytest.approx(0.25, abs=1 / 256)}
    controller.keep = 0.0
    assert manager.decide(NOW).load_share == 0.0
    assert manager.keep == 0.0


def test_a_plan_holds_until_the_share_changes_or_what_it_goes_by() -> None:
    manager, controller, planner = managed(0.75)
    first = manager.decide(NOW)
    assert manager.decide(NOW) is first
    assert len(planner.asked) == 1
    controller.keep = 0.5
    second = manager.decide(NOW)
    assert (second.load_share, len(planner.asked)) == (pytest.approx(0.5), 2)
    controller.keep = 0.75
    assert manager.decide(NOW).plan == first.plan
    assert len(planner.asked) == 3, "only the last one is remembered"
    manager.replan()
    manager.decide(NOW)
    assert len(planner.asked) == 4
    manager.decide(NOW)
    assert len(planner.asked) == 4


def test_a_sample_goes_to_the_controller() -> None:
    manager, controller, planner = managed()
    sample = LoadSample(1.0, 1.0, 10, 10)
    manager.observe(sample)
    assert controller.seen == [sample]
    assert not planner.asked


def test_what_costs_nothing_has_all_of_its_load_left() -> None:
    manager, _, _ = managed(0.5, statistics=Statistics(selectivities=KNOWN.selectivities))
    assert manager.decide(NOW).load_share == 1.0
    cheap = replace(KNOWN, costs={"high": 2e-9, "dear": 4e-9})
    assert managed(0.5, statistics=cheap)[0].decide(NOW).load_share == pytest.approx(0.5)


def test_rates_are_those_of_the_beginning() -> None:
    rates = {"s": 400.0}
    planner = Noted(RoadMapPlanner())
    manager = Manager(network(), KNOWN, rates, Told(), planner)
    rates["s"] = 1.0
    manager.decide(NOW)
    assert planner.asked[0][1] == {"s": 400.0}


# --- new statistics --------------------------------------------------------------------------------------------------


def test_new_statistics_are_planned_with_from_the_next_decision_on() -> None:
    """Twice as dear: the full load is twice as much, and so is what a share of it comes to."""
    manager, _, planner = managed(0.75)
    manager.decide(NOW)
    dearer = replace(KNOWN, costs={"high": 0.004, "dear": 0.008})
    manager.renew(dearer)
    assert manager.statistics is dearer
    assert len(planner.asked) == 1, "not before somebody asks"
    decision = manager.decide(NOW)
    assert planner.asked[1:] == [(dearer, {"s": 400.0}, pytest.approx(0.75 * 2 * FULL_LOAD))]
    assert decision.load_share == pytest.approx(0.75)
    assert manager.decide(NOW) is decision


def test_with_new_statistics_ranks_stay_and_thresholds_follow() -> None:
    """First three quarters of the values are of no use, then half: the same threshold would drop less than wanted."""
    manager, _, _ = managed(0.75, by_value=True)
    (before,) = manager.locations
    assert [(one.cell, one.share) for one in before.order] == [
        (Cell(0, 75), pytest.approx(0.75)),
        (Cell(75, 90), pytest.approx(0.15)),
        (Cell(90, 100), pytest.approx(0.1)),
    ]
    threshold = manager.decide(NOW).thresholds["s"]
    spread = Histogram.of([(0, 75, 0.5), (75, 90, 0.25), (90, 100, 0.25)])
    manager.renew(replace(KNOWN, selectivities={"high": 0.5}, histograms={"s": {"v": spread}}))
    (after,) = manager.locations
    assert [(one.cell, one.start, one.width) for one in after.order] == [
        (one.cell, one.start, one.width) for one in before.order
    ]
    assert [one.share for one in after.order] == pytest.approx([0.5, 0.25, 0.25])
    decision = manager.decide(NOW)
    # 800 ms for the filter and 800 behind it; a quarter of it is all of the 200 that it rejects, at 2 ms.
    assert decision.load_share == pytest.approx(0.75)
    assert decision.thresholds["s"] == pytest.approx(before.order[0].width)
    # Before, 1.2 s: 0.3 are 150 of the 300 that it rejects.
    assert threshold == pytest.approx(before.order[0].width / 2, abs=1 / 256)


def test_a_plan_that_was_made_while_statistics_changed_is_not_kept() -> None:
    manager, _, planner = managed(0.75)
    newer = replace(KNOWN, selectivities={"high": 0.5})
    planner.meanwhile = lambda: manager.renew(newer) if len(planner.asked) == 1 else None
    manager.decide(NOW)
    assert manager.keep == 1.0, "not decided yet"
    manager.decide(NOW)
    assert [asked[0] for asked in planner.asked] == [KNOWN, newer]
    manager.decide(NOW)
    assert len(planner.asked) == 2


def test_where_it_is_not_known_how_values_are_spread_chance_decides_within_a_cell() -> None:
    known, unknown = (
        Manager(network(), KNOWN, {"s": 400.0}, Told(), SemanticRoadMapPlanner(), unordered)
        for unordered in (frozenset[str](), frozenset({"s"}))
    )
    assert all(one.inner_order for one in known.locations[0].order)
    assert not any(one.inner_order for one in unknown.locations[0].order)
