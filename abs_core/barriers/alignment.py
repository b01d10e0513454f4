"""The snapshot algorithms: when a task blocks, copies, logs and forwards a barrier. Pure.

A strategy is a function ``(inputs, state, input, checkpoint) -> Step``, called when a barrier
arrives on an input (or, at a source, is triggered). It returns the next state and the actions of
the task, in that order. No I/O, no data, no clock: the same functions run in threads and in the
deterministic simulation.

| strategy | source | a snapshot holds |
| --- | --- | --- |
| ``aligned`` | Carbone et al. 2015, algorithms 1 (acyclic) and 2 (cyclic) | state, back-edge log |
| ``unaligned`` | Chandy and Lamport 1985; overtaking barriers (Flink, FLIP-76) | state, channels |
| ``drain`` | IBM Streams: outputs held, operators in topological order | state |
| ``stop_the_world`` | Naiad (Murray et al. 2013): inputs halted, all queues empty | state |
| ``none`` | - | one snapshot at the very end, to commit |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Inputs:
    """A task's inputs by number: regular ones, and back-edges of a loop."""

    regular: frozenset[int]
    back: frozenset[int] = NOTHING


@dataclass(frozen=True, slots=True)
class Open:
    """A copy whose log is open: data from the awaited inputs still belongs to its snapshot."""

    checkpoint: int
    awaited: frozenset[int]


@dataclass(frozen=True, slots=True)
class Alignment:
    """The alignment state of a task.

    Args:
        blocked: inputs that must not be read: their data belongs after the snapshot.
        open: copies with an incomplete log, oldest first; several with concurrent checkpoints.
        held: reads nothing until it is resumed.
        released: checkpoints up to this one hold nobody any more: their barriers may come late.
    """

    blocked: frozenset[int] = NOTHING
    open: tuple[Open, ...] = ()
    held: bool = False
    released: int = -1


class Do(Enum):
    """An action of a task, before it reads on."""

    BROADCAST = auto()
    """Send the barrier to every output."""
    OVERTAKE = auto()
    """Send the barrier to every output, ahead of the data that waits there."""
    COPY = auto()
    """Take the logical copy of the state."""
    PERSIST = auto()
    """Copy and logs are complete: make them durable, in the background; then acknowledge."""
    PERSIST_NOW = auto()
    """As ``PERSIST``, before the task does anything else."""


@dataclass(frozen=True, slots=True)
class Step:
    state: Alignment
    do: tuple[Do, ...] = ()


Strategy = Callable[[Inputs, Alignment, "int | None", int], Step]
"""``input`` is None if the checkpoint is triggered at the task itself: at a source."""

IDLE = Alignment()


def aligned(inputs: Inputs, state: Alignment, input_: int | None, checkpoint: int) -> Step:
    """Block each regular input at its barrier until all have delivered it; log back-edges.

    The barrier is forwarded before the copy is persisted, and before any input is read again.
    """
    if input_ is not None and input_ in inputs.back:
        return _delivered(state, input_, checkpoint)
    blocked = state.blocked if input_ is None else state.blocked | {input_}
    if blocked != inputs.regular:
        return Step(replace(state, blocked=blocked))
    unblocked = replace(state, blocked=NOTHING)
    if not inputs.back:
        return Step(unblocked, (Do.BROADCAST, Do.COPY, Do.PERSIST))
    opened = (*state.open, Open(checkpoint, inputs.back))
    return Step(replace(unblocked, open=opened), (Do.BROADCAST, Do.COPY))


def unaligned(inputs: Inputs, state: Alignment, input_: int | None, checkpoint: int) -> Step:
    """Copy at the first barrier; data of other inputs before theirs goes into the snapshot.

    Nothing is ever blocked, and loops need no special rule.
    """
    if any(log.checkpoint == checkpoint for log in state.open):
        assert input_ is not None, "a source has no other inputs to wait for"
        return _delivered(state, input_, checkpoint)
    awaited = (inputs.regular | inputs.back) - {input_}
    if not awaited:
        return Step(state, (Do.COPY, Do.OVERTAKE, Do.PERSIST))
    opened = (*state.open, Open(checkpoint, awaited))
    return Step(replace(state, open=opened), (Do.COPY, Do.OVERTAKE))


def drain(inputs: Inputs, state: Alignment, input_: int | None, checkpoint: int) -> Step:
    """As aligned, but the state is durable before the barrier is forwarded.

    The task is held until the coordinator resumes it, so all data in transit is consumed in
    topological order. A graph with loops has none: the plan refuses it.
    """
    step = aligned(inputs, state, input_, checkpoint)
    if not step.do:
        return step
    return Step(halted(step.state, checkpoint), (Do.COPY, Do.PERSIST_NOW, Do.BROADCAST))


def at_rest(inputs: Inputs, state: Alignment, input_: int | None, checkpoint: int) -> Step:
    """Stop the world: called when every source is halted and every channel is empty.

    There are no barriers; each task is triggered separately, and held until it is resumed.
    """
    return Step(halted(state, checkpoint), (Do.COPY, Do.PERSIST_NOW))


def logs(state: Alignment, input_: int) -> list[int]:
    """The checkpoints whose snapshots still include data from this input."""
    return [log.checkpoint for log in state.open if input_ in log.awaited]


def halted(state: Alignment, checkpoint: int) -> Alignment:
    """Read nothing until this checkpoint is over."""
    return replace(state, held=checkpoint > state.released)


def resumed(state: Alignment, checkpoint: int) -> Alignment:
    return replace(state, held=False, released=max(checkpoint, state.released))


def _delivered(state: Alignment, input_: int, checkpoint: int) -> Step:
    """Note the barrier of an awaited input; the last one completes the snapshot."""
    logs = [
        replace(log, awaited=log.awaited - {input_}) if log.checkpoint == checkpoint else log
        for log in state.open
    ]
    left = tuple(log for log in logs if log.awaited)
    return Step(replace(state, open=left), (Do.PERSIST,) if len(left) < len(logs) else ())


@dataclass(frozen=True, slots=True)
class SnapshotStrategy:
    """A named way to take snapshots.

    Args:
        on_barrier: the strategy of every task.
        halts: sources are halted and all channels emptied before tasks are triggered.
        resumes: tasks are held until the coordinator resumes them.
        periodic: checkpoints are taken while the job runs, not only at its end.
        cycles: graphs with loops are supported.
    """

    name: str
    on_barrier: Strategy
    halts: bool = False
    resumes: bool = False
    periodic: bool = True
    cycles: bool = True


STRATEGIES: dict[str, SnapshotStrategy] = {
    strategy.name: strategy
    for strategy in (
        SnapshotStrategy("aligned", aligned),
        SnapshotStrategy("unaligned", unaligned),
        SnapshotStrategy("drain", drain, resumes=True, cycles=False),
        SnapshotStrategy("stop_the_world", at_rest, halts=True, resumes=True),
        SnapshotStrategy("none", aligned, periodic=False),
    )
}
