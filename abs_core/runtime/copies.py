"""A task's part of a snapshot before it is durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abs_core.model import Committable
from abs_core.runtime.elements import Batch, TaskId


@dataclass(frozen=True, slots=True)
class Copy:
    """A task's immutable part of a snapshot.

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
