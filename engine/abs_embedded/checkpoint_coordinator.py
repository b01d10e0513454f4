"""Executes the checkpoint rules, with their I/O: triggers, collects, decides, notifies.

The decision is one compare-and-set of the job's register, by the same ``abs_core.coordinator`` as
in Spark. The completion record with snapshot and handles is durable before it, and the register
contains its digest. So a checkpoint is exactly what the sinks are committed to.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from abs_core.barriers import checkpoint_rules as rules
from abs_core.barriers.alignment import SnapshotStrategy
from abs_core.barriers.checkpoint_rules import (
    CoordinatorState,
    Declined,
    Ended,
    Message,
    Pending,
    Settings,
)
from abs_core.barriers.elements import Copy, Observe, TaskId, unobserved
from abs_core.errors import FencedError, ProtocolError, TargetError, UnavailableError
from abs_core.model import Committable
from abs_embedded.state.contracts import StateOwner
from abs_embedded.task import Command, Task

_log = logging.getLogger("abs_embedded")


class Keeper(Protocol):
    """Stores completion records, and decides."""

    def write(self, pending: Pending, handles: Sequence[Committable]) -> str:
        """Make the completion record durable; returns its fingerprint.

        Raises FencedError if a newer run has taken over, TargetError or another ProtocolError if it
        is not written; the checkpoint has then failed.
        """
        ...

    def decide(self, checkpoint: int, handles: Sequence[Committable], fingerprint: str) -> None:
        """Decide the checkpoint by exactly these handles, and commit them.

        Raises AbsError if the outcome is unknown; only a recovery may find out.
        """
        ...

    def retain(self, checkpoint: int) -> None:
        """Free what no kept checkpoint needs; never raises: a failure is logged."""
        ...


class Companion:
    """Follows a run's checkpoints, and may request one; this one does nothing."""

    def asks(self) -> bool:
        """Whether a checkpoint is wanted as soon as possible."""
        return False

    def begin(self, checkpoint: int) -> None:
        """A checkpoint begins; no task knows it yet."""

    def copied(self, copy: Copy, place: StateOwner) -> None:
        """A task's copy is about to be made durable, in this thread; an AbsError fails it."""

    def decided(self, checkpoint: int) -> None:
        """It is decided and committed; never raises."""

    def failed(self, checkpoint: int, why: str) -> None:
        """It will never be decided; never raises."""


@dataclass(slots=True)
class CheckpointCoordinator:
    """The checkpoint coordinator of one run. ``step`` is called by one thread, ``inbox`` by any.

    Args:
        running: present attempt of each task; messages of earlier ones are dropped. Data ends at
            those without outputs, and at heads of loops.
        resting: whether every source is halted and nothing is in flight.
        observe: called with every step, for the trace.
        companion: notified of each checkpoint's outcome.
        dropped: called with each failed one.
    """

    strategy: SnapshotStrategy
    settings: Settings
    running: Mapping[TaskId, Task]
    resting: Callable[[], bool]
    keeper: Keeper
    state: CoordinatorState
    observe: Observe = unobserved
    inbox: deque[Message] = field(default_factory=deque)
    companion: Companion = field(default_factory=Companion)
    dropped: Callable[[int], None] = lambda checkpoint: None
    tasks: frozenset[TaskId] = field(init=False)
    sources: frozenset[TaskId] = field(init=False)
    sinks: frozenset[TaskId] = field(init=False)
    _halting: int | None = None

    def __post_init__(self) -> None:
        self.tasks = frozenset(self.running)
        self.sources = frozenset(id_ for id_, task in self.running.items() if not task.inputs)
        ends = (id_ for id_, t in self.running.items() if not t.outputs or t.loop is not None)
        self.sinks = frozenset(ends)

    def step(self, now: float) -> bool:
        """Do what is due; returns whether there was anything.

        Raises AbsError if the job has to be recovered.
        """
        complete = rules.decidable(self.state, self.tasks)
        if complete is not None:
            self._decide(complete, now)
            return True
        if self.inbox:
            self._receive(self.inbox.popleft(), now)
            return True
        if self._halting is not None and self.resting():
            self._tell(self.tasks, Command.TRIGGER, self._halting)
            self._halting = None
            return True
        late = rules.expired(self.settings, self.state, now)
        if late is not None:
            self._abort(late.checkpoint, now, "it timed out.")
            return True
        wanted = {"asked": self.companion.asks(), "waited": self._sources_wait()}
        pending = rules.due(self.settings, self.strategy, self.state, now, self.sinks, **wanted)
        if pending is None:
            return False
        self._begin(pending)
        return True

    def _sources_wait(self) -> bool:
        """Whether sources wait for a checkpoint, and none is pending."""
        return not self.state.pending and any(self.running[id_].drained for id_ in self.sources)

    def restart(self, tasks: frozenset[TaskId], now: float) -> None:
        """Drop what is pending after a region was restored, and release all tasks."""
        for pending in self.state.pending:
            self._dropped(pending.checkpoint, "a part of the job had to be restored.")
        self.state = rules.restarted(self.state, tasks, now)
        self._halting = None
        self._resume(self.state.next - 1)

    def _begin(self, pending: Pending) -> None:
        self.state = rules.begun(self.state, pending)
        self.observe("begin", None, pending.checkpoint)
        self.companion.begin(pending.checkpoint)
        self._halting = pending.checkpoint if self.strategy.halts else None
        first = Command.HALT if self.strategy.halts else Command.TRIGGER
        self._tell(self.sources, first, pending.checkpoint)

    def _tell(self, tasks: frozenset[TaskId], command: Command, checkpoint: int) -> None:
        for task in sorted(tasks):
            self.running[task].tell(command, checkpoint)

    def _receive(self, message: Message, now: float) -> None:
        if self.running[message.task].attempt != message.attempt:
            return
        if isinstance(message, Ended):
            self.state = replace(self.state, ended=self.state.ended | {message.task})
        elif isinstance(message, Declined):
            self._abort(message.checkpoint, now, message.why)
        else:
            self.observe("acknowledged", message.task, message.checkpoint)
            self.state = rules.acknowledged(self.state, message)

    def _decide(self, pending: Pending, now: float) -> None:
        checkpoint = pending.checkpoint
        handles = rules.handles(self.state, pending)
        try:
            fingerprint = self.keeper.write(pending, handles)
        except FencedError:
            raise
        except (TargetError, ProtocolError) as error:
            self._abort(checkpoint, now, str(error))
            return
        self.observe("record", None, checkpoint)
        self.keeper.decide(checkpoint, handles, fingerprint)
        self.companion.decided(checkpoint)
        self.observe("committed", None, checkpoint)
        self.state = rules.decided(self.state, pending, now)
        self._tell(self.tasks, Command.DECIDED, checkpoint)
        self._resume(checkpoint)
        self.keeper.retain(checkpoint)

    def _abort(self, checkpoint: int, now: float, why: str) -> None:
        before = self.state
        self.state = rules.aborted(before, checkpoint, now)
        if self.state is before:
            return
        _log.warning(
            "checkpoint %d failed; its records become part of the next one: %s", checkpoint, why
        )
        self._dropped(checkpoint, f"its checkpoint failed: {why}")
        if self._halting == checkpoint:
            self._halting = None
        self._resume(checkpoint)
        if rules.too_many_failed(self.settings, self.state):
            raise UnavailableError(
                f"{self.state.failed} checkpoints failed in a row, the last one because {why}",
                epoch=checkpoint,
                remedy="nothing is lost: fix the cause, and start the job again.",
            )

    def _dropped(self, checkpoint: int, why: str) -> None:
        self.observe("aborted", None, checkpoint)
        if checkpoint != self._halting:  # else no task has heard of it
            self._tell(self.tasks, Command.ABORTED, checkpoint)
        self.dropped(checkpoint)
        self.companion.failed(checkpoint, why)

    def _resume(self, checkpoint: int) -> None:
        if self.strategy.resumes:
            self._tell(self.tasks, Command.RESUME, checkpoint)
