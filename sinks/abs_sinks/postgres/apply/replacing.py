"""Empties the tables that an epoch replaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection, sql

from abs_clients.postgres.errors import translate_errors
from abs_core.errors import SchemaError
from abs_sinks.postgres.apply.message import Message
from abs_sinks.postgres.apply.target import ResolvedTable


class Emptying(NamedTuple):
    """Deletes a table's rows, and looks whether some are left."""

    label: str
    delete: sql.Composed
    left: sql.Composed


def emptying(targets: Sequence[ResolvedTable]) -> list[Emptying]:
    """For each table that an epoch replaces, in reverse order for foreign keys; once for two sinks."""
    # Not TRUNCATE: it waits for readers, and shows an empty table to older snapshots.
    tables = {target.table.label: target for target in reversed(targets) if target.write.empties}
    return [
        Emptying(
            label,
            sql.SQL("DELETE FROM {}").format(target.table.identifier),
            sql.SQL("SELECT EXISTS (SELECT FROM {})").format(target.table.identifier),
        )
        for label, target in tables.items()
    ]


def empty(connection: Connection[Any], message: Message, tables: Sequence[Emptying]) -> None:
    """Delete the tables' rows, with what waits in the message.

    Raises:
        SchemaError: a trigger or a rule of a table has kept rows.
    """
    statements = [statement for table in tables for statement in (table.delete, table.left)]
    named = ", ".join(table.label for table in tables)
    with translate_errors(f"replacing what table {named} holds"):
        results = message.results(connection.execute(message.text(statements)), statements)
    pairs = iter(results)
    for table, _, left in zip(tables, pairs, pairs, strict=True):
        if left.row != (False,):
            connection.execute("ROLLBACK")
            raise SchemaError(
                f"Rows of table {table.label} were not deleted: a trigger or a rule of the table "
                "prevents it.",
                remedy="drop it, or write the result by outputMode update and write=upsert.",
            )
