"""Finds and removes what a job has left in a database besides its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection, sql

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import exists
from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import leased
from abs_core.errors import SchemaError
from abs_core.model import JobState
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.forgetting import forget_positions
from abs_sinks.postgres.options import PostgresOptions

_TABLES = """
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attname = 'replayed' and not a.attisdropped
 where c.relkind = 'r' and n.nspname !~ '^pg_' order by 1, 2
"""


def remove_traces(options: PostgresOptions, state: JobState, *, letters: bool) -> list[str]:
    """Remove markers, positions and, by consent, dead letters of a job that has ended.

    Args:
        letters: whether to delete its dead letters; else they are named.

    Returns:
        What was removed, and what is kept, for people.

    Raises:
        TargetError: the server refused or did not answer.
    """
    lines = forget_positions(options, state, wholly=True)
    doing = f"looking for what job {state.job} has left"
    with leased(options.server, doing=doing) as connection, translate_errors(doing):
        marker = options.state.table("marker")
        if exists(connection, marker.as_string()):
            query = sql.SQL("delete from {} where register = {}").format(marker, state.register)
            gone = connection.execute(query).rowcount
            lines += [f"deleted {gone} markers of prepared transactions"] if gone else []
        return lines + list(_letters(connection, state.job, letters=letters))


def _letters(connection: Connection[Any], job: str, *, letters: bool) -> Iterator[str]:
    for schema, name in connection.execute(_TABLES).fetchall():
        named = TableName(name, schema)
        table, label = named.identifier, str(named)
        try:
            letter_table.check(connection, named)
        except SchemaError:
            continue  # another table with such a column
        query = sql.SQL("select count(*) from {} where job = {}").format(table, job)
        row = connection.execute(query).fetchone()
        if row is None or not row[0]:
            continue
        if not letters:
            yield f"kept {row[0]} dead letters in {label}: add --dead-letters to delete them"
            continue
        connection.execute(sql.SQL("delete from {} where job = {}").format(table, job))
        rest = connection.execute(
            sql.SQL("select exists (select from {})").format(table)
        ).fetchone()
        if rest == (True,):
            yield f"deleted {row[0]} dead letters in {label}, which has letters of other jobs"
        else:
            connection.execute(sql.SQL("drop table {}").format(table))
            yield f"dropped {label} with {row[0]} dead letters"
