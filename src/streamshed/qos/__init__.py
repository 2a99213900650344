"""Quality of service: graphs of latency, loss tolerance and value with their utilities, and goals over time."""

from streamshed.qos.goals import (
    DropOrder,
    Goal,
    Goals,
    Measure,
    OverTime,
    Priority,
    PriorityWeights,
    SheddingBy,
)
from streamshed.qos.graph import LatencyGraph, LossGraph, PiecewiseLinear
from streamshed.qos.spec import Qos
from streamshed.qos.utility import latency_utility, tuple_utility, value_utility
from streamshed.qos.value import (
    Cell,
    Histogram,
    ValueGraph,
    ValueShare,
    cells_between,
    derive_loss_graph,
    interval_table,
    loss_graph_from_shares,
    value_shares,
)

__all__ = [
    "Cell",
    "DropOrder",
    "Goal",
    "Goals",
    "Histogram",
    "LatencyGraph",
    "LossGraph",
    "Measure",
    "OverTime",
    "PiecewiseLinear",
    "Priority",
    "PriorityWeights",
    "Qos",
    "SheddingBy",
    "ValueGraph",
    "ValueShare",
    "cells_between",
    "derive_loss_graph",
    "interval_table",
    "latency_utility",
    "loss_graph_from_shares",
    "tuple_utility",
    "value_shares",
    "value_utility",
]
