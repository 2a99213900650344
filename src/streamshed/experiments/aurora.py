"""Aurora's experiments ("Load Shedding in a Data Stream Manager", section 6): figures 9 to 12."""

from __future__ import annotations

from dataclasses import astuple, fields

from streamshed.experiments.aurora_claims import verdicts
from streamshed.experiments.aurora_figures import loss_against_rate, ratio_against_excess, ratio_against_skew
from streamshed.experiments.aurora_runs import Check, measure_rates, measure_sharing, measure_simulated, measure_skews
from streamshed.experiments.claims import DataTable, Reproduction, Settings


def reproduce(settings: Settings) -> Reproduction:
    """Measure, and judge what the paper says."""
    rates = measure_rates(settings)
    skews = measure_skews(settings)
    sharing = measure_sharing(settings)
    checks = measure_simulated(settings)
    return Reproduction(
        verdicts(rates, skews, sharing, checks),
        (
            rates.table("figures-9-10", "Losses against the rate (shares of 1)", ["inter_arrival_time"]),
            skews.table("figure-11", "Losses against skew and rate (shares of 1)", ["skew", "inter_arrival_time"]),
            sharing.table("figure-12", "Losses on the shared network (shares of 1)", ["skew", "excess_load"]),
            DataTable(
                "simulator",
                "Plans in the simulator, beside the sample",
                tuple(check.name for check in fields(Check)),
                tuple(astuple(check) for check in checks),
            ),
        ),
        {
            "figure-9": lambda: loss_against_rate(rates, "tuple_loss", "Figure 9: tuple utility loss"),
            "figure-10": lambda: loss_against_rate(rates, "value_loss", "Figure 10: value utility loss"),
            "figure-11": lambda: ratio_against_skew(skews),
            "figure-12": lambda: ratio_against_excess(sharing),
        },
    )
