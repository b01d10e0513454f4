"""The state schema: registers and markers; staging tables come and go in it.

It is created when it is first needed. Without the privilege, the error contains the statements for
another role.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.address import Server
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import pool
from abs_core.errors import RefusedError

# CREATE ... IF NOT EXISTS by two sessions at once fails in one of them with a unique violation, so
# they take turns by an advisory lock of this number ("abs1" in ASCII).
_TURN = 0x61627331

_EXIST = "select bool_and(to_regclass(t) is not null) from unnest(%s::text[]) t"

_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema};"

_TABLES = """
CREATE TABLE IF NOT EXISTS {schema}.register (
    job text PRIMARY KEY,
    version bigint NOT NULL,
    target text NOT NULL,
    state jsonb NOT NULL,
    changed timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE {schema}.register IS
    'abs-sinks: what is committed, one row per job. Deleting a row makes its job forget that.';
CREATE TABLE IF NOT EXISTS {schema}.marker (
    register text NOT NULL,
    generation bigint NOT NULL,
    epoch bigint NOT NULL,
    partition bigint NOT NULL,
    attempt text NOT NULL,
    job text NOT NULL,
    rows bigint NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (register, generation, epoch, partition, attempt)
) WITH (fillfactor = 50);
COMMENT ON TABLE {schema}.marker IS
    'abs-sinks: proof that a prepared transaction was committed, until its epoch is finished.';
"""


class MetadataSchema:
    """The state schema's names, and its creation.

    ``name`` is the option ``stateschema``.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self._server = server
        self._known = ("schema", name)

    def table(self, name: str) -> sql.Identifier:
        """A table in it, for a statement."""
        return sql.Identifier(self.name, name)

    def ensure(self, connection: Connection[Any]) -> None:
        """Create it if absent (outside a transaction); queries the server once per process.

        Raises RefusedError with the statements if this role may not create it.
        """
        if pool(self._server).answers.get(self._known):
            return
        names = [self.table(name).as_string() for name in ("register", "marker")]
        with translate_errors(f"looking for the schema {self.name}"):
            row = connection.execute(_EXIST, (names,)).fetchone()
        if row != (True,):
            self._create(connection)
        pool(self._server).answers[self._known] = True

    def forget(self) -> None:
        """Query the server again the next time: the schema was missing."""
        pool(self._server).answers.pop(self._known, None)

    def _create(self, connection: Connection[Any]) -> None:
        doing = f"creating the schema {self.name} for registers and markers"
        with translate_errors(doing):
            try:
                in_turn(connection, lambda: self._execute(connection))
            except psycopg.errors.InsufficientPrivilege as error:
                raise RefusedError(
                    f"This role may not create the schema {self.name}, which holds the registers: "
                    f"{error.diag.message_primary}.",
                    remedy="let the database's owner run this, and give this role SELECT, INSERT, "
                    "UPDATE, DELETE on the tables and USAGE, CREATE on the schema: "
                    f"{' '.join(self._sql(_SCHEMA + _TABLES).as_string().split())}",
                ) from error

    def _execute(self, connection: Connection[Any]) -> None:
        # CREATE SCHEMA IF NOT EXISTS needs rights on the database even where the schema exists.
        query = "select to_regnamespace(%s) is null"
        name = sql.Identifier(self.name).as_string()
        if connection.execute(query, (name,)).fetchone() == (True,):
            connection.execute(self._sql(_SCHEMA))
        connection.execute(self._sql(_TABLES))

    def _sql(self, text: LiteralString) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self.name))


def exists(connection: Connection[Any], relation: str) -> bool:
    """Whether there is a table of this name, which is written as in SQL."""
    query = "select to_regclass(%s) is not null"
    return connection.execute(query, (relation,)).fetchone() == (True,)


def in_turn(connection: Connection[Any], create: Callable[[], object]) -> None:
    """Create something in a transaction, one session of the database at a time."""
    with connection.transaction():
        connection.execute("select pg_advisory_xact_lock(%s)", (_TURN,))
        # The session may remember what was missing before the lock: it hears of another one's commit
        # when it next locks a relation, which looking for a schema does not.
        connection.execute("select from pg_catalog.pg_namespace limit 0")
        create()


def relatives(connection: Connection[Any], oid: int) -> list[tuple[str, str]]:
    """Schema and name of each table that a table shares rows with: its parents and its partitions."""
    return connection.execute(_RELATIVES, {"oid": oid}).fetchall()


_RELATIVES = """
with recursive above(oid) as (
    select %(oid)s::oid union select inhparent from pg_inherits join above on inhrelid = above.oid),
  below(oid) as (
    select %(oid)s::oid union select inhrelid from pg_inherits join below on inhparent = below.oid)
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.oid in (table above union table below) and c.oid <> %(oid)s order by 1, 2
"""
