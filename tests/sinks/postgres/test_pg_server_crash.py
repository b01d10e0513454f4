"""The server is killed with SIGKILL at the worst moments: nothing is lost, nothing is doubled."""

from __future__ import annotations

import pytest

from abs_core.errors import NotPreparedError, UnavailableError
from abs_services import PostgresService
from abs_sinks.postgres.testing import TableHarness, Variant
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from tests import sample

pytestmark = pytest.mark.services
LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)


@pytest.fixture
def server(postgres: PostgresService) -> PostgresService:
    if not postgres.controllable:
        pytest.skip("the server is not ours to kill")
    return postgres


@sample.cases(2)
def test_between_pre_commit_and_commit(
    server: PostgresService, harness: TableHarness, variant: Variant
) -> None:
    case = Case(harness)
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
    case.close()


@sample.cases(2)
def test_between_decision_and_commit(server: PostgresService, harness: TableHarness) -> None:
    case = Case(harness)
    if case.co_commits:
        pytest.skip("decision and commit are one transaction there")
    with pytest.raises(Halted):
        case.run(cut=Cut("commit", handles=1)).epoch(0, LEFT, RIGHT)
    _crash(server, harness)
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a crash between the decision and its commit")
    case.close()


@sample.cases(2)
def test_after_the_commit(server: PostgresService, harness: TableHarness) -> None:
    case = Case(harness)
    case.run().epoch(0, LEFT, RIGHT)
    _crash(server, harness)
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after a crash behind the commit")
    case.close()


@sample.cases(2)
def test_in_the_middle_of_copy(server: PostgresService, harness: TableHarness) -> None:
    case = Case(harness)
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
    case.close()


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
