"""The base of writers that stream a task's rows to uploads."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.model import Committable
from abs_core.stepwise import StepwiseWriter
from abs_sinks.refusals import BadRows
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.uploads import Upload


class StreamingWriter(StepwiseWriter):
    """A ``Writer``: the first row begins the first file; each request is retried."""

    def __init__(self, options: S3Options, schema: pa.Schema, task: Task) -> None:
        super().__init__()
        self._options = options
        self._schema = schema
        self._handle = task.handle
        self._patience = replace(options.patience, job=task.job)
        self._files: TaskFiles | None = None
        self._uploads: tuple[Upload, ...] = ()

    def abort(self) -> None:
        if self._files is not None:
            self._files.discard()
            self._files = None

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the format or a key cannot hold; nothing is written."""
        return TaskFiles(self._options, self._schema, self._handle).bad_rows(batch)

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._files is None:
            self._files = TaskFiles(self._options, self._schema, self._handle, self._patience)
        self._files.write(batch)

    def _complete(self) -> None:
        assert self._files is not None
        self._uploads = self._files.finish()

    def _prepared(self) -> Committable:
        committable = self._sealed()
        self._files = None  # which ``abort`` must not discard any more
        return committable

    @abstractmethod
    def _sealed(self) -> Committable:
        """Pre-commit the uploads; after an error ``abort`` discards them.

        Raises:
            TargetError: the server refused or went away; the sweep deletes what is there.
        """
