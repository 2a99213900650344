"""The controller against a simulated micro-batch engine: overload diverges without it, and holds the target with it."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from streamshed.control import BatchCost, CostEstimator, LoadSample, Outlook, PlantController
from streamshed.errors import InvalidValueError

COST = BatchCost(fixed_s=0.15, read_s=1e-6, process_s=1.5e-5)
CAPACITY_TPS = 1 / (COST.read_s + COST.process_s)
TARGET_S = 2.0


@dataclass
class Batch:
    start_s: float
    duration_s: float
    arrived: int
    kept: int
    worst_delay_s: float

    @property
    def dropped(self) -> int:
        return self.arrived - self.kept


def simulate(
    rate_tps: Callable[[float], float],
    until_s: float,
    controller: PlantController | None,
    noise: float = 0.0,
    pause: tuple[int, float] | None = None,
    cost: BatchCost = COST,
    seed: int = 7,
) -> list[Batch]:
    """Back-to-back batches, each taking all that has arrived; a decision is made when a batch starts."""
    generator = random.Random(seed)
    now_s = taken_s = 0.0
    batches: list[Batch] = []
    while now_s < until_s:
        steps = 200
        width = (now_s - taken_s) / steps
        waiting = int(sum(rate_tps(taken_s + (i + 0.5) * width) * width for i in range(steps)))
        if waiting < 1:
            now_s += 0.01
            continue
        wait_s = now_s - taken_s
        keep = controller.admit(Outlook(now_s, waiting, wait_s, wait_s)).keep if controller else 1.0
        kept = int(waiting * keep)
        duration_s = cost.duration_s(waiting, kept) * (1 + generator.gauss(0, noise))
        if pause is not None and len(batches) == pause[0]:
            duration_s += pause[1]
        taken_s, now_s = now_s, now_s + duration_s
        batches.append(Batch(taken_s, duration_s, waiting, kept, wait_s + duration_s))
        if controller is not None:
            controller.observe(LoadSample(now_s, duration_s, waiting, kept))
    return batches


def burst(factor: float, start_s: float = 20.0, end_s: float = 50.0, calm: float = 0.5) -> Callable[[float], float]:
    return lambda time_s: CAPACITY_TPS * (factor if start_s <= time_s < end_s else calm)


@pytest.mark.parametrize("factor", [1.5, 3.0, 6.0])
def test_overload_is_held(factor: float) -> None:
    batches = simulate(burst(factor), 80.0, PlantController(TARGET_S, CostEstimator(warmup=0)), noise=0.05)
    calm = [batch for batch in batches if batch.start_s < 20]
    loaded = [batch for batch in batches if 22 <= batch.start_s < 50]
    after = [batch for batch in batches if batch.start_s >= 54]
    assert sum(batch.dropped for batch in calm) == 0
    kept = sum(batch.kept for batch in loaded)
    late = sum(batch.kept for batch in loaded if batch.worst_delay_s > TARGET_S)
    assert late <= 0.05 * kept
    # Work-conserving: batches follow each other at once, and are long enough to make good use of their fixed cost.
    span_s = loaded[-1].start_s + loaded[-1].duration_s - loaded[0].start_s
    assert sum(batch.duration_s for batch in loaded) >= 0.85 * span_s
    least = min(0.85, 1.0 / factor) * (1 - COST.fixed_s / 0.9) * 0.9
    assert kept >= least * sum(batch.arrived for batch in loaded) * (1 - factor * COST.read_s / COST.process_s)
    assert sum(batch.dropped for batch in after) == 0


def test_without_control_the_same_burst_diverges() -> None:
    batches = simulate(burst(3.0), 50.0, None)
    assert max(batch.worst_delay_s for batch in batches) > 5 * TARGET_S


def test_drops_end_soon_after_the_burst() -> None:
    batches = simulate(burst(3.0), 80.0, PlantController(TARGET_S, CostEstimator(warmup=0)))
    shedding = [batch for batch in batches if batch.dropped and batch.start_s >= 50]
    assert len(shedding) <= 3


def test_a_long_pause_is_survived() -> None:
    batches = simulate(burst(1.5), 80.0, PlantController(TARGET_S, CostEstimator(warmup=0)), pause=(40, 4.0))
    bad = [batch for batch in batches if batch.worst_delay_s > TARGET_S]
    assert 1 <= len(bad) <= 4
    assert batches[-1].dropped == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_burst_after_a_steady_rate_is_not_taken_for_cheap(seed: int) -> None:
    # All batches before it are of one size and nearly all fixed cost: their noise may say that tuples cost nothing.
    cost = BatchCost(fixed_s=0.55, read_s=0.8e-6, process_s=1.9e-5)
    batches = simulate(
        lambda time_s: 160_000 if 20 <= time_s < 32 else 5_700, 45.0, PlantController(2.0), 0.06, cost=cost, seed=seed
    )
    assert max(batch.duration_s for batch in batches) < 1.2, "one that keeps all takes over 2 s, the next more"
    assert sum(batch.dropped for batch in batches if batch.start_s < 20) == 0
    loaded = [batch for batch in batches if 20 <= batch.start_s < 32]
    full = sum(0.9 - cost.fixed_s - cost.read_s * batch.arrived for batch in loaded) / cost.process_s
    assert sum(batch.kept for batch in loaded) > 0.5 * full
    assert sum(batch.dropped for batch in batches if batch.start_s > 36) == 0


def test_everything_is_kept_until_costs_are_known() -> None:
    controller = PlantController(TARGET_S)
    outlook = Outlook(0.0, waiting=1e9, oldest_wait_s=60.0, span_s=60.0)
    for _ in range(3):
        assert controller.admit(outlook).keep == 1.0
        controller.observe(LoadSample(0.0, 10.0, arrived=1000, kept=1000))
    controller.observe(LoadSample(0.0, 10.0, arrived=1000, kept=1000))
    assert controller.admit(outlook).keep < 0.01


def late(insist: bool = False) -> PlantController:
    """Has learnt that an empty batch takes 0.15 s, where it may take 0.1 s and be of use."""
    controller = PlantController(0.2, CostEstimator(warmup=0), insist=insist)
    time_s = 0.0
    for number in (10_000, 20_000, 30_000, 10_000):
        duration_s = COST.duration_s(number, number)
        time_s += duration_s
        controller.observe(LoadSample(time_s, duration_s, arrived=number, kept=number))
    return controller


def test_a_target_out_of_reach_is_said_and_not_dropped_for() -> None:
    controller = late()
    assert str(controller.out_of_reach).startswith("an empty batch takes 0.15 s: a target of 0.2 s cannot be held")
    admission = controller.admit(Outlook(0.0, 30_000, 0.3, 0.3))
    assert not admission.attainable
    assert admission.keep == 1.0


def test_the_target_named_instead_is_within_reach() -> None:
    reach = late().out_of_reach
    assert reach is not None
    assert reach.empty_s == pytest.approx(0.15, rel=0.03)
    assert reach.least_s == pytest.approx(reach.empty_s / 0.45 / 0.9)
    batches = simulate(lambda _: 1000.0, 40.0, PlantController(reach.least_s, CostEstimator(warmup=0)), noise=0.02)
    assert sum(batch.dropped for batch in batches) == 0
    assert max(batch.worst_delay_s for batch in batches[3:]) <= reach.least_s


def test_who_insists_gets_drops_for_a_target_out_of_reach() -> None:
    admission = late(insist=True).admit(Outlook(0.0, 30_000, 0.3, 0.3))
    assert not admission.attainable
    assert 0.02 < admission.keep < 0.5


# A sink that takes 3.4 s whatever it gets, at two rates far below the capacity, and one that is too much.
SLOW = BatchCost(fixed_s=3.4, read_s=1e-6, process_s=1e-5)


@pytest.mark.parametrize("rate_tps", [1_000.0, 20_000.0, 40_000.0])
@pytest.mark.parametrize("seed", [7, 8, 9])
def test_nothing_is_dropped_where_drops_make_nothing_shorter(rate_tps: float, seed: int) -> None:
    controller = PlantController(TARGET_S)
    batches = simulate(lambda _: rate_tps, 300.0, controller, noise=0.03, cost=SLOW, seed=seed)
    # A batch or two, until that is known; and once in a while noise says that it may be worth a try.
    assert sum(batch.dropped for batch in batches) <= 0.03 * sum(batch.arrived for batch in batches)
    assert controller.out_of_reach is not None
    insisting = simulate(lambda _: rate_tps, 300.0, PlantController(TARGET_S, insist=True), 0.03, cost=SLOW, seed=seed)
    assert sum(batch.dropped for batch in insisting) > 2 * sum(batch.dropped for batch in batches)
    assert min(batch.worst_delay_s for batch in insisting[2:]) > 3 * TARGET_S, "it buys nothing"


def test_out_of_reach_only_the_excess_is_dropped() -> None:
    batches = simulate(lambda _: 150_000.0, 400.0, PlantController(TARGET_S), noise=0.03, cost=SLOW)
    assert max(batch.duration_s for batch in batches[8:]) < 6 * SLOW.fixed_s / (1 - 0.15)
    kept = sum(batch.kept for batch in batches[8:]) / sum(batch.arrived for batch in batches[8:])
    # Batches of five times what one with nothing in it takes: four fifths of what reading leaves goes into processing.
    assert kept == pytest.approx(0.8 * (1 - 0.15) / 1.5, abs=0.06)


def test_a_target_comes_within_reach_again() -> None:
    """Java has warmed up: batches of 3.4 s at first, later 0.4 s."""
    controller = PlantController(TARGET_S)
    simulate(lambda _: 50_000.0, 120.0, controller, noise=0.03, cost=SLOW)
    assert controller.out_of_reach is not None
    warm = simulate(lambda _: 50_000.0, 120.0, controller, noise=0.03, cost=BatchCost(0.4, 1e-6, 1e-5))
    assert controller.out_of_reach is None
    late_ones = sum(batch.kept for batch in warm if batch.start_s > 60 and batch.worst_delay_s > TARGET_S)
    assert late_ones < 0.05 * sum(batch.kept for batch in warm if batch.start_s > 60)


def test_a_target_that_can_just_be_held_is_not_given_up() -> None:
    controller = PlantController(TARGET_S)
    batches = simulate(lambda _: 40_000.0, 200.0, controller, noise=0.03, cost=BatchCost(0.8, 1e-6, 1e-5))
    assert controller.out_of_reach is None
    assert sum(batch.worst_delay_s > 1.1 * TARGET_S for batch in batches) < 0.1 * len(batches)


def test_update_is_one_step() -> None:
    controller = PlantController(TARGET_S, CostEstimator(warmup=0))
    for number in (20_000, 40_000):
        admission = controller.update(LoadSample(0.0, COST.duration_s(number, number), number, number, waiting=1e6))
    assert admission.capacity < 1.0


def test_bad_target_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="target"):
        PlantController(0)
