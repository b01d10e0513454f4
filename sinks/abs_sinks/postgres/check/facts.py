"""Reads the facts of a server, role and table that preflight looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.rows import dict_row

from abs_clients.postgres.connection import connect
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.options import PostgresOptions

_SERVER = """
select current_setting('server_version_num')::int as version,
       current_setting('max_prepared_transactions')::int as max_prepared,
       current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int as max_connections,
       current_setting('max_locks_per_transaction')::int * (
           current_setting('max_connections')::int
           + current_setting('max_prepared_transactions')::int) as max_locks,
       pg_is_in_recovery() as standby,
       current_setting('transaction_read_only')::bool as read_only,
       (select setting::int from pg_settings where name = 'statement_timeout') as statement_ms,
       coalesce((select setting::int from pg_settings where name = 'transaction_timeout'), 0)
           as transaction_ms,
       current_setting('fsync')::bool as fsync,
       current_setting('full_page_writes')::bool as full_page_writes,
       (select reset_val = 'off' from pg_settings where name = 'synchronous_commit')
           as asynchronous,
       (select count(*)::int from pg_prepared_xacts) as prepared,
       (select coalesce(max(extract(epoch from clock_timestamp() - prepared)), 0)::float8
          from pg_prepared_xacts) as oldest_prepared_s,
       (select gid from pg_prepared_xacts order by prepared limit 1) as oldest_prepared,
       has_database_privilege(current_database(), 'CREATE') as may_create_schema,
       has_database_privilege(current_database(), 'TEMPORARY') as may_create_temporary,
       to_regnamespace({schema}) is not null as state_exists,
       coalesce(has_schema_privilege(to_regnamespace({schema})::oid, 'USAGE'), false) as may_use_state,
       coalesce(has_schema_privilege(to_regnamespace({schema})::oid, 'CREATE'), false)
           as may_create_in_state,
       current_user::text as role
"""

_TABLE = """
select has_table_privilege(oid, 'INSERT') as may_insert,
       has_table_privilege(oid, 'UPDATE') as may_update,
       has_table_privilege(oid, 'SELECT') as may_select,
       has_table_privilege(oid, 'DELETE') as may_delete,
       relhasrules as has_rules,
       coalesce((select array_agg(tgname::text order by tgname) from pg_trigger
                  where tgrelid = pg_class.oid and not tgisinternal and tgenabled <> 'D'
                    and tgtype & 4 <> 0), '{{}}') as insert_triggers,
       coalesce((select array_agg(conname::text order by conname) from pg_constraint
                  where conrelid = pg_class.oid and condeferred), '{{}}') as deferred
  from pg_class where oid = {oid}
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts of the server, the database and the role.

    Args:
        version: as ``server_version_num``: 180004.
        max_locks: approximate size of the shared lock table.
        standby: in recovery: it takes no writes.
        read_only: a standby, or sessions that are read-only by default.
        statement_ms: statement_timeout of this role's sessions, in milliseconds; 0: none.
        transaction_ms: transaction_timeout (PostgreSQL 17 on), likewise.
        asynchronous: whether synchronous_commit is off by default.
        prepared: prepared transactions of the whole server.
        oldest_prepared_s: age of the oldest, in seconds.
        state_exists: whether the state schema is there.
    """

    version: int
    max_prepared: int
    max_connections: int
    max_locks: int
    standby: bool
    read_only: bool
    statement_ms: int
    transaction_ms: int
    fsync: bool
    full_page_writes: bool
    asynchronous: bool
    prepared: int
    oldest_prepared_s: float
    oldest_prepared: str | None
    may_create_schema: bool
    may_create_temporary: bool
    state_exists: bool
    may_use_state: bool
    may_create_in_state: bool
    role: str


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The role's rights on the table, and the table's triggers and the like.

    Args:
        deferred: the constraints that are INITIALLY DEFERRED.
    """

    may_insert: bool
    may_update: bool
    may_select: bool
    may_delete: bool
    has_rules: bool
    insert_triggers: tuple[str, ...]
    deferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a session to its server.

    Args:
        host: a name, an address, or the folder of a socket.
        password: whether one is given.
        sslmode: as libpq took it from the url or the environment; so is ``require_auth``.
    """

    host: str
    password: bool
    sslmode: str
    require_auth: str

    @property
    def local(self) -> bool:
        """Whether what is sent does not leave the machine."""
        return self.host.startswith(("/", "@", "127.")) or self.host in ("", "localhost", "::1")

    @property
    def in_clear(self) -> bool:
        """Whether libpq sends the password in clear if the server asks for it so."""
        ways = self.require_auth.replace(" ", "").split(",")
        positive = bool(ways[0]) and not ways[0].startswith("!")
        return "password" in ways if positive else "!password" not in ways


class Pooling:
    """Whether a pooler is in between, and what it keeps of a session."""

    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"
    STATEMENT = "statement"


def server_facts(connection: Connection[Any], options: PostgresOptions) -> ServerFacts:
    schema = sql.Literal(sql.Identifier(options.stateschema).as_string())
    return ServerFacts(**_one(connection, sql.SQL(_SERVER).format(schema=schema)))


def table_facts(connection: Connection[Any], table: CatalogTable) -> TableFacts:
    row = _one(connection, sql.SQL(_TABLE).format(oid=table.oid))
    lists = {name: tuple(row[name]) for name in ("insert_triggers", "deferred")}
    return TableFacts(**{**row, **lists})


def way_of(connection: Connection[Any]) -> Way:
    settings = {setting.keyword: setting.val for setting in connection.pgconn.info}
    text = {name.decode(): (value or b"").decode() for name, value in settings.items()}
    return Way(
        connection.info.host,
        bool(connection.pgconn.password),
        text["sslmode"],
        text.get("require_auth", ""),  # libpq 16 on
    )


def pooling(connection: Connection[Any], options: PostgresOptions) -> str:
    """One of ``Pooling``.

    A pooler gives clients a false process id. A statement pooler refuses to begin a transaction; a
    transaction pooler shows a second client a setting of the first, or moves the first while the
    second is in a transaction.
    """
    probe = "select pg_backend_pid(), current_setting('abs.probe', true)"
    first = connection.execute(probe).fetchone()
    assert first is not None
    if first[0] == connection.info.backend_pid:
        return Pooling.NONE
    with connect(options.server) as other:
        connection.execute("select set_config('abs.probe', 'seen', false)")
        try:
            other.execute("begin")
        except psycopg.OperationalError:
            return Pooling.STATEMENT
        seen = other.execute(probe).fetchone()
        again = connection.execute(probe).fetchone()
    shared = seen is not None and seen[1] == "seen"
    moved = again is None or again[0] != first[0] or again[1] != "seen"
    return Pooling.TRANSACTION if shared or moved else Pooling.SESSION


def _one(connection: Connection[Any], query: sql.Composed) -> Mapping[str, Any]:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query).fetchone()
    assert row is not None
    return row
