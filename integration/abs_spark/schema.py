"""Spark's schema as Arrow's, and batches made to fit it."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from abs_clients.avro.connect import CONNECT_SCHEMA
from abs_core.errors import SchemaError

# 3.5 has neither: it gives UTC, and refuses nothing. 4.0 to 4.2 have a flag where 4.3 has a name.
_KNOWN = signature(to_arrow_schema).parameters
_HOW: dict[str, Any] = {
    name: value
    for name, value in (
        ("error_on_duplicated_field_names_in_struct", True),
        ("timezone", "UTC"),
        ("timestamp_utc", True),
    )
    if name in _KNOWN
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark's batches have; nullability is kept, timestamps are in UTC.

    Raises:
        SchemaError: a type has no Arrow counterpart, or two columns of a struct share a name.
    """
    try:
        converted = to_arrow_schema(schema, **_HOW)
    except PySparkException as error:
        raise SchemaError(
            f"The input has a column that cannot be written: {error}",
            remedy="cast or drop it in Spark.",
        ) from error
    return converted.remove_metadata()


def input_schema(schema: StructType) -> pa.Schema:
    """As ``arrow_schema``, of what a sink is given.

    Raises:
        SchemaError: as there; or there are no columns.
    """
    if not schema.names:
        # Spark hands over no batch of such rows: a sink would commit them as none.
        raise SchemaError(
            "The input has no columns, so its rows would be lost.",
            remedy="select at least one column that the target has.",
        )
    return arrow_schema(schema)


def to_target_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch cast to exactly this schema, without a copy if it already has it.

    Spark labels timestamps with the session's time zone and may use large strings; these casts change
    no value.

    Raises:
        SchemaError: the batch's columns are not the schema's.
    """
    if batch.schema.equals(schema):
        return batch
    try:
        return _cast(batch, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaError(
            f"Spark sent a batch that does not have the schema it announced: {error}",
            remedy="this is a defect: please report it with both schemas.",
        ) from error


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """As ``RecordBatch.cast``, which pyarrow has since 16; the runtimes of Spark 3.5 have 14 and 15.

    Raises ValueError if the names are others, and what a cast of a column raises.
    """
    if batch.schema.names != schema.names:
        raise ValueError(f"the columns are {batch.schema.names}, not {schema.names}")
    # Arrow 26 cuts the nulls inside of lists in a cast, also to the same type.
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of a source's batches; timestamps without a zone are TIMESTAMP_NTZ.

    Raises:
        SchemaError: a type has no counterpart in Spark.
    """
    try:
        made = from_arrow_schema(schema.remove_metadata(), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise SchemaError(
            f"The source has a column that Spark cannot hold: {error}",
            remedy="give a schema without it, or with a type that it can be read as, by .schema(...).",
        ) from error
    for field, source in zip(made, schema, strict=True):
        meaning = (source.metadata or {}).get(CONNECT_SCHEMA.encode())
        if meaning is not None:
            field.metadata = {CONNECT_SCHEMA: meaning.decode()}
    return made


def to_spark_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A source's batch cast to exactly Spark's schema, without a copy if it already has it.

    Raises:
        SchemaError: the columns are others, or a value does not fit.
    """
    if batch.schema.equals(schema):
        return batch
    try:
        return _cast(batch.select(schema.names), schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, ValueError) as error:
        raise SchemaError(
            f"The source's rows do not have the schema that the query was planned with: {error}",
            remedy="give a schema that fits by .schema(...); its columns are found by name.",
        ) from error
