"""Query networks: streams, operators, arcs and outputs, their validation, and what is known about them."""

from streamshed.network.builder import Flow, NetworkBuilder
from streamshed.network.network import Network
from streamshed.network.node_specs import ARC, NodeSpec, node_spec, node_specs
from streamshed.network.nodes import (
    Aggregate,
    Aggregation,
    Arc,
    Connector,
    Filter,
    Join,
    Map,
    Node,
    Operator,
    Output,
    Split,
    Stream,
    Union,
)
from streamshed.network.placement import Part, Placement, cut
from streamshed.network.spec import Spec, load_spec, parse_spec
from streamshed.network.spec_dump import dump_spec
from streamshed.network.statistics import Statistics, check_rates

__all__ = [
    "ARC",
    "Aggregate",
    "Aggregation",
    "Arc",
    "Connector",
    "Filter",
    "Flow",
    "Join",
    "Map",
    "Network",
    "NetworkBuilder",
    "Node",
    "NodeSpec",
    "Operator",
    "Output",
    "Part",
    "Placement",
    "Spec",
    "Split",
    "Statistics",
    "Stream",
    "Union",
    "check_rates",
    "cut",
    "dump_spec",
    "load_spec",
    "node_spec",
    "node_specs",
    "parse_spec",
]
