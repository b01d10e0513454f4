"""The parts of a URL. How a URL is shown to people: ``abs_sinks.door.shown``."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from abs_core.errors import OptionError

_SCHEME = re.compile(r"(jdbc)(?=:)|([a-z][a-z0-9+.-]*)(?=://)", re.IGNORECASE)


def parts_of(url: str) -> SplitResult:
    """Split the URL of a topic, a bucket or a folder; ``OptionError`` (without the URL) if invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        # ``from None``: the cause can quote the URL.
        raise OptionError(
            "This is not a URL (it is not shown here, because it can contain a password).",
            remedy="write postgresql://host/database, kafka://host:port/topic or s3://bucket/prefix.",
        ) from None


def scheme_of(url: str) -> str:
    """The URL's scheme in lower case; empty for a path or libpq's keywords."""
    match = _SCHEME.match(url.strip())
    return match[0].lower() if match else ""
