"""Connections to the server, kept per process: boto3's client, set up for this sink.

Credentials come by boto3's chain and stay in it. Payloads are not hashed for the signature: each part
carries a CRC-64/NVME in a signed header instead, which the server checks, at half of the CPU
(``benchmarks/s3_upload.py`` compares).
"""

from __future__ import annotations

import os
import threading
from typing import Any

import boto3
from botocore.config import Config

from abs_clients.s3.errors import mapped
from abs_clients.s3.server import Server

CONNECTIONS_KEPT = 72
"""Idle connections that a client keeps for its threads: 64 upload parts, and a few more."""

TRIES = 4
"""How often a request that can be repeated is sent; botocore waits longer before each."""

_clients: dict[tuple[int, Server, int], Any] = {}
_lock = threading.Lock()
_session: boto3.session.Session | None = None
os.register_at_fork(after_in_child=_clients.clear)


def client(server: Server, *, once: bool = False) -> Any:
    """The process's boto3 client for this server; threads share it.

    Args:
        once: for requests that must not be sent twice on their own: a compare-and-set.
    """
    tries = 1 if once else TRIES
    key = (os.getpid(), server, tries)
    with _lock:
        if key not in _clients:
            _clients[key] = _connect(server, tries)
        return _clients[key]


def warm_up() -> None:
    """Load what boto3 reads from disk for S3, so that forked processes have it already."""
    with _lock:
        _shared_session().client("s3", region_name="us-east-1").close()


def close_idle() -> None:
    """Close every client of this process; they come again when they are needed."""
    global _session
    with _lock:
        _session = None
        for kept in _clients.values():
            kept.close()
        _clients.clear()


def _connect(server: Server, tries: int) -> Any:
    with mapped("setting up the S3 client"):
        return _shared_session().client(
            "s3",
            endpoint_url=server.endpoint,
            region_name=server.region or (None if server.endpoint is None else _any_region()),
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


def _any_region() -> str:
    """A server of one's own takes any region; boto3's chain goes before."""
    return _shared_session().region_name or "us-east-1"


def _shared_session() -> boto3.session.Session:
    """One for the process: it reads its models of the service once. Called under the lock."""
    global _session
    if _session is None:
        _session = boto3.session.Session()
    return _session
