"""Controllers against each other: figures 12, 15 and 16, what disturbances change, and ours beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamshed.control import AuroraController, controller_named
from streamshed.engines.sim import SimResult
from streamshed.experiments.claims import Claim, DataTable, Reproduction, Settings, Value, judged
from streamshed.experiments.control_figures import colour_of, draw_runs, legend_below, new_figure
from streamshed.experiments.control_goals import judge_goals, times
from streamshed.experiments.control_loads import QUICK_SECONDS, paper_loads
from streamshed.experiments.control_plant import (
    COSTS,
    SECONDS,
    TARGET_S,
    Plant,
    Score,
    operator_network,
    run_controller,
)
from streamshed.experiments.disturbances import disturbed
from streamshed.planning import planner_named
from streamshed.workload import ArrivalPattern

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPERS = ("ctrl", "baseline", "aurora")
NAMES = (*PAPERS, "deadline", "deadline-on-arrival")


@dataclass(frozen=True)
class Disturbance:
    """What is different from the ideal queue.

    Attributes:
        name: for people.
        lag: costs are told so many periods late.
        noise: costs are told wrongly.
        plant: a network instead of one queue.
        planner: sheds inside the network.
    """

    name: str
    lag: int = 0
    noise: float = 0.0
    plant: Plant | None = None
    planner: str | None = None


def _disturbances() -> tuple[Disturbance, ...]:
    network = operator_network()
    return (
        Disturbance("none (ideal queue)"),
        Disturbance("cost told 2 periods late", lag=2),
        Disturbance("cost told 5 periods late", lag=5),
        Disturbance("cost told with 10 % noise", noise=0.1),
        Disturbance("cost told with 30 % noise", noise=0.3),
        Disturbance("14 operators, equal slices of time", plant=network),
        Disturbance("14 operators, shed inside (road map)", plant=network, planner="roadmap"),
        Disturbance("14 operators, shed inside, 5 late, 30 % noise", 5, 0.3, network, "roadmap"),
    )


def _run(name: str, pattern: ArrivalPattern, cost: str, seconds: float, seed: int, change: Disturbance) -> SimResult:
    controller = disturbed(controller_named(name, TARGET_S), lag=change.lag, noise=change.noise, seed=seed)
    planner = None if change.planner is None else planner_named(change.planner)
    return run_controller(
        controller, pattern, cost=COSTS[cost], plant=change.plant, planner=planner, seconds=seconds, seed=seed
    )


def compare_controllers(settings: Settings) -> Reproduction:
    """Figures 12, 15 and 16, disturbances, and ours."""
    seconds = QUICK_SECONDS if settings.quick else SECONDS
    loads = paper_loads(settings.trace, seconds, settings.seed)
    ideal = _disturbances()[0]
    settings.progress.begin("figures 12 and 15: controllers", len(loads) * len(COSTS) * len(NAMES))
    runs: dict[tuple[str, str], dict[str, SimResult]] = {}
    for load, pattern in loads.items():
        for cost in COSTS:
            runs[load, cost] = {}
            for name in NAMES:
                runs[load, cost][name] = _run(name, pattern, cost, seconds, settings.seed, ideal)
                settings.progress.advance()
    scores = {point: {name: Score.of(run) for name, run in of.items()} for point, of in runs.items()}
    web = next(iter(loads))
    disturbances = _try_disturbances(settings, loads[web], seconds, scores[web, "varying"])
    aurora = _smaller_headroom(settings, {web: loads[web], "pareto 1": loads["pareto 1"]}, seconds)
    table, ours = judge_goals(loads, scores, seconds)
    claims = (
        *_relative(scores, web, disturbances),
        *_transients(runs[web, "varying"], runs[web, "constant"]["ctrl"]),
        *_aurora_claims(aurora, scores, web),
        *ours,
    )
    columns = ("disturbance", "controller", "violations_s", "delayed", "overshoot_s", "loss")
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (change, name, score.violations_s, score.delayed, score.overshoot_s, score.loss)
        for change, of in disturbances.items()
        for name, score in of.items()
    )
    disturbed_table = DataTable("disturbances", f"Controllers under disturbances, {web}, varying cost", columns, rows)
    return Reproduction(
        claims,
        (table, disturbed_table),
        {
            "fig12-relative": lambda: _draw_relative(scores, web),
            "fig15-web": lambda: draw_runs(runs[web, "varying"], f"{web}, varying cost"),
            "fig15-pareto": lambda: draw_runs(runs["pareto 1", "varying"], "Pareto, bias 1, varying cost"),
            "disturbances": lambda: _draw_disturbances(disturbances),
        },
    )


# --- figure 12 ------------------------------------------------------------------------------------------------------


def _try_disturbances(
    settings: Settings, pattern: ArrivalPattern, seconds: float, ideal: Mapping[str, Score]
) -> dict[str, dict[str, Score]]:
    changes = _disturbances()
    found: dict[str, dict[str, Score]] = {changes[0].name: dict(ideal)}
    settings.progress.begin("disturbances", (len(changes) - 1) * len(NAMES))
    for change in changes[1:]:
        found[change.name] = {}
        for name in NAMES:
            found[change.name][name] = Score.of(_run(name, pattern, "varying", seconds, settings.seed, change))
            settings.progress.advance()
    return found


def _relative(
    scores: Mapping[tuple[str, str], Mapping[str, Score]], web: str, disturbances: Mapping[str, Mapping[str, Score]]
) -> list[Claim]:
    claims = []
    exact = (
        "where queue and cost are measured exactly, to correct everything within one period is right, and CTRL's "
        "slower approach stays above the target for longer"
    )
    falls = (
        "every fall of the cost gives AURORA spare capacity, because it still sheds by the cost before, and that works "
        "off its backlog; with a constant cost nothing does"
    )
    for name, title, factor, why in (("aurora", "AURORA", 205.0, falls), ("baseline", "BASELINE", 23.0, exact)):
        here = {
            load: times(scores[load, "varying"][name].violations_s, scores[load, "varying"]["ctrl"].violations_s)
            for load in (web, "pareto 1")
        }
        steady = {
            load: times(scores[load, "constant"][name].violations_s, scores[load, "constant"]["ctrl"].violations_s)
            for load in here
        }
        under = {change: times(of[name].violations_s, of["ctrl"].violations_s) for change, of in disturbances.items()}
        worst = max(under, key=lambda change: under[change])
        shown = ", ".join(f"{ratio:.1f}× ({load})" for load, ratio in here.items())
        shown += "; at constant cost " + ", ".join(f"{ratio:.1f}× ({load})" for load, ratio in steady.items())
        claims.append(
            judged(
                f"{title} has more accumulated violations than CTRL (fig. 12)",
                f"{factor:.0f}× on 'Web', similar on 'Pareto'",
                shown,
                all(ratio > 1 for ratio in here.values()),
                otherwise=why,
            )
        )
        claims.append(
            judged(
                f"{title} has about {factor:.0f}× CTRL's violations on 'Web' (fig. 12): within a factor of two, "
                "in the ideal queue or under one of the disturbances tried",
                f"{factor:.0f}×",
                f"from {min(under.values()):.1f}× to {under[worst]:.1f}× ({worst})",
                any(factor / 2 <= ratio <= 2 * factor for ratio in under.values()),
                otherwise="the factor depends on the trace of costs and on how the engine's measurements err, which "
                "the paper does not give; none of the disturbances tried here comes near",
            )
        )
    losses = {
        (load, name): times(scores[load, "varying"][name].loss, scores[load, "varying"]["ctrl"].loss)
        for load in (web, "pareto 1")
        for name in ("aurora", "baseline")
    }
    claims.append(
        judged(
            "All lose about the same, AURORA slightly less (fig. 12)",
            "AURORA / CTRL: 0.986 (Web), 0.987 (Pareto)",
            ", ".join(f"{name.upper()} / CTRL: {ratio:.3f} ({load})" for (load, name), ratio in losses.items()),
            all(0.95 <= ratio <= 1.05 for ratio in losses.values())
            and all(ratio <= 1 for (_, name), ratio in losses.items() if name == "aurora"),
            otherwise="what AURORA lets in too much it does not lose but delivers late, here by up to "
            + " and ".join(
                f"{scores[load, 'varying']['aurora'].overshoot_s:.0f} s ({load})" for load in (web, "pareto 1")
            )
            + ": the longer its backlog, the less it loses",
        )
    )
    return claims


def _draw_relative(scores: Mapping[tuple[str, str], Mapping[str, Score]], web: str) -> Figure:
    figure, panels = new_figure(1, 4, width_in=12)
    measures = ("violations_s", "delayed", "overshoot_s", "loss")
    loads = (web, "pareto 1")
    for panel, measure in zip(panels, measures, strict=True):
        for i, name in enumerate(NAMES):
            heights = [
                max(
                    times(
                        getattr(scores[load, "varying"][name], measure),
                        getattr(scores[load, "varying"]["ctrl"], measure),
                    ),
                    1e-4,
                )
                for load in loads
            ]
            panel.bar(np.arange(len(loads)) + 0.16 * i, heights, 0.15, color=colour_of(name), label=name)
        if measure != "loss":
            panel.set_yscale("log")
        panel.set_xticks(np.arange(len(loads)) + 0.32, ["Web", "Pareto"])
        panel.set_title(f"{measure} / CTRL's", loc="left", fontsize=10)
    legend_below(figure, panels[0])
    return figure


def _draw_disturbances(disturbances: Mapping[str, Mapping[str, Score]]) -> Figure:
    figure, (panel,) = new_figure(1, 1, height_in=4)
    for i, name in enumerate(NAMES):
        heights = [max(of[name].violations_s, 0.1) for of in disturbances.values()]
        panel.bar(np.arange(len(disturbances)) + 0.16 * i, heights, 0.15, color=colour_of(name), label=name)
    panel.set_yscale("log")
    panel.set_xticks(
        np.arange(len(disturbances)) + 0.32, [textwrap.fill(change, 16) for change in disturbances], fontsize=7
    )
    panel.set_ylabel("accumulated violations (s)")
    legend_below(figure, panel)
    return figure


# --- figures 15 and 16 ----------------------------------------------------------------------------------------------


def _near(run: SimResult) -> float:
    """The share of the periods after the 10th second in which the delay is within 25 % of the target."""
    time_s, delay_s = run.series.time_s, run.series.delay_mean_s
    settled = (time_s > min(10.0, time_s[-1] / 2)) & np.isfinite(delay_s)
    return float(np.mean(np.abs(delay_s[settled] - TARGET_S) <= 0.25 * TARGET_S))


def _transients(runs: Mapping[str, SimResult], steady: SimResult) -> list[Claim]:
    series = {name: run.series for name, run in runs.items()}
    ctrl = series["ctrl"]
    near = _near(runs["ctrl"])
    peaks = {name: float(np.nanmax(series[name].delay_mean_s)) for name in PAPERS}
    claims = [
        judged(
            "CTRL's delay is very close to the target almost always (fig. 15)",
            "almost all output in CTRL is very close to two seconds",
            f"within 25 % of the target in {near:.0%} of the periods after the 10th second; {_near(steady):.0%} with a "
            "constant cost",
            near >= 0.9,
            otherwise="noise of the cost from period to period moves the delay of a standing queue of two seconds with "
            "it, and below the capacity no controller can hold a queue",
        ),
        judged(
            "BASELINE and AURORA have larger peaks (fig. 15)",
            "peaks that are large in both height and width",
            ", ".join(f"{name.upper()} {peak:.2f} s" for name, peak in peaks.items()),
            peaks["baseline"] > peaks["ctrl"] and peaks["aurora"] > peaks["ctrl"],
            otherwise="after a jump of the cost BASELINE corrects the queue within a period, CTRL within several",
        ),
    ]
    if ctrl.time_s[-1] >= 350:
        calm = (ctrl.time_s > 180) & (ctrl.time_s <= 225)
        terrace = (ctrl.time_s > 255) & (ctrl.time_s <= 345)
        offs = [float(np.nanmean(np.abs(ctrl.delay_mean_s[part] - TARGET_S))) for part in (calm, terrace)]
        claims.append(
            judged(
                "The terrace has almost no effect on CTRL (fig. 15)",
                "the controller compensates for a gradual rise",
                f"mean distance from the target {offs[0]:.2f} s before and {offs[1]:.2f} s on the terrace",
                offs[1] <= 1.5 * offs[0],
                otherwise="on the terrace a tuple costs twice as much, so noise of the cost moves the delay further",
            )
        )
    return claims


def _smaller_headroom(settings: Settings, loads: Mapping[str, ArrivalPattern], seconds: float) -> dict[str, SimResult]:
    settings.progress.begin("figure 16: AURORA with H = 0.96", len(loads))
    found = {}
    for load, pattern in loads.items():
        controller = AuroraController(TARGET_S, headroom=0.96)
        found[load] = run_controller(controller, pattern, cost=COSTS["varying"], seconds=seconds, seed=settings.seed)
        settings.progress.advance()
    return found


def _at_the_end_s(run: SimResult) -> float:
    """The mean delay of the last eighth of the run: that of an unstable system is far from the target."""
    delay_s = run.series.delay_mean_s
    last = delay_s[-max(1, len(delay_s) // 8) :]
    return float(np.nanmean(last)) if np.isfinite(last).any() else 0.0


def _aurora_claims(
    smaller: Mapping[str, SimResult], scores: Mapping[tuple[str, str], Mapping[str, Score]], web: str
) -> list[Claim]:
    before = scores[web, "varying"]["aurora"].violations_s
    at_the_end = _at_the_end_s(smaller[web])
    pareto, ctrl = Score.of(smaller["pareto 1"]), scores["pareto 1", "varying"]["ctrl"]
    return [
        judged(
            "AURORA with H = 0.96 is still unstable on 'Web' (fig. 16)",
            "the system is still unstable",
            f"mean delay {at_the_end:.1f} s in the last eighth of the time (target {TARGET_S:g} s); violations "
            f"{smaller[web].violations_s:,.0f} s, {before:,.0f} s with 0.97",
            at_the_end > TARGET_S,
            otherwise="it has a backlog for minutes, but every fall of the cost works it off, as with 0.97",
        ),
        judged(
            "AURORA with H = 0.96 has no violations on 'Pareto', but loses 37 % more than CTRL (fig. 16)",
            "no violations, 37 % more loss",
            f"violations {pareto.violations_s:,.0f} s, loss {times(pareto.loss, ctrl.loss) - 1:+.0%} against CTRL",
            pareto.violations_s == 0 and 1.2 <= times(pareto.loss, ctrl.loss) <= 1.6,
            otherwise="after a quiet second AURORA lets a whole burst in, and one per cent of the capacity works off "
            "only one per cent of what arrives",
        ),
    ]
