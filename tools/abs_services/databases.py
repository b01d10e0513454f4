"""The ordinary role ``app`` of a PostgreSQL server with its database, and fresh databases for tests.

A fresh database on a shared server is cheaper than a fresh server (50 ms).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from abs_core.errors import UnavailableError
from abs_services.contracts import PostgresService

# Not "abs": with the search_path "$user" its tables would land among the sink's registers.
ROLE = "app"
DATABASE = "abs"


def postgres_url(host: str, port: int, user: str, password: str, database: str) -> str:
    """libpq URI; every part may contain any character."""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    return f"postgresql://{login}@{host}:{port}/{quote(database, safe='')}"


def ensure_role(admin_url: str, password: str) -> None:
    """Create role (no superuser) and database if absent; raises UnavailableError."""
    try:
        with psycopg.connect(admin_url, autocommit=True) as connection:
            _ensure(connection, password)
    except psycopg.Error as error:
        raise UnavailableError(
            f"PostgreSQL started, but role and database {ROLE!r} could not be made:"
            f" SQLSTATE {error.sqlstate}",
            remedy="look at its log; delete its data where it is not needed.",
        ) from error


def _ensure(connection: psycopg.Connection, password: str) -> None:
    cursor = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE])
    if not cursor.fetchone():
        # Hashed here: a statement with the password in clear could end up in the server's log.
        verifier = connection.pgconn.encrypt_password(
            password.encode(), ROLE.encode(), b"scram-sha-256"
        ).decode()
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        connection.execute(create.format(sql.Identifier(ROLE), sql.Literal(verifier)))
    cursor = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
    if not cursor.fetchone():
        create = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(create.format(sql.Identifier(DATABASE), sql.Identifier(ROLE)))


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
