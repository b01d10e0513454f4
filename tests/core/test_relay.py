"""A relay counts what it carries, and loses one message of it as it was told."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from abs_testing.calls import Loss
from abs_testing.case import within
from abs_testing.relay import Harm, Link, Relay, chunk, exactly
from tests.kit.http import serving

SIZE = 4
"""Bytes of each message; the server answers each by its number and the message."""


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    heard: list[bytes]


class Answers(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        while message := exactly(self.request, SIZE):
            self.server.heard.append(message)
            self.request.sendall(b"%d%s" % (len(self.server.heard), message[1:]))


def message(source: socket.socket) -> bytes:
    return exactly(source, SIZE)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server(("127.0.0.1", 0), Answers)) as server:
        server.heard = []
        yield server


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    def name(found: bytes) -> str | None:
        return None if found.startswith(b"hi") else found.decode()

    host, port = server.server_address[:2]
    with Relay((str(host), port), message, name_of=name) as relay:
        yield relay


def say(relay: Relay, *messages: bytes) -> list[bytes]:
    """What is answered, one by one, over one connection; nothing where it breaks."""
    with closing(socket.create_connection(("127.0.0.1", relay.port))) as client:
        answers = []
        for one in messages:
            try:
                client.sendall(one)
            except OSError:
                break
            answers.append(message(client))
        return answers


def test_only_messages_with_a_name_are_counted(relay: Relay, server: Server) -> None:
    relay.arm(2, Loss.REQUEST)
    assert say(relay, b"hi..", b"one.", b"hi..", b"two.") == [b"1i..", b"2ne.", b"3i..", b""]
    assert relay.seen == ["one.", "two."]
    assert relay.fired
    assert server.heard == [b"hi..", b"one.", b"hi.."]


def test_a_reply_is_lost_and_the_request_is_not(relay: Relay, server: Server) -> None:
    relay.arm(1, Loss.REPLY)
    assert say(relay, b"one.") == [b""]
    assert server.heard == [b"one."]


def test_a_doubled_request_is_answered_by_the_second_answer(relay: Relay, server: Server) -> None:
    relay.arm(2, Loss.DOUBLE)
    assert say(relay, b"one.", b"two.", b"six.") == [b"1ne.", b"3wo.", b"4ix."]
    assert server.heard == [b"one.", b"two.", b"two.", b"six."]


def test_a_delayed_request_arrives_when_it_is_released(relay: Relay, server: Server) -> None:
    relay.arm(1, Loss.DELAY)
    assert say(relay, b"one.") == [b""]
    assert say(relay, b"two.") == [b"1wo."]
    assert server.heard == [b"two."]
    relay.release(deadline_s=60.0)
    assert within(60.0, lambda: server.heard == [b"two.", b"one."])


def test_half_of_a_request_arrives_where_the_line_is_cut(relay: Relay, server: Server) -> None:
    relay.arm(2, Harm.CUT)
    assert say(relay, b"one.", b"two.") == [b"1ne.", b""]
    assert say(relay, b"six.") == [b"2ix."]
    assert server.heard == [b"one.", b"six."]


def test_a_slow_line_passes_so_many_bytes_a_second_each_way(relay: Relay) -> None:
    relay.slow(20)
    began = time.monotonic()
    assert say(relay, b"one.") == [b"1ne."]
    assert time.monotonic() - began >= 8 / 20
    relay.slow(0)
    assert say(relay, b"two.") == [b"2wo."]


def test_a_request_is_found_by_its_number_among_those_of_its_name(relay: Relay) -> None:
    relay.arm(2, Loss.REQUEST, "one.")
    said = say(relay, b"two.", b"one.", b"two.", b"two.", b"one.")
    assert said == [b"1wo.", b"2ne.", b"3wo.", b"4wo.", b""]
    assert relay.fired


def test_nothing_is_lost_where_nothing_is_to_be(relay: Relay) -> None:
    relay.arm(1, None)
    assert say(relay, b"one.", b"two.") == [b"1ne.", b"2wo."]
    assert not relay.fired
    assert relay.seen == ["one.", "two."]


@pytest.mark.timeout(60)
def test_a_connection_that_is_made_while_the_relay_closes_ends_with_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting, closing_links = threading.Event(), threading.Event()

    class Links(list[Link]):
        def __iter__(self) -> Iterator[Link]:
            closing_links.set()
            return super().__iter__()

    connect = socket.create_connection

    def late(address: tuple[str, int]) -> socket.socket:
        connecting.set()
        assert closing_links.wait(30)
        return connect(address)

    host, port = server.server_address[:2]
    with Relay((str(host), port), message) as relay:
        relay._links = Links()
        monkeypatch.setattr(socket, "create_connection", late)
        client = connect(("127.0.0.1", relay.port))
        assert connecting.wait(30)
    with closing(client):
        assert not chunk(client)
