"""The loads on which controllers are compared: those of the paper and their like, and others beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamshed.experiments.control_plant import TARGET_S, USABLE_TPS, load_named, recorded
from streamshed.workload import ArrivalPattern, Phases

TRACE_STARTS_S = (0.0, 2500.0)
OTHER_STARTS_S = (500.0, 1000.0, 1500.0, 2000.0, 3000.0)
OTHER_SCALES = (1.5, 3.0)
OTHER_LOADS = (1.1, 2.5)
OTHER_SEEDS = 2
OTHER_TARGETS_S = (1.0, 5.0)
ON_OFF = Phases(((3 * USABLE_TPS, 5.0), (USABLE_TPS / 5, 5.0)), repeat=True)
"""Five seconds at three times the capacity, five at a fifth of it: 1.6 times on average."""
QUICK_SECONDS = 10.0


@dataclass(frozen=True)
class Case:
    """A load with the delay to hold on it.

    Attributes:
        arrivals: the load.
        target_s: the delay.
    """

    arrivals: ArrivalPattern
    target_s: float = TARGET_S


def web_loads(trace: Path | None, seconds: float, seed: int) -> dict[str, ArrivalPattern]:
    """The recorded trace at its two starts, or synthetic web traffic in its place."""
    if trace is not None:
        return {f"web from {start_s:g} s": recorded(trace, start_s=start_s) for start_s in TRACE_STARTS_S}
    return {"web (synthetic)": load_named("web", seconds=seconds, seed=seed)}


def paper_loads(trace: Path | None, seconds: float, seed: int) -> dict[str, ArrivalPattern]:
    """The kinds of load of the paper: web, Pareto, step, sinusoid."""
    loads = web_loads(trace, seconds, seed)
    for bias in (0.5, 1.0):
        loads[f"pareto {bias:g}"] = load_named("pareto", bias=bias, seed=seed)
    loads["step"] = load_named("step")
    loads["sinusoid"] = load_named("sinusoid")
    return loads


def other_loads(trace: Path | None, seconds: float, seed: int) -> Mapping[str, Case]:
    """Other cuts and scales of the trace, other mean loads, seeds and targets, and arrivals that go on and off."""
    cases: dict[str, Case] = {}
    if trace is not None:
        cases |= {f"web from {start_s:g} s": Case(recorded(trace, start_s=start_s)) for start_s in OTHER_STARTS_S}
        cases |= {f"web × {scale:g}": Case(recorded(trace, scale=scale)) for scale in OTHER_SCALES}
    for bias in (0.5, 1.0):
        for load in OTHER_LOADS:
            cases[f"pareto {bias:g}, load {load:g}"] = Case(load_named("pareto", bias=bias, load=load, seed=seed))
    for other in range(seed + 1, seed + 1 + OTHER_SEEDS):
        cases[f"pareto 1, seed {other}"] = Case(load_named("pareto", seed=other))
        cases[f"web (synthetic), seed {other}"] = Case(load_named("web", seconds=seconds, seed=other))
    cases["on and off"] = Case(ON_OFF)
    name, web = next(iter(web_loads(trace, seconds, seed).items()))
    for target_s in OTHER_TARGETS_S:
        cases[f"{name}, target {target_s:g} s"] = Case(web, target_s)
        cases[f"pareto 1, target {target_s:g} s"] = Case(load_named("pareto", seed=seed), target_s)
    return cases
