"""Converts files' schemas and rows to types that every engine can read.

Columns match by exact name, else without regard to case (in formats that have column names). A
missing column is null. Values are cast only without loss (``cast_plain`` has the table of casts).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from abs_clients.arrow import Leaf, alike, cast_plain, plain_type
from abs_core.errors import RowError, SchemaError


def engine_schema(schema: pa.Schema) -> pa.Schema:
    """A file's schema in plain types, null as text; every column is nullable, as in Spark.

    Nanoseconds become microseconds.
    """
    fields = ((field.name, plain_type(field.type, null=pa.string())) for field in schema)
    return pa.schema([pa.field(*field) for field in fields])


def match(wanted: Sequence[str], there: Sequence[str], name: str) -> dict[str, str]:
    """For each wanted column the file's one, if any; raises SchemaError if two could match."""
    found = {}
    for column in wanted:
        near = alike(column, there)
        if len(near) > 1:
            raise SchemaError(
                f"The file {name} has several columns that could be {column}: "
                f"{', '.join(dict.fromkeys(near))}.",
                remedy="name one of them exactly, by .schema(...).",
            )
        if near:
            found[column] = near[0]
    return found


def fit(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    columns: dict[str, str],
    name: str,
    leaf: Leaf | None = None,
) -> pa.RecordBatch:
    """The batch in exactly this schema; unchanged if it has it already.

    Raises SchemaError if a column's type cannot be cast, RowError if a value cannot.

    Args:
        columns: from ``match``.
        name: of the file.
        leaf: as of ``cast_plain``.
    """
    if batch.schema.equals(schema) and leaf is None:
        return batch
    arrays = []
    for field in schema:
        if field.name not in columns:
            if not field.nullable:
                raise SchemaError(
                    f"The file {name} has no column {field.name}.",
                    remedy="let the column be nullable in .schema(...), or correct the file.",
                )
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        arrays.append(_cast(batch.column(columns[field.name]), field, name, leaf))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: pa.Array, field: pa.Field, name: str, leaf: Leaf | None) -> pa.Array:
    try:
        return cast_plain(array, field.type, field.name, leaf)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"The column {field.name} of the file {name} is {array.type}; it cannot be read as "
            f"{field.type}: {error}.",
            remedy="give a schema that fits by .schema(...), and cast in the query.",
        ) from error
    except pa.ArrowInvalid as error:
        raise RowError(
            f"A value of the column {field.name} of the file {name} cannot be read as "
            f"{field.type}: {error}",
            remedy="give a schema that holds it by .schema(...), and cast in the query.",
        ) from error
