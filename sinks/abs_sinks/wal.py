"""The store of segments that a URL names: for the sinks' option ``wal``, and for ``abs wal``."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from abs_core.errors import OptionError
from abs_core.wal import FolderSegments, SegmentStore


def segment_store(url: str) -> SegmentStore:
    """The store at ``url``; does not connect.

    Args:
        url: ``file:///folder``, or a path. A folder must be seen by every executor and the driver.

    Raises:
        OptionError: there is no store for such a URL.
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost"):
        path = url if parts.scheme == "" else unquote(parts.path)
        return FolderSegments(Path(path).expanduser())
    raise OptionError(
        f"The write-ahead log cannot be kept under the scheme {parts.scheme!r}.",
        remedy="set wal to file:///... : a folder that every executor and the driver see.",
    )
