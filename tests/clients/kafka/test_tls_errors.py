"""What librdkafka says of a handshake of TLS that fails: refused is final, a lost connection is not.

It has two texts for each, by whether the broker's answer was there at OpenSSL's first call.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from abs_clients.kafka.auth_check import check_access
from abs_clients.kafka.errors import is_auth_failure
from abs_core.errors import RefusedError
from abs_sinks.kafka.options import KafkaOptions
from abs_testing.case import within

NO_TLS = b"HTTP/1.1 400 Bad Request\r\n\r\n"
NO_CIPHER = bytes.fromhex("15030300020228")
"""The fatal alert 40, handshake_failure."""

Served = Callable[[bytes, bool], str]


@pytest.fixture
def serve() -> Iterator[Served]:
    """Starts a server that answers these bytes, at once or to the client's first, and hangs up."""
    servers: list[socket.socket] = []

    def start(answer: bytes, at_once: bool) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threading.Thread(target=hang_up, args=(server, answer, at_once), daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def hang_up(server: socket.socket, answer: bytes, at_once: bool) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client, suppress(OSError):  # the client may hang up first
            if at_once:
                client.sendall(answer)
            client.recv(4096)
            if not at_once:
                client.sendall(answer)
            if not answer:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def told_by(bootstrap: str) -> list[KafkaError]:
    """What a client is told of its first connections."""
    events: list[KafkaError] = []
    config: dict[str, Any] = {"bootstrap.servers": bootstrap, "error_cb": events.append}
    client = AdminClient(config | {"security.protocol": "SSL", "log_level": 0})

    def reasons() -> list[KafkaError]:
        client.poll(0.05)
        return [event for event in events if event.code() != KafkaError._ALL_BROKERS_DOWN]

    assert within(60, lambda: len(reasons()) >= 1)
    return reasons()


def told_until(code: int, bootstrap: str) -> list[KafkaError]:
    """What clients are told, one after the other, until one of them hears this code."""
    seen: list[KafkaError] = []

    def is_told() -> bool:
        seen.extend(told_by(bootstrap))
        return code in [each.code() for each in seen]

    assert within(60, is_told)
    return seen


@pytest.mark.parametrize("answer", [NO_TLS, NO_CIPHER], ids=["no-tls", "alert"])
def test_a_handshake_that_the_broker_refuses_is_final_by_either_text(
    serve: Served, answer: bytes
) -> None:
    for at_once, code in ((True, KafkaError._TRANSPORT), (False, KafkaError._SSL)):
        bootstrap = serve(answer, at_once)
        seen = told_until(code, bootstrap)
        assert [each.str() for each in seen if not is_auth_failure(each)] == []
        given = {"kafka.bootstrap.servers": bootstrap, "kafka.security.protocol": "SSL"}
        with pytest.raises(RefusedError, match="SSL routines"):
            check_access(KafkaOptions.parse({**given, "topic": "t"}).kafka)


def test_a_connection_that_is_lost_within_the_handshake_is_not_final(serve: Served) -> None:
    told = told_by(serve(b"", False))
    assert [each.str() for each in told if is_auth_failure(each)] == []
