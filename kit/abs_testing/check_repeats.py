"""Checks that a late duplicate of a request that ended a transaction does no harm (FLINK-8132).

The first copy took effect and was answered; a client's own retry or the network delivers the second.
It must not end a later transaction of the same name. The job of ``check_positions`` is run once for
each such request and each call after it, up to the end of the next epoch; the second copy arrives
just before that call. A ``Repeating`` that drops the first copy makes of it a request that is late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from abs_core.errors import AbsError
from abs_testing.calls import Calls
from abs_testing.case import Case
from abs_testing.harness import Harness
from abs_testing.job import EPOCHS, LIVES, TRIES, Choose, Job, enough_met, try_each, without_a_fault


class Repeating(Calls, Protocol):
    """``Calls`` that can deliver a call a second time."""

    def repeat(self, name: str, number: int, before: str, nth: int) -> None:
        """Restart the count, and repeat a call just before a later one; see ``calls.Again``.

        The answer to the second copy is dropped.
        """
        ...

    @property
    def repeated(self) -> bool:
        """Whether a call was repeated."""
        ...

    def ends(self, name: str) -> bool:
        """Whether a call of this name ends a transaction or makes rows visible."""
        ...


RepeatOpener = Callable[[], AbstractContextManager[tuple[Harness, Repeating]]]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The call to repeat, and the call before which it is repeated; see ``calls.Again``."""

    name: str
    number: int
    next: str
    nth: int

    def __str__(self) -> str:
        return f"{self.name} #{self.number} again before {self.next} #{self.nth} after it"


def check_repeats(
    opener: RepeatOpener,
    *,
    choose: Choose[Repeat] = tuple,
    at_once: int = 1,
    following: int = 2,
    copies: bool = False,
) -> tuple[Repeat, ...]:
    """Repeat each call that ends a transaction, before each call of the next epoch.

    Args:
        opener: as for ``check_positions``.
        choose: selects the repeats to try; default: all.
        at_once: number of jobs that run at the same time, each in a thread.
        following: a call is repeated up to this later call of its name, or the end of the job.
        copies: see ``Job``.

    Returns:
        the repeats that took place.

    Raises:
        AssertionError: a row is missing or duplicated, something is left behind, or the job does not
            reach its end; one line for each repeat. Or too few calls were repeated.
    """
    calls = without_a_fault(opener, copies=copies)
    chosen = tuple(choose(repeats(opener, calls, following)))
    met = try_each(chosen, partial(_try, opener, copies), at_once, "repeats")
    enough_met(len(chosen), met.count(False), "repeats")
    return tuple(repeat for repeat, repeated in zip(chosen, met, strict=True) if repeated)


def repeats(opener: RepeatOpener, calls: Sequence[str], following: int = 2) -> list[Repeat]:
    """All repeats of a job with these calls."""
    with opener() as (_, carrier):
        ends = [number for number, name in enumerate(calls, 1) if carrier.ends(name)]
    all_repeats = []
    for place, first in enumerate(ends):
        name = calls[first - 1]
        # Of ends, the second of the same kind that follows is the next epoch's, or comes after it.
        same = [n for n in ends[place + 1 :] if calls[n - 1] == name]
        last = (same[following - 1 : following] or [len(calls)])[0]
        all_repeats += [
            Repeat(name, calls[:first].count(name), later, calls[first:before].count(later))
            for before, later in enumerate(calls[first:last], first + 1)
        ]
    return all_repeats


def _try(opener: RepeatOpener, copies: bool, repeat: Repeat) -> bool:
    """Whether the call was repeated in one of a few runs."""
    return any(_repeat(opener, copies, repeat) for _ in range(TRIES))


def _repeat(opener: RepeatOpener, copies: bool, repeat: Repeat) -> bool:
    with opener() as (harness, calls), closing(Case(harness)) as case:
        calls.repeat(repeat.name, repeat.number, repeat.next, repeat.nth)
        job = Job(case, copies=copies)
        lives = LIVES
        while not job.done:
            try:
                job.live()
            except AbsError as error:
                lives -= 1
                if not (error.retryable and lives):
                    raise
        case.holds(case.expected(EPOCHS), when="after the job")
        case.run().begin(len(EPOCHS))  # a start sweeps
        case.finished(case.expected(EPOCHS), when="after one more start")
        return calls.repeated
