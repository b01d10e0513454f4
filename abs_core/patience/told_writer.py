"""Tells people, in the log, where a task's write takes long: its target may be away."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa

from abs_core.contracts import Task, Writer
from abs_core.model import Committable
from abs_core.patience import Patience, waiting

SILENT_SECONDS = 15.0
"""A write that has taken so long is told of; a large batch is, too."""


def writing(patience: Patience) -> AbstractContextManager[waiting.Wait]:
    """While it lasts, a task hands rows over, and waits for them to be taken.

    Args:
        patience: with the target; of the task's job.
    """
    return waiting.waiting(
        patience.job, patience.system, patience.seconds, silent_seconds=SILENT_SECONDS
    )


class ToldWriter:
    """A ``Writer`` whose writes are told of where they take long.

    For a writer that does not repeat its requests by ``Patience.retry``, which tells of itself.

    Args:
        patience: with the target.
    """

    def __init__(self, writer: Writer, patience: Patience, task: Task) -> None:
        self._writer = writer
        self._patience = replace(patience, job=task.job)

    def write(self, batch: pa.RecordBatch) -> None:
        with writing(self._patience):
            self._writer.write(batch)

    def pre_commit(self) -> Committable | None:
        with writing(self._patience):
            return self._writer.pre_commit()

    def abort(self) -> None:
        self._writer.abort()
