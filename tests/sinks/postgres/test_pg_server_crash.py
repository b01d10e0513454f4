"""The server is killed with SIGKILL at the worst moments: nothing is lost, nothing is doubled."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from abs_core.errors import NotPreparedError, UnavailableError
from abs_services import PostgresService
from abs_sinks.postgres.staging import Staging
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing.case import Case
from tests.planted import planted
from tests.sample import members
from tests.sinks.crashes import *  # noqa: F403 - the suite
from tests.sinks.crashes import LEFT, RIGHT, killable

pytestmark = pytest.mark.services


@pytest.fixture
def server(postgres: PostgresService) -> PostgresService:
    killable(postgres)
    return postgres


@pytest.fixture(params=members(VARIANTS, 2, "PostgreSQL, crashes of the server"))
def variant(request: pytest.FixtureRequest) -> Variant:
    return VARIANTS[request.param]


@pytest.fixture
def empties(variant: Variant) -> bool:
    """Staging is UNLOGGED there, and the counts tell."""
    return variant.protocol == "wal" and variant.own_register


@pytest.fixture
def crash(server: PostgresService, harness: TableHarness) -> Callable[[], None]:
    def crash() -> None:
        _crash(server)
        harness.reconnect()

    return crash


@pytest.mark.parametrize("name", ["wal-append", "wal-upsert"])
def test_staging_tables_that_a_crash_has_emptied_but_kept_are_refused_by_their_count(
    server: PostgresService, shared_database: str, name: str
) -> None:
    with open_table(shared_database, VARIANTS[name]) as harness:
        _emptied_tables_are_refused(server, harness)


def test_an_epoch_committed_without_the_rows_of_emptied_tables_is_found(
    server: PostgresService, shared_database: str
) -> None:
    bug = Staging, "incomplete", lambda *_: None
    with open_table(shared_database, VARIANTS["wal-append"]) as harness:
        with planted(bug, by=pytest.fail.Exception, match="DID NOT RAISE"):
            _emptied_tables_are_refused(server, harness)
        assert harness.read() == []


def _emptied_tables_are_refused(server: PostgresService, harness: TableHarness) -> None:
    server.start()
    harness.reconnect()
    case = Case(harness)
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    # Their creation does not wait for the disk: without this the tables themselves are gone, and the
    # server refuses the INSERT. Nothing but the count refuses tables that are there and empty.
    with psycopg.connect(server.admin_url, autocommit=True) as superuser:
        superuser.execute("checkpoint")
    _crash(server)
    harness.reconnect()
    with pytest.raises(NotPreparedError, match="holds 0 of 3 rows") as refused:
        run.commit(0, shares)
    assert refused.value.__cause__ is None, "the table is there: it was counted"
    case.hides_all("after the crash emptied the staging tables")
    run = case.run()
    run.commit(0, run.tasks(0, LEFT, RIGHT))
    case.finished(LEFT, RIGHT, when="after the epoch was written again")
    case.close()


def _crash(server: PostgresService) -> None:
    """Kill it and start it, a second time where PostgreSQL's bug #17731 keeps it from starting.

    A backend that outlives its postmaster for a moment aborts what it was in: it removes half of the
    UNLOGGED table that it had created, and nothing tells the recovery so. The second start goes well.
    """
    server.kill()
    try:
        server.start()
    except UnavailableError as error:
        if "File exists" not in str(error):
            raise
        server.start()
