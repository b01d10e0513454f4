"""Each test gets an empty database of its own, whatever the test before left behind."""

from __future__ import annotations

import psycopg
import pytest

from abs_services import PostgresService, fresh_database

pytestmark = pytest.mark.services


def test_a_database_is_empty_and_owned_by_the_ordinary_role(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchall() == []
        connection.execute("CREATE SCHEMA abs")


def test_it_is_dropped_with_sessions_and_prepared_transactions_left_in_it(
    postgres: PostgresService,
) -> None:
    with fresh_database(postgres) as url:
        left = psycopg.connect(url, autocommit=True)
        left.execute("CREATE TABLE t (i int)")
        left.execute("BEGIN")
        left.execute("INSERT INTO t VALUES (1)")
        left.execute("PREPARE TRANSACTION 'left behind'")
    with psycopg.connect(postgres.admin_url) as admin:
        assert admin.execute("SELECT 1 FROM pg_prepared_xacts").fetchall() == []
        assert (
            admin.execute("SELECT 1 FROM pg_database WHERE datname LIKE 't\\_%'").fetchall() == []
        )
    left.close()


def test_a_server_that_a_test_left_killed_is_started_for_the_next(
    postgres: PostgresService,
) -> None:
    if not postgres.controllable:
        pytest.skip("the server is not ours to kill")
    postgres.kill()
    with fresh_database(postgres) as url:
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        postgres.kill()
    assert postgres.is_running
