"""Figures of the control experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamshed.control import CONTROLLERS
from streamshed.engines.sim import SimResult
from streamshed.workload.profile import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _FAINT = "#222222", "#8a8a8a"
# Okabe and Ito's palette, which stays apart for every kind of colour vision.
_COLOURS = {
    "deadline": "#009E73",
    "deadline-on-arrival": "#56B4E9",
    "ctrl": "#0072B2",
    "baseline": "#E69F00",
    "aurora": "#D55E00",
}


def colour_of(name: str) -> str:
    """The colour of a controller in all figures."""
    return _COLOURS.get(name, _FAINT)


def new_figure(rows: int, columns: int, *, width_in: float = 10.0, height_in: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with panels, without a display and without global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in * rows), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    panels = [panel for row in figure.subplots(rows, columns, squeeze=False) for panel in row]
    for panel in panels:
        panel.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(colors=_INK, length=0, labelsize=9)
    return figure, panels


MEASURES = {
    "violations_s": "accumulated violations",
    "delayed": "delayed tuples",
    "overshoot_s": "maximal overshoot",
    "loss": "loss",
}
"""The paper's measures, for people."""


def title_of(name: str) -> str:
    """What a controller is called in figures."""
    return CONTROLLERS[name].title if name in CONTROLLERS else name


def draw_runs(runs: Mapping[str, SimResult], title: str) -> Figure:
    """Delay over time against the target, one panel a controller; below, what each shed more than the first."""
    figure, (*above, below) = new_figure(len(runs) + 1, 1, height_in=1.5)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    targets = next(iter(runs.values())).series
    top_s = _ceiling([run.series.delay_mean_s for run in runs.values()], float(targets.target_s.max()))
    for panel, (name, run) in zip(above, runs.items(), strict=True):
        series = run.series
        panel.step(targets.time_s, targets.target_s, where="pre", color=_INK, linestyle=(0, (4, 2.5)), linewidth=1.0)
        # Points as well, so that a period between two in which nothing got through can be seen.
        panel.plot(series.time_s, series.delay_mean_s, color=colour_of(name), linewidth=1.3, marker=".", markersize=2.5)
        panel.set_ylim(0, top_s)
        panel.set_title(title_of(name) + _beyond(series.delay_mean_s, top_s), loc="left", fontsize=10)
        panel.tick_params(labelbottom=False)
    above[0].set_title(
        "mean delay (s) of the tuples that arrived then; gaps: none got through", loc="right", fontsize=8
    )
    shed = {name: np.cumsum(run.series.arrived - run.series.admitted) for name, run in runs.items()}
    first, *others = shed
    for name in others or [first]:
        more = shed[name] - shed[first] if others else shed[name]
        below.plot(runs[name].series.time_s, more, color=colour_of(name), linewidth=1.3)
    what = f"Tuples shed or held back, beyond those of {title_of(first)}" if others else "Tuples shed or held back"
    below.set_title(what, loc="left", fontsize=10)
    below.set_xlabel("time (s)", color=_INK)
    for panel in (*above, below):
        panel.set_xlim(0, float(targets.time_s[-1]))
    return figure


def _beyond(delay_s: Floats, top_s: float) -> str:
    most_s = float(np.nanmax(delay_s)) if np.isfinite(delay_s).any() else 0.0
    return f" (up to {most_s:.0f} s)" if most_s > top_s else ""


def legend_below(figure: Figure, panel: Axes) -> None:
    """The legend of one panel for all of them, where it covers nothing."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, ncols=len(labels), loc="outside lower center")


def _ceiling(delays_s: Sequence[Floats], target_s: float) -> float:
    """Up to what the delays matter: a controller that loses all control would press the others flat."""
    typical = [float(np.nanquantile(delay_s, 0.99)) for delay_s in delays_s if np.isfinite(delay_s).any()]
    return min(max([1.6 * target_s, *(1.1 * delay_s for delay_s in typical)]), 6 * target_s)
