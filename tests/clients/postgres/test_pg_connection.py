"""Connections are kept for reuse, and nobody ever gets a dead or a dirty one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from abs_clients.postgres.connection import IDLE_IN_TRANSACTION_SECONDS, Tag, connect
from abs_clients.postgres.pool import close_idle, leased, pool
from abs_core.errors import RefusedError, UnavailableError
from abs_services import PostgresService
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_testing.harness import SCHEMA

pytestmark = pytest.mark.services
TAG = Tag("0123456789abcdef", 7)


@pytest.fixture
def options(postgres: PostgresService, shared_database: str) -> Iterator[PostgresOptions]:
    postgres.start()
    yield PostgresOptions.parse({"url": shared_database, "dbtable": "t", "locktimeout": "1.5"})
    close_idle()


def test_a_connection_is_used_again(options: PostgresOptions) -> None:
    with leased(options.server) as first:
        pid = first.info.backend_pid
    with leased(options.server) as second:
        assert second.info.backend_pid == pid


def test_two_users_at_once_never_share_one(options: PostgresOptions) -> None:
    with leased(options.server) as first, leased(options.server) as second:
        assert first.info.backend_pid != second.info.backend_pid


def test_other_credentials_get_another_one(options: PostgresOptions) -> None:
    with leased(options.server):
        pass
    parameters = dict(options.address.parameters) | {"password": "wrong"}
    address = replace(options.address, parameters=tuple(sorted(parameters.items())))
    with pytest.raises(RefusedError):
        pool(replace(options, address=address).server).take()


def test_one_that_its_user_left_in_a_transaction_is_not_kept(options: PostgresOptions) -> None:
    connection = pool(options.server).take()
    connection.execute("begin")
    pool(options.server).give_back(connection)
    assert connection.closed


def test_one_whose_user_failed_is_not_kept(options: PostgresOptions) -> None:
    with pytest.raises(ZeroDivisionError), leased(options.server) as connection:
        _ = 1 / 0
    assert connection.closed


def test_one_that_the_server_has_ended_is_replaced(options: PostgresOptions) -> None:
    with leased(options.server) as connection:
        pid = connection.info.backend_pid
    with psycopg.connect(options.address.conninfo(), autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", (pid,))
    with leased(options.server) as connection:
        assert connection.info.backend_pid != pid


def test_one_from_before_a_crash_of_the_server_is_replaced(
    options: PostgresOptions, postgres: PostgresService
) -> None:
    if not postgres.controllable:
        pytest.skip("the server is not ours to kill")
    with leased(options.server):
        pass
    postgres.kill()
    with pytest.raises(UnavailableError):
        pool(options.server).take()
    postgres.start()
    with leased(options.server) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_child_process_does_not_use_its_parents(options: PostgresOptions) -> None:
    with leased(options.server) as connection:
        pid = connection.info.backend_pid
    child = os.fork()
    if child == 0:
        with leased(options.server) as connection:
            os._exit(0 if connection.info.backend_pid != pid else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with leased(options.server) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_sink_that_is_closed_leaves_the_processs_connections_to_other_sinks(
    options: PostgresOptions,
) -> None:
    with leased(options.server) as connection:
        pid = connection.info.backend_pid
    PostgresSink(options, SCHEMA).close()
    with leased(options.server) as connection:
        assert connection.info.backend_pid == pid


def test_what_was_learnt_of_a_server_is_gone_with_its_connections(options: PostgresOptions) -> None:
    pool(options.server).answers["a table"] = "its plan"
    assert pool(options.server).answers["a table"] == "its plan"
    close_idle(options.server)
    assert "a table" not in pool(options.server).answers


def test_it_bears_the_name_of_whom_it_works_for(options: PostgresOptions) -> None:
    for tag in (TAG, Tag(TAG.register, 8), TAG):
        with leased(options.server, tag) as connection:
            shown = connection.execute("show application_name").fetchone()
        assert shown == (str(tag),)
        assert len(str(tag)) < 64  # PostgreSQL cuts longer names off


@pytest.mark.parametrize(
    "text",
    ["abs", "abs:0123456789abcdef", "abs:0123456789abcdef:07", "abs:0123456789abcdef:7 ", "psql"],
)
def test_a_name_that_is_not_exactly_a_tag_is_none(text: str) -> None:
    assert Tag.parse(text) is None
    assert Tag.parse(str(TAG)) == TAG


def test_every_wait_has_an_end(options: PostgresOptions) -> None:
    with connect(options.server) as connection:
        settings = {
            name: connection.execute(f"show {name}").fetchone()
            for name in (
                "lock_timeout",
                "idle_in_transaction_session_timeout",
                "tcp_keepalives_idle",
                "synchronous_commit",
                "default_transaction_isolation",
                "client_encoding",
            )
        }
    assert settings == {
        "lock_timeout": ("1500ms",),
        "idle_in_transaction_session_timeout": (f"{IDLE_IN_TRANSACTION_SECONDS // 60}min",),
        "tcp_keepalives_idle": ("30",),
        "synchronous_commit": ("on",),
        "default_transaction_isolation": ("read committed",),
        "client_encoding": ("UTF8",),
    }
