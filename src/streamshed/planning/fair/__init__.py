"""Fair shares: source information content (SIC), shedding that equalises it, and its continuous form for plans."""

from streamshed.planning.fair.cost import SMOOTHED_OVER, OverloadDetector, TupleCostModel
from streamshed.planning.fair.measures import Fairness, jain_index
from streamshed.planning.fair.observed import ObservedSic
from streamshed.planning.fair.policies import (
    POLICIES,
    Batches,
    FairPolicy,
    ProportionalPolicy,
    RandomPolicy,
    SheddingPolicy,
    policy_named,
)
from streamshed.planning.fair.shedder import Batch, InputBuffer, Shedder, Shedding
from streamshed.planning.fair.sic import Derived, derive, source_sic
from streamshed.planning.fair.water import water_fill, water_level
from streamshed.planning.fair.windows import INTERVAL_S, WINDOW_S, ResultSic, SourceWindow, WindowedSum

__all__ = [
    "INTERVAL_S",
    "POLICIES",
    "SMOOTHED_OVER",
    "WINDOW_S",
    "Batch",
    "Batches",
    "Derived",
    "FairPolicy",
    "Fairness",
    "InputBuffer",
    "ObservedSic",
    "OverloadDetector",
    "ProportionalPolicy",
    "RandomPolicy",
    "ResultSic",
    "Shedder",
    "Shedding",
    "SheddingPolicy",
    "SourceWindow",
    "TupleCostModel",
    "WindowedSum",
    "derive",
    "jain_index",
    "policy_named",
    "source_sic",
    "water_fill",
    "water_level",
]
