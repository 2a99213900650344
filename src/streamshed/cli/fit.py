"""`streamshed fit`: what a node can take, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streamshed.cli.tables import Sheet
    from streamshed.distributed.feasible_input.table import Decision, FeasibleInputTable
    from streamshed.distributed.scores import Score

_SHOWN = 15
_DEFAULT_ERROR = 0.02


def fit(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.yaml", help="The network, its nodes, what is known about it.")],
    node: Annotated[
        str | None, typer.Option("--node", "-n", metavar="NAME", help="Whose table; by default the first node's.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="corners (entries may be mixed) or grid (as in the paper).")
    ] = "corners",
    score: Annotated[
        str, typer.Option("--score", metavar="NAME", help="throughput (by the outputs' weights) or fairness.")
    ] = "throughput",
    error: Annotated[
        float | None,
        typer.Option("--error", "-e", metavar="E", help="The largest error in score. Default: 2 % of the optimum."),
    ] = None,
    entries: Annotated[
        int | None, typer.Option("--entries", metavar="N", min=1, help="Bound the size of tables instead.")
    ] = None,
    factor: Annotated[float, typer.Option("--factor", "-f", metavar="F", help="Multiply all rates.")] = 1.0,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the table as JSON.")] = None,
    figure: Annotated[Path | None, typer.Option("--figure", metavar="FILE.png", help="Draw the table.")] = None,
) -> None:
    """Show a node's feasible input table, and what the node would do about the rates of the spec.

    Tables are built from the last node to the first, as nodes that tell their parents would build them.
    """
    from rich.console import Console

    from streamshed.cli.export import replacing, write_json
    from streamshed.cli.tables import show
    from streamshed.distributed.coordinator import Coordinator
    from streamshed.distributed.cutting import external_rates, topology_of
    from streamshed.distributed.feasible_input.spread import MaxError, TableSize
    from streamshed.distributed.tables import build_tables, play
    from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean
    from streamshed.network import load_spec

    loaded = load_spec(spec)
    topology = topology_of(loaded)
    name = node or topology.upstream_first[0]
    if name not in topology.node:
        raise UnknownNameError(
            f"there is no node {name!r}", where="--node", got=name, hint=did_you_mean(name, topology.node)
        )
    loaded.statistics.require_costs(loaded.network, str(spec))
    if not loaded.rates:
        raise InvalidValueError(
            "the spec has no rates", where=str(spec), got="none", expected="a rate for every stream under `rates`"
        )
    rates = {input_id: factor * rate for input_id, rate in external_rates(topology, loaded.rates).items()}
    worth = _score(score, loaded, topology, rates)
    highest = max(*rates.values(), 1e-9)
    best = Coordinator(topology, worth, highest).plan(rates).score
    wanted = error if error is not None else max(_DEFAULT_ERROR * best, 1e-9)
    spread = TableSize(entries) if entries is not None else MaxError(wanted)
    limits = dict.fromkeys(topology.owner, 10 * highest)
    tables = build_tables(topology, worth, spread, kind=kind, limits_tps=limits)
    table = tables[name]
    played = play(topology, tables, rates, worth)
    arriving = {input_id: played.arriving[input_id] for input_id in table.inputs}
    decision = table.decide(arriving)
    console = Console(highlight=False)
    show(
        console,
        _entries(table),
        _closing(table, arriving, decision),
        f"All nodes by their tables: score {_number(played.score)}; the optimum is {_number(best)}"
        f" ({played.score / best if best > 0 else 1.0:.1%}).",
    )
    if json is not None:
        write_json(json, _document(table, arriving, decision, best, played.score))
        console.print(f"Numbers: {json}", style="dim", soft_wrap=True, markup=False)
    if figure is not None:
        from streamshed.cli.figure import check_figure

        check_figure(figure, 1.0)
        with replacing(figure, "--figure") as stream:
            _draw(table, arriving, decision).savefig(stream, format=figure.suffix.lower()[1:], dpi=160)
        console.print(f"Figure: {figure}", style="dim", soft_wrap=True, markup=False)


def _score(name: str, loaded: Any, topology: Any, rates: dict[str, float]) -> Score:
    from streamshed.distributed.scores import Fairness, Throughput
    from streamshed.distributed.tables import nominal_outputs
    from streamshed.errors import UnknownNameError

    weights = {output.id: output.qos.weight for output in loaded.network.outputs}
    if name == "throughput":
        return Throughput(weights)
    if name == "fairness":
        return Fairness(nominal_outputs(topology, rates), weights)
    raise UnknownNameError(f"there is no score {name!r}", where="--score", got=name, expected="throughput or fairness")


def _entries(table: FeasibleInputTable) -> Sheet:
    from rich import box

    from streamshed.cli.tables import Sheet

    mixing = "in any mixture" if table.mixing else "one of them"
    title = f"Node {table.node}: {len(table):,} entries, {mixing}; error at most {table.max_error:.4g}"
    shown = Sheet(title, box=box.SIMPLE_HEAD)
    shown.numbers(*(f"{name} (/s)" for name in table.inputs), "score").names("local plan")
    for row in range(min(len(table), _SHOWN)):
        free = table.planless is None or bool(table.planless[row])
        plan = "" if free else ", ".join(_plan(table, row))
        shown.add_row(*(_number(rate) for rate in table.rates[row]), _number(table.scores[row]), plan)
    if len(table) > _SHOWN:
        shown.add_row(*("…" for _ in table.inputs), "…", f"{len(table) - _SHOWN:,} more")
    return shown


def _plan(table: FeasibleInputTable, row: int) -> list[str]:
    assert table.flows is not None
    return [f"{name}: {_number(rate, 4)}/s" for name, rate in zip(table.segments, table.flows[row], strict=True)]


def _closing(table: FeasibleInputTable, arriving: dict[str, float], decision: Decision) -> str:
    rates = ", ".join(f"{name} {_number(rate)}/s" for name, rate in arriving.items())
    if table.carries(arriving):
        return f"{rates}: nothing has to be dropped."
    dropped = [f"{1 - share:.1%} of {name}" for name, share in decision.keep.items() if share < 1]
    inside = "" if not decision.flows else ", and the rest by the local plan" if not dropped else ""
    return f"{rates}: drop {', '.join(dropped) or 'nothing at the inputs'}{inside}; score {_number(decision.score)}."


def _number(value: float, digits: int = 6) -> str:
    """So many digits, or as many as there are before the point.

    >>> _number(1234.56789), _number(10_060_000_000.0), _number(0.5)
    ('1,234.57', '10,060,000,000', '0.5')
    """
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:,.{digits}g}"


def _document(
    table: FeasibleInputTable, arriving: dict[str, float], decision: Decision, best: float, achieved: float
) -> dict[str, Any]:
    return {
        "node": table.node,
        "inputs": list(table.inputs),
        "mixing": table.mixing,
        "max_error": table.max_error,
        "rates": table.rates.tolist(),
        "scores": table.scores.tolist(),
        "segments": list(table.segments),
        "flows": None if table.flows is None else table.flows.tolist(),
        "arriving": arriving,
        "decision": {"rates": dict(decision.rates), "score": decision.score, "flows": dict(decision.flows)},
        "optimum": best,
        "achieved": achieved,
    }


def _draw(table: FeasibleInputTable, arriving: dict[str, float], decision: Decision) -> Figure:
    """Entries by their first two inputs, coloured by score; with one input, score against rate."""
    from streamshed.experiments.drawing import FAINT, INK, new_figure, quiet

    figure = new_figure(7.4, 5.2)
    axes = figure.subplots()
    quiet(axes, f"Feasible input table of node {table.node}: {len(table):,} entries")
    first, second = table.inputs[0], table.inputs[1] if len(table.inputs) > 1 else None
    heights = table.scores if second is None else table.rates[:, 1]
    dots = axes.scatter(table.rates[:, 0], heights, c=table.scores, cmap="viridis", s=22, zorder=3)
    figure.colorbar(dots, label="score")
    marks = (("arriving", arriving, "x", FAINT), ("let in", decision.rates, "*", "#D55E00"))
    for label, rates, marker, colour in marks:
        height = decision.score if second is None else rates[second]
        axes.scatter([rates[first]], [height], marker=marker, s=110, color=colour, label=label, zorder=5)
    axes.set_xlabel(f"{first} (tuples/s)", color=INK)
    axes.set_ylabel("score" if second is None else f"{second} (tuples/s)", color=INK)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return figure
