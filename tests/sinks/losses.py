"""A job that loses one request or reply, and its engine: one for the losses of all systems."""

from __future__ import annotations

from contextlib import suppress

from abs_core.errors import AbsError, UnavailableError
from abs_core.model import Drained, Share
from abs_testing.case import Case, rows
from abs_testing.engine import Attempt, Run

EPOCHS = [(rows(0, 3), rows(10, 3)), (rows(20, 3), rows(30, 3))]


def whole_job(case: Case, *, starts: int = 1) -> None:
    """As an engine does: a task is tried again, a query is started again.

    Args:
        starts: how often a start may be tried; one that is lost may take all of a broker's patience.
    """
    run = _start(case, starts)
    for number, parts in enumerate(EPOCHS):
        for _restart in range(3):
            try:
                shares = [_task(run, number, p, part) for p, part in enumerate(parts)]
                run.commit(number, shares)
                break
            except AbsError:
                run = _start(case, starts)
        else:
            raise AssertionError("three restarts did not bring the epoch to its end")
    case.finished(*(part for parts in EPOCHS for part in parts), when="after the job")


def _task(run: Run, epoch: int, partition: int, part: list[tuple[int, str]]) -> Share:
    """A task that is tried again where its system does not answer."""
    for _retry in range(3):
        attempt: Attempt | None = None
        try:
            if run.decided(epoch):
                return Drained(len(part))
            attempt = run.attempt(epoch, partition)
            return attempt.write(*part).pre_commit()
        except UnavailableError:
            if attempt is not None:
                attempt.writer.abort()
    raise AssertionError("three attempts did not bring the task to its end")


def _start(case: Case, tries: int) -> Run:
    for _ in range(tries - 1):
        with suppress(UnavailableError):
            return case.run()
    return case.run()
