"""A TCP proxy that loses a request, a reply, or delays a request, on purpose: for tests of recovery.

It looks for a text in what clients send. psycopg sends each statement in one piece, so a statement
is found by a word in it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_CHUNK = 1 << 16


class Loss(StrEnum):
    """What becomes of the message that has the text.

    REQUEST: the server never gets it. REPLY: the server gets it and answers; the client sees a broken
    connection. DELAY: the client sees a broken connection; the server gets it at ``release``.
    """

    REQUEST = "request"
    REPLY = "reply"
    DELAY = "delay"


@dataclass(slots=True)
class _Plan:
    text: bytes
    nth: int
    loss: Loss
    fired: bool = False


class LossyProxy:
    """Stands before a PostgreSQL server. A context manager; connections end with it.

    Args:
        url: libpq URI of the server, by TCP.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        at = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=at))
        """libpq URI of the proxy."""
        self._lock = threading.Lock()
        self._plan: _Plan | None = None
        self._released = threading.Event()
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

    def lose(self, loss: Loss, text: str, nth: int = 1) -> None:
        """Arm: the nth message from now on that has ``text`` in it is lost that way, once."""
        self._released.clear()
        with self._lock:
            self._plan = _Plan(text.encode(), nth, loss)

    @property
    def fired(self) -> bool:
        """Whether what was armed has happened."""
        with self._lock:
            return self._plan is not None and self._plan.fired

    def release(self) -> None:
        """Let the delayed message go on to the server."""
        self._released.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
            except OSError:
                return
            with self._lock:
                self._sockets += [client, server]
            link = _Link(client, server)
            self._start(lambda link=link: self._to_server(link))
            self._start(lambda link=link: self._to_client(link))

    def _to_server(self, link: _Link) -> None:
        while data := _receive(link.client):
            loss = self._loss_of(data)
            if loss is Loss.REQUEST:
                break
            if loss is Loss.REPLY:
                link.swallow.set()
            if loss is Loss.DELAY:
                link.swallow.set()
                _end(link.client)
                self._released.wait()
            if not _send(link.server, data):
                break
            if loss is not None:
                # The reader of replies ends both, once the server has answered.
                return
        link.end()

    def _to_client(self, link: _Link) -> None:
        while data := _receive(link.server):
            if link.swallow.is_set():
                break
            if not _send(link.client, data):
                break
        link.end()

    def _loss_of(self, data: bytes) -> Loss | None:
        with self._lock:
            plan = self._plan
            if plan is None or plan.fired or plan.text not in data:
                return None
            plan.nth -= 1
            plan.fired = plan.nth == 0
            return plan.loss if plan.fired else None

    def _start(self, work: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()


class _Link:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.swallow = threading.Event()

    def end(self) -> None:
        _end(self.client)
        _end(self.server)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(_CHUNK)
    except OSError:
        return b""


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
