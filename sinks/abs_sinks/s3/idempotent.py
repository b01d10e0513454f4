"""Protocol idempotent: objects are put at once, under names of their attempt."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from abs_core.crash import CrashPoint, reached
from abs_core.errors import FencedError
from abs_core.model import Committable, HandleName, Outcome
from abs_core.patience import Patience
from abs_sinks.s3.markers import Markers
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.twophase import digest_of
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import uploads_to_text


def publish(
    options: S3Options, handle: HandleName, files: TaskFiles, patience: Patience
) -> Committable:
    """Pre-commit: the objects are there, behind a marker; a manifest makes them count, or a sweep
    deletes them by the marker.

    Raises:
        FencedError: a newer run has swept the uploads.
        TargetError: the server refused or went away; what is there already is left to the sweep.
    """
    uploads = files.finish()
    patience.retry(partial(Markers(options).put, handle, uploads))
    reached(CrashPoint.BEFORE_PRE_COMMIT)
    pending = PendingUploads(options)
    for upload in uploads:
        outcome = patience.retry(partial(pending.complete, handle, upload))
        if outcome is not Outcome.COMMITTED:
            raise FencedError(
                "An upload was ended while its task was at work: a newer run has swept it.",
                handle=str(handle),
                remedy="none, if the job was restarted.",
            )
    # The objects are there: their parts are of no use any more.
    lean = tuple(replace(upload, etags=(), crcs=()) for upload in uploads)
    extra = (("protocol", "idempotent"), ("uploads", uploads_to_text(lean)))
    return Committable(handle, files.rows, digest_of(uploads), extra)
