"""One S3 client per process and server, and its errors in the project's own.

Credentials come by boto3's chain and stay in it: no option holds one (I9).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from abs_core.errors import AbsError, ConfigError, RefusedError, UnavailableError

_TRIES = 5
_LATER = {
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "RequestTimeTooSkewed",
}


@dataclass(frozen=True, slots=True)
class Server:
    """An S3 server, as ``abs-s3`` names it.

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


class NotThereError(Exception):
    """The object is not there. Never leaves this package."""


class OtherContentError(Exception):
    """A condition on the object's content does not hold. Never leaves this package."""


_clients: dict[tuple[int, Server], Any] = {}
_lock = threading.Lock()


def client(server: Server) -> Any:
    """The process's boto3 client for this server; threads share it.

    Raises:
        ConfigError: boto3 is missing, or finds no way to set up a client.
    """
    with _lock:
        key = (os.getpid(), server)
        if key not in _clients:
            _clients[key] = _connect(server)
        return _clients[key]


def close_idle() -> None:
    """Close every client of this process; they come again when they are needed."""
    with _lock:
        for kept in _clients.values():
            kept.close()
        _clients.clear()


def _connect(server: Server) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise ConfigError(
            "Files on S3 need boto3, which is not installed.", remedy="install abs-sinks[s3]."
        ) from error
    with mapped("setting up the S3 client"):
        session = boto3.session.Session()
        any_region = None if server.endpoint is None else session.region_name or "us-east-1"
        return session.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name=server.region or any_region,
            config=Config(
                s3={"addressing_style": "path" if server.pathstyle else "virtual"},
                connect_timeout=min(10.0, server.timeout),
                read_timeout=server.timeout,
                retries={"total_max_attempts": _TRIES, "mode": "standard"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                tcp_keepalive=True,
            ),
        )


@contextmanager
def mapped(what: str) -> Iterator[None]:
    """Errors of boto3 and of reading a body.

    Args:
        what: what is being done, and to which object.

    Raises:
        NotThereError, OtherContentError: for the caller to say what that means.
        UnavailableError: no answer, or a request to come later; boto3 has tried several times.
        RefusedError: credentials, privileges, a bucket that is not there.
        ConfigError: no credentials, a malformed endpoint.
    """
    try:
        yield
    except (AbsError, NotThereError, OtherContentError):
        raise
    except Exception as error:
        raise _mapped(what, error) from error


def _mapped(what: str, error: Exception) -> Exception:
    from botocore import exceptions as of

    if isinstance(error, of.ClientError):
        return _answered(what, error.response)
    unset = (
        of.NoCredentialsError,
        of.PartialCredentialsError,
        of.ProfileNotFound,
        of.NoRegionError,
    )
    if isinstance(error, (*unset, ValueError)):
        return ConfigError(
            f"S3: {what}: {error}",
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role, and the "
            "options endpoint and region, for every machine of the job.",
        )
    if isinstance(error, (of.BotoCoreError, OSError)) or "urllib3" in type(error).__module__:
        return UnavailableError(f"S3: {what}: no answer: {error}")
    return error


def _answered(what: str, response: Any) -> Exception:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchBucket":
        return RefusedError(
            f"S3: {what}: there is no such bucket.", remedy="make it, or correct the option path."
        )
    if status == 404:
        return NotThereError(what)
    if status in (409, 412):
        return OtherContentError(what)
    if code in _LATER or status in (429, 500, 502, 503, 504):
        return UnavailableError(f"S3: {what}: the server is busy or failing ({code or status}).")
    return RefusedError(
        f"S3: {what}: refused ({code or status}).",
        remedy="look at the credentials and at what they may do: list, get and, for the log, put "
        "and delete.",
    )
