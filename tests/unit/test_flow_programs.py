"""The linear program of nodes and tables, on numbers that can be solved by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csc_array

from streamshed.distributed.feasible_input.table import FeasibleInputTable
from streamshed.distributed.linear import LinearProgram, Mixtures
from streamshed.distributed.model import NodeModel, Segment
from streamshed.distributed.program import FlowProgram
from streamshed.distributed.scores import Score, Throughput
from streamshed.errors import StreamshedError

F = Fraction
TOTAL = Throughput()

# Figure 1 of the paper.
A = NodeModel("A", ("a1", "a2"), (Segment("a-top", "a1", 1, 1.0, "b1"), Segment("a-low", "a2", 2, 1.0, "b2")))
B = NodeModel("B", ("b1", "b2"), (Segment("b-top", "b1", 3, 0.5, "q1"), Segment("b-low", "b2", 1, 1.0, "q2")))
CORNERS_OF_B = FeasibleInputTable(
    "B", ("b1", "b2"), (F(1, 3), F(1)), np.array([[0, 1], [1, 0]]), np.array([1.0, 1 / 6]), mixing=True
)


class Least(Score):
    """The first two tuples a second of an output are worth 10 each, all others 1."""

    @property
    def is_linear(self) -> bool:
        return False

    def pieces(self, output: str) -> tuple[tuple[float, float], ...]:
        return (2.0, 10.0), (math.inf, 1.0)


def solved(program: FlowProgram, **rates_tps: float) -> tuple[float, dict[str, float]]:
    found = program.solve(rates_tps)
    return round(found.score, 5), {name: round(flow, 5) for (_, name), flow in found.flows.items()}


def test_one_node_takes_what_brings_most_for_its_cost() -> None:
    program = FlowProgram((B,), TOTAL)
    assert program.inputs == ("b1", "b2")
    # 1 for 1 below, 0.5 for 3 above.
    assert solved(program, b1=1.0, b2=0.4) == (0.5, {"b-top": 0.2, "b-low": 0.4})
    assert solved(program, b1=1.0, b2=1.0) == (1.0, {"b-top": 0.0, "b-low": 1.0})
    assert solved(program, b1=0.1, b2=0.2) == (0.25, {"b-top": 0.1, "b-low": 0.2})
    assert solved(program, b1=-5.0, b2=0.2) == (0.2, {"b-top": 0.0, "b-low": 0.2}), "a rate below 0 is none"


@pytest.mark.parametrize("scale_tps", [1e-3, 1.0, 1e4, 0.0])
def test_the_scale_of_rates_changes_nothing(scale_tps: float) -> None:
    assert solved(FlowProgram((B,), TOTAL, scale_tps=scale_tps), b1=1.0, b2=0.4)[0] == 0.5
    cheap = (Segment("b-top", "b1", 3e-6, 0.5, "q1"), Segment("b-low", "b2", 1e-6, 1, "q2"))
    million = NodeModel("B", B.inputs, cheap)
    assert solved(FlowProgram((million,), TOTAL, scale_tps=1e6), b1=1e6, b2=4e5)[0] == 5e5


def test_a_capacity_is_seconds_a_second() -> None:
    wide = NodeModel("B", B.inputs, B.segments, 2)
    assert solved(FlowProgram((wide,), TOTAL), b1=1.0, b2=1.0) == (1.16667, {"b-top": 0.33333, "b-low": 1.0})


def test_of_two_nodes_the_first_sends_what_the_second_can_take() -> None:
    both = FlowProgram((A, B), TOTAL)
    assert both.inputs == ("a1", "a2")
    assert solved(both, a1=1.0, a2=1.0)[0] == 0.5
    with_table = FlowProgram((A,), TOTAL, [CORNERS_OF_B])
    assert solved(with_table, a1=1.0, a2=1.0)[0] == 0.5
    # With little to do nothing is dropped, and of 0.1 tuples above half come out.
    flows = {"a-top": 0.1, "a-low": 0.2}
    assert solved(with_table, a1=0.1, a2=0.2) == (0.25, flows)
    assert solved(both, a1=0.1, a2=0.2) == (0.25, flows | {"b-top": 0.1, "b-low": 0.2})


def test_no_rate_is_asked_for_in_vain() -> None:
    worthless = FlowProgram((B,), Throughput({"q1": 0.0}))
    assert solved(worthless, b1=1.0, b2=0.4) == (0.4, {"b-top": 0.0, "b-low": 0.4})
    # The trunk lets in what its branches need, and no more.
    node = NodeModel(
        "n", ("i",), (Segment("t", "i", 0.1, 0.5), Segment("x", "t", 0.1, 1, "o"), Segment("y", "t", 1, 0.1, "p"))
    )
    assert solved(FlowProgram((node,), Throughput({"p": 0.0})), i=6.0) == (3.0, {"t": 6.0, "x": 3.0, "y": 0.0})
    # A tuple at x costs 0.1 and 0.2 ahead of it: 3.33 results a second.
    assert solved(FlowProgram((node,), Throughput({"p": 0.0})), i=60.0) == (
        3.33333,
        {"t": 6.66667, "x": 3.33333, "y": 0},
    )


def test_results_count_as_they_leave_or_as_they_enter_the_last_segment() -> None:
    entering = FlowProgram((B,), Throughput({"q1": 2.0}, counts_results=False))
    # Above 2 for 3, below 1 for 1.
    assert solved(entering, b1=1.0, b2=0.4) == (0.8, {"b-top": 0.2, "b-low": 0.4})
    leaving = FlowProgram((B,), Throughput({"q1": 2.0}))
    assert solved(leaving, b1=1.0, b2=0.4) == (0.6, {"b-top": 0.2, "b-low": 0.4})


@pytest.mark.parametrize("worth", [1e-9, 1e9])
def test_thrift_is_measured_by_what_a_tuple_is_worth_at_most(worth: float) -> None:
    found = FlowProgram((B,), Throughput({"q1": worth, "q2": worth})).solve({"b1": 1.0, "b2": 0.4})
    assert found.score == pytest.approx(0.5 * worth, rel=1e-5)
    assert found.flows["B", "b-low"] == pytest.approx(0.4, rel=1e-5)


def test_a_concave_worth_fills_its_first_pieces_first() -> None:
    node = NodeModel("n", ("i", "j"), (Segment("x", "i", F(1, 10), F(1, 2), "o"), Segment("y", "j", F(1, 10), 1, "p")))
    # 2 results of y are worth 20 for 0.2 s, 2 of x 20 for 0.4 s; the 0.4 s left bring 4 of y.
    assert solved(FlowProgram((node,), Least()), i=99.0, j=99.0) == (44.0, {"x": 4.0, "y": 6.0})
    assert solved(FlowProgram((node,), Least(), scale_tps=50.0), i=99.0, j=99.0)[0] == 44.0


def test_two_segments_may_feed_one_input_and_one_output() -> None:
    union = NodeModel("u", ("i", "j"), (Segment("x", "i", 0, 0.5, "b2"), Segment("y", "j", 0, 1, "b2")))
    for program in (FlowProgram((union, B), TOTAL), FlowProgram((union,), TOTAL, [CORNERS_OF_B])):
        if "b1" in program.inputs:
            assert solved(program, i=0.6, j=0.5, b1=0.0)[0] == 0.8
            assert solved(program, i=9.0, j=0.5, b1=0.0)[0] == 1.0
        else:
            assert solved(program, i=0.6, j=0.5)[0] == 0.8
            assert solved(program, i=9.0, j=0.5)[0] == 1.0
    same = NodeModel("s", ("i", "j"), (Segment("x", "i", 1, 0.5, "o"), Segment("y", "j", 1, 1, "o")))
    assert solved(FlowProgram((same,), TOTAL), i=9.0, j=0.5) == (0.75, {"x": 0.5, "y": 0.5})


def test_a_price_of_a_free_rate_holds_it_back() -> None:
    program = FlowProgram((B,), TOTAL, free_tps={"b1": 0.3, "b2": 0.8})
    assert program.inputs == ()

    def at(**prices: float) -> tuple[float, dict[str, float]]:
        found = program.solve({}, prices)
        return round(found.score, 5), {name: round(flow, 5) for (_, name), flow in found.flows.items()}

    assert at() == at(b1=0.0, b2=0.0) == (0.83333, {"b-top": 0.06667, "b-low": 0.8}), "no more than 0.8 below"
    # A tuple above brings 0.5 and takes 3, so at a price of 0.6 it is not let in; the score leaves prices out.
    assert at(b1=0.6, b2=0.0) == (0.8, {"b-top": 0.0, "b-low": 0.8})
    # Beyond their prices they bring 0.1 for 3 and 0.01 for 1.
    assert at(b1=0.4, b2=0.99) == (0.25, {"b-top": 0.3, "b-low": 0.1})
    assert at(b1=0.4, b2=1.1) == (0.15, {"b-top": 0.3, "b-low": 0.0})
    assert at(b1=0.6, b2=1.1) == (0.0, {"b-top": 0.0, "b-low": 0.0})
    one = FlowProgram((B,), TOTAL, scale_tps=10.0, free_tps={"b2": 0.8})
    assert one.inputs == ("b1",)
    found = one.solve({"b1": 0.05}, {"b2": 0.5})
    assert found.score == pytest.approx(0.825)


def test_a_table_counts_as_any_mixture_of_its_rows() -> None:
    feeder = NodeModel("f", ("i", "j"), (Segment("x", "i", 0, 1, "b1"), Segment("y", "j", 0, 1, "b2")))
    program = FlowProgram((feeder,), TOTAL, [CORNERS_OF_B])
    # Half of each row: 1/6 above and 1/2 below.
    assert solved(program, i=1.0, j=0.5) == (0.58333, {"x": 0.16667, "y": 0.5})
    assert solved(program, i=0.1, j=0.5) == (0.55, {"x": 0.1, "y": 0.5})
    # What the table has no use for is not sent.
    silent = FeasibleInputTable("B", ("b1", "b2"), (F(1), F(1)), np.array([[0, 1]]), np.array([1.0]), mixing=True)
    assert solved(FlowProgram((feeder,), TOTAL, [silent]), i=1.0, j=0.5) == (0.5, {"x": 0.0, "y": 0.5})
    # Two tables count beside one another, each once.
    other = FeasibleInputTable("C", ("c",), (F(2),), np.array([[1]]), np.array([3.0]), mixing=True)
    third = NodeModel("f", ("i", "j", "k"), (*feeder.segments, Segment("z", "k", 0, 1, "c")))
    both = FlowProgram((third,), TOTAL, [CORNERS_OF_B, other])
    assert solved(both, i=0.1, j=0.5, k=1.0)[0] == 2.05
    assert solved(both, i=0.1, j=0.5, k=9.0)[0] == 3.55


def test_a_rate_that_is_not_given_is_asked_for() -> None:
    with pytest.raises(KeyError, match="b2"):
        FlowProgram((B,), TOTAL).solve({"b1": 1.0})


# --- the solver ------------------------------------------------------------------------------------------------------


def test_prices_say_what_one_more_of_a_bound_would_bring() -> None:
    # 3 and 2 for a unit; both take one of the first bound, the dear one three of the second.
    program = LinearProgram(np.array([3.0, 2.0]), csc_array(np.array([[1.0, 1.0], [3.0, 1.0]])))
    found = program.solve(np.array([4.0, 6.0]))
    assert found is not None
    assert found.values.tolist() == pytest.approx([1.0, 3.0])
    assert found.prices.tolist() == pytest.approx([1.5, 0.5])
    assert program.solve(np.array([-1.0, 6.0])) is None
    again = program.solve(np.array([4.0, 6.0]), np.array([1.0, 2.0]))
    assert again is not None
    assert again.values.tolist() == pytest.approx([0.0, 4.0])
    program.add_column(10.0, np.array([2.0, 2.0]))
    more = program.solve(np.array([4.0, 6.0]))
    assert more is not None
    assert more.values.tolist() == pytest.approx([0.0, 0.0, 2.0])


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("worth", [1e-12, 1.0, 1e12])
def test_mixtures_of_rows_of_any_size(size: float, worth: float) -> None:
    rows = np.array([[4.0, 1.0], [1.0, 2.0]]) * size
    mixtures = Mixtures(rows, np.array([2.0, 1.0]) * worth, rows.max(axis=0))
    found = mixtures.best(np.array([2.5, 1.5]) * size)
    assert found is not None
    assert found.tolist() == pytest.approx([0.5, 0.5])
    mixtures.add(np.array([0.0, 0.0]), 3.0 * worth)
    found = mixtures.best(np.array([2.5, 1.5]) * size)
    assert found is not None
    assert found.tolist() == pytest.approx([0.0, 0.0, 1.0], abs=1e-9)
    alone = Mixtures(rows[:1], np.array([2.0]) * worth).best(np.array([1.0, 9.0]) * size)
    assert alone is not None
    assert alone.tolist() == pytest.approx([0.25])


def test_where_no_mixture_fits_there_is_none() -> None:
    assert Mixtures(np.array([[1.0]]), np.array([1.0])).best(np.array([-1.0])) is None
    zero = Mixtures(np.array([[0.0]]), np.array([0.0])).best(np.array([1.0]))
    assert zero is not None
    with pytest.raises(StreamshedError, match="no solution"):
        LinearProgram(np.array([1.0]), csc_array(np.array([[-1.0]]))).solve(np.array([1.0]))
