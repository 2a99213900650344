"""Controllers: when to shed, and how much. Pure Python: time is data."""

from collections.abc import Callable, Mapping

from streamshed.control.aurora import AuroraController
from streamshed.control.base import Controller, HoldingController, LoadSample, Outlook, OutOfReach, Release
from streamshed.control.baseline import BaselineController
from streamshed.control.cost import BatchCost, CostEstimator
from streamshed.control.deadline import ArrivalDeadlineController, DeadlineController
from streamshed.control.plant import BatchAdmission, PlantController
from streamshed.control.pole_placement import Gains, PolePlacementController, place_poles
from streamshed.control.rate import HEADROOM, RateController
from streamshed.errors import UnknownNameError, did_you_mean

CONTROLLERS: dict[str, type[Controller]] = {
    controller.name: controller
    for controller in (
        DeadlineController,
        ArrivalDeadlineController,
        PolePlacementController,
        BaselineController,
        AuroraController,
    )
}
"""Every controller of an engine with a virtual queue by name, the best known first."""


BATCH_CONTROLLERS: dict[str, type[Controller]] = {
    controller.name: controller
    for controller in (PlantController, PolePlacementController, BaselineController, AuroraController)
}
"""Every controller of an engine with micro-batches by name. Its `deadline` is another: batches have a fixed cost."""


def controller_named(
    name: str,
    target_s: float,
    *,
    headroom: float = HEADROOM,
    among: Mapping[str, type[Controller]] = CONTROLLERS,
) -> Controller:
    """A new controller by its name.

    Args:
        name: its name.
        target_s: the delay to hold.
        headroom: the share of the processor that queries get, for those that have to be told.
        among: the controllers of the engine.
    """
    if name not in among:
        raise UnknownNameError(
            f"there is no controller {name!r}", where="controller", got=name, hint=did_you_mean(name, among)
        )
    kind: Callable[..., Controller] = among[name]
    return kind(target_s, headroom=headroom) if issubclass(among[name], RateController) else kind(target_s)


__all__ = [
    "BATCH_CONTROLLERS",
    "CONTROLLERS",
    "HEADROOM",
    "ArrivalDeadlineController",
    "AuroraController",
    "BaselineController",
    "BatchAdmission",
    "BatchCost",
    "Controller",
    "CostEstimator",
    "DeadlineController",
    "Gains",
    "HoldingController",
    "LoadSample",
    "OutOfReach",
    "Outlook",
    "PlantController",
    "PolePlacementController",
    "RateController",
    "Release",
    "controller_named",
    "place_poles",
]
