"""Experiments with DISSP's quality-aware shedder (the chapter on quality-aware load shedding, sections 5.1 to 5.4)."""

from __future__ import annotations

from streamshed.experiments import dissp_figures as figures
from streamshed.experiments import dissp_runs as runs
from streamshed.experiments import dissp_studies as studies
from streamshed.experiments.claims import DataTable, Reproduction, Settings
from streamshed.experiments.dissp_claims import Findings, verdicts


def reproduce(settings: Settings) -> Reproduction:
    """Measure, and judge what the chapter says."""
    found = Findings(
        undisturbed=studies.leave_undisturbed(settings),
        errors=studies.measure_errors(settings),
        one=runs.share_one_node(settings),
        ten=runs.share_ten_nodes(settings),
        unequal=runs.place_unequally(settings),
        bursty=runs.burst(settings),
        queries=runs.vary_queries(settings),
        nodes=runs.vary_nodes(settings),
        parts=runs.vary_parts(settings),
        lag=runs.vary_lag(settings),
        interval=studies.vary_interval(settings),
        churn=studies.come_and_go(settings),
        peak=studies.send_peak(settings),
        decisions_ms=studies.time_decisions(settings),
    )
    return Reproduction(
        verdicts(found),
        (
            found.one.table("one-node", "60 queries on one node", "overload"),
            found.ten.table("ten-nodes", "60 queries on ten nodes", "overload"),
            found.unequal.table("unequal-nodes", "60 queries on ten nodes that differ in load", "overload"),
            found.bursty.table("bursty", "60 queries with bursty sources on one node", "overload"),
            found.queries.table("queries", "More and fewer queries", "queries"),
            found.nodes.table("nodes", "More and fewer nodes", "nodes"),
            found.parts.table("parts", "Queries in more and fewer parts", "parts"),
            found.lag.table("lag", "Reports that take longer", "lag_s"),
            found.interval.table("interval", "The shedding interval", "interval_s"),
            _errors(found.errors),
            _churn(found.churn),
        ),
        {
            "one-node": lambda: figures.against_overload(found.one, "60 queries on one node", ("equal",)),
            "ten-nodes": lambda: figures.against_overload(found.ten, "60 queries in one to three parts on ten nodes"),
            "numbers": lambda: figures.in_numbers(found.queries, found.nodes, found.parts),
            "interval": lambda: figures.over_interval(found.interval),
            "error": lambda: figures.error_against_sic(found.errors),
            "churn": lambda: figures.over_time(found.churn),
        },
    )


def _errors(errors: studies.Errors) -> DataTable:
    rows = [
        (kind, sic, error)
        for kind, of_kind in errors.error.items()
        for sic, error in zip(errors.sic, of_kind, strict=True)
    ]
    return DataTable("error", "Mean error of a window's result", ("kind", "sic", "error"), tuple(rows))


def _churn(churn: studies.Churn) -> DataTable:
    rows = zip(churn.time_s.tolist(), churn.jain.mean(axis=0).tolist(), churn.mean.mean(axis=0).tolist(), strict=True)
    return DataTable("churn", "Nodes that come and go", ("time_s", "jain", "mean_sic"), tuple(rows))
