"""How late what came out of a batch was, and what that leaves of each output's utility."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamshed.engines.spark.drops import ARRIVAL_QUANTILES
from streamshed.engines.spark.monitor import DropCounts
from streamshed.network import Network, Stream
from streamshed.network.stages import Stage
from streamshed.qos import LatencyGraph, latency_utility

_SHARES = (0.0, *ARRIVAL_QUANTILES, 1.0)


def on_arc(stage_id: str) -> str:
    """What counts the rows that are read from the durable arc of a stage."""
    return f"arc {stage_id}"


class Timeliness:
    """Tells in each batch what its outputs are worth.

    A tuple's delay goes from its arrival to the end of the batch that ends at an output. What counts for an output are
    the tuples that came into that batch through the sources upstream of it: streams, and durable arcs that carry the
    times of arrival along.

    Args:
        network: the network.
        cut: its stages.
        target_s: how late an answer may be, where an output has no latency graph.
    """

    def __init__(self, network: Network, cut: Sequence[Stage], target_s: float) -> None:
        self._target_s = target_s
        self._graphs: dict[str, LatencyGraph | None] = {output.id: output.qos.latency for output in network.outputs}
        self._sources = {stage.id: _sources(network, stage) for stage in cut}
        self._below = {stage.id: _below(network, stage) for stage in cut}

    def ends(self, stage_id: str, *, goes_on: bool) -> tuple[str, ...]:
        """The outputs for which tuples of a stage's batch have come to their end: all below, if nothing goes on."""
        return () if goes_on else self._below[stage_id]

    def of(self, output: str, stage_id: str, counts: Mapping[str, DropCounts], end_s: float) -> float | None:
        """The mean latency utility of the tuples delivered to an output; None if it is not known when they arrived.

        Args:
            output: its id.
            stage_id: whose batch it was.
            counts: what the drops of the batch did.
            end_s: when it ended.
        """
        sources = self._sources[stage_id]
        upstream = sources[output] if output in sources else sources[""]
        found = [counts[name] for name in upstream if name in counts]
        delivered = [one for one in found if one.kept]
        if not all(one.arrivals_s for one in delivered):
            return None
        return latency_utility(self._graphs[output], self._target_s, _spread(delivered, end_s))


class MeanUtilities:
    """Mean utilities of outputs over the batches of a run, each weighted by the tuples that had arrived for it.

    A batch of which not even the loss is known counts for nothing. One whose lateness is not known makes that of the
    whole run unknown.

    >>> means = MeanUtilities()
    >>> means.add({"a": 0.25, "b": None}, {"a": 0.5, "b": 0.5}, 100)
    >>> means.add({"a": 1.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, 300)
    >>> means.utilities, means.of_loss
    ({'a': 0.8125, 'b': None}, {'a': 0.875, 'b': 0.875})
    """

    def __init__(self) -> None:
        self._with_latency: dict[str, _Mean] = {}
        self._of_loss: dict[str, _Mean] = {}

    def add(self, utilities: Mapping[str, float | None], of_loss: Mapping[str, float | None], tuples: float) -> None:
        """Count a batch with so many tuples."""
        for output, utility in utilities.items():
            lost = of_loss.get(output)
            self._of_loss.setdefault(output, _Mean()).add(lost, tuples)
            with_latency = self._with_latency.setdefault(output, _Mean())
            with_latency.add(utility, tuples)
            if utility is None and lost is not None and tuples > 0:
                with_latency.is_known = False

    @property
    def utilities(self) -> dict[str, float | None]:
        """By output, with latency; None where it is not known."""
        return {output: mean.value for output, mean in self._with_latency.items()}

    @property
    def of_loss(self) -> dict[str, float | None]:
        """By output, as if nothing was late; None where nothing is known."""
        return {output: mean.value for output, mean in self._of_loss.items()}


@dataclass
class _Mean:
    total: float = 0.0
    weight: float = 0.0
    is_known: bool = True

    def add(self, value: float | None, weight: float) -> None:
        if value is not None:
            self.total += value * weight
            self.weight += weight

    @property
    def value(self) -> float | None:
        return self.total / self.weight if self.is_known and self.weight > 0 else None


def _spread(delivered: Iterable[DropCounts], end_s: float) -> Iterator[tuple[float, float, float]]:
    """So many tuples between two delays, evenly spread."""
    for counts in delivered:
        for (low, high), (first_s, last_s) in zip(pairwise(_SHARES), pairwise(counts.arrivals_s), strict=True):
            yield (high - low) * counts.kept, end_s - last_s, end_s - first_s


def _sources(network: Network, stage: Stage) -> dict[str, tuple[str, ...]]:
    """What counts a stage's sources, by the output below them; of a durable stage, under the empty text."""

    def above(end: str) -> tuple[str, ...]:
        found: dict[str, None] = {}
        pending, seen = [end], {end}
        while pending:
            node_id = pending.pop()
            for source in dict.fromkeys(arc.source for arc in network.arcs_into[node_id]):
                if source in stage.inputs:
                    is_stream = isinstance(network.nodes[source], Stream)
                    found[network.arcs_into[source][0].id if is_stream else on_arc(source)] = None
                elif source not in seen:
                    seen.add(source)
                    pending.append(source)
        return tuple(found)

    return {output: above(output) for output in stage.outputs} | ({} if stage.outputs else {"": above(stage.id)})


def _below(network: Network, stage: Stage) -> tuple[str, ...]:
    """The outputs that a stage ends in, or that are fed by it."""
    if stage.outputs:
        return stage.outputs
    fed = {stage.id}
    for arc in network.arcs:  # each after those that feed it
        if arc.source in fed:
            fed.add(arc.target)
    return tuple(output.id for output in network.outputs if output.id in fed)
