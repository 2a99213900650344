"""Several outputs in one pass over what they all read.

As branches of a union each of them would have its own tasks, and Spark would have to plan, send and start them for
every micro-batch: about 0.1 s a branch, however few tuples there are. In one pass every tuple is looked at once for all
of them; conditions tell for which it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamshed.engines.spark.operators import column
from streamshed.network import Arc, Filter, Map, Network, Output, Split
from streamshed.network.siblings import Siblings, computed_columns

_ANSWER, _ON = "_answer ", "_on "  # no column of a tuple begins so

Mark = Callable[[Arc, DataFrame, Column], tuple[DataFrame, Column]]


def in_one_pass(network: Network, siblings: Siblings, frame: DataFrame, mark: Mark) -> DataFrame:
    """A struct for each output, null in rows that are not for it; rows that are for none are left out.

    Args:
        network: what to compute.
        siblings: the outputs, and what leads to them.
        frame: the tuples that they read.
        mark: see `compile_stages`.
    """

    def follow(frame: DataFrame, arc: Arc, on: Column) -> DataFrame:
        source, target = network.nodes[arc.source], network.nodes[arc.target]
        if isinstance(source, Split):
            on = _where(on, source.branches[arc.branch or ""])
        frame, on = mark(arc, frame, on)
        match target:
            case Filter():
                # As a column: what follows refers to it several times, and would compute it as often.
                frame = frame.withColumn(_ON + arc.id, _where(on, target.where))
                on = column(_ON + arc.id)
            case Map():
                # Not for tuples of other branches: it may be dear, or an error.
                computed = {name: F.when(on, F.expr(target.select[name])) for name in computed_columns(target)}
                frame = frame.withColumns(computed)
            case Output():
                columns = map(column, network.schemas[target.id].columns)
                frame = frame.withColumn(_ANSWER + target.id, F.when(on, F.struct(*columns)))
        for onward in network.arcs_out_of[target.id]:
            frame = follow(frame, onward, on)
        return frame

    for arc in siblings.arcs:
        frame = follow(frame, arc, F.lit(True))
    rows = frame.select(*(column(_ANSWER + output).alias(output) for output in siblings.outputs))
    # Behind the observation the condition is a look at what was computed; else Spark would compute it twice.
    counts = [F.count(column(output)).alias(output) for output in siblings.outputs]
    some = reduce(Column.__or__, (column(output).isNotNull() for output in siblings.outputs))
    return rows.observe(f"{network.name}/{siblings.id}", *counts).where(some)


def _where(on: Column, predicate: str) -> Column:
    """Whether a tuple is on and a predicate holds, which is computed only if it is."""
    return F.when(on, F.coalesce(F.expr(predicate), F.lit(False))).otherwise(F.lit(False))
