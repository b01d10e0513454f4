"""A fast path for thousands of requests, past boto3's machinery: under half of its CPU time.

A commit of many handles sends ListParts and CompleteMultipartUpload once for each. boto3 takes more
than a millisecond of CPU for one (benchmark ``s3_commit``, which runs an epoch with and without this
module), and Python's lock lets one thread at a time do that. awscrt's S3 client takes as much as this
one; but credentials, addresses, trust, time limits and events are boto3's, it would have to be given
each of them, and its threads do not live on in a forked process.

boto3 still determines a bucket's address, botocore signs, urllib3 (which boto3 uses, too) keeps the
connections, and servers are trusted as boto3 trusts them. Any exception (an error, a redirect, a broken
connection, a proxy, another kind of signature) gives no answer here, and the caller sends the request
by boto3, which retries and reports errors. So only repeatable requests may be sent here.
"""

from __future__ import annotations

import ssl
import threading
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

_PROBE = "k"
_EXPRESS = "--x-s3"
"""The end of a directory bucket's name: its requests are signed by a session's key."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request for one object.

    Args:
        operation: the API's name of it.
        root: name of the answer's root element; other answers do not count.
    """

    operation: str
    method: str
    root: str
    bucket: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class _Route:
    """Where a bucket's objects are.

    Args:
        path: before a key.
        region: to sign for.
    """

    scheme: str
    host: str
    path: str
    region: str

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}"


class Direct:
    """Sends requests to one server. Threads share it.

    Args:
        api: boto3's client for that server.
        session: botocore's session that made it; it holds the credentials (I9).
        connections: number of idle ones to keep.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, api: Any, session: Any, connections: int, timeout: float) -> None:
        self._api = api
        self._credentials = session.get_credentials()
        self._bundle = session.get_config_variable("ca_bundle") or True
        self._kept = connections
        self._timeout = Timeout(connect=min(10.0, timeout), read=timeout)
        self._lock = threading.Lock()
        self._routes: dict[str, _Route | None] = {}
        self._opened: PoolManager | None = None

    def ask(self, call: Call) -> ET.Element | None:
        """The root of the server's answer; None if boto3 has to ask."""
        try:
            route = self._route(call.bucket)
            if route is None:
                return None
            return self._send(route, call)
        except (HTTPError, OSError, BotoCoreError, ET.ParseError):
            return None  # boto3 meets it again, and reports it

    def close(self) -> None:
        """Close idle connections."""
        if self._opened is not None:
            self._opened.clear()

    def _send(self, route: _Route, call: Call) -> ET.Element | None:
        request = AWSRequest(
            call.method,
            route.origin + route.path + quote(call.key, safe="/-_.~"),
            dict(call.headers),
            call.body,
            dict(call.query),
        )
        credentials = self._credentials.get_frozen_credentials()
        S3SigV4Auth(credentials, "s3", route.region).add_auth(request)
        prepared = request.prepare()
        # For those who count requests, or answer them, as boto3 lets them do.
        name = f"before-send.s3.{call.operation}"
        if any(answer for _, answer in self._api.meta.events.emit(name, request=prepared)):
            return None
        answer = (
            self._pools()
            .connection_from_url(route.origin)
            .urlopen(
                call.method,
                prepared.url.removeprefix(route.origin),
                call.body or None,
                dict(prepared.headers.items()),
                retries=False,
                redirect=False,
            )
        )
        if answer.status != 200:
            return None
        # A slow Complete sends white space first, and may end in an error with status 200.
        root = ET.fromstring(answer.data.strip())  # noqa: S314 (botocore parses the same so)
        return root if local(root) == call.root else None

    def _pools(self) -> PoolManager:
        with self._lock:
            if self._opened is None:
                self._opened = PoolManager(
                    num_pools=self._kept,
                    maxsize=self._kept,
                    timeout=self._timeout,
                    ssl_context=ssl.create_default_context(cafile=get_cert_path(self._bundle)),
                )
            return self._opened

    def _route(self, bucket: str) -> _Route | None:
        with self._lock:
            if bucket not in self._routes:
                self._routes[bucket] = self._found(bucket)
            return self._routes[bucket]

    def _found(self, bucket: str) -> _Route | None:
        """The route that boto3 would take; None if only boto3 can take it."""
        url = self._api.generate_presigned_url(
            "head_object", Params={"Bucket": bucket, "Key": _PROBE}
        )
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        scope = query.get("X-Amz-Credential", [""])[0].split("/")[-4:]
        by_v4 = not bucket.endswith(_EXPRESS) and query.get("X-Amz-Algorithm") == [
            "AWS4-HMAC-SHA256"
        ]
        if not by_v4 or scope[2:] != ["s3", "aws4_request"] or get_environ_proxies(url):
            return None
        return _Route(parts.scheme, parts.netloc, parts.path.removesuffix(_PROBE), scope[1])


def local(element: ET.Element) -> str:
    """The element's name without its namespace: some servers leave that out."""
    return element.tag.rpartition("}")[2]


def texts(element: ET.Element) -> dict[str, str]:
    """The texts of an element's children, by name."""
    return {local(child): child.text or "" for child in element}
