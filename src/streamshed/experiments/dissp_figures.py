"""Figures of the experiments with DISSP's shedder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamshed.experiments.dissp_runs import VARIANTS, Measured
from streamshed.experiments.dissp_studies import FAILS_S, JOINS_S, LEAVES_S, RECOVERS_S, Churn, Errors
from streamshed.experiments.drawing import FAINT, INK, SCALE, Style, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: Mapping[str, Style] = {
    "fair": Style("#0072B2", width=2.4, layer=6),
    "fair-sparing": Style("#009E73", width=2.8, layer=7),
    "random": Style("#D55E00", (0, (6, 1.5))),
    "random-sparing": Style("#E69F00", (0, (6, 1.5))),
    "proportional": Style("#CC79A7", (0, (5, 1.5, 1, 1.5))),
    "fair-lossy": Style("#0072B2", (0, (1.2, 1.2)), layer=5),
    "fair-sparing-lossy": Style("#009E73", (0, (1.2, 1.2)), layer=8),
    "fair-alone": Style("#56B4E9", (0, (3, 1, 1, 1))),
    "equal": Style("#8a8a8a", (0, (3, 1, 1, 1))),
}


def against_overload(measured: Measured, title: str, left_out: Sequence[str] = ()) -> Figure:
    """Jain's index, spread and mean SIC against the overload, one line for each variant."""
    figure = new_figure(11.5, 4.6)
    figure.suptitle(title, x=0.045, y=0.975, ha="left", va="top", fontsize=13, fontweight="bold", color=INK)
    panels = figure.subplots(1, 3)
    headings = {"jain": "Jain's index", "spread": "spread of SIC (largest − smallest)", "mean": "mean SIC"}
    for axes, (what, heading) in zip(panels, headings.items(), strict=True):
        quiet(axes, heading)
        for variant in measured.variants:
            if variant not in left_out:
                _line(axes, measured, variant, what)
        if what == "jain":
            _end_at_one(axes)
        axes.set_xlabel("overload (load / capacity)", color=INK)
        axes.set_xticks(measured.points, [f"{point:g}×" for point in measured.points])
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8.5, ncols=3, loc="lower left", bbox_to_anchor=(0.04, 0.0))
    figure.subplots_adjust(left=0.05, right=0.985, top=0.82, bottom=0.29, wspace=0.18)
    return figure


def in_numbers(queries: Measured, nodes: Measured, parts: Measured) -> Figure:
    """Jain's index against the numbers of queries, nodes and parts."""
    figure = new_figure(11.5, 4.0)
    figure.suptitle(
        "Jain's index at twice the capacity", x=0.045, y=0.975, ha="left", fontsize=13, fontweight="bold", color=INK
    )
    panels = figure.subplots(1, 3, sharey=True)
    cases = (("queries on one node", queries), ("nodes, six queries each", nodes), ("parts of a query at most", parts))
    for axes, (heading, measured) in zip(panels, cases, strict=True):
        quiet(axes)
        for variant in measured.variants:
            _line(axes, measured, variant, "jain")
        axes.set_xlabel(heading, color=INK)
        axes.set_xticks(measured.points, [f"{point:g}" for point in measured.points])
        axes.legend(frameon=False, fontsize=8.5, loc="center right")
    _end_at_one(panels[0])
    figure.subplots_adjust(left=0.05, right=0.985, top=0.86, bottom=0.16, wspace=0.08)
    return figure


def over_interval(measured: Measured) -> Figure:
    """What the shedding interval changes."""
    figure = new_figure(11.5, 4.0)
    figure.suptitle(
        "The shedding interval, one node at twice the capacity, 2 ms a decision",
        x=0.045, y=0.975, ha="left", fontsize=13, fontweight="bold", color=INK,
    )  # fmt: skip
    panels = figure.subplots(1, 3)
    headings = {"jain": "Jain's index", "wait_s": "longest wait (s)", "mean": "mean SIC"}
    for axes, (what, heading) in zip(panels, headings.items(), strict=True):
        quiet(axes, heading)
        _line(axes, measured, "fair", what)
        if what == "jain":
            _end_at_one(axes)
        axes.set_xscale("log")
        axes.set_xticks(measured.points, [f"{1e3 * point:g}" for point in measured.points])
        axes.minorticks_off()
        axes.set_xlabel("shedding interval (ms, logarithmic)", color=INK)
    figure.subplots_adjust(left=0.05, right=0.985, top=0.82, bottom=0.16, wspace=0.18)
    return figure


def error_against_sic(errors: Errors) -> Figure:
    """The error of results against their SIC, by kind of query."""
    figure = new_figure(7.4, 4.6)
    axes = figure.subplots()
    quiet(axes, "Mean error of a window's result against its SIC")
    for (kind, error), colour in zip(errors.error.items(), SCALE, strict=False):
        axes.plot(errors.sic, [100 * one for one in error], label=kind, color=colour, marker="o", markersize=4)
    axes.set_xlabel("mean SIC", color=INK)
    axes.set_ylabel("error (%)", color=INK)
    axes.set_xlim(1, 0)
    axes.legend(frameon=False, fontsize=9)
    figure.subplots_adjust(left=0.1, right=0.97, top=0.9, bottom=0.13)
    return figure


def over_time(churn: Churn) -> Figure:
    """Fairness while nodes come and go."""
    figure = new_figure(9.5, 5.2)
    above, below = figure.subplots(2, 1, sharex=True)
    quiet(above, "Nodes that come and go: Jain's index")
    quiet(below, "mean SIC")
    above.plot(churn.time_s, churn.jain.mean(axis=0), color=STYLES["fair-sparing"].colour, linewidth=2)
    below.plot(churn.time_s, churn.mean.mean(axis=0), color=STYLES["fair-sparing"].colour, linewidth=2)
    events = {LEAVES_S: "one leaves", JOINS_S: "one joins", FAILS_S: "one fails", RECOVERS_S: "comes back"}
    for number, (time_s, what) in enumerate(events.items()):
        for axes in (above, below):
            axes.axvline(time_s, color=FAINT, linewidth=1, linestyle=(0, (3, 2)))
        below.annotate(
            what, (time_s, 0.02 + 0.1 * (number % 2)), (3, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=8.5, color=INK,
        )  # fmt: skip
    below.set_xlabel("end of the source time window (s)", color=INK)
    figure.subplots_adjust(left=0.07, right=0.98, top=0.93, bottom=0.1, hspace=0.25)
    return figure


def _line(axes: Axes, measured: Measured, variant: str, what: str) -> None:
    style = STYLES[variant]
    found = [measured.mean(variant, point, what) for point in measured.points]
    axes.errorbar(
        measured.points, [one.mean for one in found], yerr=[one.margin for one in found],
        label=VARIANTS[variant].title, color=style.colour, linestyle=style.dashes, linewidth=style.width,
        elinewidth=0.9, capsize=2, zorder=style.layer,
    )  # fmt: skip


def _end_at_one(axes: Axes) -> None:
    """An index is 1 at most; only when all lines are there, or those below would be cut off."""
    axes.set_ylim(top=1.0 + 0.02 * (1.0 - axes.get_ylim()[0]))
