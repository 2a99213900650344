"""The experiments of the paper on control-based load shedding (figures 5 to 7, 12, 15 to 19, and the overhead).

Set-up as in the paper, section 5: 190 tuples a second, H = 0.97, T = 1 s, target 2 s, 400 s. Its engine is replaced by
the simulator: an ideal virtual queue, or a network of 14 operators where the claim is about a network. Its web trace is
used if one is given (`--trace`), else self-similar synthetic traffic. The heights of its cost trace (figure 14) are not
in the text; see `workload.costs.VaryingCost` for ours.
"""

from __future__ import annotations

from streamshed.experiments.claims import Reproduction, Settings
from streamshed.experiments.control_comparison import compare_controllers
from streamshed.experiments.control_model import verify_model
from streamshed.experiments.control_robustness import try_robustness


def reproduce(settings: Settings) -> Reproduction:
    """Run all of them."""
    parts = [verify_model(settings), compare_controllers(settings), try_robustness(settings)]
    return Reproduction(
        tuple(claim for part in parts for claim in part.claims),
        tuple(table for part in parts for table in part.tables),
        {name: draw for part in parts for name, draw in part.figures.items()},
    )
