"""MavStream's experiments (chapter 6), run in the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamshed.engines.sim import Scheduling, SimResult, Windows, simulate
from streamshed.engines.sim.tracks import QueryTrack
from streamshed.experiments.claims import DataTable, Settings, Value
from streamshed.experiments.mavstream_query import BURST, BURST_S, CYCLE_S, MONITORING, OUTPUT, Setting
from streamshed.network import Network, NetworkBuilder, Statistics
from streamshed.qos import (
    DropOrder,
    Goal,
    Goals,
    Histogram,
    Measure,
    OverTime,
    Priority,
    Qos,
    SheddingBy,
)
from streamshed.scheduling import Decision, OptimizerSettings
from streamshed.workload import Expressway, Phases
from streamshed.workload.profile import Floats

STRATEGIES = ("path-capacity", "segment", "simplified-segment")
OPTIMIZER = "optimizer"
PRESSED = "6.2.1 at the rates of 6.2.2"
EASED = "6.2.2 with the latency of path capacity as the goal"
MTRES = (0.0, 0.1, 0.2, 0.3)
WINDOWS = (1000, 500)
NEAR = 0.1
"""Two values count as nearly equal if they differ by no more than this share."""
CAR_TPS, CAR_LOAD, CAR_QUANTUM_S = 2000.0, 0.4, 0.25
WINDOW_S = 20.0

_MUST, _BEST, _DONT = Priority.MUST_SATISFY, Priority.BEST_EFFORT, Priority.DONT_CARE


@dataclass(frozen=True)
class Lengths:
    """How long runs last, and when memory is tightened in those of section 6.2."""

    single_s: float
    multiple_s: float
    tighten_s: float
    shedding_s: float
    error_s: float

    @classmethod
    def of(cls, settings: Settings) -> Lengths:
        """The thesis's 500 s, or less."""
        return cls(30, 30, 15, 30, 40) if settings.quick else cls(200, 700, 500, 300, 600)


@dataclass(frozen=True)
class Errors:
    """What shedding did to the answers: relative errors, one a window."""

    sums: Floats
    means: Floats
    dropped: float


@dataclass(frozen=True)
class Measured:
    """All runs.

    Attributes:
        lengths: how long they were.
        single: by strategy or optimizer: one measure (6.1).
        different: latency must be satisfied, memory does not matter (6.2.1).
        pressed: the same at the rates of the next, where memory does exceed its goal; the optimizer only.
        same: both must be satisfied (6.2.2).
        eased: the same with a latency goal that path capacity holds in bursts, too; the optimizer only.
        shedding: by window and tolerable error (6.3); nothing is shed at 0.
        errors: by kind of shedder and tolerable error (6.4).
    """

    lengths: Lengths
    single: Mapping[str, SimResult]
    different: Mapping[str, SimResult]
    pressed: SimResult
    same: Mapping[str, SimResult]
    eased: SimResult
    shedding: Mapping[tuple[int, float], SimResult]
    errors: Mapping[tuple[str, float], Errors]


def track(run: SimResult) -> QueryTrack:
    """What was measured of the query."""
    assert run.scheduling is not None
    return run.scheduling.queries[OUTPUT]


def decisions(run: SimResult) -> Sequence[Decision]:
    """What the optimizer decided in a run."""
    return run.scheduling.decisions if run.scheduling is not None else ()


def measure(settings: Settings) -> Measured:
    """Run all experiments."""
    lengths = Lengths.of(settings)
    tight_s = lengths.tighten_s
    memory = OverTime.of([(0, 10e6), (tight_s, 10e6), (tight_s, 1e6)])
    fast = {"a": 2000.0, "b": 1800.0, "c": 2200.0}
    single = Setting(fast, 500, Goals({Measure.LATENCY: _goal(1.0, _BEST)}))
    latency_first = Goals({Measure.LATENCY: _goal(0.5, _MUST), Measure.MEMORY: Goal(memory, _DONT)})
    different = Setting({"a": 800.0, "b": 950.0, "c": 500.0}, 500, latency_first)
    same = Setting(fast, 500, Goals({Measure.LATENCY: _goal(0.5, _MUST), Measure.MEMORY: Goal(memory, _MUST)}))
    of_same = _compare(settings, "6.2.2 same priority", same, lengths.multiple_s)
    held_s = float(np.nanmax(track(of_same["path-capacity"]).latency_s))
    eased = replace(same, goals=Goals({Measure.LATENCY: _goal(held_s, _MUST), Measure.MEMORY: Goal(memory, _MUST)}))
    return Measured(
        lengths,
        _compare(settings, "6.1 single measure", single, lengths.single_s),
        _compare(settings, "6.2.1 different priorities", different, lengths.multiple_s),
        Setting(fast, 500, latency_first).run("segment", lengths.multiple_s, settings.seed, optimize=True),
        of_same,
        eased.run("segment", lengths.multiple_s, settings.seed, optimize=True),
        _shed(settings, lengths.shedding_s),
        _errors(settings, lengths.error_s),
    )


def _goal(value: float, priority: Priority) -> Goal:
    return Goal(OverTime.of([(0, value)]), priority)


def _compare(settings: Settings, what: str, setting: Setting, seconds: float) -> dict[str, SimResult]:
    settings.progress.begin(what, len(STRATEGIES) + 1)
    runs = {}
    for name in (*STRATEGIES, OPTIMIZER):
        optimize = name == OPTIMIZER
        runs[name] = setting.run("segment" if optimize else name, seconds, settings.seed, optimize=optimize)
        settings.progress.advance()
    return runs


def _shed(settings: Settings, seconds: float) -> dict[tuple[int, float], SimResult]:
    rates = {1000: {"a": 1000.0, "b": 750.0, "c": 500.0}, 500: {"a": 1100.0, "b": 1450.0, "c": 1000.0}}
    latency = {1000: OverTime.of([(0, 1.0)]), 500: OverTime.of([(0, 15.0), (10, 15.0), (10, 1.0)])}
    settings.progress.begin("6.3 load shedding", len(WINDOWS) * len(MTRES))
    runs = {}
    for window in WINDOWS:
        for mtre in MTRES:
            goals = {Measure.LATENCY: Goal(latency[window], _MUST), Measure.MEMORY: _goal(1e6, _DONT)}
            setting = Setting(rates[window], window, Goals(goals, mtre))
            runs[window, mtre] = setting.run("segment", seconds, settings.seed, optimize=True, may_shed=True)
            settings.progress.advance()
    return runs


def cars(mtre: float, by: SheddingBy | None) -> tuple[Network, Statistics]:
    """A filter and an aggregate over car speeds; a latency goal of 0 keeps the shedder at work throughout."""
    new = NetworkBuilder("cars")
    reports = new.stream("cars", {"ts": "timestamp", "car": "bigint", "speed": "double"}, time="ts")
    moving = reports.filter("moving", "speed > 0")
    goals = Goals({Measure.LATENCY: _goal(0.0, _MUST)}, mtre, by)
    speeds = {"total": "sum(speed)", "mean": "avg(speed)"}
    moving.aggregate("speeds", speeds, window_s=WINDOW_S).output(OUTPUT, Qos(goals=goals))
    network = new.build()
    drawn = Expressway().generate(0, 100_000, seed=7)["speed"].to_numpy()
    counts, edges = np.histogram(drawn[drawn > 0], bins=100, range=(0.0, 100.0))
    bins = [(0.0, 0.0, float((drawn == 0).sum()))]
    bins += [(low, low + 1.0, float(count)) for low, count in zip(edges[:-1].tolist(), counts, strict=True) if count]
    cost_s = CAR_LOAD / CAR_TPS / 2
    shares = {"moving": float((drawn > 0).mean()), "speeds": 1 / (CAR_TPS * WINDOW_S)}
    return network, Statistics({"moving": cost_s, "speeds": cost_s}, shares, {"cars": {"speed": Histogram.of(bins)}})


def _errors(settings: Settings, seconds: float) -> dict[tuple[str, float], Errors]:
    kinds: dict[str, SheddingBy | None] = {"random": None}
    kinds |= {f"{first.value} first": SheddingBy("speed", first) for first in DropOrder}
    levels = MTRES[1:]
    settings.progress.begin("6.4 error in results", 1 + len(kinds) * len(levels))
    exact = _answers(settings, seconds, 0.0, None)[0]
    settings.progress.advance()
    found = {}
    for kind, by in kinds.items():
        for mtre in levels:
            answers, dropped = _answers(settings, seconds, mtre, by)
            whole = slice(1, int(seconds / WINDOW_S))  # without the window in which shedding begins
            sums = np.abs(answers[0][whole] / exact[0][whole] - 1)
            found[kind, mtre] = Errors(sums, np.abs(answers[1][whole] / exact[1][whole] - 1), dropped)
            settings.progress.advance()
    return found


def _answers(
    settings: Settings, seconds: float, mtre: float, by: SheddingBy | None
) -> tuple[tuple[Floats, Floats], float]:
    """Sum and mean of every window, and the share of the tuples that was shed."""
    network, statistics = cars(mtre, by)
    pattern = Phases(((BURST * CAR_TPS, BURST_S), (CAR_TPS, CYCLE_S - BURST_S)), repeat=True)
    run = simulate(
        network,
        statistics,
        {"cars": pattern},
        seconds + WINDOW_S,
        scheduling=Scheduling("path-capacity", optimizer=OptimizerSettings(MONITORING), quantum_s=CAR_QUANTUM_S),
        windows=Windows(),
        spacing="poisson",
        tick_s=CAR_QUANTUM_S,
        train_s=CAR_QUANTUM_S,
        seed=settings.seed,
    )
    assert run.scheduling is not None
    seen = run.scheduling.windows["speeds"]
    return (seen.sums["speed"], seen.sums["speed"] / seen.count), run.loss


def tables(found: Measured) -> tuple[DataTable, ...]:
    """The numbers behind the claims."""
    compared = {"6.1": found.single, "6.2.1": found.different, "6.2.2": found.same}
    rows: list[tuple[Value, ...]] = []
    series: list[tuple[Value, ...]] = []
    for section, runs in compared.items():
        for name, run in runs.items():
            one = track(run)
            rows.append((section, name, one.latency_mean_s, float(one.memory_bytes.mean()), *_more(run)))
            series += _series(section, name, one)
    for section, run in ((PRESSED, found.pressed), (EASED, found.eased)):
        one = track(run)
        rows.append((section, OPTIMIZER, one.latency_mean_s, float(one.memory_bytes.mean()), *_more(run)))
    shed_rows: list[tuple[Value, ...]] = []
    for (window, mtre), run in found.shedding.items():
        one = track(run)
        shed_rows.append((window, mtre, one.latency_mean_s, float(one.memory_bytes.mean()), *_more(run)))
        series += _series(f"6.3 window {window}", f"MTRE {mtre:g}", one)
    error_rows: list[tuple[Value, ...]] = [
        (kind, mtre, float(errors.sums.mean()), float(errors.sums.max()), float(errors.means.mean()), errors.dropped)
        for (kind, mtre), errors in found.errors.items()
    ]
    common = ("latency_mean_s", "memory_mean_bytes", "memory_max_bytes", "delivered", "shed_share", "switches")
    return (
        DataTable("strategies", "Strategies and the runtime optimizer", ("section", "strategy", *common), tuple(rows)),
        DataTable("shedding", "The effect of load shedding", ("window", "mtre", *common), tuple(shed_rows)),
        DataTable(
            "errors",
            "Relative errors of sums and averages over windows of 20 s",
            ("shedder", "mtre", "sum_error_mean", "sum_error_max", "average_error_mean", "shed_share"),
            tuple(error_rows),
        ),
        DataTable(
            "series",
            "Measures over time",
            ("section", "run", "time_s", "latency_s", "memory_bytes", "strategy"),
            tuple(series),
        ),
        DataTable("decisions", "What the optimizer decided, and why", ("experiment", "decision"), _decisions(found)),
    )


def _more(run: SimResult) -> tuple[Value, ...]:
    one = track(run)
    switches = sum(decision.switches for decision in decisions(run))
    return float(one.memory_bytes.max()), one.delivered, run.loss, switches


def _series(section: str, name: str, one: QueryTrack) -> list[tuple[Value, ...]]:
    columns = zip(one.time_s.tolist(), one.latency_s.tolist(), one.memory_bytes.tolist(), one.strategy, strict=True)
    return [(section, name, *row) for row in columns]


def _decisions(found: Measured) -> tuple[tuple[Value, ...], ...]:
    """Only those that change something."""
    runs = {"6.1": found.single[OPTIMIZER], "6.2.1": found.different[OPTIMIZER], PRESSED: found.pressed}
    runs |= {"6.2.2": found.same[OPTIMIZER], EASED: found.eased}
    runs |= {f"6.3 window {window} MTRE {mtre:g}": run for (window, mtre), run in found.shedding.items()}
    rows: list[tuple[Value, ...]] = []
    for name, run in runs.items():
        before: set[str] = set()
        for decision in decisions(run):
            if decision.switches or set(decision.shedding) != before:
                rows.append((name, str(decision)))
            before = set(decision.shedding)
    return tuple(rows)
