"""Forgets positions of changes that guard rows which are gone, for a job that begins from nothing.

Positions outlive the rows that a person deletes: every change that is not newer would be taken for one
that was applied before, so the rows would never come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection, sql

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import exists
from abs_clients.postgres.pool import leased
from abs_core.model import AND, JobState
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
