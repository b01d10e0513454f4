"""The fast path past boto3: signed as boto3 signs, to servers that boto3 would trust."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue

import pytest

from abs_clients.s3.client import client, close_idle, direct
from abs_clients.s3.direct import Call
from abs_clients.s3.errors import translate_errors
from abs_clients.s3.server import Server
from abs_core.errors import RefusedError
from tests.kit.http import serving

CALL = Call("ListParts", "GET", "ListPartsResult", "bucket", "a/b", {"uploadId": "u"})
WAIT_SECONDS = 60.0


class _Answers(BaseHTTPRequestHandler):
    """Answers every request alike; on demand, closes the connection without saying so before."""

    protocol_version = "HTTP/1.1"
    hangs_up = False
    asked: SimpleQueue[object]

    def do_GET(self) -> None:
        body = b"<ListPartsResult/>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.hangs_up
        self.asked.put(self.client_address)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self, *, hangs_up: bool = False) -> None:
        self.asked: SimpleQueue[object] = SimpleQueue()
        self.hung_up = threading.Semaphore(0)
        fields = {"asked": self.asked, "hangs_up": hangs_up}
        super().__init__(("127.0.0.1", 0), type("Answers", (_Answers,), fields))

    def shutdown_request(self, request: object) -> None:
        super().shutdown_request(request)  # type: ignore[arg-type]
        self.hung_up.release()


@contextmanager
def running(server: _Server, scheme: str = "http") -> Iterator[Server]:
    named = Server(f"{scheme}://127.0.0.1:{server.server_port}", "us-east-1", pathstyle=True)
    with serving(server):
        yield named
        close_idle(named)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")


def test_one_connection_serves_many_requests() -> None:
    with running(server := _Server()) as named:
        for _ in range(3):
            assert direct(named).ask(CALL) is not None
        assert len({server.asked.get(timeout=WAIT_SECONDS) for _ in range(3)}) == 1


def test_a_connection_that_the_server_has_closed_is_not_used() -> None:
    with running(server := _Server(hangs_up=True)) as named:
        for _ in range(3):
            assert direct(named).ask(CALL) is not None
            assert server.hung_up.acquire(timeout=WAIT_SECONDS)
        assert len({server.asked.get(timeout=WAIT_SECONDS) for _ in range(3)}) == 3


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Certificate and key of a server at 127.0.0.1, in one file."""
    made = tmp_path / "server.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", str(made), "-out", str(tmp_path / "certificate.pem")),
            *("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "30"),
        ],
        check=True,
        capture_output=True,
    )
    with made.open("a") as file:
        file.write((tmp_path / "certificate.pem").read_text())
    return made


@pytest.mark.parametrize("trusted", [True, False])
def test_only_a_server_that_boto3_would_trust_is_asked(
    trusted: bool, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trusted:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    server = _Server()
    secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secured.load_cert_chain(authority)
    server.socket = secured.wrap_socket(server.socket, server_side=True)
    with running(server, "https") as named:
        assert (direct(named).ask(CALL) is not None) == trusted
        assert server.asked.empty() != trusted
        if not trusted:
            refused(named, "AWS_CA_BUNDLE")


def test_a_server_without_tls_is_refused_by_the_name_of_the_option() -> None:
    with running(_Server(), "https") as named:
        assert direct(named).ask(CALL) is None
        refused(named, "endpoint")


def refused(server: Server, what_to_change: str) -> None:
    """boto3's request, which tells why, ends in an error that is not retried."""
    with pytest.raises(RefusedError, match=what_to_change), translate_errors("looking"):
        client(server).head_bucket(Bucket="bucket")
