"""`streamshed simulate control`: controllers side by side on one load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from streamshed.cli.tables import Sheet
    from streamshed.engines.sim import SimResult
    from streamshed.experiments.control_plant import Score
    from streamshed.workload import ArrivalPattern
    from streamshed.workload.costs import CostTrace

DEFAULT_CONTROLLERS = "ctrl,baseline,aurora,deadline"


class Pattern(StrEnum):
    """Synthetic loads."""

    web = "web"
    pareto = "pareto"
    step = "step"
    sinusoid = "sinusoid"


class Cost(StrEnum):
    """How the cost of a tuple varies."""

    constant = "constant"
    varying = "varying"


class Engine(StrEnum):
    """What is controlled."""

    queue = "queue"
    operators = "operators"


def _controller_names() -> list[str]:
    from streamshed.control import CONTROLLERS

    return list(CONTROLLERS)


def control(
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Recorded arrivals: a CSV, one column 'count' per 100 ms."),
    ] = None,
    scale: Annotated[float, typer.Option("--scale", metavar="S", help="Multiply the counts of the trace.")] = 2.0,
    start: Annotated[float, typer.Option("--start", metavar="SEC", help="Where in the trace to begin.")] = 0.0,
    pattern: Annotated[
        Pattern, typer.Option("--pattern", help="A synthetic load, where there is no trace.")
    ] = Pattern.web,
    bias: Annotated[
        float, typer.Option("--bias", metavar="B", help="Of 'pareto': the smaller, the more bursty.")
    ] = 1.0,
    load: Annotated[
        float | None,
        typer.Option("--load", metavar="L", help="Mean of a synthetic load, in capacities. Default: 1.5."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="SEC", help="How long.")] = 400.0,
    cost: Annotated[Cost, typer.Option("--cost", help="Costs: constant, or with jumps and peaks.")] = Cost.constant,
    controllers: Annotated[
        str,
        typer.Option("--controllers", metavar="A,B", help="Which ones.", autocompletion=_controller_names),
    ] = DEFAULT_CONTROLLERS,
    target: Annotated[float, typer.Option("--target", metavar="SEC", help="The delay to hold.")] = 2.0,
    period: Annotated[float, typer.Option("--period", metavar="SEC", help="The control period.")] = 1.0,
    lag: Annotated[int, typer.Option("--lag", metavar="N", min=0, help="Costs are told N periods late.")] = 0,
    noise: Annotated[
        float, typer.Option("--noise", metavar="X", min=0, help="Costs are told wrongly, by about X.")
    ] = 0,
    engine: Annotated[
        Engine, typer.Option("--engine", help="One ideal queue, or 14 operators taken in turn.")
    ] = Engine.queue,
    planner: Annotated[
        str | None,
        typer.Option("--planner", metavar="NAME", help="Shed inside the network, by this planner."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")] = 0,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the scores as JSON.")] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE.png", help="Draw delays and what was shed.")
    ] = None,
) -> None:
    """Compare controllers: delay violations and loss of each on the same load.

    Capacity (190 tuples/s at a headroom of 0.97), target and control period are by default those of the paper on the
    control-based shedder.
    """
    from rich.console import Console

    from streamshed.cli.export import replacing, write_json
    from streamshed.cli.figure import check_figure
    from streamshed.cli.tables import progress as tasks_on
    from streamshed.cli.tables import show
    from streamshed.control import controller_named
    from streamshed.experiments.control_figures import draw_runs
    from streamshed.experiments.control_plant import (
        COSTS,
        Score,
        least_loss,
        load_named,
        mean_load,
        operator_network,
        recorded,
        run_controller,
        virtual_queue,
    )
    from streamshed.experiments.disturbances import disturbed
    from streamshed.planning import planner_named
    from streamshed.workload.options import check_range

    check_range("simulate control", "--seconds", seconds, 1, 1e6)
    check_range("simulate control", "--period", period, 1e-3, seconds)
    if load is not None:
        check_range("simulate control", "--load", load, 0, 1000, above=True)
    if figure is not None:
        check_figure(figure, 1.0)
    names = list(dict.fromkeys(name.strip() for name in controllers.split(",") if name.strip()))
    made = {name: disturbed(controller_named(name, target), lag=lag, noise=noise, seed=seed) for name in names}
    decides = None if planner is None else planner_named(planner)
    arrivals: ArrivalPattern
    if trace is not None:
        arrivals = recorded(trace, scale=scale, start_s=start)
        source = f"{trace.name} × {scale:g} from {start:g} s"
    else:
        arrivals = load_named(pattern, load=load, bias=bias, seconds=seconds, seed=seed)
        source = f"pareto, bias {bias:g}" if pattern is Pattern.pareto else str(pattern)
    costs: CostTrace = COSTS[cost]
    plant = virtual_queue() if engine is Engine.queue else operator_network()
    console = Console(highlight=False)
    runs: dict[str, SimResult] = {}
    with tasks_on(Console(stderr=True)) as progress:
        for name, controller in made.items():
            task = progress.add_task(name, total=seconds)
            runs[name] = run_controller(
                controller, arrivals, cost=costs, plant=plant, planner=decides, target_s=target, period_s=period,
                seconds=seconds, seed=seed, progress=partial(_advance, progress, task),
            )  # fmt: skip
    scores = {name: Score.of(run) for name, run in runs.items()}
    demand = mean_load(arrivals, costs, seconds)
    title = f"{source}, {cost} cost: {demand:.2f} × the capacity for {seconds:g} s, target {target:g} s"
    least = least_loss(arrivals, costs, target_s=target, seconds=seconds) if engine is Engine.queue else None
    show(console, _table(title, scores, least))
    if json is not None:
        write_json(json, {name: asdict(score) for name, score in scores.items()})
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if figure is not None:
        with replacing(figure, "--figure") as stream:
            draw_runs(runs, title).savefig(stream, format=figure.suffix.lower()[1:], dpi=160)
        console.print(f"Figure: {figure}", style="dim", soft_wrap=True, markup=False)


def _advance(progress: Progress, task: TaskID, now_s: float) -> None:
    progress.update(task, completed=now_s)


def _table(title: str, scores: Mapping[str, Score], least: float | None) -> Sheet:
    from rich import box

    from streamshed.cli.tables import Sheet
    from streamshed.control import CONTROLLERS

    table = Sheet(title, box=box.SIMPLE_HEAD, collapse_padding=True).words("controller")
    table.numbers("violations\n(s)", "delayed", "overshoot\n(s)", "loss", "viol.\n/ CTRL's", "loss\n/ CTRL's")
    reference = scores.get("ctrl")
    for name, score in scores.items():
        relative = ["", ""]
        if reference is not None:
            relative = [ratio(score.violations_s, reference.violations_s), ratio(score.loss, reference.loss)]
        table.add_row(
            CONTROLLERS[name].title,
            f"{score.violations_s:,.{0 if score.violations_s >= 1000 else 1}f}",
            f"{score.delayed:,}",
            f"{score.overshoot_s:.2f}",
            f"{score.loss:.2%}",
            *relative,
        )
    if least is not None:
        last = ratio(least, reference.loss) if reference is not None else ""
        table.add_section()
        table.add_row("least, all in time", "0.0", "0", "0.00", f"{least:.2%}", "", last, style="dim")
    return table


def ratio(value: float, reference: float) -> str:
    """How many times as much, for people.

    >>> ratio(3, 2), ratio(0, 0), ratio(1, 0)
    ('1.500', '–', '∞')
    """
    if reference == 0:
        return "–" if value == 0 else "∞"
    times = value / reference
    return f"{times:.3f}" if times >= 0.01 or times == 0 else f"{times:.1e}"
