"""The experiments of the papers that Streamshed stands on, to be run again. A paper is one module and one line here."""

from __future__ import annotations

import importlib

from streamshed.errors import UnknownNameError, did_you_mean
from streamshed.experiments.claims import (
    Claim,
    DataTable,
    Paper,
    Progress,
    Reproduction,
    Settings,
    as_documents,
    judged,
)

PAPERS: dict[str, Paper] = {
    "aurora": Paper(
        "Load Shedding in a Data Stream Manager (Tatbul et al., VLDB 2003)", "streamshed.experiments.aurora"
    ),
    "borealis": Paper(
        "Dealing with Overload in Distributed Stream Processing Systems (Tatbul, Zdonik; NetDB 2006)",
        "streamshed.experiments.borealis",
    ),
    "control": Paper(
        "Load Shedding in Stream Databases: A Control-Based Approach (Tu, Liu, Prabhakar, Yao; VLDB 2006)",
        "streamshed.experiments.control",
    ),
    "dissp": Paper(
        "Quality-Aware Load-Shedding in DISSP (chapter 5; SIC, fair shedding)", "streamshed.experiments.dissp"
    ),
    "mavstream": Paper(
        "Runtime Optimization and Load Shedding in MavStream: Design and Implementation (Kendai, UT Arlington 2006)",
        "streamshed.experiments.mavstream",
    ),
}
"""Every paper by the name that it has on the command line."""


def paper_named(name: str) -> Paper:
    """A paper by its name."""
    if name not in PAPERS:
        raise UnknownNameError(
            f"there is no paper {name!r}", where="reproduce", got=name, hint=did_you_mean(name, PAPERS)
        )
    return PAPERS[name]


def reproduce(name: str, settings: Settings) -> Reproduction:
    """Run all experiments of a paper."""
    result: Reproduction = importlib.import_module(paper_named(name).module).reproduce(settings)
    return result


__all__ = [
    "PAPERS",
    "Claim",
    "DataTable",
    "Paper",
    "Progress",
    "Reproduction",
    "Settings",
    "as_documents",
    "judged",
    "paper_named",
    "reproduce",
]
