"""Planners: where to drop, which tuples, and what that costs. All behind one contract, `Planner.plan`."""

from streamshed.errors import UnknownNameError, did_you_mean
from streamshed.planning.admission import InputCostTop, InputCostUniform, InputRandom, InputUniform
from streamshed.planning.base import Drop, DropPlan, OutputEffect, Planner, ValueRange, residual_drop
from streamshed.planning.fair.planner import FairPlanner
from streamshed.planning.optimal import OptimalPlanner
from streamshed.planning.place_weight import PlaceWeightPlanner, drop_places
from streamshed.planning.roadmap import RoadMap, RoadMapPlanner, SemanticRoadMapPlanner

PLANNERS: dict[str, type[Planner]] = {
    planner.name: planner
    for planner in (
        SemanticRoadMapPlanner,
        RoadMapPlanner,
        OptimalPlanner,
        FairPlanner,
        PlaceWeightPlanner,
        InputUniform,
        InputCostUniform,
        InputCostTop,
        InputRandom,
    )
}
"""Every planner by name, the best known first."""


def planner_named(name: str) -> Planner:
    """A new planner by its name."""
    if name not in PLANNERS:
        raise UnknownNameError(
            f"there is no planner {name!r}", where="planner", got=name, hint=did_you_mean(name, PLANNERS)
        )
    return PLANNERS[name]()


__all__ = [
    "PLANNERS",
    "Drop",
    "DropPlan",
    "FairPlanner",
    "InputCostTop",
    "InputCostUniform",
    "InputRandom",
    "InputUniform",
    "OptimalPlanner",
    "OutputEffect",
    "PlaceWeightPlanner",
    "Planner",
    "RoadMap",
    "RoadMapPlanner",
    "SemanticRoadMapPlanner",
    "ValueRange",
    "drop_places",
    "planner_named",
    "residual_drop",
]
