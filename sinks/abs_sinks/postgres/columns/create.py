"""CREATE TABLE for an input's schema (option ``createtable``)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from psycopg import sql

from abs_clients.arrow import alike, is_list, plain_type, type_name
from abs_clients.postgres.name import TableName, check_identifier
from abs_core.errors import OptionError, SchemaError
from abs_sinks.jsontext import require_json
from abs_sinks.refusals import MisfitError

MAX_COLUMNS = 1600
"""PostgreSQL's limit (manual, appendix K)."""


def create_table_statement(
    schema: pa.Schema, name: TableName, *, key: Sequence[str] = ()
) -> sql.Composed:
    """CREATE TABLE IF NOT EXISTS with the input's columns.

    Numbers, text, dates and times get the type of the same meaning (decimal(p,s) is numeric(p,s),
    TIMESTAMP is timestamptz, TIMESTAMP_NTZ is timestamp), lists of scalars an array, structs, maps
    and nested lists jsonb. Columns that are not nullable in the schema or in the key are NOT NULL.

    Two tasks that create the table at once can collide in the catalog (SQLSTATE 23505 or 42P07): the
    loser reads the table again.

    Args:
        key: columns of the primary key, in order; matched as columns of a table.

    Raises:
        SchemaError: a column's type has no equivalent, two have one name, or none is left.
        OptionError: the key names an unknown column, or a name is no identifier.
    """
    problems, definitions = [], []
    keyed = _key_columns(schema, key)
    for field in schema:
        check_identifier(field.name)
        try:
            declared = column_type(field.type)
        except MisfitError as error:
            problems.append(f'column "{field.name}": {error.reason}: {error.remedy}')
            continue
        required = not field.nullable or field.name in keyed
        definitions.append(
            sql.SQL("{} {}{}").format(
                sql.Identifier(field.name),
                sql.SQL(declared),
                sql.SQL(" NOT NULL" if required else ""),
            )
        )
    if len(set(schema.names)) < len(schema.names):
        problems.append("two columns have one name: rename one")
    if not 0 < len(schema) <= MAX_COLUMNS:
        problems.append(f"it has {len(schema)} columns; a table has 1 to {MAX_COLUMNS}")
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise SchemaError(
            f"No table {name} can be made for the input:{listed}",
            remedy="correct each of these.",
        )
    if keyed:
        columns = sql.SQL(", ").join(map(sql.Identifier, keyed))
        definitions.append(sql.SQL("PRIMARY KEY ({})").format(columns))
    return sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
        name.identifier, sql.SQL(", ").join(definitions)
    )


def _key_columns(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    names = []
    for wanted in key:
        matches = alike(wanted, schema.names)
        if len(matches) != 1:
            raise OptionError(
                f'The key names column "{wanted}", and the input has '
                f"{'several such' if matches else 'none'}.",
                remedy=f"take some of {', '.join(schema.names)}.",
            )
        names.append(matches[0])
    return names


_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.time64("us"): "time",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
    pa.duration("us"): "interval",
    pa.month_day_nano_interval(): "interval",
}


def column_type(arrow: pa.DataType) -> str:
    """The SQL type for an Arrow type; ``MisfitError`` if there is none."""
    plain = plain_type(arrow)
    if pa.types.is_decimal128(plain):
        return f"numeric({plain.precision},{plain.scale})"
    if is_list(plain) and not pa.types.is_nested(plain.value_type):
        return f"{column_type(plain.value_type)}[]"
    if pa.types.is_nested(plain):
        require_json(plain)
        return "jsonb"
    declared = _TYPES.get(plain)
    if declared is None:
        raise MisfitError(f"there is no column type for {type_name(arrow)}", "cast it in Spark")
    return declared
