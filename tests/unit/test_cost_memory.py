"""What is believed of batches before any have run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamshed.control import BatchCost, LoadSample, PlantController
from streamshed.control.base import Controller, Outlook
from streamshed.engines.spark.cost_memory import CostMemory, believed_cost, cautious
from streamshed.load import Admission
from streamshed.network import parse_spec

SPEC = """
name: two
streams: {s: {columns: {v: int}}, t: {columns: {v: int}}}
operators: {a: {type: filter, input: s, where: v > 1}, b: {type: filter, input: t, where: v > 1}}
outputs: {o: {input: a}, p: {input: b}}
statistics: {costs: {a: 0.002, b: 0.004}}
rates: {s: 300, t: 100}
"""


def test_statistics_say_what_a_tuple_costs_on_average() -> None:
    # 0.6 and 0.4 s of work for 400 tuples a second: 2.5 ms each, and a tenth of that to read one.
    cost = believed_cost(parse_spec(SPEC), 10.0)
    assert cost is not None
    assert (cost.fixed_s, cost.read_s, cost.process_s) == pytest.approx((0.5, 0.00025, 0.0025))


def test_a_machine_with_more_capacity_needs_less_time() -> None:
    cost = believed_cost(parse_spec(SPEC + "capacity: 2\n"), 10.0)
    assert cost is not None
    assert (cost.read_s, cost.process_s) == pytest.approx((0.000125, 0.00125))


@pytest.mark.parametrize(("target_s", "fixed_s"), [(1.0, 0.1), (4.9, 0.49), (5.0, 0.5), (60.0, 0.5)])
def test_an_empty_batch_takes_half_a_second_but_a_tenth_of_the_target_at_most(target_s: float, fixed_s: float) -> None:
    cost = believed_cost(parse_spec(SPEC), target_s)
    assert cost is not None
    assert cost.fixed_s == pytest.approx(fixed_s)


def test_statistics_that_say_nothing_give_no_cost() -> None:
    assert believed_cost(parse_spec(SPEC.replace("0.002", "0").replace("0.004", "0")), 10.0) is None
    assert believed_cost(parse_spec(SPEC.replace("{s: 300, t: 100}", "{s: 0, t: 0}")), 10.0) is None
    assert believed_cost(parse_spec(SPEC.replace("a: 0.002, ", "")), 10.0) is None, "not of all"


# --- caution ---------------------------------------------------------------------------------------------------------


def test_half_of_a_typical_batch_grows_with_its_tuples() -> None:
    # A batch takes 2 + 1e-4 * 1000 + 1e-4 * 500 = 2.15 s; half of it grows: 0.1 s for reading, the rest for 500 tuples.
    cost = cautious(BatchCost(2.0, 1e-4, 1e-4, 0.3), 1000, 500)
    assert (cost.fixed_s, cost.read_s) == pytest.approx((1.075, 1e-4))
    assert cost.process_s == pytest.approx((1.075 - 0.1) / 500)
    assert cost.error_s == 0.3
    assert cost.duration_s(1000, 500) == pytest.approx(2.15), "a typical batch takes as long as before"


@pytest.mark.parametrize(
    ("cost", "kept"),
    [
        (BatchCost(0.5, 0.0, 1e-3), 500),  # just half of it grows
        (BatchCost(0.5, 4e-4, 2e-4), 500),  # reading counts
        (BatchCost(0.1, 0.0, 1e-2), 500),
        (BatchCost(2.0, 0.0, 0.0), 0),  # of what was not kept nothing can be said
    ],
)
def test_costs_that_grow_are_believed_as_they_are(cost: BatchCost, kept: int) -> None:
    assert cautious(cost, 1000, kept) is cost


# --- memory ----------------------------------------------------------------------------------------------------------


SAMPLE = LoadSample(10.0, 0.3, arrived=1000, kept=400)
KNOWN = BatchCost(0.1, 1e-5, 1e-3, 0.02)


class Knowing(PlantController):
    """Knows a cost, and writes down what it is told."""

    def __init__(self, cost: BatchCost | None) -> None:
        super().__init__(2.0)
        self.known = cost
        self.told: list[tuple[BatchCost, float]] = []

    @property
    def cost(self) -> BatchCost | None:
        return self.known

    def believe(self, cost: BatchCost, arrived: float) -> None:
        self.told.append((cost, arrived))


class Ignorant(Controller):
    """Knows nothing of costs."""

    def observe(self, sample: LoadSample) -> None:
        raise AssertionError

    def admit(self, outlook: Outlook) -> Admission:
        raise AssertionError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cost.json"


def test_what_one_run_has_found_out_the_next_one_begins_with(file: Path) -> None:
    CostMemory(file).keep(Knowing(KNOWN), SAMPLE)
    again = Knowing(None)
    CostMemory(file).recall(again)
    assert again.told == [(KNOWN, 1000.0)]


def test_it_begins_with_caution(file: Path) -> None:
    CostMemory(file).keep(Knowing(BatchCost(2.0, 0.0, 0.0)), SAMPLE)
    again = Knowing(None)
    CostMemory(file).recall(again)
    ((cost, arrived),) = again.told
    assert arrived == 1000.0
    assert (cost.fixed_s, cost.process_s) == pytest.approx((1.0, 1.0 / 400))


def test_the_latest_batch_is_remembered(file: Path) -> None:
    memory = CostMemory(file)
    memory.keep(Knowing(BatchCost(0.2, 0.0, 1.0)), SAMPLE)
    memory.keep(Knowing(KNOWN), SAMPLE)
    assert json.loads(file.read_text())["cost"]["fixed_s"] == 0.1


def test_a_batch_without_tuples_and_unknown_costs_are_not_remembered(file: Path) -> None:
    CostMemory(file).keep(Knowing(KNOWN), LoadSample(10.0, 0.3, arrived=0, kept=0))
    CostMemory(file).keep(Knowing(None), SAMPLE)
    CostMemory(file).keep(Ignorant(), SAMPLE)
    assert not file.exists()
    again = Knowing(None)
    CostMemory(file).recall(again)
    assert again.told == []


def test_who_knows_no_costs_is_told_none(file: Path) -> None:
    CostMemory(file).keep(Knowing(KNOWN), SAMPLE)
    CostMemory(file).recall(Ignorant())


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cost": {"fixed_s": 1}, "arrived": 1, "kept": 1}',
        '{"cost": {"fixed_s": 1, "read_s": 0, "process_s": 0, "odd": 0}, "arrived": 1, "kept": 1}',
        '{"cost": {"fixed_s": 1, "read_s": 0, "process_s": 0}, "kept": 1}',
        '{"cost": {"fixed_s": 1, "read_s": 0, "process_s": 0}, "arrived": "many", "kept": 1}',
        '{"cost": 3, "arrived": 1, "kept": 1}',
    ],
)
def test_a_damaged_memory_is_said_and_left_alone(file: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(text)
    again = Knowing(None)
    CostMemory(file).recall(again)
    assert again.told == []
    assert "cannot be used" in caplog.text


def test_a_memory_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    CostMemory(tmp_path / "not there" / "cost.json").keep(Knowing(KNOWN), SAMPLE)
