"""Connections to an S3 server: one object per process and server, which owns boto3's clients.

Credentials stay in boto3's chain. Payloads are not hashed for the signature: each part has a
CRC-64/NVME in a signed header instead, which the server checks, at half of the CPU
(``benchmarks/s3_upload.py`` compares).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import NoCredentialsError
from botocore.loaders import create_loader

from abs_clients import logins
from abs_clients.per_process import PerProcess
from abs_clients.s3.direct import Direct
from abs_clients.s3.errors import ENDPOINT_REMEDY, translate_errors
from abs_clients.s3.renewed import Renewed
from abs_clients.s3.server import Server
from abs_core.errors import RefusedError
from abs_core.model import Finding

CONNECTIONS_KEPT = 72
"""Idle connections that a client keeps for its threads: 64 upload parts, and a few more."""

TRIES = 4
"""How often a request that can be repeated is sent; botocore waits longer before each."""

# The service's models as boto3 reads them from disk, 100 ms and more: forked processes have them, too.
_MODELS = create_loader()


class Client:
    """The boto3 clients for one server in this process; threads share them."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._lock = threading.RLock()
        self._core = _core(server)
        self._session: boto3.session.Session | None = None
        self._connected: dict[int, Any] = {}
        self._direct: Direct | None = None

    def api(self, tries: int) -> Any:
        """boto3's client with this many tries."""
        with self._lock:
            if tries not in self._connected:
                with _set_up():
                    # One session for all: credentials are looked for once.
                    self._session = self._session or boto3.session.Session(
                        botocore_session=self._core
                    )
                    self._connected[tries] = _connect(self._session, self._server, tries)
            return self._connected[tries]

    def direct(self) -> Direct:
        """The fast path, see ``abs_clients.s3.direct``."""
        with self._lock:
            if self._direct is None:
                with _set_up():
                    api = self.api(TRIES)
                    self._direct = Direct(api, self._core, CONNECTIONS_KEPT, self._server.timeout)
            return self._direct

    def credentials(self) -> tuple[str, str, str | None, str | None]:
        """Key, secret, token and region, by boto3's chain, for a library with a client of its own."""
        with self._lock, _set_up():
            api = self.api(TRIES)
            assert self._session is not None
            login = self._session.get_credentials()
            if login is None:
                raise NoCredentialsError
            frozen = login.get_frozen_credentials()
            return frozen.access_key, frozen.secret_key, frozen.token, api.meta.region_name

    def login(self) -> tuple[str, float | None]:
        """The way by which boto3 found its credentials, and when they expire."""
        with self._lock, _set_up():
            self.api(TRIES)
            assert self._session is not None
            login = self._session.get_credentials()
            if login is None:
                raise NoCredentialsError
            login.get_frozen_credentials()  # those that are about to expire are renewed
            expires = getattr(login, "_expiry_time", None)
            return login.method, None if expires is None else expires.timestamp()

    def close(self) -> None:
        """Close the connections; the next use looks for credentials again."""
        with self._lock:
            connected, self._connected = self._connected, {}
            direct, self._direct = self._direct, None
            self._core, self._session = _core(self._server), None
        for api in connected.values():
            api.close()
        if direct is not None:
            direct.close()


_clients: PerProcess[Server, Client] = PerProcess(Client)


def client(server: Server, *, once: bool = False) -> Any:
    """The process's boto3 client for this server.

    Args:
        once: without automatic retries: for a compare-and-set.

    Raises:
        RefusedError: a malformed endpoint, or a missing profile.
    """
    return _clients.of(server).api(1 if once else TRIES)


def direct(server: Server) -> Direct:
    """The process's fast path to this server for repeatable requests; raises as ``client``."""
    return _clients.of(server).direct()


def credentials(server: Server) -> tuple[str, str, str | None, str | None]:
    """See ``Client.credentials``; raises as ``client``. Never to be shown (I9)."""
    return _clients.of(server).credentials()


def told_login(server: Server) -> Finding:
    """Which credentials are used, and until when, for ``abs doctor``; raises as ``client``."""
    way, expires = _clients.of(server).login()
    who = f"the owner of the credentials that boto3 finds by {way}"
    where = f"S3 at {server.endpoint or 'Amazon'}"
    return logins.told(where, who, "its session", expires, renewed=expires is not None)


def warm_up() -> None:
    """Load boto3's data for S3 from disk before forking."""
    boto3.session.Session(botocore_session=_core()).client("s3", region_name="us-east-1").close()


def close_idle(server: Server | None = None) -> None:
    """Close this process's clients for the server, or all; the next use makes new ones."""
    _clients.close(server)


def _connect(session: boto3.session.Session, server: Server, tries: int) -> Any:
    # A server of one's own takes any region; boto3's chain goes before.
    any_region = None if server.endpoint is None else session.region_name or "us-east-1"
    return session.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region or any_region,
        config=Config(
            s3={
                "addressing_style": "path" if server.pathstyle else "virtual",
                "payload_signing_enabled": False,
            },
            signature_version="s3v4",
            connect_timeout=min(10.0, server.timeout),
            read_timeout=server.timeout,
            max_pool_connections=CONNECTIONS_KEPT,
            retries={"total_max_attempts": tries, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            tcp_keepalive=True,
        ),
    )


@contextmanager
def _set_up() -> Iterator[None]:
    doing = "setting up the S3 client"
    try:
        with translate_errors(doing):
            yield
    except ValueError as error:
        raise RefusedError(
            f"boto3 cannot be used for {doing}: {error}.", remedy=ENDPOINT_REMEDY
        ) from error


def _core(server: Server | None = None) -> botocore.session.Session:
    core = botocore.session.get_session()
    core.register_component("data_loader", _MODELS)
    if server is not None and server.vendor is not None:
        renewed = Renewed(server.vendor)
        core._credentials = renewed
        core.register("needs-retry.s3", renewed.taken_back)
    return core
