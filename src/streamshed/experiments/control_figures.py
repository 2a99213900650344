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


def draw_runs(runs: Mapping[str, SimResult], title: str) -> Figure:
    """Delay over time against the target, and what was shed: one line for each controller."""
    figure, (above, below) = new_figure(2, 1)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=_INK)
    for name, run in runs.items():
        series = run.series
        label = CONTROLLERS[name].title if name in CONTROLLERS else name
        above.plot(series.time_s, series.delay_mean_s, label=label, color=colour_of(name), linewidth=1.5)
        shed = np.maximum(np.cumsum(series.arrived - series.admitted), 0)
        below.plot(series.time_s, shed, color=colour_of(name), linewidth=1.5)
    targets = next(iter(runs.values())).series
    above.step(targets.time_s, targets.target_s, where="pre", color=_INK, linestyle=(0, (4, 2.5)), linewidth=1.2)
    above.set_ylabel("mean delay of the tuples\nthat arrived then (s)", color=_INK)
    above.set_ylim(0, _ceiling([run.series.delay_mean_s for run in runs.values()], float(targets.target_s.max())))
    below.set_ylabel("tuples shed so far\n(or held back)", color=_INK)
    below.set_xlabel("time (s)", color=_INK)
    legend_below(figure, above)
    return figure


def legend_below(figure: Figure, panel: Axes) -> None:
    """The legend of one panel for all of them, where it covers nothing."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, ncols=len(labels), loc="outside lower center")


def _ceiling(delays_s: Sequence[Floats], target_s: float) -> float:
    """Up to what the delays matter: a controller that loses all control would press the others flat."""
    typical = [float(np.nanquantile(delay_s, 0.99)) for delay_s in delays_s if np.isfinite(delay_s).any()]
    return min(max([1.6 * target_s, *(1.1 * delay_s for delay_s in typical)]), 6 * target_s)
