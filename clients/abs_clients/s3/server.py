"""Which S3 server, and which bucket of it: values that sinks, sources and stores hand to the client.

Importing this does not import boto3. Credentials come by boto3's chain: no value holds one (I9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from abs_clients.options import Option, boolean, fields_from, seconds, text


def endpoint_url(given: str) -> str:
    """The base URL of a server, without a slash at its end."""
    if re.fullmatch(r"https?://[^/\s@?#]+/?", given.strip()) is None:
        raise ValueError("a URL of scheme, host and port, without credentials: http://host:port")
    return given.strip().rstrip("/")


@dataclass(frozen=True, slots=True)
class Server:
    """An S3 server.

    Args:
        endpoint: base URL; None: Amazon's for the region.
        region: None: by boto3's chain.
        pathstyle: the bucket in the path and not in the host's name.
        timeout: seconds to wait for an answer.
    """

    endpoint: Annotated[str | None, endpoint_url] = None
    region: Annotated[str | None, text] = None
    pathstyle: Annotated[bool, Option("pathstyle", boolean)] = False
    timeout: Annotated[float, seconds(1.0, 600.0)] = 60.0

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From what ``read_options`` returned; a server with an endpoint has paths by default."""
        given = fields_from(cls, values)
        if given["pathstyle"] is None:
            given["pathstyle"] = given["endpoint"] is not None
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket, and how objects that are written there are encrypted.

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
        """The parameters that ask for server-side encryption."""
        given = {"ServerSideEncryption": self.sse, "SSEKMSKeyId": self.ssekmskeyid}
        return {name: text for name, text in given.items() if text is not None}
