"""The PostgreSQL server that is written to, and its one table, in the same state before each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import psycopg

from abs_services import (
    PostgresService,
    Provider,
    chosen_provider,
    fresh_database,
    in_database,
    services,
)
from abs_services.native.postgres import NativePostgres
from benchmarks.rows import COLUMNS

TABLE = "bench"

SETTINGS: Mapping[str, str] = {
    # Room for a whole run between two checkpoints: they come when asked for, before each run.
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
}
"""Over PostgreSQL's defaults; fsync, synchronous_commit and full_page_writes stay on."""


class Arrivals(Protocol):
    """Where a job's rows arrive: a table, a folder."""

    @property
    def pid(self) -> int | None:
        """The server's process, for counting its CPU; None where it is not ours."""

    def count(self) -> int:
        """Rows that a reader sees now."""


@dataclass(frozen=True, slots=True)
class Target:
    """A database of its own with the table :data:`TABLE`.

    Args:
        url: of the ordinary role that owns the database.
        admin_url: of the superuser, same database.
        pid: the postmaster's, for counting its CPU; None where it is not ours.
    """

    url: str
    admin_url: str
    pid: int | None

    @property
    def options(self) -> dict[str, str]:
        """For the sink ``abs-postgres``."""
        return {"url": self.url, "dbtable": TABLE}

    @property
    def jdbc(self) -> dict[str, str]:
        """For Spark's JDBC writer: url, user, password, driver, dbtable."""
        parts = urlsplit(self.url)
        return {
            "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
            "user": parts.username or "",
            "password": parts.password or "",
            "driver": "org.postgresql.Driver",
            "dbtable": TABLE,
        }

    def reset(self) -> None:
        """Empty the table and flush what earlier runs left: each run starts from the same state."""
        with psycopg.connect(self.admin_url, autocommit=True) as admin:
            admin.execute(f"TRUNCATE {TABLE}")
            admin.execute("CHECKPOINT")

    def count(self) -> int:
        """Rows in the table that a reader sees now."""
        with psycopg.connect(self.admin_url) as admin:
            row = admin.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
        return int(row[0]) if row else 0


@contextmanager
def server() -> Iterator[PostgresService]:
    """A server for the benchmarks: native with :data:`SETTINGS`, or as ``ABS_SERVICES`` says."""
    native = chosen_provider() is Provider.NATIVE
    with NativePostgres(settings=SETTINGS) if native else services().postgres() as started:
        yield started


@contextmanager
def fresh_target(postgres: PostgresService, *, keyed: bool = False) -> Iterator[Target]:
    """A new database with an empty table, dropped at the end.

    Args:
        keyed: the table's ``id`` is its primary key, as an upsert needs it.
    """
    with fresh_database(postgres) as url:
        name = urlsplit(url).path.lstrip("/")
        key = ", PRIMARY KEY (id)" if keyed else ""
        with psycopg.connect(url) as owner:
            owner.execute(f"CREATE TABLE {TABLE} ({COLUMNS}{key})")
        pid = postgres.pid if isinstance(postgres, NativePostgres) else None
        yield Target(url, in_database(postgres.admin_url, name), pid)
