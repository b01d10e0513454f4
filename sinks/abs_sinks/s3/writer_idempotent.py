"""Protocol idempotent: objects are put at once, under names of their attempt."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.errors import FencedError
from abs_core.model import Committable, Outcome
from abs_sinks.s3.markers import Markers
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.pending import PendingUploads
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.uploads import uploads_to_text
from abs_sinks.s3.writer_2pc import digest_of


class PublishingWriter:
    """Streams rows into uploads and completes them in ``pre_commit``, behind a marker."""

    def __init__(self, options: S3Options, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._schema = schema
        self._handle = task.handle
        self._files: TaskFiles | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if self._files is None:
            self._files = TaskFiles(self._options, self._schema, self._handle)
            self._files.write(batch)
            reached(CrashPoint.AFTER_FIRST_BATCH)
        else:
            self._files.write(batch)

    def pre_commit(self) -> Committable | None:
        if self._files is None:
            return None
        files = self._files
        uploads = files.finish()
        Markers(self._options).put(self._handle, uploads)
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        pending = PendingUploads(self._options)
        for upload in uploads:
            if pending.complete(self._handle, upload) is not Outcome.COMMITTED:
                raise FencedError(
                    "An upload was ended while its task was at work: a newer run has swept it.",
                    handle=str(self._handle),
                    remedy="none, if the job was restarted.",
                )
        self._files = None
        reached(CrashPoint.AFTER_PRE_COMMIT)
        # The objects are there: their parts are of no use any more.
        lean = tuple(replace(upload, etags=()) for upload in uploads)
        extra = (("protocol", "idempotent"), ("uploads", uploads_to_text(lean)))
        return Committable(self._handle, files.rows, digest_of(uploads), extra)

    def abort(self) -> None:
        # Objects that are there already are left to the sweep: their marker is.
        if self._files is not None:
            self._files.discard()
            self._files = None
