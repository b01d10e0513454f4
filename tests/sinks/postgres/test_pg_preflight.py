"""Preflight tells whether the promise can be kept, and changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from abs_clients.postgres.address import Address
from abs_clients.postgres.pool import close_idle
from abs_core.model import Finding, Severity
from abs_services import PostgresService
from abs_services.processes import free_port
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_sinks.postgres.check.facts import (
    Pooling,
    ServerFacts,
    TableFacts,
    Way,
    way_of,
)
from abs_sinks.postgres.check.preflight import (
    findings_of_others,
    findings_of_pooling,
    findings_of_server,
    findings_of_table,
    findings_of_way,
)
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA
from abs_testing.case import Case, rows, within
from abs_testing.engine import Run

GOOD_SERVER = ServerFacts(
    version=180000,
    max_prepared=64,
    max_connections=97,
    max_locks=10_000,
    standby=False,
    read_only=False,
    statement_ms=0,
    transaction_ms=0,
    fsync=True,
    full_page_writes=True,
    asynchronous=False,
    prepared=0,
    oldest_prepared_s=0.0,
    oldest_prepared=None,
    may_create_schema=True,
    may_create_temporary=True,
    state_exists=True,
    may_use_state=True,
    may_create_in_state=True,
    role="me",
)
GOOD_TABLE = TableFacts(True, True, True, True, has_rules=False, insert_triggers=())
TABLE = CatalogTable("public", "t", 1, ())


def _options(**more: str) -> PostgresOptions:
    return PostgresOptions.parse({"url": "postgresql://h/db", "dbtable": "t", **more})


TWO_PC = _options()
WAL = _options(protocol="wal")
REPLACING = WAL.replacing() or WAL
IDEMPOTENT = _options(protocol="idempotent", write="upsert", key="id")


@pytest.mark.parametrize("options", [TWO_PC, WAL, IDEMPOTENT])
def test_a_good_server_and_table_give_no_finding(options: PostgresOptions) -> None:
    assert list(findings_of_server(GOOD_SERVER, options, tasks=20)) == []
    assert list(findings_of_table(TABLE, GOOD_TABLE, GOOD_SERVER, options)) == []
    assert list(findings_of_pooling(Pooling.NONE)) == []
    assert list(findings_of_others([], False, TABLE)) == []


@pytest.mark.parametrize(
    ("options", "change", "severity", "told"),
    [
        (TWO_PC, {"max_prepared": 0}, Severity.ERROR, "max_prepared_transactions = 0"),
        (TWO_PC, {"max_prepared": 19}, Severity.ERROR, "room for 19"),
        (TWO_PC, {"max_prepared": 30}, Severity.WARNING, "30 of 30"),
        (TWO_PC, {"prepared": 50}, Severity.WARNING, "14 of 64"),
        (WAL, {"standby": True, "read_only": True}, Severity.ERROR, "it is a standby"),
        (WAL, {"read_only": True}, Severity.ERROR, "default_transaction_read_only is on"),
        (TWO_PC, {"statement_ms": 30_000}, Severity.WARNING, "statement_timeout is 30 s"),
        (TWO_PC, {"transaction_ms": 500}, Severity.WARNING, "transaction_timeout is 0.5 s"),
        (WAL, {"version": 110000}, Severity.ERROR, "too old"),
        (WAL, {"fsync": False}, Severity.WARNING, "fsync"),
        (WAL, {"asynchronous": True}, Severity.NOTE, "synchronous_commit"),
        (WAL, {"oldest_prepared_s": 7200.0}, Severity.WARNING, "2.0 hours"),
        (WAL, {"max_connections": 10}, Severity.WARNING, "as many connections"),
        (WAL, {"max_locks": 100}, Severity.WARNING, "max_locks"),
        (
            WAL,
            {"state_exists": False, "may_create_schema": False},
            Severity.ERROR,
            "may not create",
        ),
        (WAL, {"may_create_in_state": False}, Severity.ERROR, "GRANT USAGE, CREATE"),
        (IDEMPOTENT, {"may_create_temporary": False}, Severity.ERROR, "temporary"),
    ],
)
def test_what_is_wrong_with_a_server_is_found(
    options: PostgresOptions, change: dict[str, Any], severity: Severity, told: str
) -> None:
    (finding,) = findings_of_server(replace(GOOD_SERVER, **change), options, tasks=20)
    assert finding.severity is severity
    assert told in f"{finding.what} {finding.remedy}"


@pytest.mark.parametrize(
    ("way", "warned"),
    [
        (Way("db.example", True, "prefer", ""), True),
        (Way("db.example", True, "require", ""), True),
        (Way("db.example", True, "prefer", "password"), True),
        (Way("db.example", True, "prefer", "scram-sha-256, password"), True),
        (Way("db.example", True, "prefer", "!none"), True),
        (Way("db.example", True, "prefer", "!none,!password"), False),
        (Way("db.example", True, "prefer", "scram-sha-256"), False),
        (Way("db.example", True, "verify-full", ""), False),
        (Way("db.example", False, "prefer", ""), False),
        *[(Way(h, True, "prefer", ""), False) for h in ("/tmp", "localhost", "127.0.0.1", "::1")],
    ],
)
def test_a_password_that_a_stranger_can_ask_for_in_clear_is_warned_of(
    way: Way, warned: bool
) -> None:
    found = list(findings_of_way(way))
    assert [finding.severity for finding in found] == [Severity.WARNING] * warned
    for finding in found:
        assert "db.example can ask for the password in clear" in finding.what
        assert "sslmode=verify-full" in finding.remedy


@pytest.mark.services
def test_the_way_of_a_session_is_told_as_libpq_took_it(shared_database: str) -> None:
    with psycopg.connect(shared_database, require_auth="!password") as connection:
        way = way_of(connection)
    assert way.sslmode in {"prefer", "disable"}
    assert way.require_auth == "!password"
    assert way.local
    assert list(findings_of_way(way)) == []


def test_without_prepared_transactions_both_remedies_are_named() -> None:
    (finding,) = findings_of_server(replace(GOOD_SERVER, max_prepared=0), TWO_PC, None)
    assert "raise max_prepared_transactions" in finding.remedy
    assert "protocol=wal" in finding.remedy
    none = replace(GOOD_SERVER, max_prepared=0)
    assert list(findings_of_server(none, WAL, None)) == []
    (beside,) = findings_of_server(none, WAL, None, composes=True)
    assert beside.severity is Severity.ERROR
    assert "raise max_prepared_transactions" in beside.remedy
    assert "a query of its own" in beside.remedy


@pytest.mark.parametrize(
    ("options", "table", "change", "severity", "told"),
    [
        (TWO_PC, TABLE, {"may_insert": False}, Severity.ERROR, "GRANT INSERT ON"),
        (IDEMPOTENT, TABLE, {"may_update": False}, Severity.ERROR, "UPDATE"),
        (IDEMPOTENT, TABLE, {"may_select": False}, Severity.ERROR, "SELECT"),
        (REPLACING, TABLE, {"may_delete": False}, Severity.ERROR, "GRANT DELETE ON"),
        (IDEMPOTENT, TABLE, {"insert_triggers": ("a",)}, Severity.WARNING, "fire again"),
        (WAL, TABLE, {"insert_triggers": ("a",)}, Severity.NOTE, "(a)"),
        (WAL, TABLE, {"has_rules": True}, Severity.WARNING, "DO INSTEAD can divert rows"),
        (IDEMPOTENT, TABLE, {"has_rules": True}, Severity.WARNING, "DO INSTEAD can divert rows"),
        (TWO_PC, replace(TABLE, logged=False), {}, Severity.WARNING, "UNLOGGED"),
        (TWO_PC, replace(TABLE, row_security=True), {}, Severity.ERROR, "Row-level"),
    ],
)
def test_what_is_wrong_with_a_table_is_found(
    options: PostgresOptions,
    table: CatalogTable,
    change: dict[str, Any],
    severity: Severity,
    told: str,
) -> None:
    (finding,) = findings_of_table(table, replace(GOOD_TABLE, **change), GOOD_SERVER, options)
    assert finding.severity is severity
    assert told in f"{finding.what} {finding.remedy}"


def test_appending_by_copy_needs_insert_only_and_follows_no_rules() -> None:
    facts = replace(
        GOOD_TABLE, may_update=False, may_select=False, may_delete=False, has_rules=True
    )
    assert list(findings_of_table(TABLE, facts, GOOD_SERVER, TWO_PC)) == []


@pytest.mark.services
def test_it_changes_nothing(table: TableHarness) -> None:
    sink = PostgresSink(replace(table.options, createtable=True), SCHEMA)
    missing = PostgresOptions.parse(
        {"url": table.url, "dbtable": "not_there", "createtable": "true", "stateschema": "nor_this"}
    )
    before = _objects(table)
    assert sink.preflight("job", 4) == []
    (note,) = PostgresSink(missing, SCHEMA).preflight("job", 4)
    assert (note.severity, "will be created" in note.what) == (Severity.NOTE, True)
    assert _objects(table) == before


@pytest.mark.services
def test_a_new_job_on_a_table_that_another_job_wrote_is_warned_of_doubles(
    table: TableHarness,
) -> None:
    case = Case(table)
    case.run("old").epoch(0, rows(0, 1))
    sink = case.sink()
    assert [f for f in sink.preflight("old", 2) if "another" in f.what] == []
    (warning,) = sink.preflight("new", 2)
    assert warning.severity is Severity.WARNING
    assert "old" in warning.what
    assert "twice" in warning.what
    case.run("new").epoch(0, rows(10, 1))
    (note,) = sink.preflight("new", 2)
    assert note.severity is Severity.NOTE
    case.close()


@pytest.mark.services
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("drop table {t}", "does not exist"),
        ("alter table {t} drop column value", '"value"'),
        ("alter table {t} alter column id type date using null", '"id"'),
        ("alter table {t} rename to {t}_; create view {t} as select * from {t}_", "a view"),
    ],
)
def test_a_table_that_does_not_fit_is_found(table: TableHarness, change: str, told: str) -> None:
    table.db.execute(change.format(t=table.table))
    try:
        errors = _errors(PostgresSink(table.options, SCHEMA).preflight("job", 2))
        assert len(errors) == 1
        assert told in errors[0].what
    finally:
        table.db.execute(f"drop table if exists {table.table}_ cascade")


@pytest.mark.services
@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("id bigint, value text", "CREATE UNIQUE INDEX"),
        ("id bigint unique, value text", "SET NOT NULL"),
        ("id bigint not null, value text, unique (id, value)", "CREATE UNIQUE INDEX"),
        ("other int primary key, id bigint, value text", "missing in the input"),
    ],
)
def test_upsert_without_a_proper_key_is_found(
    shared_database: str, columns: str, told: str
) -> None:
    with open_table(shared_database, VARIANTS["wal-upsert"]) as harness:
        harness.db.execute(f"drop table {harness.table}")
        harness.db.execute(f"create table {harness.table} ({columns})")
        (error,) = _errors(PostgresSink(harness.options, SCHEMA).preflight("job", 2))
        assert told in f"{error.what} {error.remedy}"


@pytest.mark.services
def test_timeouts_of_the_session_are_read_from_the_server(table: TableHarness) -> None:
    options = PostgresOptions.parse(
        {
            "url": f"{table.url}{'&' if '?' in table.url else '?'}options=-cstatement_timeout%3D7s",
            "dbtable": table.table,
        }
    )
    with closing(PostgresSink(options, SCHEMA)) as sink:
        found = [f.what for f in sink.preflight("job") if f.severity is Severity.WARNING]
    assert any("statement_timeout is 7 s" in what for what in found), found


@pytest.mark.services
def test_a_read_only_role_is_found(table: TableHarness, postgres: PostgresService) -> None:
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute("drop role if exists reader")
        admin.execute("create role reader login password 'r3ad'")
    try:
        table.db.execute(f"grant select on {table.table} to reader")
        sink = PostgresSink(replace(table.options, address=_as_reader(table)), SCHEMA)
        found = " ".join(f.what for f in _errors(sink.preflight("job", 2)))
        assert "lacks INSERT" in found
        assert "may not create" in found
    finally:
        close_idle()
        table.db.execute(f"revoke all on {table.table} from reader")
        with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
            admin.execute("drop role reader")


@pytest.mark.services
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")
@pytest.mark.parametrize(
    ("mode", "severity"),
    [
        ("transaction", Severity.ERROR),
        ("statement", Severity.ERROR),
        ("session", Severity.NOTE),
    ],
)
def test_a_pooler_is_found(table: TableHarness, mode: str, severity: Severity) -> None:
    with _pgbouncer(table.url, mode) as url:
        options = replace(table.options, address=Address.parse(url))
        (finding,) = PostgresSink(options, SCHEMA).preflight("job", 2)
    assert finding.severity is severity
    assert "pooler" in finding.what
    assert severity is Severity.NOTE or f"pool_mode={mode}" in finding.what


@pytest.mark.services
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_a_pooler_that_keeps_sessions_serves_a_job_and_the_run_after_a_crash(
    table: TableHarness, protocol: str
) -> None:
    with _pgbouncer(table.url, "session") as url:
        common = replace(table.options.common, protocol=protocol)
        options = replace(table.options, address=Address.parse(url), common=common)
        with closing(PostgresSink(options, SCHEMA)) as sink:
            run = Run(sink, "pooled")
            run.epoch(0, rows(0, 3))
            run.attempt(1).write(*rows(10, 3)).pre_commit()  # of a process that dies
            Run(sink, "pooled").epoch(1, rows(20, 3), rows(30, 3))
    expected = [*rows(0, 3), *rows(20, 3), *rows(30, 3)]
    assert sorted(table.read()) == expected
    prepared = table.db.execute("select count(*) from pg_prepared_xacts").fetchone()
    assert prepared == (0,)


def _objects(table: TableHarness) -> list[tuple[object, ...]]:
    query = "select relname, relnamespace::regnamespace::text from pg_class order by 1, 2"
    return table.db.execute(query).fetchall()


def _errors(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def _as_reader(table: TableHarness) -> Address:
    return Address.parse(table.url, user="reader", password="r3ad")


@contextmanager
def _pgbouncer(url: str, mode: str) -> Iterator[str]:
    """A pgbouncer before the server; its URL is the value."""
    server, port = urlsplit(url), free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "users").write_text(f'"{server.username}" "{server.password}"\n')
        (folder / "ini").write_text(
            f"[databases]\n* = host={server.hostname} port={server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = plain\nauth_file = {folder / 'users'}\npool_mode = {mode}\n"
        )
        folder.chmod(0o755)
        account = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
        bouncer = subprocess.Popen(
            ["pgbouncer", "-q", str(folder / "ini")], user=account, stderr=subprocess.DEVNULL
        )
        try:
            at = f"{server.netloc.rpartition('@')[0]}@127.0.0.1:{port}"
            there = urlunsplit(server._replace(netloc=at))
            assert within(60, lambda: _answers(there)), "pgbouncer did not start"
            yield there
        finally:
            close_idle()
            bouncer.terminate()
            bouncer.wait()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
