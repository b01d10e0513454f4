"""The target's identity is one on every route, and another for another target."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import close_idle
from abs_services import PostgresService, fresh_database
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_testing import SCHEMA
from abs_testing.case import Case, rows

pytestmark = pytest.mark.services


def _identity(sink: PostgresSink) -> str:
    close_idle()  # what the process has learnt goes, too
    return sink.target_id


def test_it_names_server_database_schema_and_table(table: TableHarness) -> None:
    row = table.db.execute(
        "select system_identifier, current_database(),"
        f" '{table.table}'::regclass::oid::regclass::text, relnamespace::regnamespace::text"
        f" from pg_control_system(), pg_class where oid = '{table.table}'::regclass"
    ).fetchone()
    assert row is not None
    system, database, _, schema = row
    expected = f"postgres:{system}/{database}/{schema}.{table.table}"
    assert _identity(PostgresSink(table.options, SCHEMA)) == expected
    qualified = replace(table.options, dbtable=TableName(table.table, schema))
    assert _identity(PostgresSink(qualified, SCHEMA)) == expected


def test_it_stays_over_a_restart_and_differs_between_databases(
    table: TableHarness, postgres: PostgresService
) -> None:
    before = _identity(PostgresSink(table.options, SCHEMA))
    if postgres.controllable:
        postgres.stop()
        postgres.start()
        table.reconnect()
        assert _identity(PostgresSink(table.options, SCHEMA)) == before
    with fresh_database(postgres) as url, open_table(url, VARIANTS["2pc-append"]) as other:
        assert _identity(PostgresSink(other.options, SCHEMA)) != before


def test_where_the_role_may_not_read_the_systems_id_one_is_minted(
    table: TableHarness, postgres: PostgresService
) -> None:
    admin_url = postgres.admin_url.rpartition("/")[0] + "/" + _database(table)
    with psycopg.connect(admin_url, autocommit=True) as admin:
        admin.execute("revoke execute on function pg_control_system() from public")
    try:
        minted = _identity(PostgresSink(table.options, SCHEMA))
        assert minted == _identity(PostgresSink(table.options, SCHEMA))
        assert minted.startswith("postgres:")
        case = Case(table)
        case.run().epoch(0, rows(0, 3))
        case.finished(rows(0, 3), when="after an epoch under a minted identity")
        (warning,) = PostgresSink(table.options, SCHEMA).preflight("a new job", 1)
        assert "twice" in warning.what
        case.close()
    finally:
        with psycopg.connect(admin_url, autocommit=True) as admin:
            admin.execute("grant execute on function pg_control_system() to public")


def _database(table: TableHarness) -> str:
    return dict(table.options.address.parameters)["dbname"]
