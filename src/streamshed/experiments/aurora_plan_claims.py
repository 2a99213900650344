"""What Aurora's paper says about its plans beside the figures: how good they are, and whether they keep their word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamshed.experiments.aurora_runs import TITLES, Check, Measurements, excess
from streamshed.experiments.claims import Claim, judged
from streamshed.experiments.samples import difference, ratio

NEXT_TO_NOTHING = 0.01
"""A loss below one per cent."""
ALMOST_THE_SAME = 0.02
"""Losses that differ by less than two percentage points."""


def of_plans(rates: Measurements, sharing: Measurements, checks: Sequence[Check]) -> tuple[Claim, ...]:
    """The claims that no figure shows."""
    planned = [
        ratio(data.of("roadmap", p, "planned_tuple_loss"), data.of("optimal", p, "planned_tuple_loss"))
        for data in (rates, sharing)
        for p in data.points
    ]
    furthest = max(planned, key=lambda found: found.mean)
    loads = {name: max(float(rates.of(name, p, "load").mean()) for p in rates.points) for name in rates.planners}
    fullest = max(loads, key=lambda name: loads[name])
    surprise = {
        name: [
            difference(rates.of(name, p, "tuple_loss"), rates.of(name, p, "planned_tuple_loss")) for p in rates.points
        ]
        for name in rates.planners
    }
    largest = {name: max(abs(found.mean) for found in row) for name, row in surprise.items()}
    shed = [check for check in checks if check.planner != "none"]
    apart = [
        abs(here - there)
        for c in shed
        for here, there in ((c.tuple_loss, c.sampled_tuple_loss), (c.value_loss, c.sampled_value_loss))
    ]
    crowded = [check for check in checks if check.planner == "none"]
    return (
        judged(
            "Section 4.3: the road map loses no more utility than necessary",
            "Taking the smallest loss/gain ratio first guarantees the least loss if the statistics are right.",
            f"Planned loss of Random-LS over that of the linear program: at most {furthest.mean:.4f} at any point of "
            "figures 9 and 12",
            furthest.mean < 1.01,
            otherwise="behind unions the first arc by ratio is not always part of the best plan",
        ),
        judged(
            "Section 3: plans bring the load into the capacity",
            "Drops are inserted so that the load of the network falls below the capacity.",
            f"Largest measured load of any planner at any rate, mean over networks: {loads[fullest]:.1%} of the "
            f"capacity ({TITLES[fullest]})",
            loads[fullest] < 1.01,
            otherwise="selectivities differ by the origin of tuples, and planners take their mean",
        ),
        judged(
            "Section 4: statistics suffice to know what a plan will cost",
            "Losses are computed beforehand from selectivities, costs and histograms.",
            "Largest difference of measured and planned tuple loss, mean over networks, in percentage points: "
            + "; ".join(f"{TITLES[name]} {100 * value:.1f}" for name, value in largest.items()),
            max(largest.values()) < NEXT_TO_NOTHING,
            otherwise="where a union mixes streams whose values have passed different filters, a later filter keeps "
            "more of one than of the other; planners of random drops take its selectivity as the same for all, and the "
            "best plan by that measure leans on the error. Drops by value know the values and are not affected",
        ),
        judged(
            "Abstract: shedding brings an overloaded system back into its useful range",
            "Without shedding queues and latencies grow without bound; with drops the system keeps up.",
            f"In the simulator, {100 * excess(min(c.inter_arrival for c in shed)):+.0f} % and less: at most "
            f"{max(c.under_way for c in shed):.2%} of the tuples still in queues at the end and "
            f"{max(c.delay_s for c in shed):.3f} s of mean delay with drops; "
            f"{min(c.under_way for c in crowded):.0%} or more of the tuples still in queues without",
            max(c.under_way for c in shed) < 0.05 and min(c.under_way for c in crowded) > 0.1,
            otherwise="the load after shedding is still above what the processor can take",
        ),
        judged(
            "Section 5: simulator and sample find the same losses",
            "The paper measures in a simulator with queues and round-robin scheduling.",
            f"Over {len(shed)} runs of the simulator: losses differ from those of the sample by "
            f"{100 * max(apart):.1f} percentage points at most, {100 * np.mean(apart):.1f} on average",
            max(apart) < ALMOST_THE_SAME,
            otherwise="the sample has no queues, and the simulator drops by rank: nested drops take the same tuples, "
            "where the sample tosses a coin for each",
        ),
    )
