"""The data files of one task: one per folder at a time, a bounded number of them open.

Memory: one ``rowgroupsize`` and a batch for the row groups of all open files, one part per open file,
and ``uploadthreads`` parts in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from abs_core.errors import AbsError
from abs_core.model import HandleName
from abs_core.patience import Patience
from abs_sinks.refusals import BadRows, find_bad_rows, naming_rows
from abs_sinks.s3.datafile import DataFile
from abs_sinks.s3.formats import try_encoding
from abs_sinks.s3.layout import BY_MANIFEST, FileName, data_key, ending, lead
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.partfile import Lanes
from abs_sinks.s3.partitions import Partitioning
from abs_sinks.s3.spill import Spill
from abs_sinks.s3.store import BucketStore, Store
from abs_sinks.s3.uploads import HANDLE, Upload

Ended = Callable[[Upload, Any], None]
"""Takes each finished file, and the metadata that its format's library made (Parquet), else None."""


class TaskFiles:
    """Writes batches to files of one handle, each an open upload.

    Args:
        patience: with each request; None: the caller retries the whole.
        store: where the files are; default: the bucket of the options.
        ended: called for each finished file.
        keep: see ``Partitioning``.
    """

    def __init__(
        self,
        options: S3Options,
        schema: pa.Schema,
        handle: HandleName,
        patience: Patience | None = None,
        *,
        store: Store | None = None,
        ended: Ended = lambda upload, metadata: None,
        keep: bool = False,
    ) -> None:
        self._options = options
        self._store = BucketStore(options) if store is None else store
        self._ended = ended
        self._handle = handle
        self._patience = patience
        self._partitioning = Partitioning(schema, options.partitionby, keep=keep)
        self._schema = schema
        self._lanes = Lanes(options.uploadthreads, options.partsize)
        self._open: dict[str, DataFile] = {}
        self._done: list[Upload] = []
        self._spill: Spill | None = None
        self._level = 0
        self._files = 0
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows.

        Raises:
            DataError: a folder name or the format cannot hold a value.
            TargetError: the server refused or went away.
        """
        with naming_rows(batch, self.bad_rows, self.rows):
            self._take(batch)
        self.rows += batch.num_rows

    def bad_rows(self, batch: pa.RecordBatch) -> BadRows:
        """The rows that the format or a key cannot hold; nothing is written."""
        return find_bad_rows(batch, self.check)

    def check(self, part: pa.RecordBatch) -> None:
        """Raise ``BadValuesError`` for rows that the format or a key cannot hold; writes nothing."""
        # All folders at once: the rows that it names are then those of the batch.
        rows = pa.Table.from_batches([self._partitioning.inside(part)])
        try_encoding(rows, self._options)
        for folder, _ in self._partitioning.split(part):
            data_key(self._options.path, folder, self._next_name())

    def finish(self) -> tuple[Upload, ...]:
        """End every file; all parts are acknowledged when it returns."""
        self._finish_open()
        self._empty(self._spilled(), 0)
        self._lanes.close()
        return tuple(self._done)

    def discard(self) -> None:
        """Abort every upload, at best effort. Never raises."""
        for file in self._open.values():
            file.discard()
        for upload in self._done:
            with suppress(AbsError):
                self._store.abort(upload.key, upload.upload_id)
        if self._spill is not None:
            self._spill.close()
        self._lanes.close()

    def _take(self, batch: pa.RecordBatch) -> None:
        for folder, rows in self._partitioning.split(batch):
            file = self._open.get(folder)
            if file is not None and file.full:
                self._end(file)
                file = None
                del self._open[folder]
            if file is None and len(self._open) >= self._options.maxopenfiles:
                self._keep_for_later(folder, rows)
                continue
            if file is None:
                file = self._open[folder] = self._begin(folder)
            file.write(self._partitioning.inside(rows))
        self._bound_memory()

    def _keep_for_later(self, folder: str, rows: pa.RecordBatch) -> None:
        if self._spill is None:
            self._spill = Spill(self._schema, self._level)
        self._spill.add(folder, rows)

    def _finish_open(self) -> None:
        while self._open:
            folder = next(iter(self._open))
            # Removed only after it is in ``_done``: ``discard`` must find it.
            self._end(self._open[folder])
            del self._open[folder]

    def _end(self, file: DataFile) -> None:
        upload = file.finish()
        self._done.append(upload)
        self._ended(upload, file.metadata)

    def _spilled(self) -> Spill | None:
        """Take the current spill; the next waiting row begins another."""
        spill, self._spill = self._spill, None
        return spill

    def _empty(self, spill: Spill | None, level: int) -> None:
        """Write a spill, bucket by bucket; a bucket of too many folders spills again."""
        if spill is None:
            return
        try:
            for batches in spill.buckets():
                self._level = level + 1
                for batch in batches:
                    self._take(batch)
                self._finish_open()
                self._empty(self._spilled(), level + 1)
        finally:
            spill.close()

    def _bound_memory(self) -> None:
        gathered = sum(file.gathered_bytes for file in self._open.values())
        while gathered >= self._options.rowgroupsize:
            largest = max(self._open.values(), key=lambda file: file.gathered_bytes)
            gathered -= largest.gathered_bytes
            largest.flush()

    def _begin(self, folder: str) -> DataFile:
        name = self._next_name()
        self._files += 1
        key = data_key(self._options.path, folder, name)
        told = {HANDLE: str(self._handle)}
        out = self._store.begin(self._lanes, key, told, self._patience)
        try:
            return DataFile(out, self._partitioning.file_schema, self._options)
        except BaseException:
            out.discard()
            raise

    def _next_name(self) -> FileName:
        return FileName(
            self._handle,
            self._files,
            lead(self._options.filename, self._handle),
            (BY_MANIFEST if self._options.protocol == "idempotent" else "")
            + ending(self._options.fileformat, self._options.compression),
        )
