"""What the tuples hold: generators by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamshed.errors import InvalidValueError
from streamshed.workload.expressway import Expressway
from streamshed.workload.hashing import hash64, unit
from streamshed.workload.options import Options, check_range
from streamshed.workload.profile import Ints
from streamshed.workload.rows import Generator

__all__ = ["GENERATORS", "Expressway", "Generator", "Json", "Uniform", "generator_from_options"]

_VALUE_SALT = 5


@dataclass(frozen=True)
class Uniform(Generator):
    """An id, which is the row's index, and a value spread evenly over 0 to 100.

    Attributes:
        malformed: the share of rows spoiled on purpose: id null, value null, NaN or infinite.

    >>> Uniform().generate(5, 7, seed=1).to_pylist()
    [{'id': 5, 'value': 17.29...}, {'id': 6, 'value': 94.48...}]
    """

    malformed: float = 0.0

    def __post_init__(self) -> None:
        check_range("generator 'uniform'", "malformed", self.malformed, 0, 1)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("value", pa.float64())])

    def _rows(self, index: Ints, seed: int, times_us: Ints | None) -> pa.RecordBatch:  # noqa: ARG002
        value = 100 * unit(hash64(seed, _VALUE_SALT, index))
        bad, how = self._spoiled(index, seed)
        kind = np.where(bad, how % 4, -1)
        value = np.where(kind == 2, np.nan, np.where(kind == 3, np.inf, value))
        columns = [pa.array(index, mask=kind == 0), pa.array(value, mask=kind == 1, from_pandas=False)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True)
class Json(Generator):
    """The rows of another generator as JSON text, in one column.

    Attributes:
        rows: makes the rows.
        malformed: the share of rows spoiled on purpose: a text cut short, no JSON at all, an empty text, or an object
            whose last field is a text where a number belongs.
        column: what the column is called.

    >>> Json(Uniform()).generate(5, 6, seed=1).to_pylist()
    [{'body': '{"id":5,"value":17.29...}'}]
    """

    rows: Generator
    malformed: float = 0.0
    column: str = "body"

    def __post_init__(self) -> None:
        check_range("encoding 'json'", "malformed", self.malformed, 0, 1)
        if self.rows.malformed:
            raise InvalidValueError(
                "the rows inside JSON text are spoiled already",
                where="encoding 'json'",
                got=f"malformed={self.rows.malformed}",
                expected="malformed on the encoding, not on its rows",
            )

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.column, pa.string())])

    def _rows(self, index: Ints, seed: int, times_us: Ints | None) -> pa.RecordBatch:
        batch = self.rows._rows(index, seed, times_us)
        parts: list[Any] = []
        for number, field in enumerate(batch.schema):
            before = f'{"," if number else "{"}"{field.name}":'
            if pa.types.is_timestamp(field.type):
                parts += [before + '"', _iso_times(batch.column(number)), 'Z"']
            else:
                parts += [before, batch.column(number).cast(pa.string())]
        body = pc.binary_join_element_wise(*parts, "}", "")
        bad, how = self._spoiled(index, seed)
        if bad.any():
            body = pc.replace_with_mask(body, pa.array(bad), _spoiled_texts(body.filter(pa.array(bad)), how[bad]))
        return pa.RecordBatch.from_arrays([body], schema=self.schema)


def _iso_times(column: pa.Array) -> pa.Array:
    # Arrow writes times without a zone 20 times as fast as times with one.
    return pc.replace_substring(column.view(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1)


def _spoiled_texts(body: pa.Array, how: Ints) -> pa.Array:
    kind = pa.array(how % 4)
    wrong_type = pc.binary_join_element_wise(
        pc.replace_substring_regex(body, pattern=r"[^:]*\}$", replacement=""), '"a few"}', ""
    )
    cut = pc.utf8_slice_codeunits(body, start=0, stop=10)
    texts = pc.choose(kind, cut, pa.scalar("<html>502 Bad Gateway</html>"), pa.scalar(""), wrong_type)
    return texts.cast(pa.string())


GENERATORS: Mapping[str, Generator] = {
    "uniform": Uniform(),
    "expressway": Expressway(),
    "expressway_json": Json(Expressway()),
}


def generator_from_options(options: Mapping[str, str] | Options) -> Generator:
    """Make the generator that the option `generator` names (default: uniform); its fields are further options.

    With `encoding` = `json`, the rows come as JSON text in the `column` (default: body); `expressway_json` is short for
    that.

    Args:
        options: text by name. Options that the generator does not have are refused, unless the caller passes `Options`
            and looks after the rest itself.

    >>> generator_from_options({"generator": "expressway", "cars": "200", "malformed": "0.01"})
    Expressway(cars=200, expressways=10, stopped_share=0.0075, malformed=0.01)
    >>> generator_from_options({"encoding": "json"})
    Json(rows=Uniform(malformed=0.0), malformed=0.0, column='body')
    """
    known = options if isinstance(options, Options) else Options(options, where="generator")
    model = known.choice("generator", "uniform", GENERATORS)
    default = "json" if isinstance(model, Json) else "columns"
    as_json = known.choice("encoding", default, {"json": True, "columns": False})
    rows = model.rows if isinstance(model, Json) else model
    generator: Generator = known.build(type(rows))
    if as_json:
        rows = replace(generator, malformed=0.0)  # type: ignore[type-var]
        generator = known.build(Json, rows=rows, malformed=generator.malformed)
    if known is not options:
        known.refuse_rest()
    return generator
