"""Protocol idempotent: a marker for each handle that may have objects, for the sweep.

    <state>/prepared/job=<job>/<handle>.marker

It is put before the handle's first object, and deleted once its epoch is finished, so a sweep does not
list the data.
"""

from __future__ import annotations

from collections.abc import Sequence

from abs_clients.s3.objects import CELL_MAX, Objects
from abs_core.model import HandleName, InDoubt
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.perhandle import PerHandle
from abs_sinks.s3.uploads import Upload, Uploads, uploads_from_text, uploads_to_text

MARKERS = PerHandle("prepared", ".marker")


class Markers:
    """The markers in the state location of one sink."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._objects = Objects(options.bucket)
        self._uploads = Uploads(options)

    def put(self, handle: HandleName, uploads: Sequence[Upload]) -> None:
        """Put the handle's marker; its objects may exist from then on."""
        self._objects.put(self._key(handle), uploads_to_text(tuple(uploads)).encode())

    def delete(self, handles: Sequence[HandleName]) -> None:
        """Delete the markers of finished epochs."""
        self._objects.delete([self._key(handle) for handle in handles])

    def list(self, job: str | None) -> list[InDoubt]:
        """The marked handles of this job; None: of every job."""
        bucket = self._options.state.bucket
        return [
            InDoubt(handle, age, f"objects that s3://{bucket}/{listed.key} names")
            for handle, listed, age in MARKERS.of_job(self._options, job)
        ]

    def is_committed(self, handle: HandleName, committed: set[str]) -> bool:
        """Whether a manifest names the handle's objects."""
        return not committed.isdisjoint(upload.key for upload in self._named(handle))

    def size(self, handle: HandleName) -> int:
        """Bytes of the objects that the handle's marker names, existing or not."""
        return sum(upload.size for upload in self._named(handle))

    def undo(self, handle: HandleName, committed: set[str]) -> None:
        """Delete a handle's objects, unless they are committed, then its marker.

        Uploads are aborted first, so that a late Complete finds none.
        """
        uploads = self._named(handle)
        keys = [upload.key for upload in uploads]
        if not committed.intersection(keys):
            for upload in uploads:
                self._uploads.abort(upload.key, upload.upload_id)
            self._objects.delete(keys)
        self.delete([handle])

    def _named(self, handle: HandleName) -> tuple[Upload, ...]:
        key = self._key(handle)
        body = self._objects.get(key, CELL_MAX)
        if body is None:
            return ()
        return uploads_from_text(body.data, f"s3://{self._options.state.bucket}/{key}", "it")

    def _key(self, handle: HandleName) -> str:
        return MARKERS.key(self._options, handle)
