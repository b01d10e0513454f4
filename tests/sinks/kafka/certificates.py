"""Certificates of clients, by the command ``openssl``: for brokers that let nobody in without."""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.kit.kafka_secured import SecuredKafka

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Certified:
    """A client with a certificate.

    Args:
        principal: what a broker takes it for.
        certificate, key: PEM files.
        locked: the key again, behind ``password``.
    """

    principal: str
    certificate: Path
    key: Path
    locked: Path
    password: str

    def client(self, kafka: SecuredKafka) -> dict[str, str]:
        """The ``kafka.*`` settings by which it comes in, without prefix."""
        return {
            "bootstrap.servers": kafka.certificate_bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str(kafka.authority),
            "ssl.certificate.location": str(self.certificate),
            "ssl.key.location": str(self.key),
        }


class Authority:
    """Vouches for clients, with files in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        name = f"/CN=test authority {secrets.token_hex(4)}"
        made = ("-nodes", "-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *_KEY, *made, "-subj", name, "-days", "30")

    def new(self) -> Certified:
        """A client that it vouches for."""
        name = f"job-{secrets.token_hex(4)}"
        key, request, certificate, locked = (
            self._folder / f"{name}.{end}" for end in ("key", "csr", "pem", "locked.key")
        )
        asked = ("-nodes", "-keyout", str(key), "-out", str(request), "-subj", f"/CN={name}")
        _openssl("req", *_KEY, *asked)
        by = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        _openssl("x509", "-req", "-in", str(request), *by, "-days", "30", "-out", str(certificate))
        password = secrets.token_urlsafe(12)
        lock = ("-topk8", "-in", str(key), "-out", str(locked), "-passout", f"pass:{password}")
        _openssl("pkcs8", *lock)
        return Certified(f"CN={name}", certificate, key, locked, password)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
