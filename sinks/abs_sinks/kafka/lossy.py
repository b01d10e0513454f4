"""A proxy that loses a request, a reply, or delays a request, on purpose: for tests of recovery.

It speaks enough of Kafka's protocol to know which request is which: frames with a length, an API key
first (protocol guide, "Request Header"). Brokers tell clients where to connect; in what they say the
proxy puts its own port, so that all connections pass through it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Self


class Api(IntEnum):
    """Keys of requests."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class Loss(StrEnum):
    """What becomes of a request.

    REQUEST: the broker never gets it. REPLY: the broker gets it and answers; the client sees a broken
    connection. DELAY: the client sees a broken connection; the broker gets it at ``release``.
    """

    REQUEST = "request"
    REPLY = "reply"
    DELAY = "delay"


@dataclass(slots=True)
class _Plan:
    api: Api
    nth: int
    loss: Loss
    fired: bool = False


class LossyBroker:
    """Stands before a broker. A context manager; connections end with it.

    Args:
        bootstrap: host:port of the broker, plain text, host ``127.0.0.1``.
    """

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        own = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{own}"
        """host:port of the proxy."""
        self._told = host.encode() + int(port).to_bytes(4, "big")
        self._instead = host.encode() + own.to_bytes(4, "big")
        self._lock = threading.Lock()
        self._plan: _Plan | None = None
        self._released = threading.Event()
        self._delivered = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        _end(self._listener)
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _end(each)
        for thread in self._threads:
            thread.join()

    def lose(self, loss: Loss, api: Api, nth: int = 1) -> None:
        """Arm: the nth request of that kind from now on is lost that way, once."""
        self._released.clear()
        self._delivered.clear()
        with self._lock:
            self._plan = _Plan(api, nth, loss)

    @property
    def fired(self) -> bool:
        """Whether what was armed has happened."""
        with self._lock:
            return self._plan is not None and self._plan.fired

    def release(self, deadline_s: float = 10.0) -> None:
        """Let the delayed request go on to the broker, and return when it has answered."""
        self._released.set()
        assert self._delivered.wait(deadline_s), "the broker does not answer the delayed request"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                _end(client)  # the broker is down: so the client shall see
                continue
            with self._lock:
                self._sockets += [client, server]
            swallow = threading.Event()
            self._start(lambda c=client, s=server, w=swallow: self._to_server(c, s, w))
            self._start(lambda c=client, s=server, w=swallow: self._to_client(c, s, w))

    def _to_server(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event
    ) -> None:
        while frame := _receive(client):
            loss = self._loss_of(frame)
            if loss is Loss.REQUEST:
                break
            if loss in (Loss.REPLY, Loss.DELAY):
                swallow.set()
            if loss is Loss.DELAY:
                _end(client)
                self._released.wait()
            if not _send(server, frame):
                break
            if loss is not None:
                return  # the reader of replies ends both, once the broker has answered
        _end(client)
        _end(server)

    def _to_client(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event
    ) -> None:
        while frame := _receive(server):
            if swallow.is_set():
                self._delivered.set()
                break
            if not _send(client, frame.replace(self._told, self._instead)):
                break
        _end(client)
        _end(server)

    def _loss_of(self, frame: bytes) -> Loss | None:
        with self._lock:
            plan = self._plan
            if plan is None or plan.fired or int.from_bytes(frame[4:6], "big") != plan.api:
                return None
            plan.nth -= 1
            plan.fired = plan.nth == 0
            return plan.loss if plan.fired else None

    def _start(self, work: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()


def _receive(source: socket.socket) -> bytes:
    """A whole frame with its length; nothing where the connection has ended."""
    head = _exactly(source, 4)
    if len(head) < 4:
        return b""
    size = int.from_bytes(head, "big")
    body = _exactly(source, size)
    return head + body if len(body) == size else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        try:
            part = source.recv(min(size, 1 << 20))
        except OSError:
            return b""
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _send(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)  # also wakes whoever waits on it
    each.close()
