"""SIC from what the drops of a running network did."""

from __future__ import annotations

import pytest

from streamshed.network import Network, parse_spec
from streamshed.planning.fair import ObservedSic

EVERYTHING = """\
name: everything
streams:
  north: {columns: {ts: timestamp, id: bigint, v: double}, time: ts}
  south: {columns: {ts: timestamp, id: bigint, v: double}, time: ts}
  notes: {columns: {ts: timestamp, id: bigint, note: double}, time: ts}
operators:
  both: {type: union, inputs: [north, south]}
  high: {type: filter, input: both, where: v > 1}
  joined: {type: join, left: high, right: notes, on: [id], within_s: 10}
  minutes: {type: aggregate, input: joined, window_s: 60, group_by: [id], aggregates: {n: count()}}
  halves: {type: split, input: north, branches: {low: v < 1, top: v > 2}}
  again: {type: union, inputs: [halves.low, halves.top]}
outputs:
  counted: {input: minutes}
  noted: {input: notes}
  rejoined: {input: again}
"""


@pytest.fixture
def network() -> Network:
    return parse_spec(EVERYTHING).network


def test_without_drops_it_is_1_whatever_operators_do(network: Network) -> None:
    sic = ObservedSic(network)
    sic.observe(1.0, {"north": (500, 500), "south": (20, 20), "notes": (7, 7), "both->high": (520, 520)})
    assert sic.at(1.0) == sic.overall() == {"counted": 1.0, "noted": 1.0, "rejoined": 1.0}


def test_every_stream_counts_the_same_however_fast_it_is(network: Network) -> None:
    sic = ObservedSic(network)
    sic.observe(1.0, {"north": (1000, 500), "south": (10, 10), "notes": (10, 3)})
    assert sic.at(1.0) == pytest.approx({"counted": (0.5 + 1.0 + 0.3) / 3, "noted": 0.3, "rejoined": 0.5})


def test_drops_along_a_way_multiply_and_ways_count_equally(network: Network) -> None:
    sic = ObservedSic(network)
    sic.observe(1.0, {"north": (100, 50), "halves.low->again": (20, 10), "halves.top->again": (9, 9)})
    assert sic.at(1.0)["rejoined"] == pytest.approx(0.5 * (0.5 + 1.0) / 2)


def test_who_was_sent_nothing_has_no_sic(network: Network) -> None:
    sic = ObservedSic(network)
    assert sic.at(1.0) == sic.overall() == {}
    sic.observe(1.0, {"north": (10, 5), "south": (0, 0)})
    assert sic.at(1.0) == {"counted": 0.5, "rejoined": 0.5}, "silent streams do not count"


def test_the_window_forgets_and_the_sum_does_not(network: Network) -> None:
    sic = ObservedSic(network, window_s=10.0)
    sic.observe(1.0, {"notes": (100, 0)})
    sic.observe(8.0, {"notes": (100, 100)})
    assert sic.at(8.0)["noted"] == 0.5
    assert sic.at(15.0)["noted"] == 1.0
    assert sic.at(30.0) == {}
    assert sic.overall()["noted"] == 0.5
