import subprocess
import sys
from importlib import metadata

import pytest

import streamshed

HEAVY = ("pyspark", "py4j", "simpy", "matplotlib")


@pytest.fixture(scope="module")
def imported_modules() -> set[str]:
    """Top-level modules that a fresh interpreter holds after `import streamshed`."""
    code = "import sys, streamshed; print(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stdout.split()}


@pytest.mark.parametrize("module", HEAVY)
def test_import_is_light(imported_modules: set[str], module: str) -> None:
    assert "streamshed" in imported_modules
    assert module not in imported_modules


def test_version_matches_package_metadata() -> None:
    assert streamshed.__version__ == metadata.version("streamshed")
