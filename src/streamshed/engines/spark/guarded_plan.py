"""The plan of a network on Spark with its drops and counts in place: one frame for each stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streamshed.engines.spark.compile import compile_stages
from streamshed.engines.spark.connectors import ARRIVAL, RANK, RAW, parsed, well_formed
from streamshed.engines.spark.drops import Cells, random_rank
from streamshed.engines.spark.fused import alone, shared, together
from streamshed.engines.spark.gate import Gate
from streamshed.engines.spark.ranks import cell_number, location_rank
from streamshed.network import Arc, Network, Stream
from streamshed.network.siblings import Siblings
from streamshed.network.stages import Stage
from streamshed.planning.ranks import RankedCell, RankedLocation


class GuardedPlan:
    """Puts a drop at every location where a planner may want one.

    Args:
        network: what to compute.
        cut: its stages.
        passes: the outputs that share one.
        locations: where to drop.
        gate: drops and counts.
        salt: of all random drops.
        valued: by stream, the column by which its tuples are told apart, and the cells to count them in.
    """

    def __init__(
        self,
        network: Network,
        cut: Sequence[Stage],
        passes: Sequence[Siblings],
        locations: Sequence[RankedLocation],
        gate: Gate,
        salt: int,
        valued: Mapping[str, tuple[str, Sequence[RankedCell]]] | None = None,
    ) -> None:
        self._network = network
        self._cut = cut
        self._passes = passes
        self._locations = {location.arc: location for location in locations}
        self._gate = gate
        self._salt = salt
        self._valued = valued or {}

    def frames(
        self, read: Callable[[Stream], DataFrame], read_arc: Callable[[Stage, StructType], DataFrame]
    ) -> Mapping[str, DataFrame]:
        """What each stage gives, by its id: what goes to its durable arc, or a column for each of its outputs.

        Args:
            read: gives the tuples of a stream.
            read_arc: gives the tuples on the durable arc that a stage writes.
        """
        parts = compile_stages(self._network, read, read_arc, self._at_arc, self._at_read, self._passes, self._mark)
        return {stage.id: parts[stage.id] if stage.is_durable else self._outputs(stage, parts) for stage in self._cut}

    def parses_late(self, stream: Stream) -> bool:
        """Whether its entry drop needs no column: texts that are dropped need not be parsed then."""
        entry = self._locations.get(self._network.arcs_into[stream.id][0].id)
        deciding = [entry, *self._readers(stream)]
        return not stream.key and all(location is not None and location.column is None for location in deciding)

    def _outputs(self, stage: Stage, parts: Mapping[str, DataFrame]) -> DataFrame:
        """All outputs of a stage, in their order: `source_order` tells sources apart by it."""
        in_pass = {output: one.id for one in self._passes for output in one.outputs}
        found: dict[str, DataFrame] = {}
        for output in stage.outputs:
            if output in in_pass:
                found[in_pass[output]] = parts[in_pass[output]]
            else:
                found[output] = alone(output, parts[output])
        return together(list(found.values()))

    def _at_read(self, stage: Stage, frame: DataFrame) -> DataFrame:
        return self._gate.count(frame, f"arc {stage.id}", stream=stage.id, arrival=_arrival(frame))

    def _at_arc(self, arc: Arc, frame: DataFrame) -> DataFrame:
        location = self._locations.get(arc.id)
        if location is None:
            return frame
        stream = self._stream_above(arc)
        hashed, nested = self._hashed(arc, stream, frame)
        dropped = self._gate.drop(
            frame,
            arc.id,
            location_rank(location, hashed),
            stream=stream.id,
            entry=arc.is_entry,
            salt=self._salt,
            valid=well_formed(stream) if arc.is_entry else None,
            parse=(lambda raw, wanted: parsed(raw, stream, wanted)) if RAW in frame.columns else None,
            arrival=_arrival(frame) if arc.is_entry else None,
            cells=self._cells(stream, frame) if arc.is_entry else None,
            readers={reader.arc: location_rank(reader, hashed) for reader in self._readers(stream) if arc.is_entry},
            weighted=location.column is None,
            nested=nested,
        )
        if arc.is_entry and self._is_shared(stream):
            return shared(dropped, f"{self._network.name}/{arc.id}/shared", stream.key)
        return dropped

    def _cells(self, stream: Stream, frame: DataFrame) -> Cells | None:
        """In which cell of values a tuple of a stream is, as it comes in."""
        column, order = self._valued.get(stream.id, ("", ()))
        return Cells(cell_number(F.col(column), order), len(order)) if column in frame.columns else None

    def _mark(self, arc: Arc, frame: DataFrame, on: Column) -> tuple[DataFrame, Column]:
        location = self._locations.get(arc.id)
        if location is None:
            return frame, on
        stream = self._stream_above(arc)
        rank = location_rank(location, self._hashed(arc, stream, frame)[0])
        return self._gate.mark(frame, arc.id, rank, stream=stream.id, salt=self._salt, on=on)

    def _hashed(self, arc: Arc, stream: Stream, frame: DataFrame) -> tuple[Column, bool]:
        """A hash of each tuple, and whether the drops upstream go by the same."""
        key = stream.key or tuple(stream.columns)
        nested = set(key) <= set(frame.columns) or RANK in frame.columns
        if not nested:  # an operator has left columns out: other tuples, other ranks
            key = tuple(self._network.schemas[arc.source].columns)
        if RAW in frame.columns:
            return F.col(RANK), nested
        hashed = random_rank([name for name in key if name in frame.columns], self._salt)
        if RANK in frame.columns:  # behind a union, of some tuples
            hashed = F.coalesce(F.col(RANK), hashed)
        return hashed, nested

    def _is_shared(self, stream: Stream) -> bool:
        """Whether a stage reads a stream in several passes."""
        in_pass = {arc.id: one.id for one in self._passes for arc in one.arcs}
        arcs = [arc.id for arc in self._network.arcs_out_of[stream.id]]
        return any(len({in_pass.get(arc, arc) for arc in arcs if arc in stage.arcs}) > 1 for stage in self._cut)

    def _readers(self, stream: Stream) -> list[RankedLocation]:
        """The drops right behind a stream, if there is one on every arc: then it can drop what none of them keeps."""
        found = [self._locations.get(arc.id) for arc in self._network.arcs_out_of[stream.id]]
        return [] if None in found else [location for location in found if location is not None]

    def _stream_above(self, arc: Arc) -> Stream:
        """The stream whose key decides: the first one upstream."""
        while not arc.is_entry:
            arc = self._network.arcs_into[arc.source][0]
        node = self._network.nodes[arc.target]
        assert isinstance(node, Stream)
        return node


def _arrival(frame: DataFrame) -> Column | None:
    """When tuples arrived, in seconds since 1970; None where the source cannot tell."""
    return F.unix_micros(F.col(ARRIVAL)) / 1e6 if ARRIVAL in frame.columns else None
