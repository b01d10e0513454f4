"""Empties the tables that an epoch replaces; and the results of several statements of one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Connection, Cursor, sql

from abs_clients.postgres.errors import translate_errors
from abs_core.errors import SchemaError
from abs_sinks.postgres.apply.target import ResolvedTable


class Result(NamedTuple):
    """The result of one of several statements."""

    affected: int
    row: tuple[Any, ...] | None


def results_of(cursor: Cursor[Any]) -> list[Result]:
    found = []
    more: bool | None = True
    while more:
        found.append(Result(cursor.rowcount, cursor.fetchone() if cursor.description else None))
        more = cursor.nextset()
    return found


def delete(
    connection: Connection[Any],
    before: Sequence[sql.Composable],
    targets: Sequence[ResolvedTable],
) -> tuple[Any, ...] | None:
    """Delete the tables' rows; returns the row of ``before``.

    Raises:
        SchemaError: a trigger or a rule of a table has kept rows.
    """
    tables = emptied(targets)
    statements = deleting(targets)
    with translate_errors(f"replacing what table {', '.join(tables)} holds"):
        results = results_of(connection.execute(sql.SQL("; ").join([*before, *statements])))
    for label, kept in zip(tables, results[-2 * len(tables) :][1::2], strict=True):
        if kept.row != (False,):
            connection.execute("ROLLBACK")
            raise SchemaError(
                f"Rows of table {label} were not deleted: a trigger or a rule of the table "
                "prevents it.",
                remedy="drop it, or write the result by outputMode update and write=upsert.",
            )
    return results[1].row


def emptied(targets: Sequence[ResolvedTable]) -> dict[str, Any]:
    """The tables by label, in reverse order for foreign keys; a table of two sinks once."""
    return {target.table.label: target.table for target in reversed(targets)}


def deleting(targets: Sequence[ResolvedTable]) -> list[sql.Composed]:
    """For each table a DELETE, and whether rows are left."""
    # Not TRUNCATE: it waits for readers, and shows an empty table to older snapshots.
    statements = ("DELETE FROM {}", "SELECT EXISTS (SELECT FROM {})")
    tables = emptied(targets).values()
    return [sql.SQL(each).format(table.identifier) for table in tables for each in statements]
