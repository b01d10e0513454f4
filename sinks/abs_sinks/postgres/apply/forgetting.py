"""Forgets what a job has left in a database besides its rows.

Of a job that begins from nothing: positions of changes that guard rows which are gone. They outlive the
rows that a person deletes, so every change that is not newer would be taken for one that was applied
before, and the rows would never come back. Of a job that has ended: markers and dead letters, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection, sql

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import exists
from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import leased
from abs_core.errors import SchemaError
from abs_core.model import AND, JobState
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.changes import GONE
from abs_sinks.postgres.apply.changes_sql import lock_of
from abs_sinks.postgres.apply.committed import latest_name
from abs_sinks.postgres.apply.positions import agreed_in
from abs_sinks.postgres.apply.target import within
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister

_PLACES = """
select c.relname, obj_description(c.oid, 'pg_class'), current_database()
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = %s and c.relkind = 'r' and c.relname ~ '^positions_[0-9a-f]{32}$'
   and obj_description(c.oid, 'pg_class') is not null
 order by 1
"""

_LETTER_TABLES = """
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
  join pg_attribute a on a.attrelid = c.oid and a.attname = 'replayed' and not a.attisdropped
 where c.relkind = 'r' and n.nspname !~ '^pg_' order by 1, 2
"""

_ORPHANS = """
delete from {positions} p where p.{gone} is null
   and not exists (select from {table} t where ({keys}) = ({theirs}))
"""


def forget_positions(
    options: PostgresOptions, state: JobState, *, wholly: bool = False
) -> list[str]:
    """Delete the positions of rows that are gone, in the tables that a job has written to.

    The whole side table of a table that is empty or missing is dropped, with its tombstones.

    Args:
        wholly: drop them of tables with rows, too: no job applies changes any more.

    Returns:
        What was done, or why not, for people.

    Raises:
        TargetError: the server refused or did not answer.
    """
    targets = {sink.target for sink in state.sinks} or set(state.target.split(AND))
    doing = f"looking for positions of job {state.job}"
    with leased(options.server, doing=doing) as connection, translate_errors(doing):
        return [
            _forget(connection, options, state, target, name, agreed, wholly)
            for target in sorted(targets)
            for name, agreed in _sides(connection, options, target)
        ]


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


def _sides(
    connection: Connection[Any], options: PostgresOptions, target: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The side table of a target: its name, and what jobs have agreed on for it."""
    for name, comment, database in connection.execute(_PLACES, (options.stateschema,)).fetchall():
        agreed = agreed_in(comment, name)
        row = connection.execute("select parse_ident(%s)", (agreed["table"],)).fetchone()
        assert row is not None
        schema, table = row[0]
        if target.endswith(f"/{within(database, schema, table)}"):
            yield name, agreed


def _forget(
    connection: Connection[Any],
    options: PostgresOptions,
    state: JobState,
    target: str,
    name: str,
    agreed: dict[str, Any],
    wholly: bool,
) -> str:
    place = f"{options.stateschema}.{name}, the positions of table {agreed['table']}"
    others = PostgresRegister(options).others_on(target, state.job)
    if others:
        return f"kept {place}: job {', '.join(others)} writes to it, too"
    positions, table = sql.Identifier(options.stateschema, name), sql.SQL(agreed["table"])
    with connection.transaction():
        if exists(connection, agreed["table"]):
            # Before the look: whoever applies changes now could fill an empty table meanwhile.
            connection.execute(lock_of(agreed["table"]))
            empty = sql.SQL("select not exists (select from {})").format(table)
            if not wholly and connection.execute(empty).fetchone() != (True,):
                return _orphans(connection, positions, table, agreed, place)
        latest = sql.Identifier(options.stateschema, latest_name(name))
        connection.execute(
            sql.SQL("drop table {}; drop table if exists {}").format(positions, latest)
        )
    return f"dropped {place}{'' if wholly else ', which has no rows'}"


def _orphans(
    connection: Connection[Any],
    positions: sql.Identifier,
    table: sql.SQL,
    agreed: dict[str, Any],
    place: str,
) -> str:
    if agreed["positions"] != "side":
        return f"kept {place}: the table has rows"
    query = sql.SQL(_ORPHANS).format(
        positions=positions,
        table=table,
        gone=sql.Identifier(GONE),
        keys=sql.SQL(", ").join(sql.SQL("p.{}").format(sql.Identifier(k)) for k in agreed["key"]),
        theirs=sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(k)) for k in agreed["key"]),
    )
    gone = connection.execute(query).rowcount
    return f"deleted {gone} positions whose rows are gone from {place}; the table has other rows"


def _letters(connection: Connection[Any], job: str, *, letters: bool) -> Iterator[str]:
    for schema, name in connection.execute(_LETTER_TABLES).fetchall():
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
