"""A file object that becomes a multipart upload, sent in parts.

Memory: the part being filled, and one part in flight per thread. All files of a task share the threads.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import BoundedSemaphore, Event
from typing import Any

from awscrt.checksums import combine_crc64nvme, crc64nvme

from abs_core.errors import AbsError, RowError
from abs_core.patience import Patience
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.uploads import Upload, Uploads

MAX_PARTS = 10_000
"""Parts of one upload (Amazon S3 user guide, "Multipart upload limits")."""

PutPart = Callable[[bytearray], str]
"""Uploads one part, and returns its ETag."""


class UploadPool:
    """Threads that upload parts; ``send`` waits while all are busy.

    Args:
        part_bytes: size of a full part; buffers are reused.
    """

    def __init__(self, count: int, part_bytes: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="abs-s3")
        self._free = BoundedSemaphore(count)
        self._part_bytes = part_bytes
        self._spare: list[bytearray] = []

    def buffer(self) -> bytearray:
        """A buffer of a full part's size, with arbitrary content."""
        return self._spare.pop() if self._spare else bytearray(self._part_bytes)

    def send(self, put: PutPart, data: bytearray) -> Future[str]:
        """Upload the part in a thread; its ETag."""
        self._free.acquire()
        try:
            sent = self._pool.submit(self._put, put, data)
        except BaseException:
            self._free.release()
            raise
        sent.add_done_callback(lambda _: self._free.release())
        return sent

    def _put(self, put: PutPart, data: bytearray) -> str:
        etag = put(data)
        if len(data) == self._part_bytes:
            self._spare.append(data)
        return etag

    def close(self) -> None:
        """End the threads; parts not yet begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class PartFile(io.RawIOBase):
    """A sequential, write-only file object for pyarrow. The upload stays open when it is closed.

    Args:
        metadata: of the object.
        patience: with each request; None: the caller retries the whole.
    """

    mode = "wb"

    def __init__(
        self,
        options: S3Options,
        pool: UploadPool,
        key: str,
        metadata: dict[str, str],
        patience: Patience | None,
    ) -> None:
        super().__init__()
        self.key = key
        self._uploads = Uploads(options)
        self._patience = patience
        self._pool = pool
        self._part_bytes = options.partsize
        self._filling = bytearray()
        self._filled = 0
        self._sent: list[Future[str]] = []
        self._acknowledged = 0
        self._size = 0
        self._crc = 0
        self._crcs: list[int] = []
        self._given_up = Event()
        self.upload_id = self._try(partial(self._uploads.create, key, metadata))

    def write(self, data: Any) -> int:
        """Take the bytes; may wait for a part to be sent.

        Raises:
            TargetError: a part could not be uploaded.
        """
        if self._given_up.is_set():
            return len(memoryview(data).cast("B"))  # a format's library closes itself at last
        with memoryview(data) as view:
            content = view.cast("B")
            at = 0
            while at < len(content):
                piece = content[at : at + self._part_bytes - self._filled]
                self._make_room(self._filled + len(piece))
                with memoryview(self._filling) as room:  # a bytearray's own slice copies twice
                    room[self._filled : self._filled + len(piece)] = piece
                self._filled += len(piece)
                at += len(piece)
                if self._filled == self._part_bytes:
                    self._send()
            return len(content)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size + self._filled

    def writable(self) -> bool:
        return True

    def finish(self) -> Upload:
        """Send the rest, and wait until the server has acknowledged every part.

        Raises:
            TargetError: a part could not be uploaded.
        """
        if self._filled or not self._sent:
            self._send()
        etags = tuple(sent.result() for sent in self._sent)
        crcs = tuple(f"{crc:016x}" for crc in self._crcs)
        return Upload(self.key, self.upload_id, self._size, f"{self._crc:016x}", etags, crcs)

    def discard(self) -> None:
        """Abort the upload, at best effort. Never raises."""
        self._given_up.set()
        self._filling, self._filled = bytearray(), 0
        for sent in self._sent:
            sent.cancel()
        for sent in self._sent:
            # A part that arrives after the abort would be kept by some servers.
            with suppress(BaseException):
                sent.exception()
        with suppress(AbsError):
            self._uploads.abort(self.key, self.upload_id)

    def _make_room(self, wanted: int) -> None:
        """Grow the buffer: small files take little memory, later parts a full buffer."""
        room = len(self._filling)
        if wanted <= room:
            return
        if self._sent:
            self._filling = self._pool.buffer()
        else:
            self._filling.extend(bytes(min(self._part_bytes, max(2 * room, wanted)) - room))

    def _send(self) -> None:
        while self._acknowledged < len(self._sent) and self._sent[self._acknowledged].done():
            self._sent[self._acknowledged].result()  # a failure ends the task at once
            self._acknowledged += 1
        number = len(self._sent) + 1
        if number > MAX_PARTS:
            raise RowError(
                f"The file {self.key} has more than {MAX_PARTS} parts.",
                remedy="raise partsize, or lower maxfilesize.",
            )
        part, self._filling = self._filling, bytearray()
        del part[self._filled :]
        self._filled = 0
        crc = crc64nvme(part)
        self._crc = combine_crc64nvme(self._crc, crc, len(part))
        self._crcs.append(crc)
        self._size += len(part)
        self._sent.append(self._pool.send(partial(self._put, number, crc), part))

    def _put(self, number: int, crc: int, data: bytearray) -> str:
        """Upload a part; runs in a thread of the pool."""
        put = self._uploads.put_part
        return self._try(partial(put, self.key, self.upload_id, number, crc, data))

    def _try(self, call: Callable[[], str]) -> str:
        return call() if self._patience is None else self._patience.retry(call, self._given_up)
