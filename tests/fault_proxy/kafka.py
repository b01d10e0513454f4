"""A relay before a broker that loses requests and replies, by kind: for tests of recovery.

It speaks enough of Kafka's protocol to know which request is which: frames with a length, an API key
first (protocol guide, "Request Header"). Brokers tell clients where to connect; in what they say the
relay puts its own port, so that all connections pass through it.
"""

from __future__ import annotations

import socket
from enum import IntEnum

from abs_core.testing.calls import Loss
from tests.fault_proxy.relay import Relay, exactly


class Api(IntEnum):
    """Keys of requests."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


CALLS = frozenset(Api) - {Api.METADATA}
"""Requests that count as a job's calls. Those of readers do not: how often they ask depends on time."""


class LossyBroker(Relay):
    """Stands before a broker.

    Args:
        bootstrap: host:port of the broker, plain text, host ``127.0.0.1``.
    """

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        super().__init__((host, int(port)), _frame, self._told_to_come_here, name_of)
        self._told = host.encode() + int(port).to_bytes(4, "big")
        self._instead = host.encode() + self.port.to_bytes(4, "big")
        self.bootstrap = f"127.0.0.1:{self.port}"
        """host:port of the relay."""

    def lose(self, loss: Loss, api: Api, nth: int = 1) -> None:
        """Arm: the nth request of that kind from now on is lost that way, once."""
        self.lose_if(loss, lambda frame: int.from_bytes(frame[4:6], "big") == api, nth)

    def ends(self, name: str) -> bool:
        """See ``check_repeats.Repeating``."""
        return name == Api.END_TXN.name

    def _told_to_come_here(self, frame: bytes) -> bytes:
        return frame.replace(self._told, self._instead)


def name_of(frame: bytes) -> str | None:
    """The kind of a request that is a job's call."""
    key = int.from_bytes(frame[4:6], "big")
    return Api(key).name if key in CALLS else None


def _frame(source: socket.socket) -> bytes:
    """A whole frame with its length; nothing where the connection has ended."""
    head = exactly(source, 4)
    size = int.from_bytes(head, "big")
    body = exactly(source, size)
    return head + body if head and len(body) == size else b""
