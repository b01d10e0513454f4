"""A fresh database per test on a shared server: cheaper than a fresh server (50 ms)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from abs_services.contracts import PostgresService
from abs_services.roles import ROLE


@contextmanager
def fresh_database(server: PostgresService) -> Iterator[str]:
    """The libpq URI of a new database that the server's ordinary role owns.

    It is dropped at the end with all sessions and prepared transactions in it. A server that is
    down (a test killed it) is started for that.
    """
    server.start()
    name = f"t_{secrets.token_hex(6)}"
    create_database(server.admin_url, name, owner_of=server.url)
    try:
        yield in_database(server.url, name)
    finally:
        server.start()
        _drop(server.admin_url, name)


def create_database(admin_url: str, name: str, *, owner_of: str) -> None:
    """Create a database that the role of another URI owns; errors of psycopg pass."""
    owner = urlsplit(owner_of).username or ROLE
    with psycopg.connect(admin_url, autocommit=True) as admin:
        create = sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0")
        admin.execute(create.format(sql.Identifier(name), sql.Identifier(owner)))


def in_database(url: str, name: str) -> str:
    """The same libpq URI (``postgresql://...``), for another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _drop(admin_url: str, name: str) -> None:
    with psycopg.connect(in_database(admin_url, name), autocommit=True) as inside:
        # A database with prepared transactions cannot be dropped, and only a session inside it
        # can end them.
        left = inside.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        )
        for (gid,) in left.fetchall():
            inside.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
