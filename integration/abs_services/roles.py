"""The ordinary role ``app`` and its database on a PostgreSQL server."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
from psycopg import sql

from abs_core.errors import UnavailableError

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
    known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE])
    if not known.fetchone():
        # Hashed here: a statement with the password in clear could end up in the server's log.
        verifier = connection.pgconn.encrypt_password(
            password.encode(), ROLE.encode(), b"scram-sha-256"
        ).decode()
        create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
        connection.execute(create.format(sql.Identifier(ROLE), sql.Literal(verifier)))
    known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE])
    if not known.fetchone():
        create = sql.SQL("CREATE DATABASE {} OWNER {}")
        connection.execute(create.format(sql.Identifier(DATABASE), sql.Identifier(ROLE)))
