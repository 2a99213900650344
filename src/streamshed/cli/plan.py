"""`streamshed plan`: what will be lost at a given load, before anything is deployed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from streamshed.cli.failures import DOES_NOT_FIT

if TYPE_CHECKING:
    from streamshed.cli.outlook import Outlook

DEFAULT_PLANNER = "semantic"
DEFAULT_MAX_EXCESS = 300.0
OPTIMAL = "optimal"


def _planner_names() -> list[str]:
    from streamshed.planning import PLANNERS

    return list(PLANNERS)


class PlanCommand(TyperCommand):
    """The command with the names of the planners in its help, which only then are worth importing."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help.

        Args:
            ctx: typer's context.
            formatter: typer's formatter.
        """
        for option in self.params:
            if option.name == "planner":
                vars(option)["help"] = f"Which planner decides: {', '.join(_planner_names())}."
        super().format_help(ctx, formatter)


def plan(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The network and what is known about it.")],
    planner: Annotated[
        str,
        typer.Option("--planner", "-p", metavar="NAME", help="Which planner decides.", autocompletion=_planner_names),
    ] = DEFAULT_PLANNER,
    compare: Annotated[bool, typer.Option("--compare", help="Put all planners side by side.")] = False,
    rate: Annotated[
        list[str] | None,
        typer.Option("--rate", "-r", metavar="STREAM=TPS", help="Tuples per second of a stream. Repeatable."),
    ] = None,
    factor: Annotated[
        float, typer.Option("--factor", "-f", metavar="F", help="Multiply all rates: 3 is three times the load.")
    ] = 1.0,
    capacity: Annotated[
        float | None,
        typer.Option(
            "--capacity", "-c", metavar="C", help="Seconds of processing per second (cores). Default: the spec's."
        ),
    ] = None,
    headroom: Annotated[
        float, typer.Option("--headroom", metavar="H", help="The share of the capacity to plan for, up to 1.")
    ] = 1.0,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all numbers as JSON.")] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE.png", help="Draw utility against excess load for every planner."),
    ] = None,
    max_excess: Annotated[
        float, typer.Option("--max-excess", metavar="PERCENT", help="Where the figure ends, in % of the capacity.")
    ] = DEFAULT_MAX_EXCESS,
) -> None:
    """Show what a network will drop at a given load, and what that costs each output.

    "What will I lose at three times the load?" is [bold]streamshed plan SPEC.yaml --factor 3[/bold].

    Exits with 2 if the spec or an option is wrong, with 3 if the plan does not fit into the capacity.
    """
    from streamshed.cli.outlook import outlook
    from streamshed.network import load_spec

    view = outlook(load_spec(spec), str(spec), rates=rate or (), factor=factor, capacity=capacity, headroom=headroom)
    fits = report(view, planner, compare=compare, json=json, figure=figure, max_excess=max_excess)
    if not fits:
        raise typer.Exit(DOES_NOT_FIT)


def report(
    view: Outlook,
    planner: str,
    *,
    compare: bool = False,
    json: Path | None = None,
    figure: Path | None = None,
    max_excess: float = DEFAULT_MAX_EXCESS,
) -> bool:
    """Plan, print, and write the files that were asked for.

    Returns:
        Whether the chosen planner's plan fits.
    """
    from rich.console import Console

    from streamshed.cli.export import as_document, write_json
    from streamshed.cli.figure import check_figure, write_figure
    from streamshed.cli.render import closing, show_comparison, show_report
    from streamshed.cli.tables import show
    from streamshed.planning import PLANNERS, planner_named

    if figure is not None:
        check_figure(figure, max_excess)
    console = Console(highlight=False)
    title = planner_named(planner).title
    plans = view.plans(PLANNERS if compare else [planner])
    chosen = plans[planner]
    show_report(console, view, chosen, title)
    if compare:
        show_comparison(console, view, plans, planner)
    if compare or planner_named(planner).by_value:
        for output, reason in view.not_by_value.items():
            told = f"{output}: no drop goes by its value graph, because {reason}."
            console.print(told, style="yellow", soft_wrap=True, markup=False)
        if view.not_by_value:
            console.print("(What can be learnt of values, `streamshed run` learns from the stream.)\n", style="dim")
    optimum = None
    if chosen.drops and planner != OPTIMAL:
        optimum = plans[OPTIMAL] if compare else view.plan(OPTIMAL)
    show(console, closing(view, chosen, optimum))
    if json is not None:
        write_json(json, as_document(view, plans))
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if figure is not None:
        write_figure(view, figure, max_excess)
        console.print(f"Figure: {figure}", style="dim", soft_wrap=True, markup=False)
    return chosen.fits
