"""The store of segments that a URL names: for the Kafka sink's option ``wal``, and for ``abs wal``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from abs_core.errors import OptionError
from abs_core.wal import FolderSegments, SegmentStore


def segment_store(url: str) -> SegmentStore:
    """The store at ``url``; does not connect.

    Args:
        url: ``file:///folder``, or a path: a folder that every executor and the driver see. Or
            ``s3://bucket/prefix``, with options of the S3 sink as its query where they are needed
            (``?endpoint=https://...&region=...``); credentials by boto3's chain, never in the URL.

    Raises:
        OptionError: there is no store for such a URL.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        path = url if parts.scheme == "" else unquote(parts.path)
        return FolderSegments(Path(path).expanduser())
    if parts.scheme in ("s3", "s3a"):
        # boto3 takes a while to import, and is an extra.
        from abs_sinks.s3.options import S3Options
        from abs_sinks.s3.segments import S3Segments

        place = f"s3://{parts.netloc}{parts.path}"
        return S3Segments(S3Options.parse({**dict(parse_qsl(parts.query)), "path": place}))
    raise OptionError(
        f"The write-ahead log cannot be kept under the scheme {parts.scheme!r}.",
        remedy="set wal to file:///... (a folder that every executor and the driver see) or "
        "s3://bucket/prefix.",
    )
