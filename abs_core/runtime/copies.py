"""A task's part of a snapshot, on its way from the task to where it is made durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from abs_core.model import Committable
from abs_core.runtime.elements import Batch, TaskId


@dataclass(frozen=True, slots=True)
class Copy:
    """A task's part of a snapshot before it is durable: nothing in it changes any more.

    Args:
        attempt: of the task.
        state: the logical copy of the context's state.
        log: data that belongs to the snapshot but was not processed yet, as (input port, batch).
        handles: what a sink has pre-committed and does not know to be decided.
        failed: its checkpoint has failed already; there is nothing to make durable.
        declined: why it cannot be part of a checkpoint that counts; empty where it can.
    """

    task: TaskId
    attempt: int
    checkpoint: int
    state: Any
    log: tuple[tuple[int, Batch], ...]
    handles: tuple[Committable, ...]
    failed: bool = False
    declined: str = ""
