"""Controllers: when to shed, and how much. Pure Python: time is data."""

from streamshed.control.base import Controller, LoadSample, Outlook
from streamshed.control.cost import BatchCost, CostEstimator
from streamshed.control.plant import BatchAdmission, PlantController

__all__ = [
    "BatchAdmission",
    "BatchCost",
    "Controller",
    "CostEstimator",
    "LoadSample",
    "Outlook",
    "PlantController",
]
