"""A person's acts on a whole job: rename it, move its register, or let it begin again from nothing.

All first raise the generation, which fences a run that is alive; finish what is decided; and abort
what no decision can name any more. Each step may be repeated: an act that was cut off is done again.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from abs_core.contracts import Bound, Committer, Conflict, Inventory, RegisterStore
from abs_core.coordinator import Coordinator
from abs_core.errors import ConfigError, ContentionError
from abs_core.model import MOVED, JobState
from abs_core.patience import Patience
from abs_core.protocol import Identity

BY_HAND = Patience(30.0)
"""With a system that is away: a person sits there and waits."""


def rename(register: Inventory, committer: Committer, job: str, new: str) -> JobState:
    """Give the job another register key, with all that it has committed; the state under it.

    Args:
        committer: acts on the job's handles.
        new: a key made by ``job_key``; no other job's.

    Raises:
        ConfigError: there is no such job, or another one under the new key.
        ProtocolError: what is decided cannot be finished, or the cell cannot be moved.
        ContentionError: the job is running.
    """
    state = _movable(register, job)
    there = _arrived(register, new, state, "choose another name.")
    lineage = state.lineage
    mark = f"{MOVED}{new}: "
    if not lineage.startswith(MOVED):
        state = take_over(register, committer, state)
        # From here on nobody can start it under the old name, whatever happens to this process.
        _swap(register, state, replace(state, lineage=f"{mark}{lineage}"))
    elif lineage.startswith(mark):
        lineage = lineage.removeprefix(mark)
    else:
        raise ConfigError(
            f"Job {job!r} was being {lineage.partition(': ')[0]}.", remedy="finish that first."
        )
    moved = replace(state, job=new, lineage=lineage)
    if there is None and isinstance(register.compare_and_set(new, None, moved), Conflict):
        raise ContentionError("Somebody else moves this job, too.", job=job, remedy="look again.")
    register.retire(job)
    return there or moved


def move(register: Inventory, committer: Committer, job: str, other: Inventory) -> JobState:
    """Put the job's state into another register store; the state there.

    What stays behind says where it went, and can be started by no run: it is not deleted, so that a
    query that still looks for its register here is refused. To move it back is the same act.

    Args:
        committer: acts on the job's handles, in all its targets.

    Raises:
        ConfigError: there is no such job, it has been moved already, or another one is there.
        ProtocolError: what is decided cannot be finished, or the cell cannot be moved.
        TargetError: a system does not answer: what is in doubt there is not ended.
        ContentionError: the job is running.
    """
    state = _movable(register, job)
    there = _arrived(other, job, state, "rename one of them.")
    place = other.place(job)
    begun, done = f"{MOVED}{place}, unfinished: ", f"{MOVED}{place}: "
    if state.lineage.startswith(done) and there is not None and there.moved_to is None:
        return there
    if state.moved_to is None:
        if there is not None and there.moved_to is None:
            raise ConfigError(
                f"Job {job!r} is here and there: one of both is a copy.",
                remedy="find out which one the query uses, and retire the other.",
            )
        state = take_over(register, committer, state)
        # From here on nobody can start it, whatever happens to this process.
        marked = replace(state, lineage=f"{begun}{state.lineage}")
        _swap(register, state, marked)
        state = marked
    if not state.lineage.startswith(begun):
        raise ConfigError(
            f"The register of job {job!r} was moved to {state.moved_to}.",
            remedy="look there; what is here is a note.",
        )
    lineage = state.lineage.removeprefix(begun)
    arrived = _put(other, replace(state, lineage=lineage))
    _swap(register, state, replace(state, lineage=f"{done}{lineage}"))
    return arrived


def _put(other: Inventory, state: JobState) -> JobState:
    """The state in its new place: put there now, or by a try before, which a run may have followed."""
    there = other.load(state.job)
    if there is not None and there.state.moved_to is None:
        return there.state
    version = None if there is None else there.version
    if isinstance(other.compare_and_set(state.job, version, state), Conflict):
        raise ContentionError(
            "Somebody else moves this job, too.", job=state.job, remedy="look again."
        )
    return state


def reset(register: Inventory, committer: Committer, job: str) -> JobState:
    """Forget the job, so that it begins again from nothing; what it was.

    Raises:
        ConfigError: there is no such job.
        ProtocolError, ContentionError: as ``rename``.
    """
    state = take_over(register, committer, _movable(register, job))
    register.retire(job)
    return state


def _movable(register: Inventory, job: str) -> JobState:
    """The job's state, in a cell that can be moved."""
    stored = register.load(job)
    if stored is None:
        raise ConfigError(
            f"There is no register of a job {job!r} here.", remedy="see `abs register list`."
        )
    if isinstance(register, Bound):
        register.check_movable(job)
    return stored.state


def _arrived(register: Inventory, job: str, state: JobState, remedy: str) -> JobState | None:
    """What an act that was cut off has put there already; None: nothing."""
    there = register.load(job)
    if there is not None and there.state.register != state.register:
        raise ConfigError(f"There is another job {job!r} there already.", remedy=remedy)
    return None if there is None else there.state


def take_over(register: RegisterStore, committer: Committer, state: JobState) -> JobState:
    """Raise the job's generation, finish what is decided and abort the rest; the state after it."""
    run = f"by-hand-{secrets.token_hex(8)}"
    who = Identity(state.job, state.lineage, run, state.target)
    coordinator = Coordinator(who, register, committer, co_commit=False, patience=BY_HAND)
    return coordinator.take_over()


def _swap(register: RegisterStore, expected: JobState, state: JobState) -> None:
    stored = register.load(expected.job)
    swapped: object = Conflict()
    if stored is not None and stored.state == expected:
        swapped = register.compare_and_set(expected.job, stored.version, state)
    if isinstance(swapped, Conflict):
        raise ContentionError(
            "The job's register changed meanwhile: the job is running.",
            job=expected.job,
            remedy="stop the job, then do it again.",
        )
