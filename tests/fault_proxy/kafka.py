"""A relay before a broker that loses requests and replies, by kind: for tests of recovery.

It speaks enough of Kafka's protocol to know which request is which: frames with a length, an API key
first (protocol guide, "Request Header"). Brokers tell clients where to connect; in what they say the
relay puts its own port, so that all connections pass through it.
"""

from __future__ import annotations

import socket
from enum import IntEnum

from abs_testing.calls import Loss
from abs_testing.relay import Relay, exactly


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


INVALID_TRANSACTION_TIMEOUT = (50).to_bytes(2, "big")
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (53).to_bytes(2, "big")


class LossyBroker(Relay):
    """Stands before a broker.

    Args:
        bootstrap: host:port of the broker, plain text, host ``127.0.0.1``.
        repeats: what ``repeat`` brings again.
        only_late: see ``Relay``.
    """

    def __init__(
        self, bootstrap: str, repeats: Api = Api.END_TXN, *, only_late: bool = False
    ) -> None:
        host, _, port = bootstrap.partition(":")
        server, amend = (host, int(port)), self._request
        super().__init__(server, _frame, self._answer, name_of, amend=amend, only_late=only_late)
        self._repeats = repeats
        self.denied = ""
        """A transactional id that nobody may initialise now."""
        self.denials = 0
        """How often it was denied."""
        self._denied: set[bytes] = set()
        self._told = host.encode() + int(port).to_bytes(4, "big")
        self._instead = host.encode() + self.port.to_bytes(4, "big")
        self.bootstrap = f"127.0.0.1:{self.port}"
        """host:port of the relay."""

    def lose(self, loss: Loss, api: Api, nth: int = 1) -> None:
        """Arm: the nth request of that kind from now on is lost that way, once."""
        self.lose_if(loss, lambda frame: int.from_bytes(frame[4:6], "big") == api, nth)

    def ends(self, name: str) -> bool:
        """See ``check_repeats.Repeating``."""
        return name == self._repeats.name

    def _request(self, frame: bytes) -> bytes:
        """One that is to be denied gets a timeout that the broker takes from nobody."""
        at = frame.find(self.denied.encode()) + len(self.denied)
        if not self.denied or name_of(frame) != Api.INIT_PRODUCER_ID.name or at < len(self.denied):
            return frame
        self._denied.add(frame[8:12])
        return frame[:at] + b"\x7f\xff\xff\xff" + frame[at + 4 :]

    def _answer(self, frame: bytes) -> bytes:
        """Tells the client to come here, and what was denied it that it has no right."""
        if frame[4:8] in self._denied and frame[13:15] == INVALID_TRANSACTION_TIMEOUT:
            self._denied.discard(frame[4:8])
            self.denials += 1
            return frame[:13] + TRANSACTIONAL_ID_AUTHORIZATION_FAILED + frame[15:]
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
