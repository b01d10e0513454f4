"""Spark's types for the columns of a PostgreSQL table."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_clients.postgres.pool import leased
from abs_core.errors import SchemaError
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.table import read_table
from abs_sinks.postgres.types import PgType

MAX_DIGITS = 38
MILLISECONDS = 3


def columns_of_table(given: Mapping[str, str]) -> tuple[T.StructType, set[str]]:
    """The columns that can be written, with Spark's types, and those of timestamp(0) to (3).

    Args:
        given: options of ``abs-postgres``; where the table is is enough.

    Raises:
        SchemaError: there is no such table.
        TargetError: the server refused or did not answer.
    """
    options = PostgresOptions.parse(given)
    with leased(
        options.server, doing=f"reading the shape of table {options.dbtable}"
    ) as connection:
        table = read_table(connection, options.dbtable)
    columns = [column for column in table.columns if not column.generated]
    rows = T.StructType([T.StructField(column.name, _type(column.type)) for column in columns])
    coarse = {
        column.name
        for column in columns
        if column.type.name == "timestamp" and column.type.fraction_digits <= MILLISECONDS
    }
    return rows, coarse


def _type(pg: PgType) -> T.DataType:
    if pg.element is not None:
        return T.ArrayType(_type(pg.element))
    if pg.name == "numeric":
        precision, scale = pg.numeric_size or (MAX_DIGITS, MAX_DIGITS // 2)
        if precision > MAX_DIGITS or not 0 <= scale <= precision:
            raise SchemaError(
                f"Spark has no type for {pg.label}: it has {MAX_DIGITS} digits at most.",
                remedy="give a schema that has this column as decimal(38, s), or leaves it out.",
            )
        return T.DecimalType(precision, scale)
    if pg.name == "time":
        raise SchemaError(
            "Spark has no type for a time of day that is on by default.",
            remedy="give a schema without the column, or make it an interval.",
        )
    return _TYPES.get(pg.name, T.StringType())


_TYPES: Mapping[str, T.DataType] = {
    "bool": T.BooleanType(),
    "int2": T.ShortType(),
    "int4": T.IntegerType(),
    "int8": T.LongType(),
    "float4": T.FloatType(),
    "float8": T.DoubleType(),
    "bytea": T.BinaryType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "timestamptz": T.TimestampType(),
    "interval": T.DayTimeIntervalType(),
}
