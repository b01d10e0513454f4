"""Protocol wal: a task's rows as one segment of the write-ahead log."""

from __future__ import annotations

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_core.wal import SegmentWriter
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.segments import S3Segments


class SegmentingWriter:
    """Streams rows into a segment; invisible to readers, for ever: the commit composes files of it."""

    def __init__(self, options: S3Options, schema: pa.Schema, task: Task) -> None:
        self._segment = SegmentWriter(S3Segments(options), task.handle, schema, compression="lz4")
        self._began = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._segment.write(batch)
        if not self._began and batch.num_rows:
            self._began = True
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if not self._began:
            return None
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        seal = self._segment.finish()
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return None if seal is None else seal.committable()

    def abort(self) -> None:
        self._segment.abort()
