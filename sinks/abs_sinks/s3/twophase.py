"""Protocol 2pc: one multipart upload for each file, left open; Complete makes it an object."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable, HandleName
from abs_core.patience import Patience
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.uploads import Upload, uploads_to_text


def leave_open(handle: HandleName, files: TaskFiles, patience: Patience) -> Committable:
    """Pre-commit: every part is acknowledged, so the server has all that Complete needs.

    What it has is invisible to every reader, and stays until it is completed or aborted: no timeout
    but a lifecycle rule of the bucket (preflight reads those).

    Raises:
        TargetError: a part could not be uploaded.
    """
    uploads = files.finish()
    reached(CrashPoint.BEFORE_PRE_COMMIT)
    return committable(handle, files.rows, uploads)


def committable(handle: HandleName, rows: int, uploads: Sequence[Upload]) -> Committable:
    """What the coordinator needs to commit the uploads, and to prove that they are."""
    extra = (("protocol", "2pc"), ("uploads", uploads_to_text(tuple(uploads))))
    return Committable(handle, rows, digest_of(uploads), extra)


def digest_of(uploads: Sequence[Upload]) -> str:
    """Of the files' checksums, in order of their keys."""
    lines = sorted(f"{upload.key} {upload.size} {upload.crc}" for upload in uploads)
    return f"sha256:{sha256(chr(10).join(lines).encode()).hexdigest()}"
