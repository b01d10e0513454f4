"""Converts types that Arrow's JSON reader does not know from text.

Dates are ISO 8601 text, binary is Base64, as Spark writes them.
"""

from __future__ import annotations

import base64
import binascii

import pyarrow as pa

from abs_core.errors import RowError, SchemaError
from abs_sources.files.schema import fit


def json_schema(schema: pa.Schema) -> pa.Schema:
    """The schema to read with Arrow; raises SchemaError for a type without conversion."""
    return pa.schema([pa.field(f.name, _read_as(f.type, f.name)) for f in schema])


def from_json(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """The batch in the schema's types; raises RowError for text that is no date or Base64."""
    columns = []
    for field, read in zip(schema, batch.columns, strict=True):
        columns.append(_decoded(read, name) if pa.types.is_binary(field.type) else read)
    batch = pa.RecordBatch.from_arrays(columns, names=schema.names)
    return fit(batch, schema, {column: column for column in schema.names}, name)


def _read_as(kind: pa.DataType, column: str, *, inner: bool = False) -> pa.DataType:
    types = pa.types
    if types.is_date(kind) or types.is_time(kind):
        return pa.string()
    if types.is_binary(kind) and not inner:
        return pa.string()
    if types.is_list(kind):
        return pa.list_(_read_as(kind.value_type, column, inner=True))
    if types.is_struct(kind):
        fields = [kind.field(n) for n in range(kind.num_fields)]
        return pa.struct([pa.field(f.name, _read_as(f.type, column, inner=True)) for f in fields])
    if types.is_map(kind) or types.is_binary(kind) or types.is_duration(kind):
        raise SchemaError(
            f"The column {column} cannot be read from JSON as {kind}.",
            remedy="read it as a string and convert it in the query (from_json, unbase64).",
        )
    return kind


def _decoded(texts: pa.Array, name: str) -> pa.Array:
    try:
        return pa.array(
            [None if t is None else base64.b64decode(t, validate=True) for t in texts.to_pylist()],
            pa.binary(),
        )
    except binascii.Error as error:
        raise RowError(
            f"A binary value of the file {name} is not Base64: {error}.",
            remedy="correct it, or read the column as a string.",
        ) from error
