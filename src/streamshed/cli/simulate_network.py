"""`streamshed simulate SPEC.yaml`: a network under load in virtual time, by controller and planner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streamshed.cli.outlook import Outlook
    from streamshed.cli.tables import Sheet
    from streamshed.engines.sim import SimResult
    from streamshed.network import Statistics
    from streamshed.workload import ArrivalPattern

NO_PLANNER = "none"


class Pattern(StrEnum):
    """How the rates move."""

    constant = "constant"
    burst = "burst"
    step = "step"
    sinusoid = "sinusoid"
    pareto = "pareto"


class Cost(StrEnum):
    """How costs move."""

    constant = "constant"
    varying = "varying"


@dataclass(frozen=True)
class Run:
    """One simulation."""

    controller: str
    planner: str
    result: SimResult

    @property
    def label(self) -> str:
        """For people."""
        return self.controller if self.planner == NO_PLANNER else f"{self.controller} × {self.planner}"


def _controller_names() -> list[str]:
    from streamshed.control import CONTROLLERS

    return list(CONTROLLERS)


def _planner_names() -> list[str]:
    from streamshed.planning import PLANNERS

    return [NO_PLANNER, *PLANNERS]


def network(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The network and what is known about it.")],
    controllers: Annotated[
        str,
        typer.Option("--controllers", metavar="A,B", help="How much to shed.", autocompletion=_controller_names),
    ] = "deadline,ctrl",
    planners: Annotated[
        str,
        typer.Option(
            "--planners", metavar="A,B", help="Where to shed; 'none': at the entries.", autocompletion=_planner_names
        ),
    ] = "semantic,none",
    seconds: Annotated[float, typer.Option("--seconds", metavar="SEC", help="How long, in virtual time.")] = 60.0,
    rate_factor: Annotated[
        float, typer.Option("--rate-factor", "-f", metavar="F", help="Multiply all rates (of 'burst': in the burst).")
    ] = 3.0,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", "-r", metavar="STREAM=TPS", help="Tuples per second of a stream. Repeatable."),
    ] = None,
    pattern: Annotated[Pattern, typer.Option("--pattern", help="How the rates move.")] = Pattern.constant,
    bias: Annotated[float, typer.Option("--bias", metavar="B", help="Of 'pareto': the smaller, the burstier.")] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Move the rates as recorded: a CSV, one 'count' per 100 ms."),
    ] = None,
    start: Annotated[float, typer.Option("--start", metavar="SEC", help="Where in the trace to begin.")] = 0.0,
    cost: Annotated[Cost, typer.Option("--cost", help="Costs: constant, or with jumps and peaks.")] = Cost.constant,
    capacity: Annotated[
        float | None,
        typer.Option("--capacity", "-c", metavar="C", help="Seconds of processing per second. Default: the spec's."),
    ] = None,
    headroom: Annotated[
        float, typer.Option("--headroom", metavar="H", help="The share of the capacity that queries get, up to 1.")
    ] = 1.0,
    target: Annotated[float, typer.Option("--target", metavar="SEC", help="The delay to hold.")] = 2.0,
    period: Annotated[float, typer.Option("--period", metavar="SEC", help="The control period.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")] = 0,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers as JSON.")] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE.png", help="Draw delays and arrivals over time.")
    ] = None,
) -> None:
    """Run a network in virtual time, once for every controller and planner.

    Arrivals have the spec's rates times the factor on average, evenly spaced or moving as --pattern or --trace says.
    """
    from rich.console import Console

    from streamshed.cli.export import replacing, write_json
    from streamshed.cli.figure import check_figure
    from streamshed.cli.outlook import outlook
    from streamshed.cli.render import number
    from streamshed.cli.tables import progress as tasks_on
    from streamshed.cli.tables import show
    from streamshed.control import controller_named
    from streamshed.network import load_spec
    from streamshed.planning import planner_named
    from streamshed.workload.options import check_range

    check_range("simulate", "--seconds", seconds, 1e-3, 1e7)
    check_range("simulate", "--period", period, 1e-3, seconds)
    if figure is not None:
        check_figure(figure, 1.0)
    pairs = [(controller, planner) for controller in _names(controllers) for planner in _names(planners)]
    for controller, planner in pairs:  # refuse unknown names before the first minute is spent
        controller_named(controller, target)
        if planner != NO_PLANNER:
            planner_named(planner)
    view = outlook(
        load_spec(spec), str(spec), rates=rate or (), factor=rate_factor, capacity=capacity, headroom=headroom
    )
    arrivals = _arrivals(view, pattern, trace, bias, start, seconds, seed)
    console = Console(highlight=False)
    runs: list[Run] = []
    with tasks_on(Console(stderr=True)) as progress:
        for controller, planner in pairs:
            task = progress.add_task(f"{controller}, {planner}", total=seconds)

            def at(now_s: float, task: Any = task) -> None:
                progress.update(task, completed=now_s)

            result = _run(view, arrivals, controller, planner, target, period, cost, seconds, seed, at)
            runs.append(Run(controller, planner, result))
    moving = f"as {trace.name}" if trace is not None else pattern.value
    title = f"{view.spec.network.name}: {number(view.load)} of load on {number(view.usable)}, {moving}"
    show(console, _summary(title, runs), "", _outputs(runs))
    if json is not None:
        write_json(json, _document(view, runs))
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if figure is not None:
        with replacing(figure, "--figure") as stream:
            _draw(view.spec.network.name, runs).savefig(stream, format=figure.suffix.lower()[1:], dpi=160)
        console.print(f"Figure: {figure}", style="dim", soft_wrap=True, markup=False)


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _arrivals(
    view: Outlook, pattern: Pattern, trace: Path | None, bias: float, start_s: float, seconds: float, seed: int
) -> dict[str, ArrivalPattern]:
    """Every stream with its rate on average (of a burst: with its rate in the burst)."""
    from streamshed.workload import Burst, Constant, Pareto, Sinusoid, Step, Trace

    def moving(number: int, tps: float) -> ArrivalPattern:
        if trace is not None:
            recorded = Trace(str(trace), 1.0, start_s, repeat=True)
            mean_tps = recorded.cumulative(seconds) / seconds
            return Trace(str(trace), tps / mean_tps if mean_tps > 0 else 0.0, start_s, repeat=True)
        match pattern:
            case Pattern.burst:
                return Burst(tps / view.factor, tps, seconds / 3, seconds / 3)
            case Pattern.step:
                return Step(tps / view.factor, tps, seconds / 4)
            case Pattern.sinusoid:
                return Sinusoid(tps, tps, max(seconds / 4, 1e-3))
            case Pattern.pareto if tps > 0:
                return Pareto(tps, bias, seed=seed * 1000 + number)
            case _:
                return Constant(tps)

    return {stream: moving(number, tps) for number, (stream, tps) in enumerate(view.rates.items())}


def _run(
    view: Outlook,
    arrivals: Mapping[str, ArrivalPattern],
    controller: str,
    planner: str,
    target_s: float,
    period_s: float,
    cost: Cost,
    seconds: float,
    seed: int,
    progress: Callable[[float], None],
) -> SimResult:
    from streamshed.control import controller_named
    from streamshed.engines.sim import simulate
    from streamshed.planning import planner_named
    from streamshed.workload.costs import ConstantCost, VaryingCost

    return simulate(
        view.spec.network,
        _on_one_processor(view.spec.statistics, view.capacity),
        arrivals,
        seconds,
        controller=controller_named(controller, target_s, headroom=view.headroom),
        planner=None if planner == NO_PLANNER else planner_named(planner),
        rates=view.rates,
        target_s=target_s,
        period_s=period_s,
        headroom=view.headroom,
        cost=VaryingCost(seed) if cost is Cost.varying else ConstantCost(),
        seed=seed,
        progress=progress,
    )


def _on_one_processor(statistics: Statistics, capacity: float) -> Statistics:
    """The same work on one processor that is as fast as all of the capacity."""
    costs = {operator: cost_s / capacity for operator, cost_s in statistics.costs.items()}
    return replace(statistics, costs=costs, drop_cost=statistics.drop_cost / capacity)


def _summary(title: str, runs: Sequence[Run]) -> Sheet:
    from streamshed.cli.render import percent
    from streamshed.cli.tables import Sheet

    told = "late by: delay beyond the target, summed over tuples; loss: tuples of which nothing was delivered"
    table = Sheet(title, note=told).words("controller", "planner")
    table.numbers(
        "p50\n(s)", "p95\n(s)", "p99\n(s)", "late by\n(s)", "loss", "tuple\nutility", "value\nutility", "busy"
    )
    for run in runs:
        result = run.result
        table.add_row(
            run.controller,
            run.planner,
            *(f"{result.delays.quantile_s(share):,.2f}" for share in (0.5, 0.95, 0.99)),
            f"{result.violations_s:,.{0 if result.violations_s >= 100 else 1}f}",
            percent(result.loss),
            percent(1 - result.tuple_utility_loss),
            percent(1 - result.value_utility_loss),
            percent(min(result.utilization, 1.0)),
        )
    return table


def _outputs(runs: Sequence[Run]) -> Sheet:
    from streamshed.cli.render import percent
    from streamshed.cli.tables import Sheet

    table = Sheet("What the outputs got").words("controller", "planner").names("output")
    table.numbers("tuples", "tuple\nutility", "value\nutility", "p95")
    for run in runs:
        for i, output in enumerate(run.result.outputs.values()):
            table.add_row(
                *((run.controller, run.planner) if i == 0 else ("", "")),
                output.output,
                percent(output.share),
                percent(output.tuple_utility),
                percent(output.value_utility),
                f"{output.delays.quantile_s(0.95):.2f} s",
            )
    return table


def _document(view: Outlook, runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "spec": {"name": view.spec.network.name, "file": view.source},
        "rates": dict(view.rates),
        "capacity": view.capacity,
        "headroom": view.headroom,
        "load": view.load,
        "runs": [_run_document(run) for run in runs],
    }


def _run_document(run: Run) -> dict[str, Any]:
    result = run.result
    return {
        "controller": run.controller,
        "planner": None if run.planner == NO_PLANNER else run.planner,
        "seconds": result.seconds,
        "arrived": result.arrived,
        "delivered": result.delivered,
        "dropped": result.dropped,
        "filtered": result.filtered,
        "under_way": result.under_way,
        "delay_p50_s": result.delays.quantile_s(0.5),
        "delay_p95_s": result.delays.quantile_s(0.95),
        "delay_p99_s": result.delays.quantile_s(0.99),
        "delay_max_s": result.delays.max_s,
        "violations_s": result.violations_s,
        "delayed": result.delayed,
        "overshoot_s": result.overshoot_s,
        "loss": result.loss,
        "tuple_utility": 1 - result.tuple_utility_loss,
        "value_utility": 1 - result.value_utility_loss,
        "busy": result.utilization,
        "dropped_on": dict(result.dropped_on),
        "outputs": {
            output.output: {
                "delivered": output.delivered,
                "lost": output.lost,
                "tuple_utility": output.tuple_utility,
                "value_utility": output.value_utility,
                "delay_p95_s": output.delays.quantile_s(0.95),
            }
            for output in result.outputs.values()
        },
    }


def _draw(name: str, runs: Sequence[Run]) -> Figure:
    from streamshed.experiments.control_figures import new_figure

    figure, (above, below) = new_figure(2, 1)
    figure.suptitle(f"{name} in virtual time", x=0.01, ha="left", fontsize=12, fontweight="bold")
    for run in runs:
        series = run.result.series
        above.plot(series.time_s, series.delay_mean_s, label=run.label, linewidth=1.5)
    series = runs[0].result.series
    above.step(series.time_s, series.target_s, where="pre", color="#222222", linestyle=(0, (4, 2.5)), linewidth=1.2)
    above.set_ylabel("mean delay of the tuples\nthat arrived then (s)")
    above.set_ylim(bottom=0)
    above.legend(frameon=False, fontsize=9, ncols=min(4, len(runs)), loc="upper left")
    below.fill_between(series.time_s, series.arrived, step="pre", color="#8a8a8a", alpha=0.4, linewidth=0)
    below.set_ylabel("tuples that arrived\nin each period")
    below.set_ylim(bottom=0)
    below.set_xlabel("time (s)")
    return figure
