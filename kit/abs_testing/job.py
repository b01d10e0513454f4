"""The job of ``check_positions`` and ``check_repeats``: three epochs, two runs, and its engine.

The engine acts as Spark does: it retries a task, abandons a failed epoch and restarts the job.
``try_each`` tries many faults, each in a job of its own on a target of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TypeVar

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
            shares = [
                self._task(run, epoch, partition, part)
                for partition, part in enumerate(EPOCHS[epoch])
            ]
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


T = TypeVar("T")
E = TypeVar("E")
Choose = Callable[[Sequence[T]], Iterable[T]]
"""Selects those to try."""

TRIES = 3
"""How often a job is run for a fault: until the call is made, as some calls depend on time."""

OF_MISSED = 20
"""One in this many faults may be missed, as a job's calls vary a little between runs."""

FEW_MISSED = 2
"""This many may be missed if few are tried; never all."""


def try_each(chosen: Sequence[T], attempt: Callable[[T], E], at_once: int, faults: str) -> list[E]:
    """What each attempt returns; so many run at the same time, each in a thread.

    Raises:
        AssertionError: attempts failed; one line for each.
    """

    def tried(one: T) -> tuple[str, list[E]]:
        try:
            return "", [attempt(one)]
        except AssertionError as broken:
            return f"{one}: {broken}", []
        except Exception as broken:  # noqa: BLE001 - whatever ends the job is this one's failure
            return f"{one}: {type(broken).__name__}: {broken}", []

    with ThreadPoolExecutor(at_once) as pool:
        ends = list(pool.map(tried, chosen))
    failures = [failure for failure, _ in ends if failure]
    assert not failures, f"{len(failures)} of {len(chosen)} {faults}:\n" + "\n".join(failures)
    return [end for _, results in ends for end in results]


def enough_met(chosen: int, missed: int, faults: str) -> None:
    """Check that enough of the chosen faults were injected.

    Raises:
        AssertionError: too many were missed.
    """
    most = max(chosen // OF_MISSED, min(chosen - 1, FEW_MISSED))
    assert missed <= most, (
        f"{missed} of {chosen} {faults} were not met: what was to bring the fault brings none"
    )
