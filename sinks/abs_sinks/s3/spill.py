"""Keeps rows of folders that are not open on local disk, in buckets by a hash of the folder."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from abs_core.durable import disk_errors
from abs_core.errors import TargetError

BUCKETS = 16


class Spill:
    """Spilled rows, in order within each folder.

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
