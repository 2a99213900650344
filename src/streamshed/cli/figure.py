"""Utility against excess load, one line per planner."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from streamshed.cli.export import replacing
from streamshed.cli.outlook import Outlook
from streamshed.cli.tables import progress
from streamshed.errors import InvalidValueError
from streamshed.experiments.drawing import FAINT, INK, OTHER_STYLE, PLANNER_STYLES, new_figure, quiet
from streamshed.planning import PLANNERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 61
FORMATS = (".png", ".pdf", ".svg")
_SAME = 0.25
"""Curves that differ by less than this many per cent points are drawn as one."""


@dataclass(frozen=True)
class Curve:
    """Planners with the same results, and these: utilities in per cent for each excess."""

    planners: tuple[str, ...]
    tuple_utility: tuple[float, ...]
    value_utility: tuple[float, ...]

    @property
    def label(self) -> str:
        """Their names for people."""
        titles = [PLANNERS[name].title for name in self.planners]
        inputs = [name for name in PLANNERS if name.startswith("input-")]
        if len(inputs) > 2 and set(inputs) <= set(self.planners):
            others = [PLANNERS[name].title for name in self.planners if name not in inputs]
            titles = [*others, f"Admission control (all {len(inputs)} Input-… alike)"]
        return " = ".join(titles)


def check_figure(file: Path, max_excess: float) -> None:
    """Raise on a figure that cannot be drawn, before the work begins."""
    if file.suffix.lower() not in FORMATS:
        raise InvalidValueError(
            "a figure of this format cannot be drawn",
            where="--figure",
            got=str(file),
            expected=f"a file that ends in {', '.join(FORMATS)}",
        )
    if not (math.isfinite(max_excess) and max_excess > 0):
        raise InvalidValueError(
            "an option is out of range", where="--max-excess", got=max_excess, expected="per cent, > 0"
        )


def write_figure(view: Outlook, file: Path, max_excess: float) -> None:
    """Draw the figure for an outlook into a file.

    Args:
        view: the network and its load; the streams keep their proportions.
        file: a .png, .pdf or .svg file.
        max_excess: where the x-axis ends, in per cent of the usable capacity.
    """
    check_figure(file, max_excess)
    excesses = [max_excess * i / (POINTS - 1) for i in range(POINTS)]
    drawing = _draw(view, excesses, _curves(view, excesses))
    with replacing(file, "--figure") as stream, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a name in another script
        drawing.savefig(stream, format=file.suffix.lower()[1:], dpi=160)


def _curves(view: Outlook, excesses: Sequence[float]) -> list[Curve]:
    with progress(Console(stderr=True)) as bar:
        task = bar.add_task("Planning for the figure", total=len(excesses) * len(PLANNERS))
        plans = view.curves([excess / 100 for excess in excesses], lambda: bar.advance(task))
    curves: list[Curve] = []
    for name, row in plans.items():
        tuples = tuple(100 * (1 - plan.tuple_utility_loss) for plan in row)
        values = tuple(100 * (1 - plan.value_utility_loss) for plan in row)
        for i, other in enumerate(curves):
            # The optimum stays a line of its own: it is the reference.
            if name != "optimal" and "optimal" not in other.planners and _coincide(other, tuples, values):
                curves[i] = Curve((*other.planners, name), other.tuple_utility, other.value_utility)
                break
        else:
            curves.append(Curve((name,), tuples, values))
    return curves


def _coincide(curve: Curve, tuples: Sequence[float], values: Sequence[float]) -> bool:
    pairs = (*zip(curve.tuple_utility, tuples, strict=True), *zip(curve.value_utility, values, strict=True))
    return all(abs(mine - other) < _SAME for mine, other in pairs)


def _draw(view: Outlook, excesses: Sequence[float], curves: Sequence[Curve]) -> Figure:
    columns = min(3, len(curves))
    rows = math.ceil(len(curves) / columns)
    legend_in = 0.25 * rows
    width_in, height_in = 10.5, 4.7 + legend_in
    figure = new_figure(width_in, height_in)
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, view, excesses, [(curve, curve.tuple_utility) for curve in curves], "Tuple utility")
    _panel(right, view, excesses, [(curve, curve.value_utility) for curve in curves], "Value utility")
    left.set_ylabel("utility kept (weighted mean of outputs)", color=INK, labelpad=6)
    margin = 0.85 / width_in
    name = textwrap.shorten(view.spec.network.name, 60, placeholder="…")
    title = figure.suptitle(
        f"{name}: utility as the load grows",
        x=margin, y=1 - 0.16 / height_in, ha="left", va="top", fontsize=14, fontweight="bold", color=INK,
    )  # fmt: skip
    title.set_parse_math(False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", bbox_to_anchor=(0.5, 0.08 / height_in), borderaxespad=0, ncols=columns,
        frameon=False, fontsize=9.5, handlelength=3.2, columnspacing=2.2, labelcolor=INK,
    )  # fmt: skip
    figure.subplots_adjust(
        left=margin, right=1 - 0.3 / width_in, top=1 - 0.82 / height_in, bottom=(0.72 + legend_in) / height_in,
        wspace=0.08,
    )  # fmt: skip
    return figure


def _panel(
    axes: Axes, view: Outlook, excesses: Sequence[float], lines: Sequence[tuple[Curve, Sequence[float]]], title: str
) -> None:
    from matplotlib.ticker import PercentFormatter

    for curve, utilities in lines:
        style = next((style for name, style in PLANNER_STYLES.items() if name in curve.planners), OTHER_STYLE)
        axes.plot(
            excesses, utilities, label=curve.label, color=style.colour, linestyle=style.dashes, linewidth=style.width,
            zorder=style.layer, solid_capstyle="round",
        )  # fmt: skip
    quiet(axes, title)
    axes.set_xlim(0, excesses[-1])
    axes.set_ylim(0, 101.5)
    axes.set_xlabel("excess load (% of the capacity)", color=INK)
    axes.yaxis.set_major_formatter(PercentFormatter(decimals=0, symbol=" %"))
    here = 100 * view.excess
    if 0 < here <= excesses[-1]:
        axes.axvline(here, color=FAINT, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        near_end = here > 0.75 * excesses[-1]
        axes.annotate(
            "this load", (here, 1.5), xytext=(-4 if near_end else 4, 0), textcoords="offset points",
            ha="right" if near_end else "left", fontsize=8.5, color=FAINT,
        )  # fmt: skip
