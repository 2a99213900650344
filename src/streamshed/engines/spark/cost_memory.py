"""What is believed of batches before any have run: what the last run found out, or what a spec says."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamshed.control import BatchCost, Controller, LoadSample, PlantController
from streamshed.distributed.arc_files import read_document, write_atomically
from streamshed.errors import StreamshedError
from streamshed.load import load_coefficients, total_load
from streamshed.network import Spec

_LOG = logging.getLogger(__name__)

_FIXED_S, _FIXED_SHARE = 0.5, 0.1  # of an empty batch; of the target at most
_READ_SHARE = 0.1
_LEAST_GROWTH = 0.5


def believed_cost(spec: Spec, target_s: float) -> BatchCost | None:
    """What batches cost by the statistics of a spec; None if they say nothing, or not all.

    >>> from streamshed.network import parse_spec
    >>> spec = parse_spec('''
    ... name: one
    ... streams: {s: {columns: {v: int}}}
    ... operators: {a: {type: filter, input: s, where: v > 1}}
    ... outputs: {o: {input: a}}
    ... statistics: {costs: {a: 0.002}}
    ... rates: {s: 100}
    ... ''')
    >>> cost = believed_cost(spec, 10.0)
    >>> cost.fixed_s, cost.read_s, cost.process_s
    (0.5, 0.0002, 0.002)
    """
    if spec.statistics.unknown_costs(spec.network):
        return None
    tuples_tps = sum(spec.rates.values())
    load = total_load(load_coefficients(spec.network, spec.statistics), spec.rates) / (spec.capacity or 1.0)
    if tuples_tps <= 0 or load <= 0:
        return None
    tuple_s = load / tuples_tps
    return BatchCost(min(_FIXED_S, _FIXED_SHARE * target_s), _READ_SHARE * tuple_s, tuple_s)


def cautious(cost: BatchCost, arrived: float, kept: float) -> BatchCost:
    """A cost model for batches that may be far larger than those it was found with.

    As long as batches were alike, it is not known what part of them grows with the tuples. If all of it were taken to
    be fixed, any backlog would seem to cost nothing: so at least half of a typical batch is taken to grow.

    Args:
        cost: what was found.
        arrived: tuples of a typical batch.
        kept: those of them that it kept.

    >>> cost = cautious(BatchCost(2.0, 0.0, 0.0), 1000, 500)
    >>> cost.fixed_s, cost.process_s
    (1.0, 0.002)
    """
    whole_s = cost.duration_s(arrived, kept)
    reading_s = cost.read_s * arrived
    if kept <= 0 or reading_s + cost.process_s * kept >= _LEAST_GROWTH * whole_s:
        return cost
    growing_s = _LEAST_GROWTH * whole_s
    return BatchCost(whole_s - growing_s, cost.read_s, (growing_s - reading_s) / kept, cost.error_s)


class CostMemory:
    """Lets a controller that starts again begin with costs that are about right.

    A controller that knows nothing keeps all tuples of its first batches. One that comes back to all that has arrived
    meanwhile would be at work on them for minutes. Controllers that know no costs have nothing to remember.

    Args:
        file: where costs are kept from one run to the next.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def recall(self, controller: Controller) -> None:
        """Tell a controller what the last run has found out, if there was one."""
        if not isinstance(controller, PlantController):
            return
        try:
            found: dict[str, Any] = read_document(self._file)
            if found:
                arrived = float(found["arrived"])
                controller.believe(cautious(BatchCost(**found["cost"]), arrived, float(found["kept"])), arrived)
        except (StreamshedError, KeyError, TypeError, ValueError) as error:
            _LOG.warning("the costs of the last run cannot be used: %s", error)

    def keep(self, controller: Controller, sample: LoadSample) -> None:
        """Remember what is known after a batch."""
        cost = controller.cost if isinstance(controller, PlantController) else None
        if cost is not None and sample.arrived:
            text = json.dumps({"cost": asdict(cost), "arrived": sample.arrived, "kept": sample.kept})
            with suppress(OSError):
                write_atomically(self._file, text)
