"""Sources of our own, as Python data sources of Spark."""
