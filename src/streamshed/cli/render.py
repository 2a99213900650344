"""A plan for people: the network, the load, the drops and what they cost, on 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

from streamshed.cli.outlook import Outlook
from streamshed.cli.tables import Sentence, Sheet, show
from streamshed.network import Arc, Network, Output, Split, Stream, Union
from streamshed.planning import Drop, DropPlan

MOST_NODES_DRAWN = 120
MOST_ROWS = 40
_NAME = 12
"""Columns that a name in the network keeps at least."""


def percent(share: float) -> str:
    """A share in per cent, with one digit.

    >>> percent(0.1234), percent(0.99999), percent(1.0), percent(0.0)
    ('12.3 %', '99.9 %', '100 %', '0 %')
    """
    if share <= 0 or share >= 1:
        return f"{100 * share:.0f} %"
    # Nearly all is not all, and nearly nothing is not nothing.
    return f"{min(99.9, max(0.1, 100 * share)):.1f} %"


def seconds(value: float) -> str:
    """A short time with its unit.

    >>> seconds(1e-6), seconds(0.0125), seconds(0)
    ('1 µs', '12.5 ms', '0')
    """
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.2g} ns" if value > 0 else "0"


def number(value: float) -> str:
    """A load or a rate: thousands separated, three digits below that.

    >>> number(300000.0), number(0.301), number(2.1), number(0)
    ('300,000', '0.301', '2.10', '0')
    """
    if value == 0:
        return "0"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value >= 1e-3 else f"{value:.2g}"


def plain(value: float) -> str:
    """A number as somebody wrote it.

    >>> plain(2.5), plain(10_060_000_000.0)
    ('2.5', '10,060,000,000')
    """
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def show_report(console: Console, view: Outlook, plan: DropPlan, title: str) -> None:
    """Print the network, the load, the chosen drops and what they cost."""
    _print(console, _headline(view), _network(view, plan, console.width), _load(view))
    if plan.drops:
        _print(console, _drops(plan, title), _outputs(plan))


def show_comparison(console: Console, view: Outlook, plans: Mapping[str, DropPlan], chosen: str) -> None:
    """Print all planners side by side, the best of each column in bold."""
    table = _table().words("planner").numbers("load", "tuple\nutility", "value\nutility")
    outputs = view.spec.network.outputs
    taken = max(len(name) for name in plans) + sum(len(heading) + 2 for heading in ("0.000", "utility", "utility"))
    shown = outputs if taken + sum(max(len(output.id), 6) + 2 for output in outputs) <= console.width else ()
    table.numbers(*(output.id for output in shown))
    best_tuple = min(plan.tuple_utility_loss for plan in plans.values())
    best_value = min(plan.value_utility_loss for plan in plans.values())
    for name, plan in plans.items():
        delivered = {effect.output: effect.delivered for effect in plan.outputs}
        table.add_row(
            Text(name, style="bold cyan" if name == chosen else "cyan"),
            Text(number(plan.load_after), style="" if plan.fits else "bold red"),
            _utility(1 - plan.tuple_utility_loss, plan.tuple_utility_loss <= best_tuple + 1e-6),
            _utility(1 - plan.value_utility_loss, plan.value_utility_loss <= best_value + 1e-6),
            *(percent(delivered[output.id]) for output in shown),
        )
    told = "Utilities: weighted means over the outputs."
    _print(console, _section("All planners", table, _note(f"{told} Outputs: tuples delivered." if shown else told)))


def closing(view: Outlook, plan: DropPlan, optimum: DropPlan | None) -> Text:
    """What it all comes to, in a sentence or two."""
    if not plan.drops and plan.fits:
        text = Text.assemble(("Nothing needs to be dropped: ", "bold green"))
        text.append(f"{_at(view)} the load of {number(view.load)} fits into the capacity of {number(view.usable)}.")
        if view.load > 0:
            text.append(f" There is room for {view.usable / view.load:.3g}× these rates.")
        return text
    if not plan.fits:
        drop_cost = seconds(view.spec.statistics.drop_cost)
        return Text.assemble(
            ("The plan does not fit: ", "bold red"),
            f"{_at(view)} even what is left needs {number(plan.load_after)} of {number(view.usable)}, because a drop "
            f"itself takes {drop_cost} a tuple. Shed before the network, or add capacity.",
        )
    text = Text.assemble(
        (f"{_at(view, start=True)} the plan drops {_what(plan.drops)}", ""),
        (" and costs ", ""),
        (_costs(plan), "bold"),
        (".", ""),
    )
    if optimum is not None:
        text.append(f" Optimal random drops would cost {_costs(optimum)}.")
    whose = "the given" if view.given_rates else "the spec's"
    text.append(f" Shedding begins at {view.factor * view.usable / view.load:.3g}× {whose} rates.")
    return text


def _at(view: Outlook, *, start: bool = False) -> str:
    if view.factor != 1:
        where = f"{view.factor:.1f}×" if round(view.factor, 1) == view.factor else f"{view.factor:g}×"
        phrase = f"at {where} {'the given rates' if view.given_rates else 'the load'}"
    else:
        phrase = "at the given rates" if view.given_rates else "at the spec's rates"
    return phrase.capitalize() if start else phrase


def _what(drops: Sequence[Drop]) -> str:
    parts = [f"{percent(drop.fraction)} at {drop.arc}" for drop in drops[:3]]
    if len(drops) > 3:
        parts = [*parts[:2], f"more at {len(drops) - 2} other places"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _costs(plan: DropPlan) -> str:
    if max(plan.tuple_utility_loss, plan.value_utility_loss) < 5e-7:
        return "no utility"
    return (
        f"{percent(plan.tuple_utility_loss)} of tuple utility and {percent(plan.value_utility_loss)} of value utility"
    )


def _print(console: Console, *parts: RenderableType) -> None:
    for part in parts:
        show(console, part, "")


def _table() -> Sheet:
    return Sheet(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")


def _section(title: str, *parts: RenderableType) -> Group:
    # Not the table's own title, which would wrap to the width of the table.
    return Group(*(Sentence(part) if isinstance(part, Text) else part for part in (Text(title, style="bold"), *parts)))


def _note(text: str) -> Text:
    return Text(text, style="dim")


def _headline(view: Outlook) -> Text:
    network = view.spec.network
    counts = ((network.streams, "stream"), (network.operators, "operator"), (network.outputs, "output"))
    told = ", ".join(f"{len(nodes):,} {noun}{'' if len(nodes) == 1 else 's'}" for nodes, noun in counts)
    return Text.assemble((network.name, "bold cyan"), (f"  {told}", ""), (f"  ({view.source})", "dim"), overflow="fold")


def _network(view: Outlook, plan: DropPlan, width: int) -> RenderableType:
    network, statistics = view.spec.network, view.spec.statistics
    if len(network.nodes) > MOST_NODES_DRAWN:
        return _note(f"The network has {len(network.nodes):,} nodes: too many to draw.")
    drops = {drop.arc: drop for drop in plan.drops}
    loads = view.operator_loads
    headings = ["tuples/s", "cost", "selectivity", "load", *(["dropped"] if drops else [])]
    rows: list[tuple[tuple[str, Arc, bool], list[str]]] = []
    for guide, arc, is_repeat in _walk(network):
        node = network.nodes[arc.target]
        cells = [number(view.arc_rates[arc.id]), "", "", ""]
        if not isinstance(node, Stream | Output) and not is_repeat:
            selectivity = "" if isinstance(node, Split) else f"{statistics.selectivity(node.id):.3g}"
            cells[1:] = [seconds(statistics.cost(node.id)), selectivity, number(loads[node.id])]
        if drops:
            cells.append(percent(drops[arc.id].fraction) if arc.id in drops else "")
        rows.append(((guide, arc, is_repeat), cells))
    table = _table().words("from streams to outputs")
    room = width
    for i, heading in enumerate(headings):
        table.numbers(heading, style="red" if heading == "dropped" else "")
        room -= 2 + max(len(heading), *(len(cells[i]) for _, cells in rows))
    for drawn, cells in rows:
        table.add_row(_label(network, *drawn, room, weights=not plan.drops), *cells)
    return _section("Network", table)


def _walk(network: Network) -> Iterator[tuple[str, Arc, bool]]:
    """The arcs as a forest below the streams: (guide lines, arc, whether its node was drawn before)."""
    drawn: set[str] = set()
    pending = [("", "", network.arcs_into[stream.id][0]) for stream in reversed(network.streams)]
    while pending:
        guide, below, arc = pending.pop()
        is_repeat = arc.target in drawn
        yield guide, arc, is_repeat
        if is_repeat:
            continue
        drawn.add(arc.target)
        out = network.arcs_out_of[arc.target]
        children = [
            (f"{below}└ ", f"{below}  ", child) if child is out[-1] else (f"{below}├ ", f"{below}│ ", child)
            for child in out
        ]
        pending.extend(reversed(children))


def _label(network: Network, guide: str, arc: Arc, is_repeat: bool, room: int, *, weights: bool) -> Text:
    """A node behind its guide lines.

    Where there is little room, its kind is left out, then its weight, unless no other table has it (`weights`), then
    names give way.
    """
    node = network.nodes[arc.target]
    kind = type(node).__name__.lower()
    style = f"not dim {({'stream': 'bold cyan', 'output': 'bold green'}).get(kind, 'default')}"
    before = Text(guide, style="dim", end="")
    after = f", weight {plain(node.qos.weight)}" if isinstance(node, Output) else ""
    if is_repeat:
        side = arc.id.rpartition(".")[2] if not isinstance(node, Union) and arc.id.endswith((".left", ".right")) else ""
        before.append("↑ ", style="default")
        style, kind, after = "default", "", f" ({side})" if side else ""
    needed = before.cell_len + cell_len(f"{f'{arc.branch}: ' if arc.branch else ''}{node.id}")
    if kind and needed + 1 + cell_len(kind + after) <= room:
        after = f" {kind}{after}"
    elif not weights and needed + cell_len(after) > room and not is_repeat:
        after = ""
    room -= before.cell_len + cell_len(after)
    if arc.branch:
        branch = Text(arc.branch, style="italic")
        branch.truncate(max(_NAME, room - 2 - cell_len(node.id)), overflow="ellipsis")
        room -= branch.cell_len + 2
        before = Text.assemble(Text(guide, style="dim"), branch, ": ", before.plain[len(guide) :])
    name = Text(node.id, style=style)
    name.truncate(max(_NAME, room), overflow="ellipsis")
    return before.append_text(name).append(after)


def _load(view: Outlook) -> RenderableType:
    table = _table().names("stream").numbers("tuples/s", "load coefficient", "load", "share")
    loads = sorted(view.stream_loads.items(), key=lambda item: -item[1])
    for stream, load in loads[:MOST_ROWS]:
        share = load / view.load if view.load > 0 else 0.0
        coefficient = seconds(view.coefficients[stream])
        table.add_row(stream, number(view.rates[stream]), coefficient, number(load), percent(share))
    total = Text.assemble(
        "Load ", (number(view.load), "bold"), f" of {number(view.usable)} seconds of processing per second"
    )
    if view.headroom != 1:
        total.append(f" (capacity {number(view.capacity)} × headroom {view.headroom:g})")
    if view.excess > 0:
        total.append(": ")
        total.append(f"{number(view.load - view.usable)} too much, {100 * view.excess:,.0f} % excess", style="bold red")
    else:
        total.append(": ")
        total.append(f"{percent(-view.excess)} left", style="bold green")
    return _section("Load", table, *_and_more(len(loads)), total)


def _and_more(rows: int) -> Iterable[Text]:
    return [Text(f"… and {rows - MOST_ROWS:,} more", style="dim")] if rows > MOST_ROWS else []


def _drops(plan: DropPlan, title: str) -> RenderableType:
    semantic = any(drop.is_semantic for drop in plan.drops)
    table = _table().names("arc").words("kind").numbers("dropped", "of what\nreaches it")
    if semantic:
        table.names("keeps")
    for drop in plan.drops[:MOST_ROWS]:
        row: list[RenderableType] = [
            drop.arc,
            "by value" if drop.is_semantic else "random",
            Text(percent(drop.fraction), style="red"),
            percent(drop.relative),
        ]
        if semantic:
            row.append(Text(_keeps(drop), style="yellow"))
        table.add_row(*row)
    return _section(f"Drops: {title}", table, *_and_more(len(plan.drops)))


def _keeps(drop: Drop) -> str:
    if not drop.is_semantic or drop.column is None:
        return ""
    partly = [
        f"{percent(1 - item.dropped)} of {drop.column} = {item.cell.low:g}"
        for item in drop.ranges
        if item.cell.is_point and 0 < item.dropped < 1
    ]
    return "; of these only ".join([drop.predicate(drop.column), *(["; ".join(partly)] if partly else [])])


def _outputs(plan: DropPlan) -> RenderableType:
    table = _table().names("output").numbers("weight", "delivered", "tuple utility", "value utility")
    effects = (
        sorted(plan.outputs, key=lambda effect: effect.tuple_utility) if len(plan.outputs) > MOST_ROWS else plan.outputs
    )
    for effect in effects[:MOST_ROWS]:
        table.add_row(
            Text(effect.output, style="bold green"),
            plain(effect.weight),
            percent(effect.delivered),
            _utility(effect.tuple_utility),
            _utility(effect.value_utility),
        )
    table.add_section()
    table.add_row(
        "weighted mean",
        f"{sum(effect.weight for effect in plan.outputs):g}",
        "",
        _utility(1 - plan.tuple_utility_loss, True),
        _utility(1 - plan.value_utility_loss, True),
    )
    told = _note("Without a value graph, value utility is the share of tuples delivered.")
    return _section("What it costs the outputs", table, *_and_more(len(effects)), told)


def _utility(share: float, strong: bool = False) -> Text:
    colour = "green" if share >= 0.9 else "yellow" if share >= 0.5 else "red"
    return Text(percent(share), style=f"bold {colour}" if strong else colour)
