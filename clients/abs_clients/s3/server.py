"""Values that name an S3 server and a bucket, for sinks, sources and stores.

Importing this does not import boto3. Credentials come from boto3's chain, or from a vendor: no value
holds one (I9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, Self

from abs_clients.options import Option, boolean, described, fields_from, seconds, text

_CREDENTIALS = (
    "leave it out: credentials come by boto3's chain (AWS_ACCESS_KEY_ID, a profile, a role)."
)
HADOOP = {
    "accessKey": _CREDENTIALS,
    "secretKey": _CREDENTIALS,
    "fs.s3a.access.key": _CREDENTIALS,
    "fs.s3a.secret.key": _CREDENTIALS,
    "fs.s3a.endpoint": "use endpoint.",
    "fs.s3a.path.style.access": "use pathstyle.",
}
"""Options of other S3 clients, Hadoop's for one, and what to do instead."""


def endpoint_url(value: str) -> str:
    """The base URL of a server, without a slash at its end."""
    if re.fullmatch(r"https?://[^/\s@?#]+/?", value.strip()) is None:
        raise ValueError("a URL of scheme, host and port, without credentials: http://host:port")
    return value.strip().rstrip("/")


@dataclass(frozen=True, slots=True)
class Vended:
    """Credentials for a part of a store; they are not kept beyond a process (I9).

    Args:
        expires: seconds since 1970; None: not known.
    """

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)
    expires: float | None


class Vendor(Protocol):
    """Gives credentials, new ones with each call. It can be hashed and pickled, and holds none."""

    def vend(self) -> Vended: ...


@described
@dataclass(frozen=True, slots=True)
class Server:
    """An S3 server.

    Args:
        vendor: of credentials; None: boto3's chain.
    """

    endpoint: Annotated[
        str | None,
        endpoint_url,
        "`http://host:port` of a server other than Amazon's (boto3's `AWS_ENDPOINT_URL` works too)",
    ] = None
    region: Annotated[str | None, text, "default: that of boto3"] = None
    pathstyle: Annotated[
        bool,
        Option("pathstyle", boolean),
        "`true` or `false`; default: true if there is an `endpoint`",
    ] = False
    timeout: Annotated[float, seconds(1.0, 600.0), "the longest time of one request"] = 60.0
    vendor: Vendor | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From the result of ``read_options``; a server with an endpoint uses paths by default."""
        values_by_field = fields_from(cls, values)
        if values_by_field["pathstyle"] is None:
            values_by_field["pathstyle"] = values_by_field["endpoint"] is not None
        return cls(**values_by_field)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and the encryption of objects that are written there.

    Args:
        sse: server-side encryption; None: the bucket's default.
        ssekmskeyid: key for ``aws:kms``.
    """

    server: Server
    name: str
    sse: str | None = None
    ssekmskeyid: str | None = None

    @property
    def encryption(self) -> dict[str, str]:
        """Request parameters for server-side encryption."""
        headers = {"ServerSideEncryption": self.sse, "SSEKMSKeyId": self.ssekmskeyid}
        return {name: text for name, text in headers.items() if text is not None}
