"""The S3 sink: from Arrow batches to files that appear exactly once."""

from typing import TYPE_CHECKING

from abs_sinks import face

if TYPE_CHECKING:
    from abs_sinks.s3.committed import committed_files
    from abs_sinks.s3.manifests import CommittedFile
    from abs_sinks.s3.options import S3Options
    from abs_sinks.s3.register import S3Register
    from abs_sinks.s3.sink import S3Sink

__all__ = ["CommittedFile", "S3Options", "S3Register", "S3Sink", "committed_files"]

__getattr__ = face(
    __name__,
    CommittedFile="manifests",
    S3Options="options",
    S3Register="register",
    S3Sink="sink",
    committed_files="committed",
)
