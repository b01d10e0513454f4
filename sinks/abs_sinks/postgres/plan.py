"""The plan to copy batches of one schema to one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from psycopg import sql

from abs_sinks.postgres.encode import BinaryEncoder, Encoder, PlannedColumn, TextEncoder
from abs_sinks.postgres.table import Table
from abs_sinks.postgres.type_mapping import Wire

_SHAPE = """
select md5(coalesce(string_agg(concat_ws(':', attnum, attname, atttypid, atttypmod, attnotnull,
                                         attgenerated, attidentity), ',' order by attnum), ''))
  from pg_attribute
 where attrelid = to_regclass({table}) and attnum > 0 and not attisdropped
   and lower(attname) = any({names}::text[]) and attname <> all({added}::text[])
"""
"""A digest of the names and types of the columns that the input has, and of those whose names differ
from them in case only. A binary COPY of an int8 into a column that has become a timestamp would be
accepted silently. Columns that the input lacks may be added or dropped."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How batches are copied; can be pickled.

    Args:
        schema: of the input.
        columns: in COPY's order.
        added: those that the table lacked when the plan was made, and that are to be added.
    """

    table: Table
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
            sql.SQL(", ").join(map(sql.Identifier, self.names)),
            sql.SQL(options),
        )
