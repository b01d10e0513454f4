"""The rules of the checkpoint coordinator, pure: when one begins, is complete, has failed.

Frozen values in, frozen values out; the clock is an argument. ``checkpoint_coordinator`` acts on them.
Checkpoints are decided in ascending order, each only when every task has acknowledged it. One that
fails rewinds nothing: its barriers travel on, nobody waits for them, and what sinks pre-committed for
it is acknowledged again with the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from abs_core.model import Committable
from abs_core.runtime.alignment import Way
from abs_core.runtime.elements import TaskId


@dataclass(frozen=True, slots=True)
class Settings:
    """When checkpoints are taken. All times in seconds.

    Args:
        interval: from the begin of one to the begin of the next.
        min_pause: at least so long from the end of one to the begin of the next.
        timeout: one that is not complete by then has failed.
        in_flight: how many may be under way at once; 1 for ways that hold tasks.
        tolerated: so many may fail in a row before the job fails; None: any number.
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
        attempt: of the task's region; what an earlier attempt sends does not count.
        part: what the completion record keeps of it.
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
    """A checkpoint under way."""

    checkpoint: int
    began: float
    last: bool = False
    acks: Mapping[TaskId, Acknowledged] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Book:
    """Where the coordinator stands.

    Args:
        next: number of the next checkpoint; ascends over the whole life of a job.
        rested: when the last one ended, well or not.
        decided: the newest that this run knows to be decided; -1 before the first.
        failed: how many failed in a row.
        ended: tasks whose inputs have ended.
        closed: the checkpoint that commits all there was is decided.
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
    settings: Settings, way: Way, book: Book, now: float, sinks: frozenset[TaskId], *, asked: bool
) -> Pending | None:
    """The checkpoint to begin now, if any.

    Args:
        sinks: all tasks at which data ends; once each has ended, one last checkpoint commits.
        asked: somebody wants a savepoint.
    """
    if book.closed or len(book.pending) >= (1 if way.resumes else settings.in_flight):
        return None
    if any(pending.last for pending in book.pending):
        return None
    # After a failure a whole interval passes: else a timeout that is too short would stop the job.
    if now < book.rested + (settings.interval if book.failed else settings.min_pause):
        return None
    if book.ended >= sinks:
        return Pending(book.next, now, last=True)
    if asked or (way.periodic and now >= book.began + settings.interval):
        return Pending(book.next, now)
    return None


def begun(book: Book, pending: Pending) -> Book:
    under_way = (*book.pending, pending)
    return replace(book, next=pending.checkpoint + 1, began=pending.began, pending=under_way)


def acknowledged(book: Book, ack: Acknowledged) -> Book:
    """Take an acknowledgement; of a checkpoint that is not pending any more it changes nothing."""
    pending = tuple(
        replace(p, acks={**p.acks, ack.task: ack}) if p.checkpoint == ack.checkpoint else p
        for p in book.pending
    )
    return replace(book, pending=pending)


def decidable(book: Book, tasks: frozenset[TaskId]) -> Pending | None:
    """The oldest pending checkpoint, if every task has acknowledged it."""
    if book.pending and len(book.pending[0].acks) == len(tasks):
        return book.pending[0]
    return None


def handles(book: Book, pending: Pending) -> list[Committable]:
    """All that the decision names, with those of failed checkpoints before it.

    A sink names a handle until it hears of the decision; by then it may have been named already.
    """
    return [
        handle
        for _, ack in sorted(pending.acks.items())
        for handle in ack.handles
        if handle.handle.epoch > book.decided
    ]


def decided(book: Book, pending: Pending, now: float) -> Book:
    left = tuple(p for p in book.pending if p.checkpoint != pending.checkpoint)
    done = replace(book, decided=pending.checkpoint, failed=0, closed=pending.last)
    return replace(done, pending=left, rested=now)


def expired(settings: Settings, book: Book, now: float) -> Pending | None:
    """A checkpoint that takes too long."""
    return next((p for p in book.pending if now >= p.began + settings.timeout), None)


def aborted(book: Book, checkpoint: int, now: float) -> Book:
    left = tuple(p for p in book.pending if p.checkpoint != checkpoint)
    if left == book.pending:
        return book
    return replace(book, pending=left, rested=now, failed=book.failed + 1)


def too_many_failed(settings: Settings, book: Book) -> bool:
    return settings.tolerated is not None and book.failed > settings.tolerated


def restarted(book: Book, tasks: frozenset[TaskId], now: float) -> Book:
    """A region is restored: what was under way counts for nothing, its tasks begin anew."""
    return replace(book, pending=(), rested=now, ended=book.ended - tasks)
