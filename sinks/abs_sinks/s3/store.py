"""Where data files are prepared and completed: a bucket, or another place with the same steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from abs_core.model import HandleName, Outcome
from abs_core.patience import Patience
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.partfile import PartFile, UploadPool
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import Pending, Upload


class OutFile(Protocol):
    """A sequential file object of one data file, which no reader sees until it is completed."""

    def write(self, data: Any) -> int: ...

    def tell(self) -> int: ...

    def finish(self) -> Upload:
        """End it; everything is durable when this returns."""
        ...

    def discard(self) -> None:
        """Remove it, at best effort. Never raises."""
        ...


class Store(Protocol):
    """Prepares, completes and lists data files. Every call but ``begin`` can be repeated."""

    def begin(
        self, pool: UploadPool, key: str, metadata: dict[str, str], patience: Patience | None
    ) -> OutFile: ...

    def inspect(self, handle: HandleName, upload: Upload) -> Outcome: ...

    def complete(self, handle: HandleName, upload: Upload) -> Outcome:
        """Make the file visible under its key, and prove that it is there as it was written."""
        ...

    def abort(self, key: str, upload_id: str) -> None: ...

    def list(self, prefix: str) -> Iterator[Pending]:
        """Files that are neither completed nor aborted."""
        ...

    def parts(self, key: str, upload_id: str) -> Mapping[tuple[int, str], int] | None:
        """Bytes of each part of such a file; None: it is not there."""
        ...

    def described(self, pending: Pending) -> str:
        """Such a file, for people."""
        ...


class BucketStore(PendingUploads):
    """Multipart uploads, which stay open until they are completed."""

    def __init__(self, options: S3Options) -> None:
        super().__init__(options)
        self._options = options

    def begin(
        self, pool: UploadPool, key: str, metadata: dict[str, str], patience: Patience | None
    ) -> PartFile:
        return PartFile(self._options, pool, key, metadata, patience)

    def abort(self, key: str, upload_id: str) -> None:
        self._uploads.abort(key, upload_id)

    def list(self, prefix: str) -> Iterator[Pending]:
        return self._uploads.list(prefix)

    def parts(self, key: str, upload_id: str) -> Mapping[tuple[int, str], int] | None:
        return self._uploads.parts(key, upload_id)

    def described(self, pending: Pending) -> str:
        return f"upload {pending.upload_id} of s3://{self._options.path.bucket}/{pending.key}"
