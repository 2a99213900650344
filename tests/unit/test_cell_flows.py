"""Which values flow where: cells of values through each kind of operator, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from streamshed.network import Flow, Network, NetworkBuilder, Statistics
from streamshed.planning.cells import ANY, CellFlows, Tracked, cell_flows, sides_told_apart
from streamshed.qos import Cell, Histogram, Qos, ValueGraph

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}
OTHER = {"ts": "timestamp", "k": "bigint", "w": "double"}
UNIFORM = Histogram.uniform(0, 100)
VALUED = {"s": {"value": UNIFORM}}


def by(column: str = "value", *, at: float = 50.0, weight: float = 1.0) -> Qos:
    """Half the utility up to a value, all of it above."""
    return Qos(value=ValueGraph.of(column, [(0, 0.5), (at, 0.5), (at, 1), (100, 1)]), weight=weight)


def level(column: str = "value", weight: float = 1.0) -> Qos:
    """A value graph without a cut inside."""
    return Qos(value=ValueGraph.of(column, [(0, 1), (100, 1)]), weight=weight)


def one_stream() -> tuple[NetworkBuilder, Flow]:
    new = NetworkBuilder("cells")
    return new, new.stream("s", COLUMNS, time="ts", key=["k"])


def shares(flows: CellFlows, arc: str, stream: str = "s") -> dict[tuple[float, float], float]:
    """Tuples on an arc per tuple of a stream, by cell."""
    return {(cell.low, cell.high): share.get(stream, 0.0) for cell, share in flows.yields[arc].items()}


def traced(
    network: Network, selectivities: Mapping[str, float] | None = None, rates: Mapping[str, float] | None = None
) -> CellFlows:
    return cell_flows(network, Statistics({}, selectivities or {}, VALUED), rates or {"s": 10.0})


# --- filters and splits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selectivity", "low", "high"),
    [
        (0.7, 0.0, 0.7),  # as the histogram says
        (0.35, 0.0, 0.35),  # fewer: the predicate still rejects all low values
        (0.71, 0.0, 0.71),  # a little more is measurement noise
        (0.9, 0.27, 0.63),  # much more: the histogram is wrong, and nothing is told apart
    ],
)
def test_a_filter_rejects_cells_and_the_rest_shares_its_selectivity(
    selectivity: float, low: float, high: float
) -> None:
    new, s = one_stream()
    s.filter("f", "value > 30").output("o", level())
    flows = traced(new.build(), {"f": selectivity})
    assert shares(flows, "s") == shares(flows, "s->f") == pytest.approx({(0, 30): 0.3, (30, 100): 0.7})
    assert shares(flows, "f->o") == pytest.approx({(0, 30): low, (30, 100): high})
    rates = {"s": 20.0}
    assert flows.rate("f->o", Cell(30, 100), rates) == pytest.approx(20 * high)
    assert flows.masses("f->o", rates) == [
        (Cell(0, 30), pytest.approx(20 * low)),
        (Cell(30, 100), pytest.approx(20 * high)),
    ]


def test_a_predicate_on_other_columns_thins_all_cells_alike() -> None:
    new, s = one_stream()
    s.filter("f", "k > 30").filter("g", "value > 50").output("o", by())
    flows = traced(new.build(), {"f": 0.5, "g": 0.25})
    assert shares(flows, "f->g") == pytest.approx({(0, 50): 0.25, (50, 100): 0.25})
    assert shares(flows, "g->o") == pytest.approx({(0, 50): 0.0, (50, 100): 0.125})


def test_a_second_filter_goes_by_what_the_first_left() -> None:
    new, s = one_stream()
    s.filter("f", "value > 20").filter("g", "value > 60").output("o", level())
    flows = traced(new.build(), {"f": 0.8, "g": 0.5})
    assert shares(flows, "f->g") == pytest.approx({(0, 20): 0.0, (20, 60): 0.4, (60, 100): 0.4})
    assert shares(flows, "g->o") == pytest.approx({(0, 20): 0.0, (20, 60): 0.0, (60, 100): 0.4})


def test_a_filter_that_nothing_can_pass_is_believed_its_selectivity() -> None:
    new, s = one_stream()
    s.filter("f", "value > 200").output("o", level())
    assert shares(traced(new.build(), {"f": 0.1}), "f->o") == pytest.approx({(0, 100): 0.1})
    assert shares(traced(new.build(), {"f": 0.1}, {"s": 0.0}), "f->o") == pytest.approx({(0, 100): 0.1})


def test_branches_of_a_split_pass_their_own_cells() -> None:
    new, s = one_stream()
    branches = s.split("p", {"low": "value < 40", "high": "value >= 60"})
    branches["low"].output("a", level())
    branches["high"].output("b", level())
    flows = traced(new.build(), {"p.low": 0.4, "p.high": 0.2})
    assert shares(flows, "p.low->a") == pytest.approx({(0, 40): 0.4, (40, 60): 0.0, (60, 100): 0.0})
    assert shares(flows, "p.high->b") == pytest.approx({(0, 40): 0.0, (40, 60): 0.0, (60, 100): 0.2})


def test_values_that_pile_up_have_a_cell_of_their_own() -> None:
    new, s = one_stream()
    s.filter("f", "value > 0").output("o", level())
    histograms = {"s": {"value": Histogram.of([(0, 0, 0.25), (0, 100, 0.75)])}}
    flows = cell_flows(new.build(), Statistics({}, {"f": 0.75}, histograms), {"s": 1.0})
    assert shares(flows, "s") == pytest.approx({(0, 0): 0.25, (0, 100): 0.75})
    assert shares(flows, "f->o") == pytest.approx({(0, 0): 0.0, (0, 100): 0.75})


def test_cells_lie_within_the_histogram_and_hold_tuples() -> None:
    new, s = one_stream()
    s.filter("f", "value > 20").output("o", by(at=80))
    histograms = {"s": {"value": Histogram.of([(10, 40, 0.5), (60, 90, 0.5)])}}
    flows = cell_flows(new.build(), Statistics({}, {}, histograms), {"s": 1.0})
    assert shares(flows, "s") == pytest.approx({(10, 20): 1 / 6, (20, 40): 1 / 3, (60, 80): 1 / 3, (80, 90): 1 / 6})


def test_predicates_cut_a_domain_into_40_pieces_at_most() -> None:
    new, s = one_stream()
    for i in range(1, 80):
        s.filter(f"f{i}", f"value > {i}").output(f"o{i}", level())
    flows = traced(new.build(), {f"f{i}": 1 - i / 100 for i in range(1, 80)})
    cells = flows.cells["s"]
    assert len(cells) == 39, "40 cuts, the ends of the histogram among them"
    cuts = [cell.high for cell in cells[:-1]]
    assert cuts[0] == 1.0
    assert all(1 < right - left < 4 for left, right in pairwise(cuts)), "spread evenly over those wanted"
    # A predicate whose own cut was left out passes a part of a cell.
    left_out = next(i for i in range(1, 80) if i not in cuts)
    passing = shares(flows, f"f{left_out}->o{left_out}")
    assert sum(passing.values()) == pytest.approx(1 - left_out / 100)
    (part,) = (cell for cell in passing if cell[0] < left_out < cell[1])
    assert passing[part] == pytest.approx((part[1] - left_out) / 100)


# --- renaming, aggregates ---------------------------------------------------------------------------------------------


def test_a_map_hands_a_column_on_under_its_new_name() -> None:
    new, s = one_stream()
    s.map("m", {"ts": "ts", "level": "value"}).filter("f", "level > 30").output("o", by("level", at=60))
    flows = traced(new.build(), {"f": 0.7})
    assert flows.tracked == {
        "s": Tracked("value", "s"),
        "s->m": Tracked("value", "s"),
        "m->f": Tracked("level", "s"),
        "f->o": Tracked("level", "s"),
    }
    assert shares(flows, "f->o") == pytest.approx({(0, 30): 0.0, (30, 60): 0.3, (60, 100): 0.4})
    assert flows.valued == {"o"}


@pytest.mark.parametrize(
    ("select", "keep", "is_tracked"),
    [
        ({"other": "k + 1"}, True, True),
        ({"other": "k + 1"}, False, False),
        ({"value": "value * 2"}, True, False),
        ({"value": "value", "k": "k"}, False, True),
    ],
)
def test_a_computed_or_left_out_column_is_not_tracked(select: dict[str, str], keep: bool, is_tracked: bool) -> None:
    new, s = one_stream()
    s.filter("f", "value > 30").output("seen", level())
    mapped = s.map("m", select, keep=keep)
    mapped.output("o", level() if "value" in select else None)
    flows = traced(new.build(), {"f": 0.5})
    assert (flows.tracked["m->o"] == Tracked("value", "s")) is is_tracked
    assert flows.tracked["m->o"] is None or is_tracked
    if is_tracked:
        assert shares(flows, "m->o") == pytest.approx({(0, 30): 0.3, (30, 100): 0.7})
    else:
        assert flows.yields["m->o"] == {ANY: {"s": pytest.approx(1.0)}}
    assert flows.valued == {"seen"} | ({"o"} if is_tracked and "value" in select else set())


def test_an_aggregate_hands_on_what_it_groups_by() -> None:
    new, s = one_stream()
    grouped = {"tuples": "count()"}
    s.aggregate("by_value", grouped, window_s=60, group_by=["value"]).output("a", by())
    s.aggregate("by_key", grouped, window_s=60, group_by=["k"]).output("b", Qos())
    flows = traced(new.build(), {"by_value": 0.5, "by_key": 0.25})
    assert shares(flows, "by_value->a") == pytest.approx({(0, 50): 0.25, (50, 100): 0.25})
    assert flows.yields["by_key->b"] == {ANY: {"s": pytest.approx(0.25)}}
    assert flows.valued == {"a"}


def test_only_outputs_with_a_known_distribution_are_valued() -> None:
    new, s = one_stream()
    s.output("plain")
    s.map("m", {"value": "value * 2"}).output("computed", level())
    s.output("key", level("k"))
    flows = traced(new.build())
    assert flows.valued == frozenset()
    assert set(flows.cells.values()) == {(ANY,)}
    assert flows.yields["s"] == {ANY: {"s": 1.0}}


@pytest.mark.parametrize(("weights", "chosen"), [((2, 2, 3), "value"), ((1, 1, 3), "k")])
def test_a_stream_is_told_apart_by_the_column_with_the_most_weight(weights: tuple[float, ...], chosen: str) -> None:
    new, s = one_stream()
    s.output("a", level(weight=weights[0]))
    s.output("b", level(weight=weights[1]))
    s.output("c", level("k", weight=weights[2]))
    known = Statistics({}, {}, {"s": {"value": UNIFORM, "k": Histogram.uniform(0, 10)}})
    flows = cell_flows(new.build(), known, {"s": 1.0})
    assert flows.tracked["s"] == Tracked(chosen, "s")
    assert flows.valued == ({"c"} if chosen == "k" else {"a", "b"})
    assert flows.cells["s"] == ((Cell(0, 10),) if chosen == "k" else (Cell(0, 100),))


def test_value_graphs_of_columns_not_chosen_cut_nothing() -> None:
    new, s = one_stream()
    s.output("a", by(at=40, weight=5))
    s.output("b", by("k", at=30))
    known = Statistics({}, {}, {"s": {"value": UNIFORM, "k": UNIFORM}})
    assert cell_flows(new.build(), known, {"s": 1.0}).cells["s"] == (Cell(0, 40), Cell(40, 100))


# --- where streams meet -----------------------------------------------------------------------------------------------


def test_streams_that_meet_in_a_union_share_their_cells() -> None:
    new = NetworkBuilder("union")
    a, b, c = (new.stream(name, COLUMNS) for name in "abc")
    a.filter("f", "value > 20").union("u", b).output("o", by(at=70))
    c.output("p", level())
    histograms = {
        "a": {"value": Histogram.uniform(0, 50)},
        "b": {"value": Histogram.uniform(40, 100)},
        "c": {"value": UNIFORM},
    }
    flows = cell_flows(new.build(), Statistics({}, {"f": 0.3}, histograms), {"a": 1.0, "b": 1.0, "c": 1.0})
    assert flows.tracked["a"] == flows.tracked["b"] == flows.tracked["u->o"]
    assert flows.tracked["c"] != flows.tracked["a"]
    assert flows.cells["c"] == (Cell(0, 100),)
    assert shares(flows, "a", "a") == pytest.approx(
        {(0, 20): 0.4, (20, 40): 0.4, (40, 50): 0.2, (50, 70): 0.0, (70, 100): 0.0}
    )
    assert shares(flows, "u->o", "a") == pytest.approx(
        {(0, 20): 0.0, (20, 40): 0.2, (40, 50): 0.1, (50, 70): 0.0, (70, 100): 0.0}
    )
    assert shares(flows, "u->o", "b") == pytest.approx(
        {(0, 20): 0.0, (20, 40): 0.0, (40, 50): 1 / 6, (50, 70): 1 / 3, (70, 100): 0.5}
    )
    assert flows.rate("u->o", Cell(40, 50), {"a": 10.0, "b": 60.0, "c": 5.0}) == pytest.approx(1 + 10)
    assert flows.valued == {"o", "p"}


def test_a_chain_of_unions_is_one_domain() -> None:
    new = NetworkBuilder("unions")
    a, b, c, d = (new.stream(name, COLUMNS) for name in "abcd")
    a.union("u", b).union("w", c.union("v", d)).output("o", level())
    histograms = {name: {"value": Histogram.uniform(i, i + 1)} for i, name in enumerate("abcd")}
    flows = cell_flows(new.build(), Statistics({}, {}, histograms), dict.fromkeys("abcd", 1.0))
    assert len(set(flows.tracked.values())) == 1
    assert flows.cells["a"] == flows.cells["w->o"] == (Cell(0, 1), Cell(1, 2), Cell(2, 3), Cell(3, 4))


def test_a_union_with_a_side_that_is_not_tracked_sums_up() -> None:
    new = NetworkBuilder("union")
    a, b = new.stream("a", COLUMNS), new.stream("b", COLUMNS)
    a.filter("f", "value > 50").union("u", b).output("o", by())
    known = Statistics({}, {"f": 0.5}, {"a": {"value": UNIFORM}})
    flows = cell_flows(new.build(), known, {"a": 1.0, "b": 1.0})
    assert flows.tracked["f->u"] == Tracked("value", "a")
    assert flows.yields["u->o"] == {ANY: {"a": pytest.approx(0.5), "b": 1.0}}
    assert flows.valued == frozenset()


def joined(on: str = "k", where: str = "value > 30", qos: Qos | None = None) -> Network:
    new = NetworkBuilder("join")
    left, right = (
        new.stream("s", COLUMNS, time="ts"),
        new.stream("t", {"ts": "timestamp", on: "double", "w": "double"}, time="ts"),
    )
    left.filter("f", where).join("j", right, on=[on], within_s=10).output("o", qos or level())
    return new.build()


def test_at_a_join_the_other_side_pairs_with_every_cell_in_proportion() -> None:
    flows = cell_flows(joined(), Statistics({}, {"f": 0.6, "j": 0.5}, VALUED), {"s": 10.0, "t": 2.0})
    assert flows.tracked["j->o"] == Tracked("value", "s")
    assert shares(flows, "f->j.left") == pytest.approx({(0, 30): 0.0, (30, 100): 0.6})
    assert shares(flows, "j->o") == pytest.approx({(0, 30): 0.0, (30, 100): 0.3})
    assert shares(flows, "j->o", "t") == pytest.approx({(0, 30): 0.0, (30, 100): 0.5})
    # 10·0.6 and 2 tuples/s, and half a pair for each.
    assert flows.rate("j->o", Cell(30, 100), {"s": 10.0, "t": 2.0}) == pytest.approx(0.5 * (6 + 2))


def test_the_other_side_of_a_join_is_divided_as_the_valued_one() -> None:
    flows = cell_flows(joined(where="k > 1", qos=by(at=25)), Statistics({}, {"j": 2.0}, VALUED), {"s": 1.0, "t": 1.0})
    assert shares(flows, "j->o") == pytest.approx({(0, 25): 0.5, (25, 100): 1.5})
    assert shares(flows, "j->o", "t") == pytest.approx({(0, 25): 0.5, (25, 100): 1.5})


def test_at_a_join_the_side_that_is_valued_below_is_tracked() -> None:
    new = NetworkBuilder("join")
    left, right = new.stream("s", COLUMNS, time="ts"), new.stream("t", OTHER, time="ts")
    left.output("left", level())
    left.join("j", right, on=["k"], within_s=10).output("o", by("w", at=20))
    known = Statistics({}, {}, {**VALUED, "t": {"w": UNIFORM}})
    flows = cell_flows(new.build(), known, {"s": 1.0, "t": 1.0})
    assert flows.tracked["s"] == Tracked("value", "s")
    assert flows.tracked["j->o"] == Tracked("w", "t")
    assert flows.cells["j->o"] == (Cell(0, 20), Cell(20, 100))
    assert flows.valued == {"left", "o"}


def self_joined(on: list[str]) -> CellFlows:
    """Two filtered readings of one stream, joined."""
    new, s = one_stream()
    right = s.map("r", {"ts": "ts", "value": "value"} if on == ["value"] else {"ts": "ts", "k": "k", "v": "value"})
    s.filter("f", "value > 50").join("j", right, on=on, within_s=10).output("o", by())
    return traced(new.build(), {"f": 0.5})


def test_partners_on_the_valued_key_lie_in_the_same_cell() -> None:
    assert shares(self_joined(["value"]), "j->o") == pytest.approx({(0, 50): 0.5, (50, 100): 0.5 + 0.5})


def test_partners_on_another_key_lie_in_any_cell() -> None:
    # The left side has only high values; the right side's 1.0 pairs with these.
    assert shares(self_joined(["k"]), "j->o") == pytest.approx({(0, 50): 0.0, (50, 100): 0.5 + 1.0})


def test_which_inputs_bring_the_cells_of_an_output() -> None:
    network = joined()
    here, other = Tracked("value", "s"), Tracked("w", "t")
    union = NetworkBuilder("u")
    union.stream("a", COLUMNS).union("u", union.stream("b", COLUMNS)).output("o")
    assert sides_told_apart(network.nodes["j"], [here, other], here) == [True, False]
    assert sides_told_apart(network.nodes["j"], [other, here], here) == [False, True]
    assert sides_told_apart(network.nodes["j"], [here, here], here) == [True, False]
    assert sides_told_apart(network.nodes["j"], [here, other], None) == [False, False]
    assert sides_told_apart(joined("value").nodes["j"], [here, here], here) == [True, True]
    assert sides_told_apart(union.build().nodes["u"], [here, here], here) == [True, True]


def test_streams_count_by_their_rates_where_a_predicate_meets_them_together() -> None:
    """30 tuples/s up to 50 and 10 above: a quarter passes, all of b and nothing of a."""
    new = NetworkBuilder("union")
    a, b = new.stream("a", COLUMNS), new.stream("b", COLUMNS)
    a.union("u", b).filter("f", "value > 50").output("o", level())
    histograms = {"a": {"value": Histogram.uniform(0, 50)}, "b": {"value": Histogram.uniform(50, 100)}}
    flows = cell_flows(new.build(), Statistics({}, {"f": 0.25}, histograms), {"a": 30.0, "b": 10.0})
    assert shares(flows, "f->o", "a") == {(0, 50): 0.0, (50, 100): 0.0}
    assert shares(flows, "f->o", "b") == pytest.approx({(0, 50): 0.0, (50, 100): 1.0})


def test_an_aggregate_under_the_name_of_a_column_is_not_that_column() -> None:
    new, s = one_stream()
    s.aggregate("mean", {"value": "avg(value)"}, window_s=60, group_by=["k"]).output("o", by())
    assert traced(new.build()).cells["s"] == (ANY,)


def test_a_valued_key_of_a_join_may_come_from_either_side() -> None:
    new = NetworkBuilder("join")
    left, right = (new.stream(name, {"ts": "timestamp", "value": "double", name: "int"}, time="ts") for name in "ab")
    left.join("j", right, on=["value"], within_s=10).output("o", by())
    for known in "ab":
        flows = cell_flows(new.build(), Statistics({}, {}, {known: {"value": UNIFORM}}), {"a": 1.0, "b": 1.0})
        assert flows.tracked["j->o"] == Tracked("value", known)
        assert flows.valued == {"o"}


def test_a_join_of_which_a_side_brings_nothing() -> None:
    flows = cell_flows(joined(), Statistics({}, {"f": 0.0, "j": 0.5}, VALUED), {"s": 10.0, "t": 2.0})
    assert shares(flows, "j->o") == {(0, 30): 0.0, (30, 100): 0.0}
