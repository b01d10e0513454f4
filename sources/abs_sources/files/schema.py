"""Converts files' schemas and rows to types that every engine can read.

Columns match by exact name, else without regard to case (in formats that have column names). A
missing column is null. Values are cast only without loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from abs_clients.layouts import is_binary_view, is_string_view
from abs_core.errors import RowError, SchemaError

_is = pa.types
_PLAIN = (
    (_is.is_uint8, pa.int16()),
    (_is.is_uint16, pa.int32()),
    (_is.is_uint32, pa.int64()),
    (_is.is_uint64, pa.decimal128(20, 0)),
    (_is.is_float16, pa.float32()),
    (_is.is_large_string, pa.string()),
    (is_string_view, pa.string()),
    (_is.is_null, pa.string()),
    (_is.is_large_binary, pa.binary()),
    (is_binary_view, pa.binary()),
    (_is.is_fixed_size_binary, pa.binary()),
    (_is.is_date64, pa.date32()),
    (_is.is_time, pa.time64("us")),
    (_is.is_duration, pa.duration("us")),
)
"""Types that not every engine has, and what they are read as."""


def engine_schema(schema: pa.Schema) -> pa.Schema:
    """A file's schema in engine types; every column is nullable, as in Spark."""
    return pa.schema([pa.field(field.name, engine_type(field.type)) for field in schema])


def engine_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that holds every value, except that nanoseconds become microseconds."""
    types = pa.types
    if types.is_dictionary(kind):
        return engine_type(kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(engine_type(kind.value_type))
    if types.is_struct(kind):
        fields = [kind.field(n) for n in range(kind.num_fields)]
        return pa.struct([pa.field(f.name, engine_type(f.type)) for f in fields])
    if types.is_map(kind):
        return pa.map_(engine_type(kind.key_type), engine_type(kind.item_type))
    return next((taken for is_one, taken in _PLAIN if is_one(kind)), kind)


def match(wanted: Sequence[str], there: Sequence[str], name: str) -> dict[str, str]:
    """For each wanted column the file's one, if any; raises SchemaError if two could match."""
    found = {}
    for column in wanted:
        near = [column] if column in there else [n for n in there if n.lower() == column.lower()]
        if len(near) > 1 or list(there).count(near[0] if near else "") > 1:
            raise SchemaError(
                f"The file {name} has several columns that could be {column}: "
                f"{', '.join(near) or column}.",
                remedy="name one of them exactly, by .schema(...).",
            )
        if near:
            found[column] = near[0]
    return found


def fit(
    batch: pa.RecordBatch, schema: pa.Schema, columns: dict[str, str], name: str
) -> pa.RecordBatch:
    """The batch in exactly this schema; unchanged if it has it already.

    Raises SchemaError if a column's type cannot be cast, RowError if a value cannot.

    Args:
        columns: from ``match``.
        name: of the file.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        if field.name not in columns:
            if not field.nullable:
                raise SchemaError(
                    f"The file {name} has no column {field.name}.",
                    remedy="let the column be nullable in .schema(...), or move the file away.",
                )
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        arrays.append(_cast(batch.column(columns[field.name]), field, name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field, name: str) -> pa.Array:
    if array.type == field.type:
        return array
    try:
        return array.cast(field.type)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"The column {field.name} of the file {name} is {array.type}; it cannot be read as "
            f"{field.type}.",
            remedy="give a schema that fits by .schema(...), and cast in the query.",
        ) from error
    except pa.ArrowInvalid as error:
        raise RowError(
            f"A value of the column {field.name} of the file {name} cannot be read as "
            f"{field.type}: {error}",
            remedy="give a schema that holds it by .schema(...), and cast in the query.",
        ) from error
