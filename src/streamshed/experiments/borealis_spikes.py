"""Tables, a coordinator, and neither: spikes at random nodes, messages that get lost, a node that restarts."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from streamshed.distributed.coordinator import Coordinator
from streamshed.distributed.model import Topology
from streamshed.distributed.scores import Throughput
from streamshed.engines.sim.node_tree import Mode, run_tree
from streamshed.engines.sim.tree_run import Outage, Spike, TreeResult, TreeRun
from streamshed.experiments.borealis_trees import ROUNDING
from streamshed.experiments.claims import Claim, DataTable, Reproduction, Settings, judged
from streamshed.experiments.drawing import INK, new_figure, quiet
from streamshed.experiments.random_trees import RandomTree, random_tree
from streamshed.experiments.samples import Estimate, difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODES: tuple[Mode, ...] = ("tables", "coordinator", "local")
TITLES = {"tables": "tables", "coordinator": "coordinator", "local": "uncoordinated"}
SCENARIOS = ("spikes", "spikes, 20 % of messages lost", "a node restarts")
SECONDS, START_S, END_S = 60.0, 20.0, 40.0
TREES, QUICK_TREES = 10, 1
_LOSS = 0.2
_SPIKE = 0.4
_NEAR = 0.95
_IN_A_ROW = 3
_ERROR = 0.05
_HEADROOM = 0.95
_HARMLESS = 0.03
"""The share of the optimum that lost messages may cost."""


@dataclass(frozen=True)
class Outcome:
    """A run: what was delivered, as a share of the optimum at the time, how late, and at what price.

    Attributes:
        scenario: what went wrong.
        mode: how nodes decided.
        tree: which tree.
        before: score from the 10th second to the spike, as a share of the optimum with the same headroom.
        during: the same in the second half of the spike.
        delay_p99_s: 99 % of what arrived from the start of the spike to 10 s after its end was no later.
        reaction_periods: periods from the start of the spike until the first of three in a row that bring 95 % of what
            the second half of the spike brings with the best of the three modes, with a mean delay below 1 s; infinite
            if there are none in the spike.
        messages: messages a second.
        message_bytes: bytes a second.
        busy: processing time of all nodes, per unit of score.
    """

    scenario: str
    mode: str
    tree: int
    before: float
    during: float
    delay_p99_s: float
    reaction_periods: float
    messages: float
    message_bytes: float
    busy: float


def spike_outcomes(number: int, seed: int, scenarios: tuple[str, ...] = SCENARIOS) -> list[Outcome]:
    """All scenarios and modes on one tree."""
    rng = random.Random(seed)
    tree = random_tree(rng.randint(4, 7), seed, most_inputs=2, most_children=2)
    calm = _optimum(tree, tree.topology)
    # Many nodes have room to spare because others shed; a spike there would show nothing.
    optima = {name: _optimum(tree, _hit(tree.topology, name)) for name in tree.topology.upstream_first}
    telling = [name for name, score in optima.items() if score < _NEAR * calm] or [min(optima, key=optima.__getitem__)]
    node = rng.choice(telling)
    spike, hit = Spike(node, START_S, END_S, _SPIKE), optima[node]
    below = [name for name in tree.topology.upstream_first if tree.topology.parents[name]]
    found: list[Outcome] = []
    for scenario in scenarios:
        outage = (Outage(rng.choice(below), START_S, START_S + 5.0),) if scenario == SCENARIOS[2] else ()
        settings = TreeRun(
            tree.topology, tree.rates_tps, SECONDS, max_error=_ERROR * calm, headroom=_HEADROOM,
            loss=_LOSS if scenario == SCENARIOS[1] else 0.0, spikes=() if outage else (spike,), outages=outage,
            seed=seed,
        )  # fmt: skip
        runs = {mode: run_tree(settings, mode) for mode in MODES}
        reference = calm if outage else hit
        settled = max(float(run.score[30:40].mean()) for run in runs.values())
        for mode, run in runs.items():
            found.append(
                Outcome(
                    scenario, mode, number,
                    float(run.score[10:20].mean()) / calm, float(run.score[30:40].mean()) / reference,
                    run.delay_quantile_s(0.99, START_S, END_S + 10), _reaction(run, settled),
                    run.messages / SECONDS, run.message_bytes / SECONDS, run.busy_s / float(run.score.sum()),
                )
            )  # fmt: skip
    return found


def _hit(topology: Topology, name: str) -> Topology:
    model = topology.node[name]
    return topology.replaced(replace(model, capacity=float(model.capacity) * _SPIKE))


def _optimum(tree: RandomTree, topology: Topology) -> float:
    scaled = topology.replaced(*(replace(node, capacity=float(node.capacity) * _HEADROOM) for node in topology.nodes))
    return Coordinator(scaled, Throughput(), 100.0).plan(tree.rates_tps).score


def _reaction(run: TreeResult, settled: float) -> float:
    """Several periods in a row: in the first of a spike what was on its way before still arrives."""
    fine = (run.score >= _NEAR * settled) & (run.delay_s < 1.0)
    for period in range(int(START_S), int(END_S) - _IN_A_ROW + 1):
        if fine[period : period + _IN_A_ROW].all():
            return float(period - int(START_S) + 1)
    return float("inf")


def compare_under_spikes(settings: Settings) -> Reproduction:
    """Measure sections 1.3 and 4: centralised, distributed and no coordination."""
    count = QUICK_TREES if settings.quick else TREES
    settings.progress.begin("spikes in the simulator", count)
    outcomes: list[Outcome] = []
    for number in range(count):
        outcomes += spike_outcomes(
            number, settings.seed * 1000 + number, SCENARIOS[:1] if settings.quick else SCENARIOS
        )
        settings.progress.advance()
    table = DataTable(
        "spikes", "Spikes, losses and a restart in the simulator", tuple(one.name for one in fields(Outcome)),
        tuple(astuple(one) for one in outcomes),
    )  # fmt: skip
    return Reproduction(verdicts(outcomes), (table,), {"spikes": lambda: _draw(outcomes)})


def verdicts(outcomes: Sequence[Outcome]) -> tuple[Claim, ...]:
    """All claims; those about losses and restarts where these were tried."""
    return (
        *_of_spikes(outcomes),
        *(_of_losses(outcomes) if any(one.scenario == SCENARIOS[1] for one in outcomes) else ()),
        *(_of_restarts(outcomes) if any(one.scenario == SCENARIOS[2] for one in outcomes) else ()),
    )


def _by_tree(outcomes: Sequence[Outcome], scenario: str, mode: str, what: str) -> list[float]:
    return [float(getattr(one, what)) for one in outcomes if (one.scenario, one.mode) == (scenario, mode)]


def _side_by_side(outcomes: Sequence[Outcome], scenario: str, what: str, form: str) -> str:
    """Means over trees, for each mode."""
    found = {mode: float(np.mean(_by_tree(outcomes, scenario, mode, what))) for mode in MODES}
    return ", ".join(f"{TITLES[mode]} {value:{form}}" for mode, value in found.items())


def _reactions(outcomes: Sequence[Outcome], scenario: str) -> str:
    """Medians over trees, for each mode, and in how many trees a mode never got there."""
    shown = []
    for mode in MODES:
        found = _by_tree(outcomes, scenario, mode, "reaction_periods")
        never = sum(map(math.isinf, found))
        shown.append(
            f"{TITLES[mode]} {np.median(found):.3g}" + (f" (never in {never} of {len(found)})" if never else "")
        )
    return ", ".join(shown)


def _more(outcomes: Sequence[Outcome], scenario: str, one: str, other: str, what: str) -> Estimate:
    """By how much one mode has more than another on the same trees."""
    return difference(_by_tree(outcomes, scenario, one, what), _by_tree(outcomes, scenario, other, what))


def _points(difference: Estimate) -> str:
    return f"{100 * difference.mean:+.1f} ± {100 * difference.margin:.1f} points"


def _of_spikes(outcomes: Sequence[Outcome]) -> tuple[Claim, ...]:
    plain = SCENARIOS[0]
    gains = {what: _more(outcomes, plain, "tables", "local", what) for what in ("before", "during")}
    central = _more(outcomes, plain, "coordinator", "tables", "during")
    tables = {what: float(np.mean(_by_tree(outcomes, plain, "tables", what))) for what in ("before", "during")}
    reaction = {mode: float(np.median(_by_tree(outcomes, plain, mode, "reaction_periods"))) for mode in MODES}
    return (
        judged(
            "Section 1: nodes that do not coordinate lose output quality",
            "without global coordination output quality can arbitrarily change",
            f"score as a share of the optimum before the spikes: {_side_by_side(outcomes, plain, 'before', '.1%')};"
            f" during them {_side_by_side(outcomes, plain, 'during', '.1%')}. Tables − uncoordinated:"
            f" {_points(gains['before'])} before, {_points(gains['during'])} during",
            all(gain.low > 0 for gain in gains.values()),
            otherwise="trees differ so much that these are too few to tell: in some local decisions happen to be as"
            " good, in others much is lost",
        ),
        judged(
            "Section 3: tables give a node control over quality downstream",
            "shedding on behalf of descendants serves the end of the chain best. (Counted as such: within e_max,"
            f" {_ERROR:.0%}, of the optimum.)",
            f"score of tables, as a share of the optimum: {tables['before']:.1%} before, {tables['during']:.1%} during"
            " the spikes",
            min(tables.values()) >= 1 - _ERROR,
            otherwise="queues that were built up have to be worked off, and that is dropped in addition",
        ),
        judged(
            "Section 1.3: a coordinator responds more slowly to spikes than nodes that decide themselves",
            "the centralised approach can respond slowly to local load spikes",
            f"periods until {_NEAR:.0%} of the settled score (median): {_reactions(outcomes, plain)}; delay (99 %):"
            f" {_side_by_side(outcomes, plain, 'delay_p99_s', '.2f')} s",
            reaction["tables"] < reaction["coordinator"],
            otherwise="with one period from report to plan the coordinator needs about as long as tables need to get"
            " one node up the tree, and here nodes also see to their own queues while they wait",
        ),
        judged(
            "Section 1.3: a coordinator gives the higher quality",
            "high-quality outputs can possibly be achieved due to better global control. (Counted as higher: by more"
            f" than {100 * ROUNDING:g} points, which rounding may make.)",
            f"during the spikes: {_side_by_side(outcomes, plain, 'during', '.1%')}; coordinator − tables"
            f" {_points(central)}. Messages a second: {_side_by_side(outcomes, plain, 'messages', '.1f')}, bytes a"
            f" second: {_side_by_side(outcomes, plain, 'message_bytes', '.0f')}",
            central.low > ROUNDING,
            otherwise="tables give up less than their e_max, which leaves little to gain",
        ),
    )


def _of_losses(outcomes: Sequence[Outcome]) -> tuple[Claim, ...]:
    plain, lossy = SCENARIOS[:2]
    without = _by_tree(outcomes, plain, "tables", "during")
    change = difference(_by_tree(outcomes, lossy, "tables", "during"), without)
    return (
        judged(
            f"Beyond the paper: {100 * _LOSS:g} % of the messages get lost",
            f"the paper assumes reliable transmission. (Counted as harmless: less than {100 * _HARMLESS:g} points.)",
            f"during the spikes: {_side_by_side(outcomes, lossy, 'during', '.1%')}; tables with − without losses"
            f" {_points(change)}; periods until {_NEAR:.0%} of the settled score (median):"
            f" {_reactions(outcomes, lossy)}; delay (99 %): {_side_by_side(outcomes, lossy, 'delay_p99_s', '.2f')} s",
            change.mean > -_HARMLESS,
            otherwise="a table that is late is a table for another capacity",
        ),
    )


def _of_restarts(outcomes: Sequence[Outcome]) -> tuple[Claim, ...]:
    restart = SCENARIOS[2]
    return (
        judged(
            "Beyond the paper: a node is down for 5 s and comes back knowing nothing",
            f"not considered. (Counted as recovered: {1 - _ERROR:.0%} of the optimum.)",
            f"10 to 20 s after the failure: {_side_by_side(outcomes, restart, 'during', '.1%')} of the optimum; periods"
            f" from the failure until {_NEAR:.0%} of that (median): {_reactions(outcomes, restart)}; delay (99 %):"
            f" {_side_by_side(outcomes, restart, 'delay_p99_s', '.2f')} s",
            float(np.mean(_by_tree(outcomes, restart, "tables", "during"))) >= 1 - _ERROR,
            otherwise="its parent's queue, or its own, is still being worked off",
        ),
    )


def _draw(outcomes: Sequence[Outcome]) -> Figure:
    figure = new_figure(9.6, 4.2)
    left, right = figure.subplots(1, 2)
    shown = [scenario for scenario in SCENARIOS if any(one.scenario == scenario for one in outcomes)]
    for axes, what, title in (
        (left, "during", "Score / optimum, spike or after restart"),
        (right, "delay_p99_s", "Delay (99 %), s"),
    ):
        quiet(axes, title)
        for i, (mode, colour) in enumerate(zip(MODES, ("#009E73", "#0072B2", "#E69F00"), strict=True)):
            values = [
                np.mean([getattr(one, what) for one in outcomes if (one.scenario, one.mode) == (scenario, mode)])
                for scenario in shown
            ]
            axes.bar([k + 0.27 * (i - 1) for k in range(len(shown))], values, 0.25, color=colour, label=TITLES[mode])
        axes.set_xticks(range(len(shown)), [name.replace(", ", ",\n") for name in shown], fontsize=8, color=INK)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, labelcolor=INK, ncols=3, loc="upper right")
    return figure
