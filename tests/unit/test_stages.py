from streamshed.network import Network, NetworkBuilder
from streamshed.network.stages import ALL_OUTPUTS, Stage, lateness_s, source_order, stages

COLUMNS = {"at": "timestamp", "k": "int"}


def build(*, marked: bool) -> Network:
    new = NetworkBuilder("example")
    left = new.stream("left", COLUMNS, time="at", lateness_s=5)
    right = new.stream("right", COLUMNS, time="at", lateness_s=2)
    shared = left.filter("shared", "k > 0", stage=marked)
    shared.output("raw")
    pairs = shared.join("pairs", right, on=["k"], within_s=10, stage=marked)
    pairs.output("paired")
    pairs.aggregate("counts", {"n": "count()"}, window_s=60).output("counted")
    return new.build()


def test_one_stage_per_output_by_default() -> None:
    assert set(stages(build(marked=False))) == {
        Stage("raw", ("shared",), ("left",), ("left", "left->shared", "shared->raw"), ("raw",)),
        Stage(
            "paired",
            ("shared", "pairs"),
            ("left", "right"),
            ("left", "right", "left->shared", "shared->pairs.left", "right->pairs.right", "pairs->paired"),
            ("paired",),
        ),
        Stage(
            "counted",
            ("shared", "pairs", "counts"),
            ("left", "right"),
            (
                "left",
                "right",
                "left->shared",
                "shared->pairs.left",
                "right->pairs.right",
                "pairs->counts",
                "counts->counted",
            ),
            ("counted",),
        ),
    }


def test_marked_operators_are_stages_of_their_own() -> None:
    network = build(marked=True)
    cut = {stage.id: stage for stage in stages(network)}
    assert {stage.id for stage in cut.values() if stage.is_durable} == {"shared", "pairs"}
    assert cut["shared"].inputs == ("left",)
    assert cut["pairs"].inputs == ("right", "shared")
    assert cut["pairs"].operators == ("pairs",)
    arcs = ("pairs->counts", "counts->counted")
    assert cut["counted"] == Stage("counted", ("counts",), ("pairs",), arcs, ("counted",))
    # Nothing is computed twice: every arc lies in one stage.
    assert sorted(arc for stage in cut.values() for arc in stage.arcs) == sorted(arc.id for arc in network.arcs)
    seen: set[str] = {"left", "right"}
    for stage in stages(network):
        assert seen >= set(stage.inputs)
        seen.add(stage.id)


def test_outputs_together_are_one_stage_beside_the_marked_operators() -> None:
    assert [stage.id for stage in stages(build(marked=False), together=True)] == [ALL_OUTPUTS]
    network = build(marked=True)
    cut = {stage.id: stage for stage in stages(network, together=True)}
    assert list(cut) == ["shared", "pairs", ALL_OUTPUTS]
    assert cut[ALL_OUTPUTS].outputs == ("raw", "paired", "counted")
    assert cut[ALL_OUTPUTS].operators == ("counts",)
    assert {stage: source_order(network, of_id) for stage, of_id in cut.items()} == {
        "shared": ("left",),
        "pairs": ("shared", "right"),
        ALL_OUTPUTS: ("shared", "pairs", "pairs"),
    }
    assert sorted(arc for stage in cut.values() for arc in stage.arcs) == sorted(arc.id for arc in network.arcs)


def test_lateness_grows_at_joins_and_ends_at_windows() -> None:
    network = build(marked=False)
    assert {node: lateness_s(network, node) for node in network.nodes} == {
        "left": 5,
        "right": 2,
        "shared": 5,
        "raw": 5,
        "pairs": 15,
        "paired": 15,
        "counts": 0,
        "counted": 0,
    }
