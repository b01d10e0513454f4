"""The job of ``check_positions`` and ``check_repeats``: three epochs, two runs, and its engine.

The engine acts as Spark does: it retries a task, abandons a failed epoch and restarts the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress

from abs_core.errors import AbsError
from abs_core.model import Drained, Share
from abs_core.patience import Patience
from abs_testing.calls import PositionOpener
from abs_testing.case import Case, rows
from abs_testing.engine import QUICK, Run
from abs_testing.harness import Row

EPOCHS: tuple[tuple[Sequence[Row], ...], ...] = (
    (rows(0, 4), rows(10, 3)),
    # Two old keys again: append has both values, upsert the new one.
    ([*rows(20, 3), *rows(0, 2, "new")],),
    (rows(30, 3),),
)
RESTART = 2
"""Epochs of the first run; a second run writes the others."""

LIVES = 4
"""How often the engine restarts a failed run."""


class Job:
    """An engine that starts the job, retries tasks, and abandons a failed epoch.

    Args:
        copies: whether each task has a speculative copy, which pre-commits, too, and loses.
    """

    def __init__(self, case: Case, patience: Patience = QUICK, *, copies: bool = False) -> None:
        self._case = case
        self._patience = patience
        self._copies = copies
        self._next = 0

    @property
    def done(self) -> bool:
        return self._next == len(EPOCHS)

    def live(self) -> None:
        """Work through the epochs that are not done yet; raises what fails one of them."""
        for end in (RESTART, len(EPOCHS)):
            if self._next >= end:
                continue
            run = self._case.run(patience=self._patience)
            while self._next < end:
                self._epoch(run)

    def _epoch(self, run: Run) -> None:
        epoch = self._next
        try:
            shares = [self._task(run, epoch, *given) for given in enumerate(EPOCHS[epoch])]
            run.commit(epoch, shares)
        except AbsError:
            with suppress(AbsError):  # an engine logs it, and ends the run anyway
                run.abort(epoch)
            raise
        self._next += 1

    def _task(self, run: Run, epoch: int, partition: int, part: Sequence[Row]) -> Share:
        """A task, with one retry in the same run."""
        try:
            if self._copies:
                self._attempt(run, epoch, partition, part)
            return self._attempt(run, epoch, partition, part)
        except AbsError as error:
            if not error.retryable:
                raise
            return self._attempt(run, epoch, partition, part)

    def _attempt(self, run: Run, epoch: int, partition: int, part: Sequence[Row]) -> Share:
        if run.decided(epoch):
            return Drained(len(part))
        attempt = run.attempt(epoch, partition)
        try:
            return attempt.write(*part).pre_commit()
        except BaseException:
            attempt.writer.abort()
            raise


def without_a_fault(opener: PositionOpener, *, copies: bool = False) -> tuple[str, ...]:
    """The calls of the job in order, without a fault."""
    with opener() as (harness, calls), closing(Case(harness)) as case:
        calls.arm(1, None)
        Job(case, copies=copies).live()
        seen = tuple(calls.seen)
        case.run().begin(len(EPOCHS))
        case.finished(case.expected(EPOCHS), when="without a fault")
    assert seen, "no call of the job went through what was to carry them"
    return seen
