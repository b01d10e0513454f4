"""The server is killed with SIGKILL at the worst moments: no row is lost, none is doubled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from abs_core.errors import AbsError
from abs_services import S3Service
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.harness import Row

pytestmark = pytest.mark.services

LEFT, RIGHT = rows(0, 3), rows(10, 3)
CRASHES = 10


@pytest.fixture
def server(store: S3Service) -> S3Service:
    if not store.controllable:
        pytest.skip("the server is not ours to kill")
    return store


@pytest.mark.parametrize("protocol", ["2pc"], indirect=True)
def test_a_server_that_dies_between_pre_commit_and_commit(server: S3Service, case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT, RIGHT)
    crash(server)
    run.commit(0, shares)
    case.finished(LEFT, RIGHT, when="after a crash before the commit")


@pytest.mark.parametrize("protocol", ["2pc"], indirect=True)
def test_a_server_that_dies_behind_the_decision_and_behind_the_commit(
    server: S3Service, case: Case
) -> None:
    with pytest.raises(Halted):
        case.run(cut=Cut("commit")).epoch(0, LEFT, RIGHT)
    crash(server)
    case.run().epoch(0, LEFT, RIGHT)
    crash(server)
    case.run().epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after crashes behind the decision and behind the commit")


@pytest.mark.campaign
def test_a_server_that_dies_ten_times_in_a_run(server: S3Service, case: Case) -> None:
    """In turn with pre-commits that nobody has decided, and in the middle of the commit."""
    parts = [(rows(100 * epoch, 5), rows(100 * epoch + 50, 5)) for epoch in range(CRASHES)]
    for epoch, shares in enumerate(parts):
        if epoch % 2:
            dies_before_the_commit(case, server, epoch, shares)
        else:
            dies_inside_the_commit(case, server, epoch, shares)
    expected = [rows for pair in parts for rows in pair]
    case.run().begin(CRASHES)  # a start sweeps
    case.finished(*expected, when=f"after {CRASHES} crashes of the server")


def dies_before_the_commit(
    case: Case, server: S3Service, epoch: int, parts: Sequence[Sequence[Row]]
) -> None:
    run = case.run()
    shares = run.tasks(epoch, *parts)
    crash(server)
    run.commit(epoch, shares)


def dies_inside_the_commit(
    case: Case, server: S3Service, epoch: int, parts: Sequence[Sequence[Row]]
) -> None:
    """The driver goes with the server, and another one takes over; its tasks write again."""
    before = "co_commit" if case.co_commits else "commit"
    with pytest.raises(Halted):
        case.run(cut=Cut(before)).epoch(epoch, *parts)
    server.kill()
    with pytest.raises(AbsError) as failed:
        case.run().epoch(epoch, *parts)
    assert failed.value.retryable
    server.start()
    case.run().epoch(epoch, *parts)


def crash(server: S3Service) -> None:
    server.kill()
    server.start()
