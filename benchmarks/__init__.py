"""Measurements of Streamshed on this machine: `make bench`."""
