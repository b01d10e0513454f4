"""Debian's PostgreSQL 15 (`apt-get install postgresql-15`): ICU, encodings, a standby that is away.

The server of the services has no ICU, and its settings are shared. Where Debian's is not installed,
these tests are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from abs_clients.postgres.address import Address
from abs_core.errors import DataError, RefusedError, RowError, UnavailableError
from abs_services.processes import free_port
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.columns import table as table_module
from abs_sinks.postgres.columns.types import Column
from abs_sinks.postgres.testing import VARIANTS, open_table
from abs_testing import SCHEMA
from abs_testing.case import Case, rows
from abs_testing.harness import Row
from tests.planted import planted

pytestmark = [pytest.mark.services, pytest.mark.campaign]

BINARIES = Path("/usr/lib/postgresql/15/bin")
AS_POSTGRES = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of a server of this module's own, of a superuser, without a database's name."""
    if not (BINARIES / "initdb").exists():
        pytest.skip("Debian's PostgreSQL 15 is not installed: apt-get install postgresql-15")
    folder = Path(tempfile.mkdtemp(prefix="abs-pg15-", dir="/tmp"))
    if AS_POSTGRES:
        shutil.chown(folder, "postgres")
    port = free_port()

    def run(command: str, *arguments: str) -> None:
        subprocess.run([*AS_POSTGRES, str(BINARIES / command), *arguments], check=True, cwd=folder)

    data = str(folder / "data")
    run("initdb", "-D", data, "-U", "admin", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    options += " -c max_prepared_transactions=20"
    run("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql://admin@127.0.0.1:{port}"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


@pytest.fixture
def collated(server: str) -> str:
    """A database with a collation that takes no account of case."""
    with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
        admin.execute("drop database if exists icu")
        admin.execute("create database icu")
    url = f"{server}/icu"
    with psycopg.connect(url) as made:
        made.execute(
            "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    return url


NAMES = ["wal-upsert", "idempotent-upsert"]


def upserted(url: str, name: str) -> list[Row]:
    """The table after an epoch in which two rows have keys that are equal without regard to case."""
    with open_table(url, VARIANTS[name]) as harness:
        table = harness.table
        harness.db.execute(
            f"alter table {table} drop constraint {table}_pkey, alter id drop not null,"
            f" alter value type text collate ci, add primary key (value)"
        )
        options = replace(harness.options, key=("value",), orderby=("id",))
        harness.new_sink = partial(PostgresSink, options, SCHEMA)
        case = Case(harness)
        try:
            case.run().epoch(0, [(2, "a"), (1, "A"), (3, "b")])
            return sorted(harness.read())
        finally:
            case.close()


@pytest.mark.parametrize("name", NAMES)
def test_keys_that_only_their_collation_takes_for_equal_are_one(collated: str, name: str) -> None:
    assert upserted(collated, name) == [(2, "a"), (3, "b")]


@pytest.mark.parametrize("name", NAMES)
def test_staging_without_the_keys_collation_is_found(collated: str, name: str) -> None:
    read = table_module._column

    def without(*given: Any) -> Column:
        return replace(read(*given), collation="")

    bug = table_module, "_column", without
    with planted(bug, by=DataError, match="takes them for the same row"):
        upserted(collated, name)


@pytest.mark.parametrize("name", ["2pc-append", "wal-append"])
def test_sql_ascii_counts_bytes(server: str, name: str) -> None:
    with open_table(_database(server, "SQL_ASCII"), VARIANTS[name]) as harness:
        harness.db.execute(f"alter table {harness.table} alter value type varchar(4)")
        case = Case(harness)
        attempt = case.run().attempt(0)
        with pytest.raises(RowError, match="too long"):
            attempt.write((1, "\u00e4\u00f6 "))  # 3 characters, 5 bytes: the blank would be cut off
        attempt.writer.abort()
        case.run().epoch(0, [(1, "\u00e4\u00f6")])
        seen = harness.db.execute(f"select octet_length(value) from {harness.table}").fetchall()
        assert seen == [(4,)]
        case.close()


@pytest.mark.parametrize(
    ("encoding", "folder"), [("SQL_ASCII", "/ck-\u00e9"), ("LATIN1", "/\u691c\u67fb")]
)
def test_a_checkpoint_whose_path_the_database_cannot_hold_is_told(
    server: str, encoding: str, folder: str
) -> None:
    with open_table(_database(server, encoding), VARIANTS["wal-append"]) as harness:
        case = Case(harness)
        with pytest.raises(RefusedError, match=encoding) as caught:
            case.run(checkpoint=folder).epoch(0, rows(0, 2))
        assert "checkpoint" in str(caught.value)
        case.close()


def test_a_standby_that_is_away_is_named_and_waited_for_as_long_as_patience_says(
    server: str,
) -> None:
    admin_url = f"{server}/postgres?options=-csynchronous_commit%3Dlocal"
    silence_ms = 2000
    with (
        open_table(f"{server}/postgres", VARIANTS["wal-append"]) as harness,
        psycopg.connect(admin_url, autocommit=True) as admin,
    ):
        address = Address.parse(f"{server}/postgres?tcp_user_timeout={silence_ms}")
        common = replace(harness.options.common, patience=8.0)
        harness.options = replace(harness.options, address=address, common=common)
        harness.new_sink = partial(PostgresSink, harness.options, SCHEMA)
        case = Case(harness)
        run = case.run()
        run.epoch(0, rows(0, 2))
        admin.execute("alter system set synchronous_standby_names = 'ghost'")
        admin.execute("select pg_reload_conf()")
        try:
            began = time.monotonic()
            with pytest.raises(UnavailableError, match="SyncRep") as caught:
                run.epoch(1, rows(10, 2))
            assert 7 < time.monotonic() - began < 60
            assert "synchronous_standby_names" in caught.value.remedy
        finally:
            admin.execute("alter system reset synchronous_standby_names")
            admin.execute("select pg_reload_conf()")
        case.run().epoch(1, rows(10, 2))
        case.finished(rows(0, 2), rows(10, 2), when="after the standby was taken out")
        case.close()


def test_an_event_trigger_is_told_apart_from_the_tables_own(server: str) -> None:
    with open_table(_database(server, "UTF8"), VARIANTS["wal-append"]) as harness:
        case = Case(harness)
        run = case.run()
        run.epoch(0, rows(0, 2))
        harness.db.execute(
            "create function forbid() returns event_trigger language plpgsql as"
            " $$ begin raise exception 'not today'; end $$;"
            "create event trigger forbid on ddl_command_start when tag in ('CREATE TABLE')"
            " execute function forbid()"
        )
        with pytest.raises(RefusedError, match="creating a staging table: not today") as caught:
            run.epoch(1, rows(10, 2))
        assert "an event trigger" in caught.value.remedy
        harness.db.execute("drop event trigger forbid")
        case.run().epoch(1, rows(10, 2))
        case.finished(rows(0, 2), rows(10, 2), when="after the event trigger was dropped")
        case.close()


def _database(server: str, encoding: str) -> str:
    name = f"in_{encoding.lower()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
        admin.execute(f"drop database if exists {name} with (force)")
        admin.execute(
            f"create database {name} encoding '{encoding}' template template0"
            " lc_collate 'C' lc_ctype 'C'"
        )
    return f"{server}/{name}"
