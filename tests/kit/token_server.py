"""A token server (OpenID Connect, client credentials) whose tokens Kafka's own validator checks.

The standard library has no RSA, and the validator takes no unsigned tokens: a key for tests is made
here, of random primes, and signs by PKCS#1 v1.5.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import secrets
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from abs_services.processes import free_ports

EXPONENT = 65_537
_PREFIX = bytes.fromhex("3031300d060960864801650304020105000420")
"""Of a SHA-256 digest in PKCS#1 v1.5."""
_SMALL = math.prod(range(3, 2000, 2))
"""Holds each small odd prime."""


class TokenServer:
    """Serves until the block ends; its behaviour may be changed meanwhile.

    Args:
        life: seconds that a token lives.
    """

    def __init__(self, life: float = 30.0) -> None:
        [self.port] = free_ports(1)
        self.life, self.audience, self.status = life, "kafka", 200
        self.client, self.secret = "app", f"geheim-{secrets.token_hex(8)}"
        self.tokens: list[str] = []
        self.redirect: str | None = None
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        _key()  # takes seconds on a busy machine, longer than a client waits
        served = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self._answer(200, {"keys": [public_key()]})

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
                self._answer(*served.answer(self.headers["authorization"], form))

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("location", served.redirect or "")
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Be away: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, login: str, form: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        wanted = base64.b64encode(f"{self.client}:{self.secret}".encode()).decode()
        if self.redirect is not None:
            return 302, {}
        if self.status != 200:
            return self.status, {"error": "not_now"}
        if login != f"Basic {wanted}" or form["grant_type"] != ["client_credentials"]:
            return 401, {"error": "invalid_client", "error_description": f"not {self.secret}"}
        self.tokens.append(self.made())
        return 200, {"access_token": self.tokens[-1], "expires_in": self.life}

    def made(self) -> str:
        """A token that is signed."""
        now = int(time.time())
        head = {"alg": "RS256", "kid": "k1", "typ": "JWT"}
        claims = {"iss": self.url, "sub": self.client, "aud": self.audience, "scope": "kafka"}
        body = {**claims, "iat": now, "exp": now + int(self.life)}
        text = f"{_url64(json.dumps(head).encode())}.{_url64(json.dumps(body).encode())}"
        return f"{text}.{_url64(_signature(text.encode()))}"

    def settings(self, bootstrap: str) -> dict[str, str]:
        """librdkafka's settings of a client that logs in here."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": self.client,
            "sasl.oauthbearer.client.secret": self.secret,
            "sasl.oauthbearer.scope": "kafka",
            "sasl.oauthbearer.token.endpoint.url": f"{self.url}/token",
        }


def public_key() -> dict[str, str]:
    """As a JSON Web Key."""
    n, _ = _key()
    both = {"n": _url64(_bytes(n)), "e": _url64(_bytes(EXPONENT))}
    return {"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256", **both}


def _signature(content: bytes) -> bytes:
    n, d = _key()
    digest = _PREFIX + hashlib.sha256(content).digest()
    padded = b"\x00\x01" + b"\xff" * (256 - 3 - len(digest)) + b"\x00" + digest
    return pow(int.from_bytes(padded, "big"), d, n).to_bytes(256, "big")


@cache
def _key() -> tuple[int, int]:
    """Modulus of 2048 bits, and the private exponent."""
    p, q = _prime(), _prime()
    return p * q, pow(EXPONENT, -1, (p - 1) * (q - 1))


def _prime() -> int:
    while True:
        # The two highest bits are set, so that the product of two has 2048 bits.
        found = secrets.randbits(1024) | (3 << 1022) | 1
        if (
            math.gcd(found, _SMALL) == 1  # most are sorted out without a long power
            and all(pow(base, found - 1, found) == 1 for base in (2, 3, 5, 7, 11))
            and found % EXPONENT != 1
        ):
            return found


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _url64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
