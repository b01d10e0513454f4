"""What each protocol promises, in words for the person who starts the job."""

from __future__ import annotations

from abs_core.model import Guarantee
from abs_sinks.s3.options import S3Options

_VISIBILITY = {
    "2pc": "per file: when the epoch is committed, its files appear one after another, each whole, "
    "within milliseconds of each other",
    "wal": "per file: when the epoch is committed, its few composed files appear one after another, "
    "each whole, within milliseconds of each other",
    "idempotent": "whole epoch, for readers that go by manifests; files are in the folder before "
    "that, those of failed attempts among them",
}

_READER = {
    "2pc": "nothing: every object in the folder is committed (names that begin with _ are the sink's)",
    "wal": "nothing: every object in the folder is committed (names that begin with _ are the sink's)",
    "idempotent": "spark.read.format('abs-s3') or abs_sinks.s3.committed_files(): a reader that lists "
    "the folder sees files that are not, or not yet, committed",
}

_OPEN_UPLOADS = (
    "A lifecycle rule that ends unfinished uploads must leave them longer than the job is down."
)

_LIMITS = {
    "2pc": (_OPEN_UPLOADS,),
    "wal": (_OPEN_UPLOADS, "Every byte is written twice, and read once by the driver."),
    "idempotent": ("Files must not be deleted or rewritten behind the manifests' back.",),
}


def guarantee(options: S3Options) -> Guarantee:
    """The guarantee that follows from the options."""
    return Guarantee(
        protocol=options.protocol,
        write="append",
        visibility=_VISIBILITY[options.protocol],
        reader=_READER[options.protocol],
        limits=_LIMITS[options.protocol],
    )
