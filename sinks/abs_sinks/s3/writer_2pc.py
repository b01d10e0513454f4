"""Protocol 2pc: one multipart upload for each file, left open; Complete makes it an object."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable, HandleName
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.uploads import Upload, uploads_to_text


class UploadingWriter:
    """Streams rows into uploads. The first row begins the first of them; no row, no handle.

    What the server has of it is invisible to every reader, and stays until it is completed or
    aborted: no timeout but a lifecycle rule of the bucket (preflight reads those).
    """

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
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        # Every part is acknowledged: the server has all that Complete needs.
        self._files = None
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return committable(self._handle, files.rows, uploads)

    def abort(self) -> None:
        if self._files is not None:
            self._files.discard()
            self._files = None


def committable(handle: HandleName, rows: int, uploads: Sequence[Upload]) -> Committable:
    """What the coordinator needs to commit the uploads, and to prove that they are."""
    extra = (("protocol", "2pc"), ("uploads", uploads_to_text(tuple(uploads))))
    return Committable(handle, rows, digest_of(uploads), extra)


def digest_of(uploads: Sequence[Upload]) -> str:
    """Of the files' checksums, in order of their keys."""
    lines = sorted(f"{upload.key} {upload.size} {upload.crc}" for upload in uploads)
    return f"sha256:{sha256(chr(10).join(lines).encode()).hexdigest()}"
