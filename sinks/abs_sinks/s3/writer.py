"""The base of writers that stream a task's rows to uploads."""

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
    """A ``Writer``: the first row begins the first file; each request is retried."""

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
        """End the files and pre-commit them; after an error ``abort`` discards the files.

        Raises:
            TargetError: the server refused or went away; the sweep deletes what is there.
        """
