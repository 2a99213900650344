"""The experiments of the thesis on MavStream's runtime optimizer (chapter 6), and the tables of its chapter 4."""

from __future__ import annotations

from streamshed.experiments.claims import Reproduction, Settings
from streamshed.experiments.mavstream_claims import verdicts
from streamshed.experiments.mavstream_figures import compared, errors, shed
from streamshed.experiments.mavstream_runs import measure, tables


def reproduce(settings: Settings) -> Reproduction:
    """Measure, and judge what the thesis says."""
    found = measure(settings)
    tight_s = found.lengths.tighten_s
    return Reproduction(
        verdicts(found),
        tables(found),
        {
            "single": lambda: compared(found.single, "6.1: a latency goal", {"latency_s": 1.0}, None),
            "different": lambda: compared(
                found.different, "6.2.1: latency must be satisfied, memory does not matter", {"latency_s": 0.5}, tight_s
            ),
            "same": lambda: compared(found.same, "6.2.2: both must be satisfied", {"latency_s": 0.5}, tight_s),
            "shedding-1000": lambda: shed(found, 1000),
            "shedding-500": lambda: shed(found, 500),
            "errors": lambda: errors(found.errors),
        },
    )
