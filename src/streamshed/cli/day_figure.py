"""A played day as a figure: what arrived and what was kept, and how late answers were, without and with shedding."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from streamshed.cli.export import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streamshed.experiments.overload import Run

_INK, _FAINT = "#222222", "#8a8a8a"
_COLOURS = {"without": "#D55E00", "with": "#0072B2"}
_OTHERS = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def write_day_figure(runs: Mapping[str, Run], file: Path) -> None:
    """Draw runs of one day into a file."""
    # A figure of its own instead of pyplot: no display, no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 7.2), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    delay, rates, lost = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 1.4))
    last = runs.get("with") or next(iter(runs.values()))
    others = iter(_OTHERS)
    for kind, run in runs.items():
        colour = _COLOURS.get(kind) or next(others, _FAINT)
        _delays(delay, run, kind, colour, in_detail=len(runs) <= 2)
    delay.axhline(last.target_s, color=_INK, linewidth=1, linestyle=(0, (4, 2)))
    delay.annotate(
        f"target {last.target_s:g} s", (0, last.target_s), xytext=(2, 3), textcoords="offset points", fontsize=9
    )
    delay.set_yscale("log")
    delay.set_ylabel("delay (s)")
    delay.yaxis.set_major_formatter("{x:g}")
    delay.legend(frameon=False, loc="upper left", fontsize=9, ncols=1 if len(runs) <= 2 else 2)
    delay.set_title(
        "The same day without and with shedding" if len(runs) > 1 else "A day with shedding",
        loc="left", fontsize=14, fontweight="bold", color=_INK,
    )  # fmt: skip
    _rates(rates, last)
    _drops(lost, last)
    for axes in (delay, rates, lost):
        _plain(axes, last)
    lost.set_xlabel("time (s)")
    with replacing(file, "--figure") as stream:
        figure.savefig(stream, format=file.suffix.lower()[1:], dpi=150)


def called(kind: str) -> str:
    """The name of a run for people.

    >>> called("without"), called("with-ctrl")
    ('without shedding', 'with shedding, ctrl')
    """
    base, _, controller = kind.partition("-")
    return f"{base} shedding" + (f", {controller}" if controller else "")


def _delays(axes: Axes, run: Run, kind: str, colour: str, *, in_detail: bool) -> None:
    batches = [batch for batch in run.batches if batch.sample.delay_p50_s is not None]
    times = [batch.sample.time_s - run.epoch_s for batch in batches]
    middle = [batch.sample.delay_p50_s or 0.0 for batch in batches]
    slow = [batch.sample.delay_p99_s or 0.0 for batch in batches]
    axes.plot(times, slow, color=colour, linewidth=1.8, label=f"{called(kind)}: 99 % of each batch")
    if in_detail:
        axes.fill_between(times, middle, slow, color=colour, alpha=0.25, linewidth=0)
        axes.plot(times, middle, color=colour, linewidth=1, label=f"{called(kind)}: half of it")


def _rates(axes: Axes, run: Run) -> None:
    begins = [batch.start_s for batch in run.batches]
    spans = [max(now - before, 1e-3) for before, now in pairwise(begins)]
    times = [begin - run.epoch_s for begin in begins[1:]]
    arrived = [batch.sample.arrived / span for batch, span in zip(run.batches[1:], spans, strict=True)]
    kept = [
        sum(run.accounts(batch)[:1]) / len(run.readers) / span
        for batch, span in zip(run.batches[1:], spans, strict=True)
    ]
    axes.step(times, arrived, where="pre", color=_FAINT, linewidth=1.4, label="arrived")
    axes.fill_between(times, kept, step="pre", color=_COLOURS["with"], alpha=0.35, linewidth=0, label="delivered")
    axes.set_ylabel("reports/s")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False, loc="upper right", fontsize=9)


def _drops(axes: Axes, run: Run) -> None:
    times = [batch.start_s - run.epoch_s for batch in run.batches]
    palette = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
    for number, arc in enumerate(run.batches[-1].thresholds):
        dropped = [100 * batch.thresholds.get(arc, 0.0) for batch in run.batches]
        axes.step(times, dropped, where="post", linewidth=1.6, color=palette[number % len(palette)], label=arc)
    axes.set_ylabel("dropped (%)")
    axes.set_ylim(0, 102)
    axes.legend(frameon=False, loc="upper right", fontsize=9)


def _plain(axes: Axes, run: Run) -> None:
    axes.axvspan(*run.day.burst_s, color="#f3f0e6", zorder=0)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(colors=_INK, length=0, labelsize=9.5)
    axes.set_xlim(left=0)
