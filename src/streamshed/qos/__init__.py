"""Quality of service: piecewise-linear graphs of latency, loss tolerance and value, and the utilities they give."""

from streamshed.qos.graph import LatencyGraph, LossGraph, PiecewiseLinear
from streamshed.qos.spec import Qos
from streamshed.qos.utility import tuple_utility, value_utility
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
    "Histogram",
    "LatencyGraph",
    "LossGraph",
    "PiecewiseLinear",
    "Qos",
    "ValueGraph",
    "ValueShare",
    "cells_between",
    "derive_loss_graph",
    "interval_table",
    "loss_graph_from_shares",
    "tuple_utility",
    "value_shares",
    "value_utility",
]
