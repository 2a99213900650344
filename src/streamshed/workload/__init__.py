"""Workloads: when tuples arrive and what they hold. No Spark, no clock: every engine plays the same ones."""

from streamshed.workload.arrivals import (
    PATTERNS,
    ArrivalPattern,
    Burst,
    Constant,
    Pareto,
    Phases,
    Sinusoid,
    Step,
    Trace,
    pattern_from_options,
)
from streamshed.workload.generators import (
    GENERATORS,
    Expressway,
    Generator,
    Json,
    Uniform,
    generator_from_options,
)

__all__ = [
    "GENERATORS",
    "PATTERNS",
    "ArrivalPattern",
    "Burst",
    "Constant",
    "Expressway",
    "Generator",
    "Json",
    "Pareto",
    "Phases",
    "Sinusoid",
    "Step",
    "Trace",
    "Uniform",
    "generator_from_options",
    "pattern_from_options",
]
