"""The columns of a PostgreSQL table that are filled from Debezium's events."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types as T  # noqa: N812 - as Spark users call it

from abs_clients.postgres.pool import leased
from abs_sinks.postgres import PostgresOptions
from abs_sinks.postgres.columns.table import read_table
from abs_sinks.postgres.columns.types import PgType
from abs_spark.cdc.target import TargetColumn


def columns_of_table(options: Mapping[str, str]) -> tuple[list[TargetColumn], tuple[str, ...]]:
    """The columns that can be written, and the primary key.

    A type whose values one of Spark's does not all hold (infinity, NaN, years before 1, more than 38
    digits) is filled by its text.

    Args:
        options: of ``abs-postgres``; where the table is is enough.

    Raises:
        SchemaError: there is no such table.
        TargetError: the server refused or did not answer.
    """
    parsed = PostgresOptions.parse(options)
    with leased(parsed.server, doing=f"reading the shape of table {parsed.dbtable}") as connection:
        table = read_table(connection, parsed.dbtable)
    columns = [column for column in table.columns if not column.generated]
    return [_target(column.name, column.type) for column in columns], table.primary_key


def _target(name: str, pg: PgType) -> TargetColumn:
    items = None if pg.element is None else _target(name, pg.element)
    spark = _TYPES.get(pg.name, T.StringType())
    if items is not None:
        spark = T.ArrayType(items.spark)
    digits = pg.fraction_digits if pg.category in ("D", "T") else 6
    return TargetColumn(name, spark, pg.name, digits, items, enum=pg.category == "E")


_TYPES: Mapping[str, T.DataType] = {
    "bool": T.BooleanType(),
    "int2": T.ShortType(),
    "int4": T.IntegerType(),
    "int8": T.LongType(),
    "float4": T.FloatType(),
    "float8": T.DoubleType(),
    "bytea": T.BinaryType(),
}
