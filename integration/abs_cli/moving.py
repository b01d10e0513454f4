"""Administrative operations on a job: rename it, move its register, or reset it.

Each first raises the generation, which fences a running job, then finishes open decisions and aborts
handles that no decision can name. An interrupted operation is repeated.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from abs_core.contracts import Committer, Conflict, Inventory, RegisterStore
from abs_core.coordinator import Coordinator
from abs_core.errors import (
    ConfigError,
    ContentionError,
    RegisterLostError,
    TargetWentBackError,
)
from abs_core.events import Event, Observer, Swept, ignore
from abs_core.lookback import past_of
from abs_core.model import MOVED, NOWHERE, HandleName, InDoubt, JobState
from abs_core.patience import Patience
from abs_core.protocol import Refused, RunIdentity, start, sweep

BY_HAND = Patience(30.0)
"""Patience with a system that is down; short, as a person waits for the command."""

UNFINISHED = ", unfinished"
"""Behind the place in the mark of a move: the register may not be there yet."""


def rename(register: Inventory, committer: Committer, job: str, new: str) -> JobState:
    """Give the job another register key and return the state under it.

    Args:
        new: an unused key made by ``job_key``.

    Raises:
        ConfigError: there is no such job, or another job has the new key.
        ProtocolError: an open decision cannot be finished, or the cell cannot be moved.
        TargetWentBackError: a target lacks rows of finished epochs.
        ContentionError: the job is running.
    """
    state = _movable(register, job)
    if new == job:
        raise ConfigError(f"The job has the name {job} already.", remedy="choose another name.")
    there = _arrived(register, new, state, "choose another name.")
    mark = f"{MOVED}{new}: "
    if state.moved_to is None:
        _check_alone(state, there)
        _check_targets(register, committer, state)
        state = take_over(register, committer, state)
        # From here on no run can start under the old name, even if this process dies.
        state = _swap(register, state, replace(state, lineage=f"{mark}{state.lineage}"))
    elif not state.lineage.startswith(mark):
        raise _elsewhere(state)
    lineage = state.lineage.removeprefix(mark)
    renamed = _put(register, state, register, replace(state, job=new, lineage=lineage))
    register.retire(job)
    return renamed


def move(register: Inventory, committer: Committer, job: str, other: Inventory) -> JobState:
    """Move the job's state into another register store and return it.

    The old cell stays and names the new place, so that a run that still uses the old store is refused.
    ``move`` also moves the state back.

    Args:
        committer: acts on the job's handles in all its targets.

    Raises:
        ConfigError: there is no such job, it was already moved, or the other store has the job.
        ProtocolError: an open decision cannot be finished, or the cell cannot be moved.
        TargetError: a system does not answer; its handles in doubt are not aborted.
        TargetWentBackError: a target lacks rows of finished epochs.
        ContentionError: the job is running.
    """
    state = _movable(register, job)
    there = _arrived(other, job, state, "rename one of them.")
    place = other.place(job)
    begun, done = f"{MOVED}{place}{UNFINISHED}: ", f"{MOVED}{place}: "
    if state.lineage.startswith(done) and there is not None and there.moved_to is None:
        return there
    if state.moved_to is None:
        _check_alone(state, there)
        _check_targets(register, committer, state)
        state = take_over(register, committer, state)
        # From here on no run can start, even if this process dies.
        state = _swap(register, state, replace(state, lineage=f"{begun}{state.lineage}"))
    if not state.lineage.startswith(begun):
        raise _elsewhere(state)
    lineage = state.lineage.removeprefix(begun)
    arrived = _put(register, state, other, replace(state, lineage=lineage))
    _swap(register, state, replace(state, lineage=f"{done}{lineage}"))
    return arrived


def _put(register: Inventory, marked: JobState, other: Inventory, state: JobState) -> JobState:
    """Store the state in its new cell, unless an interrupted command did; it may have gone on since.

    A note of an earlier move, which has a lower generation, is written over: it is no register.

    Args:
        marked: what the old cell has as long as no other process has finished the command.
    """
    there = other.load(state.job)
    if there is not None:
        if there.state.generation >= state.generation:
            return there.state
        _check_alone(state, there.state)
    version = None if there is None else there.version
    # Else another process has finished it, and the register may have been moved on from there.
    still = register.load(marked.job)
    if still is None or still.state != marked:
        raise _moving(state.job)
    if isinstance(other.compare_and_set(state.job, version, state), Conflict):
        raise _moving(state.job)
    return state


def _check_alone(state: JobState, there: JobState | None) -> None:
    """Raise ConfigError if the register, which no command has moved, is in its new cell, too."""
    if there is not None and there.moved_to is None:
        raise ConfigError(
            f"Job {state.job!r} has a register in both places: one of them is a copy.",
            remedy="find out which of them the query uses, and retire the other.",
        )


def _check_targets(register: Inventory, committer: Committer, state: JobState) -> None:
    """Raise TargetWentBackError if a target does not match the register.

    What a repair run is told, and part of what a start compares, has the job's name and place.
    """
    while True:
        past = past_of(state)
        looks = BY_HAND.retry(partial(committer.look_back, past))
        if not any(look.gone or look.ahead is not None for look in looks):
            return
        stored = register.load(state.job)
        if stored is None or stored.state == state:
            break
        state = stored.state  # the job is running: compare with what it has done since
    raise TargetWentBackError(
        "A target of the job has not what its register tells: one of them was restored, rolled back or "
        "made again. Nothing was changed.",
        job=state.job,
        remedy="start the job as it is: the start names what is missing, and each way out. Give that "
        "command again afterwards.",
    )


def _elsewhere(state: JobState) -> ConfigError:
    begun = state.moved_to or ""
    if begun == NOWHERE:
        return ConfigError(
            f"Job {state.job!r} is being reset or removed, by a command that did not finish.",
            remedy="run that command again first.",
        )
    place = begun.removesuffix(UNFINISHED)
    if begun != place:
        return ConfigError(
            f"The register of job {state.job!r} is being moved to {place}, by a command that did not "
            "finish.",
            remedy="run that command again first.",
        )
    return ConfigError(
        f"The register of job {state.job!r} was moved to {place}.",
        remedy="use the register there; here is only a note of it. If that is a new name of the job, "
        "run the command that gave it again.",
    )


def reset(
    register: Inventory,
    committer: Committer,
    job: str,
    forget: Callable[[JobState], None] = lambda state: None,
) -> JobState:
    """Delete the job's register, so that it starts anew; return its last state.

    Args:
        forget: called before, when no run is left that could write, nor can begin.

    Raises:
        ConfigError: there is no such job.
        ProtocolError, ContentionError: as ``rename``.
    """
    mark = f"{MOVED}{NOWHERE}: "
    state = _movable(register, job)
    if not state.lineage.startswith(mark):
        state = take_over(register, committer, state)
        # A run that is started now would have its decisions deleted.
        state = _swap(register, state, replace(state, lineage=f"{mark}{state.lineage}"))
    last = replace(state, lineage=state.lineage.removeprefix(mark))
    forget(last)
    register.retire(job)
    return last


def _movable(register: Inventory, job: str) -> JobState:
    """The job's state, after a check that its cell can be moved."""
    stored = register.load(job)
    if stored is None:
        raise ConfigError(
            f"There is no register of a job {job!r} here.", remedy="see `abs register list`."
        )
    register.check_movable(job)
    return stored.state


def _arrived(register: Inventory, job: str, state: JobState, remedy: str) -> JobState | None:
    """The state that an interrupted operation has already stored there; None if there is none."""
    there = register.load(job)
    if there is not None and there.state.register != state.register:
        raise ConfigError(f"The new place already has another job {job!r}.", remedy=remedy)
    return None if there is None else there.state


def take_over(
    register: RegisterStore, committer: Committer, state: JobState, observe: Observer = ignore
) -> JobState:
    """Raise the generation, finish open decisions and abort the rest; return the new state."""
    who = _by_hand(state)
    coordinator = Coordinator(
        who, register, committer, co_commit=False, patience=BY_HAND, observe=observe
    )
    try:
        return coordinator.take_over(state)
    except RegisterLostError as error:
        raise ContentionError(
            "The job's register has been renamed or deleted in the meantime, or is another one.",
            job=state.job,
            remedy="see `abs register list`, then run the command again if it is still needed.",
        ) from error


def fenced(
    register: RegisterStore,
    committer: Committer,
    before: JobState,
    doubts: Sequence[InDoubt],
    orphans: Collection[HandleName] = (),
) -> tuple[list[InDoubt], list[HandleName]]:
    """Fence the job's last run, and end what it has left; return what was aborted, and what stays.

    Args:
        doubts: what was in doubt before.
        orphans: handles of other registers that are aborted, too.
    """
    seen: list[Event] = []
    after = take_over(register, committer, before, seen.append)
    # The fenced run may have prepared more after the sweep.
    late = committer.in_doubt(before.job)
    names = [doubt.handle for doubt in late]
    rest = [*sweep(after, after.generation, names), *(n for n in names if n in orphans)]
    committer.abort(rest)
    # Not what was in doubt before: others may have ended it since.
    swept = {name for event in seen if isinstance(event, Swept) for name in event.handles}
    details = {str(doubt.handle): doubt for doubt in (*doubts, *late)}
    ended = [
        details.get(text) or InDoubt(name, None, "")
        for text in sorted({*swept, *map(str, rest)})
        if (name := HandleName.parse(text)) is not None
    ]
    return ended, [name for name in names if name not in rest]


def raised(state: JobState) -> JobState:
    """The state with the generation that ``take_over`` raises; nothing is stored.

    Raises:
        IdentityError: the register was moved; here is only the note that says where it is.
    """
    verdict = start(state, _by_hand(state), state.register)
    if isinstance(verdict, Refused):
        raise verdict.error
    return verdict.state


def _by_hand(state: JobState) -> RunIdentity:
    run = f"by-hand-{secrets.token_hex(8)}"
    return RunIdentity(state.job, state.lineage, run, state.target)


def _moving(job: str) -> ContentionError:
    return ContentionError(
        "Another process is moving this job's register at the same time.",
        job=job,
        remedy="wait until it has finished, then run the command again.",
    )


def _swap(register: RegisterStore, expected: JobState, state: JobState) -> JobState:
    stored = register.load(expected.job)
    swapped: object = Conflict()
    if stored is not None and stored.state == expected:
        swapped = register.compare_and_set(expected.job, stored.version, state)
    if isinstance(swapped, Conflict):
        raise ContentionError(
            "The job's register has changed in the meantime: the job is running, or another command "
            "acts on it.",
            job=expected.job,
            remedy="stop the job, then run the command again.",
        )
    return state
