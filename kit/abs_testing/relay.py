"""A TCP relay that loses a request or a reply, delays or doubles a request, cuts or slows the line.

It knows no protocol: who uses it says how a message is cut off the stream, and which one is meant. With
``name_of`` it is a ``Calls`` of ``check_positions``: it counts the messages that have a name.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from abs_core.errors import UnavailableError
from abs_testing.calls import Again, Loss

_CHUNK = 1 << 16
_STEPS = 20
"""How often in a second a slow line passes bytes on."""

Receive = Callable[[socket.socket], bytes]
"""Reads the next message; nothing where the connection has ended."""


class Harm(Enum):
    """What becomes of the line, from a request on."""

    CUT = "half of the request arrives, then its connection breaks"
    SLOW = "the request and all that follows pass slowly, on all connections"
    STILL = "the request and all that follows stay here, on all connections"


@dataclass(slots=True)
class _Plan:
    matches: Callable[[bytes], bool]
    nth: int
    loss: Loss | Harm
    fired: bool = False


@dataclass(slots=True)
class Link:
    """A client's connection, and the one to the server for it."""

    client: socket.socket
    server: socket.socket
    sent: int = 0
    answered: int = 0
    swallow: threading.Event = field(default_factory=threading.Event)
    unheard: set[int] = field(default_factory=set)
    """Numbers of the answers that the client does not hear: the first ones to doubled requests."""
    deaf: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        _end(self.client)
        _end(self.server)


def chunk(source: socket.socket) -> bytes:
    """Whatever has come: a message, where each is sent in one piece and then answered."""
    try:
        return source.recv(_CHUNK)
    except OSError:
        return b""


def exactly(source: socket.socket, size: int) -> bytes:
    """So many bytes; nothing where the connection ends before."""
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


class Relay:
    """Stands before a server. A context manager; connections end with it.

    Args:
        server: host and port of the server.
        receive: how a message is read, from either side.
        hear: how one of the server is read, where that differs.
        rewrite: what becomes of a message to a client.
        amend: what becomes of one to the server.
        name_of: the name of a client's message that counts as a call; None where it is none.
        answers: whether the server answers each message of a client by one message, in order; without
            it no request can be doubled.
        only_late: what ``repeat`` brings again is lost at first, with its connection.
    """

    def __init__(
        self,
        server: tuple[str, int],
        receive: Receive = chunk,
        rewrite: Callable[[bytes], bytes] = lambda message: message,
        name_of: Callable[[bytes], str | None] = lambda message: None,
        *,
        answers: bool = True,
        hear: Receive | None = None,
        amend: Callable[[bytes], bytes] = lambda message: message,
        only_late: bool = False,
    ) -> None:
        self._server = server
        self._receive = receive
        self._hear = hear or receive
        self._rewrite = rewrite
        self._name_of = name_of
        self._answers = answers
        self._amend = amend
        self._seen: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        """Of the relay, on 127.0.0.1."""
        self._lock = threading.Lock()
        self._plan: _Plan | None = None
        self._again: Again[bytes] | None = None
        self._only_late = only_late
        self._speed = 0
        self._deaf = threading.Event()
        self._closing = threading.Event()
        self._released = threading.Event()
        self._delivered = threading.Event()
        self._links: list[Link] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._released.set()
        _end(self._listener)
        with self._lock:
            links = list(self._links)
        for link in links:
            link.end()
        for thread in self._threads:
            thread.join()

    def lose_if(self, loss: Loss | Harm, matches: Callable[[bytes], bool], nth: int = 1) -> None:
        """Arm: the nth matching message of clients from now on is lost that way, once."""
        self._released.clear()
        self._delivered.clear()
        with self._lock:
            self._plan = _Plan(matches, nth, loss)

    def arm(self, number: int, loss: Loss | Harm | None, name: str = "") -> None:
        """See ``Calls``."""

        def matches(message: bytes) -> bool:
            message_name = self._name_of(message)
            return message_name == name if name else message_name is not None

        self._released.clear()
        self._delivered.clear()
        with self._lock:
            self._plan = None if loss is None else _Plan(matches, number, loss)
            self._seen = []

    def repeat(self, name: str, number: int, before: str, nth: int) -> None:
        """See ``check_repeats.Repeating``: the copy comes over a connection of its own."""
        self.arm(1, None)
        with self._lock:
            self._again = Again(name, number, before, nth)

    @property
    def repeated(self) -> bool:
        """See there."""
        with self._lock:
            return self._again is not None and self._again.done

    def ends(self, name: str) -> bool:
        """See there."""
        return False

    def losses(self, name: str) -> Sequence[Loss]:
        """See ``Calls``."""
        return [loss for loss in Loss if self._answers or loss is not Loss.DOUBLE]

    @property
    def seen(self) -> Sequence[str]:
        """See ``Calls``."""
        with self._lock:
            return list(self._seen)

    def stand_still(self, *, new_ones: bool = True) -> None:
        """From now on nothing is passed on, in either direction, and no connection is ended.

        As a firewall that has forgotten its connections, or a server that stands still behind a
        kernel that lives: what its buffers hold is acknowledged.

        Args:
            new_ones: whether that goes for connections that are made later, too.
        """
        with self._lock:
            for link in self._links:
                link.deaf.set()
        if new_ones:
            self._deaf.set()

    def slow(self, bytes_per_s: int = 20_000) -> None:
        """From now on so little passes in a second, in each direction of each connection; 0: all."""
        self._speed = bytes_per_s

    @property
    def fired(self) -> bool:
        """Whether what was armed has happened."""
        with self._lock:
            return self._plan is not None and self._plan.fired

    def release(self, deadline_s: float = 60.0) -> None:
        """Let the delayed message go on to the server, and return when it has answered.

        Raises UnavailableError if it does not answer in time.
        """
        self._released.set()
        if not self._delivered.wait(deadline_s):
            raise UnavailableError(
                f"The server does not answer the delayed message within {deadline_s:.0f} s.",
                remedy="look whether it runs.",
            )

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                _end(client)  # the server is down: so the client shall see
                continue
            link = Link(client, server)
            with self._lock:
                self._links.append(link)
            if self._closing.is_set():
                link.end()  # whoever closes may not have seen it
            self._start(lambda link=link: self._to_server(link))
            self._start(lambda link=link: self._to_client(link))

    def _to_server(self, link: Link) -> None:
        while message := self._receive(link.client):
            if self._deaf.is_set() or link.deaf.is_set():
                self._closing.wait()
                break
            loss, late = self._loss_of(message)
            if late:
                self._deliver(late)
            message = self._amend(message)
            if loss in (Loss.REQUEST, *Harm) and self._harm(link, message, loss):
                break
            if loss is Loss.DOUBLE:
                message = self._double(link, message)
            link.sent += 1
            if loss in (Loss.REPLY, Loss.DELAY):
                link.swallow.set()
            if loss is Loss.DELAY:
                _end(link.client)
                self._released.wait()
            if not self._pass(link.server, message):
                break
            if link.swallow.is_set():
                return  # the reader of replies ends both, once the server has answered
        link.end()

    def _harm(self, link: Link, message: bytes, loss: Loss | Harm | None) -> bool:
        """Whether the message ends here, and the connection with it."""
        if loss is Harm.SLOW:
            self.slow()
            return False
        if loss is Harm.CUT:
            _send(link.server, message[: len(message) // 2])
        if loss is Harm.STILL:
            self.stand_still()
            self._closing.wait()
        return True

    def _double(self, link: Link, message: bytes) -> bytes:
        """What goes to the server where a request is doubled; the first answer is not heard."""
        link.unheard.add(link.sent)
        link.sent += 1
        return message * 2

    def _pass(self, target: socket.socket, data: bytes) -> bool:
        """Whether it could be sent."""
        if not self._speed:
            return _send(target, data)
        step = max(1, self._speed // _STEPS)
        return not any(
            self._closing.wait(1 / _STEPS) or not _send(target, data[at : at + step])
            for at in range(0, len(data), step)
        )

    def _to_client(self, link: Link) -> None:
        while message := self._hear(link.server):
            link.answered += 1
            if self._deaf.is_set() or link.deaf.is_set():
                self._closing.wait()
                break
            if link.swallow.is_set():
                self._delivered.set()
                break
            if link.answered - 1 in link.unheard:
                continue
            if not self._pass(link.client, self._rewrite(message)):
                break
        link.end()

    def _loss_of(self, message: bytes) -> tuple[Loss | Harm | None, bytes]:
        """How it is lost, and the copy of an earlier one that comes before it."""
        with self._lock:
            name = self._name_of(message)
            late = b"" if name is None else self._count(name, message)
            if self._only_late and self._again is not None and message is self._again.kept:
                return Loss.REQUEST, late
            plan = self._plan
            if plan is None or plan.fired or not plan.matches(message):
                return None, late
            plan.nth -= 1
            plan.fired = plan.nth == 0
            return (plan.loss if plan.fired else None), late

    def _count(self, name: str, message: bytes) -> bytes:
        self._seen.append(name)
        late = None if self._again is None else self._again.meets(self._seen, message)
        return late or b""

    def _deliver(self, message: bytes) -> None:
        with socket.create_connection(self._server) as connection:
            connection.sendall(message)
            self._hear(connection)

    def _start(self, work: Callable[..., None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()


def _send(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)  # also wakes whoever waits on it
    connection.close()
