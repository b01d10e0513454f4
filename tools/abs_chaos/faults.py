"""Relays that know what a request of PostgreSQL, Kafka or S3 is: before a server, in a test.

What they cannot read: TLS, pipelines of PostgreSQL, HTTP/2. They keep each message whole in memory.
"""

from __future__ import annotations

import re
import socket
from enum import IntEnum
from urllib.parse import urlsplit

from abs_core.errors import OptionError
from abs_testing.relay import Link, Relay, chunk, exactly

_THIS_MACHINE = ("127.0.0.1", "localhost")


class Faults(Relay):
    """Stands before a server.

    Attributes:
        address: what was given, with the relay's host and port instead of the server's.
    """

    address: str


def before(address: str) -> Faults:
    """The relay before a server: a URL of PostgreSQL, ``http://host:port`` of S3, or Kafka's host:port.

    Raises OptionError: it is none of them, it is encrypted, or the broker is not on this machine,
    whose clients would go to it past the relay.
    """
    parts = urlsplit(address if "://" in address else f"kafka://{address}")
    kind, usual = _KINDS.get(parts.scheme, (None, 0))
    if kind is None or parts.hostname is None:
        raise OptionError(
            f"Nothing is known of a server at {parts.scheme}://{parts.hostname or ''}.",
            remedy="give postgresql://..., http://host:port or host:port.",
        )
    host, port = parts.hostname, parts.port or usual
    if kind is KafkaFaults and host not in _THIS_MACHINE:
        raise OptionError(
            f"The broker {host} tells its clients to connect to it directly.",
            remedy="take a broker of this machine, whose host is 127.0.0.1.",
        )
    relay = kind(host, port)
    user, at, _ = parts.netloc.rpartition("@")
    through = parts._replace(netloc=f"{user}{at}127.0.0.1:{relay.port}").geturl()
    relay.address = through if "://" in address else through.removeprefix("kafka://")
    return relay


class _Postgres(Faults):
    """A request is all that the server answers together; its name is its first words."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _asked, name_of=_words, hear=_answered)

    def _double(self, link: Link, message: bytes) -> bytes:
        # Rows of a COPY are not answered: the next answer is the one to this request.
        link.unheard.add(link.answered)
        return message * 2


def _asked(source: socket.socket) -> bytes:
    """Messages up to one after which the client waits, or the next rows of a COPY."""
    said = b""
    while kind := exactly(source, 1):
        # What begins a connection has no kind, and a length below 2**24.
        head = kind + exactly(source, 3 if kind == b"\0" else 4)
        said += head + exactly(source, int.from_bytes(head[-4:], "big") - 4)
        if kind in b"\0QSHFpdcfX":
            return said
    return said


def _answered(source: socket.socket) -> bytes:
    """Messages up to the one after which the server waits; one byte where TLS was asked for."""
    try:
        if len(source.recv(5, socket.MSG_PEEK)) == 1:
            return chunk(source)
    except OSError:
        return b""
    said = b""
    while head := exactly(source, 5):
        body = exactly(source, int.from_bytes(head[1:], "big") - 4)
        said += head + body
        waits = head[:1] == b"R" and body[:4] not in (b"\0\0\0\0", b"\0\0\0\x0c")
        if waits or head[:1] in b"ZGWA":
            break
    return said


_WORD = re.compile(rb"[A-Za-z]+")


def _words(message: bytes) -> str | None:
    """``INSERT INTO t``; None for what begins a connection, and for rows of a COPY."""
    if message[:1] not in b"QP":
        return None
    return b" ".join(_WORD.findall(message[5:200])[:3]).decode()


class Api(IntEnum):
    """Keys of Kafka's requests."""

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


class KafkaFaults(Faults):
    """A request is a frame with its length, and its name that of its API.

    Brokers tell clients where to connect; in what they say the relay puts its own port. One on this
    machine may call it by another name than the one given.

    Args:
        only_late: see ``Relay``.
    """

    def __init__(self, host: str, port: int, *, only_late: bool = False) -> None:
        server, ask, answer = (host, port), self._request, self._answer
        super().__init__(server, _frame, answer, name_of, amend=ask, only_late=only_late)
        names = [name.encode() for name in {host, *_THIS_MACHINE}]
        server_port, own = port.to_bytes(4, "big"), self.port.to_bytes(4, "big")
        self._instead = {name + server_port: name + own for name in names}

    def _request(self, frame: bytes) -> bytes:
        return frame

    def _answer(self, frame: bytes) -> bytes:
        for address, instead in self._instead.items():
            frame = frame.replace(address, instead)
        return frame


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


class _S3(Faults):
    """A request's name is its method. Each has a connection of its own."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _http, name_of=_method, hear=_to_its_end)

    def _double(self, link: Link, message: bytes) -> bytes:
        self._deliver(message)
        return message


def _http(source: socket.socket) -> bytes:
    """A request, after which the server closes the connection: so its answer has an end."""
    first, headers = _line(source), list(iter(lambda: _line(source).strip(), b""))
    if not first:
        return b""
    named = {name.lower(): text.strip() for name, _, text in (h.partition(b":") for h in headers)}
    if named.get(b"expect"):
        source.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    kept = [h for h in headers if h.partition(b":")[0].lower() not in (b"expect", b"connection")]
    size = int(named.get(b"content-length", b"0"))
    body = _chunks(source) if b"transfer-encoding" in named else exactly(source, size)
    return b"\r\n".join((first.strip(), *kept, b"Connection: close", b"", body))


def _chunks(source: socket.socket) -> bytes:
    """A body in chunks, with its trailers, as it comes."""
    said = b""
    while line := _line(source):
        size = int(line.split(b";")[0], 16)
        said += line
        if not size:
            break
        said += exactly(source, size + 2)
    while line.strip():
        line = _line(source)
        said += line
    return said


def _line(source: socket.socket) -> bytes:
    """With its end; nothing where the connection has ended."""
    said = b""
    while not said.endswith(b"\n") and (byte := exactly(source, 1)):
        said += byte
    return said


def _to_its_end(source: socket.socket) -> bytes:
    """All that the server says on this connection."""
    return b"".join(iter(lambda: chunk(source), b""))


def _method(message: bytes) -> str:
    return message.partition(b" ")[0].decode("ascii", "replace")


_KINDS: dict[str, tuple[type[_Postgres] | type[KafkaFaults] | type[_S3], int]] = {
    "postgresql": (_Postgres, 5432),
    "postgres": (_Postgres, 5432),
    "kafka": (KafkaFaults, 9092),
    "http": (_S3, 80),
}
