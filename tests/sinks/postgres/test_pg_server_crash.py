"""The server is killed with SIGKILL at the worst moments: nothing is lost, nothing is doubled."""

from __future__ import annotations

import psycopg
import pytest

from abs_core.errors import NotPreparedError, UnavailableError
from abs_services import PostgresService
from abs_sinks.postgres.staging import Staging
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant, open_table
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from tests import sample
from tests.planted import planted

pytestmark = pytest.mark.services
LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)


@pytest.fixture
def server(postgres: PostgresService) -> PostgresService:
    if not postgres.controllable:
        pytest.skip("the server is not ours to kill")
    return postgres


@sample.cases(2)
def test_between_pre_commit_and_commit(
    server: PostgresService, harness: TableHarness, case: Case, variant: Variant
) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    _crash(server, harness)
    if variant.protocol == "wal" and variant.own_register:
        # Staging is UNLOGGED there: the crash has emptied it, and the counts tell.
        with pytest.raises(NotPreparedError):
            run.commit(0, shares)
        case.hides_all("after the crash emptied the staging tables")
        run = case.run()
        shares = run.tasks(0, LEFT, RIGHT)
    run.commit(0, shares)
    run.epoch(1, NEXT)
    case.finished(LEFT, RIGHT, NEXT, when="after a crash before the commit")


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
    _crash(server, harness)
    with pytest.raises(NotPreparedError, match="holds 0 of 3 rows") as refused:
        run.commit(0, shares)
    assert refused.value.__cause__ is None, "the table is there: it was counted"
    case.hides_all("after the crash emptied the staging tables")
    run = case.run()
    run.commit(0, run.tasks(0, LEFT, RIGHT))
    case.finished(LEFT, RIGHT, when="after the epoch was written again")
    case.close()


@sample.cases(2)
def test_between_decision_and_commit(
    server: PostgresService, harness: TableHarness, case: Case
) -> None:
    if case.co_commits:
        pytest.skip("decision and commit are one transaction there")
    with pytest.raises(Halted):
        case.run(cut=Cut("commit", handles=1)).epoch(0, LEFT, RIGHT)
    _crash(server, harness)
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a crash between the decision and its commit")


@sample.cases(2)
def test_after_the_commit(server: PostgresService, harness: TableHarness, case: Case) -> None:
    case.run().epoch(0, LEFT, RIGHT)
    _crash(server, harness)
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a crash behind the commit")


@sample.cases(2)
def test_in_the_middle_of_copy(server: PostgresService, harness: TableHarness, case: Case) -> None:
    run = case.run()
    attempt = run.attempt(0).write(*LEFT)
    server.kill()
    with pytest.raises(UnavailableError):
        attempt.write(*RIGHT).pre_commit()
    attempt.writer.abort()
    with pytest.raises(UnavailableError):
        case.sink().register().load("job")
    _start(server)
    harness.reconnect()
    run.epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after the server went away inside COPY")


def _crash(server: PostgresService, harness: TableHarness) -> None:
    server.kill()
    _start(server)
    harness.reconnect()


def _start(server: PostgresService) -> None:
    """Start it, a second time where PostgreSQL's bug #17731 keeps it from starting.

    A backend that outlives its postmaster for a moment aborts what it was in: it removes half of the
    UNLOGGED table that it had created, and nothing tells the recovery so. The second start goes well.
    """
    try:
        server.start()
    except UnavailableError as error:
        if "File exists" not in str(error):
            raise
        server.start()
