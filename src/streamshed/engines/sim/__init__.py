"""The virtual-time engine: SimPy for the clock and the processes, numpy for trains of tuples."""

from streamshed.engines.sim.engine import simulate
from streamshed.engines.sim.result import SimResult
from streamshed.engines.sim.scheduled import Scheduling
from streamshed.engines.sim.tracks import SchedulingResult
from streamshed.engines.sim.windows import JoinWindow, Windows

__all__ = ["JoinWindow", "Scheduling", "SchedulingResult", "SimResult", "Windows", "simulate"]
