"""Opens the segment store of a URL, for the Kafka sink's option ``wal`` and for ``abs wal``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from abs_core.errors import OptionError
from abs_core.wal import FolderSegments, SegmentStore
from abs_sinks.door import find_format
from abs_sinks.urls import parts_of

_WHERE = "set wal to file:///... (a folder that every executor and the driver see) or s3://bucket/prefix."


def segment_store(url: str) -> SegmentStore:
    """The store at ``url``; does not connect.

    Args:
        url: ``file:///folder``, or an absolute path: a folder that every executor and the driver see.
            Or ``s3://bucket/prefix``, with options of the S3 sink as its query where they are needed
            (``?endpoint=https://...&region=...``); credentials by boto3's chain, never in the URL.
            ``file:///folder#id`` is the folder that has this id, and no other.

    Raises:
        OptionError: there is no store for such a URL.
    """
    parts = parts_of(url)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        known_as = parts.fragment if parts.scheme and parts.fragment else None
        folder = _folder(url if parts.scheme == "" else unquote(parts.path))
        return FolderSegments(folder, known_as)
    system = find_format(url)
    store = None if system is None else system.segments(url)
    if store is not None:
        return store
    raise OptionError(
        f"The write-ahead log cannot be kept under the scheme {parts.scheme!r}.",
        remedy=_WHERE,
    )


def _folder(path: str) -> Path:
    """The folder of an absolute path; a relative one would differ between processes."""
    if "\0" in path:
        raise OptionError(f"wal: {path[:200]!a} holds a zero byte.", remedy=_WHERE)
    try:
        folder = Path(path).expanduser()
    except RuntimeError as error:  # ~somebody
        raise OptionError(f"wal: there is no home folder in {path!r}.", remedy=_WHERE) from error
    if not folder.is_absolute():
        raise OptionError(
            f"wal: the folder {path[:200]!r} is relative: tasks and driver would each look for it "
            "below their own working directory.",
            remedy=_WHERE,
        )
    return folder
