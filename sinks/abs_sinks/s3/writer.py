"""Streams a task's rows into uploads; what pre-commit makes of them is the protocol's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.taskfiles import TaskFiles


class StreamingWriter(ABC):
    """A ``Writer``. The first row begins the first file; no row, no handle.

    A server that does not answer is waited for, request by request.
    """

    def __init__(self, options: S3Options, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._schema = schema
        self._handle = task.handle
        self._patience = replace(options.patience, job=task.job)
        self._files: TaskFiles | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._files is None:
            self._files = TaskFiles(self._options, self._schema, self._handle, self._patience)
            self._files.write(batch)
            reached(CrashPoint.AFTER_FIRST_BATCH)
        else:
            self._files.write(batch)

    def pre_commit(self) -> Committable | None:
        if self._files is None:
            return None
        committable = self._seal(self._files)
        self._files = None
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return committable

    def abort(self) -> None:
        if self._files is not None:
            self._files.discard()
            self._files = None

    @abstractmethod
    def _seal(self, files: TaskFiles) -> Committable:
        """End the files and pre-commit them. Where it raises, ``abort`` gives the files up.

        Raises:
            TargetError: the server refused or went away; what is there already is left to the sweep.
        """
