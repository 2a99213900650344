"""Remembers into which stages a run was cut, because checkpoints and durable arcs fit no others."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from streamshed.errors import NetworkError
from streamshed.network.siblings import Siblings
from streamshed.network.stages import Stage

Layout = Mapping[str, Mapping[str, Any]]


def layout(stages: Sequence[Stage], frames: Mapping[str, DataFrame], passes: Sequence[Siblings] = ()) -> Layout:
    """What a run has to have in common with the one that it goes on from, by stage."""
    return {
        stage.id: {
            "operators": list(stage.operators),
            "inputs": list(stage.inputs),
            "outputs": list(stage.outputs),
            "passes": [one.id for one in passes if one.outputs[0] in stage.outputs],
            "columns": frames[stage.id].schema.simpleString() if stage.is_durable else None,
        }
        for stage in stages
    }


def check_layout(file: Path, now: Layout) -> None:
    """Compare the stages with those that a file tells of; write it if there is none.

    Raises:
        NetworkError: if a run with other stages was begun there.
    """
    try:
        before: Layout = json.loads(file.read_text())
    except FileNotFoundError:
        unfinished = file.with_name(f".{file.name}")
        unfinished.write_text(json.dumps(now, indent=1) + "\n")
        os.replace(unfinished, file)  # noqa: PTH105  (atomic)
        return
    changed = [
        f"{part} of stage {stage!r}: {of_stage[part]}"
        for stage, of_stage in now.items()
        for part in of_stage
        if stage in before and before[stage].get(part) != of_stage[part]
    ]
    if before.keys() != now.keys() or changed:
        same = before.keys() == now.keys()
        raise NetworkError(
            "a run with other stages was begun in this directory",
            where=str(file.parent),
            got=changed[0] if same else f"stages {_listed(now)}",
            expected="as it was then" if same else f"stages {_listed(before)}",
            hint="go on with the spec and the options of that run, or begin anew in another directory",
        )


def _listed(stages: Layout) -> str:
    return ", ".join(repr(stage) for stage in stages)
