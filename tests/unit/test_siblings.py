"""Which outputs share a pass over what they read."""

from streamshed.network import ARC, Connector, Network, NetworkBuilder
from streamshed.network.siblings import siblings
from streamshed.network.stages import ALL_OUTPUTS, source_order, stages

NUMBERS = {"at": "timestamp", "id": "bigint", "value": "double"}


def found(network: Network) -> list[tuple[str, tuple[str, ...]]]:
    """By stage of all outputs: what is read, and the outputs that share a pass over it."""
    (stage,) = (stage for stage in stages(network, together=True) if stage.id == ALL_OUTPUTS)
    return [(one.root, one.outputs) for one in siblings(network, stage)]


def test_outputs_behind_filters_maps_and_splits_share_a_pass() -> None:
    new = NetworkBuilder("example")
    numbers = new.stream("numbers", NUMBERS, time="at")
    numbers.output("all")
    ways = numbers.filter("some", "id > 1").split("ways", {"low": "value < 1", "high": "value > 9"})
    ways["low"].output("lows")
    ways["high"].map("half", {"part": "value / 2"}).output("highs")
    numbers.aggregate("counts", {"n": "count()"}, window_s=1).output("counted")
    network = new.build()
    assert found(network) == [("numbers", ("all", "lows", "highs"))]
    (stage,) = stages(network, together=True)
    (one,) = siblings(network, stage)
    assert one.nodes == {"all", "some", "ways", "lows", "half", "highs"}
    assert [arc.id for arc in one.arcs] == ["numbers->some", "numbers->all"]
    assert source_order(network, stage) == ("numbers",) * 4
    assert source_order(network, stage, [one.outputs]) == ("numbers",) * 2


def test_a_way_with_a_window_or_a_union_on_it_has_a_pass_of_its_own() -> None:
    new = NetworkBuilder("example")
    numbers, others = new.stream("numbers", NUMBERS, time="at"), new.stream("others", NUMBERS, time="at")
    numbers.output("all")
    some = numbers.filter("some", "id > 1")
    some.output("plain")
    some.aggregate("counts", {"n": "count()"}, window_s=1).output("counted")
    others.filter("few", "id > 2").union("both", numbers).output("united")
    others.filter("most", "id < 9").output("mostly")
    assert found(new.build()) == [], "of each stream, one output is left that could share a pass"


def test_a_column_that_is_computed_anew_would_be_wrong_for_the_others() -> None:
    new = NetworkBuilder("example")
    numbers = new.stream("numbers", NUMBERS)
    numbers.map("same", {"id": "id", "double": "value * 2"}).output("doubled")
    numbers.map("other", {"VALUE": "value * 3"}).output("tripled")
    numbers.map("twice", {"more": "id + 1"}).map("again", {"more": "more + 1"}).output("counted")
    numbers.filter("some", "id > 1").output("some_of_them")
    assert found(new.build()) == [("numbers", ("doubled", "some_of_them"))]


def test_what_other_applications_read_travels_with_its_weights() -> None:
    new = NetworkBuilder("example")
    numbers = new.stream("numbers", NUMBERS)
    numbers.filter("a", "id > 1").output("near")
    numbers.filter("b", "id > 2").output("far", sink=Connector(ARC))
    numbers.filter("c", "id > 3").output("also_near")
    assert found(new.build()) == [("numbers", ("near", "also_near"))]


def test_outputs_share_a_pass_over_a_durable_arc() -> None:
    new = NetworkBuilder("example")
    kept = new.stream("numbers", NUMBERS).filter("kept", "id > 1", stage=True)
    kept.filter("a", "id > 2").output("first")
    kept.filter("b", "id > 3", stage=True).output("second")
    kept.output("third")
    assert found(new.build()) == [("kept", ("first", "third"))]
