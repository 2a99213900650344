"""Figures 9 to 12 of Aurora's paper, drawn from what was measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamshed.experiments.aurora_runs import TITLES, Measurements, excess
from streamshed.experiments.drawing import FAINT, INK, PLANNER_STYLES, SCALE, new_figure, quiet
from streamshed.experiments.samples import estimate, ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NOTE = "Means over {seeds} random networks; bars: 95 % confidence intervals."


def loss_against_rate(rates: Measurements, what: str, title: str) -> Figure:
    """Figures 9 and 10: loss of tuple or value utility (`what`) against the mean rate."""
    figure, axes = _one_panel(title, rates, top=0.86)
    for number, planner in enumerate(rates.planners):
        style = PLANNER_STYLES[planner]
        found = [estimate(rates.of(planner, point, what)) for point in rates.points]
        aside = 1 + 0.006 * (number - len(rates.planners) / 2)  # so that bars do not hide each other
        axes.errorbar(
            [aside / point[0] for point in rates.points], [100 * one.mean for one in found],
            yerr=[100 * one.margin for one in found], label=TITLES[planner], color=style.colour,
            linestyle=style.dashes, linewidth=style.width, elinewidth=0.9, capsize=2, zorder=style.layer,
        )  # fmt: skip
    axes.set_xlabel("mean rate of each stream (tuples per unit of time)", color=INK)
    axes.set_ylabel(f"loss of {what.split('_')[0]} utility (%)", color=INK)
    axes.set_ylim(0, 100)
    _excess_on_top(axes, rates)
    axes.legend(frameon=False, fontsize=9, handlelength=3, labelcolor=INK, loc="upper left")
    return figure


def ratio_against_skew(skews: Measurements) -> Figure:
    """Figure 11: value loss of Random-LS over that of Semantic-LS against the skew, one line for each rate."""
    figure, axes = _one_panel("Figure 11: value utility loss, Random-LS / Semantic-LS", skews)
    levels = list(dict.fromkeys(point[0] for point in skews.points))
    times = list(dict.fromkeys(point[1] for point in skews.points))
    for time, colour in zip(times, SCALE, strict=False):
        found = [
            ratio(skews.of("roadmap", (skew, time), "value_loss"), skews.of("semantic", (skew, time), "value_loss"))
            for skew in levels
        ]
        axes.errorbar(
            levels, [one.mean for one in found], yerr=[one.margin for one in found], color=colour, linewidth=2,
            elinewidth=0.9, capsize=2, label=f"rate 1/{time:g} ({100 * excess(time):+.0f} %)",
        )  # fmt: skip
    _logarithmic(axes)
    axes.set_xticks(levels)
    axes.set_xlabel("skew of the utilities (Zipf parameter)", color=INK)
    axes.set_ylabel("ratio of losses (logarithmic)", color=INK)
    axes.legend(
        frameon=False, fontsize=9, labelcolor=INK, loc="upper left", title="mean rate (excess load)", title_fontsize=9
    )
    return figure


def ratio_against_excess(sharing: Measurements) -> Figure:
    """Figure 12: tuple loss over that of Random-LS against the excess load, a bar for each skew."""
    figure, axes = _one_panel("Figure 12: tuple utility loss, Input-Uniform / Random-LS, full sharing", sharing)
    levels = list(dict.fromkeys(point[0] for point in sharing.points))
    excesses = list(dict.fromkeys(point[1] for point in sharing.points))
    width = 0.8 / len(levels)
    for i, (skew, colour) in enumerate(zip(levels, (SCALE[0], SCALE[1], SCALE[4]), strict=False)):
        places = [place + (i - (len(levels) - 1) / 2) * width for place in range(len(excesses))]
        losses = {
            planner: [sharing.of(planner, (skew, share), "tuple_loss") for share in excesses]
            for planner in ("input-uniform", "roadmap", "optimal")
        }
        found = [ratio(*pair) for pair in zip(losses["input-uniform"], losses["roadmap"], strict=True)]
        best = [ratio(*pair) for pair in zip(losses["input-uniform"], losses["optimal"], strict=True)]
        axes.bar(
            places, [one.mean - 1 for one in found], width * 0.92, bottom=1, yerr=[one.margin for one in found],
            color=colour, error_kw={"elinewidth": 0.9, "capsize": 2, "ecolor": INK}, label=f"skew {skew:g}",
        )  # fmt: skip
        axes.plot(
            places, [one.mean for one in best], linestyle="none", marker="_", markersize=9, markeredgewidth=1.6,
            color="black", label="against the optimum (LP)" if i == len(levels) - 1 else None,
        )  # fmt: skip
    axes.axhline(1, color=FAINT, linewidth=1)
    _logarithmic(axes)
    axes.set_ylim(bottom=0.95)
    axes.set_xticks(range(len(excesses)), [f"{100 * share:,.0f}" for share in excesses])
    axes.set_xlabel("excess load (% of the capacity)", color=INK)
    axes.set_ylabel("ratio of losses (logarithmic)", color=INK)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="upper right")
    return figure


def _one_panel(title: str, data: Measurements, top: float = 0.91) -> tuple[Figure, Axes]:
    figure = new_figure(8.4, 5.4)
    axes = figure.subplots()
    quiet(axes)
    figure.suptitle(title, x=0.085, y=0.975, ha="left", va="top", fontsize=13, fontweight="bold", color=INK)
    seeds = len(next(iter(data.outcomes.values())))
    figure.text(0.085, 0.018, _NOTE.format(seeds=seeds), fontsize=8.5, color=FAINT)
    figure.subplots_adjust(left=0.085, right=0.975, top=top, bottom=0.14)
    return figure, axes


def _excess_on_top(axes: Axes, rates: Measurements) -> None:
    """The excess load at some of the rates, above the figure."""
    top = axes.secondary_xaxis("top")
    shown = [point[0] for point in rates.points if point[0] in (10, 7, 5, 4, 3, 2)]
    top.set_xticks([1 / time for time in shown], [f"{100 * excess(time):+.0f} %" for time in shown])
    top.tick_params(colors=FAINT, length=0, labelsize=8.5)
    top.spines["top"].set_visible(False)
    top.set_xlabel("excess load", fontsize=8.5, color=FAINT)


def _logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(10, (1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)
