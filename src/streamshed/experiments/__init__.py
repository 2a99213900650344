"""Experiments: data, table, figure, verdict."""
