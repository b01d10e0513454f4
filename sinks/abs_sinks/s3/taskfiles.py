"""The data files of one task: one per folder at a time, a bounded number of them open.

Memory: one ``rowgroupsize`` and a batch for the row groups of all open files, one part per open file,
and ``uploadthreads`` parts in flight.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from abs_core.durable import disk_errors
from abs_core.errors import AbsError, TargetError
from abs_core.model import HandleName
from abs_core.patience import Patience
from abs_sinks.refusals import BadRows, find_bad_rows, naming_rows
from abs_sinks.s3.formats import Encoder, check_values, encoder, encoding, try_encoding
from abs_sinks.s3.layout import BY_MANIFEST, FileName, data_key, ending, lead
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.partfile import UploadPool
from abs_sinks.s3.partitions import Folders, Partitioning
from abs_sinks.s3.store import BucketStore, OutFile, Store
from abs_sinks.s3.uploads import HANDLE, Upload

Ended = Callable[[Upload, Any, pa.RecordBatch], None]
"""Takes each finished file, the metadata that its format's library made (Parquet), else None, and the
values of its partition: one row."""


class DataFile:
    """Memory: one row group of Arrow data, and what ``PartFile`` keeps.

    Args:
        values: of its partition.
    """

    def __init__(
        self, out: OutFile, schema: pa.Schema, options: S3Options, values: pa.RecordBatch
    ) -> None:
        self.values = values
        self._options = options
        self._schema = schema
        self._out = out
        self._gathered: list[pa.RecordBatch] = []
        self.gathered_bytes = 0
        self._encoder: Encoder = encoder(out, schema, options)

    @property
    def full(self) -> bool:
        """Whether the next rows go to another file."""
        return self._out.tell() >= self._options.maxfilesize

    @property
    def metadata(self) -> Any:
        """Of the finished file, by its format's library; None if it has none."""
        return self._encoder.metadata

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows.

        Raises:
            RowError: the format cannot hold a value.
            TargetError: a part could not be uploaded.
        """
        self._gathered.append(batch)
        self.gathered_bytes += batch.nbytes
        if self.gathered_bytes >= self._options.rowgroupsize:
            self.flush()

    def flush(self) -> None:
        """Encode the gathered rows as one row group."""
        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered, self._schema)
        self._gathered, self.gathered_bytes = [], 0
        with naming_rows(table, self._bad_rows), encoding(self._options):
            self._encoder.write(table)

    def finish(self) -> Upload:
        """End the file; every part is acknowledged when it returns."""
        self.flush()
        with encoding(self._options):
            self._encoder.close()
        return self._out.finish()

    def discard(self) -> None:
        """Abort the upload, at best effort. Never raises."""
        self._gathered = []
        self._out.discard()

    def _bad_rows(self, table: pa.Table) -> BadRows:
        return find_bad_rows(table, lambda part: try_encoding(part, self._options))


class TaskFiles:
    """Writes batches to files of one handle, each an open upload.

    Args:
        patience: with each request; None: the caller retries the whole.
        store: where the files are; default: the bucket of the options.
        ended: called for each finished file.
        folders: see ``Partitioning``.
    """

    def __init__(
        self,
        options: S3Options,
        schema: pa.Schema,
        handle: HandleName,
        patience: Patience | None = None,
        *,
        store: Store | None = None,
        ended: Ended = lambda upload, metadata, values: None,
        folders: Folders | None = None,
    ) -> None:
        self._options = options
        self._store = BucketStore(options) if store is None else store
        self._ended = ended
        self._handle = handle
        self._patience = patience
        self._partitioning = Partitioning(schema, options.partitionby, folders)
        self._schema = schema
        self._pool = UploadPool(options.uploadthreads, options.partsize)
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
        check_values(rows, self._options)
        for folder, _ in self._partitioning.split(part):
            data_key(self._options.path, folder, self._next_name())

    def finish(self) -> tuple[Upload, ...]:
        """End every file; all parts are acknowledged when it returns."""
        self._finish_open()
        self._empty(self._spilled(), 0)
        self._pool.close()
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
        self._pool.close()

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
                file = self._open[folder] = self._begin(folder, self._partitioning.values(rows))
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
        self._ended(upload, file.metadata, file.values)

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

    def _begin(self, folder: str, values: pa.RecordBatch) -> DataFile:
        name = self._next_name()
        self._files += 1
        key = data_key(self._options.path, folder, name)
        metadata = {HANDLE: str(self._handle)}
        out = self._store.begin(self._pool, key, metadata, self._patience)
        try:
            return DataFile(out, self._partitioning.file_schema, self._options, values)
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


BUCKETS = 16


class Spill:
    """Rows of folders that are not open, on local disk, in buckets by a hash of the folder.

    They stay in order within each folder.

    Args:
        level: of the recursion; each level has another hash.
    """

    def __init__(self, schema: pa.Schema, level: int) -> None:
        self._schema = schema
        self._level = level
        self._where = tempfile.gettempdir()
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        with self._mapped():
            self._folder = tempfile.TemporaryDirectory(
                prefix="abs-s3-spill-", ignore_cleanup_errors=True
            )

    def add(self, folder: str, rows: pa.RecordBatch) -> None:
        """Keep the rows of one folder.

        Raises:
            TargetError: the local disk is full or gone.
        """
        bucket = zlib.crc32(f"{self._level}:{folder}".encode()) % BUCKETS
        with self._mapped():
            if bucket not in self._writers:
                self._writers[bucket] = pa.ipc.new_stream(
                    str(self._path(bucket)),
                    self._schema,
                    options=pa.ipc.IpcWriteOptions(compression="lz4"),
                )
            self._writers[bucket].write_batch(rows)

    def buckets(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of each bucket, deleted as they are read. Raises as ``add``."""
        with self._mapped():
            for writer in self._writers.values():
                writer.close()
        for bucket in sorted(self._writers):
            yield self._read(bucket)
            self._path(bucket).unlink()

    def close(self) -> None:
        """Delete all files. Never raises."""
        for writer in self._writers.values():
            with suppress(OSError, pa.ArrowException):
                writer.close()
        self._folder.cleanup()

    def _read(self, bucket: int) -> Iterator[pa.RecordBatch]:
        with ExitStack() as held:
            with self._mapped():
                file = held.enter_context(pa.OSFile(str(self._path(bucket))))
                batches = held.enter_context(pa.ipc.open_stream(file))
            yield from batches

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            with disk_errors(
                f"Local disk in {self._where}, where rows wait for their folders,",
                room="make room, name another folder by TMPDIR, raise maxopenfiles, or repartition "
                "the data frame by the columns of partitionby",
            ):
                yield
        except pa.ArrowException as error:
            raise TargetError(
                f"Rows cannot be kept on local disk in {self._where}: {error}.",
                remedy="this is a defect of the sink: please report it.",
            ) from error

    def _path(self, bucket: int) -> Path:
        return Path(self._folder.name) / f"{bucket}.arrows"
