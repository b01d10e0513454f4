"""The checkpoint coordinator's rules: when a checkpoint begins, is complete, has failed. Pure.

``checkpoint_coordinator`` executes them; the clock is an argument. Checkpoints are decided in
ascending order, each when every task has acknowledged it. A failed one rewinds nothing: its
barriers travel on, nobody waits for them, and handles pre-committed for it are acknowledged again
with the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from abs_core.barriers.alignment import SnapshotStrategy
from abs_core.barriers.elements import TaskId
from abs_core.model import Committable

AGAIN_SECONDS = 3.0
"""Seconds from a failed checkpoint that sources wait for to the next one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """When checkpoints are taken. All times in seconds.

    Args:
        interval: between the begins of two.
        min_pause: least time from the end of one to the begin of the next.
        timeout: one that is not complete by then has failed.
        in_flight: most concurrent ones; 1 for strategies that hold tasks.
        tolerated: failures in a row before the job fails; None: any number.
    """

    interval: float = 3.0
    min_pause: float = 0.0
    timeout: float = 60.0
    in_flight: int = 1
    tolerated: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A task's part of a checkpoint is durable.

    Args:
        attempt: of the task's region; messages of earlier attempts do not count.
        part: for the completion record.
    """

    task: TaskId
    attempt: int
    checkpoint: int
    part: Any
    handles: tuple[Committable, ...] = ()


@dataclass(frozen=True, slots=True)
class Declined:
    """A task could not make its part durable."""

    task: TaskId
    attempt: int
    checkpoint: int
    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """All inputs of a task have ended."""

    task: TaskId
    attempt: int


Message = Acknowledged | Declined | Ended


@dataclass(frozen=True, slots=True)
class Pending:
    """A checkpoint in progress."""

    checkpoint: int
    began: float
    last: bool = False
    acks: Mapping[TaskId, Acknowledged] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """The coordinator's state.

    Args:
        next: number of the next checkpoint; ascends over the whole life of a job.
        rested: when the last one ended, well or not.
        decided: the newest one known to be decided; -1 before the first.
        failed: failures in a row.
        ended: tasks whose inputs have ended.
        closed: the final checkpoint is decided.
    """

    next: int
    began: float
    rested: float
    decided: int = -1
    pending: tuple[Pending, ...] = ()
    failed: int = 0
    ended: frozenset[TaskId] = frozenset()
    closed: bool = False


def due(
    settings: Settings,
    strategy: SnapshotStrategy,
    state: CoordinatorState,
    now: float,
    sinks: frozenset[TaskId],
    *,
    asked: bool,
    waited: bool = False,
) -> Pending | None:
    """The checkpoint to begin now, if any.

    Args:
        sinks: all tasks at which data ends; once each has ended, one last checkpoint commits.
        asked: a savepoint is requested.
        waited: sources read nothing before one is decided.
    """
    if state.closed or len(state.pending) >= (1 if strategy.resumes else settings.in_flight):
        return None
    if any(pending.last for pending in state.pending):
        return None
    # After a failure a whole interval passes: else a timeout that is too short would stop the job.
    # Not where it stands still for want of one: an interval may be an hour.
    after = min(settings.interval, AGAIN_SECONDS) if waited else settings.interval
    if now < state.rested + (after if state.failed else settings.min_pause):
        return None
    if state.ended >= sinks:
        return Pending(state.next, now, last=True)
    if asked or waited or (strategy.periodic and now >= state.began + settings.interval):
        return Pending(state.next, now)
    return None


def begun(state: CoordinatorState, pending: Pending) -> CoordinatorState:
    under_way = (*state.pending, pending)
    return replace(state, next=pending.checkpoint + 1, began=pending.began, pending=under_way)


def acknowledged(state: CoordinatorState, ack: Acknowledged) -> CoordinatorState:
    """Note an acknowledgement; ignored if the checkpoint is not pending any more."""
    pending = tuple(
        replace(p, acks={**p.acks, ack.task: ack}) if p.checkpoint == ack.checkpoint else p
        for p in state.pending
    )
    return replace(state, pending=pending)


def decidable(state: CoordinatorState, tasks: frozenset[TaskId]) -> Pending | None:
    """The oldest pending checkpoint, if every task has acknowledged it."""
    if state.pending and len(state.pending[0].acks) == len(tasks):
        return state.pending[0]
    return None


def handles(state: CoordinatorState, pending: Pending) -> list[Committable]:
    """All handles for the decision, with those of failed checkpoints before it.

    A sink repeats a handle until it hears of the decision; so it may have been named already.
    """
    return [
        handle
        for _, ack in sorted(pending.acks.items())
        for handle in ack.handles
        if handle.handle.epoch > state.decided
    ]


def decided(state: CoordinatorState, pending: Pending, now: float) -> CoordinatorState:
    left = tuple(p for p in state.pending if p.checkpoint != pending.checkpoint)
    done = replace(state, decided=pending.checkpoint, failed=0, closed=pending.last)
    return replace(done, pending=left, rested=now)


def expired(settings: Settings, state: CoordinatorState, now: float) -> Pending | None:
    """A checkpoint that exceeds its timeout."""
    return next((p for p in state.pending if now >= p.began + settings.timeout), None)


def aborted(state: CoordinatorState, checkpoint: int, now: float) -> CoordinatorState:
    left = tuple(p for p in state.pending if p.checkpoint != checkpoint)
    if left == state.pending:
        return state
    return replace(state, pending=left, rested=now, failed=state.failed + 1)


def too_many_failed(settings: Settings, state: CoordinatorState) -> bool:
    return settings.tolerated is not None and state.failed > settings.tolerated


def restarted(state: CoordinatorState, tasks: frozenset[TaskId], now: float) -> CoordinatorState:
    """Drop pending checkpoints after a region was restored; its tasks begin anew."""
    return replace(state, pending=(), rested=now, ended=state.ended - tasks)
