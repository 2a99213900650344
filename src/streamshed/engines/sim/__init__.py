"""The virtual-time engine: SimPy for the clock and the processes, numpy for trains of tuples."""

from streamshed.engines.sim.engine import simulate
from streamshed.engines.sim.result import SimResult

__all__ = ["SimResult", "simulate"]
