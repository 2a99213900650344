"""`streamshed simulate loads`: controllers side by side on every load of the comparison, and on others."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamshed.cli.tables import Sheet


def loads(
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Recorded arrivals: a CSV, one column 'count' per 100 ms."),
    ] = None,
    others: Annotated[
        bool, typer.Option("--others/--no-others", help="Other cuts, loads, seeds and targets as well.")
    ] = True,
    seconds: Annotated[float, typer.Option("--seconds", metavar="SEC", help="How long.")] = 400.0,
    controllers: Annotated[
        str, typer.Option("--controllers", metavar="A,B", help="Beside ctrl and deadline.")
    ] = "baseline,aurora",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")] = 0,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the scores as JSON.")] = None,
) -> None:
    """Compare controllers on many loads, with constant and varying cost, and ours against its goals.

    Without a trace, synthetic web traffic is in its place. On the other loads only ctrl and deadline are run.
    """
    from rich.console import Console

    from streamshed.cli.export import write_json
    from streamshed.cli.simulate_control import ratio
    from streamshed.cli.tables import show, tracked
    from streamshed.control import controller_named
    from streamshed.experiments.control_goals import goal_claims, stand
    from streamshed.experiments.control_loads import Case, other_loads, paper_loads
    from streamshed.experiments.control_plant import COSTS, Score, least_loss, mean_load, run_controller
    from streamshed.workload.options import check_range

    check_range("simulate loads", "--seconds", seconds, 1, 1e6)
    extra = [name for name in dict.fromkeys(name.strip() for name in controllers.split(",")) if name]
    for name in extra:
        controller_named(name, 1.0)
    both = ("ctrl", "deadline")
    cases = [
        (name, Case(arrivals), tuple(dict.fromkeys(("ctrl", *extra, "deadline"))))
        for name, arrivals in paper_loads(trace, seconds, seed).items()
    ]
    if others:
        cases += [(name, case, both) for name, case in other_loads(trace, seconds, seed).items()]
    console = Console(highlight=False)
    found, standings = [], {}
    table = _table()
    points = [(name, case, names, cost) for name, case, names in cases for cost in COSTS]
    for load, case, names, cost in tracked(Console(stderr=True), points, "loads"):
        scores = {
            name: Score.of(
                run_controller(
                    name, case.arrivals, cost=COSTS[cost], target_s=case.target_s, seconds=seconds, seed=seed
                )
            )
            for name in names
        }
        demand = mean_load(case.arrivals, COSTS[cost], seconds)
        least = least_loss(case.arrivals, COSTS[cost], target_s=case.target_s, seconds=seconds)
        standing = standings[f"{load}, {cost} cost"] = stand(scores, demand, least)
        ctrl = scores["ctrl"]
        for name, score in scores.items():
            table.add_row(
                f"{load}, {cost}" if name == "ctrl" else "",
                f"{demand:.2f}" if name == "ctrl" else "",
                name,
                f"{score.violations_s:,.1f}",
                f"{score.delayed:,}",
                f"{score.overshoot_s:.2f}",
                f"{score.loss:.2%}",
                *(ratio(a, b) for a, b in ((score.violations_s, ctrl.violations_s), (score.loss, ctrl.loss))),
                f"{standing.least:.3f}" if name == "deadline" else "",
                _verdict(standing.met_violations, standing.met_loss) if name == "deadline" else "",
            )
        table.add_section()
        found.append(
            {
                "load": load,
                "cost": cost,
                "target_s": case.target_s,
                "mean_load": demand,
                "least_loss": least,
                "scores": {name: asdict(score) for name, score in scores.items()},
                "standing": asdict(standing),
            }
        )
    show(console, table)
    for claim in goal_claims(standings):
        show(console, f"{'yes' if claim.holds else 'no '}  {claim.claim}: {claim.measured}")
    if json is not None:
        write_json(json, found)
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)


def _verdict(violations: bool, loss: bool) -> str:
    missed = [name for name, met in (("violations", violations), ("loss", loss)) if not met]
    return f"missed: {', '.join(missed)}" if missed else "met"


def _table() -> Sheet:
    from rich import box

    from streamshed.cli.tables import Sheet

    table = Sheet(box=box.SIMPLE_HEAD).names("load, cost").numbers("mean load").words("controller")
    table.numbers("violations\n(s)", "delayed", "overshoot\n(s)", "loss", "violations\n/ CTRL's", "loss\n/ CTRL's")
    return table.numbers("least loss\n/ CTRL's").names("goal")
