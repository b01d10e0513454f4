"""How a URL is shown to people: in logs, errors, the trail. The one place where that is decided (I9).

A password in a URL may hold any character, also those that end a host, a path or a query for whoever
cuts the text by hand. So a PostgreSQL URL is read as libpq reads it, and of any other one that may
hold credentials nothing is shown but its scheme.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from abs_core.errors import OptionError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
_DATABASES = ("postgresql", "postgres", "jdbc", "")


def shown(url: str) -> str:
    """What a URL names, without user, password and query.

    ``postgresql://host:port/database`` of a libpq URI, keyword string or JDBC URL; of another URL its
    scheme, host and path, or only its scheme where there is an ``@`` in it.
    """
    text = url.strip()
    scheme = scheme_of(text)
    if scheme in _DATABASES:
        return _database(text)
    if "@" in text:
        return f"{scheme}://(not shown: there is an @ in it)"
    return re.split(r"[?#]", text, maxsplit=1)[0]


def parts_of(url: str) -> SplitResult:
    """The URL of a topic, a bucket or a folder, in its parts.

    Raises:
        OptionError: it has none; the URL is not shown.
    """
    try:
        return urlsplit(url)
    except ValueError:
        # From None: the reason can quote the URL.
        raise OptionError(
            "This is no URL (it is not shown here, for it can hold a password).",
            remedy="write postgresql://host/database, kafka://host:port/topic or s3://bucket/prefix.",
        ) from None


def scheme_of(url: str) -> str:
    """What a URL begins with, in lower case; empty for a path or libpq's keywords."""
    found = _SCHEME.match(url.strip())
    return "jdbc" if url.strip().lower().startswith("jdbc:") else found[0].lower() if found else ""


def _database(text: str) -> str:
    # Kafka's and S3's users need no PostgreSQL driver.
    from abs_clients.postgres.address import Address

    try:
        return Address.parse(text).place
    except OptionError:
        return "a database"
