"""Settings that all tests share."""

import os
import sys

from hypothesis import settings

# The same examples in every run, so that a change is judged by what it changes, and not by the machine's speed. To
# look for new ones:
# HYPOTHESIS_PROFILE=default make test
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Spark's workers must run the interpreter of the tests, and figures must not need a display.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("MPLBACKEND", "Agg")
