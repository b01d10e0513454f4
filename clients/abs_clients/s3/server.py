"""Which S3 server, and which bucket of it: values that sinks, sources and stores hand to the client.

Importing this does not import boto3. Credentials come by boto3's chain: no value holds one (I9).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Server:
    """An S3 server.

    Args:
        endpoint: base URL; None: Amazon's for the region.
        region: None: by boto3's chain.
        pathstyle: the bucket in the path and not in the host's name.
        timeout: seconds to wait for an answer.
    """

    endpoint: str | None = None
    region: str | None = None
    pathstyle: bool = False
    timeout: float = 60.0


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
