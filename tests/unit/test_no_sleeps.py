"""No test may depend on the machine's speed: who has to wait polls for what it waits for."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
ALLOWED = {TESTS / "polling.py", Path(__file__)}
SLEEPS = re.compile(r"\bsleep\(|\bTimer\(|import sleep\b")


def test_only_the_polling_helper_sleeps() -> None:
    files = [file for file in sorted(TESTS.rglob("*.py")) if file not in ALLOWED]
    assert len(files) > 50
    sleeping = [
        f"{file.relative_to(TESTS)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if SLEEPS.search(line)
    ]
    assert not sleeping, "use tests/polling.py, an event, or an injected clock"
