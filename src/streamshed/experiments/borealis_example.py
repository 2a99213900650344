"""The worked example of Borealis's paper: figures 1 to 3 and table 1, in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING

from streamshed.distributed.feasible_input.grid import grid_table
from streamshed.distributed.feasible_input.spread import MaxError
from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.scores import Throughput
from streamshed.experiments.claims import Claim, DataTable, Reproduction, Settings, judged
from streamshed.experiments.drawing import INK, new_figure, quiet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

F = Fraction
NODE_A = NodeModel("A", ("a1", "a2"), (Segment("a-top", "a1", 1, 1, "b1"), Segment("a-low", "a2", 2, 1, "b2")))
NODE_B = NodeModel("B", ("b1", "b2"), (Segment("b-top", "b1", 3, F(1, 2), "q1"), Segment("b-low", "b2", 1, 1, "q2")))
SPLIT = NodeModel(
    "S", ("r",), (Segment("trunk", "r", 1), Segment("top", "trunk", 2, 1, "o1"), Segment("low", "trunk", 5, 1, "o2"))
)
ERROR = F(1, 10)
Rates = tuple[Fraction, Fraction]

# Rates at A; then load and throughput of A and of B, as table 1 prints them.
TABLE_1: tuple[tuple[Rates, Fraction, Rates, Fraction, Rates], ...] = (
    ((F(1), F(1)), F(3), (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4))),
    ((F(1, 3), F(1, 3)), F(1), (F(1, 3), F(1, 3)), F(4, 3), (F(1, 4), F(1, 4))),
    ((F(1), F(0)), F(1), (F(1), F(0)), F(3), (F(1, 3), F(0))),
    ((F(0), F(1, 2)), F(1), (F(0), F(1, 2)), F(1, 2), (F(0), F(1, 2))),
    ((F(1, 5), F(2, 5)), F(1), (F(1, 5), F(2, 5)), F(1), (F(1, 5), F(2, 5))),
)


def load(node: NodeModel, rates: Rates) -> Fraction:
    """Seconds of processing per second."""
    return sum((F(segment.cost) * rate for segment, rate in zip(node.segments, rates, strict=True)), F(0))


def through(node: NodeModel, rates: Rates) -> Rates:
    """What a node lets through: an overloaded one gives its boxes the same number of tuples, in turn."""
    if load(node, rates) <= 1:
        return rates
    busy = sum(F(segment.cost) for segment, rate in zip(node.segments, rates, strict=True) if rate)
    most = F(1) / F(busy)
    return min(rates[0], most), min(rates[1], most)


def work_out_example(settings: Settings) -> Reproduction:
    """Claims about figures 1 to 3 and table 1."""
    settings.progress.begin("the paper's example", 1)
    table = grid_table(NODE_B, Throughput(), MaxError(ERROR))
    above = grid_table(NODE_A, Throughput(), MaxError(ERROR), [table])
    claims = (*_table_1(), *_node_b(table), *_node_a(above), *_split())
    settings.progress.advance()
    rows = tuple((*(float(rate) for rate in table.exact_rates(i)), float(table.scores[i])) for i in range(len(table)))
    data = DataTable("node-b", "Node B's table at e_max = 0.1", ("b1_tps", "b2_tps", "score"), rows)
    return Reproduction(claims, (data,), {"figure-2": lambda: _draw(table)})


def _table_1() -> tuple[Claim, ...]:
    found = []
    for rates, *_ in TABLE_1:
        mid = through(NODE_A, rates)
        found.append((rates, load(NODE_A, rates), mid, load(NODE_B, mid), through(NODE_B, mid)))
    alone = grid_table(NODE_A, Throughput(), MaxError(ERROR))
    best = alone.exact_rates(0)
    return (
        judged(
            "Table 1: loads and throughputs of five plans",
            "; ".join(_plan(row) for row in TABLE_1),
            "; ".join(_plan(row) for row in found),
            tuple(found) == TABLE_1,
            otherwise="the scheduler of the paper may not be the one assumed here",
        ),
        judged(
            "Table 1: what is best for A alone overloads B threefold",
            "plan 2, (1, 0), is optimal for A, but increases B's load",
            f"by its own table A takes {_pair(best)}; B's load is {load(NODE_B, (best[0], best[1]))}",
            best == (F(1), F(0)) and load(NODE_B, (best[0], best[1])) == 3,
            otherwise="A has another plan that is as good",
        ),
    )


def _node_b(table: FeasibleInputTable) -> tuple[Claim, ...]:
    upper, lower = (list(accumulate([spread] * steps, initial=0.0)) for spread, steps in ((0.1, 3), (0.05, 20)))
    naive = sum(3 * b1 + b2 <= 1 for b1 in upper for b2 in lower)
    best = table.exact_rates(0)
    over = table.decide({"b1": 0.5, "b2": 0.5})
    finer = grid_table(NODE_B, Throughput(), MaxError(ERROR / 2)).decide({"b1": 0.5, "b2": 0.5})
    return (
        judged(
            "Section 3.2: spreads of node B for e_max = 0.1",
            "s1 = 0.1, s2 = 0.05",
            f"s1 = {float(table.units[0])}, s2 = {float(table.units[1])}",
            table.units == (F(1, 10), F(1, 20)),
            otherwise="another formula",
        ),
        judged(
            "Figure 2: the size of node B's table",
            "46 entries",
            f"{len(table)} feasible points in exact arithmetic; {naive} if floats step from rate to rate",
            len(table) == 46,
            otherwise="points on the border 3·b1 + b2 = 1 are feasible, but floats that step by the spreads come out"
            " above 1 for two of them. Exactly there are 21 + 15 + 9 + 3 = 48.",
        ),
        judged(
            "Section 3.2: node B's best entry",
            "(0, 1.0) with score 1.0",
            f"{_pair(best)} with score {table.scores[0]:g}",
            best == (F(0), F(1)) and abs(table.scores[0] - 1) < 1e-9,
            otherwise="another entry scores more",
        ),
        judged(
            "Section 3.4: rates (0.2, 0.35) need no drop, (0.5, 0.5) do",
            "(0.2, 0.4) is feasible; (0.5, 0.5) indicates an overload",
            f"no drop needed: {table.carries({'b1': 0.2, 'b2': 0.35})} and {table.carries({'b1': 0.5, 'b2': 0.5})}",
            table.carries({"b1": 0.2, "b2": 0.35}) and not table.carries({"b1": 0.5, "b2": 0.5}),
            otherwise="the look-up differs",
        ),
        judged(
            "Section 3.4: the entry for (0.5, 0.5)",
            "(0.15, 0.5) with score 0.575",
            f"({over.rates['b1']:g}, {over.rates['b2']:g}) with score {over.score:g}; with half the error"
            f" ({finer.rates['b1']:g}, {finer.rates['b2']:g}) with {finer.score:g}",
            abs(over.score - 0.575) < 1e-9,
            otherwise="0.15 is no multiple of the spread 0.1 that the paper states; the entry is that of spread 0.05.",
        ),
    )


def _node_a(above: FeasibleInputTable) -> tuple[Claim, ...]:
    processed = Throughput(counts_results=False)
    counted = grid_table(NODE_A, processed, MaxError(ERROR), [grid_table(NODE_B, processed, MaxError(ERROR))])
    ties = [above.exact_rates(i) for i in range(len(above)) if abs(above.scores[i] - above.scores[0]) < 1e-9]
    worst = max(load(NODE_B, _two(above.exact_rates(i))) for i in range(len(above)))
    return (
        judged(
            "Table 1: with B's table A finds plan 4",
            "(1/5, 2/5) is optimal",
            f"best score {above.scores[0]:g} at {', '.join(map(_pair, ties))}; counted ahead of the selectivity, as"
            f" table 1 does, {_pair(counted.exact_rates(0))} alone with {counted.scores[0]:g}",
            (F(1, 5), F(2, 5)) in ties and counted.exact_rates(0) == (F(1, 5), F(2, 5)),
            otherwise="another plan scores more",
        ),
        judged(
            "Section 3.4: by its table A never overloads B",
            "A ensures that B never gets an input that would violate its table",
            f"the highest load of B over all {len(above)} entries of A is {worst}",
            worst <= 1,
            otherwise="an entry was not eliminated",
        ),
    )


def _split() -> tuple[Claim, ...]:
    table = grid_table(SPLIT, Throughput(), MaxError(F(1, 20)))
    decision = table.decide({"r": 0.2})
    dropped = 1 - decision.flows["low"] / decision.flows["trunk"]
    assert table.planless is not None
    without = float(table.scores[table.planless].max())
    return (
        judged(
            "Figure 3: a local plan makes r = 0.2 feasible, and better",
            "60 % of the lower branch dropped, score 0.28; without local plans 0.25 at most",
            f"{dropped:.0%} dropped, score {decision.score:.4g}; without local plans {without:.4g}",
            abs(dropped - 0.6) < 1e-9 and abs(decision.score - 0.28) < 1e-9 and abs(without - 0.25) < 1e-9,
            otherwise="costs of the branches were read differently",
        ),
    )


def _two(rates: tuple[Fraction, ...]) -> Rates:
    return rates[0], rates[1]


def _pair(rates: tuple[Fraction, ...]) -> str:
    return f"({', '.join(map(str, rates))})"


def _plan(row: tuple[Rates, Fraction, Rates, Fraction, Rates]) -> str:
    return f"{_pair(row[0])}: A {row[1]}, {_pair(row[2])}, B {row[3]}, {_pair(row[4])}"


def _draw(table: FeasibleInputTable) -> Figure:
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    quiet(axes, f"Figure 2: feasible points of node B, {len(table)} of them")
    dots = axes.scatter(table.rates[:, 0], table.rates[:, 1], c=table.scores, cmap="viridis", s=26, zorder=3)
    figure.colorbar(dots, label="score")
    axes.plot([0, 1 / 3], [1, 0], color=INK, linewidth=1)
    axes.set_xlabel("rate of the upper input (spread 0.1)", color=INK)
    axes.set_ylabel("rate of the lower input (spread 0.05)", color=INK)
    return figure
