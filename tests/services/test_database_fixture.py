"""Each test gets an empty database of its own, whatever the test before left behind."""

from __future__ import annotations

import psycopg
import pytest

from abs_services import PostgresService, fresh_database, in_database
from tests.kit.databases import Databases

pytestmark = pytest.mark.services

OID = "SELECT oid FROM pg_database WHERE datname = current_database()"


def test_a_database_is_empty_and_owned_by_the_ordinary_role(database: str) -> None:
    with psycopg.connect(database) as connection:
        tables = connection.execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchall() == []
        connection.execute("CREATE SCHEMA abs")


def test_a_database_that_could_be_emptied_is_used_again_by_a_new_name(
    databases: Databases, postgres: PostgresService
) -> None:
    with databases.empty() as first:
        left = psycopg.connect(first, autocommit=True)
        left.execute("CREATE SCHEMA abs; CREATE TABLE abs.t (i int PRIMARY KEY, v text)")
        left.execute("CREATE TEMPORARY TABLE s (i int); CREATE VIEW v AS SELECT i FROM abs.t")
        left.execute("ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public")
        left.execute("SELECT lo_from_bytea(0, 'x')")
        left.execute("BEGIN; INSERT INTO abs.t VALUES (1); PREPARE TRANSACTION 'left behind'")
        oid = left.execute(OID).fetchone()
    with databases.empty() as second, psycopg.connect(second) as connection:
        assert connection.execute(OID).fetchone() == oid
        assert connection.execute("SELECT 1 FROM pg_class WHERE oid > 16384").fetchall() == []
        connection.execute("CREATE SCHEMA abs")
    assert second != first
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    with psycopg.connect(postgres.admin_url) as admin:
        assert admin.execute("SELECT 1 FROM pg_prepared_xacts").fetchall() == []


@pytest.mark.parametrize(
    "left",
    [
        "CREATE TABLE t (i int)",
        "GRANT CREATE ON SCHEMA public TO public",
        "ALTER DATABASE {name} SET timezone = 1",
        "ALTER DATABASE {name} CONNECTION LIMIT 9",
        "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION f()",
    ],
)
def test_one_in_which_another_role_leaves_something_is_not_used_again(
    left: str, databases: Databases, postgres: PostgresService
) -> None:
    with databases.empty() as url:
        name = url.rpartition("/")[2]
        with psycopg.connect(in_database(postgres.admin_url, name), autocommit=True) as admin:
            oid = admin.execute(OID).fetchone()
            if "f()" in left:
                admin.execute(
                    "CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'"
                )
            admin.execute(left.format(name=name))
    with databases.empty() as url, psycopg.connect(url) as connection:
        assert connection.execute(OID).fetchone() != oid


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
