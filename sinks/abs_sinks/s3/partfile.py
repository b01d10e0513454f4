"""A file object that becomes a multipart upload: what is written is cut into parts and sent.

Memory: the part that is being filled, and as many parts in flight as there are lanes, whatever is
written. All files of a task share the lanes.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import BoundedSemaphore
from typing import Any

from awscrt.checksums import combine_crc64nvme, crc64nvme

from abs_core.errors import AbsError, RowError
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.uploads import Upload, Uploads

PARTS_MAX = 10_000
"""Parts of one upload (Amazon S3 user guide, "Multipart upload limits")."""

Buffer = bytes | bytearray | memoryview


class Lanes:
    """Threads that upload parts; ``send`` waits while all of them are busy."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="abs-s3")
        self._free = BoundedSemaphore(count)

    def send(
        self, uploads: Uploads, key: str, upload_id: str, number: int, data: bytearray
    ) -> Future[str]:
        """Upload the part in a thread; its ETag."""
        self._free.acquire()
        try:
            sent = self._pool.submit(uploads.put_part, key, upload_id, number, data)
        except BaseException:
            self._free.release()
            raise
        sent.add_done_callback(lambda _: self._free.release())
        return sent

    def close(self) -> None:
        """End the threads; what waits in them is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class PartFile:
    """Write-only and sequential; enough of a file object for pyarrow.

    Args:
        metadata: of the object that it becomes.
    """

    mode = "wb"

    def __init__(
        self, options: S3Options, lanes: Lanes, key: str, metadata: dict[str, str]
    ) -> None:
        self.key = key
        self.closed = False
        self._uploads = Uploads(options)
        self._lanes = lanes
        self._part_bytes = options.partsize
        self._filling = bytearray()
        self._sent: list[Future[str]] = []
        self._size = 0
        self._crc = 0
        self._given_up = False
        self.upload_id = self._uploads.create(key, metadata)

    def write(self, data: Any) -> int:
        """Take the bytes; may wait for a part to be sent.

        Raises:
            TargetError: a part could not be uploaded.
        """
        if self._given_up:
            return len(memoryview(data).cast("B"))  # a format's library closes itself at last
        with memoryview(data) as view:
            content = view.cast("B")
            at = 0
            while at < len(content):
                piece = content[at : at + self._part_bytes - len(self._filling)]
                self._filling += piece
                at += len(piece)
                if len(self._filling) == self._part_bytes:
                    self._send()
            return len(content)

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size + len(self._filling)

    def flush(self) -> None:
        """Nothing: a part is sent when it is full."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """What a format's library calls; the upload stays open."""
        self.closed = True

    def finish(self) -> Upload:
        """Send the rest, and wait until the server has acknowledged every part.

        Raises:
            TargetError: a part could not be uploaded.
        """
        if self._filling or not self._sent:
            self._send()
        etags = tuple(sent.result() for sent in self._sent)
        return Upload(self.key, self.upload_id, self._size, f"{self._crc:016x}", etags)

    def discard(self) -> None:
        """Give the upload up, at best effort. Never raises."""
        self._given_up = True
        self._filling = bytearray()
        for sent in self._sent:
            sent.cancel()
        for sent in self._sent:
            # A part that arrives after the abort would be kept by some servers.
            with suppress(BaseException):
                sent.exception()
        with suppress(AbsError):
            self._uploads.abort(self.key, self.upload_id)

    def _send(self) -> None:
        for sent in self._sent:
            if sent.done():
                sent.result()  # a failure ends the task at once
        number = len(self._sent) + 1
        if number > PARTS_MAX:
            raise RowError(
                f"The file {self.key} has more than {PARTS_MAX} parts.",
                remedy="raise partsize, or lower maxfilesize.",
            )
        part, self._filling = self._filling, bytearray()
        self._crc = combine_crc64nvme(self._crc, crc64nvme(part), len(part))
        self._size += len(part)
        self._sent.append(self._lanes.send(self._uploads, self.key, self.upload_id, number, part))
