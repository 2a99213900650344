"""Scheduling: strategies, the master scheduler that runs several of them, and the optimizer that switches them."""

from streamshed.scheduling.base import Job, Slice, Step, Strategy, Turn, Unit, capacity_tps, release_bps
from streamshed.scheduling.capacity import arc_bytes, jobs, tuple_bytes
from streamshed.scheduling.decision_maker import Decision, DecisionMaker, reduced_weight
from streamshed.scheduling.decision_table import DEFAULT_TABLE, DecisionTable
from streamshed.scheduling.master import STRATEGIES, MasterScheduler, strategy_named
from streamshed.scheduling.optimizer import OPTIMIZER, Monitoring, OptimizerSettings, RuntimeOptimizer
from streamshed.scheduling.segments import segments, simplified_segments
from streamshed.scheduling.stages import StageCapacity, foreseen, stage_jobs, stage_queries, step_id
from streamshed.scheduling.strategies import (
    PathCapacity,
    RoundRobin,
    Segment,
    SimplifiedSegment,
    WeightedRoundRobin,
)

__all__ = [
    "DEFAULT_TABLE",
    "OPTIMIZER",
    "STRATEGIES",
    "Decision",
    "DecisionMaker",
    "DecisionTable",
    "Job",
    "MasterScheduler",
    "Monitoring",
    "OptimizerSettings",
    "PathCapacity",
    "RoundRobin",
    "RuntimeOptimizer",
    "Segment",
    "SimplifiedSegment",
    "Slice",
    "StageCapacity",
    "Step",
    "Strategy",
    "Turn",
    "Unit",
    "WeightedRoundRobin",
    "arc_bytes",
    "capacity_tps",
    "foreseen",
    "jobs",
    "reduced_weight",
    "release_bps",
    "segments",
    "simplified_segments",
    "stage_jobs",
    "stage_queries",
    "step_id",
    "strategy_named",
    "tuple_bytes",
]
