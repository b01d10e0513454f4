"""Plans the copy of batches of one schema to one table, and checks that the input fits it.

Columns match by name: the exact name, else the only one that is equal without regard to case, as in
Spark. Order does not matter.

The server fills columns that the input lacks: by default, identity, generation, or NULL, of which a
start tells. NOT NULL without a default is an error. So columns can be added while queries write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from psycopg import sql

from abs_clients.arrow import alike, type_name
from abs_clients.postgres.name import columns_of
from abs_core.errors import SchemaError
from abs_sinks.postgres.columns.encode import (
    BinaryEncoder,
    Encoder,
    PlannedColumn,
    TextEncoder,
)
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.columns.type_mapping import Conversion, Wire, fit
from abs_sinks.postgres.columns.types import Column
from abs_sinks.refusals import MisfitError

_SHAPE = """
select md5(coalesce(string_agg(concat_ws(':', attnum, attname, atttypid, atttypmod, attnotnull,
                                         attgenerated, attidentity), ',' order by attnum), '')
           || row_security_active(c.oid))
  from pg_class c
  left join pg_attribute on attrelid = c.oid and attnum > 0 and not attisdropped
   and lower(attname) = any({names}::text[]) and attname <> all({added}::text[])
 where c.oid = to_regclass({table}) and c.oid = {oid}
 group by c.oid
"""
"""A digest of the names and types of the columns that the input has, and of those whose names differ
from them in case only; and whether row security applies. No row: the name is another table's, or
nobody's. A binary COPY of an int8 into a column that has become a timestamp would be accepted silently.
Columns that the input lacks may be added or dropped."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How batches are copied; can be pickled.

    Args:
        schema: of the input.
        columns: in COPY's order.
        added: those that the table lacked when the plan was made, and that are to be added.
    """

    table: CatalogTable
    schema: pa.Schema
    columns: tuple[PlannedColumn, ...]
    added: tuple[str, ...] = ()

    @property
    def format(self) -> Literal["binary", "text"]:
        """Binary, unless a column's binary form is unknown."""
        return "text" if any(c.conversion.wire is Wire.TEXT for c in self.columns) else "binary"

    @property
    def names(self) -> tuple[str, ...]:
        """The written columns, as the catalog spells them."""
        return tuple(planned.column.name for planned in self.columns)

    def shape_query(self) -> sql.Composed:
        """The query of the digest of the table's present shape, without the columns to be added."""
        return sql.SQL(_SHAPE).format(
            table=sql.Literal(self.table.label),
            oid=self.table.oid,
            names=[name.lower() for name in self.names],
            added=list(self.added),
        )

    def encoder(self) -> Encoder:
        """A new encoder, for one COPY."""
        kind = BinaryEncoder if self.format == "binary" else TextEncoder
        sources = {planned.column.name: planned.source for planned in self.columns}
        keys = (key for key in self.table.unique_keys if sources.keys() >= set(key))
        return kind(self.schema, self.columns, [sources[name] for name in next(keys, ())])

    def copy_statement(self, target: sql.Composable | None = None) -> sql.Composed:
        """COPY ... FROM STDIN, for the bytes of ``encoder``.

        The connection's client_encoding must be UTF8: in the binary format text is sent as it is.

        Args:
            target: a relation whose columns have these names and types; default: the table.
        """
        options = "FORMAT BINARY" if self.format == "binary" else "FORMAT TEXT, ENCODING 'UTF8'"
        return sql.SQL("COPY {} ({}) FROM STDIN WITH ({})").format(
            target or self.table.identifier,
            columns_of(self.names),
            sql.SQL(options),
        )


def plan_columns(
    schema: pa.Schema,
    table: CatalogTable,
    *,
    added: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> CopyPlan:
    """Plan the copy of batches of this schema; nullability does not matter, values are checked.

    Args:
        added: columns of ``table`` that are to be added to it first.
        left_out: columns of the input that are not written.

    Raises:
        SchemaError: lists everything that does not fit, each with a remedy.
    """
    matched, named, problems = _match(schema, table, left_out)
    planned = []
    for position, column in matched:
        result = _plan_one(schema.field(position), column)
        if isinstance(result, Conversion):
            planned.append(PlannedColumn(position, schema.field(position).name, column, result))
        else:
            problems.append(result)
    problems += _missing(table, named)
    if not problems and not planned:
        problems.append("the input has no columns")
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise SchemaError(
            f"The input does not fit table {table.label}, nothing was written:{listed}",
            remedy="correct each of these; the table has the columns "
            + ", ".join(f"{column.name} {column.type.label}" for column in table.columns)
            + ".",
        )
    return CopyPlan(table, schema, tuple(planned), tuple(added))


def _match(
    schema: pa.Schema, table: CatalogTable, left_out: Sequence[str]
) -> tuple[list[tuple[int, Column]], set[str], list[str]]:
    """Pairs of input position and column, the names matched, and the problems."""
    columns = {column.name: column for column in table.columns}
    taken: dict[str, str] = {}
    unsure: set[str] = set()
    matched: list[tuple[int, Column]] = []
    problems = []
    for position, name in enumerate(schema.names):
        if name in left_out:
            continue
        matches = alike(name, list(columns))
        if not matches:
            problems.append(
                f'column "{name}" ({type_name(schema.field(position).type)}) is not in the '
                f"table: drop it in "
                "Spark, add it to the table, or set schemachange to add or ignore"
            )
        elif len(matches) > 1:
            unsure |= set(matches)
            problems.append(
                f'column "{name}" could be any of {", ".join(matches)}: spell it as one of them'
            )
        elif matches[0] in taken:
            problems.append(
                f'columns "{taken[matches[0]]}" and "{name}" both mean column "{matches[0]}" of the '
                "table: drop or rename one"
            )
        else:
            taken[matches[0]] = name
            matched.append((position, columns[matches[0]]))
    return matched, unsure | set(taken), problems


def _plan_one(field: pa.Field, column: Column) -> Conversion | str:
    """The conversion, or the problem."""
    if column.generated:
        return (
            f'column "{column.name}" is generated by the server from other columns: '
            "drop it in Spark"
        )
    if column.identity == "a":
        return (
            f'column "{column.name}" is GENERATED ALWAYS AS IDENTITY: drop it in Spark, or '
            "ALTER COLUMN ... SET GENERATED BY DEFAULT"
        )
    try:
        conversion = fit(field.type, column.type)
    except MisfitError as error:
        return f'column "{column.name}": {error.reason}: {error.remedy}'
    if pa.types.is_null(conversion.plain) and column.not_null:
        return f'column "{column.name}" is NOT NULL, and the input has only NULLs for it'
    return conversion


def _missing(table: CatalogTable, named: set[str]) -> list[str]:
    return [
        f'column "{column.name}" {column.type.label} NOT NULL has no default and is missing in the '
        "input: add it in Spark, or a default to the table"
        for column in table.columns
        if column.not_null and column.name not in named and not column.fills_itself
    ]


def left_empty(plan: CopyPlan) -> list[str]:
    """The table's columns that stay NULL: the input lacks them, and they have no default."""
    return [
        column.name
        for column in plan.table.columns
        if column.name not in plan.names and not column.fills_itself
    ]
