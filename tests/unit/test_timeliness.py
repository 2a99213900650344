"""Utility counts both what was lost and how late the rest was."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from streamshed.cli.live import LiveView
from streamshed.cli.run_report import Outcome, report
from streamshed.cli.totals import Totals
from streamshed.cli.utilities import utility_table
from streamshed.control import LoadSample
from streamshed.engines.spark.drops import ARRIVAL_QUANTILES
from streamshed.engines.spark.monitor import DropCounts
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.timeliness import MeanUtilities, Timeliness
from streamshed.network import Network, NetworkBuilder, Spec
from streamshed.network.stages import ALL_OUTPUTS, stages
from streamshed.qos import LatencyGraph, PiecewiseLinear, Qos, latency_utility

SLOPE = LatencyGraph.of([(0, 1), (2, 1), (10, 0)])
UNKNOWN = "utility (of loss only: no arrival times)"
END_S = 1000.0

# --- one output ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delays_s", "expected"),
    [
        ([(100, 0.0, 2.0)], 1.0),
        ([(100, 2.0, 2.0)], 1.0),
        ([(100, 2.001, 9.0)], 0.0),
        ([(100, 2.5, 2.5)], 0.0),
        ([(100, 1.0, 3.0)], 0.5),
        ([(100, 1.0, 5.0)], 0.25),
        ([(50, 0.5, 0.5), (50, 7.0, 8.0)], 0.5),
        ([(30, 1.0, 1.0), (10, 5.0, 5.0)], 0.75),
        ([], 1.0),
        ([(0, 5.0, 5.0)], 1.0),
    ],
)
def test_without_a_graph_a_tuple_is_worth_something_within_the_target_only(
    delays_s: list[tuple[float, float, float]], expected: float
) -> None:
    assert latency_utility(None, 2.0, delays_s) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("delays_s", "expected"),
    [
        ([(100, 0.0, 2.0)], 1.0),
        ([(100, 6.0, 6.0)], 0.5),  # half way down
        ([(100, 4.0, 8.0)], 0.5),  # from 0.75 to 0.25
        ([(100, 1.0, 6.0)], (1 * 1.0 + 4 * 0.75) / 5),  # level for a second, then down to 0.5
        ([(100, 0.0, 20.0)], (2 * 1.0 + 8 * 0.5) / 20),  # and nothing after 10 s
        ([(75, 1.0, 1.0), (25, 6.0, 6.0)], 0.875),
    ],
)
def test_a_latency_graph_decides_where_there_is_one_whatever_the_target(
    delays_s: list[tuple[float, float, float]], expected: float
) -> None:
    for target_s in (0.1, 2.0, 100.0):
        assert latency_utility(SLOPE, target_s, delays_s) == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), min_size=2, max_size=6, unique_by=lambda point: point[0]),
    st.floats(-5, 45),
    st.floats(0.01, 30),
)
def test_the_mean_of_a_graph_is_that_of_many_points(points: list[tuple[int, float]], low: float, length: float) -> None:
    graph = PiecewiseLinear.of(sorted(points))
    middles = low + (np.arange(20_000) + 0.5) / 20_000 * length
    assert graph.mean(low, low + length) == pytest.approx(np.interp(middles, graph.xs, graph.ys).mean(), abs=1e-4)
    assert graph.mean(low, low) == graph(low)


# --- which tuples count ----------------------------------------------------------------------------------------------


def counted(kept: int, *delays_s: float, arrived: int | None = None) -> DropCounts:
    """So many tuples were kept. Delays: of the first, at the quantiles of arrival, of the last; or one for all."""
    delays_s = delays_s * 8 if len(delays_s) == 1 else delays_s
    return DropCounts(kept if arrived is None else arrived, 0, kept, tuple(END_S - delay_s for delay_s in delays_s))


def one_output(latency: LatencyGraph | None = None) -> Network:
    new = NetworkBuilder("one")
    new.stream("s", {"v": "int"}).filter("f", "v > 1").output("o", Qos(latency=latency))
    return new.build()


def two_streams() -> Network:
    """`both` reads two streams, `left` and `right` one each."""
    new = NetworkBuilder("two streams")
    a, b = new.stream("a", {"v": "int"}), new.stream("b", {"v": "int"})
    a.union("u", b).filter("f", "v > 1").output("both")
    a.output("left")
    b.output("right", Qos(latency=SLOPE))
    return new.build()


def staged(latency: LatencyGraph | None = None) -> Network:
    new = NetworkBuilder("staged")
    parsed = new.stream("s", {"v": "int"}).filter("parse", "v > 1", stage=True)
    parsed.filter("high", "v > 9").output("alarms", Qos(latency=latency))
    parsed.output("all")
    new.stream("t", {"v": "int"}).output("other")
    return new.build()


def of_fused(network: Network, target_s: float = 2.0) -> Timeliness:
    return Timeliness(network, stages(network, together=True), target_s)


def test_everything_late_is_worth_nothing_and_half_of_it_half() -> None:
    timeliness = of_fused(one_output())
    for delay_s, expected in ((0.5, 1.0), (2.0, 1.0), (3.0, 0.0)):
        assert timeliness.of("o", ALL_OUTPUTS, {"s": counted(100, delay_s)}, END_S) == expected
    late = (9.0, 8.0, 7.0, 6.0)
    quantiles = (0.0, *ARRIVAL_QUANTILES, 1.0)
    assert quantiles[3:5] == (0.25, 0.5)
    # of the first half a half has delays of 6 s and more, the other one of 6 to 2 s
    assert timeliness.of("o", ALL_OUTPUTS, {"s": counted(100, *late, 2.0, 1.0, 1.0, 1.0)}, END_S) == pytest.approx(0.5)


def test_delays_are_evenly_spread_between_quantiles() -> None:
    counts = {"s": counted(100, 6.0, 6.0, 6.0, 6.0, 2.0, 2.0, 2.0, 2.0)}
    # a quarter at 6 s, a quarter from 6 to 2 s, the rest at 2 s
    worth = 0.25 * 0.5 + 0.25 * 0.75 + 0.5 * 1.0
    assert of_fused(one_output(SLOPE)).of("o", ALL_OUTPUTS, counts, END_S) == pytest.approx(worth)
    assert of_fused(one_output(), 4.0).of("o", ALL_OUTPUTS, counts, END_S) == pytest.approx(0.25 * 0.5 + 0.5)


def test_streams_upstream_count_by_the_tuples_they_delivered() -> None:
    timeliness = of_fused(two_streams())
    counts = {"a": counted(300, 1.0, arrived=9000), "b": counted(100, 6.0)}
    assert timeliness.of("both", ALL_OUTPUTS, counts, END_S) == pytest.approx(0.75)
    assert timeliness.of("left", ALL_OUTPUTS, counts, END_S) == 1.0
    assert timeliness.of("right", ALL_OUTPUTS, counts, END_S) == pytest.approx(0.5)


def test_it_is_unknown_where_a_source_that_delivered_cannot_tell() -> None:
    timeliness = of_fused(two_streams())
    counts = {"a": counted(300, 1.0), "b": DropCounts(100, 0, 100)}
    assert timeliness.of("both", ALL_OUTPUTS, counts, END_S) is None
    assert timeliness.of("right", ALL_OUTPUTS, counts, END_S) is None
    assert timeliness.of("left", ALL_OUTPUTS, counts, END_S) == 1.0
    counts["b"] = DropCounts(100, 0, 0)  # all dropped: nobody waits for them
    assert timeliness.of("both", ALL_OUTPUTS, counts, END_S) == 1.0
    assert timeliness.of("right", ALL_OUTPUTS, counts, END_S) == 1.0, "nothing was late"
    assert timeliness.of("both", ALL_OUTPUTS, {}, END_S) == 1.0, "Spark left the sources out"


def test_over_stages_lateness_counts_where_tuples_come_to_the_end() -> None:
    network = staged(SLOPE)
    timeliness = of_fused(network)
    assert timeliness.ends("parse", goes_on=True) == ()
    assert set(timeliness.ends("parse", goes_on=False)) == {"alarms", "all"}, "all was filtered, or dropped"
    assert set(timeliness.ends(ALL_OUTPUTS, goes_on=False)) == {"alarms", "all", "other"}
    counts = {"arc parse": counted(50, 6.0), "t": counted(50, 1.0), "parse->high": DropCounts(50, 0, 10)}
    assert timeliness.of("alarms", ALL_OUTPUTS, counts, END_S) == pytest.approx(0.5)
    assert timeliness.of("all", ALL_OUTPUTS, counts, END_S) == 0.0
    assert timeliness.of("other", ALL_OUTPUTS, counts, END_S) == 1.0
    assert timeliness.of("alarms", "parse", {"s": counted(50, 10.0)}, END_S) == 0.0
    no_times = {**counts, "arc parse": DropCounts(50, 0, 50)}  # an aggregate before the arc, for example
    assert timeliness.of("alarms", ALL_OUTPUTS, no_times, END_S) is None


def test_with_a_stage_for_each_output_each_has_its_own_batches() -> None:
    network = staged()
    timeliness = Timeliness(network, stages(network), 2.0)
    assert timeliness.ends("alarms", goes_on=False) == ("alarms",)
    assert timeliness.of("alarms", "alarms", {"arc parse": counted(50, 3.0)}, END_S) == 0.0
    assert timeliness.of("all", "all", {"arc parse": counted(50, 2.0)}, END_S) == 1.0


# --- over a run ------------------------------------------------------------------------------------------------------


def test_means_are_weighted_by_the_tuples_that_had_arrived() -> None:
    means = MeanUtilities()
    means.add({"o": 0.0}, {"o": 1.0}, 100)
    means.add({"o": 0.5}, {"o": 0.5}, 300)
    means.add({"o": 0.0}, {"o": 0.0}, 0)
    assert means.utilities == {"o": pytest.approx(0.375)}
    assert means.of_loss == {"o": pytest.approx(0.625)}


def test_one_batch_whose_lateness_is_unknown_leaves_only_the_utility_of_loss() -> None:
    means = MeanUtilities()
    means.add({"o": 1.0, "p": 0.5}, {"o": 1.0, "p": 1.0}, 300)
    means.add({"o": None}, {"o": 0.5}, 100)
    assert means.utilities == {"o": None, "p": 0.5}
    assert means.of_loss == {"o": pytest.approx(0.875), "p": 1.0}


def test_a_batch_of_which_nothing_is_known_is_left_out() -> None:
    means = MeanUtilities()
    means.add({"o": None}, {"o": None}, 100)
    assert means.utilities == means.of_loss == {"o": None}
    means.add({"o": 0.5}, {"o": 1.0}, 100)
    assert means.utilities == {"o": 0.5}
    assert means.of_loss == {"o": 1.0}


# --- what is shown ---------------------------------------------------------------------------------------------------


def batch(delay_s: float | None, *, arrived: int = 100, of_loss: float | None = 1.0) -> NetworkBatch:
    """Of tuples that are all as late."""
    network = one_output()
    counts = counted(arrived, delay_s) if delay_s is not None else DropCounts(arrived, 0, arrived)
    late = of_fused(network).of("o", ALL_OUTPUTS, {"s": counts}, END_S)
    return NetworkBatch(
        LoadSample(END_S, 0.5, arrived, arrived, delay_p50_s=delay_s, delay_p95_s=delay_s),
        0, END_S - 0.5, {"s": counts}, {"s": 0.0}, 1.0,
        {"o": None if late is None or of_loss is None else of_loss * late},
        {}, ALL_OUTPUTS, arrived, utilities_of_loss={"o": of_loss},
    )  # fmt: skip


def summed(*batches: NetworkBatch) -> Totals:
    totals = Totals(2.0)
    for one in batches:
        totals.add(one)
    return totals


def shown(totals: Totals) -> str:
    console = Console(file=io.StringIO(), width=80)
    report(console, Outcome(), totals, Spec(one_output()), Path("/nowhere"))
    return cast("io.StringIO", console.file).getvalue()


def lived(one: NetworkBatch) -> tuple[str, str]:
    """The line and the picture."""
    view = LiveView(Console(file=io.StringIO(), width=120), 2.0, "one")
    view.show(one)
    console = Console(file=io.StringIO(), width=120)
    console.print(view.picture())
    return view.line(), cast("io.StringIO", console.file).getvalue()


@pytest.mark.parametrize(
    ("batches", "utility", "told"),
    [
        ([batch(9.0), batch(190.0, arrived=900)], 0.0, "0 %"),
        ([batch(9.0), batch(1.0)], 0.5, "50.0 %"),
        ([batch(1.0, of_loss=0.5), batch(9.0)], 0.25, "25.0 %"),
        ([batch(1.0)], 1.0, "100 %"),
    ],
)
def test_a_run_that_delivers_everything_late_is_worth_nothing(
    batches: list[NetworkBatch], utility: float, told: str
) -> None:
    totals = summed(*batches)
    document = json.loads(json.dumps(totals.to_json()))
    assert document["utility"] == {"o": pytest.approx(utility)}
    losses = sum(one.arrived * (one.utilities_of_loss["o"] or 0.0) for one in batches)
    assert document["utility_of_loss"] == {"o": pytest.approx(losses / totals.arrived)}
    lines = shown(totals).splitlines()
    heading = next(i for i, line in enumerate(lines) if line.startswith("output"))
    assert lines[heading].split() == ["output", "utility", "SIC"]
    assert " ".join(lines[heading + 1].split()) == f"o {told}"


def test_where_arrivals_are_unknown_only_the_utility_of_loss_is_shown_and_named_so() -> None:
    totals = summed(batch(None, of_loss=0.75))
    document = totals.to_json()
    assert document["utility"] == {"o": None}
    assert document["utility_of_loss"] == {"o": 0.75}
    text = shown(totals)
    assert UNKNOWN in text
    assert " 75.0 %" in text
    line, picture = lived(batch(None, of_loss=0.75))
    assert line.endswith(f"{UNKNOWN}: o 75.0 %")
    assert UNKNOWN in picture
    assert "75.0 %" in picture


def test_the_live_view_shows_utility_with_latency() -> None:
    line, picture = lived(batch(9.0))
    assert line.endswith("nothing dropped | utility: o 0 %")
    assert "of loss" not in line + picture
    assert picture.splitlines()[-1].split()[-2:] == ["0", "%"]


def test_after_a_restart_nothing_is_said_of_drops_that_nobody_knows() -> None:
    line, picture = lived(batch(1.0, of_loss=None))
    assert line.endswith("utility: o unknown")
    assert "unknown" in picture
    assert summed(batch(1.0, of_loss=None)).to_json()["utility"] == {"o": None}


def test_the_live_view_keeps_what_is_known_of_outputs_that_end_in_other_stages() -> None:
    view = LiveView(Console(file=io.StringIO()), 2.0, "two")
    view.show(batch(1.0, of_loss=0.5))
    upstream = replace(batch(1.0), utilities={}, utilities_of_loss={}, stage="parse")
    view.show(upstream)
    assert "utility: o 50.0 %" in view.line()
    view.show(replace(upstream, utilities={"p": None}, utilities_of_loss={"p": 1.0}))
    assert view.line().endswith(f"utility: o 50.0 % | {UNKNOWN}: p 100 %")
    table = utility_table({"o": 0.5, "p": None}, {"o": 0.5, "p": 1.0}, {"o": 0.25})
    assert [str(column.header) for column in table.columns] == ["output", "utility", UNKNOWN, "SIC"]
    rows = [[str(cell) for cell in column.cells] for column in table.columns]
    assert rows == [["o", "p"], ["50.0 %", ""], ["", "100 %"], ["25.0 %", ""]]


def test_utilities_are_green_from_90_and_yellow_from_50_per_cent_on() -> None:
    worth: dict[str, float | None] = {"a": 0.9, "b": 0.899, "c": 0.5, "d": 0.499, "e": 0.0, "f": None}
    cells = list(utility_table(worth, worth, {}).columns[1].cells)
    assert [str(cast("Text", cell).style) for cell in cells] == ["green", "yellow", "yellow", "red", "red", "dim"]


def test_of_many_outputs_the_live_view_shows_the_worst() -> None:
    names = [f"o{i}" for i in range(40)]
    worth: dict[str, float | None] = {name: i / 40 for i, name in enumerate(names)}
    many = replace(batch(1.0), utilities={**worth, "o39": None}, utilities_of_loss={**worth, "o39": 0.01})
    picture = lived(many)[1]
    assert all(f"{name} " in picture for name in (*names[:11], "o39"))
    assert "o11 " not in picture
