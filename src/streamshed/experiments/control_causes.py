"""Why controllers compare as they do: one thing changed at a time, so that a reason is a measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamshed.control import HEADROOM, PolePlacementController
from streamshed.engines.sim import SimResult
from streamshed.experiments.claims import Claim, DataTable, Settings, Value, judged
from streamshed.experiments.control_figures import colour_of, new_figure
from streamshed.experiments.control_goals import times
from streamshed.experiments.control_plant import COSTS, TARGET_S, Score, run_controller
from streamshed.workload import ArrivalPattern
from streamshed.workload.costs import CostProduct, CostTrace, VaryingCost

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NOISE, *_EVENTS = VaryingCost().parts
PARTS: Mapping[str, CostTrace] = {**COSTS, "noise": _NOISE, "events": CostProduct(tuple(_EVENTS))}
"""The costs of the comparison, and the varying one taken apart: its noise, and its peak, jump and terrace."""

PRINTED = "as printed"
CLAMPED, FAST, FORGETFUL, DEADBEAT = "u clamped", "poles at 0", "a = 0", "poles and a at 0"
VARIANTS: Mapping[str, Callable[[], PolePlacementController]] = {
    CLAMPED: lambda: PolePlacementController(TARGET_S, anti_windup=True),
    FAST: lambda: PolePlacementController(TARGET_S, poles=(0.0, 0.0)),
    FORGETFUL: lambda: PolePlacementController(TARGET_S, controller_pole=0.0),
    DEADBEAT: lambda: PolePlacementController(TARGET_S, poles=(0.0, 0.0), controller_pole=0.0),
}
"""CTRL with other parameters; the last corrects everything within one period, as BASELINE does."""
_ALIKE = 1.5


@dataclass(frozen=True)
class Variants:
    """CTRL with other parameters, beside CTRL as printed and BASELINE.

    Attributes:
        scores: by load and cost, then by variant.
        peaks_s: likewise, the largest mean delay of a period.
    """

    scores: Mapping[tuple[str, str], Mapping[str, Score]]
    peaks_s: Mapping[tuple[str, str], Mapping[str, float]]

    def relative(self, load: str, cost: str, variant: str) -> float:
        """Violations over those of CTRL as printed."""
        of = self.scores[load, cost]
        return times(of[variant].violations_s, of[PRINTED].violations_s)

    @property
    def table(self) -> DataTable:
        """All of them."""
        columns = ("load", "cost", "variant", "violations_s", "delayed", "overshoot_s", "loss", "peak_s")
        rows: tuple[tuple[Value, ...], ...] = tuple(
            (load, cost, name, one.violations_s, one.delayed, one.overshoot_s, one.loss, self.peaks_s[load, cost][name])
            for (load, cost), of in self.scores.items()
            for name, one in of.items()
        )
        return DataTable("ctrl-variants", "CTRL with other parameters, and BASELINE", columns, rows)

    @property
    def claim(self) -> Claim:
        """What the paper says of other parameters."""
        found = {point: self.relative(*point, FORGETFUL) for point in self.scores}
        return judged(
            "CTRL performs the same with any parameters that solve its equations (section 5)",
            "supposed to have the same performance, and verified by tests",
            "violations with a = 0, over those with −0.8: "
            + ", ".join(f"{ratio:.2f}× ({load}, {cost} cost)" for (load, cost), ratio in found.items()),
            all(1 / _ALIKE <= ratio <= _ALIKE for ratio in found.values()),
            otherwise="equal poles are not all: with G/(1 + CG) = cT/H·(z + a)/((z − p1)(z − p2)) an excess that lasts "
            "leaves an error in proportion to 1 + a, five times as large with 0 as with −0.8; but with −0.8 u goes on "
            "for periods after it was wanted: clamped to what can be done, violations are "
            + ", ".join(f"{self.relative(*point, CLAMPED):.2f}×" for point in self.scores),
        )

    def draw(self) -> Figure:
        """Violations of each."""
        points = list(self.scores)
        figure, panels = new_figure(1, len(points), width_in=12)
        for panel, (load, cost) in zip(panels, points, strict=True):
            of = self.scores[load, cost]
            panel.barh(list(of), [one.violations_s / 1000 for one in of.values()], color=colour_of("ctrl"))
            panel.invert_yaxis()
            panel.grid(visible=False, axis="y")
            panel.grid(axis="x", color="#e4e4e4", linewidth=0.8)
            panel.set_title(f"{load}, {cost} cost", loc="left", fontsize=10)
            panel.set_xlabel("accumulated violations (1000 s)")
            if panel is not panels[0]:
                panel.set_yticklabels([])
        return figure


def try_variants(
    settings: Settings,
    loads: Mapping[str, ArrivalPattern],
    runs: Mapping[tuple[str, str], Mapping[str, SimResult]],
    seconds: float,
) -> Variants:
    """Run CTRL with other parameters.

    Args:
        settings: seed, and whom to tell.
        loads: on which ones.
        runs: of CTRL as printed and of BASELINE, by load and cost.
        seconds: for how long tuples arrive.
    """
    settings.progress.begin("CTRL with other parameters", len(loads) * len(COSTS) * len(VARIANTS))
    found: dict[tuple[str, str], dict[str, SimResult]] = {}
    for load, pattern in loads.items():
        for cost, trace in COSTS.items():
            of = found[load, cost] = {PRINTED: runs[load, cost]["ctrl"]}
            for name, controller in VARIANTS.items():
                of[name] = run_controller(controller(), pattern, cost=trace, seconds=seconds, seed=settings.seed)
                settings.progress.advance()
            of["BASELINE"] = runs[load, cost]["baseline"]
    return Variants(
        {point: {name: Score.of(run) for name, run in of.items()} for point, of in found.items()},
        {point: {name: peak_s(run) for name, run in of.items()} for point, of in found.items()},
    )


def peak_s(run: SimResult) -> float:
    """The largest mean delay of a period."""
    delay_s = run.series.delay_mean_s
    return float(np.nanmax(delay_s)) if np.isfinite(delay_s).any() else 0.0


def unused_allowance(run: SimResult) -> float:
    """Tuples that AURORA would have let in, and that did not come: Σ max(H/c(k−1)·T − arrivals(k), 0)."""
    series = run.series
    length_s = np.diff(series.time_s)
    allowed = HEADROOM / series.cost_s[:-1] * length_s
    return float(np.nansum(np.maximum(allowed - series.arrived[1:], 0.0)))


def idle_share(run: SimResult) -> float:
    """The share of the usable processor time in which there was nothing to do while tuples arrived."""
    return max(1.0 - float(run.series.busy_s.sum()) / HEADROOM / float(run.series.time_s[-1]), 0.0)
