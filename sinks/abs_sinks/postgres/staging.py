"""Staging tables as handles: one per attempt of a task, in the state schema.

A handle's name can be longer than an identifier, so its digest names the table and its comment holds
the name. A table is ours if its comment parses as a handle with that digest.

Tables are UNLOGGED if the epoch co-commits with the register: a server crash empties them, which the
count of rows shows before anything is applied. Otherwise LOGGED: retrying an epoch over several sinks
costs more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from psycopg import Connection, sql

from abs_core.errors import AbsError, NotPreparedError
from abs_core.model import Committable, HandleName, InDoubt
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.letter_table import IS_DEAD, IS_GOOD, staged_columns
from abs_sinks.postgres.options import PostgresOptions

_HELD = """
select d.description, c.relname, format('staging table %s', c.oid::regclass)
  from pg_class c
  join pg_description d on d.objoid = c.oid and d.classoid = 'pg_class'::regclass and d.objsubid = 0
 where c.relnamespace = to_regnamespace({schema}) and c.relkind = 'r' and c.relname like 'staged\\_%'
"""

# A lock without a pid is a prepared transaction's.
_LOCKED = """
select c.relname from pg_locks l join pg_class c on c.oid = l.relation
 where l.pid is null and c.relnamespace = to_regnamespace({schema})
   and l.database = (select oid from pg_database where datname = current_database())
"""

_CREATE = """
create {kind} table {table} ({columns}) with (autovacuum_enabled = off);
comment on table {table} is {name};
set local synchronous_commit = {durable}
"""

_COUNTS = "select {}, count(*), count(*) filter (where {}) from {}"

_EXISTING = "select t from unnest(%s::text[]) t where to_regclass(t) is not null"


def staging_columns(plan: CopyPlan) -> sql.Composed:
    """Column definitions of a staging table: names, types and collations, without constraints.

    A domain's own conditions are left to the table: a delete may have no more than its key.
    """
    # The collation decides which keys are equal, and which orderby is the greatest.
    return sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            sql.Identifier(planned.column.name),
            sql.SQL(planned.column.type.domain_of or planned.column.type.label),
            sql.SQL(f" collate {collation}" if (collation := planned.column.collation) else ""),
        )
        for planned in plan.columns
    )


def columns_of_staging(options: PostgresOptions, plan: CopyPlan) -> sql.Composed:
    """The definitions of a staging table's columns, with those of dead letters if it may have some."""
    rows = staging_columns(plan)
    return rows if options.letters is None else sql.SQL(", ").join([rows, staged_columns()])


def good(options: PostgresOptions) -> sql.Composable | None:
    """The condition of staged rows that are not dead; None where all are good."""
    return None if options.letters is None else IS_GOOD


class Staging:
    """The staging tables of one state schema. The driver's errors pass through unmapped."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._schema = options.stateschema

    def table(self, handle: HandleName) -> sql.Identifier:
        """The name of a handle's table."""
        return sql.Identifier(self._schema, _table_name(handle))

    def winners(self, handle: HandleName, suffix: str) -> sql.Identifier:
        """The name of a table for the winners of staged changes, which lives within one transaction."""
        name = f"judged_{_table_name(handle)[len('staged_') :]}{suffix}"
        return sql.Identifier(self._schema, name)

    def creating(self, handle: HandleName, plan: CopyPlan, *, logged: bool) -> sql.Composed:
        """The statements that create the table in a transaction.

        UNLOGGED does not wait for the disk: a crash that loses its creation loses its rows anyway.
        """
        return sql.SQL(_CREATE).format(
            kind=sql.SQL("" if logged else "unlogged"),
            table=self.table(handle),
            columns=columns_of_staging(self._options, plan),
            name=str(handle),
            durable=sql.SQL("on" if logged else "off"),
        )

    def existing(
        self, connection: Connection[Any], handles: Sequence[HandleName]
    ) -> set[HandleName]:
        """The handles whose table exists."""
        if not handles:
            return set()
        by_name = {self.table(handle).as_string(): handle for handle in handles}
        return {by_name[row[0]] for row in connection.execute(_EXISTING, (list(by_name),))}

    def held(self, connection: Connection[Any], handles: Sequence[HandleName]) -> set[HandleName]:
        """The handles whose table is locked by the prepared transaction composed of them."""
        schema = sql.Identifier(self._schema).as_string()
        locked = {row[0] for row in connection.execute(sql.SQL(_LOCKED).format(schema=schema))}
        return {handle for handle in handles if _table_name(handle) in locked}

    def in_doubt(self, connection: Connection[Any], job: str | None) -> list[InDoubt]:
        """The handles of this job's tables, by their comments; None: of any job's."""
        schema = sql.Identifier(self._schema).as_string()
        doubts = []
        for name, relation, detail in connection.execute(sql.SQL(_HELD).format(schema=schema)):
            handle = HandleName.parse(name)
            # Anybody can write such a comment: a table is ours only if its own name is the digest.
            if handle is not None and job in (None, handle.job) and _table_name(handle) == relation:
                doubts.append(InDoubt(handle, None, detail))
        return doubts

    def rows(self, connection: Connection[Any], handle: HandleName) -> int:
        """How many rows the table holds."""
        query = sql.SQL("select count(*) from {}").format(self.table(handle))
        row = connection.execute(query).fetchone()
        return 0 if row is None else int(row[0])

    def incomplete(
        self, connection: Connection[Any], staged: Sequence[Committable]
    ) -> AbsError | None:
        """The error of staged rows that are not all there; None if they are."""
        there = self.existing(connection, [committable.handle for committable in staged])
        for committable in staged:
            handle = committable.handle
            rows = self.rows(connection, handle) if handle in there else 0
            if rows != committable.rows:
                return staged_incomplete(committable, rows)
        return None

    def counts(
        self, connection: Connection[Any], handles: Sequence[HandleName]
    ) -> dict[HandleName, tuple[int, int]]:
        """How many rows, and dead letters among them, each table holds; they have ``STAGED``."""
        if not handles:
            return {}
        queries = (
            sql.SQL(_COUNTS).format(n, IS_DEAD, self.table(handle))
            for n, handle in enumerate(handles)
        )
        counts = connection.execute(sql.SQL(" union all ").join(queries)).fetchall()
        return {handles[n]: (rows, dead) for n, rows, dead in counts}

    def dropping(self, handles: Iterable[HandleName]) -> sql.Composed:
        """DROP TABLE for all of them."""
        return sql.SQL("drop table {}").format(sql.SQL(", ").join(map(self.table, handles)))

    def abort(self, connection: Connection[Any], handle: HandleName) -> None:
        """Drop the table; a missing one is not an error."""
        connection.execute(sql.SQL("drop table if exists {}").format(self.table(handle)))


def staged_incomplete(committable: Committable, rows: int) -> NotPreparedError:
    """The error for a staging table with other rows than were pre-committed."""
    return NotPreparedError(
        f"A staging table holds {rows} of {committable.rows} rows; nothing of the epoch is applied. "
        "A crash of the server empties staging tables.",
        handle=committable.handle,
        remedy="restart the query: the epoch is written again.",
    )


def _table_name(handle: HandleName) -> str:
    return f"staged_{blake2b(str(handle).encode(), digest_size=16).hexdigest()}"
