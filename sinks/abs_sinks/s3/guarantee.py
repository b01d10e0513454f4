"""The printed guarantee of each protocol."""

from __future__ import annotations

from abs_core.model import Guarantee
from abs_sinks.s3.options import S3Options

_VISIBILITY = {
    "2pc": "per file: when the epoch is committed, its files become visible one after another, each "
    "as a whole, within milliseconds",
    "wal": "per file: when the epoch is committed, its few composed files become visible one after "
    "another, each as a whole, within milliseconds",
    "idempotent": "whole epoch, for readers that use the manifests; the folder also contains files of "
    "undecided epochs and of failed attempts",
}

_LISTED = (
    "no setting needed: every object in the folder is committed (names that begin with _ belong to "
    "the sink)"
)

_READER = {
    "2pc": _LISTED,
    "wal": _LISTED,
    "idempotent": "use spark.read.format('abs-s3') or abs_sinks.s3.committed_files(): a reader that "
    "lists the folder also sees files that are not committed",
}

_OPEN_UPLOADS = (
    "A lifecycle rule that aborts unfinished uploads must wait for longer than the job may be down."
)

_LIMITS = {
    "2pc": (_OPEN_UPLOADS,),
    "wal": (_OPEN_UPLOADS, "Every byte is written twice, and the driver reads it once."),
    "idempotent": ("Do not delete or rewrite files: readers find them through the manifests.",),
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
