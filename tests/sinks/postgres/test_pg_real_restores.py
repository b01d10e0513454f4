"""A database goes back by PostgreSQL's own means: pg_dump and pg_restore, a physical copy that lags."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from abs_clients.postgres.pool import close_idle
from abs_core.errors import TargetWentBackError
from abs_services import PostgresService
from abs_services.native import NativePostgres
from abs_services.native.postgres import find_binaries
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_testing.case import Case, consent_in, raises, rows

pytestmark = [pytest.mark.services, pytest.mark.campaign]
FIRST, SECOND, THIRD, LAST = rows(0, 3), rows(10, 2), rows(20, 4), rows(30, 1)
CELLS = ["2pc-append-foreign-register", "wal-upsert-foreign-register"]


def tool(name: str, *words: str) -> None:
    done = subprocess.run(
        [str(find_binaries(None) / name), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CELLS)
def test_a_database_restored_from_a_dump_is_told(
    postgres: PostgresService, database: str, name: str, tmp_path: object
) -> None:
    dump, target = f"{tmp_path}/dump", urlsplit(database).path.lstrip("/")
    there = urlsplit(postgres.admin_url)._replace(path=f"/{target}").geturl()
    with open_table(database, VARIANTS[name]) as harness, Case(harness) as case:
        case.run().epoch(0, FIRST)
        tool("pg_dump", "--format=custom", f"--file={dump}", there)
        run = case.run()
        run.epoch(1, SECOND)
        run.epoch(2, THIRD)
        close_idle()
        harness.db.close()
        with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
            owner = admin.execute(
                "select pg_get_userbyid(datdba) from pg_database where datname = %s", (target,)
            ).fetchone()
            assert owner is not None
            named = sql.Identifier(target), sql.Identifier(owner[0])
            admin.execute(sql.SQL("drop database {} with (force)").format(named[0]))
            admin.execute(sql.SQL("create database {} owner {}").format(*named))
        tool("pg_restore", f"--dbname={there}", dump)
        harness.reconnect()
        error = raises(TargetWentBackError, lambda: case.run().begin(3))
        assert "no longer has the 6 rows of the finished epoch(s) 1 to 2." in error.what
        case.holds(FIRST, when="after a start that was refused")
        case.run(adopt=consent_in(error)).epoch(3, LAST)
        case.finished(FIRST, LAST, when="after a restore that was consented to")


@pytest.fixture
def server() -> Iterator[NativePostgres]:
    with NativePostgres() as started:
        yield started


class Replica:
    """A physical copy of a server as of now, which takes over later: its newest commits are lost.

    It has what was prepared, and the same system identifier, as a replica that lagged has.
    """

    def __init__(self, server: NativePostgres) -> None:
        self._server = server
        self._copy = server.data.with_name("replica")
        server.stop()
        shutil.copytree(server.data, self._copy)
        _own(server, self._copy)
        server.start()

    def take_over(self) -> None:
        close_idle()
        self._server.kill()
        shutil.rmtree(self._server.data)
        self._copy.rename(self._server.data)
        self._server.start()


def _own(server: NativePostgres, copy: object) -> None:
    owner = server.data.stat()
    subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(copy)], check=True)


@pytest.mark.parametrize("name", CELLS)
def test_a_failover_to_a_replica_that_lost_commits_is_told(
    server: NativePostgres, name: str
) -> None:
    with open_table(server.url, VARIANTS[name]) as harness, Case(harness) as case:
        case.run().epoch(0, FIRST)
        run = case.run()
        shares = run.tasks(1, SECOND)
        prepared = harness.prepared()
        close_idle()
        replica = Replica(server)
        harness.reconnect()
        run.commit(1, shares)
        run.epoch(2, THIRD)
        harness.db.close()
        replica.take_over()
        harness.reconnect()
        assert harness.prepared() == prepared, "the copy has what was prepared"
        error = raises(TargetWentBackError, lambda: case.run().begin(3))
        assert "of the finished epoch(s) 1 to 2." in error.what
        assert harness.prepared() == prepared, "what can still be committed was rolled back"
        case.holds(FIRST, when="after a start that was refused")
        case.run(adopt=consent_in(error)).epoch(3, LAST)
        case.finished(FIRST, LAST, when="after a failover that was consented to")


@pytest.mark.parametrize("name", CELLS)
def test_a_failover_that_lost_commits_while_the_run_goes_on_is_told(
    server: NativePostgres, name: str
) -> None:
    """The run meets no start: its connections break, and its next epoch meets the new server."""
    with open_table(server.url, VARIANTS[name]) as harness, Case(harness) as case:
        run = case.run()
        run.epoch(0, FIRST)
        close_idle()
        replica = Replica(server)
        harness.reconnect()
        run.epoch(1, SECOND)
        run.epoch(2, THIRD)
        harness.db.close()
        replica.take_over()
        harness.reconnect()
        error = raises(TargetWentBackError, lambda: run.epoch(3, LAST))
        assert "of the finished epoch(s) 1 to 2." in error.what
        case.run(adopt=consent_in(error)).epoch(3, LAST)
        case.finished(FIRST, LAST, when="after a failover that was consented to")
