"""Outputs in one pass over what they read: each gets what it would get from a query of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from streamshed.engines.spark.drops import random_rank
from streamshed.engines.spark.network_batch import NetworkBatch
from streamshed.engines.spark.runner import SALT, NetworkRunner
from streamshed.network import Connector, NetworkBuilder, Spec, Statistics
from streamshed.planning import RoadMapPlanner
from tests.spark.streams import wait_for_slot

MEMORY = Connector("memory")
THRESHOLDS = {"numbers->small": 0.25, "small->few": 0.5, "numbers->uneven": 0.375, "numbers->ways": 0.625}


def spec(directory: Path) -> Spec:
    new = NetworkBuilder("siblings")
    source = Connector("parquet", {"path": str(directory)})
    numbers = new.stream("numbers", {"id": "bigint", "value": "double"}, source=source)
    small = numbers.filter("small", "value < 10")
    small.output("few", sink=MEMORY)
    # Both compute a column of one name, and the second one fails for tuples that are not its own.
    small.map("halves", {"id": "id", "part": "value / 2"}).output("halved", sink=MEMORY)
    uneven = numbers.filter("uneven", "id % 2 = 1").map("inverted", {"part": "1000 div (id % 2)"}, keep=True)
    uneven.filter("known", "part > 0 AND value > 50").output("inverses", sink=MEMORY)
    ways = numbers.split("ways", {"low": "value < 30", "high": "value > 20"})
    ways["low"].output("lows", sink=MEMORY)
    ways["high"].filter("first", "id < 500").output("highs", sink=MEMORY)
    # Not in the same pass: `value` is another column from here on.
    numbers.map("tripled", {"value": "value * 3"}).output("triples", sink=MEMORY)
    network = new.build()
    return Spec(network, Statistics({operator.id: 1e-6 for operator in network.operators}), {"numbers": 1000.0})


@pytest.mark.parametrize("thresholds", [{}, THRESHOLDS], ids=["all", "some"])
def test_every_output_gets_its_tuples(spark: SparkSession, tmp_path: Path, thresholds: dict[str, float]) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    batches: list[NetworkBatch] = []
    runner = NetworkRunner(
        spark,
        spec(inputs),
        tmp_path / "run",
        target_s=2.0,
        planner=RoadMapPlanner(),
        shed=False,
        on_batch=batches.append,
    )
    values = np.random.default_rng(3).uniform(0, 100, 2_000)
    with runner:
        runner.start()
        runner.gate.apply(thresholds)
        wait_for_slot(runner.gate.line)
        table = pd.DataFrame({"id": np.arange(len(values)), "value": values})
        table.to_parquet(tmp_path / "numbers.parquet")
        (tmp_path / "numbers.parquet").rename(inputs / "numbers.parquet")
        runner.process_all_available()
        gated = runner.stages[-1].gated
    assert gated is not None
    assert gated.plan_order == ["numbers", "numbers"], "one pass for five outputs, one for the sixth"

    ranked = spark.createDataFrame(table).select("id", random_rank(["id", "value"], SALT).alias("rank"))
    rank = ranked.toPandas().set_index("id")["rank"].reindex(table["id"]).to_numpy()

    def kept(*arcs: str) -> pd.DataFrame:
        return table[rank >= max((thresholds.get(arc, 0.0) for arc in arcs), default=0.0)]

    small = kept("numbers->small").query("value < 10")
    uneven, ways = kept("numbers->uneven").query("id % 2 == 1"), kept("numbers->ways")
    expected = {
        "few": kept("numbers->small", "small->few").query("value < 10"),
        "halved": small.assign(part=small["value"] / 2)[["id", "part"]],
        "inverses": uneven.assign(part=1000).query("value > 50"),
        "lows": ways.query("value < 30"),
        "highs": ways.query("value > 20 and id < 500"),
        "triples": table[["value"]] * 3,
    }
    for output, rows in expected.items():
        found = sorted(tuple(row.asDict()[name] for name in rows.columns) for row in runner.sinks.tables[output])
        assert found == sorted(rows.itertuples(index=False, name=None)), output
        assert 0 < len(found) < len(table) or output == "triples"
    counted = {
        arc: tuple(sum(getattr(batch.counts[arc], name) for batch in batches) for name in ("arrived", "kept"))
        for arc in THRESHOLDS
    }
    assert counted == {
        "numbers->small": (len(table), len(kept("numbers->small"))),
        "small->few": (len(small), len(expected["few"])),
        "numbers->uneven": (len(table), len(kept("numbers->uneven"))),
        "numbers->ways": (len(table), len(ways)),
    }
