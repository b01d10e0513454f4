"""Databases that are emptied and used again: that takes a tenth of what a new one takes.

To create and to drop a database costs the server 0.1 s of CPU and two checkpoints (its 300 files);
to drop what a test has made in it and to rename it, 0.01 s. The name is new each time, so nothing that
a process remembers of an address is true of the next database.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from abs_services import PostgresService, in_database

# Of catalogs that each database has of its own, those whose rows have numbers: PostgreSQL's own rows
# are below 16384.
_CATALOGS = """
select c.oid::regclass::text from pg_class c
  join pg_attribute a on a.attrelid = c.oid and a.attname = 'oid' and a.attnum > 0
 where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind = 'r' and not c.relisshared
 order by 1
"""
_SESSION_SCHEMAS = "nspname !~ '^pg_(toast_)?temp_'"
_KEPT_OUTSIDE = """
select datdba, datacl::text, dattablespace, datallowconn, datconnlimit, datistemplate,
       (select nspacl::text || nspowner::text from pg_namespace where nspname = 'public'),
       (select count(*) from pg_db_role_setting s where s.setdatabase = d.oid)
  from pg_database d where datname = current_database()
"""
_GONE_MS = 10_000


class Databases:
    """Those of one server; each is lent to one user at a time, empty and owned by the ordinary role."""

    def __init__(self, server: PostgresService) -> None:
        self._server = server
        self._spare: list[str] = []
        self._as_new: Any = None

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The libpq URI of an empty database. Sessions and prepared transactions in it end with it."""
        self._server.start()
        name = f"t_{secrets.token_hex(6)}"
        with self._admin() as admin:
            if self._spare:
                _run(admin, "alter database {} rename to {}", self._spare.pop(), name)
            else:
                owner = urlsplit(self._server.url).username or ""
                _run(admin, "create database {} owner {} template template0", name, owner)
        if self._as_new is None:
            with self._admin(name) as inside:
                self._as_new = _fingerprint(inside)
        try:
            yield in_database(self._server.url, name)
        finally:
            self._server.start()
            self._take_back(name)

    def close(self) -> None:
        """Drop those that nobody uses, unless the server's data goes with it."""
        if self._server.controllable:
            return
        with self._admin() as admin:
            for name in self._spare:
                _run(admin, "drop database {} with (force)", name)
        self._spare.clear()

    def _take_back(self, name: str) -> None:
        with self._admin(name) as inside:
            as_new = self._is_emptied(inside)
        with self._admin() as admin:
            if as_new and _renamed(admin, name, f"spare_{name}"):
                self._spare.append(f"spare_{name}")
            else:
                _run(admin, "drop database {} with (force)", name)

    def _is_emptied(self, inside: psycopg.Connection[Any]) -> bool:
        """Whether all that was made in it could be dropped; what another role owns is not."""
        for (gid,) in inside.execute(
            "select gid from pg_prepared_xacts where database = current_database()"
        ).fetchall():
            inside.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))
        inside.execute(
            "select pg_terminate_backend(pid, %s) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()",
            [_GONE_MS],
        )
        owner = urlsplit(self._server.url).username or ""
        _run(inside, "drop owned by {} cascade", owner)
        return bool(_fingerprint(inside) == self._as_new)

    def _admin(self, database: str | None = None) -> psycopg.Connection[Any]:
        url = self._server.admin_url
        return psycopg.connect(in_database(url, database) if database else url, autocommit=True)


def _fingerprint(inside: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """What tells a database from a new one: objects that are not PostgreSQL's, rights and settings."""
    catalogs = [name for (name,) in inside.execute(_CATALOGS).fetchall()]
    made = " union all ".join(
        f"select count(*) from {name} where oid >= 16384"
        + (f" and {_SESSION_SCHEMAS}" if name.endswith("pg_namespace") else "")
        for name in catalogs
    )
    counts = inside.execute(sql.SQL(made)).fetchall()
    return tuple(counts), inside.execute(_KEPT_OUTSIDE).fetchone()


def _renamed(admin: psycopg.Connection[Any], name: str, to: str) -> bool:
    """Whether it could be renamed: not while somebody has come back to it."""
    try:
        _run(admin, "alter database {} rename to {}", name, to)
    except psycopg.errors.ObjectInUse:
        return False
    return True


def _run(connection: psycopg.Connection[Any], statement: str, *names: str) -> None:
    given = [sql.Identifier(name) for name in names]
    connection.execute(sql.SQL(statement).format(*given))
