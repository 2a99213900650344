"""What an operator is told when a target goes out of reach."""

import logging

import pytest

from streamshed.control import OutOfReach
from streamshed.engines.spark.loop import tell_reach

REACH = OutOfReach(2.0, 3.4, 8.395)
LOG = logging.getLogger("streamshed.test")


def test_it_is_said_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    for before, now in ((None, None), (None, REACH), (REACH, REACH), (REACH, None), (None, None)):
        tell_reach(LOG, "rides", before, now)
    assert [record.getMessage() for record in caplog.records] == [
        "rides: an empty batch takes 3.4 s: a target of 2 s cannot be held, one of 8.4 s can. "
        "Only what is too much for the machine is dropped.",
        "rides: the target of 2 s can be held again",
    ]
