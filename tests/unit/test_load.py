"""Load coefficients and rates on arcs: by hand for splits, fan-out and unions, and one against the other at random."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError
from streamshed.load import Admission, arc_rates, chain_capacity_tps, chain_cost_s, load_coefficients, total_load
from streamshed.network import Network, NetworkBuilder, Output, Statistics, Stream
from tests.strategies import networks, rates, statistics

COLUMNS = {"ts": "timestamp", "k": "bigint", "value": "double"}


def split_and_union() -> tuple[Network, Statistics]:
    """Stream a goes to a split and, by itself, to an output; the branch `low` meets stream b in a union."""
    new = NetworkBuilder("split and union")
    a, b = new.stream("a", COLUMNS), new.stream("b", COLUMNS)
    branches = a.filter("clean", "value > 0").split("ways", {"high": "value > 50", "low": "value <= 50"})
    branches["high"].filter("alarm", "value > 90").output("alarms")
    branches["low"].union("both", b).filter("rest", "value > 1").output("others")
    a.filter("all", "value > -1").output("everything")
    costs = {"clean": 2.0, "ways": 1.0, "alarm": 10.0, "both": 3.0, "rest": 4.0, "all": 5.0}
    selectivities = {"clean": 0.5, "ways.high": 0.25, "ways.low": 0.75, "alarm": 0.1, "both": 0.5, "rest": 0.2}
    return new.build(), Statistics(costs, selectivities)


def test_a_coefficient_is_what_a_tuple_costs_from_there_on() -> None:
    network, known = split_and_union()
    found = load_coefficients(network, known)
    of_union = 3 + 0.5 * 4
    of_split = 1 + 0.25 * 10 + 0.75 * of_union
    assert found["ways.low->both"] == of_union
    assert found["ways.high->alarm"] == 10.0
    assert found["clean->ways"] == of_split
    assert found["a->clean"] == 2 + 0.5 * of_split
    assert found["a"] == found["a->clean"] + 5, "a stream hands every tuple to all who read it"
    assert found["b"] == of_union
    assert {found[arc.id] for arc in network.arcs if isinstance(network.nodes[arc.target], Output)} == {0.0}


def test_rates_on_arcs_follow_selectivities_and_unions_add_them() -> None:
    network, known = split_and_union()
    found = arc_rates(network, known, {"a": 80.0, "b": 12.0})
    assert found["a"] == found["a->clean"] == found["a->all"] == 80.0
    assert found["clean->ways"] == 40.0
    assert (found["ways.high->alarm"], found["ways.low->both"], found["b->both"]) == (10.0, 30.0, 12.0)
    assert found["both->rest"] == 0.5 * 42
    assert (found["alarm->alarms"], found["rest->others"], found["all->everything"]) == pytest.approx((1.0, 4.2, 80.0))


def test_a_name_shared_by_a_stream_and_nothing_else_has_no_selectivity() -> None:
    """Whatever statistics say of a stream's id: what comes is handed on as it is."""
    network, known = split_and_union()
    odd = Statistics(known.costs, {**known.selectivities, "a": 0.1, "b": 7.0})
    assert load_coefficients(network, odd) == load_coefficients(network, known)
    assert arc_rates(network, odd, {"a": 80.0, "b": 12.0}) == arc_rates(network, known, {"a": 80.0, "b": 12.0})


def test_what_is_not_known_costs_nothing_and_hands_on_everything() -> None:
    network, _ = split_and_union()
    assert set(load_coefficients(network, Statistics()).values()) == {0.0}
    assert arc_rates(network, Statistics(), {"a": 8.0, "b": 1.0})["both->rest"] == 9.0


@given(st.data())
def test_the_load_by_coefficients_is_that_of_the_tuples_at_each_operator(data: st.DataObject) -> None:
    """Σ L·r over the streams is Σ cost·(tuples that come) over the operators, however they are joined."""
    network = data.draw(networks())
    known, came = data.draw(statistics(network)), data.draw(rates(network))
    on_arcs = arc_rates(network, known, came)
    by_operator = sum(
        known.cost(arc.target) * on_arcs[arc.id]
        for arc in network.arcs
        if not isinstance(network.nodes[arc.target], Output | Stream)
    )
    assert total_load(load_coefficients(network, known), came) == pytest.approx(by_operator, rel=1e-9, abs=1e-12)
    assert set(on_arcs) == {arc.id for arc in network.arcs}


def test_loads_of_streams_add() -> None:
    assert total_load({"a": 0.5, "b": 0.25, "c": 9.0}, {"a": 4, "b": 8}) == 4.0
    assert total_load({"a": 0.5}, {}) == 0.0


@pytest.mark.parametrize("capacity", [-1e-9, math.nan, math.inf, -math.inf])
def test_an_admission_is_a_finite_share_of_processing(capacity: float) -> None:
    with pytest.raises(InvalidValueError, match="capacity"):
        Admission(capacity)


def test_nothing_may_be_admitted_and_all_is_kept_if_nothing_is_said() -> None:
    assert (Admission(0.0).capacity, Admission(0.0).keep) == (0.0, 1.0)


def test_a_chain_costs_what_is_left_of_a_tuple_at_each_operator() -> None:
    assert chain_cost_s([2.0, 3.0, 4.0], [0.5, 0.25, 0.0]) == 2 + 0.5 * 3 + 0.125 * 4
    assert chain_cost_s([], []) == 0.0
    assert chain_capacity_tps([0.5, 0.25], [0.5, 1.0]) == 1.6
    assert chain_capacity_tps([2.0, 2.0], [1.0, 1.0]) == 0.25
    assert chain_capacity_tps([0.0, 0.0], [1.0, 1.0]) == math.inf
    with pytest.raises(ValueError, match="zip"):
        chain_cost_s([1.0, 2.0], [1.0])
