"""Control elements of a channel: barriers, watermarks, the end of the data.

A data element is whatever the operators exchange: an Arrow RecordBatch in real jobs, a small tuple
in the simulation. The runtime itself never inspects it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from abs_core.model import Committable

Batch = Any
"""A data element; opaque to channels, tasks and snapshots in memory."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Separates a checkpoint's data from what follows (Carbone et al. 2015).

    Args:
        checkpoint: its id; ids ascend in every channel.
        overtaken: data that this (unaligned) barrier passed in its channel.
    """

    checkpoint: int
    overtaken: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class Watermark:
    """All later records of this channel, except late ones, have an event time >= ``time``.

    ``idle``: until the next watermark this channel does not hold back event time.
    """

    time: int
    idle: bool = False


MIN_TIME = -(1 << 63)
"""Event time before anything is known of it."""

END_OF_TIME = (1 << 63) - 1
"""Event time after the last record: everything is due."""


@dataclass(frozen=True, slots=True)
class End:
    """No data follows. Barriers still do: the last checkpoint commits the last data.

    Ends and watermarks are in no snapshot: a restored source sends them again.
    """


END = End()


class TaskId(NamedTuple):
    """One parallel instance of an operator."""

    operator: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.operator}/{self.subtask}"


@dataclass(frozen=True, slots=True)
class Copy:
    """A task's immutable part of a snapshot, before it is durable.

    Args:
        attempt: of the task.
        state: the logical copy of the context's state.
        log: unprocessed data of the snapshot, as (input port, batch).
        handles: pre-committed by a sink and not known to be decided.
        failed: its checkpoint has failed; there is nothing to make durable.
        declined: why it cannot be part of a checkpoint; empty if it can.
    """

    task: TaskId
    attempt: int
    checkpoint: int
    state: Any
    log: tuple[tuple[int, Batch], ...]
    handles: tuple[Committable, ...]
    failed: bool = False
    declined: str = ""


Observe = Callable[[str, TaskId | None, int], None]
"""Is told what happened, where (None: at the coordinator), in which checkpoint; see ``trace``."""


def unobserved(event: str, task: TaskId | None, checkpoint: int) -> None:
    """Observes nothing."""
