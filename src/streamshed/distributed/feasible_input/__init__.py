"""Feasible input tables: what a node can take, and what comes of it, in the columns of its inputs."""
