"""A server that is killed with SIGKILL at the worst moments: one suite for all sinks.

A system's module takes the tests from here, and has the fixtures ``server`` and ``harness``. Where a
crash is something else, or leaves something else, it has its own ``crash`` and ``empties``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from threading import Timer

import pytest

from abs_core.errors import AbsError, NotPreparedError
from abs_core.model import Share
from abs_core.patience import Patience
from abs_services.contracts import Service
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from abs_testing.harness import Row

__all__ = [
    "test_a_server_that_dies_behind_the_decision_and_behind_the_commit",
    "test_a_server_that_dies_between_pre_commit_and_commit",
    "test_a_server_that_dies_while_a_task_writes",
    "test_a_server_that_is_killed_five_times_in_a_run",
]

LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)
KILLS = 5
PATIENT = Patience(seconds=60.0)
"""A broker that comes back loads its transactions: on a busy machine that takes more than 5 s."""


def killable(server: Service) -> Service:
    """The server, which runs; the test is skipped where nobody may kill it."""
    if not server.controllable:
        pytest.skip("the server is not ours to kill")
    server.start()
    return server


def test_a_server_that_dies_between_pre_commit_and_commit(
    case: Case, crash: Callable[[], None], empties: bool
) -> None:
    run = case.run(patience=PATIENT)
    shares = run.tasks(0, LEFT, RIGHT)
    crash()
    if empties:
        with pytest.raises(NotPreparedError):
            run.commit(0, shares)
        case.hides_all("after the crash emptied what was staged")
        run = case.run(patience=PATIENT)
        shares = run.tasks(0, LEFT, RIGHT)
    run.commit(0, shares)
    run.epoch(1, NEXT)
    case.finished(LEFT, RIGHT, NEXT, when="after a crash before the commit")


def test_a_server_that_dies_behind_the_decision_and_behind_the_commit(
    case: Case, crash: Callable[[], None]
) -> None:
    if not case.co_commits:
        with pytest.raises(Halted):
            case.run(cut=Cut("commit", handles=1)).epoch(0, LEFT, RIGHT)
        crash()  # decided, one of two handles committed
    case.run(patience=PATIENT).epoch(0, LEFT, RIGHT)
    crash()
    case.run(patience=PATIENT).epoch(0, LEFT, RIGHT)
    case.finished(LEFT, RIGHT, when="after crashes behind the decision and behind the commit")


def test_a_server_that_dies_while_a_task_writes(case: Case, crash: Callable[[], None]) -> None:
    run = case.run(patience=PATIENT)
    attempt = run.attempt(0).write(*LEFT)
    crash()
    share: Share
    try:
        share = attempt.write(*RIGHT).pre_commit()
    except AbsError:
        attempt.writer.abort()
        share = run.task(0, 0, [*LEFT, *RIGHT])
    run.commit(0, [share])
    case.finished(LEFT, RIGHT, when="after a crash while a task wrote")


@pytest.mark.campaign
def test_a_server_that_is_killed_five_times_in_a_run(case: Case, crash: Callable[[], None]) -> None:
    """At any moment of an epoch; some tasks have no row, some epochs none at all."""
    chance = random.Random(5)
    run = _started(case)
    written: list[Row] = []
    for epoch in range(2 * KILLS + 1):
        parts = _parts(epoch)
        killer = Timer(chance.uniform(0, 0.5), crash)
        if epoch % 2:
            killer.start()
        run = through(lambda: _started(case), run, epoch, parts)
        if epoch % 2:
            killer.join()
        written += [row for part in parts for row in part]
    case.finished(written, when=f"after {KILLS} kills of the server")


def _parts(epoch: int) -> list[list[Row]]:
    """Of a task with rows, one without, and one more with rows; every fourth epoch is empty."""
    if epoch % 4 == 3:
        return [[], []]
    return [rows(100 * epoch, 20), [], rows(100 * epoch + 50, 20)]


def _started(case: Case) -> Run:
    for _retry in range(10):
        try:
            return case.run(patience=PATIENT)
        except AbsError as error:
            print(f"at a start: {error}")
    raise AssertionError("ten tries did not start the job")


def through(start: Callable[[], Run], run: Run, epoch: int, parts: Sequence[Sequence[Row]]) -> Run:
    """Bring the epoch to its end, as an engine does that starts its query again; the last run."""
    for _restart in range(10):
        try:
            run.commit(epoch, run.tasks(epoch, *parts))
        except AbsError as error:
            print(f"epoch {epoch}: {error}")
            run = start()
        else:
            return run
    raise AssertionError(f"ten restarts did not bring epoch {epoch} to its end")
