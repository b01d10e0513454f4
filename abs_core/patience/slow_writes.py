"""Logs a task's write that takes long, as its target may be down."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa

from abs_core.contracts import Task, Writer
from abs_core.model import Committable
from abs_core.patience import Patience, waiting

SILENT_SECONDS = 15.0
"""A write is logged after this time, in seconds; so is the write of a large batch."""


def writing(patience: Patience) -> AbstractContextManager[waiting.Wait]:
    """Context of a write, which is logged if it takes long.

    Args:
        patience: with the target, of the task's job.
    """
    return waiting.waiting(
        patience.job, patience.system, patience.seconds, silent_seconds=SILENT_SECONDS
    )


class SlowWriteReporter:
    """A ``Writer`` that logs writes that take long.

    For a writer that does not use ``Patience.retry``, which logs its own waits.

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
