"""One task: takes elements from its inputs, runs its operator, obeys the alignment rules.

``step`` does one thing and never waits, so the same task runs under a thread and under a simulated
schedule. It reads only while each of its outputs has room (back pressure), and executes the
strategy's answer to a barrier before it reads anything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Event
from typing import Any, Protocol

from abs_core.barriers.alignment import (
    IDLE,
    Alignment,
    Do,
    Inputs,
    SnapshotStrategy,
    halted,
    logs,
    resumed,
)
from abs_core.barriers.elements import (
    END,
    MIN_TIME,
    Barrier,
    Batch,
    Copy,
    End,
    Observe,
    TaskId,
    Watermark,
    unobserved,
)
from abs_core.errors import ConfigError, FencedError, UnavailableError
from abs_core.model import Committable
from abs_embedded.channel import Channel, Tally
from abs_embedded.operators import Operator
from abs_embedded.partition import Partition
from abs_embedded.state.operator_state import OperatorState

Pick = Callable[[Sequence[int]], int]
"""Chooses which of the readable inputs comes next."""


class Command(Enum):
    """The coordinator's commands to a task, out of band."""

    TRIGGER = auto()
    """Begin this checkpoint: to sources, or to every task of a world at rest."""
    HALT = auto()
    """Read no more, so that what is in flight drains."""
    RESUME = auto()
    DECIDED = auto()
    """This checkpoint is decided and committed: what it superseded may be freed."""
    ABORTED = auto()
    """This checkpoint failed: what it held is part of the next one."""


class Context(Protocol):
    """A task's state for the task; operators use ``context.TaskContext``."""

    lists: OperatorState

    def copy(self, checkpoint: int) -> Any:
        """The logical, immutable copy of the state."""
        ...

    def decided(self, checkpoint: int) -> None: ...

    def aborted(self, checkpoint: int) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Input:
    """One input channel.

    Args:
        port: the operator's input that it belongs to.
        opens: counts this input as a token until its end, if it leads into a loop.
    """

    channel: Channel
    port: int
    back: bool = False
    opens: Tally | None = None


@dataclass(slots=True)
class Output:
    """The channels to all tasks of one following operator."""

    partition: Partition
    channels: list[Channel]
    turn: int = 0


@dataclass(slots=True)
class Task:
    """One parallel instance of an operator.

    Args:
        attempt: rises whenever its region is restored.
        persist: makes a copy durable and acknowledges it; in the background unless told ``now``.
        loop: counts what is in the loop that this task is the head of.
        observe: called with barriers and copies, for the trace.
        ended: called when all inputs have ended, back-edges included.
        wake: set when there may be something to do.
        waits: a source must not read yet: a snapshot's channel data, or a checkpoint with its start
            position, has to be decided first.
        drained: of a source that waits: that data is processed; now a checkpoint has to be decided.
        began: since when its thread is in a step; None between two.
        abandoned: it hung, and others go on without it: it must leave no trace if it comes back.
    """

    id: TaskId
    operator: Operator
    context: Context
    inputs: list[Input]
    outputs: list[Output]
    strategy: SnapshotStrategy
    persist: Callable[[Copy, bool], None]
    attempt: int = 0
    loop: Tally | None = None
    observe: Observe = unobserved
    ended: Callable[[Task], None] = lambda task: None
    wake: Event = field(default_factory=Event)
    mailbox: deque[tuple[Command, int]] = field(default_factory=deque)
    replay: deque[tuple[int, Batch, Channel]] = field(default_factory=deque)
    state: Alignment = IDLE
    waits: bool = False
    drained: bool = False
    _cut: int | None = None
    began: float | None = None
    abandoned: bool = False
    _numbers: Inputs = field(init=False)
    _watermarks: dict[int, int] = field(default_factory=dict)
    _time: int = MIN_TIME
    _idle: set[int] = field(default_factory=set)
    _all_idle: bool = False
    _queues: list[tuple[int, deque[Any]]] = field(init=False)
    _channels: list[Channel] = field(init=False)
    _open: set[int] = field(init=False)
    _ended: bool = False
    _copies: dict[int, tuple[Any, tuple[Committable, ...], str]] = field(default_factory=dict)
    _logs: dict[int, list[tuple[int, Batch]]] = field(default_factory=dict)
    _copied: int = -1
    _failed: set[int] = field(default_factory=set)
    """Checkpoints that failed before their part was complete: their barriers come all the same."""

    def __post_init__(self) -> None:
        back = frozenset(n for n, i in enumerate(self.inputs) if i.back)
        self._numbers = Inputs(frozenset(range(len(self.inputs))) - back, back)
        self._open = set(self._numbers.regular)  # a head ends although its back-edges have not
        self._queues = [(n, i.channel.queue) for n, i in enumerate(self.inputs)]
        self._channels = [channel for out in self.outputs for channel in out.channels]

    def tell(self, command: Command, checkpoint: int) -> None:
        """Send a command; thread-safe."""
        self.mailbox.append((command, checkpoint))
        self.wake.set()

    def step(self, pick: Pick) -> bool:
        """Do one thing; returns whether there was anything to do."""
        if self.mailbox:
            command, checkpoint = self.mailbox.popleft()
            self._obey(command, checkpoint)
            return True
        if self.state.held:
            return False
        if not self.inputs:
            return not (self._ended or self.waits) and self.has_credit() and self._poll()
        if self.replay:
            return self.has_credit() and self._replay()
        blocked = self.state.blocked
        ready = [n for n, queue in self._queues if queue and n not in blocked]
        if not ready:
            return self._leave_loop()
        if not self.has_credit():
            return False
        self._take(ready[0] if len(ready) == 1 else pick(ready))
        return True

    def has_credit(self) -> bool:
        """Whether every output has room: only then the next element is taken."""
        for channel in self._channels:
            if len(channel.queue) >= channel.capacity or channel.rows >= channel.rows_bound:
                return False
        return True

    def emit(self, batch: Batch) -> None:
        """Send on the operator's data and, of a source, watermarks."""
        self._check_abandoned()
        if type(batch) is Watermark:
            self._broadcast(batch)
            return
        for out in self.outputs:
            out.turn += 1
            for target, part in out.partition.split(
                batch, len(out.channels), self.id.subtask, out.turn
            ):
                out.channels[target].put(part)

    def begin(self, replay: Iterable[tuple[int, Batch]]) -> None:
        """Take up the log of the restored snapshot, before any input."""
        for port, batch in replay:
            inputs = (input_.channel for input_ in self.inputs if input_.port == port)
            channel = next(inputs, Channel(1))
            channel.entered()
            self.replay.append((port, batch, channel))

    def _replay(self) -> bool:
        port, batch, channel = self.replay.popleft()
        self.operator.on_batch(port, batch, self.emit)
        channel.processed()
        return True

    def _take(self, number: int) -> None:
        source = self.inputs[number]
        element = source.channel.take()
        kind = type(element)
        if kind is Barrier:
            self._arrived(number, element)
            return
        if kind is Watermark:
            self._watermarks[number] = element.time
            (self._idle.add if element.idle else self._idle.discard)(number)
            self._advance()
        elif kind is End:
            self._end(number)
        else:
            if self._ended:
                raise ConfigError(
                    "Records entered a loop after it had ended.",
                    remedy="at the end of the data, windows, timers and `on_end` inside a loop "
                    "must send their records out of it.",
                )
            if self.state.open:
                for checkpoint in logs(self.state, number):
                    if checkpoint not in self._failed:
                        self._logs[checkpoint].append((source.port, element))
            self.operator.on_batch(source.port, element, self.emit)
        source.channel.processed()

    def _arrived(self, number: int, barrier: Barrier) -> None:
        self.observe("barrier", self.id, barrier.checkpoint)
        if barrier.overtaken:
            port = self.inputs[number].port
            log = self._logs.setdefault(barrier.checkpoint, [])
            log.extend((port, batch) for batch in barrier.overtaken)
        self._do(number, barrier.checkpoint)

    def _do(self, number: int | None, checkpoint: int) -> None:
        step = self.strategy.on_barrier(self._numbers, self.state, number, checkpoint)
        self.state = step.state
        for do in step.do:
            if do is Do.COPY:
                self._copy(checkpoint)
            elif do is Do.BROADCAST:
                self._broadcast(Barrier(checkpoint))
            elif do is Do.OVERTAKE:
                for channel in self._channels:
                    channel.overtake(checkpoint)
            else:
                self._complete(checkpoint, now=do is Do.PERSIST_NOW)

    def hangs(self, now: float, after: float) -> bool:
        """Whether it has been in one step for this long."""
        began = self.began
        return began is not None and now - began >= after

    def _check_abandoned(self) -> None:
        if self.abandoned:
            raise FencedError(
                f"Task {self.id} resumed after the job had continued without it.",
                remedy="none: everything that it did since then is discarded.",
            )

    def _copy(self, checkpoint: int) -> None:
        self._check_abandoned()
        handles: tuple[Committable, ...] = ()
        declined = ""
        try:
            handles = self.operator.pre_commit(checkpoint)
        except UnavailableError as error:
            if self.inputs:
                raise  # what a sink was given is not in the next checkpoint by itself
            declined = str(error)
        self._copies[checkpoint] = (self.context.copy(checkpoint), handles, declined)
        self._copied = checkpoint
        # Barriers come in order: those of earlier ones that are not here yet never will.
        self._failed = {n for n in self._failed if n >= checkpoint or n in self._copies}
        if checkpoint in self._failed:
            self.context.aborted(checkpoint)
        # Not in the middle of a replay: no input is read, and no world at rest, before its end.
        self._logs.setdefault(checkpoint, [])
        self.observe("copy", self.id, checkpoint)

    def _complete(self, checkpoint: int, *, now: bool) -> None:
        state, handles, declined = self._copies.pop(checkpoint)
        log = tuple(self._logs.pop(checkpoint))
        failed = checkpoint in self._failed
        self._failed.discard(checkpoint)
        copy = Copy(self.id, self.attempt, checkpoint, state, log, handles, failed, declined)
        self.persist(copy, now)

    def _broadcast(self, element: Any) -> None:
        for channel in self._channels:
            channel.put(element)

    def _advance(self) -> None:
        """Advance event time to the least of all inputs that have not ended and are not idle.

        If all are idle it is the furthest one's. It never enters a loop.
        """
        if self._numbers.back or not self._open:
            return
        active = self._open - self._idle
        times = [self._watermarks.get(n, MIN_TIME) for n in active or self._open]
        time, idle = (min if active else max)(times), not active
        if time <= self._time and idle == self._all_idle:
            return
        advanced = time > self._time
        self._time, self._all_idle = max(time, self._time), idle
        if advanced:
            self.operator.on_watermark(time, self.emit)
        self._broadcast(Watermark(self._time, idle))

    def _end(self, number: int) -> None:
        opens = self.inputs[number].opens
        if opens is not None:
            opens.done()
        self._open.discard(number)
        if number in self._numbers.back:
            self.ended(self)  # its own end has gone round: nothing can follow it
        elif not self._open and self.loop is None:
            self._finish()
        self._advance()

    def _leave_loop(self) -> bool:
        """End a head when its regular inputs have ended and its loop is empty."""
        if self.loop is None or self._open or self._ended or self.loop.count:
            return False
        self._finish()
        return True

    def _finish(self) -> None:
        self._ended = True
        self.operator.on_end(self.emit)
        self._broadcast(END)
        if not self._numbers.back:
            self.ended(self)

    def _poll(self) -> bool:
        if self.operator.finished:
            self._finish()
            return True
        return self.operator.poll(self.emit)

    def _obey(self, command: Command, checkpoint: int) -> None:
        if command is Command.TRIGGER:
            self.observe("trigger", self.id, checkpoint)
            if self.drained and self._cut is None:
                self._cut = checkpoint
            self._do(None, checkpoint)
        elif command is Command.DECIDED:
            if self._cut is not None and checkpoint >= self._cut:
                self.waits = self.drained = False
            self.context.decided(checkpoint)
            self.operator.decided(checkpoint)
        elif command is Command.HALT:
            self.state = halted(self.state, checkpoint)
        elif command is Command.RESUME:
            self.state = resumed(self.state, checkpoint)
        else:
            self._aborted(checkpoint)

    def _aborted(self, checkpoint: int) -> None:
        if checkpoint > self._copied or checkpoint in self._copies:
            self._failed.add(checkpoint)
        if checkpoint <= self._copied:
            self.context.aborted(checkpoint)
        if checkpoint in self._logs:
            self._logs[checkpoint].clear()
