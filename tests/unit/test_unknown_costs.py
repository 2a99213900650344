"""Costs that nobody has given are not known, which is not 0: what is believed of them, and who says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from streamshed.cli import app
from streamshed.control import BaselineController, CostEstimator, LoadSample, Outlook, PlantController
from streamshed.engines.spark.cost_memory import believed_cost
from streamshed.engines.spark.node import NodeRunner
from streamshed.errors import InvalidValueError
from streamshed.experiments.random_networks import Recipe, random_network, shared_network, two_intervals
from streamshed.load import Admission
from streamshed.manager import Manager
from streamshed.network import Network, NetworkBuilder, Spec, Statistics, dump_spec, load_spec, node_specs, parse_spec
from streamshed.network.stages import stages
from streamshed.planning import PLANNERS, planner_named
from streamshed.planning.flow_builder import flow_graph
from streamshed.planning.ranks import ranked_locations, thresholds
from streamshed.scheduling.stages import foreseen

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))

SPEC = """\
name: three
streams:
  s: {columns: {v: double}}
operators:
  a: {type: filter, input: s, where: v > 1}
  b: {type: filter, input: s, where: v > 2}
  c: {type: filter, input: b, where: v > 3}
outputs:
  high: {input: a, qos: {weight: 3}}
  low: {input: c, qos: {loss: [[0, 0], [0.5, 0.9], [1, 1]]}}
statistics: {costs: {COSTS}}
rates: {s: 1000}
capacity: 1
nodes:
  edge: {operators: [a, b]}
  core: {operators: [c]}
"""


def spec_of(costs: str) -> Spec:
    return parse_spec(SPEC.replace("{COSTS}", f"{{{costs}}}"))


def network() -> Network:
    return spec_of("").network


# --- what is believed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "unknown", "believed"),
    [
        ({}, "abc", {"a": 1.0, "b": 1.0, "c": 1.0}),
        ({"a": 0.25, "b": 0.75}, "c", {"a": 0.25, "b": 0.75, "c": 0.5}),
        ({"a": 0.25}, "bc", {"a": 0.25, "b": 0.25, "c": 0.25}),
        ({"a": 0.0, "b": 0.5}, "c", {"a": 0.0, "b": 0.5, "c": 0.25}),
        ({"a": 0.0}, "bc", {"a": 0.0, "b": 1.0, "c": 1.0}),
        ({"a": 0.0, "b": 0.0, "c": 0.0}, "", {"a": 0.0, "b": 0.0, "c": 0.0}),
        ({"a": 0.1, "b": 0.2, "c": 0.3}, "", {"a": 0.1, "b": 0.2, "c": 0.3}),
    ],
)
def test_what_is_not_known_is_believed_to_cost_as_much_as_the_rest(
    costs: dict[str, float], unknown: str, believed: dict[str, float]
) -> None:
    given = Statistics(costs, {"a": 0.5}, drop_cost=0.125)
    assert given.unknown_costs(network()) == tuple(unknown)
    found = given.with_believed_costs(network())
    assert found.costs == believed
    assert found.believed == frozenset(unknown)
    assert (found.selectivities, found.drop_cost) == ({"a": 0.5}, 0.125)
    assert found.unknown_costs(network()) == tuple(unknown), "a belief is no knowledge"
    assert found.with_believed_costs(network()) is found
    assert given.costs == costs


def test_where_all_is_known_nothing_changes() -> None:
    statistics = Statistics({"a": 0.1, "b": 0.0, "c": 0.3})
    assert statistics.with_believed_costs(network()) is statistics
    assert statistics.cost_note is None
    statistics.require_costs(network(), "here")


def test_the_note_names_what_is_believed() -> None:
    assert Statistics().with_believed_costs(network()).cost_note == (
        "No cost is known of: a, b, c; believed to cost the same each. What a batch costs in all is learnt."
    )
    assert Statistics({"b": 1e-6}).with_believed_costs(network()).cost_note == (
        "No cost is known of: a, c; believed to cost as much as the others on average. "
        "What a batch costs in all is learnt."
    )


def test_specs_keep_what_is_zero_and_what_is_missing() -> None:
    spec = spec_of("a: 0, c: 2e-6")
    assert spec.statistics.costs == {"a": 0.0, "c": 2e-6}
    assert parse_spec(dump_spec(spec)) == spec
    assert parse_spec(dump_spec(spec)).statistics.unknown_costs(spec.network) == ("b",)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_examples_say_what_everything_costs(example: Path) -> None:
    spec = load_spec(example)
    assert spec.statistics.unknown_costs(spec.network) == ()


def test_random_networks_say_what_everything_costs() -> None:
    everything = Recipe(mix={"filter": 3, "map": 1, "union": 1, "join": 1}, sharing=0.4)
    for spec in (random_network(everything, 1, two_intervals(0.0)), shared_network(2, two_intervals(1.0))):
        assert spec.statistics.unknown_costs(spec.network) == ()


# --- no seconds are made of beliefs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("costs", ["", "a: 1e-6, b: 1e-6"])
def test_no_batch_cost_is_believed_where_an_operators_is_not_known(costs: str) -> None:
    spec = spec_of(costs)
    assert believed_cost(spec, 10.0) is None
    believed = replace(spec, statistics=spec.statistics.with_believed_costs(spec.network))
    assert believed_cost(believed, 10.0) is None
    known = believed_cost(spec_of("a: 1e-6, b: 1e-6, c: 1e-6"), 10.0)
    assert known is not None
    assert known.process_s == pytest.approx(3e-6)


def test_a_node_takes_beliefs_from_the_whole_network_along() -> None:
    spec = spec_of("a: 1e-6, b: 3e-6")
    believed = replace(spec, statistics=spec.statistics.with_believed_costs(spec.network))
    edge, core = node_specs(believed)["edge"].spec, node_specs(believed)["core"].spec
    assert core.statistics.costs == {"c": 2e-6}
    assert core.statistics.believed == {"c"}
    assert core.statistics.with_believed_costs(core.network) is core.statistics, "it stays what it is for all nodes"
    assert core.statistics.cost_note is not None
    assert believed_cost(core, 10.0) is None
    assert edge.statistics.believed == frozenset()
    assert believed_cost(edge, 10.0) is not None


def test_a_node_tells_no_capacity_that_comes_from_beliefs() -> None:
    def measured(costs: str) -> object:
        spec = spec_of(costs)
        believed = replace(spec, statistics=spec.statistics.with_believed_costs(spec.network))
        node = SimpleNamespace(
            node=node_specs(believed)["core"],
            controller=BaselineController(2.0),
            _tables=SimpleNamespace(model="model"),
        )
        return NodeRunner._measured(cast("Any", node), {})

    assert measured("a: 1e-6, b: 1e-6, c: 1e-6") == "model"
    assert measured("a: 1e-6, b: 1e-6") is None


def test_a_scheduler_foresees_nothing_of_a_stage_with_an_unknown_cost() -> None:
    spec = spec_of("a: 1e-6, b: 3e-6")
    cut = stages(spec.network)
    found = foreseen(spec.network, spec.statistics.with_believed_costs(spec.network), spec.rates, cut)
    assert found["high"].cost_s == pytest.approx(1e-6)
    assert found["low"].cost_s == 0.0
    known = foreseen(spec.network, spec_of("a: 1e-6, b: 3e-6, c: 2e-6").statistics, spec.rates, cut)
    assert known["low"].cost_s == pytest.approx(5e-6)


# --- commands that need seconds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["plan", "simulate", "fit"])
@pytest.mark.parametrize(
    ("costs", "unknown", "got"), [("", "a, b, c", "0 of 3"), ("b: 0", "a, c", "1 of 3"), ("a: 1, b: 1", "c", "2 of 3")]
)
def test_commands_that_tell_a_load_say_what_is_unknown(
    tmp_path: Path, command: str, costs: str, unknown: str, got: str
) -> None:
    file = tmp_path / "three.yaml"
    file.write_text(SPEC.replace("{COSTS}", f"{{{costs}}}"))
    result = CliRunner().invoke(app, [command, str(file)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"error: the load cannot be told: no cost is known of: {unknown}\n" in result.stderr
    assert str(file) in result.stderr
    assert f"{got} costs" in result.stderr
    assert "'statistics: costs:'" in result.stderr
    assert "`streamshed run` needs none" in result.stderr


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_a_cost_of_nothing_may_be_given(tmp_path: Path, command: str) -> None:
    file = tmp_path / "three.yaml"
    file.write_text(SPEC.replace("{COSTS}", "{a: 0, b: 0, c: 0}"))
    result = CliRunner().invoke(app, [command, str(file), *(["--seconds", "1"] if command == "simulate" else [])])
    assert result.exit_code == 0, result.stderr


def test_of_many_unknown_costs_the_first_are_named() -> None:
    many = {f"f{i}": f"{{type: filter, input: s, where: v > {i}}}" for i in range(40)}
    operators = "\n".join(f"  {name}: {text}" for name, text in many.items())
    outputs = "\n".join(f"  o{name}: {{input: {name}}}" for name in many)
    spec = parse_spec(
        f"name: many\nstreams: {{s: {{columns: {{v: int}}}}}}\noperators:\n{operators}\noutputs:\n{outputs}"
    )
    with pytest.raises(InvalidValueError) as raised:
        spec.statistics.require_costs(spec.network, "many.yaml")
    assert raised.value.what.endswith("f9, f10, f11 and 28 more")


# --- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("keep", [0.9, 0.5, 0.1])
def test_every_planner_drops_the_same_as_with_equal_costs(planner: str, keep: float) -> None:
    found = []
    spec = spec_of("")
    for statistics in (
        spec.statistics.with_believed_costs(spec.network),
        spec_of("a: 2e-5, b: 2e-5, c: 2e-5").statistics,
    ):
        decides = planner_named(planner)
        graph = flow_graph(spec.network, statistics, spec.rates, by_value=decides.by_value)
        plan = decides.plan(spec.network, statistics, spec.rates, Admission(graph.full_load * keep))
        assert plan.load_after / plan.load_before == pytest.approx(keep, rel=1e-3)
        found.append(thresholds(plan, ranked_locations(graph)))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


FIXED_S, TARGET_S, TPS = 0.2, 2.0, 30_000.0


def played(statistics: Statistics, true_costs: dict[str, float], batches: int = 40) -> list[float]:
    """The longest delay in each batch, on a plant whose operators take what they take; filters let everything through.

    The load is that of the true costs; 30,000 tuples come in each second.
    """
    spec = spec_of("")
    controller = PlantController(TARGET_S, CostEstimator(warmup=0))
    manager = Manager(spec.network, statistics, spec.rates, controller, planner_named("roadmap"))
    delays_s, since_s, now_s = [], 0.5, 0.0
    for _ in range(batches):
        arrived = round(TPS * since_s)
        decision = manager.decide(Outlook(now_s, float(arrived), since_s, since_s))
        drop = decision.thresholds
        entry = 1 - drop.get("s", 0.0)
        to_a, to_b = (min(entry, 1 - drop.get(arc, 0.0)) for arc in ("s->a", "s->b"))
        to_c = min(to_b, 1 - drop.get("b->c", 0.0))
        work_s = sum(true_costs[name] * share for name, share in (("a", to_a), ("b", to_b), ("c", to_c)))
        duration_s = FIXED_S + arrived * work_s
        now_s += duration_s
        delays_s.append(since_s + duration_s)
        manager.observe(LoadSample(now_s, duration_s, arrived, round(arrived * decision.load_share)))
        since_s = duration_s
    return delays_s


EQUAL = {"a": 3e-5, "b": 3e-5, "c": 3e-5}  # a load of 2.7
UNLIKE = {"a": 1e-5, "b": 1e-5, "c": 1e-4}  # a load of 3.6


def test_a_spec_without_costs_is_shed_like_one_with_equal_costs_and_its_delay_is_held() -> None:
    believed = Statistics().with_believed_costs(network())
    delays_s = played(believed, EQUAL)
    assert delays_s == pytest.approx(played(Statistics(EQUAL), EQUAL), rel=1e-6)
    assert max(delays_s[15:]) <= TARGET_S
    assert min(delays_s[15:]) > TARGET_S / 2, "and no more is dropped than needed"


@pytest.mark.parametrize("known", [{}, {"a": 1e-5}, {"c": 1e-4}, {"a": 0.0}])
def test_the_delay_is_held_even_where_costs_are_unlike(known: dict[str, float]) -> None:
    delays_s = played(Statistics(known).with_believed_costs(network()), UNLIKE)
    assert max(delays_s[15:]) <= TARGET_S


def test_costs_of_zero_shed_nothing_which_is_why_they_must_be_given() -> None:
    delays_s = played(Statistics(dict.fromkeys("abc", 0.0)), EQUAL, 12)
    assert delays_s[-1] > 100 * TARGET_S


def test_nothing_may_come_through_and_nothing_may_cost_anything() -> None:
    Statistics({"a": 0.0}, {"a": 0.0, "b": 1.0}, drop_cost=0.0).check(network())
    new = NetworkBuilder("n")
    new.stream("s", {"t": "timestamp"}, time="t").aggregate("g", {"n": "count()"}, window_s=9, slide_s=1).output("o")
    Statistics(selectivities={"g": 9.0}).check(new.build())
    for wrong in (Statistics({"a": -1e-9}), Statistics(selectivities={"a": 1.001}), Statistics(drop_cost=-1e-9)):
        with pytest.raises(InvalidValueError):
            wrong.check(network())
