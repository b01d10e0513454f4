"""Waits until an epoch is finished in all targets of its job, by looks at the job's register."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from abs_core.contracts import Stored
from abs_core.errors import JobGoneError, NotYetError, UnavailableError
from abs_core.model import NOWHERE, JobState
from abs_core.protocol import ENDED

TIMEOUT_SECONDS = 600.0

FIRST_PAUSE, LAST_PAUSE = 0.2, 5.0
"""Seconds between two looks: each pause is half as long again as the one before."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which epoch; without arguments the one that is decided last when the wait begins.

    Args:
        after: the first epoch for which the sources were asked at this time or later, in milliseconds
            since 1970 by the clock of the engine's driver (``Course.input``).
    """

    epoch: int | None = None
    after: int | None = None

    def __str__(self) -> str:
        if self.after is not None:
            return "An epoch that began after that time"
        return "A first epoch" if self.epoch is None else f"Epoch {self.epoch}"


def arrived(state: JobState, wanted: Wanted) -> int | None:
    """The finished epoch that was waited for; None if it is not finished in all targets yet."""
    if state.frontier is None:
        return None
    if wanted.after is None:
        last = state.frontier if wanted.epoch is None else wanted.epoch
        return last if last <= state.frontier else None
    for record in state.recent:
        asked = None if record.course is None else record.course.input
        if record.epoch <= state.frontier and asked is not None and asked >= wanted.after:
            return record.epoch
    return None


def wait_for(
    load: Callable[[], Stored | None],
    job: str,
    wanted: Wanted,
    timeout: float,
    *,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Wait, and return the number of the epoch, which is finished in all targets.

    Args:
        load: the job's cell.
        timeout: in seconds; 0: look once.

    Raises:
        NotYetError: it is not finished in time.
        JobGoneError: the job has no register, or began to count its epochs anew.
        UnavailableError: the register does not answer at the end of the time.
    """
    ends, seconds = clock() + timeout, FIRST_PAUSE
    first: JobState | None = None
    while True:
        away: UnavailableError | None = None
        try:
            state = _present(load(), first, job)
        except UnavailableError as error:
            away = error
        else:
            if first is None:
                first = state
                if wanted == Wanted():
                    wanted = replace(wanted, epoch=state.last_decided)
            if (epoch := arrived(state, wanted)) is not None:
                return epoch
        left = ends - clock()
        if not left > 0:  # nor if the time is no number
            raise away or _not_yet(state, wanted, timeout)
        pause(min(seconds, left))
        seconds = min(seconds * 1.5, LAST_PAUSE)


def _present(stored: Stored | None, first: JobState | None, job: str) -> JobState:
    """The state, if it is that of the same register and lineage as at the first look."""
    state = None if stored is None else stored.state
    why, remedy = (
        "",
        "see `abs register list` for its name; a job has a register from its first epoch.",
    )
    if state is None:
        why = "has no register here"
    elif state.moved_to == NOWHERE:
        why, remedy = "is being reset or removed", "wait again when that is done."
    elif state.moved_to is not None:
        why, remedy = f"was moved: its register is at {state.moved_to}", "wait there."
    elif first is not None and state.register != first.register:
        why, remedy = "has another register than before: it was begun again", "wait again."
    elif first is not None and state.lineage != first.lineage:
        why, remedy = "was adopted by another query, which counts its epochs anew", "wait again."
    if state is None or why:
        raise JobGoneError(f"The job {why}.", job=job, remedy=remedy)
    return state


def _not_yet(state: JobState, wanted: Wanted, timeout: float) -> NotYetError:
    done = (
        "no epoch is" if state.frontier is None else f"epoch {state.frontier} is the last that is"
    )
    undone = [decision.epoch for decision in state.open]
    more = f"; decided, and not finished: {', '.join(map(str, undone))}" if undone else ""
    ended = "; its last run has ended" if state.run.endswith(ENDED) else ""
    asked = (record.course.input for record in state.recent if record.course is not None)
    if wanted.after is not None and state.recent and not any(asked):
        ended += "; when its epochs read their input is not known: wait for an epoch, or the latest"
    return NotYetError(
        f"{wanted} is not finished in all targets after {timeout:g} s: {done}{more}{ended}.",
        job=state.job,
        remedy="wait again; `abs watch` shows whether the job runs.",
    )
