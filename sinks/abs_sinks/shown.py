"""The form of a URL in logs, errors and the trail, without credentials (I9).

A password may hold any character, also URL delimiters. So a PostgreSQL URL is parsed as by libpq, and
of any other URL that may hold credentials only the scheme is shown.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from abs_core.errors import OptionError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
_DATABASES = ("postgresql", "postgres", "jdbc", "")


def shown(url: str) -> str:
    """A URL without user, password and query.

    ``postgresql://host:port/database`` for a libpq URI, keyword string or JDBC URL; scheme, host and
    path of others, or the scheme alone if the URL contains an ``@``.
    """
    text = url.strip()
    scheme = scheme_of(text)
    if scheme in _DATABASES:
        return _database(text)
    if "@" in text:
        return f"{scheme}://(not shown: there is an @ in it)"
    return re.split(r"[?#]", text, maxsplit=1)[0]


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
    found = _SCHEME.match(url.strip())
    return "jdbc" if url.strip().lower().startswith("jdbc:") else found[0].lower() if found else ""


def _database(text: str) -> str:
    # Kafka's and S3's users need no PostgreSQL driver.
    from abs_clients.postgres.address import Address

    try:
        return Address.parse(text).place
    except OptionError:
        return "a database"
