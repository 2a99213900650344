"""What `streamshed plan` knows, for programs: JSON, and files that are never half written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from streamshed.cli.outlook import Outlook
from streamshed.errors import StreamshedError
from streamshed.planning import Drop, DropPlan


def as_document(view: Outlook, plans: Mapping[str, DropPlan]) -> dict[str, Any]:
    """Everything that `streamshed plan` knows, for JSON."""
    return {
        "spec": {"name": view.spec.network.name, "file": view.source},
        "rates": dict(view.rates),
        "factor": view.factor,
        "capacity": view.capacity,
        "headroom": view.headroom,
        "load": {
            "total": view.load,
            "usable_capacity": view.usable,
            "excess": view.load - view.usable,
            "excess_share": view.excess,
            "coefficients": {stream: view.coefficients[stream] for stream in view.rates},
            "streams": view.stream_loads,
            "operators": view.operator_loads,
            "arc_rates": dict(view.arc_rates),
        },
        "plans": {name: _plan_document(plan) for name, plan in plans.items()},
        "not_by_value": dict(view.not_by_value),
    }


def _plan_document(plan: DropPlan) -> dict[str, Any]:
    return {
        "drops": [_drop_document(drop) for drop in plan.drops],
        "outputs": {
            effect.output: {
                "weight": effect.weight,
                "delivered": effect.delivered,
                "tuple_utility": effect.tuple_utility,
                "value_utility": effect.value_utility,
            }
            for effect in plan.outputs
        },
        "load_before": plan.load_before,
        "load_after": plan.load_after,
        "tuple_utility_loss": plan.tuple_utility_loss,
        "value_utility_loss": plan.value_utility_loss,
        "fits": plan.fits,
    }


def _drop_document(drop: Drop) -> dict[str, Any]:
    document: dict[str, Any] = {
        "arc": drop.arc,
        "kind": "by value" if drop.is_semantic else "random",
        "fraction": drop.fraction,
        "relative": drop.relative,
    }
    if drop.is_semantic and drop.column is not None:
        document["column"] = drop.column
        document["keeps"] = drop.predicate(drop.column)
        document["ranges"] = [
            {"low": item.cell.low, "high": item.cell.high, "dropped": item.dropped} for item in drop.ranges
        ]
    return document


def write_json(file: Path, document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write a document; a reader sees the old file or the whole new one."""
    with replacing(file, "--json") as stream:
        stream.write((json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


@contextmanager
def replacing(file: Path, option: str) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `file` that takes its place when all went well."""
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    except OSError as error:
        raise _unwritable(file, option, error) from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(file)
    except BaseException as error:
        with suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise _unwritable(file, option, error) from None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _unwritable(file: Path, option: str, error: OSError) -> StreamshedError:
    return StreamshedError(
        "the file cannot be written",
        where=f"{option} {file}",
        got=error.strerror,
        expected="a path that can be written",
    )
