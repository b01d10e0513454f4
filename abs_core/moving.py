"""A person's acts on a whole job: give it another name, or let it begin again from nothing.

Both first raise the generation, which fences a run that is alive; finish what is decided; and abort
what no decision can name any more. Each step may be repeated: an act that was cut off is done again.
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from abs_core.contracts import Bound, Committer, Conflict, Inventory, RegisterStore
from abs_core.coordinator import Coordinator
from abs_core.errors import ConfigError, ContentionError
from abs_core.model import JobState
from abs_core.protocol import Identity

_MOVED = "moved to "
"""Begins the lineage of a register whose job is being moved: no query has it, so none can start."""


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
    stored, there = register.load(job), register.load(new)
    if stored is None:
        raise ConfigError(
            f"There is no register of a job {job!r} here.", remedy="see `abs register list`."
        )
    if there is not None and there.state.register != stored.state.register:
        raise ConfigError(
            f"There is another job {new!r} here already.", remedy="choose another name."
        )
    if isinstance(register, Bound):
        register.check_movable(job)
    lineage, state = stored.state.lineage, stored.state
    mark = f"{_MOVED}{new}: "
    if not lineage.startswith(_MOVED):
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
    return moved if there is None else there.state


def reset(register: Inventory, committer: Committer, job: str) -> JobState:
    """Forget the job, so that it begins again from nothing; what it was.

    Raises:
        ConfigError: there is no such job.
        ProtocolError, ContentionError: as ``rename``.
    """
    stored = register.load(job)
    if stored is None:
        raise ConfigError(
            f"There is no register of a job {job!r} here.", remedy="see `abs register list`."
        )
    if isinstance(register, Bound):
        register.check_movable(job)
    state = take_over(register, committer, stored.state)
    register.retire(job)
    return state


def take_over(register: RegisterStore, committer: Committer, state: JobState) -> JobState:
    """Raise the job's generation, finish what is decided and abort the rest; the state after it."""
    run = f"by-hand-{secrets.token_hex(8)}"
    who = Identity(state.job, state.lineage, run, state.target)
    return Coordinator(who, register, committer, co_commit=False).take_over()


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
