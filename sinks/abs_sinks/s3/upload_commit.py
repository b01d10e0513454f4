"""Completes uploads and tells their outcome: by the object, never by absence (I7)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import reduce
from hashlib import md5

from awscrt.checksums import crc64nvme
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_random_exponential

from abs_clients.s3.objects import Head, Objects
from abs_core.errors import ContentionError
from abs_core.model import HandleName, Outcome
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.uploads import HANDLE, Completed, Refusal, Upload, Uploads

LOOK_SECONDS = 3.0
"""How long to look for a missing upload's object: a delayed Complete may be making it."""

log = logging.getLogger(__name__)


class PendingUploads:
    """Completes and inspects uploads. Every call can be repeated."""

    def __init__(self, options: S3Options) -> None:
        self._objects = Objects(options.bucket)
        self._uploads = Uploads(options)

    def inspect(self, handle: HandleName, upload: Upload) -> Outcome:
        """The upload's outcome; prepared if all parts are as they were sent."""
        parts = self._uploads.parts(upload.key, upload.upload_id)
        # The upload before the object: a Complete in between turns the first into the second.
        if parts is not None and self._is_whole(upload, parts):
            return Outcome.PREPARED
        return self._look(handle, upload) or Outcome.UNKNOWN

    def is_there(self, handle: HandleName, upload: Upload) -> bool:
        """Whether the object exists with the content that was sent."""
        return self._look(handle, upload) is Outcome.COMMITTED

    def complete(self, handle: HandleName, upload: Upload) -> Outcome:
        """Make the object, and prove that it is there with the content that was sent.

        Raises:
            UnavailableError, ContentionError: it may still be done; try again.
        """
        answer = self._uploads.complete(upload)
        if isinstance(answer, Completed):
            # A 200 proves nothing, as racing requests can each get one: the checksum does.
            if answer.crc == upload.crc:
                return Outcome.COMMITTED
            return self._look(handle, upload) or Outcome.UNKNOWN
        return self._after(answer, handle, upload)

    def _after(self, refusal: Refusal, handle: HandleName, upload: Upload) -> Outcome:
        """The outcome after a refusal: our object exists (412), the upload is gone (404), or ..."""
        looked = self._look(handle, upload)
        if looked is not None:
            return looked
        parts = self._uploads.parts(upload.key, upload.upload_id)
        if parts is None:
            return self._look_longer(handle, upload)
        if not self._is_whole(upload, parts):
            log.error("%s: parts of the upload are not those that were sent", upload.key)
            return Outcome.UNKNOWN
        # 409: another request for this key was under way. The parts are kept and nobody else has
        # this key (I6): the condition is not needed for safety.
        again = self._uploads.complete(upload, if_absent=False)
        if isinstance(again, Refusal):
            raise ContentionError(
                f"The server does not complete the upload of {upload.key}: {refusal}, then {again}.",
                handle=str(handle),
            )
        return self._look(handle, upload) or Outcome.UNKNOWN

    def _look(self, handle: HandleName, upload: Upload) -> Outcome | None:
        """Committed if the object is ours, unknown if it is another's; None: no object."""
        head = self._objects.head(upload.key)
        if head is None:
            return None
        if self._is_ours(head, handle, upload):
            return Outcome.COMMITTED
        log.error("%s does not have the content that was written there", upload.key)
        return Outcome.UNKNOWN

    def _look_longer(self, handle: HandleName, upload: Upload) -> Outcome:
        retrying = Retrying(
            retry=retry_if_result(lambda outcome: outcome is None),
            wait=wait_random_exponential(multiplier=0.1, max=1.0),
            stop=stop_after_delay(LOOK_SECONDS),
            retry_error_callback=lambda _: None,
        )
        outcome: Outcome | None = retrying(self._look, handle, upload)
        if outcome is None:
            log.error(
                "%s: neither upload nor object is there: it was aborted (by a lifecycle rule?), or "
                "completed and deleted",
                upload.key,
            )
        return outcome or Outcome.UNKNOWN

    def _is_ours(self, head: Head, handle: HandleName, upload: Upload) -> bool:
        if head.metadata.get(HANDLE) != str(handle) or head.size != upload.size:
            return False
        if head.crc64nvme is not None:
            return head.crc64nvme == upload.crc
        if head.etag.strip('"') == _etag_of(upload):
            return True
        # Without a checksum, and with an ETag that is no digest, the object is read.
        crc = reduce(
            lambda so_far, piece: crc64nvme(piece, so_far),
            self._objects.chunks(upload.key) or (),
            0,
        )
        return f"{crc:016x}" == upload.crc

    @staticmethod
    def _is_whole(upload: Upload, sizes: Mapping[tuple[int, str], int]) -> bool:
        """Whether every part is there as it was sent."""
        stored = [sizes.get(numbered) for numbered in enumerate(upload.etags, 1)]
        return (
            upload.size == sum(size for size in stored if size is not None) and None not in stored
        )


def _etag_of(upload: Upload) -> str | None:
    """The object's ETag if parts' ETags are their MD5; else None."""
    if any(len(etag) != 32 for etag in upload.etags):
        return None
    try:
        digests = b"".join(bytes.fromhex(etag) for etag in upload.etags)
    except ValueError:
        return None
    return f"{md5(digests, usedforsecurity=False).hexdigest()}-{len(upload.etags)}"
