"""Checks, converts and encodes batches to the bytes of a COPY, column by column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import is_

import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder
from pgpq.encoders import StringEncoderBuilder
from pgpq.schema import Jsonb

from abs_clients.arrow import cast_plain, is_list, plain_type, type_name
from abs_clients.buffers import bytes_of
from abs_core.errors import SchemaError
from abs_sinks.jsontext import joined, json_text
from abs_sinks.postgres.columns.checks import check_values
from abs_sinks.postgres.columns.payload import payload, unnest
from abs_sinks.postgres.columns.type_mapping import Conversion, Wire
from abs_sinks.postgres.columns.types import Column, PgType, becomes_json
from abs_sinks.refusals import (
    BadRows,
    BadValuesError,
    Code,
    Reason,
    converting,
    find_bad_rows,
    inside,
    naming_rows,
    parents_of,
    refuse,
)
from abs_sinks.text import plain_text

Aside = Callable[[pa.RecordBatch, BadRows], None]

SLICE_BYTES = 64 << 20
"""Larger batches are sliced, to keep Arrow string columns far below 2 GiB."""


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """A column of the input and its column of the table; position and name are the input's."""

    position: int
    source: str
    column: Column
    conversion: Conversion


class Encoder(ABC):
    """Makes the bytes of one COPY: header, any number of batches, finish.

    It may hold bytes back until a later call. After an error neither the encoder nor its COPY may be
    used.

    Args:
        key: columns of the input that identify a row, to name one.
    """

    def __init__(
        self, schema: pa.Schema, columns: Sequence[PlannedColumn], key: Sequence[str] = ()
    ) -> None:
        self._planned = self._seen = schema
        self._columns = columns
        self._key = tuple(key)
        self._rows = 0

    def header(self) -> bytes:
        """The start of the stream."""
        return b""

    def encode(self, batch: pa.RecordBatch, aside: Aside | None = None) -> bytes:
        """Check and encode a batch; the result can be empty.

        Args:
            aside: takes the rows that the table cannot hold, which are not encoded.

        Raises:
            SchemaError: the batch is of another schema.
            RowError: names the first row, and the column, with a value that the table cannot hold.
        """
        self._check_schema(batch.schema)
        if aside is None:
            with naming_rows(batch, self.bad_rows, self._rows, self._key):
                made = [self._encoded(piece) for piece in slices(batch)]
        else:
            made = [self._encoded_good(piece, aside) for piece in slices(batch)]
        self._rows += batch.num_rows
        return made[0] if len(made) == 1 else b"".join(made)

    def _encoded_good(self, piece: pa.RecordBatch, aside: Aside) -> bytes:
        try:
            return self._encoded(piece)  # all values are checked before anything is encoded
        except BadValuesError:
            bad = self.bad_rows(piece)
            if not bad:
                raise
        aside(piece, bad)
        good = bad.others(piece)
        return self._encoded(good) if good.num_rows else b""

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the table cannot hold; nothing is encoded."""

        def check(part: pa.RecordBatch) -> None:
            for piece in slices(part):
                self._converted(piece.columns)

        return find_bad_rows(batch, check)

    def finish(self) -> bytes:
        """The bytes held back, and the end of the stream."""
        return b""

    @abstractmethod
    def _encoded(self, piece: pa.RecordBatch) -> bytes: ...

    @abstractmethod
    def _wired(self, array: pa.Array, planned: PlannedColumn) -> pa.Array:
        """The checked values of a column, as they are sent."""

    def _check_schema(self, schema: pa.Schema) -> None:
        """Check that it is the planned schema; inner zones, names and layouts may differ."""
        if schema.equals(self._seen):
            return
        if _plain(schema) != _plain(self._planned):
            raise SchemaError(
                f"A batch has the columns {_named(schema)}, planned were {_named(self._planned)}.",
                remedy="give all batches of one writer the same schema.",
            )
        self._seen = schema

    def _converted(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of a batch in the plan's order, checked and converted."""
        return [self._convert(columns[planned.position], planned) for planned in self._columns]

    def _convert(self, array: pa.Array, planned: PlannedColumn) -> pa.Array:
        name, conversion = planned.source, planned.conversion
        with converting(name, planned.column.type.label):
            if array.type != conversion.arrow:
                array = cast_plain(cast_plain(array, conversion.plain), conversion.arrow)
            if planned.column.not_null and array.null_count:
                why = "are NULL, and the column is NOT NULL"
                reason = Reason(Code.NULL, name, why, "fill or filter them in Spark")
                refuse(reason, array.is_null())
            check_values(array, planned.column.type, name)
            return self._wired(array, planned)


class BinaryEncoder(Encoder):
    """COPY ... (FORMAT BINARY), by pgpq; it gets types that it does not know in binary form."""

    def __init__(
        self, schema: pa.Schema, columns: Sequence[PlannedColumn], key: Sequence[str] = ()
    ) -> None:
        super().__init__(schema, columns, key)
        # Positions as names: pgpq finds columns by name, and the input's may be unusual.
        fields = [pa.field(str(n), _wire_type(column)) for n, column in enumerate(columns)]
        self._schema = pa.schema(fields)
        builders = {
            field.name: StringEncoderBuilder.new_with_output(field, Jsonb())
            if column.conversion.wire is Wire.JSONB
            else ArrowToPostgresBinaryEncoder.infer_encoder(field)
            for field, column in zip(fields, columns, strict=True)
        }
        self._pgpq = ArrowToPostgresBinaryEncoder.new_with_encoders(self._schema, builders)

    def header(self) -> bytes:
        """Signature, flags and extension length (manual, COPY, Binary Format)."""
        return bytes(self._pgpq.write_header())

    def finish(self) -> bytes:
        """The bytes held back, and the trailer."""
        return bytes(self._pgpq.finish())

    def _encoded(self, piece: pa.RecordBatch) -> bytes:
        columns = piece.columns
        arrays = self._converted(columns)
        # As it came where nothing was converted; pgpq goes by position here.
        if len(arrays) != len(columns) or not all(map(is_, arrays, columns)):
            piece = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return bytes(self._pgpq.write_batch(piece))

    def _wired(self, array: pa.Array, planned: PlannedColumn) -> pa.Array:
        if planned.conversion.wire is Wire.PAYLOAD:
            return payload(array, planned.column.type, planned.source)
        if becomes_json(array.type, planned.column.type):
            return json_text(array, planned.source)
        return array


class TextEncoder(Encoder):
    """COPY ... (FORMAT TEXT), for tables with a column of unknown binary form.

    The text format has neither header nor trailer.
    """

    def _encoded(self, piece: pa.RecordBatch) -> bytes:
        lines = pc.binary_join_element_wise(*self._converted(piece.columns), "\t")
        return bytes_of(pc.binary_join_element_wise(lines, "\n", "")).tobytes()

    def _wired(self, array: pa.Array, planned: PlannedColumn) -> pa.Array:
        return copy_text(array, planned.column.type, planned.source)


def _plain(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, plain_type(field.type)) for field in schema]


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {type_name(field.type)}" for field in schema)


def _wire_type(planned: PlannedColumn) -> pa.DataType:
    conversion, pg = planned.conversion, planned.column.type
    if conversion.wire is Wire.PAYLOAD:
        return pa.binary()
    return pa.string() if becomes_json(conversion.arrow, pg) else conversion.arrow


def slices(batch: pa.RecordBatch, most_rows: int | None = None) -> list[pa.RecordBatch]:
    """The batch in slices of about ``SLICE_BYTES`` at most, and of ``most_rows``."""
    rows = batch.num_rows if most_rows is None else min(most_rows, batch.num_rows)
    # The buffers' size is cheap to get, and no less than what the rows take of them.
    if batch.get_total_buffer_size() > SLICE_BYTES and batch.nbytes > SLICE_BYTES:
        rows = min(rows, -(-batch.num_rows // -(-batch.nbytes // SLICE_BYTES)))
    if 0 < rows == batch.num_rows:
        return [batch]
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows or 1)]


NULL = r"\N"


def copy_text(array: pa.Array, pg: PgType, column: str) -> pa.StringArray:
    """Each value as a field of COPY's text format (manual, COPY, Text Format); NULL is ``\\N``.

    It is for types whose binary form only the server knows (inet, ranges, tsvector, types of
    extensions): strings are passed on as the type's text input.

    Args:
        array: of the type that ``fit`` chose, after ``check_values``.
        column: its name, for messages.

    Raises:
        RowError: nested lists are not rectangular; a date lies outside the years 1 to 9999.
    """
    if pa.types.is_null(array.type):
        return pa.repeat(NULL, len(array))
    text = _text(array, pg, column)
    if pc.any(pc.match_substring_regex(text, r"[\\\n\r\t]")).as_py():
        for character, escape in (("\\", r"\\"), ("\n", r"\n"), ("\r", r"\r"), ("\t", r"\t")):
            text = pc.replace_substring(text, character, escape)
    return text.fill_null(NULL)


def _text(array: pa.Array, pg: PgType, column: str) -> pa.StringArray:
    if becomes_json(array.type, pg):
        return json_text(array, column)
    if pg.element is not None and is_list(array.type):
        unnest(array, column)  # refuses what is not rectangular
        return _array_literal(array, pg.element, column)
    if pg.name == "uuid" and pa.types.is_binary(array.type):
        return pc.utf8_slice_codeunits(plain_text(array, column), 2)
    if pa.types.is_duration(array.type):
        # PostgreSQL writes the minimum as a clock, and cannot read it.
        ticks = array.view(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(ticks, "microseconds", " ")
    return plain_text(array, column)


def _array_literal(array: pa.Array, element: PgType, column: str) -> pa.StringArray:
    """Manual, 8.15.2: {"a","b\\"c",NULL}; inner arrays are not quoted."""
    inner = array.flatten()
    if is_list(inner.type):
        with inside(lambda: parents_of(array)):
            items = _array_literal(inner, element, column)
    elif pa.types.is_null(inner.type):
        items = pa.repeat("NULL", len(inner))
    else:
        with inside(lambda: parents_of(array)):
            items = _text(inner, element, column)
        items = pc.replace_substring(pc.replace_substring(items, "\\", "\\\\"), '"', '\\"')
        items = pc.binary_join_element_wise('"', items, '"', "").fill_null("NULL")
    text = joined(items, pc.list_value_length(array), "{", "}")
    return pc.if_else(array.is_valid(), text, None) if array.null_count else text
