"""Segments of the write-ahead log as objects: a ``SegmentStore`` for protocol wal.

    <state>/wal/job=<job>/<handle>.segment

Readers do not take it for data: its folder begins with ``_``, and they do not glob its ending. A
segment appears whole: by one put, or by a completed upload if it is larger than a part.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import IO

import pyarrow as pa

from abs_clients.s3.objects import Objects
from abs_core.durable import disk_errors
from abs_core.errors import TargetError, UnavailableError
from abs_core.model import HandleName, Outcome
from abs_core.wal import Entry
from abs_sinks.s3.layout import PerHandle
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.partfile import PartFile, UploadPool
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import HANDLE, Pending, Uploads

log = logging.getLogger(__name__)

SEGMENTS = PerHandle("wal", ".segment")


class S3Segments:
    """Segments in the state location of one sink.

    Args:
        unsealed: whether ``list`` and ``delete`` include uploads of segments that are not sealed; the
            S3 sink ends those with its other uploads (``TwoPhaseCommitter``).
    """

    def __init__(self, options: S3Options, *, unsealed: bool = False) -> None:
        self._options = options
        self._unsealed = unsealed
        self._objects = Objects(options.bucket)
        self._uploads = Uploads(options)
        self._told = False

    @property
    def url(self) -> str:
        return str(self._options.state.within(SEGMENTS.folder))

    def reach(self) -> None:
        """See ``SegmentStore``."""
        self._objects.reach(self._options.state.key(SEGMENTS.folder, ""))

    def create(self, handle: HandleName) -> S3SegmentFile:
        return S3SegmentFile(self._options, handle, SEGMENTS.key(self._options, handle))

    def open(self, handle: HandleName) -> AbstractContextManager[pa.NativeFile] | None:
        """See ``SegmentStore``. It copies to local disk, to bound memory."""
        key = SEGMENTS.key(self._options, handle)
        pieces = self._objects.chunks(key)
        return None if pieces is None else self._copied(key, pieces)

    def has(self, handle: HandleName) -> bool:
        """Whether the segment is there."""
        return self._objects.head(SEGMENTS.key(self._options, handle)) is not None

    def delete(self, handles: Sequence[HandleName]) -> None:
        wanted = set(handles)
        # Uploads first: a late Complete finds none then.
        for job in sorted({handle.job for handle in wanted}):
            for handle, pending in self._open(job):
                if handle in wanted:
                    self._uploads.abort(pending.key, pending.upload_id)
        self._objects.delete([SEGMENTS.key(self._options, handle) for handle in handles])

    def list(self, job: str | None) -> Sequence[Entry]:
        """See ``SegmentStore``. The size of what is not sealed is not asked for: 0."""
        # Uploads first: one that is completed meanwhile is listed as an object.
        entries = {h: Entry(h, 0, pending.age_seconds, False) for h, pending in self._open(job)}
        for handle, listed, age in SEGMENTS.of_job(self._options, job):
            entries[handle] = Entry(handle, listed.size, age, True)
        return sorted(entries.values(), key=lambda entry: entry.handle)

    def _open(self, job: str | None) -> Sequence[tuple[HandleName, Pending]]:
        """The uploads of segments that are not sealed."""
        if not self._unsealed:
            return []
        try:
            pending = [*self._uploads.list(SEGMENTS.folder_of(self._options, job))]
        except TargetError as error:
            if error.retryable:
                raise
            self._tell(error)
            return []
        named = ((SEGMENTS.handle_of(upload.key), upload) for upload in pending)
        return [(h, upload) for h, upload in named if h is not None and job in (None, h.job)]

    def _tell(self, refused: TargetError) -> None:
        """Warn once that uploads cannot be listed: only costs arise, so a job may go on."""
        if not self._told:
            log.warning(
                "Uploads that a killed task left in the write-ahead log %s cannot be found, and cost "
                "money until they are aborted: %s What to do: allow s3:ListBucketMultipartUploads and "
                "s3:AbortMultipartUpload, or give the bucket a lifecycle rule that aborts incomplete "
                "multipart uploads below this prefix after some days.",
                self.url,
                refused.what,
            )
        self._told = True

    @contextmanager
    def _copied(self, key: str, pieces: Iterator[bytes]) -> Iterator[pa.NativeFile]:
        with ExitStack() as held:
            with disk_errors(
                f"Local disk in {tempfile.gettempdir()}, for a copy of the segment {key},",
                room="make room, or name another folder by TMPDIR",
            ):
                file = tempfile.NamedTemporaryFile(prefix="abs-s3-segment-")  # noqa: SIM115
                held.callback(_delete, file)
                for piece in pieces:
                    file.write(piece)
                file.flush()
                # Arrow cannot map an empty file.
                opened = pa.memory_map(file.name) if file.tell() else pa.BufferReader(b"")
            yield held.enter_context(opened)


class S3SegmentFile:
    """A ``SegmentFile``: kept in memory up to one part, then an upload; each request is retried."""

    def __init__(self, options: S3Options, handle: HandleName, key: str) -> None:
        self._options = options
        self._handle = handle
        self._key = key
        self._patience = replace(options.patience, job=handle.job)
        self._kept = bytearray()
        self._upload: PartFile | None = None
        self._pool: UploadPool | None = None

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        content = memoryview(data).cast("B")
        if self._upload is None and len(self._kept) + len(content) > self._options.partsize:
            self._pool = UploadPool(self._options.uploadthreads, self._options.partsize)
            metadata = {HANDLE: str(self._handle)}
            self._upload = PartFile(self._options, self._pool, self._key, metadata, self._patience)
            self._upload.write(self._kept)
            self._kept = bytearray()
        if self._upload is None:
            self._kept += content
        else:
            self._upload.write(content)
        return len(content)

    def seal(self) -> None:
        if self._upload is None:
            put = Objects(self._options.bucket).put
            self._patience.retry(partial(put, self._key, bytes(self._kept)))
            return
        uploaded = self._upload.finish()
        complete = PendingUploads(self._options).complete
        outcome = self._patience.retry(partial(complete, self._handle, uploaded))
        self._end()
        if outcome is not Outcome.COMMITTED:
            raise UnavailableError(
                f"The segment {self._key} is {outcome} after it was completed.",
                handle=str(self._handle),
                remedy="let the task be tried again; a newer run may have swept it.",
            )

    def discard(self) -> None:
        self._kept = bytearray()
        if self._upload is not None:
            self._upload.discard()
        self._end()

    def _end(self) -> None:
        self._upload = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _delete(file: IO[bytes]) -> None:
    """Close the temporary file, which deletes it; its write errors were raised before."""
    with suppress(OSError):
        file.close()
