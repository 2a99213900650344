"""Streamshed keeps Spark streams on time by shedding the least valuable part of an overload."""

__version__ = "0.1.0"
