"""Settings that all tests share."""

import os
import sys

# Spark's workers must run the interpreter of the tests, and figures must not need a display.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("MPLBACKEND", "Agg")
