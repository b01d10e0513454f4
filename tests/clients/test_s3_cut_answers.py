"""An answer of S3 that ends within its headers is no answer, and is told as such."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import UnavailableError
from abs_sinks.s3.options import S3Options


@pytest.fixture
def cut_server() -> Iterator[str]:
    """The address of a server whose every answer ends within its headers."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nx-amz-me")

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_a_head_that_ends_within_its_headers_is_told_as_no_answer(
    cut_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    given = {"path": "s3://bucket/rows", "endpoint": cut_server, "region": "us-east-1"}
    with pytest.raises(UnavailableError, match=r"s3://bucket/rows/a .*ended within its headers"):
        Objects(S3Options.parse(given).bucket).head("rows/a")
