"""How figures look: one palette for the planners, quiet axes, no global state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT = "#222222", "#8a8a8a"


@dataclass(frozen=True)
class Style:
    """How a line is drawn."""

    colour: str
    dashes: str | tuple[int, tuple[float, ...]] = "-"
    width: float = 1.8
    layer: int = 3


# Okabe and Ito's palette, which stays apart for every kind of colour vision; dashes tell apart what lies close.
PLANNER_STYLES = {
    "semantic": Style("#009E73", width=2.8, layer=6),
    "roadmap": Style("#0072B2", width=2.4, layer=5),
    "optimal": Style("#000000", (0, (4, 2.5)), width=1.4, layer=7),
    "input-cost-uniform": Style("#D55E00", layer=4),
    "input-uniform": Style("#E69F00", (0, (6, 1.5))),
    "input-cost-top": Style("#CC79A7", (0, (5, 1.5, 1, 1.5))),
    "input-random": Style("#56B4E9", (0, (1.2, 1.2))),
}
OTHER_STYLE = Style("#8a8a8a", (0, (3, 1, 1, 1)))
SCALE = ("#56B4E9", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
"""For lines that differ by a number, from low to high."""


def new_figure(width_in: float, height_in: float) -> Figure:
    """A figure of its own instead of pyplot: no display, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Axes, title: str = "") -> None:
    """Only what the eye needs: a title on the left, a grid across, no frame."""
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.tick_params(colors=INK, length=0, labelsize=9.5)
