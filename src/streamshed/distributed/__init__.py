"""Load shedding across nodes: feasible input tables that travel upstream, and the coordinator that knows everything."""
