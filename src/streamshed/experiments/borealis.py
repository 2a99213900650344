"""Borealis's shedder ("Dealing with Overload in Distributed Stream Processing Systems"): example and expectations.

The paper has no measurements. What it works out is worked out again, exactly; what it expects is measured: tables
against the linear optimum on random trees, and tables, a coordinator and neither of them under spikes in the simulator.
"""

from __future__ import annotations

from streamshed.experiments.borealis_example import work_out_example
from streamshed.experiments.borealis_spikes import compare_under_spikes
from streamshed.experiments.borealis_trees import try_trees
from streamshed.experiments.claims import Reproduction, Settings


def reproduce(settings: Settings) -> Reproduction:
    """Run all of them."""
    parts = [work_out_example(settings), try_trees(settings), compare_under_spikes(settings)]
    return Reproduction(
        tuple(claim for part in parts for claim in part.claims),
        tuple(table for part in parts for table in part.tables),
        {name: draw for part in parts for name, draw in part.figures.items()},
    )
