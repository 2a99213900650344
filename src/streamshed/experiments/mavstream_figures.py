"""Figures of MavStream's experiments, drawn from what was measured here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from streamshed.engines.sim import SimResult
from streamshed.experiments.control_figures import new_figure
from streamshed.experiments.drawing import FAINT, INK, SCALE
from streamshed.experiments.mavstream_runs import MTRES, OPTIMIZER, Errors, Measured, track

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {"path-capacity": "#0072B2", "segment": "#D55E00", "simplified-segment": "#E69F00", OPTIMIZER: "#009E73"}
_SHEDDERS = {"random": "#222222", "lowest first": "#56B4E9", "centre first": "#D55E00", "highest first": "#CC79A7"}


def compared(runs: Mapping[str, SimResult], title: str, goals: Mapping[str, float], tighten_s: float | None) -> Figure:
    """Latency and memory over time: one line for each strategy, and the optimizer with its switches."""
    figure, (above, below) = new_figure(2, 1)
    _title(figure, title)
    for name, run in runs.items():
        one = track(run)
        width, layer = (2.0, 4) if name == OPTIMIZER else (1.1, 3)
        label, colour = name.replace("-", " "), _COLOURS[name]
        above.plot(one.time_s, one.latency_s, label=label, color=colour, linewidth=width, zorder=layer)
        below.plot(one.time_s, one.memory_bytes / 1e6, color=colour, linewidth=width, zorder=layer)
    chosen = runs[OPTIMIZER].scheduling
    for decision in chosen.decisions if chosen is not None else ():
        if decision.switches:
            for panel in (above, below):
                panel.axvline(decision.time_s, color=_COLOURS[decision.after], linewidth=0.9, linestyle=(0, (2, 2)))
    above.axhline(goals["latency_s"], color=INK, linewidth=1, linestyle=(0, (4, 2.5)))
    if tighten_s is not None:
        end_s = float(track(runs[OPTIMIZER]).time_s[-1])
        below.plot([tighten_s, end_s], [1, 1], color=INK, linewidth=1, linestyle=(0, (4, 2.5)))
    _labels(above, below)
    above.legend(frameon=False, fontsize=9, ncols=len(runs), loc="upper left")
    return figure


def shed(found: Measured, window: int) -> Figure:
    """Latency and memory over time under shedding: one line for each tolerable error."""
    figure, (above, below) = new_figure(2, 1)
    _title(figure, f"Load shedding, window of {window:,} tuples")
    for mtre, colour in zip(MTRES, SCALE, strict=False):
        one = track(found.shedding[window, mtre])
        label = f"MTRE {mtre:.0%}" if mtre else "no shedding"
        above.plot(one.time_s, one.latency_s, color=colour, linewidth=1.5, label=label)
        below.plot(one.time_s, one.memory_bytes / 1e6, color=colour, linewidth=1.5)
    above.axhline(1.0, color=INK, linewidth=1, linestyle=(0, (4, 2.5)))
    _labels(above, below)
    above.legend(frameon=False, fontsize=9, ncols=len(MTRES), loc="upper left")
    return figure


def errors(found: Mapping[tuple[str, float], Errors]) -> Figure:
    """Errors in sums and averages against the tolerable error, one line for each shedder."""
    figure, (left, right) = new_figure(1, 2)
    _title(figure, "Error in results, windows of 20 s")
    levels = [mtre for mtre in MTRES if mtre]
    for kind, colour in _SHEDDERS.items():
        for panel, what in ((left, "sums"), (right, "means")):
            shares = [getattr(found[kind, mtre], what) for mtre in levels]
            panel.errorbar(
                [100 * mtre for mtre in levels], [100 * float(np.mean(share)) for share in shares],
                yerr=[100 * float(np.std(share)) for share in shares], color=colour, label=kind, capsize=2,
            )  # fmt: skip
    left.plot([10, 30], [10, 30], color=FAINT, linewidth=1, linestyle=(0, (4, 2.5)))
    left.set_ylabel("error of sums (%)", color=INK)
    right.set_ylabel("error of averages (%)", color=INK)
    for panel in (left, right):
        panel.set_xlabel("most tolerable relative error (%)", color=INK)
        panel.set_xticks([100 * mtre for mtre in levels])
    left.legend(frameon=False, fontsize=9, loc="upper left")
    return figure


def _title(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)


def _labels(above: Axes, below: Axes) -> None:
    above.set_ylabel("mean latency of results (s)", color=INK)
    below.set_ylabel("tuples in queues (MB)", color=INK)
    below.set_xlabel("time (s)", color=INK)
